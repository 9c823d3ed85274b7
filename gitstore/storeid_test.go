package gitstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
)

// ledgerID is the id that a ledger has.
func ledgerID(t testing.TB, l ledger.Ledger) string {
	t.Helper()
	raw, err := readKey(t.Context(), l.ReadKeys, ledger.ServerSpace, storeKey)
	if err != nil {
		t.Fatalf("read id of the ledger: %v", err)
	}
	return string(raw)
}

func folderID(t testing.TB, dir string) string {
	t.Helper()
	id, err := readStoreID(dir)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// wantOneID demands that folder and ledger have one and the same id, and gives it.
func wantOneID(t testing.TB, dir string, l ledger.Ledger) string {
	t.Helper()
	folder, there := folderID(t, dir), ledgerID(t, l)
	if folder != there || !strings.HasPrefix(folder, "store-") {
		t.Errorf("folder has id %q, ledger %q, want one", folder, there)
	}
	return folder
}

// reposTree lists all files below a data folder's repos.
func reposTree(t testing.TB, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "repos"), func(path string, _ os.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// filled makes a store with a repo that has packs, and closes it.
func filled(t *testing.T) (dir string, l ledger.Ledger) {
	t.Helper()
	dir, l = t.TempDir(), openTestLedger(t)
	s, err := Open(t.Context(), Options{Dir: dir, Ledger: l, Logger: quiet})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	r := mustRepo(t, s, "kept")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "text\n"}})
	if err := s.Close(context.Background()); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if packs, _ := filepath.Glob(filepath.Join(dir, "repos", "*", "repo_*", "packs", "*.pack")); len(packs) == 0 {
		t.Fatal("the repo has no packs")
	}
	return dir, l
}

func mustRepo(t testing.TB, s *Store, name string) *Repo {
	t.Helper()
	if _, err := s.CreateRepo(t.Context(), someone, "acme", name, "main", nil); err != nil {
		t.Fatalf("CreateRepo %s: %v", name, err)
	}
	r, err := s.Repo(t.Context(), "acme", name)
	if err != nil {
		t.Fatalf("Repo %s: %v", name, err)
	}
	return r
}

// opens opens and closes a store, and gives the error of opening it.
func opens(t testing.TB, dir string, l ledger.Ledger) error {
	t.Helper()
	s, err := Open(t.Context(), Options{Dir: dir, Ledger: l, Logger: quiet})
	if err == nil {
		err = s.Close(context.Background())
	}
	return err
}

// unname makes a store one of before there were ids.
func unname(t testing.TB, dir string, l ledger.Ledger) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, storeFile)); err != nil {
		t.Fatal(err)
	}
	if l == nil {
		return
	}
	if _, err := l.Apply(t.Context(), ledger.Batch{Space: ledger.ServerSpace, Deletes: []string{storeKey}}); err != nil {
		t.Fatal(err)
	}
}

// A folder and a ledger that do not belong together are refused, and nothing changes in
// either.
func TestOpenRefusesALedgerThatIsNotTheFolders(t *testing.T) {
	for name, build := range map[string]func(t *testing.T) (string, ledger.Ledger){
		"a ledger that is new": func(t *testing.T) (string, ledger.Ledger) {
			dir, _ := filled(t)
			return dir, openTestLedger(t)
		},
		"the ledger of another store": func(t *testing.T) (string, ledger.Ledger) {
			dir, _ := filled(t)
			_, other := filled(t)
			return dir, other
		},
		"an older folder and a new ledger": func(t *testing.T) (string, ledger.Ledger) {
			dir, l := filled(t)
			unname(t, dir, l)
			return dir, openTestLedger(t)
		},
		"an older folder and another store's ledger": func(t *testing.T) (string, ledger.Ledger) {
			dir, l := filled(t)
			unname(t, dir, l)
			_, other := filled(t)
			return dir, other
		},
		"an empty folder and a ledger with repos": func(t *testing.T) (string, ledger.Ledger) {
			_, l := filled(t)
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "repos"), 0o755); err != nil {
				t.Fatal(err)
			}
			return dir, l
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, l := build(t)
			files, folder, id := reposTree(t, dir), folderID(t, dir), ledgerID(t, l)
			err := opens(t, dir, l)
			var foreign *ForeignLedgerError
			if !errors.As(err, &foreign) || foreign.Dir != dir || foreign.Folder != folder || foreign.Ledger != id {
				t.Fatalf("Open = %v, want a *ForeignLedgerError of folder %q and ledger %q", err, folder, id)
			}
			for _, want := range []string{dir, folder, id} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Open = %q, want it to name %q", err, want)
				}
			}
			if after := reposTree(t, dir); !slices.Equal(after, files) {
				t.Errorf("files are %q after the refusal, want %q", after, files)
			}
			if f, i := folderID(t, dir), ledgerID(t, l); f != folder || i != id {
				t.Errorf("ids are %q and %q after the refusal, want %q and %q", f, i, folder, id)
			}
		})
	}
}

