package redisdb_test

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

func logOne(s ledger.Space) ledger.Batch { return ledger.Batch{Space: s, Log: []byte("x")} }

func applyN(t *testing.T, db *redisdb.DB, n int, b ledger.Batch) {
	t.Helper()
	for range n {
		if _, err := db.Apply(t.Context(), b); err != nil {
			t.Fatalf("Apply to %s = %v, want it applied", b.Space, err)
		}
	}
}

// wantLost wants b refused for lost writes: by the type, and as ErrUnavailable.
func wantLost(t *testing.T, db *redisdb.DB, b ledger.Batch) *redisdb.LostWritesError {
	t.Helper()
	_, err := db.Apply(t.Context(), b)
	var lost *redisdb.LostWritesError
	if !errors.As(err, &lost) || !errors.Is(err, ledger.ErrUnavailable) {
		t.Fatalf("Apply to %s = %v, want a *LostWritesError that is ErrUnavailable", b.Space, err)
	}
	return lost
}

// A server that comes back with older data (a replica that took over, a restored
// copy) must not be written to by a node that was told more.
func TestServerThatLostWritesIsNotWrittenTo(t *testing.T) {
	const space = ledger.Space("repo/lost")
	quiet := ledger.Batch{Space: space, Sets: []ledger.Set{{Key: "k", Value: []byte("v")}}}
	for _, tc := range []struct {
		name  string
		lost  ledger.Batch // applied twice, then lost
		other int          // batches of a node that knows nothing, after the loss
	}{
		{"log entries", logOne(space), 0},
		{"batches without a log entry", quiet, 0},
		{"as many written since by another node", logOne(space), 2},
		{"more written since by another node", logOne(space), 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := redistest.Start(t)
			db := open(t, s.URL())
			applyN(t, db, 3, logOne(space))
			s.Kill()
			restore := s.Keep()
			s.Restart()
			applyN(t, db, 2, tc.lost)
			s.Kill()
			restore()
			s.Restart()
			if tc.other > 0 {
				applyN(t, open(t, s.URL()), tc.other, tc.lost)
			}
			lost := wantLost(t, db, logOne(space))
			if lost.Space != space || lost.Known.Version != 5 || lost.Found.Version != int64(3+tc.other) {
				t.Errorf("lost = %+v, want space %s, known version 5, found %d", lost, space, 3+tc.other)
			}
			wantLost(t, db, quiet)
			if err := db.TrimLog(t.Context(), space, 2); !errors.Is(err, ledger.ErrUnavailable) {
				t.Errorf("TrimLog of a space with lost writes = %v, want ErrUnavailable", err)
			}
			if seq, err := read(t, db, space).LastSeq(t.Context()); err != nil || seq == 0 {
				t.Errorf("LastSeq() of a space with lost writes = %d, %v; reads go on", seq, err)
			}
			applyN(t, db, 1, logOne("repo/another"))
		})
	}
}

func TestEmptiedServerIsNotWrittenTo(t *testing.T) {
	s := redistest.Start(t)
	writer, reader := open(t, s.URL()), open(t, s.URL())
	applyN(t, writer, 2, logOne("repo/e"))
	if _, err := read(t, reader, "repo/e").Log(t.Context(), 0, 10); err != nil {
		t.Fatalf("Log = %v, want entries", err)
	}
	s.Kill()
	s.Wipe()
	s.Restart()
	wantLost(t, reader, logOne("repo/e")) // what was read was told, too
	applyN(t, open(t, s.URL()), 3, logOne("repo/e"))
	wantLost(t, writer, logOne("repo/e"))
}

// A drop by another node is no loss, however often it happens.
func TestDropByAnotherNodeIsNoLoss(t *testing.T) {
	s := redistest.Start(t)
	one, two := open(t, s.URL()), open(t, s.URL())
	const space = ledger.Space("repo/dropped")
	named := ledger.Batch{ID: "again", Space: space, Log: []byte("x")}
	applyN(t, one, 3, logOne(space))
	applyN(t, one, 1, named)
	for range 2 {
		if err := two.Drop(t.Context(), space); err != nil {
			t.Fatalf("Drop = %v, want nil", err)
		}
		applyN(t, two, 1, logOne(space))
	}
	if err := two.Drop(t.Context(), space); err != nil {
		t.Fatalf("Drop = %v, want nil", err)
	}
	if r, err := one.Apply(t.Context(), named); err != nil || r.Seq != 1 {
		t.Fatalf("Apply after a drop = %v, %v; want it applied as number 1, not answered from before", r, err)
	}
	if keys := s.Do("--scan", "--pattern", "headgate:{repo/other}*"); keys != "" {
		t.Errorf("keys of an unused space: %q, want none", keys)
	}
}

// A batch that only checks is told of a version that another batch made, at another
// time: who goes on from there is not behind, whatever is written next and by whom.
func TestCheckingOnlyIsNoLoss(t *testing.T) {
	s := redistest.Start(t)
	one, two := open(t, s.URL()), open(t, s.URL())
	const space = ledger.Space("repo/checked")
	set := ledger.Batch{Space: space, Sets: []ledger.Set{{Key: "k", Value: []byte("v")}}}
	check := ledger.Batch{Space: space, Checks: []ledger.Check{ledger.Equal("k", []byte("v"))}}
	for range 2 {
		applyN(t, one, 1, set)
		applyN(t, two, 2, set)
		applyN(t, one, 2, check) // knows of what two has made from its answer alone
		applyN(t, one, 2, set)
		applyN(t, two, 2, set)
		applyN(t, one, 1, check)
		applyN(t, two, 1, set)
		applyN(t, one, 1, set)
	}
}

// The clock of a space does not run back when the server's does.
func TestClockOfASpaceNeverRunsBack(t *testing.T) {
	s := redistest.Start(t)
	db := open(t, s.URL())
	applyN(t, db, 1, logOne("repo/clock"))
	const future = 4_000_000_000_000_000 // microseconds: the year 2096
	s.Do("hset", "headgate:{repo/clock}:meta", "at", "4000000000000000", "ver", "2")
	r, err := db.Apply(t.Context(), logOne("repo/clock"))
	if err != nil || r.At.UnixMicro() <= future {
		t.Fatalf("Apply = %v, %v; want a time after the space's last", r, err)
	}
	var ce *ledger.CheckError
	_, err = db.Apply(t.Context(), ledger.Batch{Space: "repo/clock", Checks: []ledger.Check{ledger.Before(r.At)}})
	if !errors.As(err, &ce) {
		t.Errorf("Apply under Before(the last batch's time) = %v, want a *CheckError", err)
	}
	if now, err := db.Now(t.Context()); err != nil || now.Before(r.At) {
		t.Errorf("Now() = %s, %v; want not before %s, which was told", now, err, r.At)
	}
}
