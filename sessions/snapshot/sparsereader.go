package snapshot

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// A SparseReader reads a sparse stream: io.EOF only after its end, io.ErrUnexpectedEOF if
// it was cut, ErrInvalid if it is none. It checks no hashes: Coder.Decode does. It is for
// one goroutine.
type SparseReader struct {
	r       *bufio.Reader
	begun   bool
	header  *SparseHeader
	records int64
	content int64
	root    Hash
	blob    []byte
	prefix  [recordPrefix]byte
	err     error
}

// NewSparseReader reads from r, by way of a buffer: bytes behind the end may be read too.
func NewSparseReader(r io.Reader) *SparseReader {
	return &SparseReader{r: bufio.NewReaderSize(r, sparseBuffers)}
}

// Header reads the header, before anything else. A stream without one is ErrInvalid.
func (r *SparseReader) Header() (SparseHeader, error) {
	if r.begun {
		return SparseHeader{}, invalidf("sparse header is not at the beginning")
	}
	r.begun = true
	h, err := r.readHeader()
	if err != nil {
		r.err = err
		return SparseHeader{}, err
	}
	r.header = &h
	return h, nil
}

func (r *SparseReader) readHeader() (h SparseHeader, err error) {
	var head [len(sparseMagic) + 4]byte
	if err := r.fill(head[:]); err != nil {
		return h, err
	}
	if string(head[:len(sparseMagic)]) != sparseMagic {
		return h, invalidf("not a sparse stream with a header of version %d", sparseMagic[len(sparseMagic)-1])
	}
	length := binary.BigEndian.Uint32(head[len(sparseMagic):])
	if length > maxHeader {
		return h, invalidf("sparse header of %d bytes", length)
	}
	data := make([]byte, length)
	if err := r.fill(data); err != nil {
		return h, err
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return h, invalidf("sparse header: %v", err)
	}
	return h, h.check()
}

// Next reads a record. Its blob is valid until the next one is read.
func (r *SparseReader) Next() (Record, error) {
	if r.err != nil {
		return Record{}, r.err
	}
	r.begun = true
	var rec Record
	if rec, r.err = r.next(); r.err != nil {
		return Record{}, r.err
	}
	return rec, nil
}

// Root is the image's root as the end tells it: after Next has given io.EOF.
func (r *SparseReader) Root() Hash { return r.root }

func (r *SparseReader) next() (rec Record, err error) {
	if err := r.fill(r.prefix[:]); err != nil {
		return rec, err
	}
	w := wireRecordOf(&r.prefix)
	if w.kind == recordEnd {
		return rec, r.end(w)
	}
	if w.kind > recordZstd || w.stored > MaxContent {
		return rec, invalidf("sparse record of kind %d with a blob of %d bytes", w.kind, w.stored)
	}
	rec = Record{Offset: w.offset, Length: w.length, Hash: w.hash}
	if w.stored > 0 {
		r.blob = slices.Grow(r.blob[:0], int(w.stored))[:w.stored]
		rec.Blob = r.blob
		if err := r.fill(rec.Blob); err != nil {
			return rec, err
		}
	}
	return rec, r.admit(rec, w.kind)
}

// admit checks and counts a record.
func (r *SparseReader) admit(rec Record, kind byte) error {
	if err := rec.check(); err != nil {
		return err
	}
	if kind != kindOf(rec) {
		return invalidf("sparse record at %d: kind %d for a blob of %d bytes and a content of %d",
			rec.Offset, kind, len(rec.Blob), rec.Length)
	}
	// A sealed chunk is longer than what it covers.
	if h := r.header; h != nil && !h.Sealed && rec.Length > h.Part.Size-rec.Offset {
		return invalidf("sparse record at %d is not within the image", rec.Offset)
	}
	r.records++
	r.content += rec.Length
	return nil
}

// end is io.EOF if all that was written has been read.
func (r *SparseReader) end(w wireRecord) error {
	if w.offset != r.records || w.length != r.content || w.stored != 0 {
		return invalidf("sparse stream ends after %d records of %d bytes, %d of %d were written",
			r.records, r.content, w.offset, w.length)
	}
	r.root = w.hash
	return io.EOF
}

func (r *SparseReader) fill(p []byte) error {
	_, err := io.ReadFull(r.r, p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("read sparse stream: %w", err)
	}
	return nil
}
