package sessions

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
)

func TestGuardFencesOffWhoMayNotWrite(t *testing.T) {
	w, sha := newMain(t, testLimits)
	s1 := begun(t, w, CreateSpec{ID: "s1"})
	s2 := begun(t, w, CreateSpec{ID: "s2"})
	of := func(session string) Actor {
		by := backend()
		by.Session, by.TokenID = session, "family.more"
		return by
	}
	for _, tc := range []struct {
		name string
		by   Actor
		c    Change
		want error
	}{
		{"its own branch", of("s1"), Change{Ref: s1.Ref, Old: sha, New: w.commit(sha, "x")}, nil},
		{"another's branch", of("s1"), Change{Ref: s2.Ref, Old: sha, New: w.commit(sha, "x")}, ErrForeignSession},
		{"a branch of nobody's", of("s1"), Change{Ref: "refs/heads/HEAD", Old: sha, New: w.commit(sha, "x")}, ErrForeignSession},
		{"a new branch", of("s1"), Change{Ref: "refs/heads/new", New: sha}, ErrForeignSession},
		{"a ref that it only demands to be somewhere", of("s1"), Change{Ref: s2.Ref, Old: sha, New: sha}, nil},
		{"without a session", backend(), Change{Ref: s2.Ref, Old: sha, New: w.commit(sha, "x")}, nil},
		{"its own branch, deleting it", of("s1"), Change{Ref: s1.Ref, Old: w.commit(sha, "x")}, nil},
		{"its own branch, after its end", of("s1"), Change{Ref: s1.Ref, New: sha}, ErrTokenDead},
	} {
		err := w.door(tc.by).Move(t.Context(), Move{Changes: []Change{tc.c}})
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestGuardHoldsTheState(t *testing.T) {
	for _, state := range []State{Active, Stopping, Stopped, Paused, Leaving, ViewOnly} {
		w, _ := newMain(t, testLimits)
		s := begun(t, w, CreateSpec{ID: "s1"})
		inState(t, w, "s1", state)
		_, err := w.write(t, backend(), s.Ref, "work")
		var refused *StateError
		if errors.As(err, &refused) != (state != Active) || refused != nil && refused.State != state {
			t.Errorf("write in state %s: %v", state, err)
		}
		stale := at(9)
		if _, err := w.write(t, stale, s.Ref, "work"); !errors.As(err, new(*StaleEpochError)) {
			t.Errorf("write of an old epoch in state %s: %v, want a StaleEpochError", state, err)
		}
	}
}

// A token that is revoked while its write is on the way does not write.
func TestGuardChecksRevocationInTheBatch(t *testing.T) {
	w, sha := newMain(t, testLimits)
	s := begun(t, w, CreateSpec{ID: "s1"})
	by := backend()
	by.Session, by.TokenID = "s1", "family.more"
	first := true
	w.ledger.beforeApply(func(b ledger.Batch) error {
		if !first || len(b.Sets) == 0 || b.Sets[0].Key != testRefKey(s.Ref) {
			return nil
		}
		first = false
		_, err := w.ledger.Ledger.Apply(t.Context(), ledger.Batch{Space: b.Space, Sets: []ledger.Set{{Key: revokedKey("family")}}})
		return err
	})
	_, err := w.write(t, by, s.Ref, "work")
	if !errors.Is(err, ErrTokenDead) || first {
		t.Errorf("write of a token revoked meanwhile: %v, want %v", err, ErrTokenDead)
	}
	if w.head(t, s.Ref) != sha {
		t.Error("the write of a revoked token has landed")
	}
}

// A takeover between a write's judgement and its batch fences the write off.
func TestA16_TakeoverUnderAWriteOnTheWay(t *testing.T) {
	w, sha := newMain(t, testLimits)
	s := begun(t, w, CreateSpec{ID: "s1", Holder: "A"})
	first := true
	w.ledger.beforeApply(func(b ledger.Batch) error {
		if !first || len(b.Sets) == 0 || b.Sets[0].Key != testRefKey(s.Ref) {
			return nil
		}
		first = false
		mustLease(t, w, "s1", LeaseSpec{Action: Takeover, Holder: "B"})
		return nil
	})
	_, err := w.write(t, at(1), s.Ref, "work")
	if stale := (*StaleEpochError)(nil); !errors.As(err, &stale) || w.head(t, s.Ref) != sha {
		t.Errorf("write under a takeover: %v, branch at %s; want a StaleEpochError and %s", err, w.head(t, s.Ref), sha)
	}
}

func TestGuardAnswersForOrdinaryRefsWithoutChecks(t *testing.T) {
	w, sha := newMain(t, testLimits)
	a, err := w.k.Guard(t.Context(), GuardRequest{
		Repo: w.repo, Actor: backend(), Now: w.clock.Now(),
		Changes: []Change{{Ref: "refs/heads/HEAD", Old: sha, New: w.commit(sha, "x")}, {Ref: "refs/heads/b", New: sha}},
	})
	if err != nil || len(a.Checks)+len(a.Sets)+len(a.Deletes)+len(a.Adds) != 0 || a.Type != "" || a.Session != "" {
		t.Errorf("Guard = %+v, %v; want nothing", a, err)
	}
}

// Who is fenced off can tell from the refusal where the branch is now and who moved it.
func TestPI13_TheRefusalLeadsToTheNewHead(t *testing.T) {
	w, _ := newMain(t, testLimits)
	s := begun(t, w, CreateSpec{ID: "s1", Holder: "A"})
	mustLease(t, w, "s1", LeaseSpec{Action: Takeover, Holder: "B"})
	newer := at(2)
	newer.Subject = "sandbox-B"
	sha, err := w.write(t, newer, s.Ref, "B's work")
	if err != nil {
		t.Fatalf("B writes: %v", err)
	}
	_, err = w.write(t, at(1), s.Ref, "A's late work")
	var stale *StaleEpochError
	if !errors.As(err, &stale) {
		t.Fatalf("A writes: %v, want a StaleEpochError", err)
	}
	heads, err := w.door(backend()).Heads(t.Context(), stale.Ref)
	if err != nil || heads[0].SHA != sha || heads[0].Writer != "sandbox-B" || !heads[0].At.Equal(w.clock.Now()) {
		t.Errorf("the refusal's ref is at %+v, %v; want %s by sandbox-B, now", heads[0], err, sha)
	}
	_, err = leased(t, w, "s1", LeaseSpec{Action: Renew, Holder: "A"})
	if !errors.Is(err, ErrLeaseLost) || !strings.Contains(err.Error(), "B holds it, the session is at epoch 2") {
		t.Errorf("A renews: %v, want to be told who holds it", err)
	}
}
