package gitstore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
)

// What is written again while it is being settled stays hot, since it was not that
// value which was copied; all else becomes cold, and everything reads on.
func TestSettleKeepsWhatWasWrittenAgain(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, start func(testing.TB) opener) {
		db := start(t)(t)
		t.Cleanup(func() { db.Close() })
		h := &hookedLedger{Ledger: db}
		s := openTestStore(t, func(o *Options) { o.Ledger = h })
		r := newTestRepo(t, s, "site")
		head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n", "b": "2\n"}})
		again := newBlob("1\n")
		restamped := encodeHot(again, 7)
		h.hook(registers, func(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
			if _, err := h.Ledger.Apply(ctx, ledger.Batch{Space: r.space, Sets: []ledger.Set{{Key: hotKey(again.OID), Value: restamped}}}); err != nil {
				t.Errorf("write again: %v", err)
			}
			return h.Ledger.Apply(ctx, b)
		})
		if err := r.Settle(t.Context()); err != nil {
			t.Fatalf("Settle: %v", err)
		}
		v, err := db.Read(t.Context(), r.space)
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		defer v.Close()
		hot, err := scanAll(t.Context(), v, hotKeys)
		if err != nil || len(hot) != 1 || hot[0].Key != hotKey(again.OID) || string(hot[0].Value) != string(restamped) {
			t.Errorf("hot after settling: %q, %v; want the blob that was written again alone", hot, err)
		}
		wantFile(t, r, head.Commit, "a", "1\n")
		wantFile(t, r, head.Commit, "b", "2\n")
	})
}

// The repo is deleted between the copy and the registration: settling fails and
// leaves nothing.
func TestSettleOfADeletedRepo(t *testing.T) {
	h := &hookedLedger{Ledger: openTestLedger(t)}
	s := openTestStore(t, func(o *Options) { o.Ledger, o.Logger = h, quiet })
	if _, err := s.CreateRepo(t.Context(), someone, "acme", "site", "main", nil); err != nil {
		t.Fatalf("CreateRepo: %v", err)
	}
	r, err := s.Repo(t.Context(), "acme", "site")
	if err != nil {
		t.Fatalf("Repo: %v", err)
	}
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n"}})
	h.hook(registers, func(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
		if _, err := s.DeleteRepo(ctx, someone, "acme", "site", nil); err != nil {
			t.Errorf("DeleteRepo: %v", err)
		}
		return h.Ledger.Apply(ctx, b)
	})
	if err := r.Settle(t.Context()); !errors.Is(err, ErrRepoNotFound) {
		t.Errorf("Settle: %v, want ErrRepoNotFound", err)
	}
	v, err := h.Read(t.Context(), r.space)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	defer v.Close()
	if left, err := v.Scan(t.Context(), "", "", 10); err != nil || len(left) > 0 {
		t.Errorf("the deleted repo has the keys %v, %v; want none", left, err)
	}
}

// A git process sees everything, while commits are settled under it.
func TestGitSeesEverythingWhileSettling(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, start func(testing.TB) opener) {
		db := start(t)(t)
		t.Cleanup(func() { db.Close() })
		s := openTestStore(t, func(o *Options) { o.Ledger = db })
		r := newTestRepo(t, s, "site")
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := r.Settle(context.Background()); err != nil {
					t.Errorf("Settle: %v", err)
				}
			}
		}()
		for i := range 12 {
			mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{fmt.Sprint("f", i): fmt.Sprint(i)}})
			if i%3 == 0 {
				checkRepo(t, r)
			}
		}
		close(stop)
		<-done
	})
}

// An update of more refs than one batch takes is several batches, of which the
// caller's own conditions ride in the first.
func TestManyRefsInOneUpdate(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	commit := newCommitOn(emptyTree, head)
	u := Update{
		Caller: someone, Objects: []NewObject{newObject(TreeObject, nil), commit},
		Checks: []ledger.Check{ledger.Absent("x/key")}, Sets: []ledger.Set{{Key: "x/key", Value: []byte("answered")}},
	}
	for i := range 2500 {
		u.Changes = append(u.Changes, Change{Ref: refName(i), New: commit.OID})
	}
	u.Changes[1400].Old = head // which it is not at
	res, err := r.Update(t.Context(), u)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	for i, ref := range res.Refs {
		if (ref.Err == nil) != (i != 1400) {
			t.Errorf("%s: %v", ref.Ref, ref.Err)
		}
	}
	refs, err := replayLog(t.Context(), r)
	if err != nil || len(refs) != 2500 {
		t.Errorf("the log replays to %d refs, %v; want main and 2499", len(refs), err)
	}
	u.Atomic, u.Checks, u.Sets = true, nil, nil
	if _, err := r.Update(t.Context(), u); !errors.Is(err, ErrTooLarge) {
		t.Errorf("the same, atomic: %v, want ErrTooLarge", err)
	}
}

