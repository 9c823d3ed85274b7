package gitstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// asJSON keeps a result as it is.
func asJSON[T any](key string) *ledger.Once[T] {
	return &ledger.Once[T]{Key: key, Answer: func(result T) ([]byte, error) { return json.Marshal(result) }}
}

// makeOnce is testCommit.make with a key.
func makeOnce(ctx context.Context, r *Repo, c Caller, spec CommitSpec, data string) (CommitResult, error) {
	spec.Message = "once"
	spec.Author = Signature{Name: "A", Email: "a@example.com"}
	spec.Files = []FileChange{{Path: "f", ContentID: "f"}}
	w, err := r.NewCommit(ctx, c, spec)
	if err != nil {
		return CommitResult{}, err
	}
	defer w.Abort()
	if err := w.Write("f", []byte(data), true); err != nil {
		return CommitResult{}, err
	}
	return w.Commit(ctx)
}

// repeat makes n calls of one key at once: one does it, and what it left is what all
// the others are told.
func repeat(t *testing.T, n int, call func(i int) (any, error)) (answer string) {
	t.Helper()
	var done atomic.Int64
	answers := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			got, err := call(i)
			stored, known := ledger.IsRepeated(err)
			switch {
			case err == nil:
				done.Add(1)
				stored, _ = json.Marshal(got)
			case !known:
				t.Errorf("call %d: %v, want it done or told that it was", i, err)
			}
			answers[i] = string(stored)
		})
	}
	wg.Wait()
	if done.Load() != 1 {
		t.Errorf("%d of %d calls of one key did something, want 1", done.Load(), n)
	}
	for i, a := range answers {
		if a != answers[0] {
			t.Errorf("call %d was told %s, call 0 %s", i, a, answers[0])
		}
	}
	return answers[0]
}

