package packs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// What git reads from a repository is what we read from the pack it makes of
// it, whichever form its deltas have.
func TestReadsWhatGitReads(t *testing.T) {
	repo := sample(t)
	want := objectsOf(t, repo)
	for name, ofs := range map[string]bool{"ofs-delta": true, "ref-delta": false} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t, Options{})
			p := adopt(t, d, repo, ofs)
			if p.Count() != len(want) {
				t.Errorf("Count() = %d, want %d", p.Count(), len(want))
			}
			deltas := 0
			for _, o := range want {
				checkObject(t, p, o)
				if e, err := p.RawEntry(o.id, 1<<30); err != nil {
					t.Errorf("RawEntry(%s): %v", o.id, err)
				} else if e.Type != o.typ {
					t.Errorf("RawEntry(%s).Type = %s, want %s", o.id, e.Type, o.typ)
				} else if e.Delta {
					deltas++
					if !p.Has(e.Base) || e.Base == o.id {
						t.Errorf("RawEntry(%s).Base = %s, not another object of the pack", o.id, e.Base)
					}
				}
			}
			if deltas < 20 {
				t.Errorf("%d deltas in the sample, want 20 or more for the test to mean something", deltas)
			}
		})
	}
}

// checkObject reads one object in every way there is.
func checkObject(t *testing.T, p *Pack, o object) {
	t.Helper()
	typ, size, err := p.Header(o.id)
	if err != nil || typ != o.typ || size != int64(len(o.data)) {
		t.Errorf("Header(%s) = %s %d %v, want %s %d", o.id, typ, size, err, o.typ, len(o.data))
	}
	typ, data, err := p.Object(o.id, int64(len(o.data)))
	if err != nil || typ != o.typ || !bytes.Equal(data, o.data) {
		t.Errorf("Object(%s) = %s, %d bytes, %v; want %s, %d bytes", o.id, typ, len(data), err, o.typ, len(o.data))
	}
	typ, size, r, err := p.Open(o.id)
	if err != nil {
		t.Errorf("Open(%s): %v", o.id, err)
		return
	}
	defer r.Close()
	data, err = io.ReadAll(r)
	if err != nil || typ != o.typ || size != int64(len(o.data)) || !bytes.Equal(data, o.data) {
		t.Errorf("Open(%s) = %s %d, read %d bytes, %v; want %s %d", o.id, typ, size, len(data), err, o.typ, len(o.data))
	}
	if len(o.data) == 0 {
		return
	}
	var large *TooLargeError
	if _, _, err := p.Object(o.id, int64(len(o.data))-1); !errors.As(err, &large) || !errors.Is(err, ErrTooLarge) {
		t.Errorf("Object(%s, size-1) gives %v, want a TooLargeError", o.id, err)
	} else if large.OID != o.id {
		t.Errorf("Object(%s, size-1) names %s", o.id, large.OID)
	}
}

func TestAbsentObjects(t *testing.T) {
	p := adopt(t, newDir(t, Options{}), sample(t), true)
	id := refpolicy.OID{0xff, 1}
	if p.Has(id) {
		t.Errorf("Has(%s) = true", id)
	}
	_, _, herr := p.Header(id)
	_, _, oerr := p.Object(id, 1<<20)
	_, _, _, rerr := p.Open(id)
	_, eerr := p.RawEntry(id, 1<<20)
	for _, err := range []error{herr, oerr, rerr, eerr} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("an absent object gives %v, want ErrNotFound", err)
		}
	}
}

