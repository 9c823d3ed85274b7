package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

const (
	// EntryBytes is how long an entry of a leaf's list is.
	EntryBytes = 4 + len(Hash{})
	// MaxContent is how many bytes the content of a chunk has at most: that of a streamed
	// image may be four times the average, and a sealed one is a little longer.
	MaxContent = 4*MaxChunk + 64

	// A streamed image's leaves end by content after minStreamLeaf chunks: at one of
	// which the last byte's bits of the hash under leafMask are all set, so never at zeros.
	minStreamLeaf = 64
	leafMask      = 63
)

// AppendList writes a leaf's list to b.
func AppendList(b []byte, chunks []Chunk) []byte {
	for _, c := range chunks {
		b = binary.BigEndian.AppendUint32(b, c.Length)
		b = append(b, c.Hash[:]...)
	}
	return b
}

// DecodeList reads a list of 1 to LeafChunks chunks: ErrInvalid.
func DecodeList(data []byte) ([]Chunk, error) {
	if len(data) == 0 || len(data)%EntryBytes != 0 || len(data) > LeafChunks*EntryBytes {
		return nil, invalidf("list of %d bytes", len(data))
	}
	chunks := make([]Chunk, len(data)/EntryBytes)
	for i := range chunks {
		entry := data[i*EntryBytes:][:EntryBytes]
		chunks[i] = Chunk{Length: binary.BigEndian.Uint32(entry), Hash: Hash(entry[4:])}
		if chunks[i].Length == 0 || chunks[i].Length > MaxContent {
			return nil, invalidf("list has a chunk of %d bytes", chunks[i].Length)
		}
	}
	return chunks, nil
}

// Hash is the SHA-256 of the leaf's list; zero for a leaf of zeros alone in a paged
// image. In a streamed one the list tells where zeros end, and is hashed as any other.
func (l Leaf) Hash(layout Layout) Hash {
	if layout == Pages && l.Zeros() {
		return Hash{}
	}
	var list [LeafChunks * EntryBytes]byte
	return sha256.Sum256(AppendList(list[:0], l.Chunks))
}

// Zeros reports whether all chunks of the leaf are zeros.
func (l Leaf) Zeros() bool {
	for _, c := range l.Chunks {
		if !c.Hash.IsZero() {
			return false
		}
	}
	return true
}

// Size is how many bytes of content its chunks have.
func (l Leaf) Size() (n int64) {
	for _, c := range l.Chunks {
		n += int64(c.Length)
	}
	return n
}

// LeafEnds reports whether the leaf of these chunks, one after another, ends with the
// last of them: it is full, or in a streamed image cut here by content.
func LeafEnds(layout Layout, chunks []Chunk) bool {
	switch n := len(chunks); {
	case n >= LeafChunks:
		return true
	case layout == Stream && n >= minStreamLeaf:
		return chunks[n-1].Hash[31]&leafMask == leafMask
	}
	return false
}

// PageLeaves is how many leaves a paged image of size bytes has.
func PageLeaves(size int64, chunkBytes int) int {
	leaf := int64(chunkBytes) * LeafChunks
	return int((size + leaf - 1) / leaf)
}

// ImageRoot is the hash of an image from those of all its leaves, in order. Of the part
// size, chunk size and layout go into it.
func ImageRoot(p Part, leaves []Hash) Hash {
	r := newRoot(p)
	for _, leaf := range leaves {
		r.Write(leaf[:])
	}
	return sumOf(r)
}

func newRoot(p Part) hash.Hash {
	head := append(make([]byte, 0, 64), "headgate image 1\n"...)
	head = binary.BigEndian.AppendUint64(head, uint64(p.Size))
	head = binary.BigEndian.AppendUint32(head, uint32(p.ChunkBytes))
	var layout byte
	if p.Layout == Stream {
		layout = 1
	}
	r := sha256.New()
	r.Write(append(head, layout))
	return r
}

func sumOf(h hash.Hash) (sum Hash) {
	h.Sum(sum[:0])
	return sum
}

// SnapshotRoot is the hash of a snapshot of these parts; of one part it is its root. It
// is zero if a part has no valid root.
func SnapshotRoot(parts []Part) Hash {
	all := sha256.New()
	all.Write([]byte("headgate parts 1\n"))
	var root Hash
	for _, p := range parts {
		var err error
		if root, err = ParseHash(p.Root); err != nil {
			return Hash{}
		}
		all.Write(append([]byte(p.Name), 0))
		all.Write(root[:])
	}
	if len(parts) == 1 {
		return root
	}
	return sumOf(all)
}
