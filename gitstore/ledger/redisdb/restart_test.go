package redisdb_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

const restartSpace = ledger.Space("repo/restart")

func numbered(id string) ledger.Batch {
	return ledger.Batch{
		ID: id, Space: restartSpace, Log: []byte(id),
		Sets: []ledger.Set{{Key: "done/" + id, Value: []byte(id)}},
		Adds: []ledger.Add{{Key: "count", Delta: 1}},
	}
}

// writeUntilDead applies batches from several writers, kills the server in the
// middle and returns the IDs that were acknowledged and those that were not.
func writeUntilDead(t *testing.T, db *redisdb.DB, s *redistest.Server, round int) (acked map[string]ledger.Result, open []string) {
	t.Helper()
	acked = map[string]ledger.Result{}
	var mu sync.Mutex
	var writers sync.WaitGroup
	var applied atomic.Int64
	enough := make(chan struct{})
	for w := range 8 {
		writers.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("r%d-w%d-%d", round, w, i)
				r, err := db.Apply(t.Context(), numbered(id))
				mu.Lock()
				if err == nil {
					acked[id] = r
				} else {
					open = append(open, id)
				}
				mu.Unlock()
				if err != nil {
					if !errors.Is(err, ledger.ErrUnavailable) {
						t.Errorf("Apply(%s) on a killed server = %v, want ErrUnavailable", id, err)
					}
					return
				}
				if applied.Add(1) == 200 {
					close(enough)
				}
			}
		})
	}
	<-enough
	s.Kill()
	writers.Wait()
	return acked, open
}

// What was acknowledged is there after kill -9, and sending anything again, the
// acknowledged and the unanswered, leaves each batch applied exactly once.
func TestKilledServerKeepsAcknowledgedBatches(t *testing.T) {
	s := redistest.Start(t)
	db := open(t, s.URL())
	sent := map[string]bool{}
	for round := range 3 {
		acked, unanswered := writeUntilDead(t, db, s, round)
		s.Restart()
		logged := logOf(t, db, restartSpace)
		for id, r := range acked {
			sent[id] = true
			if got := logged[id]; len(got) != 1 || got[0] != r.Seq {
				t.Fatalf("after kill -9 the log has %s under %v, want [%d]", id, got, r.Seq)
			}
		}
		for id, first := range acked {
			if r, err := db.Apply(t.Context(), numbered(id)); err != nil || r != first {
				t.Fatalf("Apply(%s) sent again = %v, %v; want the first answer %v", id, r, err, first)
			}
		}
		for _, id := range unanswered {
			sent[id] = true
			if _, err := db.Apply(t.Context(), numbered(id)); err != nil {
				t.Fatalf("Apply(%s) sent again = %v, want it applied", id, err)
			}
		}
	}
	for id, seqs := range logOf(t, db, restartSpace) {
		if len(seqs) != 1 || !sent[id] {
			t.Errorf("the log has %s under %v, want it once", id, seqs)
		}
	}
	if got, want := get(t, db, restartSpace, "count"), fmt.Sprint(len(sent)); got != want {
		t.Errorf("count = %s after %s batches, want each counted once", got, want)
	}
}

// logOf reads a whole log: data -> the numbers it stands under. It wants no gaps.
func logOf(t *testing.T, db *redisdb.DB, s ledger.Space) map[string][]uint64 {
	t.Helper()
	v := read(t, db, s)
	logged := map[string][]uint64{}
	var after uint64
	for {
		entries, err := v.Log(t.Context(), after, 500)
		if err != nil {
			t.Fatalf("Log(%d, 500) = %v, want entries", after, err)
		}
		if len(entries) == 0 {
			return logged
		}
		for _, e := range entries {
			if e.Seq != after+1 {
				t.Fatalf("Log: entry %d follows %d, want no gap", e.Seq, after)
			}
			after = e.Seq
			logged[string(e.Data)] = append(logged[string(e.Data)], e.Seq)
		}
	}
}

func read(t *testing.T, db *redisdb.DB, s ledger.Space) ledger.View {
	t.Helper()
	v, err := db.Read(t.Context(), s)
	if err != nil {
		t.Fatalf("Read(%s) = %v, want a view", s, err)
	}
	return v
}

func get(t *testing.T, db *redisdb.DB, s ledger.Space, key string) string {
	t.Helper()
	value, err := read(t, db, s).Get(t.Context(), key)
	if err != nil {
		t.Fatalf("Get(%q) = %v, want a value", key, err)
	}
	return string(value)
}
