package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// applyAlone answers how many batches of a commit's size clients apply in a second,
// each to a branch of its own, without HTTP and with objects deflated beforehand.
func (s *commits) applyAlone(w http.ResponseWriter, r *http.Request) {
	clients, err := strconv.Atoi(r.FormValue("clients"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d, err := time.ParseDuration(r.FormValue("for"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	rate, err := s.applyRate(r.Context(), clients, d)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, rate)
}

func (s *commits) applyRate(ctx context.Context, clients int, d time.Duration) (float64, error) {
	counts := make([]int, clients)
	work, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for client := range clients {
		work.Go(func() (err error) {
			counts[client], err = s.applyUntil(ctx, fmt.Sprintf("a/%d-%d", start.UnixNano(), client), start.Add(d))
			return err
		})
	}
	err := work.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / time.Since(start).Seconds(), err
}

// applyUntil applies one batch after another. The bytes of the objects stay, their
// ids are new each time.
func (s *commits) applyUntil(ctx context.Context, branch string, end time.Time) (n int, err error) {
	objects := sampleCommit()
	_, _ = rand.Read(objects[0].oid[:]) // never fails
	var record []byte
	for old := objects[2].hex(); time.Now().Before(end); n++ {
		for i := range objects {
			objects[i].oid = objects[0].oid
			binary.BigEndian.PutUint64(objects[i].oid[12:], uint64(3*n+i))
		}
		if record, err = s.apply(ctx, branch, old, record, time.Now(), objects...); err != nil {
			return n, err
		}
		old = objects[2].hex()
	}
	return n, nil
}

// sampleCommit is a commit of one file of 1 KiB that deflates to about half.
func sampleCommit() []object {
	half := make([]byte, 512)
	_, _ = rand.Read(half)
	blob := newObject(blobType, []byte(base64.StdEncoding.EncodeToString(half)+fmt.Sprintf("%0340d", 0)))
	tree := newObject(treeType, treeOf("100644", "state.json", blob))
	who := "bench <bench@example.invalid> 1700000000 +0000"
	commit := newObject(commitType, fmt.Appendf(nil, "tree %s\nparent %s\nauthor %s\ncommitter %s\n\nstep\n", tree.hex(), tree.hex(), who, who))
	objects := []object{blob, tree, commit}
	for i := range objects {
		objects[i].packed = objects[i].stored()
	}
	return objects
}
