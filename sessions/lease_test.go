package sessions

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// leased does an action on a lease as the backend.
func leased(t testing.TB, w *world, id string, spec LeaseSpec) (Lease, error) {
	t.Helper()
	return w.k.Lease(t.Context(), w.repo, w.door(backend()), backend(), id, spec)
}

// mustLease is leased without an error.
func mustLease(t testing.TB, w *world, id string, spec LeaseSpec) Lease {
	t.Helper()
	l, err := leased(t, w, id, spec)
	if err != nil {
		t.Fatalf("%s of %s by %s: %v", spec.Action, id, spec.Holder, err)
	}
	return l
}

// at is the backend's token with an epoch.
func at(epoch uint64) Actor {
	by := backend()
	by.Epoch = &epoch
	return by
}

// Client A takes a 2 s lease and gets an epoch; waits 3 s; B takes it and commits; A
// commits with its epoch and is refused, and is told who is newer.
func TestCase13_1_AnOldWriterIsFencedOff(t *testing.T) {
	w, _ := newMain(t, testLimits)
	s := begun(t, w, CreateSpec{ID: "s1"})
	a := mustLease(t, w, "s1", LeaseSpec{Action: Acquire, Holder: "A", TTL: 2 * time.Second})
	w.clock.advance(3 * time.Second)
	b := mustLease(t, w, "s1", LeaseSpec{Action: Acquire, Holder: "B", TTL: time.Minute})
	if b.Epoch != a.Epoch+1 {
		t.Errorf("epochs %d, then %d; want the next", a.Epoch, b.Epoch)
	}
	head, err := w.write(t, at(b.Epoch), s.Ref, "B's work")
	if err != nil {
		t.Fatalf("B writes: %v", err)
	}
	_, err = w.write(t, at(a.Epoch), s.Ref, "A's late work")
	var stale *StaleEpochError
	if !errors.As(err, &stale) || stale.Have != a.Epoch || stale.Session != b.Epoch || stale.Ref != s.Ref {
		t.Fatalf("A writes: %v, want a StaleEpochError of %d against %d", err, a.Epoch, b.Epoch)
	}
	if want := fmt.Sprintf("stale epoch %d, session is at %d", a.Epoch, b.Epoch); err.Error() != want {
		t.Errorf("refusal %q, want %q", err, want)
	}
	if got := seen(t, w, "s1"); got.HeadSHA != head || got.Holder != "B" {
		t.Errorf("session is at %s, held by %s; want %s, B", got.HeadSHA, got.Holder, head)
	}
}

func TestA16_TakeoverFencesOffAFastForward(t *testing.T) {
	w, _ := newMain(t, testLimits)
	s := begun(t, w, CreateSpec{ID: "s1", Holder: "A"})
	if _, err := w.write(t, at(1), s.Ref, "while A holds it"); err != nil {
		t.Fatalf("A writes: %v", err)
	}
	if l := mustLease(t, w, "s1", LeaseSpec{Action: Takeover, Holder: "B"}); l.Epoch != 2 || l.Holder != "B" {
		t.Errorf("takeover gives %+v, want epoch 2 of B", l)
	}
	_, err := w.write(t, at(1), s.Ref, "a plain fast-forward")
	if stale := (*StaleEpochError)(nil); !errors.As(err, &stale) {
		t.Errorf("A writes after the takeover: %v, want a StaleEpochError", err)
	}
	if _, err := w.write(t, backend(), s.Ref, "the backend, without an epoch"); err != nil {
		t.Errorf("the backend writes: %v", err)
	}
}

