package snapshot

import (
	"context"
	"fmt"
	"io"
)

// WriteSparse writes a sparse stream of the chunks that meet the range, those of the hot
// order first if hot is set. Blobs go out as they are stored, held to the checksums they were
// stored with; who reads them holds their contents to the strong hashes that go with
// them. A damaged one is a *DamagedError, and the session is told.
func (im *Image) WriteSparse(ctx context.Context, w io.Writer, off, n int64, hot bool) error {
	s := &sparseOut{im: im, w: NewSparseWriter(w)}
	err := s.w.Header(SparseHeader{Part: im.Part, Sealed: im.at.sealed, Offset: off, Length: n, Commit: im.Snapshot.Commit.String()})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRange, err)
	}
	if hot {
		if err := s.hotFirst(ctx, off, n); err != nil {
			return err
		}
	}
	if err := im.inOrder(ctx, off, n, im.load, s.take); err != nil {
		return err
	}
	if err := s.flushZeros(); err != nil {
		return err
	}
	root, err := ParseHash(im.Part.Root)
	if err != nil {
		return err
	}
	return s.w.End(root)
}

// sparseOut writes records, joins zeros of pages, and leaves out what was written before.
type sparseOut struct {
	im    *Image
	w     *SparseWriter
	zeros Record // a run that is not written yet; Length 0: none
	gone  map[int64]bool
}

func (s *sparseOut) take(b *batch) error {
	for i, p := range b.pieces {
		if s.gone[p.offset] {
			continue
		}
		if err := s.one(p, b.blobs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *sparseOut) one(p piece, blob []byte) error {
	if blob == nil {
		// Of a streamed image the reader must see where each chunk ends, to hash its leaves.
		if s.im.Part.Layout == Pages && s.zeros.Length > 0 && s.zeros.Offset+s.zeros.Length == p.offset {
			s.zeros.Length += p.covers
			return nil
		}
		err := s.flushZeros()
		s.zeros = Record{Offset: p.offset, Length: p.covers}
		return err
	}
	if err := s.flushZeros(); err != nil {
		return err
	}
	return s.w.Write(Record{Offset: p.offset, Length: int64(p.chunk.Length), Hash: p.chunk.Hash, Blob: blob})
}

func (s *sparseOut) flushZeros() error {
	if s.zeros.Length == 0 {
		return nil
	}
	err := s.w.Write(s.zeros)
	s.zeros.Length = 0
	return err
}

// hotFirst writes the chunks of the range that a restore has touched first.
func (s *sparseOut) hotFirst(ctx context.Context, off, n int64) error {
	im := s.im
	order, err := im.k.hotOrder(ctx, im.repo.ID(), im.Snapshot.Commit, im.Part.Name)
	if err != nil || im.Part.Layout != Pages {
		return err
	}
	s.gone = make(map[int64]bool, len(order))
	for _, chunk := range order {
		at := int64(chunk) * int64(im.Part.ChunkBytes)
		size := min(int64(im.Part.ChunkBytes), im.Part.Size-at)
		if at+size <= off || at >= off+n || size <= 0 || s.gone[at] {
			continue
		}
		b := &batch{}
		err := im.pieces(ctx, at, size, func(p piece) error { b.pieces = append(b.pieces, p); return nil })
		if err == nil {
			err = im.load(ctx, b)
		}
		if err == nil {
			err = s.take(b)
		}
		if err != nil {
			return err
		}
		s.gone[at] = true
	}
	return s.w.Flush()
}