// Pruning raises the generation: a commit that was built before it is built again
// on what is there then, and anything else is proved again.
func TestWritesHoldForTheirGeneration(t *testing.T) {
	h := &hookedLedger{Ledger: openTestLedger(t)}
	s := openTestStore(t, func(o *Options) { o.Ledger = h })
	r := newTestRepo(t, s, "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}})
	raise := func(gen string) {
		h.hook(func(b ledger.Batch) bool { return b.Log != nil }, func(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
			if _, err := h.Ledger.Apply(ctx, ledger.Batch{Space: r.space, Sets: []ledger.Set{{Key: genKey, Value: []byte(gen)}}}); err != nil {
				t.Errorf("raise generation: %v", err)
			}
			return h.Ledger.Apply(ctx, b)
		})
	}
	raise("2")
	res, err := testCommit{target: "refs/heads/b", base: mainRef, files: map[string]string{"b": "1\n"}}.make(t.Context(), r, someone)
	if err != nil {
		t.Fatalf("commit while the generation rises: %v", err)
	}
	if o, err := r.hot(t.Context(), res.Commit); err != nil || o.gen != 2 {
		t.Errorf("the commit was written in generation %d, %v; want 2", o.gen, err)
	}
	raise("3")
	if err := updateOne(t, r, Update{Caller: someone, Changes: []Change{{Ref: "refs/heads/c", New: head.Commit}}}); err != nil {
		t.Errorf("update while the generation rises: %v", err)
	}
}

// The second batch of a large update meets a prune that began meanwhile, or a
// ledger that is away: what the first one did stands and is told, the rest is not
// done, since the objects it would point at may be gone by then.
func TestManyRefsCutBetweenBatches(t *testing.T) {
	for _, tc := range []struct {
		name   string
		second func(h *hookedLedger, r *Repo, ctx context.Context, b ledger.Batch) (ledger.Result, error)
	}{
		{"a prune begins", func(h *hookedLedger, r *Repo, ctx context.Context, b ledger.Batch) (ledger.Result, error) {
			if _, err := h.Ledger.Apply(ctx, ledger.Batch{Space: r.space, Sets: []ledger.Set{{Key: genKey, Value: []byte("2")}}}); err != nil {
				return ledger.Result{}, err
			}
			return h.Ledger.Apply(ctx, b)
		}},
		{"the ledger is away", func(*hookedLedger, *Repo, context.Context, ledger.Batch) (ledger.Result, error) {
			return ledger.Result{}, ledger.ErrUnavailable
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &hookedLedger{Ledger: openTestLedger(t)}
			r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Ledger = h }), "site")
			head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
			commit := newCommitOn(emptyTree, head)
			u := Update{Caller: someone, Objects: []NewObject{newObject(TreeObject, nil), commit}}
			for i := range 2500 {
				u.Changes = append(u.Changes, Change{Ref: refName(i), New: commit.OID})
			}
			batches := 0
			later := func(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
				if b.Log == nil || b.Space != r.space {
					return h.Ledger.Apply(ctx, b)
				}
				if batches++; batches == 1 {
					return h.Ledger.Apply(ctx, b)
				}
				return tc.second(h, r, ctx, b)
			}
			h.onApply.Store(&later)
			res, err := r.Update(t.Context(), u)
			h.onApply.Store(nil)
			if err != nil {
				t.Fatalf("Update: %v, want a verdict for each ref", err)
			}
			done := 0
			for _, ref := range res.Refs {
				if ref.Err == nil {
					done++
				} else if !errors.Is(ref.Err, ledger.ErrUnavailable) {
					t.Fatalf("%s: %v, want ErrUnavailable", ref.Ref, ref.Err)
				}
			}
			refs, err := r.Refs(t.Context(), Caller{}, "refs/heads/", "", 0)
			if err != nil || done == 0 || done == 2500 || len(refs) != done+1 {
				t.Errorf("%d refs were told done and %d stand, %v; want main and those, some but not all", done, len(refs), err)
			}
		})
	}
}
