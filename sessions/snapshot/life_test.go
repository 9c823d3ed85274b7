package snapshot

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// endsOn checks that a snapshot ends at its time: not a step earlier, and then.
func endsOn(t testing.TB, w *world, id OID, at time.Time) {
	t.Helper()
	if got := w.got(t, id); !got.EndsAt.Equal(at) {
		t.Errorf("snapshot is told to end at %s, want %s", got.EndsAt, at)
	}
	w.clock.advance(at.Sub(w.clock.Now()) - time.Microsecond)
	if next := w.reaped(t); next.IsZero() || next.After(at) {
		t.Errorf("before the end the reaper wants to look again at %s, want at %s or before", next, at)
	}
	if got := w.got(t, id); got.State != Ready {
		t.Fatalf("snapshot is %s before %s", got.State, at)
	}
	w.clock.advance(time.Microsecond)
	w.reaped(t)
	if got := w.got(t, id); got.State != Deleted {
		t.Fatalf("snapshot is %s at %s, want it deleted", got.State, at)
	}
	w.sound(t)
}

func idle(session string, d time.Duration) SaveSpec {
	return SaveSpec{Session: session, IdleTimeout: &d}
}

func TestDR24_StatesWithTimesAndReason(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	repo := w.as(backend())
	p, err := w.k.plan(t.Context(), repo, &SaveSpec{Session: "s"})
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	if err := w.k.capture(t.Context(), repo, p); err != nil {
		t.Fatalf("capture: %v", err)
	}
	state := func() Snapshot {
		all, _, err := w.k.List(t.Context(), repo, "s", 10, "")
		if err != nil || len(all) != 1 {
			t.Fatalf("List = %d, %v; want one", len(all), err)
		}
		return all[0]
	}
	if s := state(); s.State != Capturing || !s.Commit.IsZero() || s.Upload != p.id || s.EndsAt.IsZero() {
		t.Errorf("while it is captured: %+v", s)
	}
	w.k.refuse(t.Context(), repo, p, ErrMismatch)
	if s := state(); s.State != Failed || s.Reason != ErrMismatch.Error() || s.Usable {
		t.Errorf("after it failed: %+v", s)
	}
	if st := w.standing(t, "s"); !st.Last.IsZero() || !st.Usable || st.Stale {
		t.Errorf("a save that failed changes the session's standing: %+v", st)
	}
	s := w.save(t, "s", "one")
	if s.State != Ready || s.VerifiedAt.IsZero() || !s.Usable || s.Session != "s" || s.Stored != 3 || s.New != 3 || s.Kind != KindMemory {
		t.Errorf("ready: %+v", s)
	}
	if head := w.head(t, RefPrefix+"s"); head != s.Commit {
		t.Errorf("ref is at %s, want %s", head, s.Commit)
	}
	unpinned := errors.New("the disk is gone")
	w.ledger.beforeApply(func(b ledger.Batch) error {
		if slices.Contains(b.Deletes, testPinKey(pinID(s.Commit))) {
			return unpinned
		}
		return nil
	})
	if d, err := w.delete(s.Commit); err != nil || d.Snapshot.State != Deleting {
		t.Errorf("Delete = %s, %v; want it deleting, for the reaper to end", d.Snapshot.State, err)
	}
	w.ledger.beforeApply(nil)
	if got := w.got(t, s.Commit); got.State != Deleting {
		t.Errorf("half deleted it is %s, want deleting", got.State)
	}
	if _, err := w.delete(s.Commit); !errors.As(err, new(*StateError)) {
		t.Errorf("deleting it again: %v, want a StateError", err)
	}
	w.clock.advance(w.k.Limits.ReapEvery)
	w.reaped(t)
	if got := w.got(t, s.Commit); got.State != Deleted || got.Usable {
		t.Errorf("after the reaper it is %s, want deleted", got.State)
	}
	w.sound(t)
	var events []string
	for _, e := range w.log(t) {
		events = append(events, e.Type)
	}
	if want := []string{eventFailed, eventReady, eventDeleted}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
	w.clock.advance(w.k.Limits.Memory)
	w.reaped(t)
	w.reaped(t)
	for _, prefix := range []string{recordKeys, ofKeys, keptKeys, launchKeys, readyKeys, childKeys, dueKeys, hotKeys, "session-from", "pin/"} {
		if keys := w.keys(t, prefix); len(keys) > 0 {
			t.Errorf("left when all is forgotten: %q", keys)
		}
	}
}

