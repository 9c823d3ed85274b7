package pebbledb

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// slowSync makes the syncs of the log take a while, so that a cut finds batches in
// flight. It stands for the disk's own time and is waited for by nobody else.
func slowSync(op, name string) error {
	if op == "sync" && strings.HasSuffix(name, ".log") {
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Microsecond)
	}
	return nil
}

// The power is cut at random moments of a load: everything that anybody was told of
// until then, by any road, is there when the ledger is opened on what the disk kept.
func TestG03_PowerCut(t *testing.T) {
	cuts := 40
	if testing.Short() {
		cuts = 15
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	mem := vfs.NewCrashableMem()
	fs := newFaultyFS(mem, "ledger")
	fs.breakWith(slowSync)
	r := openTest(t, "ledger", Options{FS: fs})
	h := newHistory(3)
	ctx, cancel := context.WithCancel(t.Context())
	wg := h.run(ctx, t, r.db, 12)
	for cut := range cuts {
		time.Sleep(time.Duration(rng.IntN(20_000)) * time.Microsecond) // a random moment, not a wait for a state
		if cut%10 == 5 {
			if _, err := r.db.engine.pdb.AsyncFlush(); err != nil {
				t.Fatalf("AsyncFlush = %v", err)
			}
		}
		told := h.snapshot()
		kept := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 0, 50, 100}[rng.IntN(4)], RNG: rng})
		after, err := Open("ledger", Options{FS: kept, Logger: quiet})
		if err != nil {
			t.Fatalf("cut %d: Open = %v", cut, err)
		}
		h.holds(t, after, told)
		if err := after.Close(); err != nil {
			t.Fatalf("cut %d: Close = %v", cut, err)
		}
	}
	cancel()
	wg.Wait()
	h.allRoads(t)
	h.holds(t, r.db, h.snapshot())
}

// A process that is killed leaves unsynced bytes in the system's memory; the next
// one must not publish them before they are synced. Cut the power after each.
func TestG03_PowerCutAfterKill(t *testing.T) {
	mem := vfs.NewCrashableMem()
	fs := newFaultyFS(mem, "ledger")
	fs.breakWith(slowSync)
	r := openTest(t, "ledger", Options{FS: fs})
	h := newHistory(2)
	ctx, cancel := context.WithCancel(t.Context())
	wg := h.run(ctx, t, r.db, 6)
	for range 10 {
		time.Sleep(5 * time.Millisecond) // let the load run on
		told := h.snapshot()
		killed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
		second, err := Open("ledger", Options{FS: killed, Logger: quiet})
		if err != nil {
			t.Fatalf("Open after a kill = %v", err)
		}
		h.holds(t, second, told)
		seen := make([]uint64, len(h.spaces))
		for i, s := range h.spaces {
			v, err := second.Read(t.Context(), s)
			if err != nil {
				t.Fatalf("Read = %v", err)
			}
			if seen[i], err = v.LastSeq(t.Context()); err != nil {
				t.Fatalf("LastSeq = %v", err)
			}
			_ = v.Close()
		}
		third, err := Open("ledger", Options{FS: killed.CrashClone(vfs.CrashCloneCfg{}), Logger: quiet})
		if err != nil {
			t.Fatalf("Open after a kill and a power cut = %v", err)
		}
		h.holds(t, third, seen)
		if err := third.Close(); err != nil {
			t.Fatalf("Close = %v", err)
		}
		if err := second.Close(); err != nil {
			t.Fatalf("Close = %v", err)
		}
	}
	cancel()
	wg.Wait()
}
