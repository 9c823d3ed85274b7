package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

func (w *world) fork(t fataler, id string, spec ForkSpec) Fork {
	t.Helper()
	f, err := w.k.Fork(context.Background(), w.repo, w.door(backend()), backend(), id, spec)
	if err != nil {
		t.Fatalf("Fork(%s, %d): %v", id, spec.N, err)
	}
	return f
}

func (w *world) get(t fataler, id string) Session {
	t.Helper()
	s, err := w.k.Get(context.Background(), w.repo, w.door(backend()), id)
	if err != nil {
		t.Fatalf("Get(%s): %v", id, err)
	}
	return s
}

func (w *world) reap(t fataler) time.Time {
	t.Helper()
	next, err := w.k.Reap(context.Background(), w.repo)
	if err != nil {
		t.Fatalf("Reap: %v", err)
	}
	return next
}

func (w *world) close(t fataler, group string) Closing {
	t.Helper()
	c, err := w.k.Close(context.Background(), w.repo, w.door(backend()), backend(), group, CloseSpec{})
	if err != nil {
		t.Fatalf("Close(%s): %v", group, err)
	}
	return c
}

func TestD04_ForkIsOneBatch(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	p := w.session(t, CreateSpec{ID: "p", Holder: "box", Labels: map[string]string{"project": "x", "setup_done": "true"}, TTL: time.Hour, CaptureKey: "PEM"})
	head, err := w.write(t, backend(), p.Ref, "state")
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	w.clock.advance(30 * time.Second)
	before := len(w.log(t))
	f := w.fork(t, "p", ForkSpec{N: 8, KeepState: true, Token: &TokenSpec{}, Labels: map[string]string{"project": "y"}})
	if len(f.Children) != 8 || len(f.Tokens) != 8 || len(f.Group.Children) != 8 || f.Group.StateSHA != head || f.Group.ParentID != "p" {
		t.Fatalf("Fork = %+v, want 8 children with tokens of %s", f, head)
	}
	seen := map[string]bool{}
	for i, c := range f.Children {
		tok := f.Tokens[i]
		if seen[c.ID] || seen[tok.ID] || f.Group.Children[i] != c.ID {
			t.Errorf("child %s with token %s is no child of its own", c.ID, tok.ID)
		}
		seen[c.ID], seen[tok.ID] = true, true
		if got := w.get(t, c.ID); fmt.Sprint(got) != fmt.Sprint(c) {
			t.Errorf("Get(%s) = %+v, want as it was told: %+v", c.ID, got, c)
		}
		if c.HeadSHA != head || c.BaseSHA != head || c.ParentID != "p" || c.GroupID != f.Group.ID || c.Epoch != 1 || c.Lease != nil {
			t.Errorf("child %+v does not begin at the state %s, unheld", c, head)
		}
		if c.Labels["setup_done"] != "true" || c.Labels["project"] != "y" || !c.ExpiresAt.Equal(p.ExpiresAt) || c.CaptureKey != "PEM" {
			t.Errorf("child %+v has not inherited what its parent is", c)
		}
		wantErr(t, "Standing of a child's token", w.standing(tok), nil)
		if _, err := w.write(t, holderOf(tok), c.Ref, c.ID); err != nil {
			t.Errorf("write to %s with its token: %v", c.ID, err)
		}
	}
	wantErr(t, "Standing on a sibling", w.k.Standing(t.Context(), w.repo, holderOf(f.Tokens[0]), f.Children[1].Ref), ErrTokenDead)
	after := w.get(t, "p")
	if after.HeadSHA != head || after.Epoch != 1 || after.Holder != "box" || !after.UsedAt.Equal(w.clock.Now()) {
		t.Errorf("the parent is %+v, want its head, epoch and lease as they were, and used now", after)
	}
	entry := w.log(t)[before]
	if entry.Type != "session.created" || len(entry.Changes) != 8 || entry.Changes[0].Session != f.Children[0].ID {
		t.Errorf("log entry %+v, want one with 8 changes", entry)
	}
	if pins := w.pins(t); !slices.Equal(pins, []string{f.Group.PinID}) {
		t.Errorf("pins %v, want %s", pins, f.Group.PinID)
	}
}

