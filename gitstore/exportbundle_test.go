package gitstore

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A bundle is what git clones and fetches from; all refs are in it under their stored
// names, pins too.
func TestExportBundle(t *testing.T) {
	p := newPatient(t)
	var bundle bytes.Buffer
	if err := p.s.ExportBundle(t.Context(), p.r, &bundle); err != nil {
		t.Fatalf("ExportBundle: %v", err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "x.bundle")
	if err := os.WriteFile(file, bundle.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, dir, nil, "clone", "-q", "--mirror", file, "plain.git")
	plain := filepath.Join(dir, "plain.git")
	git(t, plain, nil, "fsck", "--strict")
	got := git(t, plain, nil, "for-each-ref", "--format=%(objectname) %(refname)")
	for _, want := range []string{
		p.commit.String() + " refs/heads/main", p.tag.String() + " refs/tags/v1",
		p.hot.String() + " " + string(sessionA), p.hot.String() + " refs/pins/" + p.pin.ID,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("refs of the bundle = %s, want %s", got, want)
		}
	}
	if head := git(t, plain, nil, "symbolic-ref", "HEAD"); head != "refs/heads/main\n" {
		t.Errorf("HEAD = %q, want main", head)
	}
	s := openTestStore(t, nil)
	if err := s.ExportBundle(t.Context(), newTestRepo(t, s, "empty"), io.Discard); !errors.Is(err, ErrEmptyRepo) {
		t.Errorf("bundle of an empty repo = %v, want ErrEmptyRepo", err)
	}
}

// A mirror that goes from store to folder file by file is the one that Export writes.
func TestExportFiles(t *testing.T) {
	p := newPatient(t)
	dir := filepath.Join(t.TempDir(), "plain.git")
	to, err := NewExportDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.s.ExportFiles(t.Context(), p.r, to.File); err != nil {
		t.Fatalf("ExportFiles: %v", err)
	}
	if out, err := exec.Command("git", "-C", dir, "rev-parse", "--verify", "main").Output(); err == nil {
		t.Errorf("before Finish git takes the folder for a repository: %s", out)
	}
	if err := to.Finish(); err != nil {
		t.Fatalf("Finish: %v", err)
	}
	direct := filepath.Join(t.TempDir(), "direct.git")
	if err := p.s.Export(t.Context(), p.r, direct); err != nil {
		t.Fatal(err)
	}
	git(t, dir, nil, "fsck", "--strict")
	list := []string{"for-each-ref", "--format=%(objectname) %(refname)"}
	if got, want := git(t, dir, nil, list...), git(t, direct, nil, list...); got != want || got == "" {
		t.Errorf("refs = %q, want %q", got, want)
	}
	if left, err := filepath.Glob(filepath.Join(p.s.scratch.path, "export-*")); err != nil || len(left) > 0 {
		t.Errorf("scratch holds %v, %v", left, err)
	}
}

// What comes over the wire never leads out of the folder and is never run by git.
func TestExportDirTakesNothingStrange(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "x.git")
	to, err := NewExportDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewExportDir(dir); !errors.Is(err, ErrInvalid) {
		t.Errorf("NewExportDir over one = %v, want ErrInvalid", err)
	}
	pack := "objects/pack/pack-" + strings.Repeat("a", 40) + ".pack"
	for _, name := range []string{
		"../evil", "/etc/evil", "objects/../../evil", "config", "config.worktree", "hooks/post-checkout", "objects/info/alternates", "refs/heads/main",
		"", ".", "HEAD/x", "packed-refs\x00", "HEAD\n", pack + "/x", "objects/pack/pack-x.pack", pack + ".keep", "./packed-refs", "objects/pack/../pack/" + filepath.Base(pack),
	} {
		if err := to.File(name, strings.NewReader("[core]\n\tfsmonitor = touch /tmp/evil\n")); !errors.Is(err, ErrInvalid) {
			t.Errorf("File(%q) = %v, want ErrInvalid", name, err)
		}
	}
	for _, head := range []string{"", "ref: refs/heads/main", "ref: ../../x\n", "ref: refs/heads/a b\n", "x\n", "ref: refs/heads/a\nb\n"} {
		if err := to.File("HEAD", strings.NewReader(head)); !errors.Is(err, ErrInvalid) {
			t.Errorf("HEAD %q = %v, want ErrInvalid", head, err)
		}
	}
	if err := to.File(pack, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if err := to.File(pack, strings.NewReader("y")); !errors.Is(err, ErrInvalid) {
		t.Errorf("the same file again = %v, want ErrInvalid", err)
	}
	if got := filesOf(t, root); len(got) != 2 {
		t.Errorf("files = %v, want the config and the pack", got)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "config")); err != nil || string(text) != exportConfig {
		t.Errorf("config = %q, %v", text, err)
	}
	if err := to.Abort(); err != nil {
		t.Fatal(err)
	}
	if got := filesOf(t, root); len(got) != 0 {
		t.Errorf("after Abort %v is left", got)
	}
}
