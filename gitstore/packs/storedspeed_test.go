package packs_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/gitstore/packs"
)

const benchChunk, benchChunks = 16 << 10, 8192

func benchWrite(b *testing.B, d *packs.Dir, data []byte) *packs.StoredWriter {
	w, err := d.NewStoredWriter(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	for i := range benchChunks {
		if _, err := w.AddChunk(data[i : i+benchChunk]); err != nil {
			b.Fatal(err)
		}
	}
	return w
}

// Chunks of 16 KiB are added by one goroutine.
func BenchmarkStoredAdd(b *testing.B) {
	data, d := randomBytes(1, benchChunk+benchChunks), storedDir(b, packs.Options{})
	b.SetBytes(benchChunk * benchChunks)
	for b.Loop() {
		if err := benchWrite(b, d, data).Abort(); err != nil {
			b.Fatal(err)
		}
	}
}

// A pack of 128 MiB is synced and read again.
func BenchmarkStoredFinish(b *testing.B) {
	data, d := randomBytes(1, benchChunk+benchChunks), storedDir(b, packs.Options{})
	b.SetBytes(benchChunk * benchChunks)
	for b.Loop() {
		b.StopTimer()
		w := benchWrite(b, d, data)
		b.StartTimer()
		info, err := w.Finish(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := d.Remove(info.Name); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// Chunks are read one by one, warm.
func BenchmarkStoredRead(b *testing.B) {
	data, d := randomBytes(1, benchChunk+benchChunks), storedDir(b, packs.Options{})
	info, err := benchWrite(b, d, data).Finish(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	p, err := d.Pack(info.Name)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Release()
	ids := p.ByOffset()
	var buf []byte
	b.SetBytes(benchChunk * benchChunks)
	for b.Loop() {
		for _, id := range ids {
			if _, buf, err = p.Append(id, 1<<20, buf[:0]); err != nil {
				b.Fatal(err)
			}
		}
	}
}
