package pebbledb

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/ledgertest"
)

// testClock is the clock of a test: the machine's until it is set.
type testClock struct{ at atomic.Pointer[time.Time] }

func (c *testClock) set(t time.Time) { c.at.Store(&t) }

func (c *testClock) now() time.Time {
	if at := c.at.Load(); at != nil {
		return *at
	}
	return time.Now()
}

// quiet keeps the log of expected trouble out of the test's output.
var quiet = slog.New(slog.DiscardHandler)

// reopening is a ledger in one folder that a test may close and open again.
type reopening struct {
	db  *DB
	dir string
	opt Options
}

func openTest(t *testing.T, dir string, o Options) *reopening {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	r := &reopening{dir: dir, opt: o}
	r.open(t)
	t.Cleanup(func() { _ = r.db.Close() })
	return r
}

func (r *reopening) open(t *testing.T) {
	t.Helper()
	db, err := Open(r.dir, r.opt)
	if err != nil {
		t.Fatalf("Open(%s) = %v, want a ledger", r.dir, err)
	}
	r.db = db
}

func (r *reopening) reopen(t *testing.T) ledger.Ledger {
	t.Helper()
	if err := r.db.Close(); err != nil {
		t.Fatalf("Close() = %v, want nil", err)
	}
	r.open(t)
	return r.db
}

func TestLedger(t *testing.T) {
	ledgertest.Run(t, ledgertest.Engine{
		Snapshots: true,
		Open: func(t *testing.T) ledgertest.Instance {
			clock := &testClock{}
			r := openTest(t, t.TempDir(), Options{Clock: clock.now})
			return ledgertest.Instance{Ledger: r.db, Reopen: r.reopen, SetClock: clock.set}
		},
	})
}
