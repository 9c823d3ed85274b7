package gitstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// askedGuard answers with what a test wants.
type askedGuard func(ctx context.Context, q GuardRequest) (GuardAnswer, error)

func (f askedGuard) Guard(ctx context.Context, q GuardRequest) (GuardAnswer, error) { return f(ctx, q) }

// ownerOf is a guard to which refs below refs/heads/<session>/ are that session's.
func ownerOf(c Change) string {
	owner, _, ok := strings.Cut(strings.TrimPrefix(string(c.Ref), refpolicy.BranchPrefix), "/")
	if !ok {
		return ""
	}
	return owner
}

// What the guard says of an update, and whose session each ref is, stands in the log.
func TestGuardSpeaksInTheLog(t *testing.T) {
	var event Event
	guard := askedGuard(func(_ context.Context, q GuardRequest) (GuardAnswer, error) {
		a := GuardAnswer{Event: event}
		for _, c := range q.Changes {
			a.Sessions = append(a.Sessions, ownerOf(c))
		}
		if q.Intent != nil {
			a.Sets = []ledger.Set{{Key: "x/intent", Value: []byte(fmt.Sprint(q.Intent))}}
		}
		return a, nil
	})
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Guard = guard }), "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	for _, tc := range []struct {
		name     string
		event    Event
		refs     []refpolicy.RefName
		old      refpolicy.OID // of all; the zero id makes them
		want     LogEntry
		sessions []string
	}{
		{name: "nobody's", refs: []refpolicy.RefName{"refs/heads/x"}, want: LogEntry{Type: "ref.updated"}, sessions: []string{""}},
		{
			name: "one session's", refs: []refpolicy.RefName{"refs/heads/s1/a", "refs/heads/s1/b"},
			want: LogEntry{Type: "ref.updated", Session: "s1"}, sessions: []string{"s1", "s1"},
		},
		{
			name: "two sessions'", refs: []refpolicy.RefName{"refs/heads/s1/c", "refs/heads/s2/c", "refs/heads/y"},
			want: LogEntry{Type: "ref.updated"}, sessions: []string{"s1", "s2", ""},
		},
		{
			name: "an event", event: Event{Type: "session.forked", Session: "s9", Data: []byte(`{"n":2}`)},
			refs: []refpolicy.RefName{"refs/heads/s3/a", "refs/heads/s4/a"},
			want: LogEntry{Type: "session.forked", Session: "s9", Data: []byte(`{"n":2}`)}, sessions: []string{"s3", "s4"},
		},
		{
			name: "an event while nothing moves", event: Event{Type: "session.picked", Session: "s1"}, old: head,
			refs: []refpolicy.RefName{"refs/heads/s1/a"}, want: LogEntry{Type: "session.picked", Session: "s1"},
		},
	} {
		event = tc.event
		before := len(logOf(t, r))
		u := Update{Caller: someone, Atomic: true, Intent: tc.name}
		for _, ref := range tc.refs {
			u.Changes = append(u.Changes, Change{Ref: ref, Old: tc.old, New: head})
		}
		res, err := r.Update(t.Context(), u)
		if err = errors.Join(err, res.Refusal()); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		want := tc.want
		want.Actor, want.Changes = someone.Actor, []LogChange{}
		for n, session := range tc.sessions {
			want.Changes = append(want.Changes, LogChange{Ref: tc.refs[n], New: head, Kind: "create", Session: session})
		}
		if got := logOf(t, r)[before:]; len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("%s: the log says %+v, want %+v", tc.name, got, want)
		}
		raw, err := readKey(t.Context(), r.ledger.ReadKeys, r.space, "x/intent")
		if err != nil || string(raw) != tc.name {
			t.Errorf("%s: the guard was told the intent %q, %v", tc.name, raw, err)
		}
	}
}

