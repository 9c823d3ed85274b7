package snapshot

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// A SparseWriter writes a sparse stream (application/x-headgate-sparse): with a header the
// answer to a restore, without one the body of chunks that are sent. It is for one goroutine.
type SparseWriter struct {
	w       *bufio.Writer
	begun   bool
	records int64
	content int64
	prefix  [recordPrefix]byte
}

// NewSparseWriter writes to w, by way of a buffer that End and Flush empty.
func NewSparseWriter(w io.Writer) *SparseWriter {
	return &SparseWriter{w: bufio.NewWriterSize(w, sparseBuffers)}
}

// Header writes the header, before anything else: ErrInvalid for one that no reader takes.
func (w *SparseWriter) Header(h SparseHeader) error {
	if w.begun {
		return invalidf("sparse header is not at the beginning")
	}
	if err := h.check(); err != nil {
		return err
	}
	data, err := encodeJSON(h)
	if err != nil {
		return fmt.Errorf("write sparse header: %w", err)
	}
	if len(data) > maxHeader {
		return invalidf("sparse header of %d bytes", len(data))
	}
	w.begun = true
	head := binary.BigEndian.AppendUint32([]byte(sparseMagic), uint32(len(data)))
	if _, err := w.w.Write(append(head, data...)); err != nil {
		return fmt.Errorf("write sparse header: %w", err)
	}
	return nil
}

// Write writes a record: ErrInvalid for one that no reader takes.
func (w *SparseWriter) Write(r Record) error {
	if err := r.check(); err != nil {
		return err
	}
	w.records++
	w.content += r.Length
	return w.put(wireRecord{kind: kindOf(r), offset: r.Offset, length: r.Length, stored: uint32(len(r.Blob)), hash: r.Hash}, r.Blob)
}

// End ends the stream with the image's root, or the zero Hash where none is told. Without
// it a stream has been cut.
func (w *SparseWriter) End(root Hash) error {
	end := wireRecord{kind: recordEnd, offset: w.records, length: w.content, hash: root}
	if err := w.put(end, nil); err != nil {
		return err
	}
	return w.Flush()
}

// Flush sends what has been written so far.
func (w *SparseWriter) Flush() error {
	if err := w.w.Flush(); err != nil {
		return fmt.Errorf("write sparse record: %w", err)
	}
	return nil
}

func (w *SparseWriter) put(r wireRecord, blob []byte) error {
	w.begun = true
	if _, err := w.w.Write(r.append(w.prefix[:0])); err != nil {
		return fmt.Errorf("write sparse record: %w", err)
	}
	if _, err := w.w.Write(blob); err != nil {
		return fmt.Errorf("write sparse record: %w", err)
	}
	return nil
}
