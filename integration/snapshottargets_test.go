package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// An image that has become shorter, or longer again, is saved as it is, whatever this
// machine remembers of it.
func TestCase14_2_ImageChangesItsLength(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	u := r.runner("s")
	var whole bytes.Buffer
	if _, err := full(1, 10).WriteTo(&whole); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "memory")
	for _, n := range []int{600 << 14, 300 << 14, 4 << 14, 1 << 14, 1<<14 - 1, 300 << 14, 600<<14 - 5, 256 << 14, 0, 257 << 14} {
		image := bytes.NewBuffer(whole.Bytes()[:n])
		got := u.save(imageFile(t, file, image))
		if got.Size != int64(n) {
			t.Errorf("save of %d bytes = %+v", n, got)
		}
		u.wantRestored("the image", got.SHA, bytes.NewBuffer(whole.Bytes()[:n]))
	}
}

// Two restores into one file: one makes it, whole, and the other is refused. Nothing is
// written through a link that somebody has put there, and a file that is there stays.
func TestD17_RestoresIntoOneFile(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	u := r.runner("s")
	long, short := full(1, 24), full(2, 3)
	a, b := u.save(newImageFile(t, long)), u.save(newImageFile(t, short))
	dir := t.TempDir()
	for n := range 4 {
		to := filepath.Join(dir, string(rune('a'+n)))
		var both sync.WaitGroup
		var errs [2]error
		for i, sha := range []string{a.SHA, b.SHA} {
			both.Go(func() { _, _, errs[i] = u.try("restore", sha, to) })
		}
		both.Wait()
		switch {
		case (errs[0] == nil) == (errs[1] == nil):
			t.Errorf("two restores into one file = %v, %v, want one to win", errs[0], errs[1])
		case errs[0] == nil:
			wantImage(t, "the winner", to, long)
		default:
			wantImage(t, "the winner", to, short)
		}
	}
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	for _, name := range []string{link, link + ".part"} {
		if err := os.Symlink(victim, name); err != nil {
			t.Fatal(err)
		}
	}
	u.fails("restore", []string{b.SHA, link}, "there already")
	u.fails("restore", []string{b.SHA, victim}, "there already")
	if text, err := os.ReadFile(victim); err != nil || string(text) != "mine" {
		t.Errorf("a file that was there holds %.20q, %v", text, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".headgate*"))
	if err != nil || len(left) > 0 {
		t.Errorf("restores left %s, %v", strings.Join(left, " "), err)
	}
}
