package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sort"
	"strconv"
)

const (
	listName  = "h" // of a leaf's list in its tree
	sizesName = "s" // of the leaves' sizes in the image's tree
)

// leafName and chunkName are the entries of a leaf in m, and of a chunk in a leaf.
func leafName(n int) string  { return fmt.Sprintf("%06x", n) }
func chunkName(n int) string { return fmt.Sprintf("%02x", n) }

// A storedLeaf is a leaf with the ids of its chunks' blobs, by place; zero for zeros.
type storedLeaf struct {
	tree   OID // zero: all zeros, there is none
	chunks []Chunk
	blobs  []OID
}

// readLeaf reads a leaf's tree and list: ErrDamaged for one that no save writes.
func readLeaf(ctx context.Context, repo Repo, tree OID) (l storedLeaf, list []byte, err error) {
	data, err := objectAs(ctx, repo, "tree", tree)
	if err != nil {
		return l, nil, err
	}
	var listID OID
	l = storedLeaf{tree: tree, blobs: make([]OID, LeafChunks)}
	for e, err := range treeEntries(data) {
		if err != nil {
			return l, nil, err
		}
		if e.name == listName {
			listID = e.id
			continue
		}
		n, err := strconv.ParseUint(e.name, 16, 8)
		if err != nil || e.dir || chunkName(int(n)) != e.name {
			return l, nil, fmt.Errorf("%w: leaf has an entry %q", ErrDamaged, e.name)
		}
		l.blobs[n] = e.id
	}
	if listID.IsZero() {
		return l, nil, fmt.Errorf("%w: leaf has no list", ErrDamaged)
	}
	if list, err = objectAs(ctx, repo, "blob", listID); err != nil {
		return l, nil, err
	}
	if l.chunks, err = DecodeList(list); err != nil {
		return l, nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return l, list, l.check()
}

// check holds the blobs to the list: one for each chunk that is no zeros, and no other.
func (l *storedLeaf) check() error {
	for i, id := range l.blobs {
		there := i < len(l.chunks) && !l.chunks[i].Hash.IsZero()
		if there == id.IsZero() {
			return fmt.Errorf("%w: chunk %s of a leaf does not fit its list", ErrDamaged, chunkName(i))
		}
	}
	l.blobs = l.blobs[:len(l.chunks)]
	return nil
}

// zeroLeaf is the leaf number n of a paged part that is zeros alone.
func zeroLeaf(p Part, n int) storedLeaf {
	left := p.Size - int64(n)*int64(p.ChunkBytes)*LeafChunks
	l := storedLeaf{}
	for ; left > 0 && len(l.chunks) < LeafChunks; left -= int64(p.ChunkBytes) {
		l.chunks = append(l.chunks, Chunk{Length: uint32(min(left, int64(p.ChunkBytes)))})
	}
	l.blobs = make([]OID, len(l.chunks))
	return l
}

// A partIndex finds the leaves of one part of a snapshot. It does not change.
type partIndex struct {
	part   Part
	sealed bool
	trees  []OID   // of its leaves; zero: zeros alone
	starts []int64 // of a streamed part: where each leaf's content begins, and the end of the last
}

// imageTrees are the trees of all leaves of a snapshot, by number, and their sizes if
// they are told.
func imageTrees(ctx context.Context, repo Repo, m Manifest, tree OID) (trees []OID, sizes []byte, err error) {
	leaves := 0
	for _, p := range m.Parts {
		leaves += p.Leaves
	}
	trees = make([]OID, leaves)
	data, err := objectAs(ctx, repo, "tree", tree)
	if err != nil {
		return nil, nil, err
	}
	image, err := entryOf(data, imageName)
	if err != nil || image.IsZero() {
		return trees, nil, err
	}
	if data, err = objectAs(ctx, repo, "tree", image); err != nil {
		return nil, nil, err
	}
	for e, err := range treeEntries(data) {
		if err != nil {
			return nil, nil, err
		}
		if e.name == sizesName && !e.dir {
			if sizes, err = objectAs(ctx, repo, "blob", e.id); err != nil {
				return nil, nil, err
			}
			continue
		}
		n, err := strconv.ParseUint(e.name, 16, 32)
		if err != nil || !e.dir || int(n) >= leaves || leafName(int(n)) != e.name {
			return nil, nil, fmt.Errorf("%w: image has an entry %q", ErrDamaged, e.name)
		}
		trees[n] = e.id
	}
	return trees, sizes, nil
}

// indexParts finds the leaves of all parts of a snapshot.
func indexParts(ctx context.Context, repo Repo, m Manifest, tree OID) ([]*partIndex, error) {
	trees, sizes, err := imageTrees(ctx, repo, m, tree)
	if err != nil {
		return nil, err
	}
	all := make([]*partIndex, len(m.Parts))
	for i, p := range m.Parts {
		x := &partIndex{part: p, sealed: m.Envelope != nil, trees: trees[p.FirstLeaf : p.FirstLeaf+p.Leaves]}
		if p.Layout == Stream {
			if err := x.readStarts(sizes); err != nil {
				return nil, err
			}
		}
		all[i] = x
	}
	return all, nil
}

func (x *partIndex) readStarts(sizes []byte) error {
	first, n := x.part.FirstLeaf, x.part.Leaves
	if len(sizes) < 8*(first+n) {
		return fmt.Errorf("%w: sizes of leaves are missing", ErrDamaged)
	}
	at := int64(0)
	for i := range n {
		x.starts = append(x.starts, at)
		size := binary.BigEndian.Uint64(sizes[8*(first+i):])
		if size > uint64(x.part.Size-at) {
			return fmt.Errorf("%w: sizes of leaves are over the image's", ErrDamaged)
		}
		at += int64(size)
		if x.trees[i].IsZero() {
			return fmt.Errorf("%w: leaf %d is missing", ErrDamaged, i)
		}
	}
	if x.starts = append(x.starts, at); at != x.part.Size {
		return fmt.Errorf("%w: leaves have %d bytes of %d", ErrDamaged, at, x.part.Size)
	}
	return nil
}

// leafAt is the number of the leaf with the byte at off, which is in the image.
func (x *partIndex) leafAt(off int64) int {
	if x.part.Layout == Pages {
		return int(off / (int64(x.part.ChunkBytes) * LeafChunks))
	}
	return sort.Search(len(x.starts), func(i int) bool { return x.starts[i] > off }) - 1
}

// start is where the content of leaf n begins.
func (x *partIndex) start(n int) int64 {
	if x.part.Layout == Pages {
		return int64(n) * int64(x.part.ChunkBytes) * LeafChunks
	}
	return x.starts[n]
}

// covers is how many bytes of the image the chunk number i of leaf n stands for: those of
// a sealed one are not as many as it has itself.
func (x *partIndex) covers(n, i int, c Chunk) int64 {
	if x.part.Layout == Pages {
		at := (int64(n)*LeafChunks + int64(i)) * int64(x.part.ChunkBytes)
		return min(int64(x.part.ChunkBytes), x.part.Size-at)
	}
	return int64(c.Length)
}

// leaf reads leaf n, and holds it to what the part says.
func (x *partIndex) leaf(ctx context.Context, repo Repo, n int) (l storedLeaf, hash Hash, err error) {
	if x.trees[n].IsZero() {
		return zeroLeaf(x.part, n), Hash{}, nil
	}
	l, list, err := readLeaf(ctx, repo, x.trees[n])
	if err == nil {
		err = x.fits(n, l)
	}
	if err != nil {
		return l, hash, fmt.Errorf("leaf %s: %w", leafName(x.part.FirstLeaf+n), err)
	}
	return l, (Leaf{Chunks: l.chunks}).hashOf(x.part.Layout, list), nil
}

// hashOf is Hash of a leaf whose list is made.
func (l Leaf) hashOf(layout Layout, list []byte) Hash {
	if layout == Pages && l.Zeros() {
		return Hash{}
	}
	return hashBytes(list)
}

func (x *partIndex) fits(n int, l storedLeaf) error {
	if x.part.Layout == Stream {
		if size := (Leaf{Chunks: l.chunks}).Size(); size != x.starts[n+1]-x.starts[n] {
			return fmt.Errorf("%w: it has %d bytes", ErrDamaged, size)
		}
		return nil
	}
	left := x.part.Size - x.start(n)
	if want := min(LeafChunks, int((left+int64(x.part.ChunkBytes)-1)/int64(x.part.ChunkBytes))); len(l.chunks) != want {
		return fmt.Errorf("%w: it has %d chunks, not %d", ErrDamaged, len(l.chunks), want)
	}
	for i, c := range l.chunks {
		if want := x.covers(n, i, c); int64(c.Length) != want && (!x.sealed || c.Hash.IsZero()) {
			return fmt.Errorf("%w: chunk %s has %d bytes, not %d", ErrDamaged, chunkName(i), c.Length, want)
		}
	}
	return nil
}

// encodeTree writes a git tree of entries in order.
func encodeTree(entries []treeEntry) []byte {
	var b bytes.Buffer
	for _, e := range entries {
		mode := "100644"
		if e.dir {
			mode = "40000"
		}
		b.WriteString(mode + " " + e.name + "\x00")
		b.Write(e.id[:])
	}
	return b.Bytes()
}
