package packs

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"hash"
	"io"

	"github.com/headgate/headgate/refpolicy"
)

// Open gives a reader of an object of any size. An entry that is no delta is
// streamed with constant memory; a delta is decoded as by Object and may be a
// *TooLargeError. The id is verified at the end: a reader of a damaged object
// gets a *BrokenError there instead of io.EOF. The reader holds the pack until
// Close and is for one goroutine. Errors: ErrNotFound, those named.
func (p *Pack) Open(id refpolicy.OID) (Type, int64, io.ReadCloser, error) {
	off, ok := p.Find(id)
	if !ok {
		return 0, 0, nil, ErrNotFound
	}
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
	r, err := p.newObjectReader(id, off, h)
	if err != nil {
		return 0, 0, nil, p.broken(err)
	}
	return h.typ, h.size, r, nil
}

// An objectReader streams one entry and hashes what it gives.
type objectReader struct {
	p    *Pack
	id   refpolicy.OID
	in   *input
	zr   io.ReadCloser
	sum  hash.Hash
	left int64
	err  error // what every further Read gives
}

func (p *Pack) newObjectReader(id refpolicy.OID, off int64, h entryHead) (*objectReader, error) {
	size := smallInput
	if h.size > largeInput {
		size = largeInput
	}
	in := getInput(p.section(off+int64(h.len)), size)
	zr, err := p.codec.NewReader(in)
	if err != nil {
		in.put()
		return nil, fmt.Errorf("entry at %d: %w", off, err)
	}
	if !p.retain() {
		_ = zr.Close()
		in.put()
		return nil, ErrClosed
	}
	sum := sha1.New()
	fmt.Fprintf(sum, "%s %d\x00", h.typ, h.size)
	return &objectReader{p: p, id: id, in: in, zr: zr, sum: sum, left: h.size}, nil
}

func (r *objectReader) Read(b []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if len(b) == 0 {
		return 0, nil
	}
	n := 0
	if r.left > 0 {
		n, r.err = r.zr.Read(b[:min(int64(len(b)), r.left)])
		r.sum.Write(b[:n])
		r.left -= int64(n)
		if r.err == io.EOF {
			r.err = nil
			if r.left > 0 {
				r.err = io.ErrUnexpectedEOF
			}
		}
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

// end gives io.EOF when the whole object was what its id says.
func (r *objectReader) end() error {
	if err := atEnd(r.zr); err != nil {
		return err
	}
	if !bytes.Equal(r.sum.Sum(nil), r.id[:]) {
		return errObject
	}
	return io.EOF
}

// Close gives everything back. It may be called before the end, and twice.
func (r *objectReader) Close() error {
	if r.p == nil {
		return nil
	}
	_ = r.zr.Close() // nothing beyond the errors of its reads
	r.in.put()
	r.p.Release()
	r.p, r.err = nil, ErrClosed
	return nil
}
