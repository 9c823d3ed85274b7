package sessions

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// boxOf is a sandbox of a session with a token of an epoch.
func boxOf(session string, epoch uint64) Actor {
	by := backend()
	by.Session, by.TokenID, by.Epoch = session, "family.more", &epoch
	return by
}

// takesAway is an intent of another room that only takes something away.
type takesAway struct{}

func (takesAway) AnyState() bool { return true }

// A save moves the snapshot ref as a push moves the branch: the session's fence holds.
func TestA16_FenceOfTheSnapshotRef(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "s1", Branch: "work/of-s1", Holder: "old", LeaseTTL: time.Hour}) // the branch has a name of its own
	begun(t, w, CreateSpec{ID: "s2"})
	ref := snapshotPrefix + "s1"
	save := func(by Actor, content string, intent any) error {
		old := w.head(t, ref)
		to := w.commit(old, content)
		if content == "" {
			to = ""
		}
		return w.door(by).Move(t.Context(), Move{Changes: []Change{{Ref: ref, Old: old, New: to}}, Intent: intent})
	}
	if err := save(boxOf("s1", 1), "first", nil); err != nil {
		t.Fatalf("save of its own: %v", err)
	}
	if err := save(boxOf("s2", 1), "x", nil); !errors.Is(err, ErrForeignSession) {
		t.Errorf("save for another session: %v, want %v", err, ErrForeignSession)
	}
	if _, err := w.k.Lease(t.Context(), w.repo, w.door(backend()), backend(), "s1", LeaseSpec{Action: Takeover, Holder: "new"}); err != nil {
		t.Fatalf("take over: %v", err)
	}
	var stale *StaleEpochError
	if err := save(boxOf("s1", 1), "late", nil); !errors.As(err, &stale) || stale.Have != 1 || stale.Session != 2 {
		t.Errorf("save of the old writer: %v, want a StaleEpochError", err)
	}
	if err := save(boxOf("s1", 2), "second", nil); err != nil {
		t.Errorf("save of the new writer: %v", err)
	}
	// A takeover while the save is on its way fences it off in the batch.
	happened := during(w, testRefKey(ref), func() {
		if _, err := w.k.Lease(t.Context(), w.repo, w.door(backend()), backend(), "s1", LeaseSpec{Action: Takeover, Holder: "third"}); err != nil {
			t.Errorf("take over: %v", err)
		}
	})
	if err := save(boxOf("s1", 2), "on its way", nil); !errors.As(err, &stale) || !happened() {
		t.Errorf("save that is taken over on its way: %v", err)
	}
	w.ledger.beforeApply(nil)
	inState(t, w, "s1", ViewOnly)
	var state *StateError
	if err := save(backend(), "view only", nil); !errors.As(err, &state) || state.State != ViewOnly {
		t.Errorf("save in a view-only session: %v", err)
	}
	if err := save(boxOf("s1", 2), "", takesAway{}); !errors.As(err, &stale) {
		t.Errorf("an old writer takes something away: %v", err)
	}
	if err := save(backend(), "", takesAway{}); err != nil {
		t.Errorf("taking away in a view-only session: %v", err)
	}
	if got := seen(t, w, "s1"); got.State != ViewOnly {
		t.Errorf("deleting its snapshot ref made the session %s", got.State)
	}
	inState(t, w, "s1", Active)
	if err := save(boxOf("s1", 3), "again", nil); err != nil {
		t.Fatalf("save: %v", err)
	}
	ended(t, w, "s1", EndSpec{Holder: "third"})
	if w.head(t, ref) == "" {
		t.Error("the end of the session took its snapshots along")
	}
	if err := save(boxOf("s1", 3), "after the end", nil); !errors.Is(err, ErrTokenDead) {
		t.Errorf("save after the end: %v, want %v", err, ErrTokenDead)
	}
}

