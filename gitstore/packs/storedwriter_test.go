package packs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/gitstore/packs/packstest"
	"github.com/headgate/headgate/refpolicy"
)

func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(seed, 7))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func storedDir(t testing.TB, o packs.Options) *packs.Dir {
	t.Helper()
	root := filepath.Join(t.TempDir(), "repo")
	if err := packs.CreateDir(root, o); err != nil {
		t.Fatalf("CreateDir: %v", err)
	}
	d, err := packs.Open(root, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// storedPack writes a pack of chunks, a tree and a commit.
func storedPack(d *packs.Dir, chunks [][]byte) (info packs.Info, ids []refpolicy.OID, err error) {
	w, err := d.NewStoredWriter(context.Background())
	if err != nil {
		return info, nil, err
	}
	var tree bytes.Buffer
	for n, c := range chunks {
		id, err := w.AddChunk(c)
		if err != nil {
			return info, nil, errors.Join(err, w.Abort())
		}
		ids = append(ids, id)
		fmt.Fprintf(&tree, "100644 %04x\x00%s", n, id[:])
	}
	root, err := w.AddObject(packs.Tree, tree.Bytes())
	if err != nil {
		return info, nil, errors.Join(err, w.Abort())
	}
	text := fmt.Sprintf("tree %s\nauthor A <a@x> 1700000000 +0000\ncommitter A <a@x> 1700000000 +0000\n\nx\n", root)
	commit, err := w.AddObject(packs.Commit, []byte(text))
	if err != nil {
		return info, nil, errors.Join(err, w.Abort())
	}
	info, err = w.Finish(context.Background())
	return info, append(ids, root, commit), err
}

// Git takes a pack of stored entries for what it is.
func TestStoredPackByGit(t *testing.T) {
	d := storedDir(t, packs.Options{})
	chunks := [][]byte{{}, []byte("a"), randomBytes(1, 15), randomBytes(2, 16), randomBytes(3, 65535), randomBytes(4, 65536), randomBytes(5, 3<<20), []byte("a")}
	info, ids, err := storedPack(d, chunks)
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	if info.Objects != len(chunks)-1+2 || info.Kind != packs.KindSnapshot {
		t.Errorf("pack of %d objects of kind %s, want %d", info.Objects, info.Kind, len(chunks)+1)
	}
	if err := d.Link(info.Name); err != nil {
		t.Fatalf("Link: %v", err)
	}
	git := func(stdin []byte, args ...string) []byte {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Env = append(os.Environ(), "GIT_DIR="+d.Root(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
		cmd.Stdin = bytes.NewReader(stdin)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	for n, c := range chunks {
		if got := git(nil, "cat-file", "blob", ids[n].String()); !bytes.Equal(got, c) {
			t.Errorf("git has %d bytes for chunk %d, want %d", len(got), n, len(c))
		}
	}
	git(nil, "fsck", "--strict", "--full", ids[len(ids)-1].String())
	pack := filepath.Join(d.Root(), "packs", info.Name)
	git(nil, "verify-pack", pack+".idx")
	made := filepath.Join(t.TempDir(), "made.idx")
	git(nil, "index-pack", "--strict", "-o", made, pack+".pack")
	ours, err := os.ReadFile(pack + ".idx")
	theirs, err2 := os.ReadFile(made)
	if err != nil || err2 != nil || !bytes.Equal(ours, theirs) {
		t.Errorf("the idx is not the one git makes: %v, %v", err, err2)
	}
}

// Whatever byte of a pack is another, or is not there: the right content or ErrPackBroken.
func TestStoredPackDamaged(t *testing.T) {
	d := storedDir(t, packs.Options{})
	chunks := [][]byte{{}, []byte("hello"), randomBytes(2, 700), randomBytes(3, 66_000)}
	info, ids, err := storedPack(d, chunks)
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	path := filepath.Join(d.Root(), "packs", info.Name)
	whole := map[string][]byte{}
	for _, ext := range []string{".pack", ".idx"} {
		if whole[ext], err = os.ReadFile(path + ext); err != nil {
			t.Fatal(err)
		}
	}
	restore := func(ext string, b []byte) {
		if err := os.Remove(path + ext); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+ext, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(t *rapid.T, ext string) {
		t.Helper()
		d, err := packs.Open(d.Root(), packs.Options{})
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		defer d.Close()
		p, err := d.Pack(info.Name)
		if err != nil {
			if !errors.Is(err, packs.ErrPackBroken) {
				t.Errorf("Pack: %v, want ErrPackBroken", err)
			}
			return
		}
		defer p.Release()
		for n, c := range chunks {
			typ, got, err := p.Append(ids[n], 1<<20, []byte("x"))
			if err == nil && (typ != packs.Blob || !bytes.Equal(got[1:], c)) {
				t.Errorf("Append gives wrong bytes for chunk %d", n)
			}
			if err != nil && !errors.Is(err, packs.ErrPackBroken) {
				t.Errorf("Append: %v, want ErrPackBroken", err)
			}
		}
		if err := p.Check(t.Context()); ext == ".pack" && !errors.Is(err, packs.ErrPackBroken) {
			t.Errorf("Check of a damaged pack: %v, want ErrPackBroken", err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		ext := rapid.SampledFrom([]string{".pack", ".idx"}).Draw(t, "file")
		b := bytes.Clone(whole[ext])
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		if rapid.Bool().Draw(t, "cut") {
			b = b[:at]
		} else {
			b[at] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
		}
		restore(ext, b)
		defer restore(ext, whole[ext])
		check(t, ext)
	})
}

// damagedFS damages one byte that is read from a pack being written.
type damagedFS struct {
	packs.OS
	at  int64
	bit byte
}

func (d damagedFS) Create(name string) (packs.File, error) {
	f, err := d.OS.Create(name)
	return damagedFile{f, d}, err
}

type damagedFile struct {
	packs.File
	d damagedFS
}

func (f damagedFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	if i := f.d.at - off; i >= 0 && i < int64(n) {
		b[i] ^= f.d.bit
	}
	return n, err
}

// What stands in the file otherwise than it was written is found before anybody knows
// the pack, and nothing is left of it.
func TestStoredPackReread(t *testing.T) {
	chunks := [][]byte{randomBytes(1, 100), randomBytes(2, 70_000)}
	info, _, err := storedPack(storedDir(t, packs.Options{}), chunks)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{12, 13, 14, 16, 20, 118, 130, 70_000, info.Size - 21, info.Size - 100} {
		d := storedDir(t, packs.Options{FS: damagedFS{at: at, bit: 1}})
		if _, _, err := storedPack(d, chunks); !errors.Is(err, packs.ErrPackBroken) {
			t.Errorf("Finish with damage at %d: %v, want ErrPackBroken", at, err)
		}
		left, err := os.ReadDir(filepath.Join(d.Root(), "packs"))
		if err != nil || len(left) > 0 {
			t.Errorf("after the damage at %d there is %v, %v", at, left, err)
		}
	}
}

// The power goes at every sync point of a stage that becomes a pack.
func TestG03_PowerCutAtEverySyncPointOfStoredPack(t *testing.T) {
	c, root := crashFS(t)
	if err := packs.CreateDir(root, packs.Options{FS: c}); err != nil {
		t.Fatalf("CreateDir: %v", err)
	}
	d, err := packs.Open(root, packs.Options{FS: c})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	defer d.Close()
	begun := len(c.Points())
	s, err := d.OpenStage("up")
	if err != nil {
		t.Fatalf("OpenStage: %v", err)
	}
	blob := randomBytes(1, 5000)
	id, err := s.Add([32]byte{1}, 5000, blob)
	if err != nil {
		t.Fatalf("Add: %v", err)
	}
	w, err := s.Pack(t.Context())
	if err != nil {
		t.Fatalf("Pack: %v", err)
	}
	if _, err := w.AddChunk([]byte("more")); err != nil {
		t.Fatalf("AddChunk: %v", err)
	}
	info, err := w.Finish(t.Context())
	if err != nil {
		t.Fatalf("Finish: %v", err)
	}
	points := len(c.Points())
	for point := begun; point <= points; point++ {
		for _, loss := range []packstest.Loss{packstest.Strict, packstest.Eager} {
			at := filepath.Join(t.TempDir(), "after")
			if err := errors.Join(os.Mkdir(at, 0o755), c.Materialise(at, point, loss)); err != nil {
				t.Fatalf("Materialise(%d): %v", point, err)
			}
			where := fmt.Sprintf("point %d (%s), %s", point, pointName(c, point), loss)
			checkAfterCut(t, where, filepath.Join(at, "repo"), true)
			if point == points {
				checkThere(t, where, filepath.Join(at, "repo"), written{info, id, blob})
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// stageFiles gives the files of a stage by their extension.
func stageFiles(t *testing.T, d *packs.Dir, name string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(filepath.Join(d.Root(), "uploads", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		files[filepath.Ext(e.Name())] = filepath.Join(d.Root(), "uploads", name, e.Name())
	}
	return files
}

// A stage whose files are torn at any byte has what is whole before it, and no more.
func TestStageTornAtEveryByte(t *testing.T) {
	d := storedDir(t, packs.Options{})
	s, err := d.OpenStage("up")
	if err != nil {
		t.Fatalf("OpenStage: %v", err)
	}
	var keys []packs.StageKey
	ends := []int64{12}
	for n := range byte(4) {
		blob := randomBytes(uint64(n), 20+int(n))
		keys = append(keys, packs.StageKey{Hash: [32]byte{n + 1}, Length: 9})
		if _, err := s.Add(keys[n].Hash, 9, blob); err != nil {
			t.Fatalf("Add: %v", err)
		}
		ends = append(ends, ends[n]+2+2+5+int64(len(blob))+4)
		if err := s.Note(fmt.Sprint("note ", n), blob); err != nil {
			t.Fatalf("Note: %v", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	files := stageFiles(t, d, "up")
	for ext, path := range files {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for n := range whole {
			if err := os.Truncate(path, int64(n)); err != nil {
				t.Fatal(err)
			}
			want := 4
			switch ext {
			case ".chunks":
				for want = 0; want < 4 && ends[want+1] <= int64(n); want++ {
				}
			case ".list":
				want = n / 76
			}
			checkStage(t, d, keys, want, fmt.Sprintf("%s of %d bytes", ext, n))
			if err := os.WriteFile(path, whole, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	checkStage(t, d, keys, 4, "whole")
}

func checkStage(t *testing.T, d *packs.Dir, keys []packs.StageKey, want int, where string) {
	t.Helper()
	s, err := d.OpenStage("up")
	if err != nil {
		t.Fatalf("%s: OpenStage: %v", where, err)
	}
	defer s.Close()
	w, err := s.Pack(t.Context())
	if err != nil {
		t.Fatalf("%s: Pack: %v", where, err)
	}
	defer w.Abort()
	for n, id := range s.Has(keys) {
		if id.IsZero() == (n < want) {
			t.Errorf("%s: chunk %d is %q, want %d chunks", where, n, id, want)
		}
		if n < want && !w.Has(id) {
			t.Errorf("%s: chunk %d is not in the pack", where, n)
		}
		if got, err := w.Append(id, nil); n < want && (err != nil || !bytes.Equal(got, randomBytes(uint64(n), 20+n))) {
			t.Errorf("%s: chunk %d is %d bytes, %v", where, n, len(got), err)
		}
	}
	if w.Count() != want {
		t.Errorf("%s: %d chunks in the pack, want %d", where, w.Count(), want)
	}
	err = s.Notes(t.Context(), func(name string, data []byte) error {
		var n int
		if _, err := fmt.Sscanf(name, "note %d", &n); err != nil || !bytes.Equal(data, randomBytes(uint64(n), 20+n)) {
			t.Errorf("%s: note %q is %d bytes", where, name, len(data))
		}
		return nil
	})
	if err != nil {
		t.Errorf("%s: Notes: %v", where, err)
	}
}

// Many add at the same time, two nodes too, and each sees what the other has.
func TestStageOfTwoNodes(t *testing.T) {
	a := storedDir(t, packs.Options{Owner: "a"})
	b, err := packs.Open(a.Root(), packs.Options{Owner: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var stages []*packs.Stage
	for _, d := range []*packs.Dir{a, b} {
		s, err := d.OpenStage("up")
		if err != nil {
			t.Fatalf("OpenStage: %v", err)
		}
		defer s.Close()
		stages = append(stages, s)
	}
	const chunks = 60
	var all []packs.StageKey
	var wg sync.WaitGroup
	for n := range byte(chunks) {
		key := packs.StageKey{Hash: [32]byte{n + 1}, Length: 100}
		all = append(all, key)
		for i := range 2 {
			wg.Go(func() {
				s := stages[(int(n)+i*(int(n)%3))%2] // some by both
				if _, err := s.Add(key.Hash, 100, randomBytes(uint64(n), 50_000)); err != nil {
					t.Errorf("Add: %v", err)
				}
			})
		}
	}
	wg.Wait()
	stages[0].Has(nil) // hands to the system what is held back
	stages[1].Has(nil)
	for i, s := range stages {
		for n, id := range s.Has(all) {
			if id.IsZero() {
				t.Errorf("node %d does not have chunk %d", i, n)
			}
		}
		w, err := s.Pack(t.Context())
		if err != nil || w.Count() != chunks {
			t.Fatalf("Pack of node %d: %v", i, err)
		}
		if i == 0 {
			if err := w.Abort(); err != nil {
				t.Errorf("Abort: %v", err)
			}
			continue
		}
		if info, err := w.Finish(t.Context()); err != nil || info.Objects != chunks {
			t.Errorf("Finish: %+v, %v", info, err)
		}
	}
}

// A catalog of packs names those that have an object, whatever ids they have.
func TestCatalog(t *testing.T) {
	d := storedDir(t, packs.Options{})
	var list []*packs.Pack
	holders := map[refpolicy.OID][]int{}
	for n := range 20 {
		info, ids, err := storedPack(d, [][]byte{{byte(n)}, {byte(n / 2)}, []byte("in all")})
		if err != nil {
			t.Fatal(err)
		}
		p, err := d.Pack(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		list = append(list, p)
		for _, id := range ids[:3] {
			if h := holders[id]; len(h) == 0 || h[len(h)-1] != n {
				holders[id] = append(h, n)
			}
		}
	}
	c := packs.NewCatalog(list)
	holders[refpolicy.OID{1}] = nil
	for id, want := range holders {
		var got []int
		c.Each(id, func(n int) bool { got = append(got, n); return true })
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("packs of %s: %v, want %v", id, got, want)
		}
	}
}