// A store of before there were ids gets one; one that was cut short in that, or lost the
// folder's, gets the ledger's.
func TestOpenNamesAnOlderStore(t *testing.T) {
	dir, l := filled(t)
	first := wantOneID(t, dir, l)
	files := reposTree(t, dir)
	unname(t, dir, nil)
	if err := opens(t, dir, l); err != nil {
		t.Fatalf("Open of a folder that lost its id: %v", err)
	}
	if id := wantOneID(t, dir, l); id != first {
		t.Errorf("the folder has id %s, want the ledger's %s", id, first)
	}
	unname(t, dir, l)
	if err := opens(t, dir, l); err != nil {
		t.Fatalf("Open of an older store: %v", err)
	}
	if id := wantOneID(t, dir, l); id == first {
		t.Errorf("the upgraded store has the id that was removed, %s", id)
	}
	if after := reposTree(t, dir); !slices.Equal(after, files) {
		t.Errorf("files are %q after the upgrade, want %q", after, files)
	}
}

// Nodes that start at once on a new folder agree, and of two ledgers one has it.
func TestOpenAtOnceAgrees(t *testing.T) {
	const nodes = 4
	start := func(ledgers ...ledger.Ledger) (dir string, errs []error) {
		dir, errs = t.TempDir(), make([]error, nodes)
		var all sync.WaitGroup
		for i := range nodes {
			all.Go(func() {
				s, err := Open(t.Context(), Options{Dir: dir, Ledger: ledgers[i%len(ledgers)], Shared: true, Logger: quiet})
				if err == nil {
					err = s.Close(context.Background())
				}
				errs[i] = err
			})
		}
		all.Wait()
		return dir, errs
	}
	one := openTestLedger(t)
	dir, errs := start(one)
	if err := errors.Join(errs...); err != nil {
		t.Errorf("Open of %d nodes at once: %v", nodes, err)
	}
	wantOneID(t, dir, one)

	two := []ledger.Ledger{openTestLedger(t), openTestLedger(t)}
	dir, errs = start(two...)
	id := folderID(t, dir)
	for i, err := range errs {
		var foreign *ForeignLedgerError
		if own := ledgerID(t, two[i%2]) == id; own != (err == nil) || !own && !errors.As(err, &foreign) {
			t.Errorf("Open of node %d, whose ledger has the folder's id: %t, = %v", i, own, err)
		}
	}
}

// What is restored is another store than the one that was backed up.
func TestRestoreGivesAnIDOfItsOwn(t *testing.T) {
	dir, l := filled(t)
	s := openTestStore(t, func(o *Options) { o.Dir, o.Ledger, o.Logger = dir, l, quiet })
	to := t.TempDir()
	backupTo(t, s, to, nil)
	back := restored(t, to)
	if old, id := wantOneID(t, dir, l), wantOneID(t, back.dir, back.ledger); id == old {
		t.Errorf("both stores have the id %s", id)
	}
	var foreign *ForeignLedgerError
	if err := opens(t, back.dir, l); !errors.As(err, &foreign) {
		t.Errorf("Open of the restored folder with the old ledger = %v, want a *ForeignLedgerError", err)
	}
}

func TestCheckUnused(t *testing.T) {
	fresh, old := t.TempDir(), t.TempDir()
	named, l := filled(t)
	for _, dir := range []string{fresh, filepath.Join(fresh, "none")} {
		if err := CheckUnused(dir); err != nil {
			t.Errorf("CheckUnused of a new folder = %v", err)
		}
	}
	var foreign *ForeignLedgerError
	if err := CheckUnused(named); !errors.As(err, &foreign) || foreign.Folder != ledgerID(t, l) {
		t.Errorf("CheckUnused of a folder with an id = %v, want a *ForeignLedgerError", err)
	}
	repo := filepath.Join(old, "repos", "ab", "repo_ab")
	if err := os.MkdirAll(repo, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := CheckUnused(old); err != nil {
		t.Errorf("CheckUnused of a folder with a half-made repo = %v", err)
	}
	if err := os.WriteFile(filepath.Join(repo, "config"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := CheckUnused(old); !errors.As(err, &foreign) || foreign.Repo != "repo_ab" {
		t.Errorf("CheckUnused of a folder with a repo = %v, want a *ForeignLedgerError", err)
	}
}