// stateOf is a snapshot that stands in the ledger as its room has it.
func stateOf(t testing.TB, w *world, session, workspace string) *SnapshotState {
	t.Helper()
	key := "snapshot-ready/" + workspace
	b := ledger.Batch{Space: ledger.RepoSpace(w.repo.ID), Sets: []ledger.Set{{Key: key, Value: []byte("ready")}}}
	if _, err := w.ledger.Apply(t.Context(), b); err != nil {
		t.Fatalf("Apply: %v", err)
	}
	return &SnapshotState{SHA: "5a" + workspace[2:], Workspace: workspace, Session: session, Ready: ledger.Equal(key, []byte("ready"))}
}

// use is how a snapshot is used.
func use(t testing.TB, w *world, sha string) SnapshotUse {
	t.Helper()
	all, err := w.k.SnapshotUses(t.Context(), w.repo, sha)
	if err != nil {
		t.Fatalf("SnapshotUses: %v", err)
	}
	return all[0]
}

func TestD03_CreateFromASnapshot(t *testing.T) {
	w, sha := newMain(t, testLimits)
	p := begun(t, w, CreateSpec{ID: "p"})
	state := stateOf(t, w, "p", sha)
	if _, err := w.write(t, backend(), p.Ref, "later work"); err != nil {
		t.Fatalf("write: %v", err)
	}
	before := use(t, w, state.SHA)
	c := begun(t, w, CreateSpec{ID: "c", FromSnapshot: state})
	if c.HeadSHA != sha || c.FromSnapshot != state.SHA || c.ParentID != "p" {
		t.Errorf("child begins at %s of %s of %s; want the workspace %s of the snapshot", c.HeadSHA, c.FromSnapshot, c.ParentID, sha)
	}
	if got := seen(t, w, "c"); got.FromSnapshot != state.SHA {
		t.Errorf("Get tells it is of %q", got.FromSnapshot)
	}
	u := use(t, w, state.SHA)
	if !slices.Equal(u.Sessions, []string{"c"}) || !u.Started.Equal(w.clock.Now()) || !u.Freed.IsZero() {
		t.Errorf("the snapshot's use: %+v", u)
	}
	b := ledger.Batch{Space: ledger.RepoSpace(w.repo.ID), Checks: before.Nobody, Sets: []ledger.Set{{Key: "x"}}}
	if _, err := w.ledger.Apply(t.Context(), b); !errors.As(err, new(*ledger.CheckError)) {
		t.Errorf("what was demanded before the child: %v, want it to fail", err)
	}
	ended(t, w, "p", EndSpec{}) // the snapshot is in use, not the session it is of
	w.clock.advance(time.Minute)
	ended(t, w, "c", EndSpec{})
	u = use(t, w, state.SHA)
	if len(u.Sessions) != 0 || !u.Freed.Equal(w.clock.Now()) {
		t.Errorf("after the child: %+v", u)
	}
	if d := begun(t, w, CreateSpec{ID: "d", FromSnapshot: state}); d.ParentID != "p" || d.HeadSHA != sha {
		t.Errorf("from a snapshot that outlives its session: %+v", d)
	}
	ended(t, w, "d", EndSpec{})
	for _, spec := range []CreateSpec{{FromSnapshot: state, FromSession: "p"}, {FromSnapshot: state, BaseRef: "HEAD"}} {
		if _, err := w.k.Create(t.Context(), w.repo, w.door(backend()), backend(), spec); !errors.Is(err, ErrInvalid) {
			t.Errorf("from two: %v, want %v", err, ErrInvalid)
		}
	}
	gone := ledger.Batch{Space: ledger.RepoSpace(w.repo.ID), Deletes: []string{state.Ready.Key}}
	if _, err := w.ledger.Apply(t.Context(), gone); err != nil {
		t.Fatalf("Apply: %v", err)
	}
	if _, err := w.k.Create(t.Context(), w.repo, w.door(backend()), backend(), CreateSpec{FromSnapshot: state}); !errors.Is(err, ErrSnapshotGone) {
		t.Errorf("from one that is being deleted: %v, want %v", err, ErrSnapshotGone)
	}
	if keys := w.keys(t, fromKeys); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

// A snapshot that is deleted at the moment of the creation refuses it.
func TestSnapshotGoesAtTheMomentOfACreation(t *testing.T) {
	w, sha := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "p"})
	state := stateOf(t, w, "p", sha)
	happened := during(w, startedKey(state.SHA), func() {
		b := ledger.Batch{Space: ledger.RepoSpace(w.repo.ID), Deletes: []string{state.Ready.Key}}
		if _, err := w.ledger.Ledger.Apply(t.Context(), b); err != nil {
			t.Errorf("Apply: %v", err)
		}
	})
	_, err := w.k.Create(t.Context(), w.repo, w.door(backend()), backend(), CreateSpec{ID: "c", FromSnapshot: state})
	if !errors.Is(err, ErrSnapshotGone) || !happened() {
		t.Errorf("Create = %v, want %v", err, ErrSnapshotGone)
	}
	if u := use(t, w, state.SHA); len(u.Sessions) != 0 {
		t.Errorf("it is used by %q", u.Sessions)
	}
}