// What a Writer makes passes every check real git has, by each way of adding.
func TestGitAcceptsWrittenPacks(t *testing.T) {
	repo := sample(t)
	all := objectsOf(t, repo)
	src := newDir(t, Options{})
	from := adopt(t, src, repo, true)
	for name, add := range map[string]func(*Writer, object) error{
		"stream": func(w *Writer, o object) error {
			id, _, err := w.AddStream(o.typ, int64(len(o.data)), bytes.NewReader(o.data))
			return errors.Join(err, wantID(id, o.id))
		},
		"unsized": func(w *Writer, o object) error {
			id, n, err := w.AddStream(o.typ, -1, onlyReader{bytes.NewReader(o.data)})
			if n != int64(len(o.data)) {
				err = errors.Join(err, ErrSizeMismatch)
			}
			return errors.Join(err, wantID(id, o.id))
		},
		"raw": func(w *Writer, o object) error {
			e, err := from.RawEntry(o.id, 1<<30)
			if err != nil || !e.Delta {
				return errors.Join(err, w.AddEntry(o.id, e.Type, e.Size, e.ZData))
			}
			_, _, err = w.AddStream(o.typ, int64(len(o.data)), bytes.NewReader(o.data))
			return err
		},
	} {
		for _, expect := range []int{0, len(all), len(all) + 1} {
			t.Run(name, func(t *testing.T) {
				d := newDir(t, Options{})
				w := newWriter(t, d)
				w.Expect(expect)
				for range 2 { // the second round adds nothing
					for _, o := range all {
						if err := add(w, o); err != nil {
							t.Fatalf("add %s: %v", o.id, err)
						}
					}
				}
				checkWritten(t, d, w, all)
			})
		}
	}
}

type onlyReader struct{ io.Reader }

func wantID(got, want refpolicy.OID) error {
	if got != want {
		return errors.New("id is " + got.String() + ", want " + want.String())
	}
	return nil
}

func newWriter(t testing.TB, d *Dir) *Writer {
	t.Helper()
	w, err := d.NewWriter(context.Background())
	if err != nil {
		t.Fatalf("NewWriter: %v", err)
	}
	return w
}

// checkWritten finishes a pack and has git look at it.
func checkWritten(t *testing.T, d *Dir, w *Writer, all []object) {
	t.Helper()
	info, err := w.Finish()
	if err != nil {
		t.Fatalf("Finish: %v", err)
	}
	path := d.path(info.Name, ".pack")
	st, err := os.Stat(path)
	if err != nil || st.Size() != info.Size || info.Objects != len(all) {
		t.Errorf("Finish = %+v, the file has %v bytes (%v), want %d objects", info, st.Size(), err, len(all))
	}
	git(t, d.Root(), nil, "verify-pack", path)
	git(t, d.Root(), nil, "index-pack", "--strict", "-o", path+".check", path)
	ours, _ := os.ReadFile(d.path(info.Name, ".idx"))
	gits, _ := os.ReadFile(path + ".check")
	if !bytes.Equal(ours, gits) {
		t.Errorf("idx of %d bytes is not the one git makes, of %d bytes", len(ours), len(gits))
	}
	if err := os.Remove(path + ".check"); err != nil {
		t.Error(err)
	}
	if out := git(t, d.Root(), nil, "count-objects", "-v"); !strings.Contains(string(out), "in-pack: 0\n") {
		t.Errorf("git sees the pack before Link: %s", out)
	}
	if err := d.Link(info.Name); err != nil {
		t.Fatalf("Link: %v", err)
	}
	got := objectsOf(t, d.Root())
	if len(got) != len(all) {
		t.Errorf("git sees %d objects, want %d", len(got), len(all))
	}
	p := openPackT(t, d, info.Name)
	for i, o := range all {
		if got[i].id != o.id || !bytes.Equal(got[i].data, o.data) {
			t.Errorf("git reads %s otherwise", o.id)
		}
		checkObject(t, p, o)
	}
}

// Sixteen readers of one pack, with a small cache so that bases come and go.
func TestManyReaders(t *testing.T) {
	repo := sample(t)
	all := objectsOf(t, repo)
	d := newDir(t, Options{Cache: NewBaseCache(40 << 10)})
	name := adopt(t, d, repo, true).Name()
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			p, err := d.Pack(name)
			if err != nil {
				t.Errorf("Pack: %v", err)
				return
			}
			defer p.Release()
			r := seeded(uint64(g))
			for range len(all) {
				checkObject(t, p, all[r.IntN(len(all))])
			}
		})
	}
	wg.Wait()
}