// Of many calls with one key at once, one happens, and all are told the same, whatever
// they raced for.
func TestOneKeyHappensOnce(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, start func(testing.TB) opener) {
		db := start(t)(t)
		t.Cleanup(func() { db.Close() })
		s := openTestStore(t, func(o *Options) { o.Ledger = db })
		r := newTestRepo(t, s, "site")
		head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
		pin, err := r.Pin(t.Context(), someone, PinSpec{OID: head, Holder: "h"})
		if err != nil {
			t.Fatalf("Pin: %v", err)
		}
		mustCommit(t, r, someone, testCommit{target: "refs/heads/gone", base: mainRef, files: map[string]string{"a": "1\n"}})
		for _, tc := range []struct {
			name string
			call func(i int) (any, error)
			log  int // entries that it leaves
		}{
			{"commit", func(i int) (any, error) {
				return makeOnce(t.Context(), r, someone, CommitSpec{Target: mainRef, Once: asJSON[CommitResult]("commit")}, fmt.Sprint(i))
			}, 1},
			{"commit on a branch to be made", func(i int) (any, error) {
				spec := CommitSpec{Target: "refs/heads/made", Base: mainRef, Once: asJSON[CommitResult]("commit made")}
				return makeOnce(t.Context(), r, someone, spec, fmt.Sprint("made ", i))
			}, 1},
			{"commit at a head", func(i int) (any, error) {
				ref, err := r.Ref(t.Context(), someone, "refs/heads/gone")
				if err != nil {
					return nil, err
				}
				spec := CommitSpec{Target: ref.Name, Expected: ref.OID.String(), Once: asJSON[CommitResult]("commit at")}
				return makeOnce(t.Context(), r, someone, spec, "same")
			}, 1},
			{"create branch", func(int) (any, error) {
				return r.CreateBranch(t.Context(), someone, BranchSpec{Target: "refs/heads/b", Base: "main", Once: asJSON[Ref]("create")})
			}, 1},
			{"move branch", func(int) (any, error) {
				spec := BranchSpec{Target: "refs/heads/b", Base: "main~1", Force: true, Once: asJSON[Ref]("move")}
				return r.CreateBranch(t.Context(), someone, spec)
			}, 1},
			{"move branch to where it is", func(int) (any, error) {
				spec := BranchSpec{Target: "refs/heads/b", Base: "main~1", Force: true, Once: asJSON[Ref]("stay")}
				return r.CreateBranch(t.Context(), someone, spec)
			}, 0},
			{"pin", func(int) (any, error) {
				return r.Pin(t.Context(), someone, PinSpec{OID: head, Holder: "h", Once: asJSON[Pin]("pin")})
			}, 0},
			{"set default branch", func(int) (any, error) {
				return r.SetDefaultBranch(t.Context(), someone, "made", asJSON[RepoInfo]("default"))
			}, 1},
			{"leave default branch", func(int) (any, error) {
				return r.SetDefaultBranch(t.Context(), someone, "made", asJSON[RepoInfo]("leave"))
			}, 0},
		} {
			before := len(logOf(t, r))
			answer := repeat(t, 50, tc.call)
			if got := len(logOf(t, r)) - before; got != tc.log {
				t.Errorf("%s: %d log entries, want %d", tc.name, got, tc.log)
			}
			if _, err := tc.call(99); !isStored(err, answer) {
				t.Errorf("%s again: %v, want the answer %s", tc.name, err, answer)
			}
		}
		gone, err := r.Ref(t.Context(), someone, "refs/heads/gone")
		if err != nil {
			t.Fatalf("Ref: %v", err)
		}
		repeat(t, 20, func(int) (any, error) {
			return gone, r.DeleteBranch(t.Context(), someone, gone.Name, asJSON[Ref]("delete"))
		})
		repeat(t, 20, func(int) (any, error) { return pin, r.Unpin(t.Context(), someone, pin.ID, asJSON[Pin]("unpin")) })
		made := repeat(t, 8, func(int) (any, error) {
			return s.CreateRepo(t.Context(), someone, "acme", "new", "main", asJSON[RepoInfo]("make"))
		})
		removed := repeat(t, 8, func(int) (any, error) {
			return s.DeleteRepo(t.Context(), someone, "acme", "new", asJSON[RepoInfo]("remove"))
		})
		if made != removed {
			t.Errorf("removed %s, want what was made: %s", removed, made)
		}
		if _, err := s.CreateRepo(t.Context(), someone, "acme", "new", "main", nil); err != nil {
			t.Fatalf("CreateRepo: %v", err)
		}
		// The name is another repo's: the old call is no longer about it.
		if _, err := s.DeleteRepo(t.Context(), someone, "acme", "new", asJSON[RepoInfo]("remove")); !isStored(err, removed) {
			t.Errorf("DeleteRepo again: %v, want the answer %s", err, removed)
		}
		if stored, err := s.OrgOnce(t.Context(), "acme", asJSON[RepoInfo]("make").StoreKey()); err != nil || string(stored) != made {
			t.Errorf("OrgOnce = %s, %v; want %s", stored, err, made)
		}
		if _, err := s.Repo(t.Context(), "acme", "new"); err != nil {
			t.Errorf("the new repo of the name: %v", err)
		}
	})
}

func isStored(err error, answer string) bool {
	stored, ok := ledger.IsRepeated(err)
	return ok && string(stored) == answer
}

