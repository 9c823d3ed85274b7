package gitstore

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/refpolicy"
)

// manyfold adds trees of ten equal entries on top of each other, a blob below all:
// 10^depth files in depth+1 objects.
func (p *rawPack) manyfold(depth int) (root refpolicy.OID) {
	root = p.add(BlobObject, "in all places\n")
	mode := "100644"
	for range depth {
		var tree strings.Builder
		for n := range 10 {
			fmt.Fprintf(&tree, "%s f%d\x00%s", mode, n, root[:])
		}
		root, mode = p.add(TreeObject, tree.String()), "40000"
	}
	return root
}

// pushManyfold pushes a commit with such a tree, on first, to a ref.
func (p *pushTarget) pushManyfold(t *testing.T, first, ref string) refpolicy.OID {
	t.Helper()
	var pack rawPack
	id := pack.add(CommitObject, fmt.Sprintf("tree %s\nparent %s\n%s", pack.manyfold(10), first, author13))
	if report := p.s.post(t, someone, MainRemote, "git-receive-pack", "", pkts(zeros40+" "+id.String()+" "+ref+"\x00report-status", "")+pack.pack()); !strings.Contains(report, "ok "+ref) {
		t.Fatalf("a push of 10^10 files in few objects is told %q, want it taken", report)
	}
	return id
}

// A tree that names few objects in 10^10 places costs no door more than those objects,
// or is refused there as too large.
func TestManyfoldTreesCostTheirObjects(t *testing.T) {
	for _, road := range []string{"small", "large"} {
		t.Run(road, func(t *testing.T) {
			limits := Limits{UpkeepEvery: -1, IndexObjects: 1}
			if road == "large" {
				limits.HotPackBytes = 1
			}
			p := newPushTarget(t, limits)
			p.w.git("push", "-q", "origin", "main")
			first := p.w.git("rev-parse", "HEAD")
			many := p.pushManyfold(t, first, "refs/heads/many")
			before, err := refpolicy.ParseOID(first)
			if err != nil {
				t.Fatal(err)
			}
			p.diffsOfManyfold(t, before, many)
			p.readsOfManyfold(t, many)
			p.proofsOfManyfold(t, many)
			p.upkeepOfManyfold(t)
		})
	}
}

func (p *pushTarget) diffsOfManyfold(t *testing.T, first, many refpolicy.OID) {
	deep := strings.Repeat("f1/", 9) + "f2"
	for _, tc := range []struct {
		name  string
		q     DiffRequest
		files int // -1: too large
	}{
		{"added", DiffRequest{Base: first, Head: many}, -1},
		{"removed", DiffRequest{Base: many, Head: first, Exact: true}, -1},
		{"from nothing", DiffRequest{Head: many}, -1},
		{"one folder", DiffRequest{Base: first, Head: many, Paths: []string{"f1/f2"}}, -1},
		{"folder and file", DiffRequest{Base: first, Head: many, Paths: []string{"f1/f2", deep}}, -1},
		{"one file", DiffRequest{Base: first, Head: many, Paths: []string{deep}}, 1},
		{"low folders", DiffRequest{Base: first, Head: many, Paths: []string{strings.Repeat("f1/", 8), strings.Repeat("f3/", 9), "README"}}, 100 + 10 + 1},
		{"itself", DiffRequest{Base: many, Head: many}, 0},
	} {
		d, err := p.r.Diff(t.Context(), tc.q)
		switch {
		case tc.files < 0 && !errors.Is(err, ErrTooLarge):
			t.Errorf("diff, %s: %v, want ErrTooLarge", tc.name, err)
		case tc.files >= 0 && err != nil:
			t.Errorf("diff, %s: %v", tc.name, err)
		case tc.files >= 0 && len(d.Files) != tc.files:
			t.Errorf("diff, %s: %d files, want %d", tc.name, len(d.Files), tc.files)
		}
	}
}

func (p *pushTarget) readsOfManyfold(t *testing.T, many refpolicy.OID) {
	if _, _, err := p.r.Tree(t.Context(), many, ListTree{Recursive: true}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("listing of all: %v, want ErrTooLarge", err)
	}
	page, more, err := p.r.Tree(t.Context(), many, ListTree{Recursive: true, Limit: 100, After: strings.Repeat("f9/", 8) + "f8"})
	if want := 10 + 1 + 10; err != nil || more || len(page) != want { // what is below f8, then f9 and what is below it
		t.Errorf("last page of a listing: %d entries, more %t, %v; want %d", len(page), more, err, want)
	}
	for _, path := range []string{"", "f1", strings.Repeat("f1/", 9) + "f2", "README"} {
		if log, err := p.r.Log(t.Context(), someone, many, path, "", 0); err != nil || len(log.Commits) == 0 {
			t.Errorf("history of %q: %d commits, %v", path, len(log.Commits), err)
		}
		if _, err := p.r.LastChange(t.Context(), many, path); err != nil {
			t.Errorf("last change of %q: %v", path, err)
		}
	}
	if _, err := p.r.File(t.Context(), many, strings.Repeat("f1/", 9)+"f2"); err != nil {
		t.Errorf("file at the bottom: %v", err)
	}
	mustCommit(t, p.r, someone, testCommit{target: "refs/heads/many", files: map[string]string{strings.Repeat("f1/", 9) + "f2": "another\n"}})
}