func TestD12_ForkFromASnapshot(t *testing.T) {
	w, sha := newMain(t, testLimits)
	p := begun(t, w, CreateSpec{ID: "p"})
	begun(t, w, CreateSpec{ID: "other"})
	state := stateOf(t, w, "p", sha)
	if _, err := w.write(t, backend(), p.Ref, "later work"); err != nil {
		t.Fatalf("write: %v", err)
	}
	f, err := w.k.Fork(t.Context(), w.repo, w.door(backend()), backend(), "p", ForkSpec{N: 3, FromSnapshot: state})
	if err != nil {
		t.Fatalf("Fork: %v", err)
	}
	for _, c := range f.Children {
		if c.HeadSHA != sha || c.FromSnapshot != state.SHA || c.ParentID != "p" {
			t.Errorf("child %+v, want it at the snapshot's workspace", c)
		}
	}
	if u := use(t, w, state.SHA); !slices.Equal(u.Sessions, f.Group.Children) || f.Group.StateSHA != sha {
		t.Errorf("the snapshot is used by %q, the group's state is %s", u.Sessions, f.Group.StateSHA)
	}
	if _, err := w.k.Close(t.Context(), w.repo, w.door(backend()), backend(), f.Group.ID, CloseSpec{}); err != nil {
		t.Fatalf("CloseGroup: %v", err)
	}
	if u := use(t, w, state.SHA); len(u.Sessions) != 0 || u.Freed.IsZero() {
		t.Errorf("after the group: %+v", u)
	}
	if _, err := w.k.Fork(t.Context(), w.repo, w.door(backend()), backend(), "other", ForkSpec{N: 1, FromSnapshot: state}); !errors.Is(err, ErrInvalid) {
		t.Errorf("fork of another session: %v, want %v", err, ErrInvalid)
	}
}