func TestD04_ForkIsAllOrNothing(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	p := w.session(t, CreateSpec{ID: "p"})
	keys := w.keys(t, "")
	broken := errors.New("killed")
	for name, fork := range map[string]func() error{
		"batch is not applied": func() error {
			w.ledger.beforeApply(func(ledger.Batch) error { return broken })
			defer w.ledger.beforeApply(nil)
			_, err := w.k.Fork(t.Context(), w.repo, w.door(backend()), backend(), "p", ForkSpec{N: 8, Token: &TokenSpec{}})
			return err
		},
		"one branch may not be made": func() error {
			door, asked := w.door(backend()), 0
			door.mayWrite = func(string) bool { asked++; return asked < 5 }
			_, err := w.k.Fork(t.Context(), w.repo, door, backend(), "p", ForkSpec{N: 8, Token: &TokenSpec{}})
			if errors.Is(err, errDenied) {
				return broken
			}
			return err
		},
	} {
		wantErr(t, "Fork: "+name, fork(), broken)
		if now := w.keys(t, ""); !slices.Equal(now, keys) {
			t.Errorf("%s: %d keys are there, want the %d there were", name, len(now), len(keys))
		}
	}
	if got := w.get(t, "p"); fmt.Sprint(got) != fmt.Sprint(p) {
		t.Errorf("the parent is %+v, want it as it was: %+v", got, p)
	}
}

func TestD05_ForkOverALimit(t *testing.T) {
	limits := testLimits
	limits.MaxForkN, limits.MaxLive = 2_000, 6
	w := pebbleWorld(t, limits)
	w.session(t, CreateSpec{ID: "p"})
	w.session(t, CreateSpec{ID: "gone"})
	w.end(t, "gone")
	many := map[string]string{}
	for i := range maxLabels {
		many[fmt.Sprint("l", i)] = strings.Repeat("x", maxLabelValue)
	}
	keys := w.keys(t, "")
	for _, tc := range []struct {
		name string
		id   string
		spec ForkSpec
		what string // of a LimitError
		want error
	}{
		{"none", "p", ForkSpec{N: 0}, "", ErrInvalid},
		{"fewer than none", "p", ForkSpec{N: -1}, "", ErrInvalid},
		{"over max_fork_n", "p", ForkSpec{N: 2_001}, "max_fork_n", nil},
		{"over the live limit", "p", ForkSpec{N: 6}, "max_live", nil},
		{"over one batch by keys", "p", ForkSpec{N: 2_000, Token: &TokenSpec{}}, "the children that fit into one batch", nil},
		{"over one batch by bytes", "p", ForkSpec{N: 200, Labels: many}, "the children that fit into one batch", nil},
		{"no session", "q", ForkSpec{N: 1}, "", ErrNotFound},
		{"bad token", "p", ForkSpec{N: 1, Token: &TokenSpec{TTL: -1}}, "", ErrInvalid},
		{"bad label", "p", ForkSpec{N: 1, Labels: map[string]string{"": ""}}, "", ErrInvalid},
		{"bad time", "p", ForkSpec{N: 1, TTL: -1}, "", ErrInvalid},
	} {
		_, err := w.k.Fork(t.Context(), w.repo, w.door(backend()), backend(), tc.id, tc.spec)
		var over *LimitError
		if tc.what != "" && (!errors.As(err, &over) || over.What != tc.what || over.Want < over.Max) {
			t.Errorf("Fork: %s: %v, want a limit: %s", tc.name, err, tc.what)
		}
		if tc.what == "" {
			wantErr(t, "Fork: "+tc.name, err, tc.want)
		}
	}
	var state *StateError
	if _, err := w.k.Fork(t.Context(), w.repo, w.door(backend()), backend(), "gone", ForkSpec{N: 1}); !errors.As(err, &state) {
		t.Errorf("Fork of an ended session: %v, want its state", err)
	}
	bound := holderOf(w.issue(t, "p", TokenSpec{}))
	_, err := w.k.Fork(t.Context(), w.repo, w.door(bound), bound, "p", ForkSpec{N: 1})
	wantErr(t, "Fork by a token that is bound to a session", err, ErrForeignSession)
	now := slices.DeleteFunc(w.keys(t, ""), func(key string) bool { return strings.HasPrefix(key, "session-token") })
	if !slices.Equal(now, keys) {
		t.Errorf("%d keys are there, want the %d there were", len(now), len(keys))
	}
}

