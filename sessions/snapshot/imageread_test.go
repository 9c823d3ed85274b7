package snapshot

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// Ranges of an image, whole and sparse, are those of the original, whatever they are cut
// across (D-17).
func TestD17_RangesAreThoseOfTheOriginal(t *testing.T) {
	for _, layout := range []Layout{Pages, Stream} {
		t.Run(string(layout), func(t *testing.T) {
			w := saving(t, Limits{})
			const size = leafBytes + 100*MinChunk + 777
			data := memoryOf(t, snapshottest.NewImage(3, size, 0.5))
			got := w.stream(t, SaveSpec{Parts: []PartSpec{{Layout: layout, ChunkBytes: MinChunk, Size: -1}}}, data)
			im, err := w.k.Open(t.Context(), w.as(backend()), got.Commit, "")
			if err != nil {
				t.Fatalf("Open: %v", err)
			}
			rapid.Check(t, func(rt *rapid.T) {
				off := rapid.Int64Range(0, size).Draw(rt, "offset")
				n := min(size-off, draw[int64](rt, "length", 0, 1, 100, MinChunk, 5*MinChunk, 100*MinChunk, size))
				var b bytes.Buffer
				if err := im.WriteRange(t.Context(), &b, off, n); err != nil || !bytes.Equal(b.Bytes(), data[off:off+n]) {
					rt.Fatalf("WriteRange(%d, %d) = %d bytes, %v", off, n, b.Len(), err)
				}
				b.Reset()
				if err := im.WriteSparse(t.Context(), &b, off, n, false); err != nil {
					rt.Fatalf("WriteSparse(%d, %d) = %v", off, n, err)
				}
				if text, _, err := received(&b); err != nil || !bytes.Equal(text[off:off+n], data[off:off+n]) {
					rt.Fatalf("WriteSparse(%d, %d) tells other bytes, %v", off, n, err)
				}
			})
			for _, r := range [][2]int64{{-1, 1}, {0, -1}, {size, 1}, {size + 1, 0}, {0, size + 1}, {1, 1<<63 - 1}} {
				if err := im.WriteRange(t.Context(), io.Discard, r[0], r[1]); !errors.Is(err, ErrRange) {
					t.Errorf("WriteRange(%d, %d) = %v, want %v", r[0], r[1], err, ErrRange)
				}
				if err := im.WriteSparse(t.Context(), io.Discard, r[0], r[1], false); !errors.Is(err, ErrRange) {
					t.Errorf("WriteSparse(%d, %d) = %v, want %v", r[0], r[1], err, ErrRange)
				}
			}
		})
	}
}

// An address is where its region lies in the image; without regions it is an offset.
func TestOffsetOfAnAddress(t *testing.T) {
	with := &Image{Part: Part{Size: 100, Regions: []Region{{Address: 1000, Offset: 60, Size: 40}, {Address: ^uint64(0) - 59, Offset: 0, Size: 60}}}}
	without := &Image{Part: Part{Size: 100}}
	for _, c := range []struct {
		im      *Image
		address uint64
		length  int64
		want    int64 // negative: ErrRange
	}{
		{with, 1000, 40, 60}, {with, 1039, 1, 99}, {with, 1039, 2, -1}, {with, 999, 1, -1}, {with, 1040, 1, -1}, {with, 0, 1, -1},
		{with, ^uint64(0), 1, 59}, {with, ^uint64(0), 2, -1}, {with, ^uint64(0) - 59, 60, 0}, {with, 1000, -1, -1},
		{without, 0, 100, 0}, {without, 99, 1, 99}, {without, 99, 2, -1}, {without, 101, 0, -1}, {without, 1 << 63, 1, -1}, {without, 0, -1, -1},
	} {
		got, err := c.im.Offset(c.address, c.length)
		if c.want < 0 && !errors.Is(err, ErrRange) || c.want >= 0 && (err != nil || got != c.want) {
			t.Errorf("Offset(%d, %d) = %d, %v, want %d", c.address, c.length, got, err, c.want)
		}
	}
}

// Chunks that a restore has touched first come first the next time, each byte still once.
func TestHotChunksComeFirst(t *testing.T) {
	w := saving(t, Limits{})
	data := sparseMemory('h', 2*leafBytes, 1, 2, 3, 40, 300, 301, 511)
	got := w.stream(t, SaveSpec{}, data)
	if err := w.k.HotOrder(t.Context(), w.as(backend()), got.Commit, "", []int{301, 2, 100, 301, 40}); err != nil {
		t.Fatalf("HotOrder: %v", err)
	}
	out, first, err := sparse(w.k, w.as(backend()), got.Commit, "", true)
	if err != nil || !bytes.Equal(out, data) {
		t.Fatalf("restored other bytes, %v", err)
	}
	if want := []int64{301 * MinChunk, 2 * MinChunk, 100 * MinChunk, 40 * MinChunk}; !slices.Equal(first[:4], want) {
		t.Errorf("first came %v, want %v", first[:4], want)
	}
	if _, first, err = sparse(w.k, w.as(backend()), got.Commit, "", false); err != nil || !slices.IsSorted(first) {
		t.Errorf("without the hot order came %v, %v", first, err)
	}
}

// A page of an image that has been opened before is read by one read, and of another by
// few: no tree is gone through.
func TestPageIsReadByFewReads(t *testing.T) {
	w := saving(t, Limits{})
	data := memoryOf(t, snapshottest.NewImage(3, 3*leafBytes, 0))
	got := w.stream(t, SaveSpec{}, data)
	repo := &countingRepo{fakeRepo: w.as(backend())}
	k := w.keeper(w.k.Limits)
	for try, most := range []int{5 + 3*2, 0, 0} {
		repo.objects = 0
		im, err := k.Open(t.Context(), repo, got.Commit, "")
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		var b bytes.Buffer
		at := int64(try)*leafBytes + 5*MinChunk
		if err := im.WriteRange(t.Context(), &b, at, MinChunk); err != nil || !bytes.Equal(b.Bytes(), data[at:at+MinChunk]) {
			t.Fatalf("WriteRange: %v", err)
		}
		if repo.objects > most {
			t.Errorf("read %d takes %d objects besides the chunk, want at most %d", try, repo.objects, most)
		}
	}
}
