package snapshot_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/sessions/snapshot"
)

// noise gives chunks that do not shrink.
func noise(n int) [][]byte {
	chunks := make([][]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	for i := range chunks {
		chunks[i] = make([]byte, snapshot.DefaultChunk)
		_, _ = r.Read(chunks[i])
	}
	return chunks
}

func TestCoderGivesBackWhatItWasGiven(t *testing.T) {
	coder := snapshot.NewCoder()
	all := append(contents(t, 4<<20, 0.3), noise(8)...)
	for _, n := range []int{1, 2, 7, 63, 64, 65, 100, snapshot.MaxChunk, snapshot.MaxContent} {
		all = append(all, bytes.Repeat([]byte("ab"), n)[:n])
	}
	var buf, out []byte
	for i, content := range all {
		blob := coder.Encode(content, buf)
		chunk := snapshot.ChunkOf(content)
		if chunk.Hash.IsZero() {
			blob = nil
		}
		if len(blob) > len(content) {
			t.Fatalf("chunk %d: blob of %d bytes for %d", i, len(blob), len(content))
		}
		got, err := coder.Decode(chunk, blob, out)
		if err != nil || !bytes.Equal(got, content) {
			t.Fatalf("chunk %d of %d bytes: Decode = %d bytes, %v", i, len(content), len(got), err)
		}
	}
}

func TestCoderStoresWhatDoesNotShrink(t *testing.T) {
	coder := snapshot.NewCoder()
	for _, content := range noise(4) {
		if blob := coder.Encode(content, nil); &blob[0] != &content[0] {
			t.Errorf("Encode of random bytes = %d bytes, want the content itself", len(blob))
		}
	}
}

// Two saves of one content at once, or by two servers, are the same object.
func TestSameContentSameBlob(t *testing.T) {
	chunks := contents(t, 2<<20, 0.1)
	first := snapshot.NewCoder()
	want := make([][]byte, len(chunks))
	for i, c := range chunks {
		want[i] = bytes.Clone(first.Encode(c, nil))
	}
	second := snapshot.NewCoder()
	var workers sync.WaitGroup
	for w := range 3 {
		workers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			var buf []byte
			for _, i := range r.Perm(len(chunks)) {
				buf = append(buf[:0], second.Encode(chunks[i], buf)...)
				if !bytes.Equal(buf, want[i]) {
					t.Errorf("chunk %d has two blobs", i)
				}
			}
		})
	}
	workers.Wait()
}

func TestDecodeRefusesDamage(t *testing.T) {
	coder := snapshot.NewCoder()
	content := bytes.Repeat([]byte("headgate "), 1000)
	chunk := snapshot.ChunkOf(content)
	blob := bytes.Clone(coder.Encode(content, nil))
	flipped := bytes.Clone(content)
	flipped[4000] ^= 1
	bomb, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(false))
	if err != nil {
		t.Fatal(err)
	}
	long := bomb.EncodeAll(make([]byte, 64<<20), nil)
	zeros := snapshot.Chunk{Length: 9000}
	for _, tc := range []struct {
		name  string
		chunk snapshot.Chunk
		blob  []byte
	}{
		{"content flipped", chunk, flipped},
		{"nothing", chunk, nil},
		{"a cut frame", chunk, blob[:len(blob)-1]},
		{"more behind the frame", chunk, append(bytes.Clone(blob), 0)},
		{"two frames", chunk, append(bytes.Clone(blob), blob...)},
		{"no frame", chunk, content[:8000]},
		{"a frame of another content", chunk, coder.Encode(bytes.Repeat([]byte("headgatE "), 1000), nil)},
		{"a frame that is too short", snapshot.Chunk{Length: chunk.Length + 1, Hash: chunk.Hash}, blob},
		{"a frame that is too long", snapshot.Chunk{Length: chunk.Length - 1, Hash: chunk.Hash}, blob},
		{"64 MiB in a small frame", chunk, long},
		{"a blob longer than the content", chunk, append(bytes.Clone(content), 0)},
		{"zeros with a blob", zeros, blob},
		{"zeros with zeros", zeros, make([]byte, 9000)},
		{"no end of zeros", snapshot.Chunk{Length: 1 << 31}, nil},
	} {
		got, err := coder.Decode(tc.chunk, tc.blob, nil)
		if !errors.Is(err, snapshot.ErrDamaged) || got != nil {
			t.Errorf("%s: Decode = %d bytes, %v, want ErrDamaged", tc.name, len(got), err)
		}
	}
}

// A flipped bit of a blob is an error or the right content: some bits of a frame mean nothing.
func TestD10_AnyFlippedBitOfABlob(t *testing.T) {
	coder := snapshot.NewCoder()
	chunks := contents(t, 1<<20, 0)
	rapid.Check(t, func(t *rapid.T) {
		content := chunks[rapid.IntRange(0, len(chunks)-1).Draw(t, "chunk")]
		blob := bytes.Clone(coder.Encode(content, nil))
		at := rapid.IntRange(0, 8*len(blob)-1).Draw(t, "bit")
		blob[at/8] ^= 1 << (at % 8)
		got, err := coder.Decode(snapshot.ChunkOf(content), blob, nil)
		if err == nil && !bytes.Equal(got, content) || err != nil && !errors.Is(err, snapshot.ErrDamaged) {
			t.Fatalf("Decode = %d bytes, %v", len(got), err)
		}
	})
}

func TestZeros(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 4095, 4096, 4097, 8192, 20_000} {
		b := make([]byte, n)
		if !snapshot.Zeros(b) || !snapshot.ChunkOf(b).Hash.IsZero() {
			t.Errorf("%d zeros are none", n)
		}
		for _, at := range []int{0, 7, n / 2, n - 1} {
			if at < 0 || at >= n {
				continue
			}
			b[at] = 1
			if snapshot.Zeros(b) || snapshot.ChunkOf(b).Hash.IsZero() {
				t.Errorf("%d bytes with a 1 at %d are zeros", n, at)
			}
			b[at] = 0
		}
	}
}

func FuzzDecode(f *testing.F) {
	coder := snapshot.NewCoder()
	content := bytes.Repeat([]byte("headgate "), 100)
	blob := coder.Encode(content, nil)
	f.Add(uint32(len(content)), blob)
	f.Add(uint32(len(content)), content)
	f.Add(uint32(0), []byte{})
	f.Add(uint32(1<<20), binary.LittleEndian.AppendUint32(nil, 0xfd2fb528))
	f.Fuzz(func(t *testing.T, length uint32, blob []byte) {
		chunk := snapshot.Chunk{Length: length, Hash: snapshot.ChunkOf(content).Hash}
		got, err := coder.Decode(chunk, blob, nil)
		if err != nil {
			if !errors.Is(err, snapshot.ErrDamaged) {
				t.Fatalf("Decode = %v, want ErrDamaged", err)
			}
			return
		}
		if !bytes.Equal(got, content) {
			t.Fatalf("Decode gave %d other bytes under the content's hash", len(got))
		}
	})
}
