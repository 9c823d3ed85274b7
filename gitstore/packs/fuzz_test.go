package packs

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"io"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/headgate/headgate/refpolicy"
)

// An idx that is taken never fails later and finds each of its own names.
func FuzzReadIdx(f *testing.F) {
	pack, idx, _ := smallPack(f)
	f.Add(idx, int64(len(pack)), true)
	f.Add(idx, int64(13), true)
	f.Add(idx[:1100], int64(1000), false)
	f.Add(idx[:8], int64(0), false)
	f.Fuzz(func(t *testing.T, b []byte, packSize int64, fix bool) {
		if fix && len(b) > 20 { // let the fuzzer get behind the checksum
			sum := sha1.Sum(b[:len(b)-20])
			b = append(bytes.Clone(b[:len(b)-20]), sum[:]...)
		}
		x, err := readIdx(bytes.NewReader(b), int64(len(b)), packSize)
		if err != nil {
			return
		}
		for i := range x.n {
			if k, ok := x.find(x.oid(i)); !ok || k != i {
				t.Fatalf("find(name %d) = %d %v", i, k, ok)
			}
			if off, ok := x.offset(i); !ok || off < packHeadLen || off >= packSize {
				t.Fatalf("offset(%d) = %d %v of a pack of %d", i, off, ok, packSize)
			}
		}
	})
}

// A head that is taken means the same when it is written again.
func FuzzParseHead(f *testing.F) {
	f.Add([]byte{0x35})
	f.Add([]byte{0xb5, 0x81, 0x00})
	f.Add([]byte{0x6f, 0x81, 0x00})
	f.Add(append([]byte{0x72}, make([]byte, 20)...))
	f.Add(bytes.Repeat([]byte{0xff}, 30))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHead(b)
		if err != nil {
			return
		}
		if h.len < 1 || h.len > len(b) || h.size < 0 || h.typ == ofsDelta && h.back <= 0 {
			t.Fatalf("parseHead(%x) = %+v", b, h)
		}
		if h.isDelta() {
			return
		}
		again, err := parseHead(AppendHead(nil, h.typ, h.size))
		if err != nil || again.typ != h.typ || again.size != h.size {
			t.Fatalf("parseHead of what %+v is written as = %+v, %v", h, again, err)
		}
	})
}

// Two decoders of deltas, ours and go-git's, agree on every input that both
// take, and ours takes no more. (go-git takes a size cut off in its middle, and
// no empty base.)
func FuzzApplyDelta(f *testing.F) {
	base := []byte("the base of a delta, with some length to copy from")
	f.Add(base, []byte{byte(len(base)), 8, 0x91, 4, 4, 4, 'a', 'b', 'c', 'd'})
	f.Add(base, packfile.DiffDelta(base, append([]byte("x"), base...)))
	f.Add(base, []byte{byte(len(base)), 1, 0})
	f.Add([]byte{}, []byte{0, 1, 1, 'a'})
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		if _, dst, _, err := deltaSizes(delta); err == nil && dst > 1<<20 {
			return
		}
		got, err := applyDelta(base, delta)
		want, werr := packfile.PatchDelta(base, delta)
		if len(base) > 0 && err == nil && werr != nil {
			t.Fatalf("applyDelta(%q, %x) takes what go-git refuses: %v", base, delta, werr)
		}
		if err == nil && werr == nil && !bytes.Equal(got, want) {
			t.Fatalf("applyDelta(%q, %x) = %q, go-git makes %q", base, delta, got, want)
		}
	})
}

// Any bytes as an entry: an answer or an error, in bounded memory.
func FuzzEntry(f *testing.F) {
	w := &Writer{d: &Dir{o: Options{}.withDefaults()}}
	z, err := w.deflate([]byte("content"), 3)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte{0x37}, z...), append([]byte{0x37}, z...))
	f.Add(append([]byte{0xb0, 0xff, 0x7f}, z...), append([]byte{0x67, 10}, z...))
	stored, err := w.deflate([]byte("content"), 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte{0x37}, stored...), append([]byte{0x3e}, stored...))
	f.Add([]byte{0x30}, append(append([]byte{0x77}, append([]byte{1}, make([]byte, 19)...)...), z...))
	codec := &StdCodec{}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		a, b := refpolicy.OID{1}, refpolicy.OID{2}
		pack, idx := rawPack(map[refpolicy.OID][]byte{a: one, b: two})
		p, err := openBytes(codec, pack, idx)
		if err != nil {
			return // an entry of no bytes
		}
		defer p.Release()
		for _, id := range []refpolicy.OID{a, b} {
			typ, data, err := p.Object(id, 1<<20)
			if err == nil && objectID(typ, data) != id {
				t.Fatalf("Object(%s) gives an object with another id", id)
			}
			if err != nil && !errors.Is(err, ErrPackBroken) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("Object(%s) gives %v", id, err)
			}
			if typ, _, r, err := p.Open(id); err == nil {
				data, err := io.ReadAll(io.LimitReader(r, 1<<20))
				if err == nil && len(data) < 1<<20 && objectID(typ, data) != id {
					t.Fatalf("Open(%s) gives an object with another id", id)
				}
				_ = r.Close()
			}
			_, _ = p.RawEntry(id, 1<<20)
			_, _, _ = p.Header(id)
		}
	})
}
