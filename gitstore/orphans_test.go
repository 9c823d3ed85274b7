package gitstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// What a process had in quarantine when it died is removed by the others on its data
// folder, and by its successor; what a living one has stays.
func TestOrphansOfADeadProcess(t *testing.T) {
	dir, l := t.TempDir(), openTestLedger(t)
	open := func() *Store {
		return openTestStore(t, func(o *Options) { o.Dir, o.Ledger, o.Shared = dir, l, true })
	}
	dying, living := open(), open()
	r := newTestRepo(t, dying, "repo")
	leave := func(s *Store) []string {
		t.Helper()
		r, err := s.opened(t.Context(), r.id)
		if err != nil {
			t.Fatalf("open repo: %v", err)
		}
		folder, err := r.dir.Incoming()
		if err != nil {
			t.Fatalf("Incoming: %v", err)
		}
		if err := os.WriteFile(filepath.Join(folder, "pack", "tmp_pack_x"), []byte("PACK"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := r.dir.NewWriter(t.Context()); err != nil {
			t.Fatalf("NewWriter: %v", err)
		}
		files, err := filepath.Glob(filepath.Join(r.dir.Root(), "packs", "incoming-"+s.scratch.owner()+"-*"))
		if err != nil || len(files) != 2 {
			t.Fatalf("incoming of %s: %v, %v; want a folder and a file", s.scratch.owner(), files, err)
		}
		return files
	}
	wantThere := func(what string, files []string, want bool) {
		t.Helper()
		for _, path := range files {
			if _, err := os.Stat(path); (err == nil) != want || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s: %v, want it there: %v", what, filepath.Base(path), err, want)
			}
		}
	}
	dead, kept := leave(dying), leave(living)
	if again, err := sweepScratch(filepath.Join(dir, "scratch")); err != nil || len(again) != 0 {
		t.Errorf("sweepScratch while both live = %v, %v; want none", again, err)
	}
	wantThere("while both live", append(dead, kept...), true)
	die := func() { dying.scratch.lock.Close() } // as the kernel does it
	die()
	gone, err := sweepScratch(filepath.Join(dir, "scratch"))
	if err != nil || len(gone) != 1 || gone[0] != dying.scratch.owner() {
		t.Errorf("sweepScratch after a death = %v, %v; want %s", gone, err, dying.scratch.owner())
	}
	living.sweepOrphans(gone)
	wantThere("of the dead", dead, false)
	wantThere("of the living", kept, true)

	// Its name is forgotten by now; whoever opens the repo first knows all the same.
	if err := os.MkdirAll(dead[0], 0o755); err != nil {
		t.Fatal(err)
	}
	next := open()
	if _, err := next.opened(t.Context(), r.id); err != nil {
		t.Fatalf("open repo: %v", err)
	}
	wantThere("of the dead, found later", dead, false)
	wantThere("of the living, seen by another", kept, true)
	for _, path := range kept {
		os.RemoveAll(path)
	}
}
