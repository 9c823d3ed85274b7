package sessions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

// both runs things at once, each its own number.
func both(n int, do func(i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	all.Wait()
}

// during runs do once, when a batch that writes or deletes key is about to be applied.
func during(w *world, key string, do func()) (happened func() bool) {
	var done atomic.Bool
	w.ledger.beforeApply(func(b ledger.Batch) error {
		if writes(b, key) && done.CompareAndSwap(false, true) { // what do applies comes by here, too
			do()
		}
		return nil
	})
	return done.Load
}

func writes(b ledger.Batch, key string) bool {
	for _, k := range b.Deletes {
		if k == key {
			return true
		}
	}
	for _, s := range b.Sets {
		if s.Key == key {
			return true
		}
	}
	return false
}

// twoAcquires: of many who want a free lease at once one gets it.
func twoAcquires(t *testing.T, w *world) {
	t.Helper()
	nodes := []*world{w, twin(w)}
	begun(t, w, CreateSpec{ID: "race"})
	const clients = 8
	errs, leases := make([]error, clients), make([]Lease, clients)
	both(clients, func(i int) {
		n := nodes[i%2]
		leases[i], errs[i] = n.k.Lease(t.Context(), n.repo, n.door(backend()), backend(), "race", LeaseSpec{Action: Acquire, Holder: fmt.Sprint("h", i)})
	})
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			t.Errorf("both %d and %d hold the lease", winner, i)
		case err == nil:
			winner = i
		case !errors.As(err, new(*LeaseHeldError)):
			t.Errorf("acquire: %v, want a LeaseHeldError", err)
		}
	}
	got := seen(t, w, "race")
	if winner < 0 || got.Epoch != 2 || leases[winner].Epoch != 2 || got.Holder != fmt.Sprint("h", winner) {
		t.Errorf("winner %d, session held by %q at epoch %d; want one winner at epoch 2", winner, got.Holder, got.Epoch)
	}
}

func TestRaceTwoAcquires(t *testing.T) {
	w, _ := newMain(t, testLimits)
	twoAcquires(t, w)
}

// A renewal that meets a takeover does not bring the lease back, in either order.
func TestRaceRenewAgainstTakeover(t *testing.T) {
	w, _ := newMain(t, testLimits)
	other := twin(w)
	for i := range 20 {
		id := fmt.Sprint("s", i)
		begun(t, w, CreateSpec{ID: id, Holder: "A"})
		var renewed, taken error
		both(2, func(n int) {
			if n == 0 {
				_, renewed = leased(t, w, id, LeaseSpec{Action: Renew, Holder: "A", Epoch: ptr(uint64(1))})
			} else {
				_, taken = leased(t, other, id, LeaseSpec{Action: Takeover, Holder: "B"})
			}
		})
		if taken != nil || renewed != nil && !errors.Is(renewed, ErrLeaseLost) {
			t.Fatalf("takeover %v, renew %v; want no error, and none or %v", taken, renewed, ErrLeaseLost)
		}
		if got := seen(t, w, id); got.Holder != "B" || got.Epoch != 2 {
			t.Fatalf("held by %s at epoch %d, want B at 2", got.Holder, got.Epoch)
		}
	}
}

// A renewal whose batch comes after the lease's end is refused.
func TestRaceRenewAgainstExpiry(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "s1", Holder: "A", LeaseTTL: time.Second})
	late := during(w, sessionKey("s1"), func() { w.clock.advance(time.Second) })
	if _, err := leased(t, w, "s1", LeaseSpec{Action: Renew, Holder: "A"}); !errors.Is(err, ErrLeaseLost) || !late() {
		t.Errorf("renew that comes too late: %v, want %v", err, ErrLeaseLost)
	}
}

func TestRaceReleaseWithAnOldEpoch(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "s1", Holder: "A"})
	taken := during(w, sessionKey("s1"), func() {
		mustLease(t, w, "s1", LeaseSpec{Action: Takeover, Holder: "A"})
	})
	_, err := leased(t, w, "s1", LeaseSpec{Action: Release, Holder: "A", Epoch: ptr(uint64(1))})
	if !errors.Is(err, ErrLeaseLost) || !taken() || seen(t, w, "s1").Epoch != 2 || seen(t, w, "s1").Holder != "A" {
		t.Errorf("release with the epoch of before: %v, want %v", err, ErrLeaseLost)
	}
}

