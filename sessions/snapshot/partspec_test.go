package snapshot_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/sessions/snapshot"
)

func TestCompleteFillsInDefaults(t *testing.T) {
	for _, tc := range []struct{ give, want snapshot.PartSpec }{
		{snapshot.PartSpec{Size: -1},
			snapshot.PartSpec{Name: "memory", Kind: "memory", Layout: snapshot.Pages, ChunkBytes: snapshot.DefaultChunk, Size: -1}},
		{snapshot.PartSpec{Kind: "disk"},
			snapshot.PartSpec{Name: "disk", Kind: "disk", Layout: snapshot.Pages, ChunkBytes: snapshot.DefaultChunk}},
		{snapshot.PartSpec{Kind: "namespace", Name: "py", ChunkBytes: 4096, Size: 1 << 40},
			snapshot.PartSpec{Name: "py", Kind: "namespace", Layout: snapshot.Stream, ChunkBytes: 4096, Size: 1 << 40}},
		{snapshot.PartSpec{Kind: "gpu", Layout: snapshot.Pages, ChunkBytes: 1 << 20},
			snapshot.PartSpec{Name: "gpu", Kind: "gpu", Layout: snapshot.Pages, ChunkBytes: 1 << 20}},
		{snapshot.PartSpec{Kind: "files", Name: strings.Repeat("é", 128)},
			snapshot.PartSpec{Name: strings.Repeat("é", 128), Kind: "files", Layout: snapshot.Stream, ChunkBytes: snapshot.DefaultChunk}},
		{snapshot.PartSpec{Size: 30, Regions: []snapshot.Region{{Address: math.MaxUint64 - 9, Size: 10}, {Address: 5, Offset: 10, Size: 20}}},
			snapshot.PartSpec{Name: "memory", Kind: "memory", Layout: snapshot.Pages, ChunkBytes: snapshot.DefaultChunk, Size: 30,
				Regions: []snapshot.Region{{Address: 5, Offset: 10, Size: 20}, {Address: math.MaxUint64 - 9, Size: 10}}}},
	} {
		got, err := tc.give.Complete()
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%+v.Complete() = %+v, %v, want %+v", tc.give, got, err, tc.want)
		}
		if again, err := got.Complete(); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("completed twice: %+v, %v, want %+v", again, err, got)
		}
	}
}

func TestCompleteRefusesByField(t *testing.T) {
	regions := func(r ...snapshot.Region) snapshot.PartSpec { return snapshot.PartSpec{Size: 100, Regions: r} }
	for _, tc := range []struct {
		give snapshot.PartSpec
		want string
	}{
		{snapshot.PartSpec{Name: "a/b"}, "name"},
		{snapshot.PartSpec{Name: ".."}, "name"},
		{snapshot.PartSpec{Name: "a\n"}, "name"},
		{snapshot.PartSpec{Name: "\xff"}, "name"},
		{snapshot.PartSpec{Name: strings.Repeat("x", 129)}, "name"},
		{snapshot.PartSpec{Name: "a", Kind: "b/c"}, "kind"},
		{snapshot.PartSpec{Kind: "../x"}, "kind"}, // not the name that it would give the part
		{snapshot.PartSpec{Layout: "rows"}, "layout"},
		{snapshot.PartSpec{ChunkBytes: -4096}, "chunk_bytes"},
		{snapshot.PartSpec{ChunkBytes: 5000}, "chunk_bytes"},
		{snapshot.PartSpec{ChunkBytes: 2 << 20}, "chunk_bytes"},
		{snapshot.PartSpec{Size: -2}, "size_bytes"},
		{snapshot.PartSpec{Size: 1<<40 + 1}, "size_bytes"},
		{regions(snapshot.Region{Size: 0}), "regions"},
		{regions(snapshot.Region{Size: 101}), "regions"},
		{regions(snapshot.Region{Offset: 101, Size: 1}), "regions"},
		{regions(snapshot.Region{Offset: -1, Size: 1}), "regions"},
		{regions(snapshot.Region{Offset: 1, Size: math.MaxInt64}), "regions"},
		{regions(snapshot.Region{Address: math.MaxUint64, Size: 2}), "regions"},
		{regions(snapshot.Region{Address: 10, Size: 10}, snapshot.Region{Address: 19, Size: 1}), "regions"},
		{regions(snapshot.Region{Address: 10, Size: 10}, snapshot.Region{Address: 10, Size: 10}), "regions"},
	} {
		_, err := tc.give.Complete()
		var refused *snapshot.FieldError
		if !errors.As(err, &refused) || refused.Field != tc.want {
			t.Errorf("%+v.Complete() = %v, want a FieldError for %s", tc.give, err, tc.want)
		}
	}
}
