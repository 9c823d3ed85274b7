package pebbledb

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Deleted keys stay where they were, marked as such, until Pebble has merged the
// tables they are in, and whoever reads a range steps over them: where the oldest
// keys are deleted again and again, reading the first of those that are left would
// cost more and more. So a read that met many of them has the range merged.
const (
	// manyDead is how many deleted or replaced keys one read may meet: some milliseconds.
	manyDead = 5_000
	// mergeShare is the least rest after a merge, in times of what it took, and
	// mergeRest that of a short one, so that merging holds nobody up.
	mergeShare = 20
	mergeRest  = 5 * time.Second
)

// deadKeys has ranges merged, one at a time.
type deadKeys struct {
	ctx  context.Context // ends with the engine
	stop context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex // guards all below
	busy  bool
	after time.Time // when the next merge may begin
}

func newDeadKeys() *deadKeys {
	d := &deadKeys{}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// met is told how many keys a read of [lower, upper) met that it did not give. The
// caller holds the engine open.
func (d *deadKeys) met(n int, pdb *pebble.DB, lower, upper []byte) {
	if n < manyDead {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy || time.Now().Before(d.after) || d.ctx.Err() != nil {
		return
	}
	d.busy = true
	lower, upper = bytes.Clone(lower), bytes.Clone(upper)
	d.work.Go(func() {
		begun := time.Now()
		// What fails here is tried again by whoever reads the range next; that the disk
		// is in trouble is noticed elsewhere.
		_ = pdb.Compact(d.ctx, lower, upper, false)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.busy, d.after = false, time.Now().Add(max(mergeRest, mergeShare*time.Since(begun)))
	})
}

// close waits for a merge under way. Nobody calls met any more.
func (d *deadKeys) close() {
	d.stop()
	d.work.Wait()
}
