package packs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// Memory does not grow with what is streamed in or out: 1 MiB and 4 MiB ask the
// heap for about the same.
func TestStreamsInBoundedMemory(t *testing.T) {
	d := newDir(t, Options{FS: noSync{}})
	for kind, buf := range map[string][]byte{"noise": noise(seeded(9), 1<<20), "text": words(seeded(9), 1<<20)} {
		inOut := func(n int) (in, out uint64) {
			size := int64(n) << 20
			return streamInOut(t, d, io.LimitReader(&endless{buf: buf}, size), size, kind == "text")
		}
		inOut(1) // fills the pools
		in1, out1 := inOut(1)
		in4, out4 := inOut(4)
		// The collector may empty the pools between the two; the content may not stay.
		if in4 > in1+2<<20 || out4 > out1+1<<20 {
			t.Errorf("%s: 1 MiB in and out allocates %d and %d KiB, 4 MiB %d and %d KiB; want about the same",
				kind, in1>>10, out1>>10, in4>>10, out4>>10)
		}
	}
}

// streamInOut writes a pack of one object and reads it, and tells what either
// allocated.
func streamInOut(t *testing.T, d *Dir, r io.Reader, size int64, known bool) (in, out uint64) {
	t.Helper()
	var id refpolicy.OID
	var info Info
	told := size
	if !known {
		told = -1
	}
	in = allocated(func() {
		w := newWriter(t, d)
		var err error
		if id, _, err = w.AddStream(Blob, told, r); err != nil {
			t.Fatal(err)
		}
		if info, err = w.Finish(); err != nil {
			t.Fatal(err)
		}
	})
	if info.Size > size+size/500 {
		t.Errorf("%d bytes take %d in the pack", size, info.Size)
	}
	p := openPackT(t, d, info.Name)
	out = allocated(func() {
		_, _, r, err := p.Open(id)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if n, err := io.Copy(io.Discard, r); err != nil || n != size {
			t.Errorf("Open reads %d bytes, %v, want %d", n, err, size)
		}
	})
	return in, out
}

// endless repeats its bytes.
type endless struct {
	buf []byte
	at  int
}

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.buf[e.at:])
	e.at = (e.at + n) % len(e.buf)
	return n, nil
}

func TestCacheKeepsItsBudget(t *testing.T) {
	c := NewBaseCache(10 << 10)
	p := &Pack{}
	for i := range 100 {
		c.put(baseKey{p, int64(i)}, Blob, bytes.Repeat([]byte{byte(i)}, 1000))
		if c.used > c.budget {
			t.Fatalf("cache uses %d of %d", c.used, c.budget)
		}
		if _, ok := c.get(baseKey{p, 0}); !ok {
			t.Fatalf("the base used all the time is gone after %d others", i)
		}
	}
	c.put(baseKey{p, 1000}, Blob, make([]byte, 9<<10))
	if _, ok := c.get(baseKey{p, 1000}); ok {
		t.Errorf("one base takes the whole cache")
	}
	c.dropPack(p)
	if c.used != 0 || len(c.all) != 0 {
		t.Errorf("after dropPack %d bytes in %d bases are left", c.used, len(c.all))
	}
}

// A large object that was read once is checked again when it is read again,
// whichever form its entry has: damage that comes later is found.
func TestDamageAfterTheFirstRead(t *testing.T) {
	for kind, buf := range map[string][]byte{"noise": noise(seeded(9), rememberFrom), "text": words(seeded(9), rememberFrom)} {
		d := newDir(t, Options{FS: noSync{}})
		w := newWriter(t, d)
		id, size, err := w.AddStream(Blob, -1, bytes.NewReader(buf))
		if err != nil {
			t.Fatal(err)
		}
		info, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		p := openPackT(t, d, info.Name)
		read := func() ([]byte, error) {
			_, _, r, err := p.Open(id)
			if err != nil {
				return nil, err
			}
			defer r.Close()
			return io.ReadAll(r)
		}
		for range 2 {
			if b, err := read(); err != nil || !bytes.Equal(b, buf) {
				t.Errorf("%s: Open reads %d bytes, %v, want %d", kind, len(b), err, size)
			}
		}
		path := d.path(info.Name, ".pack")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		flipped := bytes.Clone(b)
		flipped[len(b)-100] ^= 4
		if err := os.WriteFile(path, flipped, 0o644); err != nil {
			t.Fatal(err)
		}
		if b, err := read(); !errors.Is(err, ErrPackBroken) {
			t.Errorf("%s: Open of what was damaged since reads %d bytes, %v, want ErrPackBroken", kind, len(b), err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
