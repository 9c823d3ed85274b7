package pebbledb

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Whoever writes while the disk fills up is told what became of it: what was
// acknowledged is there, what was refused for want of space is not, and nothing is
// left in doubt.
func TestG06_FullDiskLeavesNoDoubt(t *testing.T) {
	const writers, size = 8, 20_000
	fs := newFaultyFS(vfs.NewCrashableMem(), "ledger")
	r := openTest(t, "ledger", Options{FS: fs, ReserveBytes: 24 << 20, checkEvery: fast, patience: time.Minute})
	value := noise(size)
	told := map[string]bool{} // by key: it was acknowledged
	var mu sync.Mutex
	spaceOf := func(w int) ledger.Space { return ledger.RepoSpace(fmt.Sprint("s", w%3)) }
	for round := range 2 {
		room, _ := func() (int64, bool) { fs.setCapacity(1 << 30); return fs.room() }()
		fs.setCapacity(1<<30 - room + 1<<20)
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for n := 0; ; n++ {
					key := fmt.Sprintf("%d/%d/%d", w, round, n)
					b := ledger.Batch{Space: spaceOf(w), Sets: []ledger.Set{{Key: key, Value: value}}}
					if n%2 == 0 {
						b.Log = []byte(key)
					}
					_, err := r.db.Apply(t.Context(), b)
					mu.Lock()
					told[key] = err == nil
					mu.Unlock()
					if err == nil && n < 1000 {
						continue
					}
					if !errors.Is(err, ledger.ErrNoSpace) || errors.Is(err, ledger.ErrUnavailable) {
						t.Errorf("Apply as the disk fills up = %v, want ErrNoSpace alone", err)
					}
					return
				}
			})
		}
		all.Wait()
		for w := range writers { // of the spaces that were written, too
			if err := lookup(r.db, spaceOf(w), fmt.Sprintf("%d/%d/0", w, round), size); told[fmt.Sprintf("%d/%d/0", w, round)] && err != nil {
				t.Errorf("Read on a full disk = %v", err)
			}
		}
		fs.setCapacity(1 << 30)
		eventually(t, "writes after space returned", func() error { return put(r.db, spaceOf(0), "after", []byte("x")) })
	}
	if r.db.reopens.Load() == 0 {
		t.Error("the ledger was never opened anew: the test proves nothing")
	}
	for key, there := range told {
		var w int
		_, _ = fmt.Sscanf(key, "%d/", &w)
		err := lookup(r.db, spaceOf(w), key, size)
		if there && err != nil || !there && !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("batch %s, acknowledged %v: reading it = %v", key, there, err)
		}
	}
}

func TestFateOfAFlight(t *testing.T) {
	at := func(last uint64, at int64) meta { return meta{last: last, at: at} }
	for _, tc := range []struct {
		name                string
		before, after, left meta
		want                fate
	}{
		{"nothing of it is there", at(3, 10), at(4, 11), at(3, 10), lost},
		{"nor of the one before", at(3, 10), at(4, 11), at(2, 9), lost},
		{"it is the last", at(3, 10), at(4, 11), at(4, 11), written},
		{"one after it is there", at(3, 10), at(4, 11), at(5, 11), written},
		{"without a log entry", at(3, 10), at(3, 11), at(3, 10), lost},
		{"without a log entry, written", at(3, 10), at(3, 11), at(3, 11), written},
		{"two in one microsecond", at(3, 11), at(3, 11), at(3, 11), unknown},
		{"two in one microsecond, neither", at(3, 11), at(3, 11), at(3, 10), lost},
	} {
		if got := fateOf(&flight{before: tc.before, meta: tc.after}, tc.left); got != tc.want {
			t.Errorf("%s: fate = %d, want %d", tc.name, got, tc.want)
		}
	}
}
