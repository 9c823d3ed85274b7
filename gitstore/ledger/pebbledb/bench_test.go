package pebbledb

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// BenchmarkApply measures durable batches of the size of a small commit: four
// objects, a ref under compare-and-swap, a log entry; each writer on a space of
// its own ("spaces") or all on one ("one").
func BenchmarkApply(b *testing.B) {
	for _, where := range []string{"spaces", "one"} {
		for _, writers := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/writers=%d", where, writers), func(b *testing.B) {
				db, err := Open(b.TempDir(), Options{Logger: quiet})
				if err != nil {
					b.Fatalf("Open = %v", err)
				}
				b.Cleanup(func() { _ = db.Close() })
				applyAll(b, db, writers, where == "one")
			})
		}
	}
}

func applyAll(b *testing.B, db *DB, writers int, one bool) {
	b.Helper()
	b.ReportAllocs()
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	b.ResetTimer()
	for w := range writers {
		wg.Go(func() {
			s := ledger.RepoSpace("bench")
			if !one {
				s = ledger.RepoSpace(fmt.Sprint("bench", w))
			}
			head := []byte(nil)
			for n := 0; next.Add(1) <= int64(b.N); n++ {
				batch := commitBatch(s, w, n, head)
				if _, err := db.Apply(context.Background(), batch); err != nil {
					b.Errorf("Apply = %v", err)
					return
				}
				head = batch.Sets[0].Value
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "batches/s")
}

var object = bytes.Repeat([]byte("abcdefgh"), 32)

func commitBatch(s ledger.Space, w, n int, head []byte) ledger.Batch {
	ref := fmt.Sprintf("ref/%d", w)
	check := ledger.Absent(ref)
	if head != nil {
		check = ledger.Equal(ref, head)
	}
	batch := ledger.Batch{
		ID: fmt.Sprintf("%d-%d", w, n), Space: s,
		Checks: []ledger.Check{check, ledger.AbsentPrefix(ref + "/")},
		Sets:   []ledger.Set{{Key: ref, Value: fmt.Appendf(nil, "%040d", n)}},
		Log:    object[:200],
	}
	for i := range 4 {
		batch.Sets = append(batch.Sets, ledger.Set{Key: fmt.Sprintf("obj/%d/%d/%d", w, n, i), Value: object})
	}
	return batch
}

// BenchmarkRead opens a view, reads one key and closes it.
func BenchmarkRead(b *testing.B) {
	db, err := Open(b.TempDir(), Options{Logger: quiet})
	if err != nil {
		b.Fatalf("Open = %v", err)
	}
	b.Cleanup(func() { _ = db.Close() })
	ctx, s := context.Background(), ledger.RepoSpace("bench")
	batch := commitBatch(s, 0, 0, nil)
	if _, err := db.Apply(ctx, batch); err != nil {
		b.Fatalf("Apply = %v", err)
	}
	b.ReportAllocs()
	for b.Loop() {
		v, err := db.Read(ctx, s)
		if err != nil {
			b.Fatalf("Read = %v", err)
		}
		if _, err := v.Get(ctx, batch.Sets[0].Key); err != nil {
			b.Fatalf("Get = %v", err)
		}
		if err := v.Close(); err != nil {
			b.Fatalf("Close = %v", err)
		}
	}
}
