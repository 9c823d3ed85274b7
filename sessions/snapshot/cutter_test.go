package snapshot_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// cut gives the chunks of all that r holds.
func cut(r io.Reader, p snapshot.PartSpec) (chunks [][]byte, err error) {
	c := snapshot.NewCutter(r, p)
	var buf []byte
	for {
		buf, err = c.Next(buf)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return chunks, err
		}
		chunks = append(chunks, bytes.Clone(buf))
	}
}

func TestCase14_2_SizesAroundTheChunk(t *testing.T) {
	const c = snapshot.DefaultChunk
	full, zeros := noise(4), make([]byte, 10*c)
	data := bytes.Join(full, nil)
	for _, tc := range []struct {
		name    string
		content []byte
		want    []int // bytes of the paged chunks
		blobs   int
	}{
		{"0", nil, nil, 0},
		{"1", data[:1], []int{1}, 1},
		{"C-1", data[:c-1], []int{c - 1}, 1},
		{"C", data[:c], []int{c}, 1},
		{"C+1", data[:c+1], []int{c, 1}, 2},
		{"2C", data[:2*c], []int{c, c}, 2},
		{"10C of zeros", zeros, []int{c, c, c, c, c, c, c, c, c, c}, 0},
		{"3C+7", data[:3*c+7], []int{c, c, c, 7}, 4},
	} {
		for _, size := range []int64{-1, int64(len(tc.content))} {
			for _, layout := range []snapshot.Layout{snapshot.Pages, snapshot.Stream} {
				p := snapshot.PartSpec{Layout: layout, Size: size}
				chunks, err := cut(bytes.NewReader(tc.content), p)
				if err != nil || !bytes.Equal(bytes.Join(chunks, nil), tc.content) {
					t.Fatalf("%s, %s, size %d: %d chunks of other bytes, %v", tc.name, layout, size, len(chunks), err)
				}
				var got []int
				blobs := 0
				for _, chunk := range chunks {
					got = append(got, len(chunk))
					if !snapshot.ChunkOf(chunk).Hash.IsZero() {
						blobs++
					}
				}
				if layout == snapshot.Pages && (fmt.Sprint(got) != fmt.Sprint(tc.want) || blobs != tc.blobs) {
					t.Errorf("%s: chunks of %v bytes, %d of them not zero, want %v, %d", tc.name, got, blobs, tc.want, tc.blobs)
				}
				if layout == snapshot.Stream && (tc.blobs == 0 && blobs != 0 || len(tc.content) == 0 && len(got) != 0) {
					t.Errorf("%s: stream of %d chunks, %d of them not zero", tc.name, len(got), blobs)
				}
			}
		}
	}
}

func TestCutterBoundariesGolden(t *testing.T) {
	chunks, err := cut(snapshottest.NewStream(42, 1<<20).Reader(), snapshot.PartSpec{Kind: snapshot.KindFiles, Size: 1 << 20})
	if err != nil {
		t.Fatalf("Next = %v", err)
	}
	var text strings.Builder
	at := 0
	for _, c := range chunks {
		at += len(c)
		fmt.Fprintln(&text, at)
	}
	golden(t, "boundaries.txt", []byte(text.String()))
	if mean := at / len(chunks); mean < snapshot.DefaultChunk/2 || mean > 2*snapshot.DefaultChunk {
		t.Errorf("chunks of %d bytes on average, aimed at %d", mean, snapshot.DefaultChunk)
	}
}

func TestCutterKeepsToBounds(t *testing.T) {
	s := snapshottest.NewStream(3, 3<<20)
	for _, c := range []int{snapshot.MinChunk, snapshot.DefaultChunk, snapshot.MaxChunk} {
		least, most := snapshot.StreamBounds(c)
		chunks, err := cut(s.Reader(), snapshot.PartSpec{Layout: snapshot.Stream, ChunkBytes: c, Size: -1})
		if err != nil {
			t.Fatalf("Next = %v", err)
		}
		for i, chunk := range chunks {
			if len(chunk) > most || len(chunk) < least && i < len(chunks)-1 {
				t.Errorf("chunk_bytes %d: chunk %d of %d has %d bytes, want %d to %d", c, i, len(chunks), len(chunk), least, most)
			}
		}
	}
}