func TestCase13_2_Renewing(t *testing.T) {
	const ttl = 10 * time.Second
	for _, tc := range []struct {
		name string
		wait time.Duration
		ttl  time.Duration
		then func(t *testing.T, w *world)
		want error
		for_ time.Duration // the lease is then for so long from now
	}{
		{name: "at half its time", wait: ttl / 2, ttl: ttl, for_: ttl},
		{name: "10 ms before its end", wait: ttl - 10*time.Millisecond, ttl: ttl, for_: ttl},
		{name: "at its end", wait: ttl, ttl: ttl, want: ErrLeaseLost},
		{name: "after its end, nobody else", wait: 2 * ttl, ttl: ttl, want: ErrLeaseLost},
		{name: "after its end, another has it", wait: 2 * ttl, ttl: ttl, want: ErrLeaseLost, then: func(t *testing.T, w *world) {
			mustLease(t, w, "s1", LeaseSpec{Action: Acquire, Holder: "B"})
		}},
		{name: "after a takeover", ttl: ttl, want: ErrLeaseLost, then: func(t *testing.T, w *world) {
			mustLease(t, w, "s1", LeaseSpec{Action: Takeover, Holder: "B"})
		}},
		{name: "after it was taken anew in its own name", ttl: ttl, want: ErrLeaseLost, then: func(t *testing.T, w *world) {
			mustLease(t, w, "s1", LeaseSpec{Action: Acquire, Holder: "A"})
		}},
		{name: "after its release", ttl: ttl, want: ErrLeaseLost, then: func(t *testing.T, w *world) {
			mustLease(t, w, "s1", LeaseSpec{Action: Release, Holder: "A"})
		}},
		{name: "ttl 0", ttl: 0, for_: time.Minute},
		{name: "ttl -1", ttl: -1, want: ErrInvalid},
		{name: "ttl 10^9 s", ttl: 1e9 * time.Second, for_: 24 * time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, _ := newMain(t, testLimits)
			begun(t, w, CreateSpec{ID: "s1", Holder: "A", LeaseTTL: ttl})
			w.clock.advance(tc.wait)
			if tc.then != nil {
				tc.then(t, w)
			}
			before := seen(t, w, "s1")
			l, err := leased(t, w, "s1", LeaseSpec{Action: Renew, Holder: "A", TTL: tc.ttl, Epoch: ptr(uint64(1))})
			if !errors.Is(err, tc.want) {
				t.Fatalf("renew: %v, want %v", err, tc.want)
			}
			if err != nil {
				if after := seen(t, w, "s1"); !sameSession(before, after) {
					t.Errorf("a refused renewal changed\n%+v to\n%+v", before, after)
				}
				return
			}
			if want := w.clock.Now().Add(tc.for_); !l.ExpiresAt.Equal(want) || l.Epoch != 1 {
				t.Errorf("renewed to %+v, want epoch 1 until %s", l, want)
			}
		})
	}
}

// A holds and renews; B asks and waits, C asks at once; then A dies without release.
func TestCase13_3_WaitingForALease(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "s1", Holder: "A", LeaseTTL: 20 * time.Second})
	for _, wait := range []time.Duration{0, 20 * time.Millisecond} {
		_, err := leased(t, w, "s1", LeaseSpec{Action: Acquire, Holder: "B", Wait: wait})
		if held := (*LeaseHeldError)(nil); !errors.As(err, &held) || held.Lease.Holder != "A" || held.Lease.Epoch != 1 {
			t.Errorf("acquire with a wait of %s: %v, want a LeaseHeldError of A at epoch 1", wait, err)
		}
	}
	if got := seen(t, w, "s1"); got.Holder != "A" || got.Epoch != 1 {
		t.Errorf("held by %s at epoch %d after refusals, want A at 1", got.Holder, got.Epoch)
	}
	w.clock.advance(20 * time.Second)
	if l := mustLease(t, w, "s1", LeaseSpec{Action: Acquire, Holder: "B"}); l.Epoch != 2 {
		t.Errorf("after A's lease ended B gets epoch %d, want 2", l.Epoch)
	}
}

// Whoever waits gets the lease as soon as it is let go, or has expired.
func TestCase13_3_TheWaitIsOverAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		free func(t *testing.T, w *world)
	}{
		{"released", func(t *testing.T, w *world) {
			mustLease(t, w, "s1", LeaseSpec{Action: Release, Holder: "A"})
		}},
		{"expired", func(t *testing.T, w *world) {
			w.clock.advance(time.Minute)
			begun(t, w, CreateSpec{ID: "other"}) // anything that makes the log grow: this clock wakes nobody
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, _ := newMain(t, testLimits)
			begun(t, w, CreateSpec{ID: "s1", Holder: "A", LeaseTTL: time.Minute})
			got := make(chan error, 1)
			go func() {
				l, err := w.k.Lease(t.Context(), w.repo, w.door(backend()), backend(), "s1", LeaseSpec{Action: Acquire, Holder: "B", Wait: time.Minute})
				if err == nil && (l.Epoch != 2 || l.Holder != "B") {
					err = fmt.Errorf("lease %+v, want epoch 2 of B", l)
				}
				got <- err
			}()
			tc.free(t, w)
			if err := <-got; err != nil {
				t.Errorf("acquire that waits: %v", err)
			}
		})
	}
}