func TestRaceEndAgainstCommit(t *testing.T) {
	w, sha := newMain(t, testLimits)
	other := twin(w)
	for i := range 20 {
		s := begun(t, w, CreateSpec{ID: fmt.Sprint("s", i)})
		commit := w.commit(sha, s.ID)
		var end, write error
		both(2, func(n int) {
			if n == 0 {
				_, end = w.k.End(t.Context(), w.repo, w.door(backend()), backend(), s.ID, EndSpec{})
			} else {
				write = other.door(backend()).Move(t.Context(), Move{Changes: []Change{{Ref: s.Ref, Old: sha, New: commit}}})
			}
		})
		if end != nil || write != nil && !errors.Is(write, errMoved) {
			t.Fatalf("end %v, write %v; want none, and none or %v", end, write, errMoved)
		}
		want := sha
		if write == nil {
			want = commit
		}
		if got := seen(t, w, s.ID); got.State != Ended || got.HeadSHA != want || w.head(t, s.Ref) != "" {
			t.Fatalf("session is %s, was at %s, branch at %q; want ended at %s, no branch", got.State, got.HeadSHA, w.head(t, s.Ref), want)
		}
	}
}

// A child that is being made while its parent is ended: one of both is refused.
func TestRaceEndAgainstAChild(t *testing.T) {
	w, _ := newMain(t, testLimits)
	other := twin(w)
	for i := range 20 {
		p, c := fmt.Sprint("p", i), fmt.Sprint("c", i)
		begun(t, w, CreateSpec{ID: p})
		var end, create error
		both(2, func(n int) {
			if n == 0 {
				_, end = w.k.End(t.Context(), w.repo, w.door(backend()), backend(), p, EndSpec{})
			} else {
				_, create = other.k.Create(t.Context(), w.repo, other.door(backend()), backend(), CreateSpec{ID: c, FromSession: p})
			}
		})
		if (end == nil) == (create == nil) {
			t.Fatalf("end %v, create from it %v; want one to be refused", end, create)
		}
		if end != nil && !errors.As(end, new(*InUseError)) {
			t.Fatalf("end of a session with a child: %v, want an InUseError", end)
		}
		if create != nil && !errors.As(create, new(*StateError)) && !errors.Is(create, ErrNotFound) {
			t.Fatalf("create from an ended session: %v", create)
		}
	}
}

// What comes between the reaper's judgement and its batch keeps the session.
func TestRaceReaperAgainstUse(t *testing.T) {
	for _, tc := range []struct {
		name string
		use  func(t *testing.T, w *world, s Session)
	}{
		{"an acquired lease", func(t *testing.T, w *world, _ Session) {
			mustLease(t, w, "s1", LeaseSpec{Action: Acquire, Holder: "A"})
		}},
		{"a write", func(t *testing.T, w *world, s Session) {
			if _, err := w.write(t, backend(), s.Ref, "work"); err != nil {
				t.Errorf("write: %v", err)
			}
		}},
		{"a child", func(t *testing.T, w *world, _ Session) {
			begun(t, w, CreateSpec{ID: "c", FromSession: "s1"})
		}},
		{"more time", func(t *testing.T, w *world, _ Session) {
			if _, err := w.k.Patch(t.Context(), w.repo, w.door(backend()), backend(), "s1", Patch{IdleTimeout: ptr(time.Hour)}); err != nil {
				t.Errorf("Patch: %v", err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, _ := newMain(t, testLimits)
			s := begun(t, w, CreateSpec{ID: "s1", IdleTimeout: ptr(time.Minute)})
			w.clock.advance(time.Minute)
			used := during(w, fenceKey(s.Ref), func() { tc.use(t, w, s) })
			reaped(t, twin(w))
			if !used() {
				t.Fatal("the reaper did not try to end the session")
			}
			if got := seen(t, w, "s1"); got.State != Active || w.head(t, s.Ref) == "" {
				t.Errorf("session in use is %s, its branch at %q", got.State, w.head(t, s.Ref))
			}
		})
	}
}

// A renewal that meets the reaper, in either order: what is held stays.
func TestRaceReaperAgainstRenew(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "s1", Holder: "A", LeaseTTL: time.Minute, TTL: time.Second})
	w.clock.advance(30 * time.Second)
	mustLease(t, w, "s1", LeaseSpec{Action: Renew, Holder: "A", TTL: time.Minute}) // the look at it stays where it is
	w.clock.advance(30 * time.Second)
	renewed := during(w, sessionKey("s1"), func() {
		mustLease(t, w, "s1", LeaseSpec{Action: Renew, Holder: "A", TTL: time.Minute})
	})
	reaped(t, twin(w)) // to move its look to the end of the lease
	if !renewed() {
		t.Fatal("the reaper did not touch the session")
	}
	w.clock.advance(30 * time.Second)
	reaped(t, w)
	if got := seen(t, w, "s1"); got.State != Active || got.Holder != "A" {
		t.Errorf("the held session is %s, held by %q", got.State, got.Holder)
	}
	w.clock.advance(30 * time.Second)
	reaped(t, w)
	if got := seen(t, w, "s1"); got.State != Ended {
		t.Errorf("after the lease the session is %s, want ended", got.State)
	}
}