// What fits by the reckoning fits into a batch, with something to spare for the
// store's door, which writes more for a branch than the one here.
func TestForkThatJustFits(t *testing.T) {
	limits := testLimits
	limits.MaxForkN, limits.MaxLive = 4_000, 4_000
	counted := errors.New("counted")
	for name, spec := range map[string]ForkSpec{
		"bare":        {},
		"with tokens": {Token: &TokenSpec{}},
		"with labels": {Token: &TokenSpec{Read: []string{"main", "refs/tags/*"}}, TTL: time.Hour, Labels: map[string]string{"a": "b", "c": strings.Repeat("d", 250)}},
	} {
		w := pebbleWorld(t, limits)
		w.session(t, CreateSpec{ID: "p"})
		spec.N = 4_000
		_, err := w.k.Fork(t.Context(), w.repo, w.door(backend()), backend(), "p", spec)
		var over *LimitError
		if !errors.As(err, &over) || over.Max < 1_000 {
			t.Errorf("%s: %v, want a limit of at least 1,000", name, err)
			continue
		}
		spec.N = over.Max
		w.ledger.beforeApply(func(b ledger.Batch) error {
			keys := len(b.Checks) + len(b.Deletes) + len(b.Sets) + len(b.Adds)
			if err := b.Validate(); err != nil || keys > ledger.MaxBatchKeys-3*over.Max || keys < ledger.MaxBatchKeys/2 {
				t.Errorf("%s: a batch of %d children has %d keys: %v", name, over.Max, keys, err)
			}
			return counted
		})
		_, err = w.k.Fork(t.Context(), w.repo, w.door(backend()), backend(), "p", spec)
		wantErr(t, "Fork", err, counted)
	}
}

func TestA17_ForkTwiceWithOneKey(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "p"})
	once := &ledger.Once[Fork]{Key: "k", Answer: func(f Fork) ([]byte, error) { return []byte(f.Group.ID), nil }}
	f := w.fork(t, "p", ForkSpec{N: 2, Once: once})
	_, err := w.k.Fork(t.Context(), w.repo, w.door(backend()), backend(), "p", ForkSpec{N: 2, Once: once})
	if stored, ok := ledger.IsRepeated(err); !ok || string(stored) != f.Group.ID {
		t.Errorf("Fork again: %q, %v, want the stored answer", stored, err)
	}
	if got := w.keys(t, groupKeys); len(got) != 1 {
		t.Errorf("%d groups are there, want 1", len(got))
	}
}

func TestD06_FailedChild(t *testing.T) {
	for _, strict := range []bool{true, false} {
		w := pebbleWorld(t, testLimits)
		w.session(t, CreateSpec{ID: "p"})
		var f Fork
		var err error
		var wg sync.WaitGroup
		wg.Go(func() {
			f, err = w.k.Fork(context.Background(), w.repo, w.door(backend()), backend(), "p", ForkSpec{N: 8, Strict: strict, Wait: time.Minute})
		})
		group, children := w.awaitGroup(t)
		for i, id := range children {
			if err := w.k.ReportChild(t.Context(), w.repo, w.door(backend()), backend(), group, id, ReportSpec{Failed: i == 3, Reason: "no gate"}); err != nil {
				t.Errorf("ReportChild(%s): %v", id, err)
			}
		}
		wg.Wait()
		var refused *ChildrenFailedError
		if errors.As(err, &refused) != strict || !strict && err != nil {
			t.Fatalf("strict %v: Fork: %v", strict, err)
		}
		good := slices.Concat(children[:3], children[4:])
		if strict {
			f = refused.Fork
			if !slices.Equal(refused.Good, good) {
				t.Errorf("the good ones are %v, want %v", refused.Good, good)
			}
		}
		if want := []ChildFailure{{children[3], "no gate"}}; !slices.Equal(f.Failed, want) || len(f.Children) != 8 {
			t.Errorf("strict %v: failed %v of %d, want %v of 8", strict, f.Failed, len(f.Children), want)
		}
		for _, id := range good {
			if _, err := w.write(t, backend(), w.get(t, id).Ref, id); err != nil {
				t.Errorf("write to the good child %s: %v", id, err)
			}
		}
		told, err := w.k.Group(t.Context(), w.repo, w.door(backend()), group)
		if err != nil || len(told.Failed) != 1 || len(told.Children) != 8 {
			t.Errorf("Group = %+v, %v, want one failed of 8", told, err)
		}
	}
}

