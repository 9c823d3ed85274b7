package snapshottest

import (
	"fmt"
	"io"
	"slices"
)

// A Stream is bytes that look like an archive: no zero pages, but pieces can be put into
// it, and what follows moves. It never changes and is safe for concurrent use.
type Stream struct {
	pieces []piece
	size   int64
}

var _ io.ReaderAt = (*Stream)(nil)

// A piece is n bytes of an image from off on; they begin at at in the stream.
type piece struct {
	of         *Image
	off, at, n int64
}

// NewStream makes a stream of size bytes.
func NewStream(seed uint64, size int64) *Stream {
	return streamOf([]piece{{of: NewImage(seed, size, 0), n: size}})
}

func streamOf(pieces []piece) *Stream {
	s := &Stream{}
	for _, p := range pieces {
		if p.n > 0 {
			p.at = s.size
			s.pieces = append(s.pieces, p)
			s.size += p.n
		}
	}
	return s
}

// Size is how many bytes the stream has.
func (s *Stream) Size() int64 { return s.size }

// Insert is the stream with n new bytes at at, Delete the one without n of its bytes.
// at and at+n must lie within it.
func (s *Stream) Insert(seed uint64, at, n int64) *Stream {
	pieces := append(s.slice(0, at), piece{of: NewImage(seed, n, 0), n: n})
	return streamOf(append(pieces, s.slice(at, s.size)...))
}

// Delete: see Insert.
func (s *Stream) Delete(at, n int64) *Stream {
	return streamOf(append(s.slice(0, at), s.slice(at+n, s.size)...))
}

func (s *Stream) slice(from, to int64) (pieces []piece) {
	for _, p := range s.pieces {
		first, end := max(from, p.at), min(to, p.at+p.n)
		if first < end {
			pieces = append(pieces, piece{of: p.of, off: p.off + first - p.at, n: end - first})
		}
	}
	return pieces
}

// ReadAt reads as any io.ReaderAt.
func (s *Stream) ReadAt(b []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("read stream: offset %d", off)
	}
	i, _ := slices.BinarySearchFunc(s.pieces, off, func(p piece, off int64) int {
		if p.at+p.n <= off {
			return -1
		}
		return 1
	})
	for ; n < len(b) && i < len(s.pieces); i++ {
		p := s.pieces[i]
		in := off + int64(n) - p.at
		want := b[n:min(int64(len(b)), int64(n)+p.n-in)]
		if _, err := p.of.ReadAt(want, p.off+in); err != nil {
			return n, err
		}
		n += len(want)
	}
	if n < len(b) {
		err = io.EOF
	}
	return n, err
}

// Reader reads the stream from its beginning.
func (s *Stream) Reader() io.Reader { return io.NewSectionReader(s, 0, s.size) }

// WriteTo writes all of it.
func (s *Stream) WriteTo(w io.Writer) (int64, error) { return writeTo(w, s, s.size) }
