package packs

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/headgate/headgate/refpolicy"
)

// Open gives a reader of an object of any size. An entry that is no delta is
// streamed with constant memory; a delta is decoded as by Object and may be a
// *TooLargeError. The content is verified at the end: a reader of a damaged
// object gets a *BrokenError there instead of io.EOF. The reader holds the pack
// until Close and is for one goroutine. Errors: ErrNotFound, those named.
func (p *Pack) Open(id refpolicy.OID) (Type, int64, io.ReadCloser, error) {
	i, ok := p.idx.find(id)
	if !ok {
		return 0, 0, nil, ErrNotFound
	}
	off, _ := p.idx.offset(i) // checked when the idx was read
	h, err := p.head(off)
	if err != nil {
		return 0, 0, nil, p.broken(err)
	}
	if h.isDelta() {
		typ, data, err := p.Object(id, p.most)
		if err != nil {
			return 0, 0, nil, err
		}
		return typ, int64(len(data)), io.NopCloser(bytes.NewReader(data)), nil
	}
	r, err := p.newObjectReader(i, off, h)
	if err != nil {
		return 0, 0, nil, p.broken(err)
	}
	return h.typ, h.size, r, nil
}

// rememberFrom is the size from which a Pack remembers that an object has its
// id. Read again, it is checked by the zlib stream's checksum or the idx's alone,
// which find any damage since; hashing a large object costs more than sending it.
const rememberFrom = 1 << 20

// An objectReader streams one entry and hashes what it gives.
type objectReader struct {
	p    *Pack
	id   refpolicy.OID
	off  int64
	head entryHead
	src  io.Reader
	in   *input        // under zr
	zr   io.ReadCloser // nil while src is a storedReader
	hash hash.Hash     // nil for an object known to have its id
	side *sideHash     // works hash out for a large one
	left int64
	err  error // what every further Read gives
}

func (p *Pack) newObjectReader(i int, off int64, h entryHead) (*objectReader, error) {
	r := &objectReader{p: p, id: p.idx.oid(i), off: off, head: h, left: h.size}
	if s := p.newStored(i, off, h); s != nil {
		r.src = s
	} else if err := r.inflate(); err != nil {
		return nil, err
	}
	if !p.retain() {
		r.letGo()
		return nil, ErrClosed
	}
	if _, known := p.verified.Load(off); !known {
		r.hash = sha1.New()
		fmt.Fprintf(r.hash, "%s %d\x00", h.typ, h.size)
		if h.size >= sideFrom {
			r.side = newSideHash(r.hash)
		}
	}
	return r, nil
}

// inflate has the general reader read on where r is.
func (r *objectReader) inflate() error {
	size := smallInput
	if r.head.size > largeInput {
		size = largeInput
	}
	r.in = getInput(r.p.section(r.off+int64(r.head.len)), size)
	zr, err := r.p.codec.NewReader(r.in.Reader)
	if err == nil {
		r.zr, r.src = zr, zr
		_, err = io.CopyN(io.Discard, zr, r.head.size-r.left)
	}
	if err != nil {
		r.letGo()
		return fmt.Errorf("entry at %d: %w", r.off, err)
	}
	return nil
}

// letGo gives the general reader back.
func (r *objectReader) letGo() {
	if r.zr != nil {
		_ = r.zr.Close() // nothing beyond the errors of its reads
	}
	if r.in != nil {
		r.in.put()
	}
	r.zr, r.in = nil, nil
}

func (r *objectReader) Read(b []byte) (int, error) {
	if r.err != nil || len(b) == 0 {
		return 0, r.err
	}
	n := 0
	if r.left > 0 {
		n, r.err = r.next(b[:min(int64(len(b)), r.left)])
	}
	if r.left == 0 && r.err == nil {
		r.err = r.end()
	}
	if r.err != nil && r.err != io.EOF {
		r.err = r.p.broken(fmt.Errorf("object %s: %w", r.id, r.err))
		return 0, r.err // what is not proved to the end is not given at the end
	}
	return n, r.err
}

// next reads some of what is left; the stream must not end before.
func (r *objectReader) next(b []byte) (int, error) {
	n, err := r.src.Read(b)
	if errors.Is(err, errNotStored) {
		if err = r.inflate(); err == nil {
			n, err = r.src.Read(b)
		}
	}
	switch {
	case r.side != nil:
		r.side.Write(b[:n])
	case r.hash != nil:
		r.hash.Write(b[:n])
	}
	r.left -= int64(n)
	if err == io.EOF {
		err = nil
		if r.left > 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// end gives io.EOF when the whole object was what its id says.
func (r *objectReader) end() error {
	err := atEnd(r.src)
	if errors.Is(err, errNotStored) {
		if err = r.inflate(); err == nil {
			err = atEnd(r.src)
		}
	}
	if err != nil {
		return err
	}
	if r.hash == nil {
		return io.EOF
	}
	if r.side != nil {
		r.side.finish()
	}
	if !bytes.Equal(r.hash.Sum(nil), r.id[:]) {
		return errObject
	}
	if r.head.size >= rememberFrom {
		r.p.verified.Store(r.off, true)
	}
	return io.EOF
}

// Close gives everything back. It may be called before the end, and twice.
func (r *objectReader) Close() error {
	if r.p == nil {
		return nil
	}
	r.letGo()
	if r.side != nil {
		r.side.stop()
	}
	r.p.Release()
	r.p, r.err = nil, ErrClosed
	return nil
}
