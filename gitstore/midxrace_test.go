package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/wire"
	"github.com/headgate/headgate/refpolicy"
)

// A token that may read only A learns nothing of B from an index that holds both.
func TestA13_WithAnIndex(t *testing.T) {
	x := newA13(t, Limits{UpkeepEvery: -1})
	if err := x.r.Settle(t.Context()); err != nil {
		t.Fatalf("Settle: %v", err)
	}
	mustIndex(t, x.r)
	if path, release := x.r.useIndex(t.Context()); path == "" {
		t.Fatalf("no index is in use")
	} else {
		release()
	}
	x.tellsNothing(t)
	tip, err := refpolicy.ParseOID(x.a)
	if err != nil {
		t.Fatalf("ParseOID: %v", err)
	}
	got, err := fetchedIDs(t, x.r, x.c, []refpolicy.OID{tip})
	if err != nil {
		t.Fatalf("fetch of A's tip: %v", err)
	}
	for _, s := range x.secrets {
		if got[s.id] {
			t.Errorf("%s is in the pack of A's tip", s.name)
		}
	}
}

// Fetches go on while the index is replaced, packs are merged and what was replaced is
// removed without any grace but that a process runs.
func TestFetchWhileIndexesAreReplaced(t *testing.T) {
	r, _ := indexedRepo(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	var fetches sync.WaitGroup
	defer fetches.Wait()
	defer stop()
	for k := range 2 {
		fetches.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				head, err := r.Ref(t.Context(), someone, mainRef)
				if err == nil {
					_, err = fetchPack(t.Context(), r, someone, head.OID, fmt.Sprintf("filter blob:limit=%d\n", 1000+2*n+k))
				}
				if err != nil {
					t.Errorf("reader %d, fetch %d: %v", k, n, err)
					return
				}
			}
		})
	}
	for n := range 12 {
		mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": fmt.Sprintln("round", n)}})
		if err := r.Settle(t.Context()); err != nil {
			t.Fatalf("Settle: %v", err)
		}
		mustIndex(t, r)
		_, err := r.merge(t.Context(), 2)
		if err == nil {
			_, err = r.writeIndex(t.Context(), true)
		}
		if err == nil {
			err = r.removeIndexes(t.Context(), 0)
		}
		if err == nil {
			_, err = r.removeCondemned(t.Context(), 1)
		}
		if err != nil {
			t.Fatalf("upkeep, round %d: %v", n, err)
		}
	}
	stop()
	fetches.Wait()
	if err := r.removeIndexes(t.Context(), 0); err != nil {
		t.Errorf("removeIndexes: %v", err)
	}
	if folders, err := r.dir.Indexes(); err != nil || len(folders) != 1 {
		t.Errorf("index folders %v, %v; want one when nobody reads any more", folders, err)
	}
}

// fetchedIDs fetches all that wants lead to and gives the objects that came.
func fetchedIDs(t testing.TB, r *Repo, c Caller, wants []refpolicy.OID) (map[string]bool, error) {
	var more []string
	for _, oid := range wants[1:] {
		more = append(more, "want "+oid.String()+"\n")
	}
	answer, err := fetchPack(t.Context(), r, c, wants[0], more...)
	if err != nil {
		return nil, err
	}
	var pack []byte
	in := wire.NewReader(bytes.NewReader(answer), 0)
	for {
		kind, data, err := in.Next()
		if err != nil {
			break // the end: fetchPack has seen that it is there
		}
		if kind == wire.Data && len(data) > 0 && data[0] == wire.BandData {
			pack = append(pack, data[1:]...)
		}
	}
	plain := t.TempDir()
	git(t, plain, nil, "init", "-q", "--bare", ".")
	sum := strings.Fields(git(t, plain, pack, "index-pack", "--stdin", "--strict"))
	if len(sum) != 2 {
		return nil, fmt.Errorf("git index-pack took the fetched pack for %q", sum)
	}
	ids := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(git(t, plain, nil, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")), "\n") {
		ids[line] = true
	}
	return ids, nil
}

// wantWholeClone compares what a clone of all refs gets with what they lead to.
func wantWholeClone(t testing.TB, r *Repo) error {
	refs, err := r.Refs(t.Context(), someone, "refs/", "", 0)
	if err != nil || len(refs) == 0 {
		return err
	}
	seen := completeness{r, map[refpolicy.OID]bool{}}
	var wants []refpolicy.OID
	for _, ref := range refs {
		wants = append(wants, ref.OID)
		if err := seen.walk(t.Context(), ref.OID); err != nil {
			return fmt.Errorf("%s: %w", ref.Name, err)
		}
	}
	got, err := fetchedIDs(t, r, someone, wants)
	if err != nil {
		return err
	}
	want := map[string]bool{}
	for oid := range seen.seen {
		want[oid.String()] = true
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("clone got %d objects, refs lead to %d:\n%v\n%v", len(got), len(want), slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	return nil
}

// Whatever is pushed, deleted, settled, merged, indexed and pruned in whatever order,
// a clone gets exactly what refs lead to, and git and our own check find nothing wrong.
func TestPropertyClonesAreWholeUnderUpkeep(t *testing.T) {
	runs, failed := 0, false
	rapid.Check(t, func(rt *rapid.T) {
		// Each run is many git processes, so fewer do; a failure is looked into all the same.
		if runs++; runs > 25 && !failed {
			return
		}
		failed = true
		s := openTestStore(t, func(o *Options) { o.Limits, o.Logger = Limits{UpkeepEvery: -1, HotPackBytes: 3000}, quiet })
		defer s.Close(t.Context())
		if _, err := s.CreateRepo(t.Context(), someone, "acme", "repo", "main", nil); err != nil {
			rt.Fatalf("CreateRepo: %v", err)
		}
		r, err := s.Repo(t.Context(), "acme", "repo")
		if err != nil {
			rt.Fatalf("Repo: %v", err)
		}
		mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "first\n"}})
		steps := upkeepSteps(t, r)
		for n := range rapid.IntRange(4, 10).Draw(rt, "steps") {
			name := rapid.SampledFrom(slices.Sorted(maps.Keys(steps))).Draw(rt, "step")
			if err := steps[name](rapid.IntRange(0, 3).Draw(rt, "which"), n); err != nil {
				rt.Fatalf("step %d, %s: %v", n, name, err)
			}
		}
		if err := wantWholeClone(t, r); err != nil {
			rt.Fatalf("clone: %v", err)
		}
		if findings, err := s.Fsck(t.Context(), r); err != nil || len(findings) > 0 {
			rt.Fatalf("Fsck = %v, %v", findings, err)
		}
		checkRepo(t, r)
		failed = false
	})
}