// A known key wins over whatever else the call could be told; a call of which nothing
// happens leaves none.
func TestKnownKeyWins(t *testing.T) {
	refuse := false
	guard := askedGuard(func(context.Context, GuardRequest) (GuardAnswer, error) {
		if refuse {
			return GuardAnswer{}, errFenced
		}
		return GuardAnswer{}, nil
	})
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Guard = guard }), "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	once := asJSON[UpdateResult]("k")
	nowhere, err := refpolicy.New([]refpolicy.Rule{{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoPush}}}, nil)
	if err != nil {
		t.Fatalf("refpolicy.New: %v", err)
	}
	ways := []struct {
		name string
		u    Update
	}{
		{"moved", Update{Caller: someone, Changes: []Change{{Ref: mainRef, New: head}}}},
		{"denied", Update{Caller: Caller{Actor: someone.Actor, Policy: nowhere}, Changes: []Change{{Ref: "refs/heads/x", New: head}}}},
		{"bad name", Update{Caller: someone, Changes: []Change{{Ref: "refs/heads/x..y", New: head}}}},
		{"missing object", Update{Caller: someone, Changes: []Change{{Ref: "refs/heads/x", New: refpolicy.OID{1}}}}},
		{"check", Update{Caller: someone, Checks: []ledger.Check{ledger.Equal("x/y", nil)}, Changes: []Change{{Ref: "refs/heads/x", New: head}}}},
		{"guard", Update{Caller: someone, Changes: []Change{{Ref: "refs/heads/fenced", New: head}}}},
		{"pin", Update{Caller: someone, Changes: []Change{{Ref: "refs/heads/x", New: head}}, Pins: []NewPin{{ID: NewPinID(), OID: refpolicy.OID{1}, Holder: "h"}}}},
	}
	try := func(n int) error {
		refuse = ways[n].name == "guard"
		defer func() { refuse = false }()
		u := ways[n].u
		u.Once = once
		res, err := r.Update(t.Context(), u)
		return errors.Join(err, res.Refusal())
	}
	for n, way := range ways {
		if err := try(n); err == nil || isStored(err, "") {
			t.Errorf("%s: %v, want a refusal", way.name, err)
		}
		if stored, err := r.Once(t.Context(), once.StoreKey()); stored != nil || err != nil {
			t.Fatalf("%s left the answer %s, %v; want none", way.name, stored, err)
		}
	}
	res, err := r.Update(t.Context(), Update{Caller: someone, Once: once, Changes: []Change{
		{Ref: "refs/heads/one", New: head}, {Ref: mainRef, New: head}, // the second is refused
	}})
	if err != nil || res.Refs[0].Err != nil || !isMovedErr(res.Refs[1].Err) {
		t.Fatalf("Update: %+v, %v", res, err)
	}
	stored, err := r.Once(t.Context(), once.StoreKey())
	if err != nil || stored == nil {
		t.Fatalf("Once = %s, %v; want an answer", stored, err)
	}
	for n, way := range ways {
		if err := try(n); !isStored(err, string(stored)) {
			t.Errorf("%s by a known key: %v, want the stored answer", way.name, err)
		}
	}
	if err := r.DeleteBranch(t.Context(), someone, "refs/heads/absent", asJSON[Ref]("k")); !isStored(err, string(stored)) {
		t.Errorf("DeleteBranch by a known key: %v, want the stored answer", err)
	}
	spec := CommitSpec{Target: mainRef, Expected: refpolicy.OID{9}.String(), Once: asJSON[CommitResult]("k")}
	for _, c := range []Caller{someone, {Actor: someone.Actor, Policy: nowhere}} {
		if _, err := makeOnce(t.Context(), r, c, spec, "x"); !isStored(err, string(stored)) {
			t.Errorf("commit by a known key: %v, want the stored answer", err)
		}
	}
}

// What is stored is told only when it is durable.
func TestStoredAnswerIsToldWhenItIsDurable(t *testing.T) {
	l := &lostReads{Ledger: openTestLedger(t)}
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Ledger = l }), "site")
	spec := CommitSpec{Target: mainRef, Once: asJSON[CommitResult]("k")}
	if _, err := makeOnce(t.Context(), r, someone, spec, "x"); err != nil {
		t.Fatalf("commit: %v", err)
	}
	l.lost.Store(true)
	defer l.lost.Store(false)
	_, err := makeOnce(t.Context(), r, someone, spec, "y")
	if _, told := ledger.IsRepeated(err); told || !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("commit again while nothing gets durable: %v, want ErrUnavailable", err)
	}
	if _, err := r.Once(t.Context(), spec.Once.StoreKey()); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("Once while nothing gets durable: %v, want ErrUnavailable", err)
	}
	if stored, err := r.Once(t.Context(), "once/other"); stored != nil || err != nil {
		t.Errorf("Once of an unknown key = %s, %v; want none without waiting", stored, err)
	}
}