// A guard whose check keeps failing ends the update; what it could not read fails it too.
func TestGuardThatCannotAnswer(t *testing.T) {
	for _, failure := range []error{ledger.ErrUnavailable, context.DeadlineExceeded} {
		down := true
		guard := askedGuard(func(context.Context, GuardRequest) (GuardAnswer, error) {
			if down {
				return GuardAnswer{}, fmt.Errorf("read fence: %w", failure)
			}
			return GuardAnswer{}, nil
		})
		r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Guard = guard }), "site")
		for _, atomic := range []bool{true, false} {
			changes := []Change{{Ref: "refs/heads/a"}, {Ref: "refs/heads/b"}}
			res, err := r.Update(t.Context(), Update{Caller: someone, Atomic: atomic, Changes: changes})
			if !errors.Is(err, failure) || res.Refs != nil {
				t.Errorf("Update while the guard cannot answer: %+v, %v; want its failure", res, err)
			}
		}
		down = false
		mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}})
	}
}

// lostReads is a ledger whose disk gives up: what is not durable never will be.
type lostReads struct {
	ledger.Ledger
	lost atomic.Bool
}

func (l *lostReads) Read(ctx context.Context, s ledger.Space) (ledger.View, error) {
	if l.lost.Load() {
		return nil, ledger.ErrUnavailable
	}
	return l.Ledger.Read(ctx, s)
}

func (l *lostReads) ReadKeys(ctx context.Context, s ledger.Space, keys ...string) ([][]byte, error) {
	if l.lost.Load() {
		return nil, ledger.ErrUnavailable
	}
	return l.Ledger.ReadKeys(ctx, s, keys...)
}

// The guard refuses by what it peeked at, and that never gets durable: nobody is told.
func TestGuardsRefusalIsToldWhenItIsDurable(t *testing.T) {
	l := &lostReads{Ledger: openTestLedger(t)}
	guard := askedGuard(func(context.Context, GuardRequest) (GuardAnswer, error) { return GuardAnswer{}, nil })
	refuse := askedGuard(func(context.Context, GuardRequest) (GuardAnswer, error) {
		l.lost.Store(true)
		return GuardAnswer{}, errFenced
	})
	s := openTestStore(t, func(o *Options) { o.Ledger, o.Guard = l, guard })
	r := newTestRepo(t, s, "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	s.guard = refuse
	for _, atomic := range []bool{true, false} {
		changes := []Change{{Ref: "refs/heads/a", New: head}, {Ref: "refs/heads/b", New: head}}
		res, err := r.Update(t.Context(), Update{Caller: someone, Atomic: atomic, Changes: changes})
		if !errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, errFenced) || res.Refs != nil {
			t.Errorf("atomic %v: Update is told %+v, %v; want it told nothing but that the ledger is away", atomic, res.Refs, err)
		}
		l.lost.Store(false)
	}
	res, err := r.Update(t.Context(), Update{Caller: someone, Changes: []Change{{Ref: "refs/heads/a", New: head}}})
	l.lost.Store(false)
	if err == nil || errors.Is(err, errFenced) {
		t.Errorf("Update is told %+v, %v; want a failure", res, err)
	}
}

// A push tells of each ref what the guard says of it, in the guard's own words.
func TestPushTellsTheGuardsReason(t *testing.T) {
	stale := errors.New("stale epoch 3, session is at 4")
	guard := askedGuard(func(_ context.Context, q GuardRequest) (GuardAnswer, error) {
		if slices.ContainsFunc(q.Changes, func(c Change) bool { return strings.HasSuffix(string(c.Ref), "/lost") }) {
			return GuardAnswer{}, stale
		}
		return GuardAnswer{}, nil
	})
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Guard = guard }), "repo")
	s := newGitServer(t, r)
	w := newWorkTree(t)
	w.git("init", "-q")
	w.commit("a", "a")
	refs := []string{"main:refs/heads/own", "main:refs/heads/lost"}
	out := w.refused(append([]string{"push", "--atomic", s.url(someone, EphemeralRemote)}, refs...)...)
	contains(t, out, "[remote rejected] main -> lost ("+stale.Error()+")")
	contains(t, out, "[remote rejected] main -> own ("+ErrAtomic.Error()+")")
	out = w.refused(append([]string{"push", s.url(someone, EphemeralRemote)}, refs...)...)
	contains(t, out, "[remote rejected] main -> lost ("+stale.Error()+")")
	contains(t, out, "[new branch]      main -> own")
	s.noErrors()
}
