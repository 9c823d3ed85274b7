package pebbledb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger"
)

// An id is forgotten when its time is over, and its key goes from the disk with
// the first batch of a later slot, whichever space that is in.
func TestBatchIDsAreSwept(t *testing.T) {
	clock := &testClock{}
	start := time.Date(2030, 1, 1, 0, 5, 0, 0, time.UTC)
	clock.set(start)
	r := openTest(t, "ledger", Options{FS: vfs.NewMem(), Clock: clock.now})
	send := func(s ledger.Space, id string) ledger.Result {
		t.Helper()
		res, err := r.db.Apply(t.Context(), ledger.Batch{ID: id, Space: s, Log: []byte("x")})
		if err != nil {
			t.Fatalf("Apply = %v", err)
		}
		return res
	}
	first := send("a", "id")
	clock.set(start.Add(ledger.BatchIDMemory))
	if got := send("a", "id"); got != first {
		t.Fatalf("Apply again at the end of the memory = %+v, want %+v", got, first)
	}
	clock.set(start.Add(ledger.BatchIDMemory + time.Microsecond))
	if got := send("a", "id"); got.Seq != 2 {
		t.Fatalf("Apply again after the memory = %+v, want it applied as number 2", got)
	}
	clock.set(start.Add(3 * ledger.BatchIDMemory))
	send("b", "other")
	it, err := r.db.engine.pdb.NewIter(&pebble.IterOptions{LowerBound: []byte{idPrefix}, UpperBound: []byte{idPrefix + 1}})
	if err != nil {
		t.Fatalf("NewIter = %v", err)
	}
	defer it.Close()
	var left []string
	for ok := it.First(); ok; ok = it.Next() {
		left = append(left, fmt.Sprintf("%q", it.Key()))
	}
	if len(left) != 1 {
		t.Fatalf("ids on disk after a sweep: %s; want the new one alone", left)
	}
}

// The filter of ids may be wrong about a new id, and never about a known one.
func TestIDFilter(t *testing.T) {
	f := newIDFilter(7)
	hash := func(i int) uint64 { return f.idHash(appendIDKey(nil, 0, "s", fmt.Sprint(i))) }
	const n = 2000
	for i := range n {
		f.add(7+uint32(i%2), hash(i)) // the turn to slot 8 comes with the second
	}
	wrong := 0
	for i := range n {
		if !f.mayHave(8, hash(i)) {
			t.Fatalf("mayHave of id %d, which was added = false", i)
		}
		if f.mayHave(8, hash(n+i)) {
			wrong++
		}
	}
	if wrong > n/100 {
		t.Fatalf("%d of %d new ids were taken for known", wrong, n)
	}
	f.add(9, hash(n))
	if !f.mayHave(8, hash(n+1)) {
		t.Fatal("mayHave for a slot that is over = false, want the disk to be asked")
	}
	known := 0
	for i := range n {
		if f.mayHave(9, hash(i)) != (i%2 == 1) {
			known++
		}
	}
	if known > n/100 {
		t.Fatalf("%d of %d ids are in the wrong slot after a turn", known, n)
	}
	f.add(12, hash(0))
	if f.mayHave(12, hash(1)) {
		t.Fatal("an id is known after two empty slots, want it forgotten")
	}
}

// The clock does not run back over a restart, however the ledger ended.
func TestClockOverRestarts(t *testing.T) {
	mem := vfs.NewCrashableMem()
	clock := &testClock{}
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	clock.set(at)
	r := openTest(t, "ledger", Options{FS: mem, Clock: clock.now})
	if err := put(r.db, "a", "k", nil); err != nil {
		t.Fatalf("Apply = %v", err)
	}
	cut := mem.CrashClone(vfs.CrashCloneCfg{})
	clock.set(at.Add(time.Hour))
	wantNow := func(db *DB, want time.Time) {
		t.Helper()
		if now, err := db.Now(t.Context()); err != nil || !now.Equal(want) {
			t.Fatalf("Now() = %s, %v; want %s", now, err, want)
		}
	}
	wantNow(r.db, at.Add(time.Hour))
	clock.set(at.Add(-time.Hour))
	r.reopen(t)
	wantNow(r.db, at.Add(time.Hour))
	if err := r.db.Drop(t.Context(), "a"); err != nil {
		t.Fatalf("Drop = %v", err)
	}
	dropped := openTest(t, "ledger", Options{FS: mem.CrashClone(vfs.CrashCloneCfg{}), Clock: clock.now})
	wantNow(dropped.db, at.Add(time.Hour))
	crashed := openTest(t, "ledger", Options{FS: cut, Clock: clock.now})
	wantNow(crashed.db, at)
}

// Spaces that nobody uses are forgotten beyond a bound, and come back as they were.
func TestIdleSpacesAreBounded(t *testing.T) {
	r := openTest(t, "ledger", Options{FS: vfs.NewMem()})
	const spaces = maxIdleSpaces + 600
	name := func(i int) ledger.Space { return ledger.RepoSpace(fmt.Sprint(i)) }
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < spaces; i += 8 {
				if err := put(r.db, name(i), "k", nil); err != nil {
					t.Errorf("Apply = %v", err)
				}
			}
		})
	}
	wg.Wait()
	if n := r.db.Metrics().Spaces; n > maxIdleSpaces+8 {
		t.Fatalf("%d spaces are in memory, want at most %d", n, maxIdleSpaces)
	}
	for i := range spaces {
		res, err := r.db.Apply(t.Context(), ledger.Batch{Space: name(i), Log: []byte("two")})
		if err != nil || res.Seq != 2 {
			t.Fatalf("the second entry of space %d = %+v, %v; want number 2", i, res, err)
		}
	}
}

