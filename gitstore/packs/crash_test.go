package packs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/gitstore/packs/packstest"
	"github.com/headgate/headgate/refpolicy"
)

type written struct {
	info packs.Info
	id   refpolicy.OID
	data []byte
}

// write makes a pack of one object.
func write(d *packs.Dir, data []byte) (w written, err error) {
	pw, err := d.NewWriter(context.Background())
	if err != nil {
		return w, err
	}
	w.data = data
	if w.id, _, err = pw.AddStream(packs.Blob, int64(len(data)), bytes.NewReader(data)); err != nil {
		return w, errors.Join(err, pw.Abort())
	}
	w.info, err = pw.Finish()
	return w, err
}

func crashFS(t *testing.T) (*packstest.CrashFS, string) {
	t.Helper()
	top, snaps := t.TempDir(), t.TempDir()
	c, err := packstest.New(top, snaps)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return c, filepath.Join(top, "repo")
}

// adoptOne has a second pack come in the way git's packs do: written by somebody
// else on the same file system.
func adoptOne(t *testing.T, d *packs.Dir, from written) written {
	t.Helper()
	in, err := d.Incoming()
	if err != nil {
		t.Fatal(err)
	}
	var paths [2]string
	for i, ext := range []string{".pack", ".idx"} {
		b, err := os.ReadFile(filepath.Join(d.Root(), "packs", from.info.Name+ext))
		if err != nil {
			t.Fatal(err)
		}
		paths[i] = filepath.Join(in, "pack", "made"+ext)
		if err := os.WriteFile(paths[i], b, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	from.info, err = d.Adopt(context.Background(), paths[0], paths[1])
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	if err := d.RemoveIncoming(in); err != nil {
		t.Fatal(err)
	}
	return from
}

// The power goes at every sync point of making a folder, writing a pack,
// adopting one, linking and removing. What Finish and Adopt have answered is
// there; a pack that has its name is whole, answered or not; what Link has
// answered git sees, and never an idx without its pack.
func TestG03_PowerCutAtEverySyncPoint(t *testing.T) {
	c, root := crashFS(t)
	if err := packs.CreateDir(root, packs.Options{FS: c}); err != nil {
		t.Fatalf("CreateDir: %v", err)
	}
	created := len(c.Points())
	d, err := packs.Open(root, packs.Options{FS: c})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	defer d.Close()
	answered := make(map[int]written) // by the number of points there were then
	one, err := write(d, bytes.Repeat([]byte("one "), 50))
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	answered[len(c.Points())] = one
	two := adoptOne(t, d, one)
	answered[len(c.Points())] = two
	if err := d.Link(two.info.Name); err != nil {
		t.Fatalf("Link: %v", err)
	}
	linked := len(c.Points())
	for point := range linked + 1 {
		for _, loss := range []packstest.Loss{packstest.Strict, packstest.Eager} {
			at := filepath.Join(t.TempDir(), "after")
			if err := errors.Join(os.Mkdir(at, 0o755), c.Materialise(at, point, loss)); err != nil {
				t.Fatalf("Materialise(%d): %v", point, err)
			}
			where := fmt.Sprintf("point %d (%s), %s", point, pointName(c, point), loss)
			checkAfterCut(t, where, filepath.Join(at, "repo"), point >= created)
			for n, w := range answered {
				if point >= n {
					checkThere(t, where, filepath.Join(at, "repo"), w)
				}
			}
			if point >= linked {
				if _, err := os.Stat(filepath.Join(at, "repo", "objects", "pack", two.info.Name+".idx")); err != nil {
					t.Errorf("%s: the link is gone: %v", where, err)
				}
			}
		}
	}
}

func pointName(c *packstest.CrashFS, point int) string {
	if point == 0 {
		return "begin"
	}
	return c.Points()[point-1].String()
}

// checkAfterCut: a folder that has its name is whole, and so is every pack.
func checkAfterCut(t *testing.T, where, root string, created bool) {
	t.Helper()
	if _, err := os.Stat(root); !created && errors.Is(err, fs.ErrNotExist) {
		return
	}
	for _, name := range []string{"HEAD", "config"} {
		if b, err := os.ReadFile(filepath.Join(root, name)); err != nil || len(b) == 0 {
			t.Errorf("%s: %s has %d bytes, %v", where, name, len(b), err)
		}
	}
	d, err := packs.Open(root, packs.Options{})
	if err != nil {
		t.Errorf("%s: Open: %v", where, err)
		return
	}
	defer d.Close()
	files, err := d.Files()
	if err != nil {
		t.Errorf("%s: Files: %v", where, err)
	}
	for _, name := range files {
		p, err := d.Pack(name)
		if errors.Is(err, packs.ErrPackMissing) {
			continue // one of the two files has its name, the other not: nobody was told of it
		}
		if err != nil {
			t.Errorf("%s: a pack with its name is not whole: %v", where, err)
			continue
		}
		p.ForEach(func(id refpolicy.OID, _ int64) bool {
			if _, _, err := p.Object(id, 1<<20); err != nil {
				t.Errorf("%s: Object(%s): %v", where, id, err)
			}
			return true
		})
		p.Release()
	}
	if _, err := d.Sweep(0); err != nil {
		t.Errorf("%s: Sweep: %v", where, err)
	}
	left, err := filepath.Glob(filepath.Join(root, "packs", "incoming-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%s: after Sweep there is %q, %v", where, left, err)
	}
	idxs, _ := filepath.Glob(filepath.Join(root, "objects", "pack", "*.idx"))
	for _, idx := range idxs {
		if st, err := os.Stat(strings.TrimSuffix(idx, ".idx") + ".pack"); err != nil || st.Size() == 0 {
			t.Errorf("%s: git sees an idx without its pack: %v", where, err)
		}
	}
}

func checkThere(t *testing.T, where, root string, w written) {
	t.Helper()
	d, err := packs.Open(root, packs.Options{})
	if err != nil {
		t.Errorf("%s: Open: %v", where, err)
		return
	}
	defer d.Close()
	p, err := d.Pack(w.info.Name)
	if err != nil {
		t.Errorf("%s: the answered pack %s: %v", where, w.info.Name, err)
		return
	}
	defer p.Release()
	if _, b, err := p.Object(w.id, 1<<20); err != nil || !bytes.Equal(b, w.data) {
		t.Errorf("%s: the answered object has %d bytes, %v, want %d", where, len(b), err, len(w.data))
	}
}

// Each file operation of writing a pack fails once: the call says so, nothing
// with a pack's name and nothing incoming stays, and the next pack is fine.
func TestEveryFailingOperation(t *testing.T) {
	broken := errors.New("disk is full")
	for fail := 1; ; fail++ {
		c, root := crashFS(t)
		if err := packs.CreateDir(root, packs.Options{}); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		n, armed, hit := 0, true, packstest.Op{}
		c.Before = func(op packstest.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if op.Kind == "stat" || op.Kind == "remove" || !armed {
				return nil
			}
			if n++; n == fail {
				hit = op
				return broken
			}
			return nil
		}
		d, err := packs.Open(root, packs.Options{FS: c})
		if err != nil {
			t.Fatal(err)
		}
		_, err = write(d, []byte("content"))
		if hit.Kind == "" {
			if err != nil || fail < 8 {
				t.Errorf("write: %v after %d operations, want 8 or more", err, fail)
			}
			return
		}
		if !errors.Is(err, broken) {
			t.Errorf("write with a failing %s gives %v, want the failure", hit, err)
		}
		armed = false
		left, _ := os.ReadDir(filepath.Join(root, "packs"))
		if len(left) != 0 {
			t.Errorf("after a failing %s packs holds %v", hit, left)
		}
		w, err := write(d, []byte("content"))
		if err != nil {
			t.Errorf("write after a failing %s: %v", hit, err)
		}
		checkThere(t, "after "+hit.String(), root, w)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// CreateDir fails at each of its operations: no folder has the name, unless it
// is whole, and nothing stays beside it.
func TestCreateDirFailing(t *testing.T) {
	broken := errors.New("disk is full")
	for fail := 1; ; fail++ {
		c, root := crashFS(t)
		n := 0
		c.Before = func(op packstest.Op) error {
			if op.Kind == "stat" || op.Kind == "remove" || op.Kind == "readdir" {
				return nil
			}
			if n++; n == fail {
				return broken
			}
			return nil
		}
		err := packs.CreateDir(root, packs.Options{FS: c})
		if n < fail {
			if err != nil {
				t.Errorf("CreateDir: %v", err)
			}
			return
		}
		if !errors.Is(err, broken) {
			t.Errorf("CreateDir with operation %d failing gives %v", fail, err)
		}
		left, _ := filepath.Glob(root + "*")
		if len(left) > 1 || len(left) == 1 && left[0] != root {
			t.Errorf("CreateDir with operation %d failing leaves %q", fail, left)
		}
		if err := packs.CreateDir(root, packs.Options{}); err != nil {
			t.Errorf("CreateDir after operation %d failed: %v", fail, err)
		}
	}
}
