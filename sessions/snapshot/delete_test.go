package snapshot

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

func TestD09_DeleteInUse(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	one := w.save(t, "s", "a")
	if err := errors.Join(w.child(t.Context(), one.Commit, "c1", true), w.child(t.Context(), one.Commit, "c2", true)); err != nil {
		t.Fatalf("start children: %v", err)
	}
	w.users.pin(one.Commit, true)
	var used *InUseError
	if _, err := w.delete(one.Commit); !errors.As(err, &used) || !slices.Equal(used.Holders, []string{"c1", "c2", pinnedHolder}) {
		t.Fatalf("Delete in use: %v, want its holders", err)
	}
	w.users.pin(one.Commit, false)
	if err := errors.Join(w.child(t.Context(), one.Commit, "c1", false), w.child(t.Context(), one.Commit, "c2", false)); err != nil {
		t.Fatalf("end children: %v", err)
	}
	if d, err := w.delete(one.Commit); err != nil || d.Snapshot.State != Deleted {
		t.Errorf("Delete after the children: %v", err)
	}
	w.sound(t)
}

// A child that is made at the moment of a deletion wins, or is refused.
func TestAChildAtTheMomentOfADeletion(t *testing.T) {
	for _, childFirst := range []bool{true, false} {
		w := newWorld(t, Limits{})
		w.session("s", OID{})
		one := w.save(t, "s", "a")
		ready := ReadyCheck(one.Commit)
		var made error
		done := false
		w.ledger.beforeApply(func(b ledger.Batch) error {
			if childFirst && !done && slices.Contains(b.Deletes, readyKey(one.Commit.String())) {
				done = true
				made = w.child(context.Background(), one.Commit, "c", true, ready)
			}
			return nil
		})
		_, err := w.delete(one.Commit)
		if !childFirst {
			made = w.child(t.Context(), one.Commit, "c", true, ready)
		}
		if deleted := err == nil; deleted == (made == nil) || childFirst == deleted {
			t.Errorf("child first %v: deleting gave %v, making the child %v; want one of them refused", childFirst, err, made)
		}
		w.sound(t)
	}
}

