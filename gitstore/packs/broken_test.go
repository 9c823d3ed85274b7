package packs

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/refpolicy"
	"pgregory.net/rapid"
)

// smallPack writes a few objects and gives the two files as bytes.
func smallPack(t testing.TB) (pack, idx []byte, all []object) {
	t.Helper()
	d := newDir(t, Options{})
	w := newWriter(t, d)
	r := seeded(3)
	for _, n := range []int{0, 1, 70} { // stored blocks; and stored and deflated ones in one stream
		b := append(noise(r, n), words(r, 100*(n/70))...)
		z := storedThenDeflated(t, b, n)
		o := object{objectID(Blob, b), Blob, b}
		if err := w.AddEntry(o.id, Blob, int64(len(b)), z); err != nil {
			t.Fatalf("AddEntry: %v", err)
		}
		all = append(all, o)
	}
	for i, b := range [][]byte{[]byte("xy"), words(r, 300), noise(r, 90)} {
		id, _, err := w.AddStream(Blob, int64(len(b)), bytes.NewReader(b))
		if err != nil {
			t.Fatalf("AddStream %d: %v", i, err)
		}
		all = append(all, object{id, Blob, b})
	}
	info, err := w.Finish()
	if err != nil {
		t.Fatalf("Finish: %v", err)
	}
	pack, err = os.ReadFile(d.path(info.Name, ".pack"))
	if err != nil {
		t.Fatal(err)
	}
	idx, err = os.ReadFile(d.path(info.Name, ".idx"))
	if err != nil {
		t.Fatal(err)
	}
	return pack, idx, all
}

// storedThenDeflated makes a zlib stream whose first n bytes are in a stored
// block, the rest in a deflated one.
func storedThenDeflated(t testing.TB, b []byte, n int) []byte {
	t.Helper()
	z := []byte{0x78, 0x01, 0, byte(n), 0, ^byte(n), 0xff}
	z = append(z, b[:n]...)
	if n == len(b) {
		z = append(z, 1, 0, 0, 0xff, 0xff)
	} else {
		var rest bytes.Buffer
		fw, err := flate.NewWriter(&rest, 6)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fw.Write(b[n:]); err != nil {
			t.Fatal(err)
		}
		if err := fw.Close(); err != nil {
			t.Fatal(err)
		}
		z = append(z, rest.Bytes()...)
	}
	return binary.BigEndian.AppendUint32(z, adler32.Checksum(b))
}

// memFS serves two files from memory and no other.
type memFS struct {
	OS
	files map[string][]byte
}

type memFile struct {
	File
	*bytes.Reader
	size int64
}

func (m memFS) Open(name string) (File, error) {
	b, ok := m.files[filepath.Ext(name)]
	if !ok {
		return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
	}
	return memFile{Reader: bytes.NewReader(b), size: int64(len(b))}, nil
}

func (f memFile) Read(b []byte) (int, error)                { return f.Reader.Read(b) }
func (f memFile) ReadAt(b []byte, off int64) (int, error)   { return f.Reader.ReadAt(b, off) }
func (f memFile) Seek(off int64, whence int) (int64, error) { return f.Reader.Seek(off, whence) }
func (f memFile) Close() error                              { return nil }
func (f memFile) Stat() (os.FileInfo, error)                { return memInfo{size: f.size}, nil }

type memInfo struct {
	os.FileInfo
	size int64
}

func (i memInfo) Size() int64 { return i.size }

var brokenName = namePrefix + "00112233445566778899aabbccddeeff00112233"

func openBytes(codec Codec, pack, idx []byte) (*Pack, error) {
	o := Options{FS: memFS{files: map[string][]byte{".pack": pack, ".idx": idx}}, Codec: codec, MaxInMemory: 1 << 20}.withDefaults()
	return openPack(&Dir{o: o, fs: o.FS}, brokenName)
}

