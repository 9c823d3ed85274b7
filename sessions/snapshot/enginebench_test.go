package snapshot

import (
	"bytes"
	"io"
	"testing"

	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// benchImage has 60% zero pages, as memory has.
const benchImage = 64 << 20

// saves measures saves of images, each on top of before; nil: as the first of a session.
func saves(b *testing.B, before *snapshottest.Image, next func(n int) []byte) {
	b.SetBytes(benchImage)
	b.ReportAllocs()
	var stored int64
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		w := saving(b, Limits{Cap: -1})
		if before != nil {
			w.stream(b, SaveSpec{Parts: []PartSpec{{Size: -1}}}, memoryOf(b, before))
		}
		data := next(n)
		b.StartTimer()
		got, err := w.tryStream(SaveSpec{Parts: []PartSpec{{Size: benchImage}}}, bytes.NewReader(data))
		if err != nil {
			b.Fatalf("Save: %v", err)
		}
		stored = got.New
		if got.Skipped {
			stored = 0
		}
	}
	b.ReportMetric(float64(stored), "stored-bytes")
}

func BenchmarkSave(b *testing.B) {
	image := snapshottest.NewImage(1, benchImage, 0.6)
	first := memoryOf(b, image)
	b.Run("first", func(b *testing.B) { saves(b, nil, func(int) []byte { return first }) })
	b.Run("same", func(b *testing.B) { saves(b, image, func(int) []byte { return first }) })
	for name, how := range map[string]snapshottest.How{"clustered": snapshottest.Clustered, "scattered": snapshottest.Scattered} {
		b.Run(name, func(b *testing.B) {
			saves(b, image, func(n int) []byte { return memoryOf(b, image.Mutate(uint64(n), 0.01, how)) })
		})
	}
}

func BenchmarkRestore(b *testing.B) {
	w := saving(b, Limits{Cap: -1})
	got := w.stream(b, SaveSpec{Parts: []PartSpec{{Size: -1}}}, memoryOf(b, snapshottest.NewImage(1, benchImage, 0.6)))
	im, err := w.k.Open(b.Context(), w.as(backend()), got.Commit, "")
	if err != nil {
		b.Fatalf("Open: %v", err)
	}
	b.Run("whole", func(b *testing.B) {
		b.SetBytes(benchImage)
		b.ReportAllocs()
		for b.Loop() {
			if err := im.WriteRange(b.Context(), io.Discard, 0, benchImage); err != nil {
				b.Fatalf("WriteRange: %v", err)
			}
		}
	})
	b.Run("sparse", func(b *testing.B) {
		b.SetBytes(benchImage)
		b.ReportAllocs()
		for b.Loop() {
			if err := im.WriteSparse(b.Context(), io.Discard, 0, benchImage, false); err != nil {
				b.Fatalf("WriteSparse: %v", err)
			}
		}
	})
	b.Run("page", func(b *testing.B) {
		b.ReportAllocs()
		for n := int64(0); b.Loop(); n++ {
			at := n * 7919 * MinChunk % benchImage
			opened, err := w.k.Open(b.Context(), w.as(backend()), got.Commit, "")
			if err == nil {
				err = opened.WriteRange(b.Context(), io.Discard, at, MinChunk)
			}
			if err != nil {
				b.Fatalf("read page: %v", err)
			}
		}
	})
}
