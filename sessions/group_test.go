package sessions

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// stateThere reports whether a fork's state is still kept.
func (w *world) stateThere(t fataler, group string) bool {
	t.Helper()
	f, err := w.k.Group(context.Background(), w.repo, w.door(backend()), group)
	if err != nil {
		t.Fatalf("Group(%s): %v", group, err)
	}
	pins := w.pins(t)
	if f.Group.PinID == "" && len(pins) == 0 {
		return false
	}
	if !slices.Equal(pins, []string{f.Group.PinID}) {
		t.Fatalf("group %s says its pin is %q; there are %v", group, f.Group.PinID, pins)
	}
	return true
}

func TestD07_StateGoesWithTheLastChild(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, w *world, c Session){
		"ended": func(t *testing.T, w *world, c Session) { w.end(t, c.ID) },
		"branch deleted": func(t *testing.T, w *world, c Session) {
			err := w.door(backend()).Move(t.Context(), Move{Changes: []Change{{Ref: c.Ref, Old: w.head(t, c.Ref)}}})
			if err != nil {
				t.Fatalf("delete %s: %v", c.Ref, err)
			}
		},
		"expired": func(t *testing.T, w *world, c Session) {
			ttl := time.Second
			if _, err := w.k.Patch(t.Context(), w.repo, w.door(backend()), backend(), c.ID, Patch{TTL: &ttl}); err != nil {
				t.Fatalf("Patch: %v", err)
			}
			w.clock.advance(2 * ttl)
			w.reap(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := pebbleWorld(t, testLimits)
			w.session(t, CreateSpec{ID: "p"})
			f := w.fork(t, "p", ForkSpec{N: 3})
			for _, c := range f.Children {
				w.clock.advance(time.Millisecond)
				w.reap(t)
				if !w.stateThere(t, f.Group.ID) {
					t.Fatalf("the state went before %s closed", c.ID)
				}
				end(t, w, c)
			}
			w.reap(t)
			if w.stateThere(t, f.Group.ID) {
				t.Error("the state is there after the last child closed")
			}
		})
	}
}

func TestD08_KeptStateGoesWhenIdle(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "p"})
	idle, never := 10*time.Minute, time.Duration(0)
	f := w.fork(t, "p", ForkSpec{N: 1, KeepState: true, StateIdle: &idle})
	w.clock.advance(time.Hour) // its clock stands while a child is live
	w.reap(t)
	if !w.stateThere(t, f.Group.ID) {
		t.Fatal("the state went while a child was live")
	}
	w.end(t, f.Children[0].ID)
	w.reap(t)
	w.clock.advance(9 * time.Minute)
	w.session(t, CreateSpec{ID: "again", BaseRef: f.Group.StateSHA})
	w.clock.advance(9 * time.Minute)
	w.reap(t)
	if !w.stateThere(t, f.Group.ID) {
		t.Fatal("a child that was started did not restart the clock")
	}
	w.clock.advance(time.Minute)
	w.reap(t)
	if w.stateThere(t, f.Group.ID) {
		t.Fatal("the state is there after its idle time")
	}
	if got := w.keys(t, stateKeys); len(got) != 0 {
		t.Errorf("%v is left of the state", got)
	}

	kept := w.fork(t, "p", ForkSpec{N: 1, KeepState: true, StateIdle: &never})
	w.end(t, kept.Children[0].ID)
	w.clock.advance(90 * 24 * time.Hour)
	w.reap(t)
	if !w.stateThere(t, kept.Group.ID) {
		t.Error("a state without an idle time went")
	}
	if _, err := w.k.Group(t.Context(), w.repo, w.door(backend()), f.Group.ID); !errors.Is(err, ErrGroupNotFound) {
		t.Errorf("Group of one that is forgotten: %v, want ErrGroupNotFound", err)
	}
	for _, list := range []string{groupLiveKeys, groupUsedKeys} {
		if got := w.keys(t, list); len(got) != 1 {
			t.Errorf("%v is left, want what belongs to one group", got)
		}
	}
}

// A state that was about to go when the process died goes with the next look.
func TestStateGoesAfterACrash(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "p"})
	killed := errors.New("killed")
	for at := 1; at <= 3; at++ { // the record, the pin, the record again
		f := w.fork(t, "p", ForkSpec{N: 1})
		w.end(t, f.Children[0].ID)
		n := 0
		w.ledger.beforeApply(func(ledger.Batch) error {
			if n++; n == at {
				return killed
			}
			return nil
		})
		now := w.clock.Now()
		_, err := w.k.groupDue(t.Context(), w.repo, w.door(backend()), f.Group.ID, now)
		wantErr(t, "groupDue", err, killed)
		w.ledger.beforeApply(nil)
		w.reap(t)
		if w.stateThere(t, f.Group.ID) {
			t.Errorf("the state is there after a crash at step %d and the next look", at)
		}
	}
}

