package sessions

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// reaped does one round.
func reaped(t testing.TB, w *world) (next time.Time) {
	t.Helper()
	next, err := w.k.Reap(t.Context(), w.repo)
	if err != nil {
		t.Fatalf("Reap: %v", err)
	}
	return next
}

// endsOn checks that a session ends at its time: not a step earlier, and then.
func endsOn(t testing.TB, w *world, id string, at time.Time) {
	t.Helper()
	if got := seen(t, w, id); !got.EndsAt.Equal(at) {
		t.Errorf("session %s is told to end at %s, want %s", id, got.EndsAt, at)
	}
	w.clock.advance(at.Sub(w.clock.Now()) - time.Microsecond)
	if next := reaped(t, w); next.IsZero() || next.After(at) {
		t.Errorf("before the end of %s the reaper wants to look again at %s, want at %s or before", id, next, at)
	}
	if got := seen(t, w, id); got.State == Ended {
		t.Fatalf("session %s was reaped before %s", id, at)
	}
	w.clock.advance(time.Microsecond)
	reaped(t, w)
	if got := seen(t, w, id); got.State != Ended || got.EndCause != Expired || w.head(t, got.Ref) != "" {
		t.Fatalf("session %s is %s (%s) at %s, its branch at %q; want it expired", id, got.State, got.EndCause, at, w.head(t, got.Ref))
	}
}

func TestB08_ExpiryIsVisibleAndOnTime(t *testing.T) {
	for _, state := range []State{Active, Paused, Stopped, ViewOnly} {
		t.Run(string(state), func(t *testing.T) {
			w, _ := newMain(t, testLimits)
			s := begun(t, w, CreateSpec{ID: "s1", TTL: time.Hour})
			inState(t, w, "s1", state)
			w.clock.advance(10 * time.Minute)
			endsOn(t, w, "s1", s.CreatedAt.Add(time.Hour))
		})
	}
}

// inState puts a session into a state, as operations on it will.
func inState(t testing.TB, w *world, id string, state State) {
	t.Helper()
	err := w.k.change(t.Context(), w.repo, w.door(backend()), id, "", func(c *change) error {
		r := c.clone()
		r.State = state
		c.w.put(c.stored, r)
		c.log = logEntry{Type: eventChanged, Session: id, Data: mustJSON(r.data(c.base, c.now))}
		return nil
	})
	if err != nil {
		t.Fatalf("put %s into state %s: %v", id, state, err)
	}
}

func TestD08_IdleTimeout(t *testing.T) {
	w, _ := newMain(t, testLimits)
	s := begun(t, w, CreateSpec{ID: "s1", IdleTimeout: ptr(10 * time.Minute)})
	for range 3 { // a write is use, and touches no record
		w.clock.advance(9 * time.Minute)
		if _, err := w.write(t, backend(), s.Ref, fmt.Sprint(w.clock.Now())); err != nil {
			t.Fatalf("write: %v", err)
		}
		reaped(t, w)
	}
	if got := seen(t, w, "s1"); !got.UsedAt.Equal(w.clock.Now()) {
		t.Errorf("used at %s, want at the last write, %s", got.UsedAt, w.clock.Now())
	}
	endsOn(t, w, "s1", w.clock.Now().Add(10*time.Minute))
}

func TestDR19_AChildRestartsTheClock(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "p", IdleTimeout: ptr(1_800 * time.Second)})
	w.clock.advance(1_700 * time.Second)
	begun(t, w, CreateSpec{ID: "c", FromSession: "p"})
	started := w.clock.Now()
	w.clock.advance(1_700 * time.Second)
	ended(t, w, "c", EndSpec{})
	reaped(t, w)
	endsOn(t, w, "p", started.Add(1_800*time.Second))
}

