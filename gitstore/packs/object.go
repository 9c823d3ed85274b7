package packs

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/headgate/headgate/refpolicy"
)

// maxDepth is the longest chain of deltas, the one git itself allows.
const maxDepth = 4095

var errObject = errors.New("object does not have its id")

// Header gives an object's type and size and decodes no more than the beginning
// of a delta. It cannot see damage that Object would. Errors: ErrNotFound, a
// *BrokenError.
func (p *Pack) Header(id refpolicy.OID) (Type, int64, error) {
	off, ok := p.Find(id)
	if !ok {
		return 0, 0, ErrNotFound
	}
	typ, size, err := p.headerAt(off)
	if err != nil {
		return 0, 0, p.broken(err)
	}
	return typ, size, nil
}

func (p *Pack) headerAt(off int64) (Type, int64, error) {
	h, err := p.head(off)
	if err != nil {
		return 0, 0, err
	}
	size := h.size
	if h.isDelta() {
		if size, err = p.resultSize(off, h); err != nil {
			return 0, 0, err
		}
	}
	typ, err := p.kindAt(off, h)
	return typ, size, err
}

// resultSize reads the size of the object that a delta makes.
func (p *Pack) resultSize(off int64, h entryHead) (int64, error) {
	in := getInput(p.section(off+int64(h.len)), smallInput)
	defer in.put()
	zr, err := p.codec.NewReader(in.Reader)
	if err != nil {
		return 0, fmt.Errorf("entry at %d: %w", off, err)
	}
	defer zr.Close()
	var buf [20]byte
	n, err := io.ReadFull(zr, buf[:])
	if err != nil && err != io.ErrUnexpectedEOF {
		return 0, fmt.Errorf("entry at %d: %w", off, err)
	}
	_, size, _, err := deltaSizes(buf[:n])
	return size, err
}

// Object gives an object of at most most bytes; the bytes are the caller's. Its
// id is verified. Errors: ErrNotFound, a *TooLargeError, a *BrokenError.
func (p *Pack) Object(id refpolicy.OID, most int64) (Type, []byte, error) {
	off, ok := p.Find(id)
	if !ok {
		return 0, nil, ErrNotFound
	}
	typ, data, err := p.decode(off, most)
	var large *TooLargeError
	if errors.As(err, &large) {
		large.OID = id
		return 0, nil, err
	}
	if err == nil && objectID(typ, data) != id {
		err = fmt.Errorf("object %s: %w", id, errObject)
	}
	if err != nil {
		return 0, nil, p.broken(err)
	}
	return typ, data, nil
}

func objectID(typ Type, data []byte) (id refpolicy.OID) {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", typ, len(data))
	h.Write(data)
	h.Sum(id[:0])
	return id
}

// A link is one delta on the way from an object to its base.
type link struct {
	off  int64
	head entryHead
}

// decode gives the object at off. It goes down to the first base that is whole
// or cached and then up again, so that depth costs no stack.
func (p *Pack) decode(off, most int64) (Type, []byte, error) {
	var chain []link
	first := off
	for {
		if b, ok := p.cache.get(baseKey{p, off}); ok {
			return p.climb(chain, b.typ, b.data, first, most)
		}
		h, err := p.head(off)
		if err != nil {
			return 0, nil, err
		}
		if !h.isDelta() {
			data, err := p.inflate(off, h, p.limitAt(off, first, most))
			if err != nil {
				return 0, nil, err
			}
			if len(chain) == 0 {
				return h.typ, data, nil
			}
			p.cache.put(baseKey{p, off}, h.typ, data)
			return p.climb(chain, h.typ, data, first, most)
		}
		if len(chain) >= maxDepth {
			return 0, nil, fmt.Errorf("%w: chain of deltas is too long", errDelta)
		}
		chain = append(chain, link{off, h})
		if off, err = p.baseOffset(off, h); err != nil {
			return 0, nil, err
		}
	}
}

// limitAt: what was asked for has the caller's limit, what it is built on ours.
func (p *Pack) limitAt(off, first, most int64) int64 {
	if off == first {
		return most
	}
	return p.most
}

// climb applies the deltas of chain, the last first, to data.
func (p *Pack) climb(chain []link, typ Type, data []byte, first, most int64) (Type, []byte, error) {
	if len(chain) == 0 { // straight from the cache, which keeps its own
		if int64(len(data)) > most {
			return 0, nil, &TooLargeError{Size: int64(len(data))}
		}
		return typ, bytes.Clone(data), nil
	}
	for i := len(chain) - 1; i >= 0; i-- {
		l := chain[i]
		limit := min(p.limitAt(l.off, first, most), p.most)
		delta, err := p.inflate(l.off, l.head, p.most)
		if err != nil {
			return 0, nil, err
		}
		if _, size, _, err := deltaSizes(delta); err == nil && size > limit {
			return 0, nil, &TooLargeError{Size: size}
		}
		if data, err = applyDelta(data, delta); err != nil {
			return 0, nil, fmt.Errorf("entry at %d: %w", l.off, err)
		}
		if i > 0 {
			p.cache.put(baseKey{p, l.off}, typ, data)
		}
	}
	return typ, data, nil
}