func TestMetricsAndHook(t *testing.T) {
	var mu sync.Mutex
	var keys []int
	r := openTest(t, t.TempDir(), Options{
		ReserveBytes: 1 << 20, WatermarkBytes: 1,
		OnBatch: func(d time.Duration, n int) {
			mu.Lock()
			defer mu.Unlock()
			if d <= 0 {
				t.Errorf("OnBatch was told %s, want the time it took", d)
			}
			keys = append(keys, n)
		},
	})
	if _, err := r.db.Apply(t.Context(), ledger.Batch{
		Space: "a", Sets: []ledger.Set{{Key: "k"}}, Adds: []ledger.Add{{Key: "n", Delta: 1}}, Deletes: []string{"d"},
	}); err != nil {
		t.Fatalf("Apply = %v", err)
	}
	if _, err := r.db.Apply(t.Context(), ledger.Batch{Space: "a", Checks: []ledger.Check{ledger.Absent("k")}}); err == nil {
		t.Fatal("Apply = nil, want a refusal")
	}
	if !slices.Equal(keys, []int{3}) {
		t.Fatalf("OnBatch was told of %v, want one batch of 3 keys", keys)
	}
	m := r.db.Metrics()
	if m.Batches != 1 || !m.Available || m.NoSpace || !m.HasReserve || m.DiskAvailBytes == 0 || m.WatermarkBytes != 1 || m.LogBytes == 0 || m.Spaces != 1 {
		t.Fatalf("Metrics() = %+v", m)
	}
	if err := r.db.Close(); err != nil {
		t.Fatalf("Close = %v", err)
	}
	if m := r.db.Metrics(); m.Available || m.Batches != 1 {
		t.Fatalf("Metrics() of a closed ledger = %+v", m)
	}
}

// Close under load: every call ends, with its result or ErrClosed, and what was
// acknowledged is there.
func TestCloseUnderLoad(t *testing.T) {
	fs := newFaultyFS(vfs.NewCrashableMem(), "ledger")
	fs.breakWith(slowSync)
	r := openTest(t, "ledger", Options{FS: fs})
	h := newHistory(2)
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		before := h.acked.Load()
		wg := h.run(ctx, t, r.db, 8)
		eventually(t, "a load", func() error {
			if h.acked.Load() < before+30 {
				return errors.New("too few batches")
			}
			return nil
		})
		if err := r.db.Close(); err != nil {
			t.Fatalf("Close under load = %v, want nil", err)
		}
		cancel()
		wg.Wait()
		r.open(t)
		h.holds(t, r.db, h.snapshot())
	}
}

func TestKeysKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := ledger.Space(rapid.StringN(1, 20, 40).Draw(t, "space"))
		a, b := rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "a"), rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "b")
		base := dataBase(s)
		ka, kb := appendKey(nil, base, string(a)), appendKey(nil, base, string(b))
		if bytes.Compare(ka, kb) != bytes.Compare(a, b) {
			t.Fatalf("keys %q and %q are in another order in the engine", a, b)
		}
		end := after(ka)
		if bytes.HasPrefix(kb, ka) != (bytes.Compare(kb, ka) >= 0 && bytes.Compare(kb, end) < 0) {
			t.Fatalf("after(%q) = %q does not end exactly what begins so: %q", ka, end, kb)
		}
		other := ledger.Space(rapid.StringN(1, 20, 40).Draw(t, "other"))
		ko := appendKey(nil, dataBase(other), string(b))
		if other != s && bytes.Compare(ko, base) >= 0 && bytes.Compare(ko, after(base)) < 0 {
			t.Fatalf("key %q of space %q lies in the range of space %q", b, other, s)
		}
		n, m := rapid.Uint64().Draw(t, "n"), rapid.Uint64().Draw(t, "m")
		if (n < m) != (bytes.Compare(appendLogKey(nil, base, n), appendLogKey(nil, base, m)) < 0) {
			t.Fatalf("log keys %d and %d are out of order", n, m)
		}
	})
}

// FuzzRecords: whatever stands on disk under our keys is read or refused, and what
// is read was written so.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, metaBytes))
	f.Add(make([]byte, resultBytes))
	f.Add([]byte("12345678data"))
	f.Fuzz(func(t *testing.T, v []byte) {
		if m, err := parseMeta(v); err == nil {
			var back [metaBytes]byte
			if m.put(back[:]); !bytes.Equal(back[:], v) {
				t.Errorf("parseMeta(%x) = %+v, which is written %x", v, m, back)
			}
		}
		if seq, at, err := parseResult(v); err == nil {
			var back [resultBytes]byte
			if putResult(back[:], seq, at); !bytes.Equal(back[:], v) {
				t.Errorf("parseResult(%x) = %d, %d, which is written %x", v, seq, at, back)
			}
		}
		key := appendLogKey(nil, dataBase("s"), 7)
		if en, err := parseEntry(key, v); err == nil && (en.Seq != 7 || !bytes.Equal(en.Data, v[entryHead:])) {
			t.Errorf("parseEntry(%x) = %+v", v, en)
		}
	})
}