func TestCutterTakesSizesAtTheirWord(t *testing.T) {
	broken := errors.New("the line is down")
	long := bytes.Repeat([]byte("headgate"), 10_000)
	for _, tc := range []struct {
		name string
		from io.Reader
		size int64
		want error
	}{
		{"shorter", bytes.NewReader(long), 80_001, io.ErrUnexpectedEOF},
		{"longer", bytes.NewReader(long), 79_999, snapshot.ErrInvalid},
		{"longer than nothing", bytes.NewReader(long), 0, snapshot.ErrInvalid},
		{"broken", io.MultiReader(bytes.NewReader(long), iotest.ErrReader(broken)), 80_000, broken},
		{"broken, of any size", io.MultiReader(bytes.NewReader(long), iotest.ErrReader(broken)), -1, broken},
		// What the body of a request gives that was cut: never the end of the image.
		{"cut", io.MultiReader(bytes.NewReader(long), iotest.ErrReader(io.ErrUnexpectedEOF)), -1, io.ErrUnexpectedEOF},
		{"cut at once", iotest.ErrReader(io.ErrUnexpectedEOF), -1, io.ErrUnexpectedEOF},
	} {
		for _, layout := range []snapshot.Layout{snapshot.Pages, snapshot.Stream} {
			if _, err := cut(tc.from, snapshot.PartSpec{Layout: layout, Size: tc.size}); !errors.Is(err, tc.want) {
				t.Errorf("%s, %s: Next = %v, want %v", tc.name, layout, err, tc.want)
			}
			if s, ok := tc.from.(io.Seeker); ok {
				_, _ = s.Seek(0, io.SeekStart)
			} else {
				break // it can be read once only; the rest is below
			}
		}
	}
	for _, at := range []int{0, 1, 80_000} {
		r := io.MultiReader(bytes.NewReader(long[:at]), iotest.ErrReader(io.ErrUnexpectedEOF))
		if _, err := cut(r, snapshot.PartSpec{Layout: snapshot.Stream, Size: -1}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("stream cut at %d: Next = %v, want io.ErrUnexpectedEOF", at, err)
		}
	}
}

func TestCutterOfAnImpossiblePart(t *testing.T) {
	var refused *snapshot.FieldError
	if _, err := cut(bytes.NewReader(nil), snapshot.PartSpec{ChunkBytes: 5}); !errors.As(err, &refused) {
		t.Errorf("Next = %v, want a FieldError", err)
	}
}

// Where a reader pauses does not move a cut, and all chunks together are what was read.
func TestCutsDoNotDependOnReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, 200_000).Draw(t, "size")
		im := snapshottest.NewImage(rapid.Uint64().Draw(t, "seed"), size, 0.3)
		p := snapshot.PartSpec{Size: size, ChunkBytes: snapshot.MinChunk << rapid.IntRange(0, 4).Draw(t, "chunk"),
			Layout: rapid.SampledFrom([]snapshot.Layout{snapshot.Pages, snapshot.Stream}).Draw(t, "layout")}
		var want bytes.Buffer
		_, _ = im.WriteTo(&want)
		once, err := cut(im.Reader(), p)
		if err != nil {
			t.Fatalf("Next = %v", err)
		}
		halves, err := cut(iotest.HalfReader(iotest.DataErrReader(im.Reader())), p)
		if err != nil {
			t.Fatalf("Next in halves = %v", err)
		}
		if !bytes.Equal(bytes.Join(once, nil), want.Bytes()) || fmt.Sprint(len(once)) != fmt.Sprint(len(halves)) {
			t.Fatalf("%d chunks, %d in halves, or other bytes", len(once), len(halves))
		}
		for i := range once {
			if !bytes.Equal(once[i], halves[i]) {
				t.Fatalf("chunk %d has %d bytes, %d in halves", i, len(once[i]), len(halves[i]))
			}
		}
	})
}

// leavesOf cuts a stream into chunks and leaves.
func leavesOf(t *testing.T, s *snapshottest.Stream) (chunks, leaves map[snapshot.Hash]bool) {
	t.Helper()
	all, err := cut(s.Reader(), snapshot.PartSpec{Layout: snapshot.Stream, ChunkBytes: snapshot.MinChunk, Size: s.Size()})
	if err != nil {
		t.Fatalf("Next = %v", err)
	}
	chunks, leaves = map[snapshot.Hash]bool{}, map[snapshot.Hash]bool{}
	var leaf snapshot.Leaf
	for i, content := range all {
		c := snapshot.ChunkOf(content)
		chunks[c.Hash] = true
		leaf.Chunks = append(leaf.Chunks, c)
		if snapshot.LeafEnds(snapshot.Stream, leaf.Chunks) || i == len(all)-1 {
			leaves[leaf.Hash(snapshot.Stream)] = true
			leaf.Chunks = nil
		}
	}
	return chunks, leaves
}

func shared(a, b map[snapshot.Hash]bool) (n int) {
	for h := range b {
		if a[h] {
			n++
		}
	}
	return n
}

func TestInsertingMovesFewChunks(t *testing.T) {
	const size = 4 << 20
	s := snapshottest.NewStream(17, size)
	chunks, leaves := leavesOf(t, s)
	for _, tc := range []struct{ at, n int64 }{
		{0, 1}, {0, 10_000}, {1000, 7}, {1 << 20, 1}, {1 << 20, 4096}, {2_500_000, 10_000}, {size - 1, 1}, {size, 500},
	} {
		newChunks, newLeaves := leavesOf(t, s.Insert(uint64(tc.n), tc.at, tc.n))
		if fresh := len(newChunks) - shared(chunks, newChunks); fresh > 12 {
			t.Errorf("%d bytes at %d: %d of %d chunks are new", tc.n, tc.at, fresh, len(newChunks))
		}
		if fresh := len(newLeaves) - shared(leaves, newLeaves); fresh > 4 {
			t.Errorf("%d bytes at %d: %d of %d leaves are new", tc.n, tc.at, fresh, len(newLeaves))
		}
		t.Logf("%d bytes at %d: %d of %d chunks, %d of %d leaves are new", tc.n, tc.at,
			len(newChunks)-shared(chunks, newChunks), len(newChunks), len(newLeaves)-shared(leaves, newLeaves), len(newLeaves))
	}
}
