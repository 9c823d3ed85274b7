package gitstore

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestDiffTotalOfShownPatchesIsBounded(t *testing.T) {
	out := "" +
		":000000 100644 " + strings.Repeat("0", 40) + " " + strings.Repeat("1", 40) + " A\x00a\x00" +
		":000000 100644 " + strings.Repeat("0", 40) + " " + strings.Repeat("1", 40) + " A\x00b\x00\x00" +
		"diff --git a/a b/a\n@@ -0,0 +1 @@\n+x\ndiff --git a/b b/b\n@@ -0,0 +1 @@\n+y\n"
	p := &diffParser{perFile: 100, total: 60}
	if err := p.parse(bufio.NewReader(strings.NewReader(out))); err != nil {
		t.Fatal(err)
	}
	if p.entries[0].withheld || !p.entries[1].withheld || p.entries[1].additions != 1 {
		t.Errorf("entries %+v: the second does not fit and is counted", p.entries)
	}
	p = &diffParser{keepAll: true, total: 60}
	if err := p.parse(bufio.NewReader(strings.NewReader(out))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("parse of asked paths over the limit = %v, want ErrTooLarge", err)
	}
}

func FuzzParseDiff(f *testing.F) {
	dir := f.TempDir()
	for name, content := range map[string]string{"o/a": "1\n2", "n/a": "1\n3\n", "o/b": "\x00", "n/b": "\x01\x00", "o/c": "c\n", "n/q\"\n": "c\n"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			f.Fatal(err)
		}
	}
	for _, form := range []string{"--binary", "-b"} {
		cmd := exec.Command("git", "diff", "--no-index", "--raw", "--no-abbrev", "-p", "-z", form, "o", "n")
		cmd.Dir = dir
		out, _ := cmd.Output() // exits 1 when there are differences
		f.Add(out)
	}
	f.Add([]byte(":100644 100644 1 2 M\x00a\x00"))
	f.Add([]byte("\x00diff --git a/a b/a\n"))
	f.Fuzz(func(t *testing.T, out []byte) {
		p := &diffParser{perFile: 1 << 10, total: 4 << 10}
		err := p.parse(bufio.NewReaderSize(bytes.NewReader(out), 16))
		kept := int64(0)
		for _, e := range p.entries {
			kept += int64(len(e.raw))
			if e.additions < 0 || e.deletions < 0 || (e.withheld && e.raw != nil) {
				t.Fatalf("entry %+v", e)
			}
		}
		if kept != p.kept || kept > p.total {
			t.Fatalf("%d bytes kept, %d counted, limit %d (%v)", kept, p.kept, p.total, err)
		}
	})
}
