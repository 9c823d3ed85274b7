package packstest

import (
	"os"
	"path/filepath"
	"testing"
)

// tree gives the names and contents below a folder.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		all[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Each step of a careful and of a careless writer, and what a cut leaves of it.
func TestOnlyWhatWasSyncedIsLeft(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "old"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := New(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(root, name) }
	f, err := c.Create(at("a.tmp"))
	must(err)
	_, err = f.Write([]byte("first"))
	must(err)
	must(f.Sync()) // point 1: content, no name
	_, err = f.Write([]byte(" second"))
	must(err)
	must(f.Close())
	must(c.Rename(at("a.tmp"), at("a")))
	must(c.SyncDir(root)) // point 2: name, and the content of point 1
	must(c.Mkdir(at("sub")))
	must(c.Link(at("a"), at("sub/b")))
	must(os.WriteFile(at("sub/foreign"), []byte("by another"), 0o644))
	must(c.SyncDir(at("sub"))) // point 3: sub's names, but sub itself has none
	must(c.Remove(at("old")))
	must(c.SyncDir(root)) // point 4: sub is there, old is gone
	for point, want := range []map[Loss]map[string]string{
		{Strict: {"old": "old"}, Eager: {"old": "old", "a.tmp": ""}},
		{Strict: {"old": "old"}, Eager: {"old": "old", "a": "first"}},
		{Strict: {"old": "old", "a": "first"}, Eager: {"old": "old", "a": "first", "sub/b": "first", "sub/foreign": ""}},
		{Strict: {"old": "old", "a": "first"}, Eager: {"a": "first", "sub/b": "first", "sub/foreign": ""}},
		{Strict: {"a": "first", "sub/b": "first", "sub/foreign": ""}, Eager: {"a": "first", "sub/b": "first", "sub/foreign": ""}},
	} {
		for loss, want := range want {
			dst := t.TempDir()
			must(c.Materialise(dst, point, loss))
			got := tree(t, dst)
			if len(got) != len(want) {
				t.Errorf("Materialise(%d, %s) = %q, want %q", point, loss, got, want)
			}
			for name, text := range want {
				if have, ok := got[name]; !ok || have != text {
					t.Errorf("Materialise(%d, %s): %s = %q (there: %v), want %q", point, loss, name, have, ok, text)
				}
			}
		}
	}
	if err := c.Materialise(t.TempDir(), 5, Strict); err == nil {
		t.Errorf("Materialise of a point that never was works")
	}
}

func TestOutsideTheRoot(t *testing.T) {
	c, err := New(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(filepath.Join(t.TempDir(), "x")); err == nil {
		t.Errorf("Create outside the root works")
	}
}
