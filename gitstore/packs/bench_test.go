package packs

import (
	"bytes"
	"io"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// A small object out of a pack of 450 MiB, warm.
func BenchmarkObjectOf4KiB(b *testing.B) {
	d := newDir(b, Options{FS: noSync{}})
	w := newWriter(b, d)
	r := seeded(11)
	var ids []refpolicy.OID
	for w.Size() < 450<<20 {
		id, _, err := w.AddStream(Blob, 4096, bytes.NewReader(noise(r, 4096)))
		if err != nil {
			b.Fatal(err)
		}
		ids = append(ids, id)
	}
	info, err := w.Finish()
	if err != nil {
		b.Fatal(err)
	}
	p := openPackT(b, d, info.Name)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		if _, _, err := p.Object(ids[r.IntN(len(ids))], 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}

// The last of a history of deltas, with its bases cached and not.
func BenchmarkDelta(b *testing.B) {
	repo := sample(b)
	for name, budget := range map[string]int64{"cached": 16 << 20, "uncached": 0} {
		b.Run(name, func(b *testing.B) {
			p := adopt(b, newDir(b, Options{Cache: NewBaseCache(budget)}), repo, true)
			all := objectsOf(b, repo)
			for i := 0; b.Loop(); i++ {
				o := all[i%len(all)]
				if len(o.data) > 100<<10 {
					continue
				}
				if _, _, err := p.Object(o.id, 1<<20); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A blob of 50 MiB, in and out: into a pack with its size known and not, out of
// it for the first time and again.
func BenchmarkStream50MiB(b *testing.B) {
	const size = 50 << 20
	for kind, buf := range map[string][]byte{"noise": noise(seeded(9), 1<<20), "text": words(seeded(9), 1<<20)} {
		d := newDir(b, Options{FS: noSync{}})
		write := func(told int64) (Info, refpolicy.OID) {
			w := newWriter(b, d)
			w.Expect(1)
			id, _, err := w.AddStream(Blob, told, io.LimitReader(&endless{buf: buf}, size))
			if err != nil {
				b.Fatal(err)
			}
			info, err := w.Finish()
			if err != nil {
				b.Fatal(err)
			}
			return info, id
		}
		info, id := write(size)
		p := openPackT(b, d, info.Name)
		for name, again := range map[string]bool{"read-first": false, "read-again": true} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				b.SetBytes(size)
				for b.Loop() {
					if !again {
						p.verified.Clear()
					}
					readThrough(b, p, id, size)
				}
			})
		}
		for name, told := range map[string]int64{"write": size, "write-unsized": -1} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				b.SetBytes(size)
				for b.Loop() {
					write(told)
				}
			})
		}
	}
}

func readThrough(b *testing.B, p *Pack, id refpolicy.OID, size int64) {
	_, _, r, err := p.Open(id)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	if n, err := io.Copy(io.Discard, r); err != nil || n != size {
		b.Fatalf("read %d bytes, %v", n, err)
	}
}