// twoReapers end each session once between them.
func twoReapers(t *testing.T, w *world, sessions int, due func()) {
	t.Helper()
	for i := range sessions {
		begun(t, w, CreateSpec{ID: fmt.Sprint("reap", i), TTL: time.Second})
	}
	due()
	nodes := []*world{w, twin(w)}
	errs := make([]error, 4)
	both(len(errs), func(i int) {
		n := nodes[i%2]
		_, errs[i] = n.k.Reap(t.Context(), n.repo)
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("Reap: %v", err)
	}
	until(t, w, "all are reaped", func() bool { // what two met on is left to a later round
		reaped(t, w)
		return len(w.keys(t, fenceKeys)) == 0
	})
	ended := map[string]int{}
	for _, e := range w.log(t) {
		if e.Type != eventEnded {
			continue
		}
		for _, c := range e.Changes {
			ended[c.Session]++
		}
	}
	for i := range sessions {
		if n := ended[fmt.Sprint("reap", i)]; n != 1 {
			t.Errorf("session %d ended %d times", i, n)
		}
	}
}

func TestRaceTwoReapers(t *testing.T) {
	w, _ := newMain(t, testLimits)
	twoReapers(t, w, 100, func() { w.clock.advance(time.Second) })
}

// MaxLive holds however many are made at once.
func TestRaceCreateAgainstTheLimit(t *testing.T) {
	w, _ := newMain(t, Limits{MaxLive: 3})
	other := twin(w)
	errs := make([]error, 10)
	both(len(errs), func(i int) {
		n := []*world{w, other}[i%2]
		_, errs[i] = n.k.Create(t.Context(), n.repo, n.door(backend()), backend(), CreateSpec{})
	})
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else if !errors.As(err, new(*LimitError)) {
			t.Errorf("Create over the limit: %v, want a LimitError", err)
		}
	}
	if made != 3 {
		t.Errorf("%d sessions, want 3", made)
	}
}

// The same on the shared engine, where two nodes really are two.
func TestSessionsOnRedis(t *testing.T) {
	url := redistest.Start(t).URL()
	db, err := redisdb.Open(t.Context(), url, redisdb.Options{})
	if err != nil {
		t.Fatalf("redisdb.Open: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	w := newWorld(db, Limits{ReapEvery: 10 * time.Millisecond})
	sha := branchOff(t, w, "refs/heads/HEAD", "first")
	twoAcquires(t, w)
	s := seen(t, w, "race")
	if _, err := w.write(t, at(1), s.Ref, "old"); !errors.As(err, new(*StaleEpochError)) {
		t.Errorf("write of an old epoch: %v, want a StaleEpochError", err)
	}
	if _, err := w.write(t, at(2), s.Ref, "new"); err != nil {
		t.Errorf("write of the holder: %v", err)
	}
	if ids, _ := listed(t, w, w.door(backend()), Filter{Holder: s.Holder}, 1); len(ids) != 1 || ids[0] != "race" {
		t.Errorf("list by holder: %q", ids)
	}
	ended(t, w, "race", EndSpec{Holder: s.Holder})
	if err := w.moveFrom(t, sha, s.Ref); err == nil {
		t.Error("a branch that ended with its session was written to")
	}
	begun(t, w, CreateSpec{ID: "short", TTL: 50 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- twin(w).k.Run(ctx) }()
	until(t, w, "the short one is reaped", func() bool { return seen(t, w, "short").State == Ended })
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want %v", err, context.Canceled)
	}
}

// moveFrom tries to move ref from sha.
func (w *world) moveFrom(t testing.TB, sha, ref string) error {
	t.Helper()
	return w.door(backend()).Move(t.Context(), Move{Changes: []Change{{Ref: ref, Old: sha, New: w.commit(sha, "late")}}})
}
