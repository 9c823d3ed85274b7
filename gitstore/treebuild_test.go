package gitstore

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/refpolicy"
)

// treeStore keeps tree objects in memory for a treeNode.
type treeStore map[refpolicy.OID][]byte

func (s treeStore) read(oid refpolicy.OID) ([]treeEntry, error) {
	data, ok := s[oid]
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrObjectNotFound, oid)
	}
	return parseTree(data)
}

func (s treeStore) emit(o NewObject) { s[o.OID] = o.Data }

// pathGen makes paths that often meet: few names, with those whose order depends
// on whether they are folders.
var pathGen = rapid.Custom(func(t *rapid.T) string {
	names := rapid.SampledFrom([]string{"a", "b", "a-", "a.", "a0", "a b", "A", "é"})
	return strings.Join(rapid.SliceOfN(names, 1, 3).Draw(t, "segments"), "/")
})

// Random edits of trees, several times on each other's results, make the trees
// that git's index makes of the same files.
func TestTreesAreThoseOfGitsIndex(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, nil, "init", "-q", "--bare", ".")
	rapid.Check(t, func(rt *rapid.T) {
		store := treeStore{}
		files := map[string]string{} // path -> mode and oid, as the index takes them
		tree := emptyTree
		for range rapid.IntRange(1, 3).Draw(rt, "commits") {
			root, err := newTreeNode(tree, store.read)
			if err != nil {
				rt.Fatalf("newTreeNode(%s): %v", tree, err)
			}
			for range rapid.IntRange(1, 8).Draw(rt, "edits") {
				editTree(rt, root, files)
			}
			tree = root.write(store.emit)
			if want := indexTree(t, dir, files); tree.String() != want {
				rt.Fatalf("tree of %v is %s, git's is %s", files, tree, want)
			}
		}
	})
}

func editTree(rt *rapid.T, root *treeNode, files map[string]string) {
	path := pathGen.Draw(rt, "path")
	if rapid.IntRange(0, 3).Draw(rt, "delete") == 0 {
		if err := root.remove(path); err != nil {
			rt.Fatalf("remove(%s): %v", path, err)
		}
		for p := range files {
			if p == path || strings.HasPrefix(p, path+"/") {
				delete(files, p)
			}
		}
		return
	}
	mode := rapid.SampledFrom([]Mode{ModeFile, ModeExecutable, ModeSymlink, ModeSubmodule}).Draw(rt, "mode")
	oid := hashObject(BlobObject, []byte(rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "content")))
	err := root.upsert(path, mode, oid)
	if inTheWay(files, path) {
		if err == nil {
			rt.Fatalf("upsert(%s) onto %v went through, want a refusal", path, files)
		}
		return
	}
	if err != nil {
		rt.Fatalf("upsert(%s) onto %v: %v", path, files, err)
	}
	files[path] = fmt.Sprintf("%o %s", mode, oid)
}

// inTheWay reports whether a file stands where path wants a folder, or the other way round.
func inTheWay(files map[string]string, path string) bool {
	for p := range files {
		if strings.HasPrefix(p, path+"/") || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

// indexTree is what git makes of the files.
func indexTree(t *testing.T, dir string, files map[string]string) string {
	var lines strings.Builder
	for p, what := range files {
		fmt.Fprintf(&lines, "%s\t%s\x00", what, p)
	}
	git(t, dir, nil, "read-tree", "--empty")
	git(t, dir, []byte(lines.String()), "update-index", "-z", "--index-info")
	return strings.TrimSpace(git(t, dir, nil, "write-tree", "--missing-ok"))
}

// A folder that an edit empties leaves no tree object behind.
func TestEmptiedFoldersAreNotWritten(t *testing.T) {
	store := treeStore{}
	root, _ := newTreeNode(emptyTree, store.read)
	blob := hashObject(BlobObject, nil)
	for _, path := range []string{"d/e/f", "x"} {
		if err := root.upsert(path, ModeFile, blob); err != nil {
			t.Fatalf("upsert(%s): %v", path, err)
		}
	}
	root, err := newTreeNode(root.write(store.emit), store.read)
	if err != nil {
		t.Fatalf("newTreeNode: %v", err)
	}
	if err := root.remove("d/e/f"); err != nil {
		t.Fatalf("remove: %v", err)
	}
	var made []NewObject
	root.write(func(o NewObject) { made = append(made, o) })
	if len(made) != 1 || len(root.entries) != 1 || root.entries[0].name != "x" {
		t.Errorf("deleting the only file of d/e made %d trees and left %v, want the root with x alone", len(made), root.entries)
	}
}

// FuzzParseTree: what parses is written as it was, but for modes in another spelling.
func FuzzParseTree(f *testing.F) {
	blob := hashObject(BlobObject, nil)
	f.Add(encodeTree([]treeEntry{{ModeFile, "a", blob}, {ModeTree, "b", emptyTree}}))
	f.Add([]byte("100644 a\x00short"))
	f.Add([]byte("0100644 a\x0001234567890123456789"))
	f.Add([]byte(" a\x0001234567890123456789"))
	f.Add([]byte("777777777 a\x0001234567890123456789"))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer hangs(t)()
		entries, err := parseTree(data)
		if err != nil {
			return
		}
		again, err := parseTree(encodeTree(entries))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(entries) {
			t.Errorf("parseTree(encodeTree(%v)) = %v, %v", entries, again, err)
		}
		for _, e := range entries {
			if e.name == "" || strings.ContainsRune(e.name, 0) {
				t.Errorf("parseTree(%q) has an entry named %q", data, e.name)
			}
		}
	})
}