func TestPick(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	p := w.session(t, CreateSpec{ID: "p", Holder: "box"})
	f := w.fork(t, "p", ForkSpec{N: 3, KeepState: true})
	short := 5 * time.Minute
	if _, err := w.k.Patch(t.Context(), w.repo, w.door(backend()), backend(), f.Children[2].ID, Patch{TTL: &short}); err != nil {
		t.Fatalf("Patch: %v", err)
	}
	win, err := w.write(t, backend(), f.Children[1].Ref, "win")
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	pick := func(winner string) (Session, error) {
		return w.k.Pick(t.Context(), w.repo, w.door(backend()), backend(), f.Group.ID, winner, nil)
	}
	_, err = pick("p")
	wantErr(t, "Pick of no child", err, ErrNotFound)
	now := w.clock.Now()
	got, err := pick(f.Children[1].ID)
	if err != nil || got.ID != "p" || got.HeadSHA != win || got.Epoch != 1 || got.Holder != "box" {
		t.Fatalf("Pick = %+v, %v, want the parent at %s, its epoch and lease as they were", got, err, win)
	}
	if head := w.head(t, p.Ref); head != win {
		t.Errorf("the parent's branch is at %s, want %s", head, win)
	}
	for i, want := range []time.Time{now.Add(10 * time.Minute), {}, now.Add(short)} {
		if c := w.get(t, f.Children[i].ID); !c.ExpiresAt.Equal(want) {
			t.Errorf("child %d expires at %v, want %v", i, c.ExpiresAt, want)
		}
	}
	if again, err := pick(f.Children[1].ID); err != nil || again.HeadSHA != win {
		t.Errorf("Pick again = %+v, %v, want the same", again, err)
	}
	_, err = pick(f.Children[0].ID)
	wantErr(t, "Pick of another", err, ErrPicked)
	entries := w.log(t)
	if last := entries[len(entries)-1]; last.Type != "ref.updated" || last.Session != "p" || len(last.Changes) != 1 || last.Changes[0].New != win {
		t.Errorf("log entry %+v, want one that moves the parent", last)
	}
	w.clock.advance(11 * time.Minute)
	w.reap(t)
	for i, want := range []State{Ended, Active, Ended} {
		c := w.get(t, f.Children[i].ID)
		if c.State != want || want == Ended && c.EndCause != Closed {
			t.Errorf("child %d is %s (%s) after the losers' time, want %s", i, c.State, c.EndCause, want)
		}
	}
}

func TestPickRefusals(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	p := w.session(t, CreateSpec{ID: "p"})
	f := w.fork(t, "p", ForkSpec{N: 2, Token: &TokenSpec{}})
	child := f.Children[0]
	if _, err := w.write(t, backend(), p.Ref, "elsewhere"); err != nil {
		t.Fatalf("write: %v", err)
	}
	if _, err := w.write(t, backend(), child.Ref, "here"); err != nil {
		t.Fatalf("write: %v", err)
	}
	pick := func(door Door, by Actor, winner string) error {
		_, err := w.k.Pick(t.Context(), w.repo, door, by, f.Group.ID, winner, nil)
		return err
	}
	wantErr(t, "Pick of a child beside the parent", pick(w.door(backend()), backend(), child.ID), errNotForward)
	bound := holderOf(f.Tokens[0])
	wantErr(t, "Pick by the child itself", pick(w.door(bound), bound, child.ID), ErrForeignSession)
	denied := w.door(backend())
	denied.mayWrite = func(ref string) bool { return ref != p.Ref }
	wantErr(t, "Pick without the right to write the parent", pick(denied, backend(), f.Children[1].ID), errDenied)
	w.end(t, f.Children[1].ID)
	var state *StateError
	if err := pick(w.door(backend()), backend(), f.Children[1].ID); !errors.As(err, &state) || state.State != Ended {
		t.Errorf("Pick of an ended child: %v, want its state", err)
	}
	w.close(t, f.Group.ID)
	wantErr(t, "Pick of a closed group", pick(w.door(backend()), backend(), child.ID), ErrPicked)
}

