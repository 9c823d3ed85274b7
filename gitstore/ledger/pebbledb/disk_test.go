package pebbledb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger"
)

// eventually waits for a state of the ledger that its keeper brings about.
func eventually(t *testing.T, what string, state func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := state()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s; at last it was %v", what, err)
		}
		time.Sleep(time.Millisecond) // between two looks at the state
	}
}

func put(db *DB, s ledger.Space, key string, value []byte) error {
	_, err := db.Apply(context.Background(), ledger.Batch{Space: s, Sets: []ledger.Set{{Key: key, Value: value}}, Log: []byte(key)})
	return err
}

// lookup reads key, which wants a value of size bytes.
func lookup(db *DB, s ledger.Space, key string, size int) error {
	v, err := db.Read(context.Background(), s)
	if err != nil {
		return err
	}
	defer v.Close()
	value, err := v.Get(context.Background(), key)
	if err != nil {
		return err
	}
	if len(value) != size {
		return fmt.Errorf("value of %d bytes, want %d", len(value), size)
	}
	return nil
}

// noise is size bytes that do not compress.
func noise(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

const fast = 2 * time.Millisecond

// The ledger's disk fills up under writers: they are told so, reads go on, and when
// space returns the same ledger takes writes again with all that was acknowledged.
func TestG06_FullDisk(t *testing.T) {
	const size = 50_000
	fs := newFaultyFS(vfs.NewCrashableMem(), "ledger")
	fs.setCapacity(20 << 20)
	r := openTest(t, "ledger", Options{
		FS: fs, ReserveBytes: 13 << 20, WatermarkBytes: 500_000,
		checkEvery: time.Hour, // so that the watermark does not come before the end
	})
	s := ledger.RepoSpace("full")
	acked := 0
	var err error
	for ; err == nil && acked < 1000; acked++ {
		err = put(r.db, s, fmt.Sprint(acked), noise(size))
	}
	acked--
	if !errors.Is(err, ledger.ErrNoSpace) {
		t.Fatalf("Apply on a full disk after %d batches = %v, want ErrNoSpace", acked, err)
	}
	eventually(t, "refusals for want of space", func() error {
		if err := put(r.db, s, "late", []byte("x")); !errors.Is(err, ledger.ErrNoSpace) {
			return fmt.Errorf("Apply = %v, want ErrNoSpace", err)
		}
		return nil
	})
	eventually(t, "reads on a full disk", func() error { return lookup(r.db, s, fmt.Sprint(acked-1), size) })
	eventually(t, "the reserve to be given up", func() error {
		if m := r.db.Metrics(); m.HasReserve || !m.NoSpace || !m.Available {
			return fmt.Errorf("metrics %+v", m)
		}
		return nil
	})
	for i := range acked {
		if err := lookup(r.db, s, fmt.Sprint(i), size); err != nil {
			t.Fatalf("reading batch %d of %d on a full disk = %v", i, acked, err)
		}
	}
	if err := put(r.db, s, "late", []byte("x")); !errors.Is(err, ledger.ErrNoSpace) {
		t.Fatalf("Apply while the disk is still full = %v, want ErrNoSpace", err)
	}
	fs.setCapacity(200 << 20)
	eventually(t, "writes after space returned", func() error {
		r.db.wakeKeeper()
		return put(r.db, s, "after", []byte("x"))
	})
	if m := r.db.Metrics(); !m.HasReserve || m.NoSpace || m.Reopens == 0 {
		t.Fatalf("metrics %+v, want the reserve made again and one reopen or more", m)
	}
	if err := lookup(r.reopen(t).(*DB), s, "after", 1); err != nil {
		t.Fatalf("reading after a reopen = %v", err)
	}
	for i := range acked {
		if err := lookup(r.db, s, fmt.Sprint(i), size); err != nil {
			t.Fatalf("reading batch %d of %d after a reopen = %v", i, acked, err)
		}
	}
}

func TestG06_Watermark(t *testing.T) {
	fs := newFaultyFS(vfs.NewCrashableMem(), "ledger")
	fs.setCapacity(100 << 20)
	r := openTest(t, "ledger", Options{FS: fs, ReserveBytes: 1 << 20, WatermarkBytes: 10 << 20, checkEvery: fast})
	s, other := ledger.RepoSpace("a"), ledger.RepoSpace("b")
	for _, sp := range []ledger.Space{s, other} {
		if err := put(r.db, sp, "k", []byte("v")); err != nil {
			t.Fatalf("Apply = %v", err)
		}
	}
	fs.setCapacity(8 << 20)
	eventually(t, "refusals below the watermark", func() error {
		if err := put(r.db, s, "l", []byte("v")); !errors.Is(err, ledger.ErrNoSpace) {
			return fmt.Errorf("Apply = %v, want ErrNoSpace", err)
		}
		return nil
	})
	if err := lookup(r.db, s, "k", 1); err != nil {
		t.Fatalf("Read below the watermark = %v", err)
	}
	if err := r.db.TrimLog(t.Context(), s, 2); err != nil {
		t.Fatalf("TrimLog below the watermark = %v, want nil: it makes room", err)
	}
	if err := r.db.Drop(t.Context(), other); err != nil {
		t.Fatalf("Drop below the watermark = %v, want nil: it makes room", err)
	}
	if m := r.db.Metrics(); !m.HasReserve || !m.NoSpace || m.DiskAvailBytes == 0 || m.DiskAvailBytes >= m.WatermarkBytes || m.Reopens != 0 {
		t.Fatalf("metrics %+v, want little space, the reserve kept, nothing reopened", m)
	}
	fs.setCapacity(100 << 20)
	eventually(t, "writes above the watermark", func() error { return put(r.db, s, "m", []byte("v")) })
}

// Whatever fails under the log, the manifest or the folder, writers get a typed
// error, nobody hangs, the process lives, and what anybody was told of is there
// afterwards, although the disk forgets all that was not synced when it failed.
func TestG06_DiskFailsAndComesBack(t *testing.T) {
	for _, tc := range []struct {
		op, part string
		err      error
		flush    bool // the failing file is met when a table is flushed
	}{
		{"sync", ".log", syscall.EIO, false},
		{"write", ".log", syscall.EIO, false},
		{"write", ".log", syscall.ENOSPC, false},
		{"sync", ".log", syscall.EDQUOT, false},
		{"create", ".log", syscall.EIO, true},
		{"create", ".log", syscall.ENOSPC, true},
		{"write", "MANIFEST", syscall.EIO, true},
		{"sync", "MANIFEST", syscall.ENOSPC, true},
	} {
		t.Run(fmt.Sprintf("%s %s %v", tc.op, tc.part, tc.err), func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			fs := newFaultyFS(mem, "ledger")
			fs.breakWith(slowSync)
			r := openTest(t, "ledger", Options{FS: fs, checkEvery: fast})
			h := newHistory(2)
			ctx, cancel := context.WithCancel(t.Context())
			wg := h.run(ctx, t, r.db, 6)
			eventually(t, "a load", func() error {
				if h.acked.Load() < 50 {
					return fmt.Errorf("%d batches", h.acked.Load())
				}
				return nil
			})
			for range 2 {
				reopens := r.db.reopens.Load()
				failing := breakOn(tc.op, tc.part, tc.err)
				broken := make(chan struct{}, 1)
				fs.breakWith(func(op, name string) error {
					err := failing(op, name)
					if err == nil {
						return slowSync(op, name)
					}
					select {
					case broken <- struct{}{}:
						mem = mem.CrashClone(vfs.CrashCloneCfg{}) // what was not synced is lost
						fs.swap(mem)
					default:
					}
					return err
				})
				if tc.flush {
					_, _ = r.db.engine.pdb.AsyncFlush()
				}
				<-broken
				told := h.snapshot()
				fs.breakWith(slowSync)
				eventually(t, "the ledger to be opened anew", func() error {
					if n := r.db.reopens.Load(); n == reopens {
						return errors.New("not reopened")
					}
					return nil
				})
				n := h.acked.Load()
				h.holds(t, r.db, told)
				eventually(t, "the load to go on", func() error {
					if h.acked.Load() < n+20 {
						return fmt.Errorf("%d batches", h.acked.Load())
					}
					return nil
				})
			}
			cancel()
			wg.Wait()
			h.holds(t, r.reopen(t), h.snapshot())
		})
	}
}

