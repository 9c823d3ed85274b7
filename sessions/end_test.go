package sessions

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// ended ends a session as the backend.
func ended(t testing.TB, w *world, id string, spec EndSpec) Ending {
	t.Helper()
	e, err := w.k.End(t.Context(), w.repo, w.door(backend()), backend(), id, spec)
	if err != nil {
		t.Fatalf("End(%s): %v", id, err)
	}
	return e
}

func TestEndTakesTheBranchAlong(t *testing.T) {
	w, sha := newMain(t, testLimits)
	s := begun(t, w, CreateSpec{ID: "s1", Labels: map[string]string{"a": "b"}, TTL: time.Hour})
	dry := ended(t, w, "s1", EndSpec{DryRun: true})
	if dry.BytesFreed != 4_096 || dry.Session.State != Active || w.head(t, s.Ref) != sha {
		t.Errorf("dry run: %+v, branch at %q; want 4096 bytes to be freed and nothing changed", dry, w.head(t, s.Ref))
	}
	e := ended(t, w, "s1", EndSpec{})
	if e.BytesFreed != 4_096 || e.Session.State != Ended || e.Session.EndCause != Deleted || e.Session.HeadSHA != sha {
		t.Errorf("End = %+v, want an ended session that was at %s", e, sha)
	}
	if w.head(t, s.Ref) != "" || len(w.keys(t, fenceKeys)) != 0 {
		t.Errorf("after the end: branch at %q, fences %q", w.head(t, s.Ref), w.keys(t, fenceKeys))
	}
	got := seen(t, w, "s1")
	if got.State != Ended || got.EndedAt.IsZero() || !got.EndsAt.IsZero() || got.HeadSHA != sha {
		t.Errorf("ended session is told as %+v", got)
	}
	if again := ended(t, w, "s1", EndSpec{}); again.BytesFreed != 0 || again.Session.State != Ended {
		t.Errorf("second End = %+v, want 0 bytes of an ended session", again)
	}
	_, err := w.k.Create(t.Context(), w.repo, w.door(backend()), backend(), CreateSpec{ID: "s1"})
	if !errors.Is(err, ErrExists) {
		t.Errorf("Create with the id of an ended session: %v, want %v", err, ErrExists)
	}
}

func TestDR21_InUseIsNotDeleted(t *testing.T) {
	w, _ := newMain(t, testLimits)
	s := begun(t, w, CreateSpec{ID: "s1", Holder: "box-1"})
	begun(t, w, CreateSpec{ID: "c1", FromSession: "s1"})
	begun(t, w, CreateSpec{ID: "c2", FromSession: "s1"})
	for _, dry := range []bool{true, false} {
		_, err := w.k.End(t.Context(), w.repo, w.door(backend()), backend(), "s1", EndSpec{DryRun: dry})
		var use *InUseError
		if !errors.As(err, &use) || len(use.Holders) != 3 {
			t.Fatalf("End (dry %t) of a session in use: %v, want an InUseError of 3", dry, err)
		}
		want := []UseHolder{{"lease", "box-1"}, {"child", "c1"}, {"child", "c2"}}
		for i, h := range use.Holders {
			if h != want[i] {
				t.Errorf("holder %d is %+v, want %+v", i, h, want[i])
			}
		}
	}
	ended(t, w, "c1", EndSpec{})
	ended(t, w, "c2", EndSpec{})
	_, err := w.k.End(t.Context(), w.repo, w.door(backend()), backend(), "s1", EndSpec{Holder: "box-2"})
	if use := (*InUseError)(nil); !errors.As(err, &use) {
		t.Errorf("End by another holder: %v, want an InUseError", err)
	}
	if w.head(t, s.Ref) == "" {
		t.Error("the branch of a session in use is gone")
	}
	ended(t, w, "s1", EndSpec{Holder: "box-1"})
}

func TestD13_OnlyCreatorOrAdminDeletes(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "s1"})
	for _, by := range []Actor{
		{Org: "acme", Subject: "other", KeyID: "k1"},
		{Org: "acme", Subject: "backend", KeyID: "k2"},
		{Org: "evil", Subject: "backend", KeyID: "k1"},
		{Org: "acme"},
	} {
		_, err := w.k.End(t.Context(), w.repo, w.door(by), by, "s1", EndSpec{})
		if !errors.Is(err, ErrNotCreator) {
			t.Errorf("End by %+v: %v, want %v", by, err, ErrNotCreator)
		}
	}
	admin := Actor{Org: "acme", Subject: "admin"}
	if _, err := w.k.End(t.Context(), w.repo, w.door(admin), admin, "s1", EndSpec{Admin: true}); err != nil {
		t.Errorf("End by an admin: %v", err)
	}
	// Without subject and key the token itself is who created it.
	anon := Actor{Org: "acme", TokenID: "t1"}
	if _, err := w.k.Create(t.Context(), w.repo, w.door(anon), anon, CreateSpec{ID: "s2"}); err != nil {
		t.Fatalf("Create: %v", err)
	}
	other := Actor{Org: "acme", TokenID: "t2"}
	if _, err := w.k.End(t.Context(), w.repo, w.door(other), other, "s2", EndSpec{}); !errors.Is(err, ErrNotCreator) {
		t.Errorf("End with another token: %v, want %v", err, ErrNotCreator)
	}
	if _, err := w.k.End(t.Context(), w.repo, w.door(anon), anon, "s2", EndSpec{}); err != nil {
		t.Errorf("End with the creating token: %v", err)
	}
}