func TestDR20_TTLCountsOnlyWhileUnused(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "p", TTLUnused: time.Minute, Holder: "box", LeaseTTL: time.Hour})
	begun(t, w, CreateSpec{ID: "never"})
	w.clock.advance(50 * time.Minute)
	begun(t, w, CreateSpec{ID: "c", FromSession: "p"})
	w.clock.advance(2 * time.Hour) // the lease has expired, the child lives
	reaped(t, w)
	if got := seen(t, w, "p"); got.State != Active || !got.EndsAt.IsZero() {
		t.Fatalf("with a live child the session is %s and ends at %s", got.State, got.EndsAt)
	}
	ended(t, w, "c", EndSpec{})
	freed := w.clock.Now()
	if next := reaped(t, w); next.After(freed.Add(time.Minute)) {
		t.Errorf("after the last child's end the reaper looks at %s, want by %s", next, freed.Add(time.Minute))
	}
	endsOn(t, w, "p", freed.Add(time.Minute))
	w.clock.advance(100 * 24 * time.Hour)
	reaped(t, w)
	if got := seen(t, w, "never"); got.State != Active {
		t.Errorf("a session without times is %s", got.State)
	}
}

func TestHeldIsNeverReaped(t *testing.T) {
	w, _ := newMain(t, testLimits)
	s := begun(t, w, CreateSpec{ID: "s1", Holder: "box", LeaseTTL: time.Hour, TTL: time.Minute, IdleTimeout: ptr(time.Second), TTLUnused: time.Second})
	endsOn(t, w, "s1", s.CreatedAt.Add(time.Hour+time.Second).Add(-time.Second)) // as soon as nobody holds it: its time is long up
}

func TestPinnedIsNotReaped(t *testing.T) {
	w, sha := newMain(t, testLimits)
	pinned := map[string]bool{sha: true}
	w.k.Doors = func(_ Repo, by Actor) (Door, error) {
		d := w.door(by)
		d.pinned = pinned
		return d, nil
	}
	begun(t, w, CreateSpec{ID: "s1", TTL: time.Minute})
	w.clock.advance(time.Hour)
	next := reaped(t, w)
	if got := seen(t, w, "s1"); got.State != Active || next.IsZero() {
		t.Fatalf("with a pinned head the session is %s, next look %s", got.State, next)
	}
	delete(pinned, sha)
	w.clock.advance(next.Sub(w.clock.Now()))
	reaped(t, w)
	if got := seen(t, w, "s1"); got.State != Ended {
		t.Errorf("without the pin the session is %s, want ended", got.State)
	}
}

func TestEndedAreForgotten(t *testing.T) {
	w, _ := newMain(t, Limits{EndedMemory: 24 * time.Hour})
	begun(t, w, CreateSpec{ID: "p"})
	begun(t, w, CreateSpec{ID: "s1", FromSession: "p", Labels: map[string]string{"a": "b"}, Holder: "box"})
	if _, err := w.k.Issue(t.Context(), w.repo, w.door(backend()), backend(), "s1", TokenSpec{}); err != nil {
		t.Fatalf("Issue: %v", err)
	}
	ended(t, w, "s1", EndSpec{Holder: "box"})
	ended(t, w, "p", EndSpec{})
	w.clock.advance(24*time.Hour - time.Microsecond)
	reaped(t, w)
	seen(t, w, "s1")
	w.clock.advance(time.Microsecond)
	for range 3 {
		reaped(t, w)
	}
	if _, err := w.k.Get(t.Context(), w.repo, w.door(backend()), "s1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get of a forgotten session: %v, want %v", err, ErrNotFound)
	}
	for _, prefix := range []string{"session/", "session-by/", "session-child/", "session-due/", "session-freed/", "session-token/", "fence/"} {
		if keys := w.keys(t, prefix); len(keys) > 0 {
			t.Errorf("left: %q", keys)
		}
	}
	begun(t, w, CreateSpec{ID: "s1"})
}

// Many end in few batches; one that is refused does not keep the others.
func TestReapingManyWithARefusal(t *testing.T) {
	w, _ := newMain(t, testLimits)
	const many = 70
	for i := range many {
		begun(t, w, CreateSpec{ID: fmt.Sprintf("s%d", i), TTL: time.Minute})
	}
	stuck := ephemeralPrefix + "sessions/s7"
	w.k.Doors = func(_ Repo, by Actor) (Door, error) {
		d := w.door(by)
		d.mayWrite = func(ref string) bool { return ref != stuck }
		return d, nil
	}
	w.clock.advance(time.Minute)
	before := len(w.log(t))
	if next := reaped(t, w); !next.Equal(w.clock.Now().Add(w.k.Limits.ReapEvery)) {
		t.Errorf("with one left the next look is at %s, want in %s", next, w.k.Limits.ReapEvery)
	}
	if n := len(w.keys(t, fenceKeys)); n != 1 {
		t.Errorf("%d sessions live, want only the one that could not be ended", n)
	}
	if n := len(w.log(t)) - before; n > many/2 {
		t.Errorf("%d batches for %d sessions", n, many)
	}
}

