package snapshot_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/sessions/snapshot"
)

func chunk(length uint32, hash byte) snapshot.Chunk {
	c := snapshot.Chunk{Length: length}
	if hash != 0 {
		c.Hash = snapshot.ChunkOf([]byte{hash}).Hash
	}
	return c
}

func TestListGolden(t *testing.T) {
	golden(t, "list", snapshot.AppendList(nil, []snapshot.Chunk{chunk(4096, 1), chunk(4096, 0), chunk(7, 3)}))
}

// The hashes that a snapshot is known by: they may never become others.
func TestRootsGolden(t *testing.T) {
	data := snapshot.Leaf{Chunks: []snapshot.Chunk{chunk(4096, 1), chunk(4096, 0), chunk(7, 3)}}
	zeros := snapshot.Leaf{Chunks: []snapshot.Chunk{chunk(4096, 0), chunk(4096, 0)}}
	var text strings.Builder
	for _, layout := range []snapshot.Layout{snapshot.Pages, snapshot.Stream} {
		leaves := []snapshot.Hash{data.Hash(layout), zeros.Hash(layout)}
		p := snapshot.Part{Name: "a", Layout: layout, ChunkBytes: 4096, Size: 8199}
		p.Root = snapshot.ImageRoot(p, leaves).String()
		q := snapshot.Part{Name: "b", Layout: layout, ChunkBytes: 4096}
		q.Root = snapshot.ImageRoot(q, nil).String()
		fmt.Fprintf(&text, "%s leaf %s\n%s zero leaf %s\n%s image %s\n%s empty image %s\n%s parts %s\n",
			layout, leaves[0], layout, leaves[1], layout, p.Root, layout, q.Root, layout, snapshot.SnapshotRoot([]snapshot.Part{p, q}))
		if got := snapshot.SnapshotRoot([]snapshot.Part{p}); got.String() != p.Root {
			t.Errorf("SnapshotRoot of one part = %s, want its root %s", got, p.Root)
		}
	}
	golden(t, "roots.txt", []byte(text.String()))
}

func TestRootTellsImagesApart(t *testing.T) {
	leaf := snapshot.Leaf{Chunks: []snapshot.Chunk{chunk(4096, 1)}}.Hash(snapshot.Pages)
	seen := map[snapshot.Hash]string{}
	for _, tc := range []struct {
		p      snapshot.Part
		leaves []snapshot.Hash
	}{
		{snapshot.Part{Layout: snapshot.Pages, ChunkBytes: 4096, Size: 4096}, []snapshot.Hash{leaf}},
		{snapshot.Part{Layout: snapshot.Stream, ChunkBytes: 4096, Size: 4096}, []snapshot.Hash{leaf}},
		{snapshot.Part{Layout: snapshot.Pages, ChunkBytes: 8192, Size: 4096}, []snapshot.Hash{leaf}},
		{snapshot.Part{Layout: snapshot.Pages, ChunkBytes: 4096, Size: 4097}, []snapshot.Hash{leaf}},
		{snapshot.Part{Layout: snapshot.Pages, ChunkBytes: 4096, Size: 4096}, []snapshot.Hash{{}}},
		{snapshot.Part{Layout: snapshot.Pages, ChunkBytes: 4096, Size: 4096}, nil},
	} {
		root := snapshot.ImageRoot(tc.p, tc.leaves)
		if other, ok := seen[root]; ok {
			t.Errorf("%+v has the root of %s", tc.p, other)
		}
		seen[root] = fmt.Sprintf("%+v", tc.p)
	}
	if root := snapshot.SnapshotRoot([]snapshot.Part{{Name: "a", Root: "beef"}}); !root.IsZero() {
		t.Errorf("SnapshotRoot of a part without a root = %s, want zero", root)
	}
}

