package gitstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// A ledger that has lost a repo while the store is open takes none of its packs along.
func TestJanitorSparesARepoThatTheLedgerDoesNotKnow(t *testing.T) {
	for _, shared := range []bool{false, true} {
		dir, l := filled(t)
		s := openTestStore(t, func(o *Options) { o.Dir, o.Ledger, o.Shared, o.Logger = dir, l, shared, quiet })
		r, err := s.Repo(t.Context(), "acme", "kept")
		if err != nil {
			t.Fatalf("Repo: %v", err)
		}
		long := time.Now().Add(-2 * sharedGrace)
		for _, name := range reposTree(t, dir) {
			if err := os.Chtimes(name, long, long); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Drop(t.Context(), r.space); err != nil {
			t.Fatal(err)
		}
		packsBefore, err := r.dir.Files()
		if err != nil || len(packsBefore) == 0 {
			t.Fatalf("packs = %v, %v", packsBefore, err)
		}
		for name, do := range map[string]func() error{
			"tidy":            func() error { return r.tidy(t.Context()) },
			"removeCondemned": func() error { _, err := r.removeCondemned(t.Context(), 0); return err },
			"discardPack":     func() error { return r.discardPack(t.Context(), packsBefore[0]) },
			"open anew": func() error {
				s.forget(r)
				_, err := s.opened(t.Context(), r.id)
				return err
			},
		} {
			err := do()
			if name == "discardPack" && !errors.Is(err, ErrRepoNotFound) {
				t.Errorf("shared %t: %s = %v, want ErrRepoNotFound", shared, name, err)
			}
			after, lerr := filepath.Glob(filepath.Join(r.dir.Root(), "packs", "pack-*.pack"))
			if lerr != nil || len(after) != len(packsBefore) {
				t.Errorf("shared %t: after %s = %v the packs are %v, %v, want %v", shared, name, err, after, lerr, packsBefore)
			}
		}
	}
}

// A store that only looks leaves what the janitor would remove, and settles nothing.
func TestLookingRemovesNothing(t *testing.T) {
	dir, l := filled(t)
	s, err := Open(t.Context(), Options{Dir: dir, Ledger: l, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Repo(t.Context(), "acme", "kept")
	if err != nil {
		t.Fatal(err)
	}
	packs := filepath.Join(r.dir.Root(), "packs")
	stray := filepath.Join(packs, "pack-"+strings.Repeat("ab", 20)+".pack")
	for _, name := range []string{stray, filepath.Join(packs, "incoming-x.tmp")} {
		if err := os.WriteFile(name, []byte("left"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.writeIntent(t.Context(), "repo_half", repoIntent{Org: "acme", Name: "half", At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"b": "hot\n"}})
	before := reposTree(t, dir)

	looking, err := Open(t.Context(), Options{Dir: dir, Ledger: l, Looking: true, Logger: quiet})
	if err != nil {
		t.Fatalf("Open to look: %v", err)
	}
	err = looking.FsckAll(t.Context(), nil, func(RepoInfo, []Finding) error { return nil })
	if err = errors.Join(err, looking.Close(context.Background())); err != nil {
		t.Errorf("FsckAll and Close: %v", err)
	}
	if after := reposTree(t, dir); !slices.Equal(after, before) {
		t.Errorf("files after looking are %q, want %q", after, before)
	}
	if raw, err := readKey(t.Context(), l.ReadKeys, ledger.ServerSpace, intentKeys+"repo_half"); raw == nil || err != nil {
		t.Errorf("the intent is gone after looking: %v", err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}

	s = openTestStore(t, func(o *Options) { o.Dir, o.Ledger, o.Logger = dir, l, quiet })
	if _, err := s.Repo(t.Context(), "acme", "kept"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stray); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a store that is opened to work leaves %s: %v", stray, err)
	}
}
