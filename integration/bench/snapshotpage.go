package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// coldPages is how many pages one repetition reads cold.
const coldPages = 60

// pageWarm reads pages for a repetition's time, none for the first time.
func (a *aged) pageWarm(ctx context.Context) (float64, error) {
	c := a.w.connect(a.r.server.address)
	seed := uint64(time.Now().UnixNano())
	const pages = 500
	var took []time.Duration
	for round := range 2 { // the first one warms
		random := rand.New(rand.NewPCG(seed, 1))
		begun := time.Now()
		for n := 0; n < pages && (round == 0 || n < 20 || time.Since(begun) < a.w.span); n++ {
			d, err := a.page(ctx, c, random)
			if err != nil {
				return 0, err
			}
			if round > 0 {
				took = append(took, d)
			}
		}
	}
	return 1 / percentile(took, 50).Seconds(), nil
}

// pageCold reads pages, each when nothing of the data folder is in the page cache.
func (a *aged) pageCold(ctx context.Context) (float64, error) {
	c := a.w.connect(a.r.server.address)
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	var took []time.Duration
	for range coldPages {
		if err := dropCached(a.data()); err != nil {
			return 0, err
		}
		d, err := a.page(ctx, c, random)
		if err != nil {
			return 0, err
		}
		took = append(took, d)
	}
	return 1 / percentile(took, 50).Seconds(), nil
}

// page reads one page of one snapshot, and looks whether it is what was saved.
func (a *aged) page(ctx context.Context, c *conn, random *rand.Rand) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s := a.kept[random.IntN(len(a.kept))]
	at := int64(random.IntN(s.image.Pages())) * snapshottest.PageBytes
	lines := fmt.Sprintf("Range: bytes=%d-%d", at, at+snapshottest.PageBytes-1)
	request := message("GET", a.r.path("/snapshots/"+s.sha+"/image"), a.r.bearer(), "", nil, lines)
	begun := time.Now()
	got, err := c.do(request, http.StatusPartialContent)
	took := time.Since(begun)
	if err != nil {
		return 0, err
	}
	want := make([]byte, snapshottest.PageBytes)
	if _, err := s.image.ReadAt(want, at); err != nil {
		return 0, err
	}
	if !bytes.Equal(got, want) {
		return 0, fmt.Errorf("page at %d of %s is not what was saved", at, s.sha)
	}
	return took, nil
}

// fadviseDontNeed is POSIX_FADV_DONTNEED on Linux.
const fadviseDontNeed = 4

// dropCached lets the page cache forget all files of a folder that it has written down.
func dropCached(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		if _, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, fadviseDontNeed, 0, 0); errno != 0 {
			return fmt.Errorf("fadvise %s: %w", path, errno)
		}
		return nil
	})
}
