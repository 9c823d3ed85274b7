package packs

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// onePack writes a pack of one blob.
func onePack(t testing.TB, d *Dir, content string) (Info, refpolicy.OID) {
	t.Helper()
	w := newWriter(t, d)
	id, _, err := w.AddStream(Blob, int64(len(content)), strings.NewReader(content))
	if err != nil {
		t.Fatalf("AddStream: %v", err)
	}
	info, err := w.Finish()
	if err != nil {
		t.Fatalf("Finish: %v", err)
	}
	return info, id
}

// names lists a folder of d.
func names(t testing.TB, d *Dir, folder string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(d.Root(), folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestCreateDirIsWhatGitNeeds(t *testing.T) {
	d := newDir(t, Options{})
	for range 2 { // again, it makes sure of the one that is there
		if err := CreateDir(d.Root(), Options{}); err != nil {
			t.Errorf("CreateDir of a folder that is there: %v", err)
		}
	}
	for key, want := range map[string]string{
		"core.repositoryformatversion": "1", "core.bare": "true", "extensions.preciousobjects": "true",
		"gc.auto": "0", "maintenance.auto": "false",
	} {
		if got := strings.TrimSpace(string(git(t, d.Root(), nil, "config", key))); got != want {
			t.Errorf("git config %s = %q, want %q", key, got, want)
		}
	}
	info, _ := onePack(t, d, "precious")
	if err := d.Link(info.Name); err != nil {
		t.Fatal(err)
	}
	// git is never to delete what no ref of its own names: gc leaves objects
	// alone, the others refuse.
	for _, args := range [][]string{{"gc", "-q", "--prune=now"}, {"repack", "-adq"}, {"prune"}} {
		if out, err := gitErr(d.Root(), nil, args...); (err == nil) != (args[0] == "gc") {
			t.Errorf("git %s: %v %s", strings.Join(args, " "), err, out)
		}
	}
	if got := names(t, d, "objects/pack"); len(got) != 2 {
		t.Errorf("objects/pack holds %q after git's upkeep, want pack and idx", got)
	}
	if left := names(t, d, ".."); len(left) != 1 {
		t.Errorf("beside the folder stands %q, want nothing", left)
	}
}

func TestOpenOfNoFolder(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of no folder gives %v, want os.ErrNotExist", err)
	}
}

func TestNamesFromOutside(t *testing.T) {
	d := newDir(t, Options{})
	good := "pack-" + strings.Repeat("0a", 20)
	if err := CheckName(good); err != nil {
		t.Errorf("CheckName(%q): %v", good, err)
	}
	for _, name := range []string{"", "pack-", "pack-../../../config", good + "/", good[:44], good + "0", strings.ToUpper(good), "pack-" + strings.Repeat("/", 40)} {
		_, err := d.Pack(name)
		for what, err := range map[string]error{"Pack": err, "Link": d.Link(name), "Unlink": d.Unlink(name), "Remove": d.Remove(name)} {
			if !errors.Is(err, ErrBadName) {
				t.Errorf("%s(%q) gives %v, want ErrBadName", what, name, err)
			}
		}
	}
	if _, err := d.Pack(good); !errors.Is(err, ErrPackMissing) {
		t.Errorf("Pack of no pack gives %v, want ErrPackMissing", err)
	}
	if err := d.Link(good); !errors.Is(err, ErrPackMissing) {
		t.Errorf("Link of no pack gives %v, want ErrPackMissing", err)
	}
	if err := d.Remove(good); err != nil {
		t.Errorf("Remove of no pack: %v", err)
	}
}

func TestLinkUnlinkRemove(t *testing.T) {
	d := newDir(t, Options{})
	info, id := onePack(t, d, "linked")
	p := openPackT(t, d, info.Name)
	for range 2 {
		if err := d.Link(info.Name); err != nil || !d.Linked(info.Name) {
			t.Fatalf("Link: %v, Linked = %v", err, d.Linked(info.Name))
		}
	}
	if got := string(git(t, d.Root(), nil, "cat-file", "blob", id.String())); got != "linked" {
		t.Errorf("git reads %q", got)
	}
	for range 2 {
		if err := d.Unlink(info.Name); err != nil || d.Linked(info.Name) {
			t.Fatalf("Unlink: %v, Linked = %v", err, d.Linked(info.Name))
		}
	}
	if err := d.Link(info.Name); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(info.Name); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	if left := append(names(t, d, "packs"), names(t, d, "objects/pack")...); len(left) != 0 {
		t.Errorf("after Remove there is %q", left)
	}
	// Who holds it reads on; who asks anew is told.
	if _, b, err := p.Object(id, 100); err != nil || string(b) != "linked" {
		t.Errorf("Object of a removed pack that is held = %q, %v", b, err)
	}
	if _, err := d.Pack(info.Name); !errors.Is(err, ErrPackMissing) {
		t.Errorf("Pack after Remove gives %v, want ErrPackMissing", err)
	}
}

// countFS counts which files are opened.
type countFS struct {
	OS
	mu    sync.Mutex
	opens map[string]int
}

func (c *countFS) Open(name string) (File, error) {
	c.mu.Lock()
	c.opens[filepath.Base(name)]++
	c.mu.Unlock()
	return c.OS.Open(name)
}

func TestConcurrentOpenersShareOnePack(t *testing.T) {
	c := &countFS{opens: make(map[string]int)}
	d := newDir(t, Options{FS: c})
	one, _ := onePack(t, d, "one")
	two, _ := onePack(t, d, "two")
	var wg sync.WaitGroup
	packs := make([]*Pack, 32)
	for i := range packs {
		wg.Go(func() {
			p, err := d.Pack(one.Name)
			if err != nil {
				t.Errorf("Pack: %v", err)
				return
			}
			packs[i] = p
		})
	}
	wg.Wait()
	for _, p := range packs {
		if p != packs[0] {
			t.Errorf("two openers have two packs")
		}
		p.Release()
	}
	if n, m := c.opens[one.Name+".pack"], c.opens[one.Name+".idx"]; n != 1 || m != 1 {
		t.Errorf("32 openers opened the pack %d and the idx %d times, want once each", n, m)
	}
	if n := c.opens[two.Name+".pack"]; n != 0 {
		t.Errorf("opening one pack opened another")
	}
}

// Packs come and go under readers: each gets the object or is told it is gone.
func TestForgetAndRemoveUnderReaders(t *testing.T) {
	d := newDir(t, Options{FS: noSync{}})
	info, id := onePack(t, d, "here")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				p, err := d.Pack(info.Name)
				if errors.Is(err, ErrPackMissing) {
					return
				}
				if err != nil {
					t.Errorf("Pack: %v", err)
					return
				}
				if _, b, err := p.Object(id, 10); err != nil || string(b) != "here" {
					t.Errorf("Object = %q, %v", b, err)
				}
				p.Release()
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range 300 {
		d.Forget(info.Name)
	}
	if err := d.Remove(info.Name); err != nil {
		t.Errorf("Remove: %v", err)
	}
	wg.Wait()
	close(stop)
}

func TestClosedDir(t *testing.T) {
	d := newDir(t, Options{})
	info, id := onePack(t, d, "held")
	p := openPackT(t, d, info.Name)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Pack(info.Name); !errors.Is(err, ErrClosed) {
		t.Errorf("Pack of a closed Dir gives %v, want ErrClosed", err)
	}
	if _, _, err := p.Object(id, 10); err != nil {
		t.Errorf("Object of a pack that is held: %v", err)
	}
}

// A reader holds the pack: the file stays open until it is closed.
func TestReaderHoldsThePack(t *testing.T) {
	d := newDir(t, Options{})
	info, id := onePack(t, d, "stream")
	p, err := d.Pack(info.Name)
	if err != nil {
		t.Fatal(err)
	}
	_, _, r, err := p.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
	d.Forget(info.Name)
	if b, err := io.ReadAll(r); err != nil || string(b) != "stream" {
		t.Errorf("ReadAll = %q, %v", b, err)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Errorf("one Release too many does not panic")
		}
	}()
	p.Release()
}