func TestD08_DR19_IdleTimeout(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	first := w.saveAs(t, snap{SaveSpec: idle("s", 1_800*time.Second), chunks: []string{"a"}})
	w.save(t, "s", "b") // which is the last now
	w.clock.advance(1_700 * time.Second)
	if err := w.child(t.Context(), first.Commit, "c", true); err != nil {
		t.Fatalf("start a child: %v", err)
	}
	started := w.clock.Now()
	w.clock.advance(1_700 * time.Second)
	if got := w.got(t, first.Commit); !got.EndsAt.IsZero() || !slices.Equal(got.Children, []string{"c"}) || !got.UsedAt.Equal(started) {
		t.Errorf("in use: ends at %s, children %q, used at %s", got.EndsAt, got.Children, got.UsedAt)
	}
	w.reaped(t)
	if err := w.child(t.Context(), first.Commit, "c", false); err != nil {
		t.Fatalf("end the child: %v", err)
	}
	w.reaped(t)
	endsOn(t, w, first.Commit, started.Add(1_800*time.Second))
}

func TestD08_DR20_TTLCountsOnlyWhileUnused(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	first := w.saveAs(t, snap{SaveSpec: SaveSpec{Session: "s", TTLUnused: time.Minute}, chunks: []string{"a"}})
	forever := w.save(t, "s", "b")
	w.save(t, "s", "c")
	if err := w.child(t.Context(), first.Commit, "c", true); err != nil {
		t.Fatalf("start a child: %v", err)
	}
	for range 5 {
		w.clock.advance(time.Minute)
		w.reaped(t)
	}
	if w.gone(t, first.Commit) {
		t.Fatal("deleted while a child lives")
	}
	if err := w.child(t.Context(), first.Commit, "c", false); err != nil {
		t.Fatalf("end the child: %v", err)
	}
	endsOn(t, w, first.Commit, w.clock.Now().Add(time.Minute))
	w.clock.advance(100 * 24 * time.Hour)
	w.reaped(t)
	if w.gone(t, forever.Commit) {
		t.Error("one without times is gone")
	}
}

func TestPN14_LeasesRunAndTheEndIsVisible(t *testing.T) {
	w := newWorld(t, Limits{})
	owner := w.session("s", OID{})
	first := w.saveAs(t, snap{SaveSpec: idle("s", 10*time.Minute), chunks: []string{"a"}})
	saved := w.clock.Now()
	w.save(t, "s", "b")
	owner.Closed = &StateError{} // paused, say: nothing is saved any more
	if _, err := w.trySave(t, snap{SaveSpec: SaveSpec{Session: "s"}}); err == nil {
		t.Error("saved in a state that does not let it")
	}
	endsOn(t, w, first.Commit, saved.Add(10*time.Minute))
}

// The last state of a live session stays whatever its times say; when the session has
// ended it counts as unused.
func TestLastOfALiveSessionIsNeverReaped(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	only := w.saveAs(t, snap{SaveSpec: SaveSpec{Session: "s", IdleTimeout: ptr(time.Second), TTLUnused: time.Second}, chunks: []string{"a"}})
	w.clock.advance(time.Hour)
	w.reaped(t)
	if got := w.got(t, only.Commit); got.State != Ready || !got.EndsAt.IsZero() {
		t.Fatalf("the last of a live session is %s and ends at %s", got.State, got.EndsAt)
	}
	w.end("s")
	ended := w.clock.Now()
	if got := w.got(t, only.Commit); !got.EndsAt.Equal(ended.Add(time.Second)) {
		t.Errorf("after its session it ends at %s, want %s", got.EndsAt, ended.Add(time.Second))
	}
	w.clock.advance(time.Minute) // when the reaper has patience no longer
	w.reaped(t)
	if !w.gone(t, only.Commit) || !w.head(t, RefPrefix+"s").IsZero() {
		t.Error("after the end of its session it stays")
	}
	if keys := w.keys(t, standingKeys); len(keys) > 0 {
		t.Errorf("left of a session that is no more: %q", keys)
	}
	w.sound(t)
}

