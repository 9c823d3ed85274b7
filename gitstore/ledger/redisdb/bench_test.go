package redisdb_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

// commitBatch is about what a small commit writes: four objects, a ref that is
// checked and moved, a few marks, a log entry.
func commitBatch(writer, i int) ledger.Batch {
	object := bytes.Repeat([]byte{byte(i)}, 250)
	ref := fmt.Sprintf("ref/refs/heads/w%d", writer)
	b := ledger.Batch{
		Space:  ledger.RepoSpace("bench"),
		Checks: []ledger.Check{ledger.Absent("gc/none"), ledger.AbsentPrefix(ref + "/")},
		Sets:   []ledger.Set{{Key: ref, Value: fmt.Appendf(nil, "%040d", i)}},
		Log:    bytes.Repeat([]byte("l"), 200),
	}
	if i > 0 {
		b.Checks = append(b.Checks, ledger.Equal(ref, fmt.Appendf(nil, "%040d", i-1)))
	}
	for k := range 4 {
		b.Sets = append(b.Sets, ledger.Set{Key: fmt.Sprintf("obj/%d/%d/%034d", writer, k, i), Value: object})
	}
	return b
}

// inParallel shares b.N calls of f among writers; i counts one writer's calls.
func inParallel(b *testing.B, writers int, f func(writer, i int) error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	var work sync.WaitGroup
	b.ResetTimer()
	for w := range writers {
		work.Go(func() {
			for i := 0; left.Add(-1) >= 0; i++ {
				if err := f(w, i); err != nil {
					b.Errorf("writer %d, call %d: %v", w, i, err)
					return
				}
			}
		})
	}
	work.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "batches/s")
}

// rawScript stores the same bytes with nothing checked, ordered or remembered.
var rawScript = redis.NewScript(`
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('XADD', KEYS[2], '*', 'd', ARGV[1])
return 1`)

func BenchmarkApply(b *testing.B) {
	for _, writers := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			db := open(b, redistest.Start(b).URL())
			inParallel(b, writers, func(w, i int) error {
				_, err := db.Apply(context.Background(), commitBatch(w, i))
				return err
			})
		})
		b.Run(fmt.Sprintf("raw/writers=%d", writers), func(b *testing.B) {
			client := redis.NewClient(&redis.Options{Addr: redistest.Start(b).Addr(), PoolSize: 128, Protocol: 2})
			defer client.Close()
			inParallel(b, writers, func(w, i int) error {
				batch := commitBatch(w, i)
				args := []any{batch.Log}
				for _, s := range batch.Sets {
					args = append(args, s.Key, s.Value)
				}
				return rawScript.Run(context.Background(), client, []string{"h", "l"}, args...).Err()
			})
		})
	}
}