// readAll reads each object by each call: right bytes or the pack's own error.
func readAll(p *Pack, all []object) error {
	named := func(what string, err error) error {
		var broken *BrokenError
		if errors.As(err, &broken) && broken.Name == brokenName && errors.Is(err, ErrPackBroken) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrNotFound) {
			return nil
		}
		return fmt.Errorf("%s gives %v, want the BrokenError of the pack", what, err)
	}
	for _, o := range all {
		if _, data, err := p.Object(o.id, 1<<20); err != nil {
			if err := named("Object", err); err != nil {
				return err
			}
		} else if !bytes.Equal(data, o.data) {
			return fmt.Errorf("Object(%s) gives wrong bytes", o.id)
		}
		_, _, r, err := p.Open(o.id)
		if err != nil {
			if err := named("Open", err); err != nil {
				return err
			}
			continue
		}
		data, err := io.ReadAll(r)
		if cerr := r.Close(); cerr != nil {
			return cerr
		}
		if err != nil {
			if err := named("Read", err); err != nil {
				return err
			}
		} else if !bytes.Equal(data, o.data) {
			return fmt.Errorf("Open(%s) gives wrong bytes", o.id)
		}
		e, err := p.RawEntry(o.id, 1<<20)
		if err != nil {
			if err := named("RawEntry", err); err != nil {
				return err
			}
		} else if e.Size != int64(len(o.data)) {
			return fmt.Errorf("RawEntry(%s).Size = %d, want %d", o.id, e.Size, len(o.data))
		}
		if _, _, err := p.Header(o.id); err != nil {
			if err := named("Header", err); err != nil {
				return err
			}
		}
	}
	return nil
}

// Every byte of pack and idx, flipped in one bit or cut off behind it: an error
// that names the pack, or the right bytes, and never other bytes.
func TestAnyDamageIsAnErrorOrRightBytes(t *testing.T) {
	pack, idx, all := smallPack(t)
	codec := &StdCodec{}
	try := func(what string, pack, idx []byte) {
		t.Helper()
		p, err := openBytes(codec, pack, idx)
		if err != nil {
			var broken *BrokenError
			if !errors.As(err, &broken) || broken.Name != brokenName {
				t.Errorf("%s: open gives %v, want a BrokenError", what, err)
			}
			return
		}
		defer p.Release()
		if err := readAll(p, all); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range pack {
		try(fmt.Sprintf("pack cut at %d", i), pack[:i], idx)
		for _, bit := range []byte{1, 0x10, 0x80} {
			b := bytes.Clone(pack)
			b[i] ^= bit
			try(fmt.Sprintf("pack bit %#x flipped at %d", bit, i), b, idx)
		}
	}
	for i := range idx {
		if p, err := openBytes(codec, pack, idx[:i]); err == nil {
			p.Release()
			t.Errorf("idx cut at %d opens", i)
		}
		b := bytes.Clone(idx)
		b[i] ^= 0x10
		if p, err := openBytes(codec, pack, b); err == nil {
			p.Release()
			t.Errorf("idx flipped at %d opens", i)
		}
	}
}

// A damaged idx or pack is an error of its own pack alone, and of that only as
// long as the damage is there.
func TestBrokenPackPoisonsNoOther(t *testing.T) {
	d := newDir(t, Options{})
	repo := sample(t)
	good := adopt(t, d, repo, true)
	w := newWriter(t, d)
	if _, _, err := w.AddStream(Blob, 1, bytes.NewReader([]byte("a"))); err != nil {
		t.Fatal(err)
	}
	bad, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	path := d.path(bad.Name, ".idx")
	idx, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(bytes.Clone(idx[:len(idx)-1]), idx[len(idx)-1]^1), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err = d.Pack(bad.Name)
		var broken *BrokenError
		if !errors.As(err, &broken) || broken.Name != bad.Name {
			t.Errorf("Pack(broken) gives %v, want a BrokenError of %s", err, bad.Name)
		}
		checkObject(t, good, objectsOf(t, repo)[0])
	}
	if err := os.WriteFile(path, idx, 0o644); err != nil {
		t.Fatal(err)
	}
	openPackT(t, d, bad.Name)
}

// Deltas whose bases go round in a circle, or below the pack's begin, end.
func TestDeltaChainsThatNeverEnd(t *testing.T) {
	a, b := refpolicy.OID{1}, refpolicy.OID{2}
	z, err := (&Writer{d: &Dir{o: Options{}.withDefaults()}}).deflate([]byte{0, 0}, 3)
	if err != nil {
		t.Fatal(err)
	}
	ref := func(base refpolicy.OID) []byte {
		return append(append([]byte{byte(refDelta)<<4 | 2}, base[:]...), z...)
	}
	below := append([]byte{byte(ofsDelta)<<4 | 2, 0x7f}, z...)
	for name, entries := range map[string]map[refpolicy.OID][]byte{
		"circle of two": {a: ref(b), b: ref(a)},
		"own base":      {a: ref(a)},
		"base below":    {a: below},
		"base outside":  {a: ref(b)},
	} {
		pack, idx := rawPack(entries)
		p, err := openBytes(&StdCodec{}, pack, idx)
		if err != nil {
			t.Fatalf("%s: open: %v", name, err)
		}
		if _, _, err := p.Object(a, 1<<20); !errors.Is(err, ErrPackBroken) {
			t.Errorf("%s: Object gives %v, want ErrPackBroken", name, err)
		}
		if _, _, err := p.Header(a); !errors.Is(err, ErrPackBroken) {
			t.Errorf("%s: Header gives %v, want ErrPackBroken", name, err)
		}
		p.Release()
	}
}

