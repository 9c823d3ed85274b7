package gitstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/refpolicy"
)

// What children of one state made of it is told path by path, as a look into each of
// them one by one finds it.
func TestCompareTipsIsWhatTheFilesSay(t *testing.T) {
	fewerChecks(t, 25)
	s := openTestStore(t, nil)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		r := newTestRepo(t, s, fmt.Sprint("repo-", n))
		names := rapid.SampledFrom([]string{"a", "a.txt", "a/b", "a/b/c", "a-b", "a/c", "b/x", "b"})
		contents := rapid.SampledFrom([]string{"1", "2", ""})
		base := drawTree(rt, names, contents)
		made, err := commitState(t.Context(), r, mainRef, nil, base)
		if err != nil {
			rt.Fatalf("commit: %v", err)
		}
		first := made.Commit
		states := []map[string]string{base}
		tips := []refpolicy.OID{}
		for i := range rapid.IntRange(0, 4).Draw(rt, "tips") {
			state := drawTree(rt, names, contents)
			states = append(states, state)
			res, err := commitState(t.Context(), r, refpolicy.RefName(fmt.Sprint("refs/heads/t", i)), base, state)
			if errors.Is(err, ErrNoChanges) {
				res.Commit, err = first, nil
			}
			if err != nil {
				rt.Fatalf("commit: %v", err)
			}
			tips = append(tips, res.Commit)
		}
		limit := rapid.IntRange(1, 6).Draw(rt, "limit")
		got, err := r.compareTips(t.Context(), first, tips, limit)
		if err != nil {
			rt.Fatalf("compareTips: %v", err)
		}
		want := TipComparison{Paths: []PathComparison{}}
		paths := map[string]bool{}
		for _, state := range states {
			for p := range state {
				paths[p] = true
			}
		}
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			c := PathComparison{Path: path, Base: pathState(states[0], path), Tips: []PathState{}}
			changed := false
			for _, state := range states[1:] {
				c.Tips = append(c.Tips, pathState(state, path))
				changed = changed || pathState(state, path) != c.Base
			}
			if changed && len(want.Paths) == limit {
				want.Truncated = true
			} else if changed {
				want.Paths = append(want.Paths, c)
			}
		}
		if !reflect.DeepEqual(got, want) {
			rt.Fatalf("compareTips of %v at most %d:\n%+v\nwant\n%+v", states, limit, got, want)
		}
	})
}

// commitState commits on target what makes a tree of files out of main's tree, which is before.
func commitState(ctx context.Context, r *Repo, target refpolicy.RefName, before, files map[string]string) (CommitResult, error) {
	spec := CommitSpec{Target: target, Message: "tree", Author: Signature{Name: "A", Email: "a@example.com"}}
	if before != nil {
		spec.Base = mainRef
	}
	for path := range before {
		if _, kept := files[path]; !kept {
			spec.Files = append(spec.Files, FileChange{Path: path, Delete: true})
		}
	}
	for path := range files {
		spec.Files = append(spec.Files, FileChange{Path: path, ContentID: path})
	}
	w, err := r.NewCommit(ctx, someone, spec)
	if err != nil {
		return CommitResult{}, err
	}
	defer w.Abort()
	for path, data := range files {
		if err := w.Write(path, []byte(data), true); err != nil {
			return CommitResult{}, err
		}
	}
	return w.Commit(ctx)
}

// drawTree draws files of which none is another's folder; at least one.
func drawTree(rt *rapid.T, names, contents *rapid.Generator[string]) map[string]string {
	files := map[string]string{"keep": "0"}
	for path, data := range rapid.MapOfN(names, contents, 0, 4).Draw(rt, "files") {
		if fits(files, path) {
			files[path] = data
		}
	}
	return files
}

func fits(files map[string]string, path string) bool {
	for p := range files {
		if len(p) < len(path) && path[:len(p)+1] == p+"/" || len(path) < len(p) && p[:len(path)+1] == path+"/" {
			return false
		}
	}
	return true
}

func pathState(files map[string]string, path string) PathState {
	data, ok := files[path]
	if !ok {
		return PathState{}
	}
	return PathState{OID: newObject(BlobObject, []byte(data)).OID, Mode: ModeFile}
}

// What the caller may not read is not compared.
func TestCompareTipsNeedsReading(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "repo")
	base := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1"}}).Commit
	tip := mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"a": "2"}}).Commit
	for _, tc := range []struct {
		c    Caller
		tips []refpolicy.OID
		ok   bool
	}{
		{someone, []refpolicy.OID{tip, base}, true},
		{confined(t, sessionA), []refpolicy.OID{tip}, true},
		{confined(t, mainRef), []refpolicy.OID{tip}, false},
		{someone, []refpolicy.OID{tip, {1}}, false},
	} {
		got, err := r.CompareTips(t.Context(), tc.c, base, tc.tips)
		if ok := err == nil && len(got.Paths) == 1 && got.Paths[0].Path == "a"; ok != tc.ok || !ok && !errors.Is(err, ErrObjectNotFound) {
			t.Errorf("CompareTips(%v) = %+v, %v; want it told: %v", tc.tips, got, err, tc.ok)
		}
	}
}
