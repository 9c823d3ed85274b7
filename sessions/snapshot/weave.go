package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"golang.org/x/sync/errgroup"
)

func hashBytes(b []byte) Hash { return sha256.Sum256(b) }

// A weave puts the tree of a snapshot together, part by part and leaf by leaf, in a
// pack. What it takes over from the base as it is, it remembers to be read again. It is
// for one goroutine.
type weave struct {
	k    *Keeper
	repo Repo
	pack Pack // nil: nothing is written, as for a dry run
	base *baseChunks

	parts   []Part
	leaves  int // of all parts so far
	image   []treeEntry
	sizes   []byte
	streams bool
	zero    int64
	stored  int64
	fresh   int64               // bytes of blobs that no base had
	blobs   map[uint64]struct{} // those that were counted, by the beginning of their ids
	reused  []OID               // blobs of the base, each once
	trees   []OID               // trees of the base's leaves

	spec   PartSpec // of the part under way
	like   *partIndex
	hashes []Hash
	size   int64
}

func (k *Keeper) newWeave(repo Repo, pack Pack, base *baseChunks) *weave {
	return &weave{k: k, repo: repo, pack: pack, base: base, blobs: map[uint64]struct{}{}}
}

func (w *weave) begin(spec PartSpec) {
	w.spec, w.like, w.hashes, w.size = spec, w.base.like(spec), nil, 0
}

// A woven chunk is a chunk with its blob.
type woven struct {
	Chunk
	blob  OID // zero: zeros
	bytes int // of the blob, if it is new
	isNew bool
}

// leaf adds a leaf to the part under way.
func (w *weave) leaf(ctx context.Context, chunks []woven) error {
	if w.leaves >= MaxLeaves {
		return invalidf("the parts have more than %d leaves", MaxLeaves)
	}
	list := make([]Chunk, len(chunks))
	for i, c := range chunks {
		list[i] = c.Chunk
		if err := w.count(c); err != nil {
			return err
		}
	}
	leaf := Leaf{Chunks: list}
	number, at := w.leaves, len(w.hashes)
	w.leaves++
	w.size += leaf.Size()
	w.sizes = binary.BigEndian.AppendUint64(w.sizes, uint64(leaf.Size()))
	if w.spec.Layout == Stream {
		w.streams = true
	}
	data := AppendList(nil, list)
	hash := leaf.hashOf(w.spec.Layout, data)
	w.hashes = append(w.hashes, hash)
	if hash.IsZero() {
		return nil
	}
	tree, err := w.tree(ctx, at, chunks, data)
	w.image = append(w.image, treeEntry{name: leafName(number), dir: true, id: tree})
	return err
}

// count adds a chunk's bytes up, each blob once.
func (w *weave) count(c woven) error {
	if c.blob.IsZero() {
		if !c.Hash.IsZero() {
			return fmt.Errorf("%w: chunk %s", ErrNoObject, c.Hash)
		}
		w.zero += int64(c.Length)
		return nil
	}
	key := binary.BigEndian.Uint64(c.blob[:])
	if _, twice := w.blobs[key]; twice {
		return nil
	}
	w.blobs[key] = struct{}{}
	if !c.isNew {
		w.reused = append(w.reused, c.blob)
		return nil
	}
	w.stored += int64(c.bytes)
	w.fresh += int64(c.bytes)
	return w.k.overCap(w.stored)
}

// tree gives the tree of a leaf: the base's, if it is the same, or a new one.
func (w *weave) tree(ctx context.Context, at int, chunks []woven, list []byte) (OID, error) {
	old, err := w.base.leafOf(ctx, w.like, at)
	if err != nil {
		return OID{}, err
	}
	if old != nil && !old.tree.IsZero() && old.holds(chunks) {
		w.trees = append(w.trees, old.tree)
		return old.tree, nil
	}
	if w.pack == nil {
		return OID{}, nil
	}
	entries := make([]treeEntry, 0, len(chunks)+1)
	for i, c := range chunks {
		if !c.blob.IsZero() {
			entries = append(entries, treeEntry{name: chunkName(i), id: c.blob})
		}
	}
	id, err := w.pack.AddObject("blob", list)
	if err != nil {
		return OID{}, err
	}
	return w.pack.AddObject("tree", encodeTree(append(entries, treeEntry{name: listName, id: id})))
}

func (l *storedLeaf) holds(chunks []woven) bool {
	if len(l.chunks) != len(chunks) {
		return false
	}
	for i, c := range chunks {
		if l.chunks[i] != c.Chunk || l.blobs[i] != c.blob {
			return false
		}
	}
	return true
}

// end ends the part under way. size is what its chunks cover.
func (w *weave) end(size int64) Part {
	p := Part{
		Name: w.spec.Name, Kind: w.spec.Kind, Layout: w.spec.Layout, ChunkBytes: w.spec.ChunkBytes, Size: size,
		FirstLeaf: w.leaves - len(w.hashes), Leaves: len(w.hashes), Regions: w.spec.Regions,
	}
	p.Root = ImageRoot(p, w.hashes).String()
	w.parts = append(w.parts, p)
	return p
}

// same reports whether the parts are those of the base, as they are.
func (w *weave) same() bool {
	if len(w.base.parts) == 0 || len(w.parts) != len(w.base.parts) {
		return false
	}
	for i, p := range w.parts {
		b := w.base.parts[i].part
		if p.Name != b.Name || p.Kind != b.Kind || p.Root != b.Root || len(p.Regions) != len(b.Regions) {
			return false
		}
		for n, r := range p.Regions {
			if r != b.Regions[n] {
				return false
			}
		}
	}
	return true
}

// verify reads all that was taken over from the base again, as a restore would, and adds
// it up: *DamagedError for what is not what it was saved as.
func (w *weave) verify(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	workers := w.k.Limits.Workers
	sums := make([]int64, workers)
	for n := range workers {
		group.Go(func() error {
			for i := n; i < len(w.trees); i += workers {
				if _, _, err := readLeaf(ctx, w.repo, w.trees[i]); err != nil {
					return fmt.Errorf("leaf: %w", err)
				}
			}
			var buf []byte
			for i := n; i < len(w.reused); i += workers {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				blob, err := checkedBlob(ctx, w.repo, w.reused[i], buf)
				if err != nil {
					return err
				}
				buf = blob
				sums[n] += int64(len(blob))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, n := range sums {
		w.stored += n
	}
	return w.k.overCap(w.stored)
}

// root writes the snapshot's tree and gives it.
func (w *weave) root(m *Manifest) (OID, error) {
	text, err := m.Encode()
	if err != nil {
		return OID{}, err
	}
	id, err := w.pack.AddObject("blob", text)
	if err != nil {
		return OID{}, err
	}
	entries := []treeEntry{{name: manifestName, id: id}}
	image := w.image
	if w.streams {
		if id, err = w.pack.AddObject("blob", w.sizes); err != nil {
			return OID{}, err
		}
		image = append(image, treeEntry{name: sizesName, id: id})
	}
	if len(image) > 0 {
		if id, err = w.pack.AddObject("tree", encodeTree(image)); err != nil {
			return OID{}, err
		}
		entries = append([]treeEntry{{name: imageName, dir: true, id: id}}, entries...)
	}
	return w.pack.AddObject("tree", encodeTree(entries))
}
