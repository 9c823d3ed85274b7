package gitstore

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

const (
	mainRef  = refpolicy.RefName("refs/heads/main")
	sessionA = refpolicy.RefName("refs/namespaces/ephemeral/refs/heads/sessions/a")
	sessionB = refpolicy.RefName("refs/namespaces/ephemeral/refs/heads/sessions/b")
)

func TestA03_CommitKeepsWhatWasNotSent(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	first := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n", "d/b": "2\n"}})
	second := mustCommit(t, r, someone, testCommit{target: mainRef, expected: first.Commit.String(), files: map[string]string{"d/c": "3\n"}})
	if second.Old != first.Commit {
		t.Errorf("old value is %s, want %s", second.Old, first.Commit)
	}
	got, _, err := r.Tree(t.Context(), second.Commit, ListTree{Recursive: true})
	if err != nil {
		t.Fatalf("Tree: %v", err)
	}
	var paths []string
	for _, e := range got {
		paths = append(paths, e.Path)
	}
	if fmt.Sprint(paths) != "[a d d/b d/c]" {
		t.Errorf("paths are %v, want a, d, d/b, d/c", paths)
	}
}

func TestA04_StaleHeadIsRefusedWithThePresentOne(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	first := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n"}})
	second := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "2\n"}})
	_, err := testCommit{target: mainRef, expected: first.Commit.String(), files: map[string]string{"a": "3\n"}}.make(t.Context(), r, someone)
	var moved *RefMovedError
	if !errors.As(err, &moved) || moved.Present != second.Commit || moved.Writer != "tester" {
		t.Fatalf("stale commit: %v, want a RefMovedError with %s by tester", err, second.Commit)
	}
}

func TestA05_ParallelCASHasOneWinner(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	base := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}})
	const writers = 200
	var wg sync.WaitGroup
	var mu sync.Mutex
	var winners []refpolicy.OID
	var losers []*RefMovedError
	for i := range writers {
		wg.Go(func() {
			res, err := testCommit{target: mainRef, expected: base.Commit.String(), files: map[string]string{"a": fmt.Sprintf("by %d\n", i)}}.make(t.Context(), r, someone)
			mu.Lock()
			defer mu.Unlock()
			var moved *RefMovedError
			switch {
			case err == nil:
				winners = append(winners, res.Commit)
			case errors.As(err, &moved):
				losers = append(losers, moved)
			default:
				t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if len(winners) != 1 || len(losers) != writers-1 {
		t.Fatalf("%d winners and %d losers, want 1 and %d", len(winners), len(losers), writers-1)
	}
	for _, l := range losers {
		if l.Present != winners[0] {
			t.Errorf("a loser was told %s, want the winner %s", l.Present, winners[0])
		}
	}
	if n := r.heat.objects.Load(); n != 6 { // two commits of a blob, a tree and a commit each
		t.Errorf("%d hot objects after one base and one winner, want 6: nothing of the losers stays", n)
	}
}

func TestA06_DeletesAndOrder(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n", "d/only": "2\n"}})
	spec := CommitSpec{
		Target: mainRef, Message: "m", Author: Signature{Name: "T", Email: "t@example.org"},
		Files: []FileChange{{Path: "d/only", Delete: true}, {Path: "x", ContentID: "1"}, {Path: "x", ContentID: "2"}, {Path: "nope", Delete: true}},
	}
	w, err := r.NewCommit(t.Context(), someone, spec)
	if err != nil {
		t.Fatalf("NewCommit: %v", err)
	}
	defer w.Abort()
	for id, text := range map[string]string{"1": "first", "2": "last"} {
		if err := w.Write(id, []byte(text), true); err != nil {
			t.Fatalf("Write(%s): %v", id, err)
		}
	}
	res, err := w.Commit(t.Context())
	if err != nil {
		t.Fatalf("Commit: %v", err)
	}
	f, err := r.File(t.Context(), res.Commit, "x")
	if err != nil || f.Size != int64(len("last")) {
		t.Errorf("x is %+v, %v; want the last content", f, err)
	}
	if _, err := r.File(t.Context(), res.Commit, "d/only"); !errors.Is(err, ErrPathNotFound) {
		t.Errorf("d/only: %v, want ErrPathNotFound", err)
	}
}

func TestCase4_2_FileAndFolderInTheWay(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n", "d/x": "2\n"}})
	for _, path := range []string{"a/b", "d"} {
		_, err := testCommit{target: mainRef, files: map[string]string{path: "new\n"}}.make(t.Context(), r, someone)
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("upsert %s: %v, want ErrInvalid", path, err)
		}
	}
}

func TestCase4_3_EmptyTreeAndNoChange(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n"}})
	gone := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": ""}})
	if gone.Tree != emptyTree {
		t.Errorf("tree is %s, want the empty tree", gone.Tree)
	}
	if _, err := (testCommit{target: mainRef}).make(t.Context(), r, someone); !errors.Is(err, ErrNoChanges) {
		t.Errorf("empty commit: %v, want ErrNoChanges", err)
	}
}

// manyFolders are files of one content, each in a folder of its own.
func manyFolders(n int, text string) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("%d/f", i)] = fmt.Sprint(text, i)
	}
	return files
}

// A commit may have more trees than one batch takes: they come in a pack.
func TestCommitOfMoreTreesThanABatchTakes(t *testing.T) {
	s := openTestStore(t, nil)
	r := newTestRepo(t, s, "wide")
	first := mustCommit(t, r, someone, testCommit{target: mainRef, files: manyFolders(ledger.MaxBatchKeys+100, "first ")})
	wantFile(t, r, first.Commit, "20050/f", "first 20050")
	if n := r.heat.objects.Load(); n != 0 {
		t.Errorf("%d objects are hot, want none", n)
	}
	before, err := r.dir.Files()
	if err != nil || len(before) != 2 {
		t.Errorf("pack files are %v, %v; want one of blobs and one of trees", before, err)
	}
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"20050/f": "second\n"}})
	_, err = testCommit{target: mainRef, expected: first.Commit.String(), files: manyFolders(6000, "stale ")}.make(t.Context(), r, someone)
	if !isMovedErr(err) {
		t.Errorf("a stale commit: %v, want a RefMovedError", err)
	}
	if after, err := r.dir.Files(); err != nil || len(after) != 2 {
		t.Errorf("pack files after a refused commit are %v, %v; want %v", after, err, before)
	}
}
