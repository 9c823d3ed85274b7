package gitstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

const testFence = "x/fence"

var errTestFenced = errors.New("fenced off")

// fenceGuard refuses while there is a fence, and says what it reads.
type fenceGuard struct {
	l     ledger.Ledger
	known int // how often it was told what stands there
}

func (g *fenceGuard) Wants(refpolicy.RefName, Actor) []string { return []string{testFence} }

func (g *fenceGuard) Guard(ctx context.Context, q GuardRequest) (GuardAnswer, error) {
	if values, ok := q.Known.Values(testFence); ok {
		if g.known++; values[0] == nil {
			return GuardAnswer{Rider: ledger.Rider{Checks: []ledger.Check{ledger.Absent(testFence)}}}, nil
		}
	}
	got, err := g.l.ReadKeys(ctx, ledger.RepoSpace(q.Repo.ID), testFence)
	if err != nil || got[0] == nil {
		return GuardAnswer{Rider: ledger.Rider{Checks: []ledger.Check{ledger.Absent(testFence)}}}, err
	}
	return GuardAnswer{}, errTestFenced
}

// busyLedger lets something happen just before the next batch with a log entry.
type busyLedger struct {
	countingLedger
	before func()
}

func (l *busyLedger) Apply(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
	if before := l.before; before != nil && b.Log != nil {
		l.before = nil
		before()
	}
	return l.countingLedger.Apply(ctx, b)
}

// A commit on a branch reads once what it is made from, with what the door and the guard
// ask for; what has changed by the time of its batch is read anew.
func TestCommitReadsOnce(t *testing.T) {
	l := &busyLedger{countingLedger: countingLedger{Ledger: openTestLedger(t)}}
	guard := &fenceGuard{l: l.Ledger}
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Ledger, o.Guard = l, guard }), "site")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}})
	l.take()
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n"}})
	if got := l.take(); got.calls != 2 || guard.known == 0 {
		t.Errorf("a commit called the ledger %d times and told the guard %d times what stands there, want one reading and one batch", got.calls, guard.known)
	}

	t.Run("fenced off meanwhile", func(t *testing.T) {
		fence := ledger.Batch{Space: r.space, Sets: []ledger.Set{{Key: testFence}}}
		l.before = func() {
			if _, err := l.Ledger.Apply(t.Context(), fence); err != nil {
				t.Fatalf("Apply: %v", err)
			}
		}
		c := testCommit{target: mainRef, files: map[string]string{"a": "2\n"}}
		if _, err := c.make(t.Context(), r, someone); !errors.Is(err, errTestFenced) {
			t.Errorf("Commit = %v, want what the guard says of what stands there now", err)
		}
		if _, err := l.Ledger.Apply(t.Context(), ledger.Batch{Space: r.space, Deletes: []string{testFence}}); err != nil {
			t.Fatalf("Apply: %v", err)
		}
	})

	t.Run("the branch moved meanwhile", func(t *testing.T) {
		l.before = func() { mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"b": "1\n"}}) }
		mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "3\n"}})
	})

	t.Run("deleted meanwhile", func(t *testing.T) {
		l.before = func() {
			if _, err := r.store.DeleteRepo(t.Context(), Caller{}, "acme", "site", nil); err != nil {
				t.Fatalf("DeleteRepo: %v", err)
			}
		}
		c := testCommit{target: mainRef, files: map[string]string{"a": "4\n"}}
		if _, err := c.make(t.Context(), r, someone); !errors.Is(err, ErrRepoNotFound) {
			t.Errorf("Commit = %v, want ErrRepoNotFound", err)
		}
	})
}

// A commit that came in by another branch while it was being made again belongs to the
// lines of both.
func TestCommitMadeTwiceAtOnce(t *testing.T) {
	l := &busyLedger{countingLedger: countingLedger{Ledger: openTestLedger(t)}}
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Ledger = l }), "site")
	root := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n", "b": "0\n"}}).Commit
	const other = refpolicy.RefName("refs/heads/other")
	if res, err := r.Update(t.Context(), Update{Caller: someone, Changes: []Change{{Ref: other, New: root}}}); err != nil || res.Refusal() != nil {
		t.Fatalf("Update: %v, %v", err, res.Refusal())
	}
	make := func(target refpolicy.RefName) refpolicy.OID {
		by := Signature{Name: "Tester", Email: "tester@example.org", When: time.Unix(1_700_000_000, 0)}
		w, err := r.NewCommit(t.Context(), someone, CommitSpec{Target: target, Message: "the same", Author: by, Committer: by, Files: []FileChange{{Path: "a", Delete: true}}})
		if err != nil {
			t.Fatalf("NewCommit: %v", err)
		}
		defer w.Abort()
		res, err := w.Commit(t.Context())
		if err != nil {
			t.Fatalf("Commit: %v", err)
		}
		return res.Commit
	}
	var first refpolicy.OID
	l.before = func() { first = make(other) }
	second := make(mainRef)
	if first != second {
		t.Fatalf("the commits are %s and %s, want the same one", first, second)
	}
	joints, err := l.Ledger.Read(t.Context(), r.space)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	defer joints.Close()
	for _, line := range []refpolicy.RefName{other, mainRef} {
		items, err := joints.Scan(t.Context(), joinPrefix(line), "", 10)
		if err != nil || len(items) == 0 {
			t.Errorf("nobody joined the line of %s: %v", line, err)
		}
	}
}
