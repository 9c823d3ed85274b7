package snapshot

import (
	"context"
	"sync"
)

// A baseChunks finds chunks of the snapshot that a save builds on. It is safe for
// concurrent use.
type baseChunks struct {
	k      *Keeper
	repo   Repo
	commit OID
	parts  []*partIndex

	mu    sync.Mutex // guards what follows
	moved movedTable // nil: not made yet
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
		b.commit, b.parts = p.base.Commit, open.parts
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

// A leafAtPlace finds chunks of a paged part at their places, for one goroutine that
// asks for them in order.
type leafAtPlace struct {
	base *baseChunks
	like *partIndex // nil: there is nothing at any place
	leaf *storedLeaf
	next int // number of the leaf after it; 0: none was read yet
}

// blob is that of chunk number of the part, if the base has the same chunk there.
func (a *leafAtPlace) blob(ctx context.Context, number int, c Chunk) (OID, error) {
	if a.like == nil || a.like.part.Layout != Pages {
		return OID{}, nil
	}
	if n := number / LeafChunks; n+1 != a.next {
		l, err := a.base.leafOf(ctx, a.like, n)
		if err != nil {
			return OID{}, err
		}
		a.leaf, a.next = l, n+1
	}
	return a.leaf.blobOf(number%LeafChunks, c), nil
}

// find gives the blob of a chunk somewhere in the base; zero: it is nowhere.
func (b *baseChunks) find(ctx context.Context, c Chunk) (OID, error) {
	t, err := b.movedTable(ctx)
	if err != nil {
		return OID{}, err
	}
	leaf, place, ok := t.find(c.Hash)
	if !ok {
		return OID{}, nil
	}
	for _, x := range b.parts {
		if n := leaf - x.part.FirstLeaf; n >= 0 && n < x.part.Leaves {
			l, err := b.leafOf(ctx, x, n)
			if err != nil {
				return OID{}, err
			}
			return l.blobOf(place, c), nil
		}
	}
	return OID{}, nil
}

// blobOf is the blob of the leaf's chunk i, if that is c; zero: it is not.
func (l *storedLeaf) blobOf(i int, c Chunk) OID {
	if l == nil || i >= len(l.chunks) || l.chunks[i] != c {
		return OID{}
	}
	return l.blobs[i]
}

func (l *storedLeaf) orNone() []Chunk {
	if l == nil {
		return nil
	}
	return l.chunks
}