func TestCL24_ViewOnlyAndBack(t *testing.T) {
	w, _ := newMain(t, testLimits)
	s := begun(t, w, CreateSpec{ID: "s1"})
	inState(t, w, "s1", Paused)
	usable := func(is bool, why string) {
		if err := w.k.SetUsable(t.Context(), w.repo, "s1", is, why); err != nil {
			t.Fatalf("SetUsable(%v): %v", is, err)
		}
	}
	events := len(w.log(t))
	usable(true, "") // nothing to say
	usable(false, "chunk 7 is damaged")
	usable(false, "chunk 8 is damaged")
	if got := seen(t, w, "s1"); got.State != ViewOnly {
		t.Fatalf("session is %s, want view_only", got.State)
	}
	var refused *StateError
	if _, err := w.write(t, backend(), s.Ref, "work"); !errors.As(err, &refused) || refused.State != ViewOnly {
		t.Errorf("write: %v, want it refused", err)
	}
	log := w.log(t)
	if len(log) != events+1 || log[events].Type != eventChanged || log[events].Session != "s1" {
		t.Fatalf("%d events, the last %+v; want one session.changed", len(log)-events, log[len(log)-1])
	}
	usable(true, "")
	if got := seen(t, w, "s1"); got.State != Paused {
		t.Errorf("session is %s again, want paused", got.State)
	}
	inState(t, w, "s1", ViewOnly) // for a reason of its own
	usable(true, "")
	if got := seen(t, w, "s1"); got.State != ViewOnly {
		t.Errorf("what was view-only for another reason is %s", got.State)
	}
	ended(t, w, "s1", EndSpec{})
	usable(false, "")
	if got := seen(t, w, "s1"); got.State != Ended {
		t.Errorf("an ended session is %s", got.State)
	}
	if err := w.k.SetUsable(t.Context(), w.repo, "nobody", false, ""); err != nil {
		t.Errorf("SetUsable of none: %v", err)
	}
}

func TestSnapshotOwner(t *testing.T) {
	w, _ := newMain(t, testLimits)
	s := begun(t, w, CreateSpec{ID: "s1", Labels: map[string]string{"arch": "amd64"}, CaptureKey: "PEM"})
	owner := func(by Actor) SnapshotOwner {
		o, ok, err := w.k.SnapshotOwner(t.Context(), w.repo, w.door(by), by, "s1")
		if err != nil || !ok {
			t.Fatalf("SnapshotOwner = %v, %v", ok, err)
		}
		return o
	}
	if o := owner(backend()); !o.Mine || o.Fenced != nil || o.Closed != nil || o.HeadSHA != s.HeadSHA || o.Labels["arch"] != "amd64" || o.CaptureKey != "PEM" {
		t.Errorf("its creator: %+v", o)
	}
	if o := owner(Actor{Org: "acme", Subject: "other"}); o.Mine || o.Fenced != nil {
		t.Errorf("somebody else: %+v", o)
	}
	if o := owner(boxOf("s2", 1)); !errors.Is(o.Fenced, ErrForeignSession) {
		t.Errorf("a token of another session: %v", o.Fenced)
	}
	if o := owner(boxOf("s1", 7)); !errors.As(o.Fenced, new(*StaleEpochError)) {
		t.Errorf("a token of another epoch: %v", o.Fenced)
	}
	tok, err := w.k.Issue(t.Context(), w.repo, w.door(backend()), backend(), "s1", TokenSpec{})
	if err != nil {
		t.Fatalf("Issue: %v", err)
	}
	box := boxOf("s1", 1)
	box.TokenID = tok.ID
	if o := owner(box); o.Fenced != nil {
		t.Errorf("its own token: %v", o.Fenced)
	}
	if err := w.k.Revoke(t.Context(), w.repo, w.door(backend()), backend(), "s1", tok.ID, nil); err != nil {
		t.Fatalf("Revoke: %v", err)
	}
	if o := owner(box); !errors.Is(o.Fenced, ErrTokenDead) {
		t.Errorf("a revoked token: %v", o.Fenced)
	}
	inState(t, w, "s1", Paused)
	if o := owner(backend()); !errors.As(o.Closed, new(*StateError)) {
		t.Errorf("paused: %v", o.Closed)
	}
	ended(t, w, "s1", EndSpec{})
	if o := owner(boxOf("s1", 1)); !errors.Is(o.Fenced, ErrTokenDead) || o.State != Ended {
		t.Errorf("ended: %v, %s", o.Fenced, o.State)
	}
	if _, ok, err := w.k.SnapshotOwner(t.Context(), w.repo, w.door(backend()), backend(), "nobody"); ok || err != nil {
		t.Errorf("of none: %v, %v", ok, err)
	}
}
