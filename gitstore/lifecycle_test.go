package gitstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger"
)

// The answer to one of the batches of creating or deleting a repo is lost, whichever
// it is and whether or not it was applied. When the store is opened again the repo
// is there and whole, or its name is free and nothing of it is left.
func TestG03_LostAnswersOfReposComingAndGoing(t *testing.T) {
	for _, deleting := range []bool{false, true} {
		for _, applied := range []bool{false, true} {
			for nth := range 4 {
				t.Run(fmt.Sprintf("deleting-%v/applied-%v/batch-%d", deleting, applied, nth), func(t *testing.T) {
					loseAnswer(t, deleting, applied, nth)
				})
			}
		}
	}
}

func loseAnswer(t *testing.T, deleting, applied bool, nth int) {
	mem, dir := vfs.NewMem(), t.TempDir()
	h := &hookedLedger{Ledger: pebbleIn(mem)(t)}
	s, err := Open(t.Context(), Options{Dir: dir, Ledger: h, Logger: quiet})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	if deleting {
		if _, err := s.CreateRepo(t.Context(), someone, "acme", "one", "main", nil); err != nil {
			t.Fatalf("CreateRepo: %v", err)
		}
	}
	n := -1
	h.hook(func(ledger.Batch) bool { n++; return n == nth }, func(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
		if applied {
			if _, err := h.Ledger.Apply(ctx, b); err != nil {
				t.Errorf("Apply: %v", err)
			}
		}
		return ledger.Result{}, ledger.ErrUnavailable
	})
	if deleting {
		_, err = s.DeleteRepo(t.Context(), someone, "acme", "one", nil)
	} else {
		_, err = s.CreateRepo(t.Context(), someone, "acme", "one", "main", nil)
	}
	acknowledged := err == nil
	if err := errors.Join(s.Close(t.Context()), h.Close()); err != nil {
		t.Fatalf("close: %v", err)
	}
	db := pebbleIn(mem)(t)
	defer db.Close()
	if s, err = Open(t.Context(), Options{Dir: dir, Ledger: db, Logger: quiet}); err != nil {
		t.Fatalf("open again: %v", err)
	}
	defer s.Close(context.Background())
	r, err := s.Repo(t.Context(), "acme", "one")
	if exists := err == nil; acknowledged && exists == deleting {
		t.Errorf("the repo exists: %v, %v; acknowledged was the opposite", exists, err)
	}
	folders := 0
	if err == nil {
		mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n"}})
		folders = 1
	} else if !errors.Is(err, ErrRepoNotFound) {
		t.Errorf("Repo: %v, want it or ErrRepoNotFound", err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "repos", "*", "*"))
	if err != nil || len(found) != folders {
		t.Errorf("folders of repos are %v, %v; want %d", found, err, folders)
	}
	v, err := db.Read(t.Context(), ledger.ServerSpace)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	defer v.Close()
	if left, err := scanAll(t.Context(), v, intentKeys); err != nil || len(left) > 0 {
		t.Errorf("intents left: %v, %v; want none", left, err)
	}
	if folders == 0 {
		if _, err := s.CreateRepo(t.Context(), someone, "acme", "one", "main", nil); err != nil {
			t.Errorf("CreateRepo of the free name: %v", err)
		}
	}
}

// phantomLedger shows what is not durable yet in Peek alone, and takes it back.
type phantomLedger struct {
	ledger.Ledger
	shown map[string][]byte
}

func (p phantomLedger) Peek(ctx context.Context, s ledger.Space) (ledger.View, error) {
	v, err := p.Ledger.Peek(ctx, s)
	return phantomView{v, p.shown}, err
}

func (p phantomLedger) PeekKeys(ctx context.Context, s ledger.Space, keys ...string) ([][]byte, error) {
	v, err := p.Peek(ctx, s)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return v.GetMany(ctx, keys...)
}

type phantomView struct {
	ledger.View
	shown map[string][]byte
}

func (v phantomView) GetMany(ctx context.Context, keys ...string) ([][]byte, error) {
	got, err := v.View.GetMany(ctx, keys...)
	for n, key := range keys {
		if raw, ok := v.shown[key]; ok && err == nil {
			got[n] = raw
		}
	}
	return got, err
}

// A change that was being synced when the disk failed is taken back. Whoever saw it
// while preparing is refused nothing because of it.
func TestG03_NoVerdictFromWhatIsNotDurable(t *testing.T) {
	db := openTestLedger(t)
	p := phantomLedger{db, map[string][]byte{}}
	s := openTestStore(t, func(o *Options) { o.Ledger = p })
	r := newTestRepo(t, s, "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n"}})
	p.shown[refKey(mainRef)] = refRecord{oid: newBlob("phantom").OID, writer: "nobody"}.encode()
	p.shown[refKey("refs/heads/free")] = refRecord{oid: head.Commit, writer: "nobody"}.encode()
	next := mustCommit(t, r, someone, testCommit{target: mainRef, expected: head.Commit.String(), files: map[string]string{"a": "2\n"}})
	if _, err := r.CreateBranch(t.Context(), someone, BranchSpec{Target: "refs/heads/free", Base: next.Commit.String()}); err != nil {
		t.Errorf("CreateBranch where a branch was only seen unsynced: %v", err)
	}
}

// The folder of a store is made with all its parents.
func TestOpenMakesItsFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b", "data")
	openTestStore(t, func(o *Options) { o.Dir = dir })
	if _, err := os.Stat(filepath.Join(dir, "repos")); err != nil {
		t.Errorf("folder of repos: %v", err)
	}
}
