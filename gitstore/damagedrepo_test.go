package gitstore

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// spoil turns over a byte in the middle of each pack of a repo, in every link of it.
func spoil(t testing.TB, r *Repo) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.dir.Root(), "packs", "*.pack"))
	if err != nil || len(files) == 0 {
		t.Fatalf("packs = %v, %v", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text[len(text)/2] ^= 0x55
		if err := os.Chmod(name, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// One damaged repo does not keep upkeep from the others, and is named.
func TestGCGoesOnPastADamagedRepo(t *testing.T) {
	p := newPatient(t)
	for _, name := range []string{"b", "c", "d", "e"} {
		mustRepo(t, p.s, name)
	}
	spoil(t, p.r)
	reports, err := p.s.GC(t.Context(), nil, true)
	var names []string
	for _, r := range reports {
		names = append(names, r.Repo.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"b", "c", "d", "e"}) {
		t.Errorf("GC reports %v, want all but the damaged repo", names)
	}
	var bad *RepoError
	if !errors.As(err, &bad) || bad.Name != "repo" || bad.Org != "acme" || !strings.Contains(err.Error(), "acme/repo") {
		t.Errorf("GC = %v, want a *RepoError of acme/repo", err)
	}
	sound := func(i RepoInfo) bool { return i.Name != "repo" }
	if reports, err := p.s.GC(t.Context(), sound, true); len(reports) != 4 || err != nil {
		t.Errorf("GC of the others = %d reports, %v, want 4", len(reports), err)
	}
}

// A repo that is damaged, half gone or gone can be deleted, and its name used again.
func TestDeleteADamagedRepo(t *testing.T) {
	for name, damage := range map[string]func(t testing.TB, r *Repo) error{
		"packs":  func(t testing.TB, r *Repo) error { spoil(t, r); return nil },
		"config": func(_ testing.TB, r *Repo) error { return os.Remove(filepath.Join(r.dir.Root(), "config")) },
		"files":  func(_ testing.TB, r *Repo) error { return os.RemoveAll(filepath.Join(r.dir.Root(), "packs")) },
		"folder": func(_ testing.TB, r *Repo) error { return os.RemoveAll(r.dir.Root()) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, l := filled(t)
			s := openTestStore(t, func(o *Options) { o.Dir, o.Ledger, o.Logger = dir, l, quiet })
			r, err := s.Repo(t.Context(), "acme", "kept")
			if err != nil {
				t.Fatal(err)
			}
			root, info := r.dir.Root(), r.Info()
			s.mu.Lock() // as if it had not been opened yet
			delete(s.repos, r.id)
			s.mu.Unlock()
			if err := damage(t, r); err != nil {
				t.Fatal(err)
			}
			if got, err := s.DeleteRepo(t.Context(), someone, "acme", "kept", nil); err != nil || got != info {
				t.Fatalf("DeleteRepo = %v, %v, want %v", got, err, info)
			}
			if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is still there: %v", err)
			}
			if _, err := s.DeleteRepo(t.Context(), someone, "acme", "kept", nil); !errors.Is(err, ErrRepoNotFound) {
				t.Errorf("second DeleteRepo = %v, want ErrRepoNotFound", err)
			}
			mustRepo(t, s, "kept")
		})
	}
}
