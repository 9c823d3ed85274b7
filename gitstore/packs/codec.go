package packs

import (
	"compress/zlib"
	"io"
	"sync"
)

// A Codec makes zlib readers and writers. Close gives one back to the Codec's
// pool, so nobody uses it afterwards. A Codec is safe for concurrent use.
type Codec interface {
	// NewReader reads the zlib stream in r, and of r no more than that stream
	// when r is an io.ByteReader. The stream's checksum is checked before io.EOF.
	NewReader(r io.Reader) (io.ReadCloser, error)
	// NewWriter writes a zlib stream to w at a level from 0 (stored) to 9.
	// Close writes the stream's end.
	NewWriter(w io.Writer, level int) (io.WriteCloser, error)
}

// StdCodec is the standard library's zlib with pooled readers and writers.
type StdCodec struct {
	readers sync.Pool
	writers [10]sync.Pool
}

var _ Codec = (*StdCodec)(nil)

type stdReader struct {
	io.ReadCloser
	pool *sync.Pool
}

// NewReader takes a reader from the pool.
func (c *StdCodec) NewReader(r io.Reader) (io.ReadCloser, error) {
	if old, ok := c.readers.Get().(*stdReader); ok {
		if err := old.ReadCloser.(zlib.Resetter).Reset(r, nil); err != nil {
			c.readers.Put(old)
			return nil, err
		}
		return old, nil
	}
	zr, err := zlib.NewReader(r)
	if err != nil {
		return nil, err
	}
	return &stdReader{ReadCloser: zr, pool: &c.readers}, nil
}

func (r *stdReader) Close() error {
	err := r.ReadCloser.Close()
	r.pool.Put(r)
	return err
}

type stdWriter struct {
	*zlib.Writer
	pool *sync.Pool
}

// NewWriter takes a writer of that level from the pool.
func (c *StdCodec) NewWriter(w io.Writer, level int) (io.WriteCloser, error) {
	level = min(max(level, 0), 9)
	pool := &c.writers[level]
	if old, ok := pool.Get().(*stdWriter); ok {
		old.Reset(w)
		return old, nil
	}
	zw, err := zlib.NewWriterLevel(w, level)
	if err != nil {
		return nil, err
	}
	return &stdWriter{Writer: zw, pool: pool}, nil
}

func (w *stdWriter) Close() error {
	err := w.Writer.Close()
	w.pool.Put(w)
	return err
}
