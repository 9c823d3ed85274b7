package snapshot

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
)

const (
	// maxMoved is how many chunks of a base are found at other places than their own, at
	// 16 bytes of memory each. Of a larger base the rest is found at their places alone.
	maxMoved = 4 << 20
	// Tables of up to keptMoved chunks are kept for the next request of an upload, and the
	// last keptTables of them.
	keptMoved  = 1 << 20
	keptTables = 4
)

// A movedTable finds chunks of a snapshot by their hashes. It does not change.
type movedTable []movedChunk // by hash, then place

// A movedChunk is a chunk's place by the beginning of its hash.
type movedChunk struct {
	hash uint64
	at   uint32 // number of its leaf in the snapshot, and in the lowest 8 bits its place there
}

func prefixOf(h Hash) uint64 { return binary.BigEndian.Uint64(h[:]) }

// find gives the first place of a chunk whose hash begins as h does.
func (t movedTable) find(h Hash) (leaf, place int, ok bool) {
	want := prefixOf(h)
	n, ok := slices.BinarySearchFunc(t, want, func(m movedChunk, want uint64) int { return cmp.Compare(m.hash, want) })
	if !ok {
		return 0, 0, false
	}
	return int(t[n].at >> 8), int(t[n].at & 0xff), true
}

// movedTable is the table of the base, from the cache if it is there.
func (b *baseChunks) movedTable(ctx context.Context) (movedTable, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.moved != nil || len(b.parts) == 0 {
		return b.moved, nil
	}
	key := imageKey{b.repo.ID().ID, b.commit}
	if t, ok := b.k.moved.get(key); ok {
		b.moved = t
		return t, nil
	}
	t, err := b.makeTable(ctx)
	if err != nil {
		return nil, err
	}
	if b.moved = t; len(t) <= keptMoved {
		b.k.moved.put(key, t)
	}
	return t, nil
}

func (b *baseChunks) makeTable(ctx context.Context) (movedTable, error) {
	t := movedTable{}
	for _, x := range b.parts {
		for n := range x.trees {
			if x.trees[n].IsZero() {
				continue
			}
			l, err := b.leafOf(ctx, x, n)
			if err != nil {
				return nil, err
			}
			for i, c := range l.orNone() {
				if !c.Hash.IsZero() && len(t) < maxMoved {
					t = append(t, movedChunk{prefixOf(c.Hash), uint32(x.part.FirstLeaf+n)<<8 | uint32(i)})
				}
			}
		}
	}
	slices.SortFunc(t, func(a, b movedChunk) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.at, b.at))
	})
	return t, nil
}