// upkeepSteps are what can happen to a repo, by name.
func upkeepSteps(t *testing.T, r *Repo) map[string]func(which, n int) error {
	ctx := t.Context()
	branch := func(which int) refpolicy.RefName {
		return refpolicy.RefName(fmt.Sprintf("%ss/%d", refpolicy.EphemeralBranchPrefix, which))
	}
	commit := func(which, n int, text string) error {
		tc := testCommit{target: branch(which), base: mainRef, files: map[string]string{fmt.Sprint("f", n): text}}
		_, err := tc.make(ctx, r, someone)
		return err
	}
	return map[string]func(which, n int) error{
		"commit":       func(which, n int) error { return commit(which, n, fmt.Sprintln("state", n)) },
		"commit large": func(which, n int) error { return commit(which, n, strings.Repeat(fmt.Sprintln("line", n, which), 500)) },
		"delete": func(which, _ int) error {
			err := r.DeleteBranch(ctx, someone, branch(which), nil)
			if errors.Is(err, ErrRefNotFound) {
				return nil
			}
			return err
		},
		"settle":         func(int, int) error { return r.Settle(ctx) },
		"merge":          func(which, _ int) error { _, err := r.merge(ctx, 1+which%2); return err },
		"index":          func(int, int) error { _, err := r.writeIndex(ctx, true); return err },
		"prune":          func(which, _ int) error { _, err := r.prune(ctx, which > 0); return err },
		"remove packs":   func(int, int) error { _, err := r.removeCondemned(ctx, 0); return err },
		"remove indexes": func(int, int) error { return r.removeIndexes(ctx, 0) },
		"fetch":          func(int, int) error { return wantWholeClone(t, r) },
	}
}

// Two nodes on one folder: each uses what the other wrote, an index of which the other
// may still have users stays, and one that was written over another's is refused.
func TestIndexOfTwoNodes(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, start func(testing.TB) opener) {
		db, dir := start(t)(t), t.TempDir()
		t.Cleanup(func() { db.Close() })
		var nodes [2]*Repo
		for i := range nodes {
			s := openTestStore(t, func(o *Options) {
				o.Dir, o.Ledger, o.Shared, o.Limits, o.Logger = dir, db, true, Limits{UpkeepEvery: -1}, quiet
			})
			if i == 0 {
				newTestRepo(t, s, "repo")
			}
			r, err := s.Repo(t.Context(), "acme", "repo")
			if err != nil {
				t.Fatalf("Repo: %v", err)
			}
			nodes[i] = r
		}
		one, two := nodes[0], nodes[1]
		commit := func(text string) {
			mustCommit(t, one, someone, testCommit{target: mainRef, files: map[string]string{"a": text}})
			if err := one.Settle(t.Context()); err != nil {
				t.Fatalf("Settle: %v", err)
			}
		}
		commit("first\n")
		mustIndex(t, one)
		path, release := two.useIndex(t.Context())
		if path == "" {
			t.Fatalf("the second node uses no index")
		}
		defer release()
		commit("second\n")
		// The first node begins from what it knows; the second is done sooner.
		pointer, _, err := one.currentIndex(t.Context())
		if err != nil {
			t.Fatalf("currentIndex: %v", err)
		}
		_, list, err := one.livePacks(t.Context())
		if err != nil {
			t.Fatalf("livePacks: %v", err)
		}
		mustIndex(t, two)
		now, err := one.ledger.Now(t.Context())
		if err != nil {
			t.Fatalf("Now: %v", err)
		}
		var check *ledger.CheckError
		if err := one.makeIndex(t.Context(), pointer, list, now); !errors.As(err, &check) {
			t.Errorf("index over an older one = %v, want it refused", err)
		}
		if err := one.removeIndexes(t.Context(), 0); err != nil {
			t.Errorf("removeIndexes: %v", err)
		}
		if folders, err := one.dir.Indexes(); err != nil || len(folders) != 2 {
			t.Errorf("index folders %v, %v; want the one in use and the one the second node may read in", folders, err)
		}
		for i, r := range nodes {
			if got, release := r.useIndex(t.Context()); got == "" || got == path {
				t.Errorf("node %d uses index %q, want the second node's new one", i, got)
			} else {
				release()
			}
			if err := wantWholeClone(t, r); err != nil {
				t.Errorf("clone from node %d: %v", i, err)
			}
		}
	})
}
