package pebbledb

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Reading the first keys of a range whose oldest were deleted costs little again soon
// after somebody found it to cost much.
func TestReadsOfWhatWasDeletedBecomeCheap(t *testing.T) {
	db, err := Open("ledger", Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	defer db.Close()
	const n = 2 * manyDead
	for from := 0; from < n; from += ledger.BulkKeys {
		made, gone := ledger.Batch{Space: "s"}, ledger.Batch{Space: "s"}
		for i := from; i < from+ledger.BulkKeys; i++ {
			key := fmt.Sprintf("k/%08d", i)
			made.Sets = append(made.Sets, ledger.Set{Key: key})
			if i < n-10 {
				gone.Deletes = append(gone.Deletes, key)
			}
		}
		for _, b := range []ledger.Batch{made, gone} {
			if _, err := db.Apply(t.Context(), b); err != nil {
				t.Fatalf("Apply: %v", err)
			}
		}
	}
	read := func() (dead int) {
		v, err := db.Read(t.Context(), "s")
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		defer v.Close()
		lower := appendKey(nil, v.(*view).base, "k/")
		it, err := v.(*view).snap.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: after(lower)})
		if err != nil {
			t.Fatalf("NewIter: %v", err)
		}
		it.First()
		dead = it.Stats().ForwardStepCount[pebble.InternalIterCall]
		if err := it.Close(); err != nil {
			t.Fatalf("close iterator: %v", err)
		}
		items, err := v.Scan(t.Context(), "k/", "", 5)
		if err != nil || len(items) != 5 || items[0].Key != fmt.Sprintf("k/%08d", n-10) {
			t.Fatalf("Scan = %v, %v; want five from %d on", items, err, n-10)
		}
		return dead
	}
	if dead := read(); dead < manyDead {
		t.Fatalf("the first read met %d deleted keys, want at least %d, or this tests nothing", dead, manyDead)
	}
	// A table that lies alone is merged by Pebble itself, somewhat later.
	for limit := time.After(time.Minute); ; {
		dead := read()
		if dead < 100 {
			return
		}
		select {
		case <-limit:
			t.Fatalf("a read a minute later met %d deleted keys, want few", dead)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