func TestEndIsNotForStrangers(t *testing.T) {
	w, _ := newMain(t, testLimits)
	s := begun(t, w, CreateSpec{ID: "s1"})
	blind := w.door(backend())
	blind.canRead = func(ref string) bool { return ref != s.Ref }
	for _, id := range []string{"s1", "nobody", "a/b", ""} {
		if _, err := w.k.End(t.Context(), w.repo, blind, backend(), id, EndSpec{}); !errors.Is(err, ErrNotFound) {
			t.Errorf("End(%q) of what is not seen: %v, want %v", id, err, ErrNotFound)
		}
		if _, err := w.k.Get(t.Context(), w.repo, blind, id); !errors.Is(err, ErrNotFound) {
			t.Errorf("Get(%q) of what is not seen: %v, want %v", id, err, ErrNotFound)
		}
	}
}

// A branch that is deleted by another road takes its session along, and the parent
// is told that a child is gone.
func TestDeletingTheBranchEndsTheSession(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "p"})
	a := begun(t, w, CreateSpec{ID: "a", FromSession: "p", Holder: "box"})
	b := begun(t, w, CreateSpec{ID: "b", FromSession: "p"})
	sha := a.HeadSHA
	m := Move{Changes: []Change{{Ref: a.Ref, Old: sha}, {Ref: b.Ref, Old: sha}}}
	if err := w.door(backend()).Move(t.Context(), m); err != nil {
		t.Fatalf("delete branches: %v", err)
	}
	for _, id := range []string{"a", "b"} {
		if got := seen(t, w, id); got.State != Ended || got.EndCause != Deleted || got.HeadSHA != sha || got.Lease != nil {
			t.Errorf("session %s after its branch was deleted: %+v", id, got)
		}
	}
	log := w.log(t)
	last := log[len(log)-1]
	if last.Type != "session.ended" || string(last.Data) != `{"cause":"deleted","ended":["a","b"]}` {
		t.Errorf("log entry %s %s, want session.ended of a and b", last.Type, last.Data)
	}
	if n := len(w.keys(t, childKeys)); n != 0 {
		t.Errorf("%d children are left", n)
	}
	ended(t, w, "p", EndSpec{})
}

// Parent and child may end in one batch.
func TestDeletingParentAndChildAtOnce(t *testing.T) {
	w, _ := newMain(t, testLimits)
	p := begun(t, w, CreateSpec{ID: "p"})
	c := begun(t, w, CreateSpec{ID: "c", FromSession: "p"})
	m := Move{Changes: []Change{{Ref: p.Ref, Old: p.HeadSHA}, {Ref: c.Ref, Old: c.HeadSHA}}}
	if err := w.door(backend()).Move(t.Context(), m); err != nil {
		t.Fatalf("delete branches: %v", err)
	}
	if seen(t, w, "p").State != Ended || seen(t, w, "c").State != Ended {
		t.Error("a session outlives its branch")
	}
}

func TestEndIsRepeatable(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "s1"})
	once := &ledger.Once[Ending]{Key: "end", Answer: func(e Ending) ([]byte, error) { return []byte(e.Session.State), nil }}
	ended(t, w, "s1", EndSpec{Once: once})
	_, err := w.k.End(t.Context(), w.repo, w.door(backend()), backend(), "s1", EndSpec{Once: once})
	if stored, ok := ledger.IsRepeated(err); !ok || string(stored) != "ended" {
		t.Errorf("repeated End: %q, %v; want the stored answer", stored, err)
	}
}

// A record whose branch a ledger has lost can still be ended, by hand and by the reaper.
// lateFrees is a door that somebody else goes through before it tells what a branch
// frees.
type lateFrees struct {
	*testDoor
	before func()
}

var errNoBranch = errors.New("there is no such branch")

func (d *lateFrees) Frees(ctx context.Context, ref string) (int64, error) {
	if before := d.before; before != nil {
		d.before = nil
		before()
	}
	if heads, err := d.Heads(ctx, ref); err != nil || heads[0].SHA == "" {
		return 0, errors.Join(err, errNoBranch)
	}
	return d.testDoor.Frees(ctx, ref)
}

func TestEndOfWhatEndsMeanwhile(t *testing.T) {
	for _, spec := range []EndSpec{{}, {DryRun: true}} {
		w, _ := newMain(t, testLimits)
		begun(t, w, CreateSpec{ID: "s1"})
		door := &lateFrees{w.door(backend()), func() { ended(t, w, "s1", EndSpec{}) }}
		e, err := w.k.End(t.Context(), w.repo, door, backend(), "s1", spec)
		if err != nil || e.BytesFreed != 0 || e.Session.State != Ended {
			t.Errorf("End (dry %t) of a session that ends meanwhile = %+v, %v; want 0 bytes of an ended session", spec.DryRun, e, err)
		}
	}
}

func TestEndWithoutABranch(t *testing.T) {
	w, _ := newMain(t, testLimits)
	for _, id := range []string{"hand", "reaper"} {
		s := begun(t, w, CreateSpec{ID: id, TTL: time.Minute})
		lose := ledger.Batch{Space: ledger.RepoSpace(w.repo.ID), Deletes: []string{testRefKey(s.Ref)}}
		if _, err := w.ledger.Apply(t.Context(), lose); err != nil {
			t.Fatalf("lose branch: %v", err)
		}
	}
	ended(t, w, "hand", EndSpec{DryRun: true})
	if got := seen(t, w, "hand"); got.State != Active {
		t.Errorf("dry run left the session %s", got.State)
	}
	ended(t, w, "hand", EndSpec{})
	w.clock.advance(time.Minute)
	reaped(t, w)
	for _, id := range []string{"hand", "reaper"} {
		if got := seen(t, w, id); got.State != Ended {
			t.Errorf("session %s is %s, want ended", id, got.State)
		}
	}
}