func TestLeaseRefusals(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "s1", Holder: "A"})
	begun(t, w, CreateSpec{ID: "gone"})
	ended(t, w, "gone", EndSpec{})
	bound := backend()
	bound.Session = "s2"
	state := &StateError{ID: "gone", State: Ended}
	for _, tc := range []struct {
		name string
		id   string
		by   Actor
		spec LeaseSpec
		want string
	}{
		{"no action", "s1", backend(), LeaseSpec{Holder: "A"}, ErrInvalid.Error()},
		{"no holder", "s1", backend(), LeaseSpec{Action: Acquire}, ErrInvalid.Error()},
		{"negative wait", "s1", backend(), LeaseSpec{Action: Acquire, Holder: "A", Wait: -1}, ErrInvalid.Error()},
		{"nobody's", "nobody", backend(), LeaseSpec{Action: Acquire, Holder: "A"}, ErrNotFound.Error()},
		{"an ended one's", "gone", backend(), LeaseSpec{Action: Acquire, Holder: "A"}, state.Error()},
		{"takeover of an ended one's", "gone", backend(), LeaseSpec{Action: Takeover, Holder: "A"}, state.Error()},
		{"renewal of an ended one's", "gone", backend(), LeaseSpec{Action: Renew, Holder: "A"}, ErrLeaseLost.Error()},
		{"another's token", "s1", bound, LeaseSpec{Action: Acquire, Holder: "A"}, ErrForeignSession.Error()},
		{"another's token, renewing", "s1", bound, LeaseSpec{Action: Renew, Holder: "A"}, ErrForeignSession.Error()},
		{"old epoch, taking", "s1", at(7), LeaseSpec{Action: Takeover, Holder: "A"}, "stale epoch 7, session is at 1"},
		{"old epoch, renewing", "s1", at(0), LeaseSpec{Action: Renew, Holder: "A"}, ErrLeaseLost.Error()},
		{"another epoch named", "s1", backend(), LeaseSpec{Action: Release, Holder: "A", Epoch: ptr(uint64(9))}, ErrLeaseLost.Error()},
		{"another's name", "s1", backend(), LeaseSpec{Action: Release, Holder: "B"}, "A holds it, the session is at epoch 1"},
	} {
		_, err := w.k.Lease(t.Context(), w.repo, w.door(tc.by), tc.by, tc.id, tc.spec)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	door := w.door(backend())
	door.mayWrite = func(string) bool { return false }
	if _, err := w.k.Lease(t.Context(), w.repo, door, backend(), "s1", LeaseSpec{Action: Takeover, Holder: "B"}); !errors.Is(err, errDenied) {
		t.Errorf("takeover without the right to the branch: %v, want %v", err, errDenied)
	}
	if got := seen(t, w, "s1"); got.Holder != "A" || got.Epoch != 1 {
		t.Errorf("after refusals %s holds it at epoch %d, want A at 1", got.Holder, got.Epoch)
	}
}

func TestLeaseIsLoggedAndRepeatable(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "s1"})
	once := &ledger.Once[Lease]{Key: "l", Answer: func(l Lease) ([]byte, error) { return []byte(fmt.Sprint(l.Epoch)), nil }}
	spec := LeaseSpec{Action: Acquire, Holder: "A", Once: once}
	mustLease(t, w, "s1", spec)
	n := len(w.log(t))
	_, err := leased(t, w, "s1", spec)
	if stored, ok := ledger.IsRepeated(err); !ok || string(stored) != "2" {
		t.Errorf("repeated acquire: %q, %v; want the stored answer 2", stored, err)
	}
	log := w.log(t)
	if last := log[len(log)-1]; len(log) != n || last.Type != "lease.changed" || last.Session != "s1" || !strings.Contains(string(last.Data), `"epoch":2`) {
		t.Errorf("last of %d log entries %+v %s, want one lease.changed of s1 to epoch 2", len(log), last, last.Data)
	}
}

// After lost writes the epoch base has grown: old epochs stay behind, and a lease
// that was given before is void.
func TestEpochBaseVoidsWhatWasTold(t *testing.T) {
	w, _ := newMain(t, testLimits)
	s := begun(t, w, CreateSpec{ID: "s1", Holder: "A", LeaseTTL: time.Hour})
	const grown = 1 << 20
	resync := ledger.Batch{Space: ledger.RepoSpace(w.repo.ID), Adds: []ledger.Add{{Key: baseKey, Delta: grown}}}
	if _, err := w.ledger.Apply(t.Context(), resync); err != nil {
		t.Fatalf("raise epoch base: %v", err)
	}
	got := seen(t, w, "s1")
	if got.Epoch != grown+1 || got.Lease != nil {
		t.Errorf("session is at epoch %d with lease %+v, want %d and none", got.Epoch, got.Lease, grown+1)
	}
	if _, err := leased(t, w, "s1", LeaseSpec{Action: Renew, Holder: "A"}); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("renew of a void lease: %v, want %v", err, ErrLeaseLost)
	}
	if _, err := w.write(t, at(1), s.Ref, "old"); err == nil {
		t.Error("an epoch of before wrote")
	}
	if l := mustLease(t, w, "s1", LeaseSpec{Action: Acquire, Holder: "B"}); l.Epoch != grown+2 {
		t.Errorf("next epoch is %d, want %d", l.Epoch, grown+2)
	}
	if _, err := w.write(t, at(grown+2), s.Ref, "new"); err != nil {
		t.Errorf("the new holder writes: %v", err)
	}
}