// maxRatio is the most that zlib can make of a byte, rounded up.
const maxRatio = 1040

// inflate gives the content of one entry, the object or the delta.
func (p *Pack) inflate(off int64, h entryHead, limit int64) ([]byte, error) {
	if h.size > limit {
		return nil, &TooLargeError{Size: h.size}
	}
	start := off + int64(h.len)
	if h.size/maxRatio > p.size-start {
		return nil, fmt.Errorf("entry at %d: %w: %d bytes cannot be in there", off, errEntry, h.size)
	}
	in := getInput(p.section(start), smallInput)
	defer in.put()
	zr, err := p.codec.NewReader(in.Reader)
	if err != nil {
		return nil, fmt.Errorf("entry at %d: %w", off, err)
	}
	data := make([]byte, h.size)
	_, err = io.ReadFull(zr, data)
	if err == nil {
		err = atEnd(zr)
	}
	_ = zr.Close() // nothing beyond the errors of its reads
	if err != nil {
		return nil, fmt.Errorf("entry at %d: %w", off, err)
	}
	return data, nil
}

// atEnd checks that a zlib stream ends here, its checksum included.
func atEnd(r io.Reader) error {
	var one [1]byte
	n, err := io.ReadFull(r, one[:])
	switch {
	case n > 0:
		return fmt.Errorf("%w: longer than its size", errEntry)
	case err == io.EOF:
		return nil
	}
	return err
}

const (
	smallInput = 4 << 10
	largeInput = 64 << 10
)

// input is a pooled bufio.Reader: one small object costs one read of the file. A
// Codec is given the bufio.Reader itself, a type that fast zlib readers know.
type input struct {
	*bufio.Reader
	pool *sync.Pool
}

var smallInputs, largeInputs sync.Pool

func getInput(r io.Reader, size int) *input {
	pool := &smallInputs
	if size == largeInput {
		pool = &largeInputs
	}
	if in, ok := pool.Get().(*input); ok {
		in.Reset(r)
		return in
	}
	return &input{Reader: bufio.NewReaderSize(r, size), pool: pool}
}

func (in *input) put() {
	in.Reset(nil)
	in.pool.Put(in)
}

// An Entry is an object's entry as it stands in the pack.
type Entry struct {
	Type  Type          // of the object; with Delta that of its base at the end of the chain
	Size  int64         // of the object, or of the delta
	Delta bool          // ZData is a delta against Base
	Base  refpolicy.OID // zero unless Delta
	ZData []byte        // the zlib stream
}

// RawEntry gives an object's entry without inflating it, to be copied by
// Writer.AddEntry when it is no delta. The idx's checksum of it is verified.
// Errors: ErrNotFound, a *TooLargeError when it has over most bytes, a *BrokenError.
func (p *Pack) RawEntry(id refpolicy.OID, most int64) (Entry, error) {
	i, ok := p.idx.find(id)
	if !ok {
		return Entry{}, ErrNotFound
	}
	off, _ := p.idx.offset(i)
	end, err := p.entryEnd(off)
	if err != nil {
		return Entry{}, p.broken(err)
	}
	if end-off > most {
		return Entry{}, &TooLargeError{OID: id, Size: end - off}
	}
	raw := make([]byte, end-off)
	if _, err := p.f.ReadAt(raw, off); err != nil {
		return Entry{}, p.broken(fmt.Errorf("read entry at %d: %w", off, err))
	}
	if crc32.ChecksumIEEE(raw) != p.idx.crc(i) {
		return Entry{}, p.broken(fmt.Errorf("entry at %d: %w: checksum", off, errEntry))
	}
	e, err := p.rawEntry(off, raw)
	if err != nil {
		return Entry{}, p.broken(err)
	}
	return e, nil
}

func (p *Pack) rawEntry(off int64, raw []byte) (Entry, error) {
	h, err := parseHead(raw)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Type: h.typ, Size: h.size, Delta: h.isDelta(), ZData: raw[h.len:]}
	if !e.Delta {
		return e, nil
	}
	if e.Type, _, err = p.headerAt(off); err != nil {
		return Entry{}, err
	}
	at, err := p.baseOffset(off, h)
	if err != nil {
		return Entry{}, err
	}
	e.Base, err = p.oidAt(at)
	return e, err
}

// oidAt gives the id of the object whose entry begins at off. It looks at every
// entry: deltas are seldom copied raw.
func (p *Pack) oidAt(off int64) (id refpolicy.OID, err error) {
	err = errEntry
	p.ForEach(func(at refpolicy.OID, o int64) bool {
		if o == off {
			id, err = at, nil
		}
		return o != off
	})
	return id, err
}