// While the disk does not come back, spaces that had nothing in flight are read and
// the others are not: what they show might be lost.
func TestReadsWhileTheDiskIsGone(t *testing.T) {
	fs := newFaultyFS(vfs.NewCrashableMem(), "ledger")
	r := openTest(t, "ledger", Options{FS: fs, checkEvery: fast})
	quietSpace, busy := ledger.RepoSpace("quiet"), ledger.RepoSpace("busy")
	for _, s := range []ledger.Space{quietSpace, busy} {
		if err := put(r.db, s, "k", []byte("v")); err != nil {
			t.Fatalf("Apply = %v", err)
		}
	}
	old, err := r.db.Read(t.Context(), quietSpace)
	if err != nil {
		t.Fatalf("Read = %v", err)
	}
	fs.breakWith(func(op, name string) error {
		if op == "sync" || strings.HasSuffix(name, probeName) {
			return syscall.EIO
		}
		return nil
	})
	if err := put(r.db, busy, "k", []byte("vv")); !errors.Is(err, ledger.ErrUnavailable) {
		t.Fatalf("Apply whose sync fails = %v, want ErrUnavailable", err)
	}
	if err := put(r.db, quietSpace, "k", []byte("vv")); !errors.Is(err, ledger.ErrUnavailable) {
		t.Fatalf("Apply on a broken disk = %v, want ErrUnavailable", err)
	}
	for range 3 {
		if err := lookup(r.db, quietSpace, "k", 1); err != nil {
			t.Fatalf("Read of a space with nothing in flight = %v", err)
		}
		if err := lookup(r.db, busy, "k", 1); !errors.Is(err, ledger.ErrUnavailable) {
			t.Fatalf("Read of a space whose batch was lost = %v, want ErrUnavailable", err)
		}
	}
	if _, err := old.Get(t.Context(), "k"); err != nil {
		t.Fatalf("Get on a view from before the failure = %v", err)
	}
	fs.breakWith(nil)
	eventually(t, "the disk to be back", func() error { return put(r.db, busy, "l", []byte("v")) })
	if _, err := old.Get(t.Context(), "k"); !errors.Is(err, ledger.ErrUnavailable) {
		t.Fatalf("Get on a view of the former opening = %v, want ErrUnavailable", err)
	}
	if err := old.Close(); err != nil {
		t.Fatalf("Close of a view of the former opening = %v, want nil", err)
	}
	if err := lookup(r.db, quietSpace, "k", 1); err != nil {
		t.Fatalf("Read = %v", err)
	}
}

