package snapshot_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// contents are the chunks of a memory image.
func contents(tb testing.TB, size int64, zeroShare float64) [][]byte {
	tb.Helper()
	var all bytes.Buffer
	if _, err := snapshottest.NewImage(1, size, zeroShare).WriteTo(&all); err != nil {
		tb.Fatalf("WriteTo = %v", err)
	}
	var chunks [][]byte
	for b := all.Bytes(); len(b) > 0; {
		n := min(len(b), snapshot.DefaultChunk)
		chunks = append(chunks, b[:n:n])
		b = b[n:]
	}
	return chunks
}

func BenchmarkChunkOf(b *testing.B) {
	for name, share := range map[string]float64{"zeros": 1, "memory": 0.6, "full": 0} {
		b.Run(name, func(b *testing.B) {
			chunks := contents(b, 8<<20, share)
			b.SetBytes(8 << 20)
			for b.Loop() {
				for _, c := range chunks {
					snapshot.ChunkOf(c)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	for name, chunks := range map[string][][]byte{"memory": contents(b, 8<<20, 0), "noise": noise(512)} {
		b.Run(name, func(b *testing.B) {
			coder := snapshot.NewCoder()
			buf := make([]byte, 2*snapshot.DefaultChunk)
			b.SetBytes(8 << 20)
			var stored int
			for b.Loop() {
				stored = 0
				for _, c := range chunks {
					stored += len(coder.Encode(c, buf))
				}
			}
			b.ReportMetric(float64(stored)/(8<<20), "stored/byte")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	coder := snapshot.NewCoder()
	var entries []snapshot.Chunk
	var blobs [][]byte
	for _, c := range contents(b, 8<<20, 0) {
		entries = append(entries, snapshot.ChunkOf(c))
		blobs = append(blobs, bytes.Clone(coder.Encode(c, nil)))
	}
	buf := make([]byte, snapshot.DefaultChunk)
	b.SetBytes(8 << 20)
	for b.Loop() {
		for i, c := range entries {
			if c.Hash.IsZero() {
				continue
			}
			if _, err := coder.Decode(c, blobs[i], buf); err != nil {
				b.Fatalf("Decode = %v", err)
			}
		}
	}
}

func BenchmarkCutter(b *testing.B) {
	all := bytes.Join(contents(b, 8<<20, 0), nil)
	for _, layout := range []snapshot.Layout{snapshot.Pages, snapshot.Stream} {
		b.Run(string(layout), func(b *testing.B) {
			buf := make([]byte, 4*snapshot.DefaultChunk)
			b.SetBytes(8 << 20)
			for b.Loop() {
				cut := snapshot.NewCutter(bytes.NewReader(all), snapshot.PartSpec{Layout: layout, Size: -1})
				for {
					if _, err := cut.Next(buf); err != nil {
						if err != io.EOF {
							b.Fatalf("Next = %v", err)
						}
						break
					}
				}
			}
		})
	}
}