func TestDR23_D13_WhoMayDelete(t *testing.T) {
	other := Actor{Org: "acme", Subject: "other", KeyID: "k1"}
	bound := Actor{Org: "acme", Subject: "backend", KeyID: "k1", Session: "s2"}
	for _, tc := range []struct {
		name  string
		by    Actor
		admin bool
		owner bool
		want  error
	}{
		{"its creator", backend(), false, false, nil},
		{"an admin", other, true, false, nil},
		{"who created its session", other, false, true, nil},
		{"somebody else", other, false, false, ErrNotCreator},
		{"a token of another session", bound, false, false, errDenied},
		{"a token of another session, as an admin", bound, true, false, errDenied},
	} {
		w := newWorld(t, Limits{})
		w.session("s", OID{})
		one := w.save(t, "s", "a")
		w.users.sessions["s"].Mine = tc.owner
		_, err := w.k.Delete(t.Context(), w.as(tc.by), one.Commit, false, tc.admin, nil)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	one := w.save(t, "s", "a")
	blind := w.as(backend())
	blind.canRead = func(string) bool { return false }
	if _, err := w.k.Delete(t.Context(), blind, one.Commit, false, true, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("who may not read it: %v, want %v", err, ErrNotFound)
	}
	p, _ := w.k.plan(t.Context(), w.as(backend()), &SaveSpec{Session: "s"})
	if _, err := w.k.Delete(t.Context(), w.as(backend()), p.workspace, false, true, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("what is no snapshot: %v, want %v", err, ErrNotFound)
	}
}

func TestD10_DR3_BasesAreTheOperators(t *testing.T) {
	w := newWorld(t, Limits{KeepLast: 1})
	w.session("s", OID{})
	base := w.saveAs(t, snap{SaveSpec: SaveSpec{Session: "s", IdleTimeout: ptr(time.Minute), TTLUnused: time.Minute}, chunks: []string{"a"}})
	repo := w.as(backend())
	if err := w.k.SetBase(t.Context(), repo, "ubuntu-24.04", base.Commit); err != nil {
		t.Fatalf("SetBase: %v", err)
	}
	if err := w.k.SetBase(t.Context(), repo, "ubuntu-24.04", base.Commit); err != nil {
		t.Errorf("SetBase again: %v", err)
	}
	if got := w.got(t, base.Commit); got.Base != "ubuntu-24.04" || !got.EndsAt.IsZero() || w.head(t, BasePrefix+"ubuntu-24.04") != base.Commit {
		t.Errorf("base: %+v", got)
	}
	if _, err := w.delete(base.Commit); !errors.Is(err, ErrBase) {
		t.Errorf("Delete of a base: %v, want %v", err, ErrBase)
	}
	next := w.save(t, "s", "b")
	w.end("s")
	w.clock.advance(24 * time.Hour)
	w.reaped(t)
	if w.gone(t, base.Commit) {
		t.Fatal("a lease has deleted a base")
	}
	if err := w.k.SetBase(t.Context(), repo, "ubuntu-24.04", next.Commit); err != nil {
		t.Fatalf("SetBase to another: %v", err)
	}
	w.sound(t)
	w.clock.advance(time.Minute)
	w.reaped(t)
	if !w.gone(t, base.Commit) || w.gone(t, next.Commit) {
		t.Error("one that is a base no more stays, or its successor does not")
	}
	if err := w.k.SetBase(t.Context(), repo, "other", next.Commit); !errors.Is(err, ErrInvalid) {
		t.Errorf("a second name: %v, want %v", err, ErrInvalid)
	}
	if err := w.k.SetBase(t.Context(), repo, "gone", base.Commit); !errors.As(err, new(*StateError)) {
		t.Errorf("a deleted one: %v, want a StateError", err)
	}
	for _, name := range []string{"", ".x", "a..b", "a/b", "a.lock", "-a", "é"} {
		if err := w.k.SetBase(t.Context(), repo, name, next.Commit); !errors.Is(err, ErrInvalid) {
			t.Errorf("base %q: %v, want %v", name, err, ErrInvalid)
		}
	}
	if err := w.k.SetBase(t.Context(), repo, "ubuntu-24.04", OID{}); err != nil {
		t.Fatalf("take the name away: %v", err)
	}
	if _, err := w.delete(next.Commit); err != nil {
		t.Errorf("Delete of what was a base: %v", err)
	}
	if keys := w.keys(t, baseKeys); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
	w.sound(t)
}

func TestRefsOfSnapshotsAreNotMovedByHand(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	one := w.save(t, "s", "a")
	for _, tc := range []struct {
		c    Change
		want error
	}{
		{Change{Ref: RefPrefix + "s", Old: one.Commit}, ErrByHand},
		{Change{Ref: RefPrefix + "other", New: one.Commit}, ErrByHand},
		{Change{Ref: "refs/namespaces/state/refs/snapshots", New: one.Commit}, ErrByHand},
		{Change{Ref: BasePrefix + "b", New: one.Commit}, ErrBase},
		{Change{Ref: RefPrefix + "s", Old: one.Commit, New: one.Commit}, nil}, // it only demands its value
		{Change{Ref: "refs/heads/main", New: one.Commit}, nil},
	} {
		err := w.as(backend()).Move(t.Context(), Move{Changes: []Change{tc.c}, Intent: "somebody's"})
		if !errors.Is(err, tc.want) {
			t.Errorf("move %s from %s to %s: %v, want %v", tc.c.Ref, tc.c.Old, tc.c.New, err, tc.want)
		}
	}
}

func TestDR7_DeletingTellsWhatItFrees(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	first := w.save(t, "s", "shared", "old-one")
	second := w.save(t, "s", "shared", "new")
	if second.New != 3 {
		t.Fatalf("the second save adds %d bytes, want 3", second.New)
	}
	dry, err := w.k.Delete(t.Context(), w.as(backend()), first.Commit, true, true, nil)
	if err != nil || dry.Freed != int64(len("old-one")) || dry.Snapshot.State != Ready {
		t.Errorf("dry run: %+v, %v; want 7 bytes and nothing done", dry, err)
	}
	w.sound(t)
	d, err := w.delete(first.Commit)
	if err != nil || d.Freed != dry.Freed {
		t.Errorf("Delete frees %d, %v; want %d", d.Freed, err, dry.Freed)
	}
	w.sound(t)
	if bytes, _, err := w.k.reads(w.repo).counters(t.Context()); err != nil || bytes != int64(len("shared")+len("new")) {
		t.Errorf("charged with %d, %v; want what is left, 9", bytes, err)
	}
	if d, err := w.delete(second.Commit); err != nil || d.Freed != int64(len("shared")+len("new")) {
		t.Errorf("Delete of the last frees %d, %v; want all", d.Freed, err)
	}
	if keys := w.keys(t, bytesKey); len(keys) != 1 {
		t.Errorf("counter: %q", keys)
	}
	w.sound(t)
}

func TestDeletingIsRepeatable(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	one := w.save(t, "s", "a")
	once := &ledger.Once[Deletion]{Key: "k", Answer: func(d Deletion) ([]byte, error) { return []byte(d.Snapshot.State), nil }}
	if _, err := w.k.Delete(t.Context(), w.as(backend()), one.Commit, false, false, once); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	_, err := w.k.Delete(t.Context(), w.as(backend()), one.Commit, false, false, once)
	if answer, ok := ledger.IsRepeated(err); !ok || string(answer) != string(Deleted) {
		t.Errorf("Delete again: %v, want the stored answer", err)
	}
}