// awaitGroup waits for the first group that is made.
func (w *world) awaitGroup(t *testing.T) (id string, children []string) {
	t.Helper()
	grown, err := w.ledger.Watch(t.Context(), ledger.RepoSpace(w.repo.ID))
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	for {
		if keys := w.keys(t, groupKeys); len(keys) > 0 {
			id = strings.TrimPrefix(keys[0], groupKeys)
			f, err := w.k.Group(t.Context(), w.repo, w.door(backend()), id)
			if err != nil {
				t.Fatalf("Group(%s): %v", id, err)
			}
			return id, f.Group.Children
		}
		<-grown
	}
}

func TestForkWaitEnds(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "p"})
	f := w.fork(t, "p", ForkSpec{N: 2, Strict: true, Wait: time.Millisecond}) // nobody reports
	if len(f.Failed) != 0 {
		t.Errorf("Fork without reports: failed %v, want none", f.Failed)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.k.Fork(ctx, w.repo, w.door(backend()), backend(), "p", ForkSpec{N: 2, Wait: time.Hour})
	wantErr(t, "Fork by somebody who went away", err, context.Canceled)
	var wg sync.WaitGroup
	second := pebbleWorld(t, testLimits)
	second.session(t, CreateSpec{ID: "p"})
	wg.Go(func() { second.fork(t, "p", ForkSpec{N: 2, Wait: time.Hour}) })
	group, children := second.awaitGroup(t)
	if err := second.k.ReportChild(t.Context(), second.repo, second.door(backend()), backend(), group, children[0], ReportSpec{}); err != nil {
		t.Fatalf("ReportChild: %v", err)
	}
	second.end(t, children[1]) // will not be reported on any more
	wg.Wait()
}

func TestReportRefusals(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "p"})
	f := w.fork(t, "p", ForkSpec{N: 2, Token: &TokenSpec{}})
	group, child, sibling := f.Group.ID, f.Group.Children[0], holderOf(f.Tokens[1])
	denied := w.door(backend())
	denied.mayWrite = func(string) bool { return false }
	report := func(door Door, by Actor, group, child, reason string) error {
		return w.k.ReportChild(t.Context(), w.repo, door, by, group, child, ReportSpec{Failed: true, Reason: reason})
	}
	wantErr(t, "report on another group", report(w.door(backend()), backend(), newGroupID(), child, ""), ErrGroupNotFound)
	wantErr(t, "report on the parent", report(w.door(backend()), backend(), group, "p", ""), ErrGroupNotFound)
	wantErr(t, "report on nobody", report(w.door(backend()), backend(), group, "q", ""), ErrNotFound)
	wantErr(t, "report by a sibling", report(w.door(sibling), sibling, group, child, ""), ErrForeignSession)
	wantErr(t, "report by a reader", report(denied, backend(), group, child, ""), errDenied)
	wantErr(t, "report of two lines", report(w.door(backend()), backend(), group, child, "a\nb"), ErrInvalid)
	own := holderOf(f.Tokens[0])
	wantErr(t, "report by the child's own runner", report(w.door(own), own, group, child, "no"), nil)
	wantErr(t, "report by it again", w.k.ReportChild(t.Context(), w.repo, w.door(own), own, group, child, ReportSpec{}), nil)
	told, err := w.k.Group(t.Context(), w.repo, w.door(backend()), group)
	if err != nil || len(told.Failed) != 0 {
		t.Errorf("Group = %v, %v, want none failed after the later report", told.Failed, err)
	}
	wantErr(t, "report once more", report(w.door(backend()), backend(), group, child, "no gate"), nil)
	hidden := w.door(backend())
	hidden.canRead = func(ref string) bool { return ref != f.Children[0].Ref }
	told, err = w.k.Group(t.Context(), w.repo, hidden, group)
	if err != nil || len(told.Children) != 1 || len(told.Failed) != 0 {
		t.Errorf("Group = %v, failed %v, %v; want nothing of the child that the caller may not read", told.Children, told.Failed, err)
	}
	hidden.canRead = func(string) bool { return false }
	_, err = w.k.Group(t.Context(), w.repo, hidden, group)
	wantErr(t, "Group of a parent that the caller may not read", err, ErrGroupNotFound)
	_, err = w.k.Group(t.Context(), w.repo, w.door(backend()), "../p")
	wantErr(t, "Group with a malformed id", err, ErrGroupNotFound)
}