func TestC04_KeepLast(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	save := func(content string, keep *int) Snapshot {
		return w.saveAs(t, snap{SaveSpec: SaveSpec{Session: "s", KeepLast: keep}, chunks: []string{"shared", content}})
	}
	first, second := save("1", nil), save("2", nil)
	third := save("3", ptr(1))
	if !w.gone(t, first.Commit) || !w.gone(t, second.Commit) || w.gone(t, third.Commit) {
		t.Fatal("of three with keep_last 1 only the last stays")
	}
	w.sound(t)
	w.users.pin(third.Commit, true)
	fourth := save("4", nil) // as before: one
	if w.gone(t, third.Commit) {
		t.Error("one that others have pinned is gone")
	}
	w.clock.advance(w.k.Limits.ReapEvery)
	w.reaped(t)
	w.users.pin(third.Commit, false)
	if err := w.child(t.Context(), fourth.Commit, "c", true); err != nil {
		t.Fatalf("start a child: %v", err)
	}
	fifth := save("5", nil)
	if !w.gone(t, third.Commit) || w.gone(t, fourth.Commit) || w.gone(t, fifth.Commit) {
		t.Error("want the one gone that is not pinned any more, and the one in use still there")
	}
	if err := w.child(t.Context(), fourth.Commit, "c", false); err != nil {
		t.Fatalf("end the child: %v", err)
	}
	w.clock.advance(2 * usePatience)
	w.reaped(t)
	if !w.gone(t, fourth.Commit) || w.gone(t, fifth.Commit) {
		t.Error("the reaper does not let it go once nobody uses it")
	}
	sixth := save("6", ptr(0))
	seventh := save("7", nil)
	if w.gone(t, fifth.Commit) || w.gone(t, sixth.Commit) || w.gone(t, seventh.Commit) {
		t.Error("keep_last 0 keeps all")
	}
	w.sound(t)
}

func TestC05_CL15_OverTheCap(t *testing.T) {
	w := newWorld(t, Limits{Cap: 100})
	w.session("s", OID{})
	good := w.save(t, "s", "small")
	_, err := w.trySave(t, snap{SaveSpec: SaveSpec{Session: "s"}, chunks: []string{"large"}, stored: 101})
	var over *OverCapError
	if !errors.As(err, &over) || over.Cap != 100 || over.Size != 101 {
		t.Fatalf("save over the cap: %v", err)
	}
	if st := w.standing(t, "s"); !st.Stale || !st.Usable || st.Cap != 100 || st.Bytes != 101 || st.Last != good.Commit || st.At.IsZero() {
		t.Errorf("standing %+v, want it stale with cap and size", st)
	}
	if head := w.head(t, RefPrefix+"s"); head != good.Commit {
		t.Errorf("ref is at %s, want %s", head, good.Commit)
	}
	w.sound(t)
	w.clock.advance(time.Second)
	next := w.save(t, "s", "fits")
	if st := w.standing(t, "s"); st.Stale || st.Cap != 0 || st.Last != next.Commit {
		t.Errorf("after a save that fits: %+v", st)
	}
}

func TestQuotaIsHeldInTheBatch(t *testing.T) {
	w := newWorld(t, Limits{Quota: 10})
	w.session("s", OID{})
	first := w.save(t, "s", "12345678")
	_, err := w.trySave(t, snap{SaveSpec: SaveSpec{Session: "s"}, chunks: []string{"abc"}})
	var full *FullError
	if !errors.As(err, &full) || full.Quota != 10 || full.Use != 11 {
		t.Errorf("save over the quota: %v", err)
	}
	w.sound(t)
	if _, err := w.delete(first.Commit); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	w.save(t, "s", "abc")
	w.sound(t)
	w = newWorld(t, Limits{MaxCount: 1})
	w.session("s", OID{})
	w.save(t, "s", "a")
	if _, err := w.trySave(t, snap{SaveSpec: SaveSpec{Session: "s"}, chunks: []string{"b"}}); !errors.As(err, &full) || full.Quota != 1 {
		t.Errorf("save over the number: %v", err)
	}
}

func TestD02_DR09_NotQuietLeavesNothing(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	repo := w.as(backend())
	p, err := w.k.plan(t.Context(), repo, &SaveSpec{Session: "s"})
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	if err := w.k.capture(t.Context(), repo, p); err != nil {
		t.Fatalf("capture: %v", err)
	}
	if err := w.k.refuse(t.Context(), repo, p, ErrNotQuiet); !errors.Is(err, ErrNotQuiet) {
		t.Errorf("refuse = %v", err)
	}
	if all, _, err := w.k.List(t.Context(), repo, "s", 10, ""); err != nil || len(all) != 0 {
		t.Errorf("List = %+v, %v; want none", all, err)
	}
	if keys := w.keys(t, "snapshot"); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
	_, err = w.k.plan(t.Context(), repo, &SaveSpec{Session: "s", Quiet: &Quiet{Before: "a", After: "b"}})
	if !errors.Is(err, ErrNotQuiet) {
		t.Errorf("plan with hashes that differ: %v", err)
	}
}