func TestWriterRefuses(t *testing.T) {
	d := newDir(t, Options{})
	long := strings.Repeat("x", sniffLen+10)
	broken := errors.New("cable cut")
	for name, tc := range map[string]struct {
		typ  Type
		size int64
		r    io.Reader
		want error
	}{
		"no type":           {5, 1, strings.NewReader("x"), ErrBadType},
		"short":             {Blob, 3, strings.NewReader("xx"), ErrSizeMismatch},
		"long":              {Blob, 1, strings.NewReader("xx"), ErrSizeMismatch},
		"long stream":       {Blob, sniffLen + 9, strings.NewReader(long), ErrSizeMismatch},
		"short stream":      {Blob, sniffLen + 11, strings.NewReader(long), ErrSizeMismatch},
		"cut at once":       {Blob, 9, iotest.ErrReader(broken), broken},
		"cut later":         {Blob, sniffLen + 11, io.MultiReader(strings.NewReader(long), iotest.ErrReader(broken)), broken},
		"cut at the end":    {Blob, sniffLen + 10, io.MultiReader(strings.NewReader(long), iotest.ErrReader(broken)), broken},
		"cut, size unknown": {Blob, -1, io.MultiReader(strings.NewReader(long), iotest.ErrReader(broken)), broken},
	} {
		w := newWriter(t, d)
		if _, _, err := w.AddStream(tc.typ, tc.size, tc.r); !errors.Is(err, tc.want) {
			t.Errorf("%s: AddStream gives %v, want %v", name, err, tc.want)
		}
		if tc.want != ErrBadType {
			if err := w.AddEntry(refpolicy.OID{1}, Blob, 1, nil); !errors.Is(err, ErrWriterDone) {
				t.Errorf("%s: AddEntry afterwards gives %v, want ErrWriterDone", name, err)
			}
		}
		if _, err := w.Finish(); err == nil {
			t.Errorf("%s: Finish afterwards works", name)
		}
		if err := w.Abort(); err != nil {
			t.Errorf("%s: Abort: %v", name, err)
		}
	}
	w := newWriter(t, d)
	if _, err := w.Finish(); !errors.Is(err, ErrEmptyPack) {
		t.Errorf("Finish of nothing gives %v, want ErrEmptyPack", err)
	}
	if _, _, err := w.AddStream(Blob, 0, strings.NewReader("")); !errors.Is(err, ErrWriterDone) {
		t.Errorf("AddStream after Finish gives %v, want ErrWriterDone", err)
	}
	if left := names(t, d, "packs"); len(left) != 0 {
		t.Errorf("packs holds %q, want nothing", left)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(broken)
	if _, err := d.NewWriter(ctx); !errors.Is(err, broken) {
		t.Errorf("NewWriter under an ended context gives %v, want its cause", err)
	}
}

func TestAdoptRefusesWhatIsBroken(t *testing.T) {
	d := newDir(t, Options{})
	in, err := d.Incoming()
	if err != nil {
		t.Fatal(err)
	}
	pack, idx := packSample(t, sample(t), in, true)
	b, err := os.ReadFile(pack)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(in, "cut.pack")
	if err := os.WriteFile(cut, b[:len(b)-1], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Adopt(context.Background(), cut, idx); !errors.Is(err, ErrPackBroken) {
		t.Errorf("Adopt of a cut pack gives %v, want ErrPackBroken", err)
	}
	if _, err := d.Adopt(context.Background(), pack, idx+"x"); !errors.Is(err, ErrPackMissing) {
		t.Errorf("Adopt without an idx gives %v, want ErrPackMissing", err)
	}
	if files, err := d.Files(); err != nil || len(files) != 0 {
		t.Errorf("Files() = %q, %v, want none", files, err)
	}
	if err := d.RemoveIncoming(in); err != nil {
		t.Error(err)
	}
	if err := d.RemoveIncoming(filepath.Join(d.Root(), "objects")); !errors.Is(err, ErrBadName) {
		t.Errorf("RemoveIncoming of another folder gives %v, want ErrBadName", err)
	}
}

func TestFilesAndSweep(t *testing.T) {
	d := newDir(t, Options{})
	one, _ := onePack(t, d, "one")
	two, _ := onePack(t, d, "two")
	if err := os.Remove(d.path(two.Name, ".idx")); err != nil {
		t.Fatal(err)
	}
	w := newWriter(t, d)
	young, err := d.Incoming()
	if err != nil {
		t.Fatal(err)
	}
	old, err := d.Incoming()
	if err != nil {
		t.Fatal(err)
	}
	busy, err := d.Incoming() // the folder is old, what streams into it is not
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(busy, "pack", "tmp_pack_x"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-2 * time.Hour)
	for _, p := range []string{w.tmp, old, filepath.Join(old, "pack"), filepath.Join(old, "info"), busy, filepath.Join(busy, "pack"), d.path(one.Name, ".pack")} {
		if err := os.Chtimes(p, past, past); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{one.Name, two.Name}
	slices.Sort(want)
	if got, err := d.Files(); err != nil || !slices.Equal(got, want) {
		t.Errorf("Files() = %q, %v, want %q", got, err, want)
	}
	if n, err := d.Sweep(time.Hour); err != nil || n != 2 {
		t.Errorf("Sweep = %d, %v, want 2: the old file and the old folder", n, err)
	}
	for path, want := range map[string]bool{w.tmp: false, old: false, young: true, busy: true, d.path(one.Name, ".pack"): true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("after Sweep %s is there: %v, want %v", filepath.Base(path), err == nil, want)
		}
	}
}