// Either the fork comes first, and the end is refused for its children, or the end
// does, and there is no child.
func TestRaceForkAgainstEnd(t *testing.T) {
	for range 10 {
		w := pebbleWorld(t, testLimits)
		p := w.session(t, CreateSpec{ID: "p"})
		var forked, ended error
		var wg sync.WaitGroup
		wg.Go(func() {
			_, forked = w.k.Fork(context.Background(), w.repo, w.door(backend()), backend(), "p", ForkSpec{N: 4})
		})
		wg.Go(func() {
			_, ended = w.k.End(context.Background(), w.repo, w.door(backend()), backend(), "p", EndSpec{})
		})
		wg.Wait()
		children, head := len(w.keys(t, childPrefix("p"))), w.head(t, p.Ref)
		var inUse *InUseError
		if forked == nil && (children != 4 || head == "" || !errors.As(ended, &inUse)) {
			t.Fatalf("after the fork: %d children, head %q, end %v", children, head, ended)
		}
		if forked != nil && (children != 0 || head != "" || ended != nil) {
			t.Fatalf("without the fork (%v): %d children, head %q, end %v", forked, children, head, ended)
		}
	}
}

func TestForkOnRedis(t *testing.T) {
	db, err := redisdb.Open(t.Context(), redistest.Start(t).URL(), redisdb.Options{})
	if err != nil {
		t.Fatalf("redisdb.Open: %v", err)
	}
	defer db.Close()
	w := newWorld(db, testLimits)
	w.session(t, CreateSpec{ID: "p"})
	f := w.fork(t, "p", ForkSpec{N: 4, Token: &TokenSpec{}})
	win, err := w.write(t, holderOf(f.Tokens[1]), f.Children[1].Ref, "win")
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	p, err := w.k.Pick(t.Context(), w.repo, w.door(backend()), backend(), f.Group.ID, f.Children[1].ID, nil)
	if err != nil || p.HeadSHA != win {
		t.Fatalf("Pick = %+v, %v, want the head %s", p, err, win)
	}
	if c := w.close(t, f.Group.ID); c != (Closing{Ended: 4, StateGone: true}) {
		t.Errorf("Close = %+v, want 4 ended and the state gone", c)
	}
}

// A report under a key is taken once, also when another has come after it.
func TestA17_ReportTwiceWithOneKey(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "p"})
	f := w.fork(t, "p", ForkSpec{N: 1})
	report := func(key string, failed bool) error {
		once := &ledger.Once[struct{}]{Key: key, Answer: func(struct{}) ([]byte, error) { return []byte(key), nil }}
		return w.k.ReportChild(t.Context(), w.repo, w.door(backend()), backend(), f.Group.ID, f.Group.Children[0], ReportSpec{Failed: failed, Once: once})
	}
	wantErr(t, "first report", report("1", true), nil)
	wantErr(t, "second report", report("2", false), nil)
	if stored, ok := ledger.IsRepeated(report("1", true)); !ok || string(stored) != "1" {
		t.Errorf("first report again: stored %q, %v, want the stored answer", stored, ok)
	}
	told, err := w.k.Group(t.Context(), w.repo, w.door(backend()), f.Group.ID)
	if err != nil || len(told.Failed) != 0 {
		t.Errorf("Group = %v, %v, want the second report to stand", told.Failed, err)
	}
}
