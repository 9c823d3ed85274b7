package snapshot

import (
	"context"
	"encoding/binary"
)

// maxMoved is how many chunks of a base are looked for at other places than their own:
// some 20 bytes of memory each. Of a larger base only those at their places are found.
const maxMoved = 4 << 20

// A baseChunks finds chunks of the snapshot that a save builds on. It is for one
// goroutine at a time.
type baseChunks struct {
	k     *Keeper
	repo  Repo
	parts []*partIndex
	moved map[uint64]baseSpot // by the beginning of the hash; nil: not made yet
}

// A baseSpot is a chunk's in a base: part, leaf and place in it.
type baseSpot struct {
	part, leaf uint32
	chunk      uint8
}

// baseOf finds the chunks of a plan's base; of none, or a damaged one, there are none.
func (k *Keeper) baseOf(ctx context.Context, repo Repo, p *planned) (*baseChunks, error) {
	b := &baseChunks{k: k, repo: repo}
	if p.base == nil {
		return b, nil
	}
	open, err := k.openImage(ctx, repo, p.base.Commit)
	if isDamage(err) {
		p.base = nil
		return b, nil
	}
	if err == nil {
		b.parts = open.parts
	}
	return b, err
}

// like is the base's part that a part's chunks stand in for at their places; nil: none.
func (b *baseChunks) like(p PartSpec) *partIndex {
	for _, x := range b.parts {
		if x.part.Name == p.Name && x.part.Layout == p.Layout && x.part.ChunkBytes == p.ChunkBytes {
			return x
		}
	}
	return nil
}

// leafOf is leaf n of a part of the base; nil if it has none there.
func (b *baseChunks) leafOf(ctx context.Context, x *partIndex, n int) (*storedLeaf, error) {
	if x == nil || n >= len(x.trees) {
		return nil, nil
	}
	l, err := b.k.cachedLeaf(ctx, b.repo, x, n)
	if isDamage(err) {
		return nil, nil // it is saved anew
	}
	return &l, err
}

// find gives the blob of a chunk somewhere in the base; zero: it is nowhere.
func (b *baseChunks) find(ctx context.Context, c Chunk) (OID, error) {
	if b.moved == nil {
		if err := b.mapAll(ctx); err != nil {
			return OID{}, err
		}
	}
	at, ok := b.moved[prefixOf(c.Hash)]
	if !ok {
		return OID{}, nil
	}
	l, err := b.leafOf(ctx, b.parts[at.part], int(at.leaf))
	if err != nil || l == nil || int(at.chunk) >= len(l.chunks) || l.chunks[at.chunk] != c {
		return OID{}, err
	}
	return l.blobs[at.chunk], nil
}

func prefixOf(h Hash) uint64 { return binary.BigEndian.Uint64(h[:]) }

// mapAll notes where all chunks of the base are.
func (b *baseChunks) mapAll(ctx context.Context) error {
	b.moved = map[uint64]baseSpot{}
	for i, x := range b.parts {
		for n := range x.trees {
			if x.trees[n].IsZero() {
				continue
			}
			if len(b.moved) > maxMoved {
				return nil
			}
			l, err := b.leafOf(ctx, x, n)
			if err != nil {
				return err
			}
			for c, chunk := range l.orNone() {
				if !chunk.Hash.IsZero() {
					b.moved[prefixOf(chunk.Hash)] = baseSpot{uint32(i), uint32(n), uint8(c)}
				}
			}
		}
	}
	return nil
}

func (l *storedLeaf) orNone() []Chunk {
	if l == nil {
		return nil
	}
	return l.chunks
}
