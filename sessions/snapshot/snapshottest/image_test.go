package snapshottest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"testing"

	"pgregory.net/rapid"
)

func sum(t *testing.T, w io.WriterTo) string {
	t.Helper()
	h := sha256.New()
	if _, err := w.WriteTo(h); err != nil {
		t.Fatalf("WriteTo = %v", err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// What was made with a seed once is made with it for ever: figures can be compared.
func TestGolden(t *testing.T) {
	im := NewImage(7, 3<<20+77, 0.6)
	s := NewStream(7, 1<<20)
	for _, tc := range []struct {
		name string
		of   io.WriterTo
		want string
	}{
		{"image", im, "d2039ab472c436e6670018286ee4b72a726cff420978e7b777f8b0316725fa41"},
		{"scattered", im.Mutate(1, 0.1, Scattered), "1a7c2ab433d68ebe1801c5a2006942a26aa8c39d551a811320a53b332753a5b0"},
		{"clustered", im.Mutate(1, 0.1, Clustered), "7d74774436eb01fe5a502d1c45342b98455e4f5da2e366f583eba348a9853acc"},
		{"stream", s, "4e0cb990c58a25013b6ef0aa787563913123ed532aa8b9567437a6c49e24fab6"},
		{"inserted", s.Insert(3, 1000, 77).Delete(5000, 123), "756c695deaa2b73b678225718dec7ef1d24861cf8ab27727095230a1de527e90"},
	} {
		if got := sum(t, tc.of); got != tc.want {
			t.Errorf("SHA-256 of the %s = %s, want %s", tc.name, got, tc.want)
		}
	}
}

func zeroPages(t *testing.T, im *Image) (n int) {
	t.Helper()
	page := make([]byte, PageBytes)
	for p := range im.Pages() {
		if _, err := im.ReadAt(page, int64(p)*PageBytes); err != nil {
			t.Fatalf("ReadAt page %d = %v", p, err)
		}
		if bytes.Equal(page, make([]byte, PageBytes)) {
			n++
		}
	}
	return n
}

func TestShareOfZeroPages(t *testing.T) {
	for _, share := range []float64{0, 0.02, 0.6, 0.95, 1} {
		im := NewImage(11, 64<<20, share)
		got := float64(zeroPages(t, im)) / float64(im.Pages())
		if got < share-0.05 || got > share+0.05 {
			t.Errorf("NewImage(_, _, %v) has a share of zero pages of %v", share, got)
		}
	}
}

func TestMutateWritesTheShareItIsTold(t *testing.T) {
	before := NewImage(5, 16<<20, 0.6)
	a, b := make([]byte, PageBytes), make([]byte, PageBytes)
	for _, how := range []How{Scattered, Clustered} {
		first := before.Mutate(1, 0.05, how)
		after := first.Mutate(2, 0.01, how)
		if got, want := after.Changed(first), 41; got != want {
			t.Errorf("Changed = %d pages, want %d", got, want)
		}
		differ := 0
		for p := range after.Pages() {
			_, _ = first.ReadAt(a, int64(p)*PageBytes)
			_, _ = after.ReadAt(b, int64(p)*PageBytes)
			if !bytes.Equal(a, b) {
				differ++
			}
		}
		if differ != 41 {
			t.Errorf("how %d: %d pages differ, want 41", how, differ)
		}
	}
}

func TestReadAtGivesTheSameInAnyPieces(t *testing.T) {
	im := NewImage(9, 300_001, 0.3).Mutate(4, 0.2, Scattered)
	s := NewStream(9, 200_000).Insert(1, 70_001, 999).Delete(10, 3)
	for name, r := range map[string]interface {
		io.ReaderAt
		io.WriterTo
		Size() int64
	}{"image": im, "stream": s} {
		var all bytes.Buffer
		if n, err := r.WriteTo(&all); err != nil || n != r.Size() {
			t.Fatalf("%s: WriteTo = %d, %v, want %d", name, n, err, r.Size())
		}
		rapid.Check(t, func(t *rapid.T) {
			off := rapid.Int64Range(0, r.Size()+10).Draw(t, "off")
			p := make([]byte, rapid.IntRange(0, 20_000).Draw(t, "len"))
			n, err := r.ReadAt(p, off)
			want := all.Bytes()[min(off, r.Size()):min(off+int64(len(p)), r.Size())]
			if !bytes.Equal(p[:n], want) {
				t.Fatalf("%s: ReadAt(%d bytes, %d) gave other bytes", name, len(p), off)
			}
			if (err == io.EOF) != (n < len(p)) {
				t.Fatalf("%s: ReadAt(%d bytes, %d) = %d, %v", name, len(p), off, n, err)
			}
		})
	}
}

func TestInsertMovesWhatFollows(t *testing.T) {
	s := NewStream(2, 50_000)
	var a, b bytes.Buffer
	_, _ = s.WriteTo(&a)
	_, _ = s.Insert(6, 20_000, 10).WriteTo(&b)
	if !bytes.Equal(a.Bytes()[:20_000], b.Bytes()[:20_000]) || !bytes.Equal(a.Bytes()[20_000:], b.Bytes()[20_010:]) {
		t.Error("Insert changed more than it put in")
	}
}

func BenchmarkImage(b *testing.B) {
	im := NewImage(1, 64<<20, 0.6)
	for _, bc := range []struct {
		name string
		of   *Image
	}{{"0.6", im}, {"0", NewImage(1, 64<<20, 0)}, {"mutated", im.Mutate(1, 0.5, Scattered)}} {
		b.Run(bc.name, func(b *testing.B) {
			b.SetBytes(bc.of.Size())
			for b.Loop() {
				_, _ = bc.of.WriteTo(io.Discard)
			}
		})
	}
}