// Run ends sessions by itself, also those that another process made.
func TestRunReapsOnTime(t *testing.T) {
	w, _ := newMain(t, Limits{ReapEvery: time.Millisecond})
	begun(t, w, CreateSpec{ID: "s1", TTL: time.Minute})
	other := twin(w) // knows of nothing but the mark
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	w.clock.advance(time.Minute)
	go func() { done <- other.k.Run(ctx) }()
	until(t, w, "s1 is reaped", func() bool { return seen(t, w, "s1").State == Ended })
	// What comes up later, earlier than anything known before, wakes it as well.
	s := begun(t, other, CreateSpec{ID: "s2", TTL: time.Second})
	w.clock.advance(time.Second)
	until(t, w, "s2 is reaped", func() bool { return w.head(t, s.Ref) == "" })
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want %v", err, context.Canceled)
	}
}

// marks are how many repos are marked as having sessions.
func marks(t *testing.T, w *world) int {
	t.Helper()
	v, err := w.ledger.Read(t.Context(), ledger.ServerSpace)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	defer v.Close()
	items, err := v.Scan(t.Context(), markKeys, "", 10)
	if err != nil {
		t.Fatalf("Scan: %v", err)
	}
	return len(items)
}

func TestMarksOfDeletedReposGo(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "s1", TTL: time.Minute})
	if err := w.k.noteMarked(t.Context(), w.clock.Now()); err != nil || marks(t, w) != 1 {
		t.Fatalf("noteMarked = %v, %d marks; want 1", err, marks(t, w))
	}
	if err := w.ledger.Drop(t.Context(), ledger.RepoSpace(w.repo.ID)); err != nil {
		t.Fatalf("Drop: %v", err)
	}
	for range 2 { // it does not come back either
		if err := w.k.noteMarked(t.Context(), w.clock.Now()); err != nil || marks(t, w) != 0 {
			t.Errorf("after the repo's end: noteMarked = %v, %d marks; want none", err, marks(t, w))
		}
	}
}

// A failover may lose the mark of a repo that goes on having sessions.
func TestLostMarkIsWrittenAgain(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "s1", TTL: time.Minute})
	lose := ledger.Batch{Space: ledger.ServerSpace, Deletes: []string{markKey(w.repo.ID)}}
	if _, err := w.ledger.Apply(t.Context(), lose); err != nil {
		t.Fatalf("Apply: %v", err)
	}
	begun(t, w, CreateSpec{ID: "s2", TTL: time.Minute})
	if err := w.k.noteMarked(t.Context(), w.clock.Now()); err != nil || marks(t, w) != 1 {
		t.Errorf("noteMarked = %v, %d marks; want the one that was lost", err, marks(t, w))
	}
}

// A look that a batch asks for is taken once more when the batch can be seen: one that
// came before it saw nothing.
func TestLooksAheadOfTheirBatch(t *testing.T) {
	now, repo := time.Unix(1_000, 0), Repo{ID: "r"}
	l := newLooks()
	l.noteAhead(repo, now, now)
	if due, next := l.take(now); len(due) != 1 || !next.Equal(now.Add(applied)) {
		t.Errorf("first look: %v, then %s; want it, and again at %s", due, next, now.Add(applied))
	}
	l.note(repo, now.Add(time.Second)) // what the round found to be next
	if due, next := l.take(now.Add(time.Second)); len(due) != 1 || !next.Equal(now.Add(applied)) {
		t.Errorf("second look: %v, then %s; want it, and still again at %s", due, next, now.Add(applied))
	}
	if due, next := l.take(now.Add(applied)); len(due) != 1 || !next.IsZero() {
		t.Errorf("last look: %v, then %s; want it and no more", due, next)
	}
	l.noteAhead(repo, now.Add(time.Hour), now)
	if due, next := l.take(now.Add(time.Hour)); len(due) != 1 || !next.IsZero() {
		t.Errorf("look in an hour: %v, then %s; want it once", due, next)
	}
}
