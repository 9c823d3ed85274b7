package packs

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"io"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/refpolicy"
)

// However the bytes come, a side hash is the hash of them; stopped in the middle it
// leaves no goroutine.
func TestSideHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := bytes.Repeat([]byte("0123456789abcdef"), rapid.IntRange(0, 6*sideBlock/16).Draw(t, "blocks"))
		data = append(data, rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "tail")...)
		side := newSideHash(sha1.New())
		for rest := data; len(rest) > 0; {
			n := min(len(rest), rapid.IntRange(1, 3*sideBlock).Draw(t, "n"))
			side.Write(rest[:n])
			rest = rest[n:]
		}
		if rapid.Bool().Draw(t, "stopped") {
			side.stop()
			side.stop()
			return
		}
		side.finish()
		want := sha1.Sum(data)
		if got := side.hash.Sum(nil); !bytes.Equal(got, want[:]) {
			t.Fatalf("hash of %d bytes = %x, want %x", len(data), got, want)
		}
		side.stop()
	})
}

// An object so large that it is hashed beside: the right bytes, the wrong id, and a
// reader that gives up.
func TestLargeObjectIsHashedBeside(t *testing.T) {
	d := newDir(t, Options{FS: noSync{}})
	w := newWriter(t, d)
	buf := noise(seeded(3), sideFrom+1) // which is stored: inflating takes its time under the race detector
	id, _, err := w.AddStream(Blob, int64(len(buf)), bytes.NewReader(buf))
	if err != nil {
		t.Fatal(err)
	}
	wrong := refpolicy.OID{42}
	z, err := w.deflate(buf, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.AddEntry(wrong, Blob, int64(len(buf)), z); err != nil {
		t.Fatal(err)
	}
	info, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	p := openPackT(t, d, info.Name)
	before := runtime.NumGoroutine()
	for _, id := range []refpolicy.OID{wrong, id, wrong} {
		_, _, gone, err := p.Open(id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, gone, 3<<20); err != nil {
			t.Errorf("the first bytes of %s = %v", id, err)
		}
		if err := gone.Close(); err != nil {
			t.Errorf("Close in the middle of %s = %v", id, err)
		}
		_, _, whole, err := p.Open(id)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(whole)
		if id == wrong && !errors.Is(err, ErrPackBroken) || id != wrong && (err != nil || !bytes.Equal(got, buf)) {
			t.Errorf("Open of %s reads %d bytes, %v", id, len(got), err)
		}
		if err := whole.Close(); err != nil {
			t.Errorf("Close of %s = %v", id, err)
		}
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines are left, there were %d", after, before)
	}
}