// Tables may fail without an opening being lost: Pebble writes them again.
func TestFlushWithoutSpace(t *testing.T) {
	fs := newFaultyFS(vfs.NewCrashableMem(), "ledger")
	r := openTest(t, "ledger", Options{FS: fs, checkEvery: fast})
	s := ledger.RepoSpace("a")
	if err := put(r.db, s, "k", []byte("v")); err != nil {
		t.Fatalf("Apply = %v", err)
	}
	met := make(chan struct{}, 1)
	fs.breakWith(func(op, name string) error {
		if strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, probeName) {
			select {
			case met <- struct{}{}:
			default:
			}
			return syscall.ENOSPC
		}
		return nil
	})
	flushed, err := r.db.engine.pdb.AsyncFlush()
	if err != nil {
		t.Fatalf("AsyncFlush = %v", err)
	}
	<-met
	eventually(t, "refusals", func() error {
		if err := put(r.db, s, "l", []byte("v")); !errors.Is(err, ledger.ErrNoSpace) {
			return fmt.Errorf("Apply = %v, want ErrNoSpace", err)
		}
		return nil
	})
	if err := lookup(r.db, s, "k", 1); err != nil {
		t.Fatalf("Read = %v", err)
	}
	fs.breakWith(nil)
	<-flushed
	eventually(t, "writes", func() error { return put(r.db, s, "m", []byte("v")) })
	if n := r.db.reopens.Load(); n != 0 {
		t.Fatalf("the engine was opened anew %d times, want none", n)
	}
}

// A ledger starts on a full disk by giving up its reserve, and says so if there is none.
func TestOpenOnAFullDisk(t *testing.T) {
	fs := newFaultyFS(vfs.NewCrashableMem(), "ledger")
	o := Options{FS: fs, ReserveBytes: 8 << 20, Logger: quiet, checkEvery: fast}
	r := openTest(t, "ledger", o)
	s := ledger.RepoSpace("a")
	if err := put(r.db, s, "k", make([]byte, 100_000)); err != nil {
		t.Fatalf("Apply = %v", err)
	}
	if err := r.db.Close(); err != nil {
		t.Fatalf("Close = %v", err)
	}
	fs.setCapacity(o.ReserveBytes)
	r.open(t)
	if err := lookup(r.db, s, "k", 100_000); err != nil {
		t.Fatalf("Read = %v", err)
	}
	if err := put(r.db, s, "l", []byte("v")); !errors.Is(err, ledger.ErrNoSpace) {
		t.Fatalf("Apply = %v, want ErrNoSpace until the reserve is there again", err)
	}
	if err := r.db.Close(); err != nil {
		t.Fatalf("Close = %v", err)
	}
	fs.setCapacity(100_000)
	if _, err := Open("ledger", o); !errors.Is(err, ledger.ErrNoSpace) {
		t.Fatalf("Open on a disk without any space = %v, want ErrNoSpace", err)
	}
	fs.setCapacity(100 << 20)
	r.open(t)
	eventually(t, "writes", func() error { return put(r.db, s, "l", []byte("v")) })
}

func TestOpenTwice(t *testing.T) {
	dir := t.TempDir()
	openTest(t, dir, Options{})
	if db, err := Open(dir, Options{Logger: quiet}); err == nil {
		t.Fatalf("the second Open of one folder = nil, want an error (closing: %v)", db.Close())
	}
}