// rawPack makes a pack of raw entries with an idx that fits it.
func rawPack(entries map[refpolicy.OID][]byte) (pack, idx []byte) {
	h := packHeader(uint32(len(entries)))
	pack = append(pack, h[:]...)
	var names, crcs, offs []byte
	fan := [256]uint32{}
	for first := range 256 {
		for id, e := range entries { // one id for each first byte
			if int(id[0]) == first {
				names = append(names, id[:]...)
				crcs = binary.BigEndian.AppendUint32(crcs, crc32.ChecksumIEEE(e))
				offs = binary.BigEndian.AppendUint32(offs, uint32(len(pack)))
				pack = append(pack, e...)
			}
		}
		fan[first] = uint32(len(names) / 20)
	}
	sum := sha1.Sum(pack)
	pack = append(pack, sum[:]...)
	idx = append(idx, idxMagic...)
	for _, n := range fan {
		idx = binary.BigEndian.AppendUint32(idx, n)
	}
	idx = bytes.Join([][]byte{idx, names, crcs, offs, sum[:]}, nil)
	isum := sha1.Sum(idx)
	return pack, append(idx, isum[:]...)
}

// Content with the right checksum everywhere and the wrong id is not given.
func TestObjectUnderAnotherID(t *testing.T) {
	d := newDir(t, Options{})
	w := newWriter(t, d)
	z, err := w.deflate([]byte("hello"), 3)
	if err != nil {
		t.Fatal(err)
	}
	id := refpolicy.OID{42}
	if err := w.AddEntry(id, Blob, 5, z); err != nil {
		t.Fatal(err)
	}
	info, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	p := openPackT(t, d, info.Name)
	if _, _, err := p.Object(id, 10); !errors.Is(err, ErrPackBroken) {
		t.Errorf("Object under another id gives %v, want ErrPackBroken", err)
	}
	_, _, r, err := p.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); !errors.Is(err, ErrPackBroken) {
		t.Errorf("Open under another id reads %q, %v, want ErrPackBroken", b, err)
	}
}

// Whatever is added comes back, in any mix of ways and sizes.
func TestWriterGivesBack(t *testing.T) {
	d := newDir(t, Options{FS: noSync{}})
	rapid.Check(t, func(rt *rapid.T) {
		w, err := d.NewWriter(context.Background())
		if err != nil {
			rt.Fatal(err)
		}
		w.Expect(rapid.IntRange(0, 5).Draw(rt, "expect"))
		var all []object
		for range rapid.IntRange(1, 6).Draw(rt, "objects") {
			n := rapid.SampledFrom([]int{0, 1, 15, 16, 2047, 2048, sniffLen - 1, sniffLen, sniffLen + 1, sniffLen + 5000}).Draw(rt, "size")
			r := seeded(uint64(rapid.IntRange(0, 1).Draw(rt, "seed")))
			data := words(r, n)
			if rapid.Bool().Draw(rt, "noise") {
				data = noise(r, n)
			}
			typ := rapid.SampledFrom([]Type{Commit, Tree, Blob, Tag}).Draw(rt, "type")
			size := rapid.SampledFrom([]int64{-1, int64(n)}).Draw(rt, "known")
			id, got, err := w.AddStream(typ, size, bytes.NewReader(data))
			if err != nil || got != int64(n) || id != objectID(typ, data) {
				rt.Fatalf("AddStream(%s, %d bytes) = %s %d %v, want %s", typ, n, id, got, err, objectID(typ, data))
			}
			all = append(all, object{id, typ, data})
		}
		info, err := w.Finish()
		if err != nil {
			rt.Fatalf("Finish: %v", err)
		}
		defer d.Remove(info.Name)
		p, err := d.Pack(info.Name)
		if err != nil {
			rt.Fatalf("Pack: %v", err)
		}
		defer p.Release()
		for _, o := range all {
			if typ, data, err := p.Object(o.id, 1<<20); err != nil || typ != o.typ || !bytes.Equal(data, o.data) {
				rt.Fatalf("Object(%s) = %s, %d bytes, %v; want %s, %d bytes", o.id, typ, len(data), err, o.typ, len(o.data))
			}
		}
	})
}
