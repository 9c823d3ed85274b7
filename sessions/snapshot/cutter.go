package snapshot

import (
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/restic/chunker"
)

// streamPolynomial is what streamed images are cut with: an irreducible polynomial of
// degree 53. Another one would cut elsewhere, and nothing saved before be found again.
const streamPolynomial = chunker.Pol(0x27767f26531bdd)

// StreamBounds are the least and the most bytes of a streamed image's chunks for an
// average aimed at. The last chunk may be shorter.
func StreamBounds(chunkBytes int) (least, most int) { return chunkBytes / 4, chunkBytes * 4 }

// A Cutter cuts what a reader holds into chunks. It is for one goroutine.
type Cutter struct {
	from    *sizedReader
	bytes   int              // of a paged image's chunks
	content *chunker.Chunker // of a streamed one
	err     error
}

// NewCutter cuts r as p says, with p's defaults filled in. If p has a size, r must hold
// exactly that. The Cutter keeps at most 512 KiB besides what Next is given.
func NewCutter(r io.Reader, p PartSpec) *Cutter {
	p, err := p.Complete()
	if err != nil {
		return &Cutter{err: err}
	}
	c := &Cutter{from: &sizedReader{r: r, size: p.Size}, bytes: p.ChunkBytes}
	if p.Layout == Stream {
		least, most := StreamBounds(p.ChunkBytes)
		c.content = chunker.NewWithBoundaries(c.from, streamPolynomial, uint(least), uint(most))
		c.content.SetAverageBits(bits.Len(uint(p.ChunkBytes)) - 1)
	}
	return c
}

// Next gives the next chunk's content, in buf if it fits; io.EOF after the last. A
// reader that ends before the size it was announced with is io.ErrUnexpectedEOF, one
// that goes on after it ErrInvalid.
func (c *Cutter) Next(buf []byte) ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	var content []byte
	if content, c.err = c.next(buf); c.err != nil {
		return nil, c.err
	}
	return content, nil
}

func (c *Cutter) next(buf []byte) ([]byte, error) {
	if c.content != nil {
		chunk, err := c.content.Next(buf[:0])
		return chunk.Data, err
	}
	if cap(buf) < c.bytes {
		buf = make([]byte, c.bytes)
	}
	n, err := io.ReadFull(c.from, buf[:c.bytes])
	if errors.Is(err, io.ErrUnexpectedEOF) && c.from.ended {
		err = nil // the last chunk; the next call is told io.EOF
	}
	return buf[:n], err
}

// A sizedReader reads what must be size bytes; of a size of -1 up to MaxImage. All its
// errors but io.EOF are wrapped: who reads whole buffers takes a plain
// io.ErrUnexpectedEOF, which a cut request body gives as well, for the end.
type sizedReader struct {
	r     io.Reader
	size  int64
	n     int64
	ended bool // r was at its end, as it should be
}

func (s *sizedReader) Read(p []byte) (int, error) {
	limit := s.size
	if limit < 0 {
		limit = MaxImage
	}
	var beyond [1]byte
	if s.n == limit {
		p = beyond[:]
	}
	n, err := s.r.Read(p[:min(int64(len(p)), max(limit-s.n, 1))])
	s.n += int64(n)
	switch {
	case s.n > limit:
		return 0, fmt.Errorf("read image: %w", invalidf("it is longer than %d bytes", limit))
	case errors.Is(err, io.EOF) && s.n < s.size:
		return n, fmt.Errorf("read image: %d of %d bytes: %w", s.n, s.size, io.ErrUnexpectedEOF)
	case errors.Is(err, io.EOF):
		s.ended = true
		return n, io.EOF
	case err != nil:
		return n, fmt.Errorf("read image: %w", err)
	}
	return n, nil
}