func TestRaceTwoPicks(t *testing.T) {
	for range 10 {
		w := pebbleWorld(t, testLimits)
		p := w.session(t, CreateSpec{ID: "p"})
		f := w.fork(t, "p", ForkSpec{N: 2})
		errs, heads := make([]error, 2), make([]string, 2)
		var wg sync.WaitGroup
		for i, c := range f.Children {
			var err error
			if heads[i], err = w.write(t, backend(), c.Ref, c.ID); err != nil {
				t.Fatalf("write: %v", err)
			}
		}
		for i, c := range f.Children {
			wg.Go(func() {
				_, errs[i] = w.k.Pick(context.Background(), w.repo, w.door(backend()), backend(), f.Group.ID, c.ID, nil)
			})
		}
		wg.Wait()
		won := slices.Index(errs, nil)
		if won < 0 || errs[1-won] == nil || !errors.Is(errs[1-won], ErrPicked) && !errors.Is(errs[1-won], errNotForward) {
			t.Fatalf("two picks: %v, want one winner", errs)
		}
		if head := w.head(t, p.Ref); head != heads[won] {
			t.Fatalf("the parent is at %s, want %s", head, heads[won])
		}
	}
}

func TestClose(t *testing.T) {
	w := pebbleWorld(t, Limits{MaxForkN: 200, MaxLive: 2_000})
	w.session(t, CreateSpec{ID: "p"})
	f := w.fork(t, "p", ForkSpec{N: 130})
	w.lease(t, f.Children[0].ID, "box", Acquire) // a holder does not keep a group open
	w.end(t, f.Children[7].ID)
	stranger := Actor{Org: "acme", Subject: "other", KeyID: "k2"}
	_, err := w.k.Close(t.Context(), w.repo, w.door(stranger), stranger, f.Group.ID, CloseSpec{})
	wantErr(t, "Close by a stranger", err, ErrNotCreator)
	nested := w.fork(t, f.Children[100].ID, ForkSpec{N: 1})
	_, err = w.k.Close(t.Context(), w.repo, w.door(backend()), backend(), f.Group.ID, CloseSpec{})
	var inUse *InUseError
	if !errors.As(err, &inUse) || inUse.ID != f.Children[100].ID || inUse.Holders[0].ID != nested.Children[0].ID {
		t.Fatalf("Close while a child has a child: %v, want who uses it", err)
	}
	if w.get(t, f.Children[0].ID).State != Active {
		t.Fatal("a close that was refused ended a child")
	}
	w.close(t, nested.Group.ID)
	once := &ledger.Once[Closing]{Key: "k", Answer: func(c Closing) ([]byte, error) { return mustJSON(c), nil }}
	admin := CloseSpec{Admin: true, Once: once}
	got, err := w.k.Close(t.Context(), w.repo, w.door(stranger), stranger, f.Group.ID, admin)
	if want := (Closing{Ended: 129, Gone: 1, StateGone: true}); err != nil || got != want {
		t.Fatalf("Close = %+v, %v, want %+v", got, err, want)
	}
	for _, c := range f.Children {
		if w.head(t, c.Ref) != "" {
			t.Errorf("the branch of %s is there", c.ID)
		}
		if cause := w.get(t, c.ID).EndCause; cause != Closed && c.ID != f.Children[7].ID {
			t.Errorf("%s ended because it was %s, want closed", c.ID, cause)
		}
	}
	_, err = w.k.Close(t.Context(), w.repo, w.door(stranger), stranger, f.Group.ID, admin)
	if _, ok := ledger.IsRepeated(err); !ok {
		t.Errorf("Close again with its key: %v, want the stored answer", err)
	}
	if again := w.close(t, f.Group.ID); again != (Closing{Gone: 130, StateGone: true}) {
		t.Errorf("Close again = %+v, want that all had gone", again)
	}
	told, err := w.k.Group(t.Context(), w.repo, w.door(backend()), f.Group.ID)
	if err != nil || !told.Group.ClosedAt.Equal(w.clock.Now()) {
		t.Errorf("Group = closed at %v, %v, want %v", told.Group.ClosedAt, err, w.clock.Now())
	}
	if live := w.keys(t, childPrefix("p")); len(live) != 0 {
		t.Errorf("%d children are live, want none", len(live))
	}
}

func TestCloseKeepsAKeptState(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "p"})
	f := w.fork(t, "p", ForkSpec{N: 2, KeepState: true})
	if c := w.close(t, f.Group.ID); c != (Closing{Ended: 2}) {
		t.Errorf("Close = %+v, want 2 ended and the state there", c)
	}
	w.reap(t)
	w.clock.advance(1_800*time.Second - time.Microsecond)
	w.reap(t)
	if !w.stateThere(t, f.Group.ID) {
		t.Error("the kept state went before its idle time")
	}
	w.clock.advance(time.Microsecond)
	w.reap(t)
	if w.stateThere(t, f.Group.ID) {
		t.Error("the kept state is there after its idle time")
	}
}
