package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/headgate/headgate/refpolicy"
)

// openLarge opens a large blob: the first time as a stream from the store, and as
// a file from the blob cache when it is asked for again. An *os.File is given as
// it is, so that a server can have the kernel send it.
func (r *Repo) openLarge(ctx context.Context, oid refpolicy.OID, size int64) (io.ReadSeekCloser, error) {
	b := &largeReader{ctx: ctx, cache: r.store.readers.blobs, oid: oid, size: size}
	b.open = func(ctx context.Context) (io.ReadCloser, error) {
		t, _, src, err := r.stream(ctx, oid)
		if err == nil && t != BlobObject {
			err = errors.Join(fmt.Errorf("%w: %s is a %s, not a blob", ErrObjectNotFound, oid, t), src.Close())
		}
		return src, err
	}
	if !b.cache.askedBefore(oid) {
		return b, nil
	}
	f, err := b.cache.fill(ctx, oid, size, b.open)
	if err == nil {
		return f, nil
	}
	if ctx.Err() != nil {
		return nil, err
	}
	return b, nil // a full disk or a small cache costs speed, not the answer
}

// maxSkip is how far a stream is read on to reach an offset, in bytes; beyond it
// a copy in the cache is made instead.
const maxSkip = 1 << 20

// aheadAfter is where reading ahead begins: who wants only a head costs no more.
const aheadAfter = 256 << 10

// largeReader reads a large blob as a stream and moves to a file of the cache when
// it is asked for something that the stream is far from. It is for one request
// and one goroutine; ctx is that request's.
type largeReader struct {
	ctx   context.Context
	cache *blobCache
	oid   refpolicy.OID
	size  int64
	open  func(context.Context) (io.ReadCloser, error)

	pos    int64 // where the next Read reads
	src    io.ReadCloser
	srcPos int64 // where src stands
	ahead  bool  // src reads ahead
	file   *os.File
}

var _ io.ReadSeekCloser = (*largeReader)(nil)

// Seek only remembers the offset; the next Read goes there.
func (b *largeReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.pos
	case io.SeekEnd:
		offset += b.size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek blob %s: negative position", b.oid)
	}
	b.pos = offset
	return offset, nil
}

func (b *largeReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if b.pos >= b.size {
		return 0, io.EOF
	}
	if err := b.approach(); err != nil {
		return 0, fmt.Errorf("read blob %s: %w", b.oid, err)
	}
	if b.file != nil {
		n, err := b.file.ReadAt(p, b.pos)
		b.pos += int64(n)
		if n > 0 && err == io.EOF {
			err = nil
		}
		return n, err
	}
	if !b.ahead && b.srcPos >= aheadAfter {
		b.src, b.ahead = readAhead(b.src), true
	}
	n, err := b.src.Read(p)
	b.srcPos += int64(n)
	b.pos = b.srcPos
	if err == io.EOF && b.srcPos < b.size {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// approach makes b.file or b.src ready to read at b.pos.
func (b *largeReader) approach() error {
	if b.file != nil || (b.src != nil && b.srcPos == b.pos) {
		return nil
	}
	if b.pos < b.srcPos || b.pos-b.srcPos > maxSkip {
		f, err := b.cache.fill(b.ctx, b.oid, b.size, b.open)
		if err == nil {
			b.file = f
			return b.closeSource()
		}
		if b.ctx.Err() != nil {
			return err
		}
	}
	return b.skip()
}

// skip reads the stream on to b.pos, from its start again if it is past it.
func (b *largeReader) skip() error {
	if b.src != nil && b.srcPos > b.pos {
		if err := b.closeSource(); err != nil {
			return err
		}
	}
	if b.src == nil {
		src, err := b.open(b.ctx)
		if err != nil {
			return err
		}
		b.src, b.srcPos = src, 0
	}
	n, err := io.CopyN(io.Discard, b.src, b.pos-b.srcPos)
	b.srcPos += n
	return err
}

func (b *largeReader) closeSource() error {
	if b.src == nil {
		return nil
	}
	err := b.src.Close()
	b.src, b.srcPos, b.ahead = nil, 0, false
	return err
}

func (b *largeReader) Close() error {
	err := b.closeSource()
	if b.file != nil {
		err = errors.Join(err, b.file.Close())
	}
	return err
}