// proofsOfManyfold: whoever reads under rules has objects of the tree proved to exist.
func (p *pushTarget) proofsOfManyfold(t *testing.T, many refpolicy.OID) {
	c := confined(t, "refs/heads/many")
	h, err := graph{p.r, noFresh}.commit(t.Context(), many)
	if err != nil {
		t.Fatal(err)
	}
	e, _, err := p.r.entryAt(t.Context(), h.tree, treePath{name: "f1/f1/f1/f1"})
	if err != nil {
		t.Fatal(err)
	}
	for oid, want := range map[refpolicy.OID]bool{e.oid: true, hashObject(BlobObject, []byte("nowhere")): false} {
		if ok, err := p.r.readableObject(t.Context(), c, oid); ok != want || err != nil {
			t.Errorf("readableObject(%s) = %t, %v, want %t", oid, ok, err, want)
		}
	}
	// A push that names a part of it, which the push itself does not bring.
	var pack rawPack
	tree := pack.add(TreeObject, fmt.Sprintf("40000 a\x00%s", e.oid[:])+fmt.Sprintf("40000 b\x00%s", h.tree[:]))
	id := pack.add(CommitObject, "tree "+tree.String()+"\n"+author13)
	if report := p.s.post(t, c, MainRemote, "git-receive-pack", "", pkts(zeros40+" "+id.String()+" refs/heads/many2\x00report-status", "")+pack.pack()); !strings.Contains(report, "refs/heads/many2") {
		t.Errorf("a push that names a part of it is told %q", report)
	}
	report := p.s.post(t, someone, MainRemote, "git-receive-pack", "", pkts(zeros40+" "+id.String()+" refs/heads/part\x00report-status", "")+pack.pack())
	if !strings.Contains(report, "ok refs/heads/part") {
		t.Errorf("a push that names a part of it is told %q, want it taken", report)
	}
	p.w.git("fetch", "-q", "origin", "refs/heads/many:refs/heads/many", "refs/heads/part:refs/heads/part")
}

func (p *pushTarget) upkeepOfManyfold(t *testing.T) {
	s := p.r.store
	if _, err := s.GC(t.Context(), func(RepoInfo) bool { return true }, true); err != nil {
		t.Errorf("GC: %v", err)
	}
	if found, err := s.Fsck(t.Context(), p.r); err != nil || len(found) != 0 {
		t.Errorf("Fsck = %v, %v, want nothing", found, err)
	}
	if err := s.Export(t.Context(), p.r, filepath.Join(t.TempDir(), "out")); err != nil {
		t.Errorf("Export: %v", err)
	}
	if err := s.ExportBundle(t.Context(), p.r, io.Discard); err != nil {
		t.Errorf("ExportBundle: %v", err)
	}
}

// The walk before git and git itself have the time limit of a git process; whichever
// reaches it, the answer says so.
func TestDiffHasTheTimeOfAGitProcess(t *testing.T) {
	git, err := gitcmd.New(gitcmd.Options{Timeout: 150 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	p := newPushTarget(t, Limits{})
	p.w.git("push", "-q", "origin", "main")
	first := p.w.git("rev-parse", "HEAD")
	many := p.pushManyfold(t, first, "refs/heads/many")
	p.r.store.git = git
	key, _, err := p.r.diffKey(t.Context(), DiffRequest{Head: many})
	if err != nil {
		t.Fatal(err)
	}
	err = p.r.diffTree(t.Context(), key, nil, []string{"--raw", "--no-abbrev", "-p", "-z"}, (&diffParser{}).parse)
	if !errors.Is(err, gitcmd.ErrTimeout) {
		t.Errorf("git on 10^10 files ends with %v, want gitcmd.ErrTimeout", err)
	}
	if git, err = gitcmd.New(gitcmd.Options{Timeout: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	p.r.store.git = git
	if _, err := p.r.Diff(t.Context(), DiffRequest{Head: many}); !errors.Is(err, gitcmd.ErrTimeout) {
		t.Errorf("Diff without time ends with %v, want gitcmd.ErrTimeout", err)
	}
}