func TestZeroLeaves(t *testing.T) {
	two := snapshot.Leaf{Chunks: []snapshot.Chunk{chunk(10, 0), chunk(20, 0)}}
	one := snapshot.Leaf{Chunks: []snapshot.Chunk{chunk(30, 0)}}
	if !two.Zeros() || two.Size() != 30 || !two.Hash(snapshot.Pages).IsZero() {
		t.Errorf("%v: zeros %v, size %d, hash %s", two, two.Zeros(), two.Size(), two.Hash(snapshot.Pages))
	}
	if two.Hash(snapshot.Stream) == one.Hash(snapshot.Stream) || one.Hash(snapshot.Stream).IsZero() {
		t.Error("a stream's leaves of zeros are not told apart")
	}
}

func TestDecodeListRefuses(t *testing.T) {
	entry := snapshot.AppendList(nil, []snapshot.Chunk{chunk(1, 1)})
	long := bytes.Clone(entry)
	binary.BigEndian.PutUint32(long, snapshot.MaxContent+1)
	for name, data := range map[string][]byte{
		"nothing":    {},
		"cut":        entry[:35],
		"too many":   bytes.Repeat(entry, 257),
		"no length":  make([]byte, 36),
		"too long":   long,
		"more of it": append(bytes.Clone(entry), 0),
	} {
		if chunks, err := snapshot.DecodeList(data); !errors.Is(err, snapshot.ErrInvalid) {
			t.Errorf("%s: DecodeList = %d chunks, %v, want ErrInvalid", name, len(chunks), err)
		}
	}
}

func TestListsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chunks := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) snapshot.Chunk {
			return chunk(rapid.Uint32Range(1, snapshot.MaxContent).Draw(t, "length"), rapid.Byte().Draw(t, "hash"))
		}), 1, snapshot.LeafChunks).Draw(t, "chunks")
		got, err := snapshot.DecodeList(snapshot.AppendList(nil, chunks))
		if err != nil || !reflect.DeepEqual(got, chunks) {
			t.Fatalf("DecodeList = %v, %v, want %v", got, err, chunks)
		}
	})
}

func TestLeafEnds(t *testing.T) {
	ends, goesOn := snapshot.Chunk{Length: 1}, snapshot.Chunk{Length: 1}
	ends.Hash[31], goesOn.Hash[31] = 0x7f, 0x7e
	zeros := snapshot.Chunk{Length: 1}
	for _, tc := range []struct {
		layout snapshot.Layout
		n      int
		last   snapshot.Chunk
		want   bool
	}{
		{snapshot.Pages, 255, ends, false},
		{snapshot.Pages, 256, goesOn, true},
		{snapshot.Stream, 63, ends, false},
		{snapshot.Stream, 64, ends, true},
		{snapshot.Stream, 64, goesOn, false},
		{snapshot.Stream, 64, zeros, false},
		{snapshot.Stream, 255, ends, true},
		{snapshot.Stream, 255, goesOn, false},
		{snapshot.Stream, 256, goesOn, true},
		{snapshot.Stream, 0, zeros, false},
	} {
		chunks := make([]snapshot.Chunk, tc.n)
		if tc.n > 0 {
			chunks[tc.n-1] = tc.last
		}
		if got := snapshot.LeafEnds(tc.layout, chunks); got != tc.want {
			t.Errorf("LeafEnds(%s, %d chunks, last hash ends in %x) = %v, want %v", tc.layout, tc.n, tc.last.Hash[31], got, tc.want)
		}
	}
}

func FuzzDecodeList(f *testing.F) {
	f.Add(snapshot.AppendList(nil, []snapshot.Chunk{chunk(4096, 1), chunk(4096, 0), chunk(7, 3)}))
	f.Add(make([]byte, 36))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		chunks, err := snapshot.DecodeList(data)
		if err != nil {
			if !errors.Is(err, snapshot.ErrInvalid) {
				t.Fatalf("DecodeList = %v, want ErrInvalid", err)
			}
			return
		}
		if again := snapshot.AppendList(nil, chunks); !bytes.Equal(again, data) {
			t.Fatalf("AppendList of what was read gives other bytes")
		}
	})
}