func TestCL24_ABrokenLastMakesTheSessionViewOnly(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	good, bad := w.save(t, "s", "a"), w.save(t, "s", "b")
	why := &DamagedError{Commit: bad.Commit, What: "chunk 1", Err: ErrDamaged}
	if err := w.k.broken(t.Context(), w.as(Actor{Org: "acme", Subject: "reader"}), bad.Commit, why); err != error(why) {
		t.Errorf("broken = %v", err)
	}
	if got := w.got(t, bad.Commit); got.State != Failed || got.Usable || got.Reason != why.Error() {
		t.Errorf("broken: %+v", got)
	}
	if st := w.standing(t, "s"); st.Usable || st.Last != bad.Commit || w.users.told["s"] != why.Error() {
		t.Errorf("standing %+v, session told %q", st, w.users.told["s"])
	}
	if _, err := w.k.ready(t.Context(), w.as(backend()), bad.Commit); !errors.Is(err, ErrDamaged) {
		t.Errorf("ready of a broken one: %v", err)
	}
	if _, err := w.k.ready(t.Context(), w.as(backend()), good.Commit); err != nil {
		t.Errorf("ready of the one before: %v", err)
	}
	w.sound(t)
	if _, err := w.delete(bad.Commit); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	if st := w.standing(t, "s"); !st.Usable || st.Last != good.Commit || w.users.told["s"] != "" || w.head(t, RefPrefix+"s") != good.Commit {
		t.Errorf("without the bad one: %+v, told %q", st, w.users.told["s"])
	}
	w.sound(t)
}

// An older one that is broken leaves the session as it is.
func TestABrokenOlderOne(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	old, last := w.save(t, "s", "a"), w.save(t, "s", "b")
	_ = w.k.broken(t.Context(), w.as(backend()), old.Commit, &DamagedError{Commit: old.Commit, What: "list 0", Err: ErrDamaged})
	if st := w.standing(t, "s"); !st.Usable || st.Last != last.Commit || len(w.users.told) > 0 {
		t.Errorf("standing %+v", st)
	}
	if _, err := w.delete(last.Commit); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	if st := w.standing(t, "s"); !st.Usable || !st.Last.IsZero() || !w.head(t, RefPrefix+"s").IsZero() {
		t.Errorf("with only a broken one left: %+v", st)
	}
	w.sound(t)
}

func TestUploadsEnd(t *testing.T) {
	w := newWorld(t, Limits{Uploads: 2})
	w.session("s", OID{})
	repo := w.as(backend())
	var last *planned
	begin := func() error {
		p, err := w.k.plan(t.Context(), repo, &SaveSpec{Session: "s", Name: "n"})
		if err != nil {
			return err
		}
		p.upload, last = true, p
		_, err = repo.OpenStage(t.Context(), p.id)
		return errors.Join(err, w.k.capture(t.Context(), repo, p))
	}
	if err := errors.Join(begin(), begin()); err != nil {
		t.Fatalf("begin two: %v", err)
	}
	kept := last
	if err := begin(); !errors.As(err, new(*FullError)) {
		t.Errorf("a third: %v, want a FullError", err)
	}
	w.clock.advance(23 * time.Hour)
	if err := w.k.extend(t.Context(), repo, kept); err != nil {
		t.Fatalf("extend: %v", err)
	}
	w.clock.advance(2 * time.Hour)
	w.reaped(t)
	w.reaped(t)
	p, u, err := w.k.planAgain(t.Context(), repo, "s", kept.id)
	if err != nil || u.ID != kept.id || p.spec.Name != "n" || !p.upload || !u.ExpiresAt.Equal(w.clock.Now().Add(22*time.Hour)) {
		t.Errorf("the one that was sent to: %+v, %v", u, err)
	}
	if len(w.stages) != 1 || w.stages[kept.id] == nil {
		t.Errorf("%d stages are left", len(w.stages))
	}
	if err := w.k.drop(t.Context(), repo, kept); err != nil {
		t.Fatalf("drop: %v", err)
	}
	if _, _, err := w.k.planAgain(t.Context(), repo, "s", kept.id); !errors.Is(err, ErrUploadNotFound) {
		t.Errorf("planAgain of a dropped one: %v", err)
	}
	if _, err := w.k.publish(t.Context(), repo, kept, w.build(t, repo, kept, snap{chunks: []string{"a"}})); !errors.Is(err, ErrUploadNotFound) {
		t.Errorf("publish of a dropped one: %v", err)
	}
	all, _, err := w.k.List(t.Context(), repo, "s", 10, "")
	if err != nil || len(all) != 1 || all[0].State != Failed {
		t.Errorf("List = %+v, %v; want the one that was given up", all, err)
	}
}
