package packs

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	gohash "github.com/go-git/go-git/v5/plumbing/hash"
	"github.com/headgate/headgate/refpolicy"
)

const (
	// sniffLen is how much of a stream decides whether deflating it pays.
	sniffLen = 64 << 10
	copyLen  = 64 << 10
	// paddedLen bytes of head hold a size of up to 512 GiB.
	paddedLen     = 6
	maxPaddedSize = 1<<39 - 1
)

// ErrCollision: the content was made to have the id of other content.
var ErrCollision = errors.New("content is a SHA-1 collision attack")

// AddStream adds an object of size bytes read from r with bounded memory, and
// gives its id and size. With a size below 0 the size is whatever r holds, at
// the price of reading the written entry once more. What does not shrink is
// stored as it is. An error of r is given back as it is; ErrSizeMismatch when r
// is shorter or longer than size.
func (w *Writer) AddStream(typ Type, size int64, r io.Reader) (refpolicy.OID, int64, error) {
	if err := w.ready(typ); err != nil {
		return refpolicy.OID{}, 0, err
	}
	id, n, err := w.addStream(typ, size, r)
	if err != nil && w.lastErr == nil {
		w.lastErr = err
	}
	return id, n, err
}

func (w *Writer) addStream(typ Type, size int64, r io.Reader) (id refpolicy.OID, n int64, err error) {
	buf := sniffs.Get().(*[sniffLen + 1]byte)
	defer sniffs.Put(buf)
	sniff := buf[:]
	k, err := io.ReadFull(r, sniff)
	whole := err == io.EOF || err == io.ErrUnexpectedEOF
	if err != nil && !whole {
		return id, 0, err
	}
	sniff = sniff[:k]
	if size >= 0 && (int64(k) > size || whole && int64(k) < size) {
		return id, 0, fmt.Errorf("%w: %d bytes, want %d", ErrSizeMismatch, k, size)
	}
	if whole {
		id, err = w.addBytes(typ, sniff)
		return id, int64(k), err
	}
	level, err := w.levelFor(sniff)
	if err != nil {
		return id, 0, err
	}
	r = io.MultiReader(bytes.NewReader(sniff), r)
	if size < 0 {
		return w.addUnsized(typ, level, r)
	}
	id, err = w.addSized(typ, size, level, r)
	return id, size, err
}

var sniffs = sync.Pool{New: func() any { return new([sniffLen + 1]byte) }}

// levelFor tries the beginning of a stream: 0 when it does not shrink.
func (w *Writer) levelFor(sniff []byte) (int, error) {
	z, err := w.deflate(sniff, w.d.o.Level)
	if err != nil {
		return 0, err
	}
	if len(z) > len(sniff)-len(sniff)/32 {
		return 0, nil
	}
	return w.d.o.Level, nil
}

func (w *Writer) deflate(b []byte, level int) ([]byte, error) {
	var out bytes.Buffer
	zw, err := w.d.o.Codec.NewWriter(&out, level)
	if err != nil {
		return nil, fmt.Errorf("deflate: %w", err)
	}
	_, err = zw.Write(b)
	if cerr := zw.Close(); err == nil {
		err = cerr
	}
	return out.Bytes(), err
}

// addBytes adds an object that is in memory.
func (w *Writer) addBytes(typ Type, b []byte) (refpolicy.OID, error) {
	h := newObjectHash(typ, int64(len(b)))
	h.Write(b)
	id, err := h.id()
	if err != nil || w.Has(id) {
		return id, err
	}
	z, err := w.deflate(b, w.d.o.Level)
	if err != nil {
		return id, err
	}
	return id, w.AddEntry(id, typ, int64(len(b)), z)
}

// addSized hashes and deflates in one pass.
func (w *Writer) addSized(typ Type, size int64, level int, r io.Reader) (refpolicy.OID, error) {
	start := w.begin()
	h := newObjectHash(typ, size)
	w.write(AppendHead(nil, typ, size))
	n, err := w.deflateFrom(level, io.TeeReader(io.LimitReader(r, size), h))
	if err != nil {
		return refpolicy.OID{}, err
	}
	if err := atSize(n, size, r); err != nil {
		return refpolicy.OID{}, err
	}
	id, err := h.id()
	if err != nil {
		return id, err
	}
	if w.Has(id) {
		return id, w.dropEntry(start)
	}
	return id, w.added(id, start)
}

// atSize: n bytes were read, want size, and r must be at its end.
func atSize(n, size int64, r io.Reader) error {
	var one [1]byte
	k, err := io.ReadFull(r, one[:])
	if n != size || k > 0 {
		return fmt.Errorf("%w: want %d bytes", ErrSizeMismatch, size)
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// addUnsized deflates behind a head with room for any size, then reads the entry
// back: the id needs the size before the first byte.
func (w *Writer) addUnsized(typ Type, level int, r io.Reader) (id refpolicy.OID, n int64, err error) {
	start := w.begin()
	w.noSum = true
	w.write(paddedHead(typ, 0, paddedLen))
	n, err = w.deflateFrom(level, r)
	w.noSum = false
	if err == nil && n > maxPaddedSize {
		err = fmt.Errorf("%w: over %d bytes", ErrSizeMismatch, int64(maxPaddedSize))
	}
	if err == nil {
		err = w.flush()
	}
	if err != nil {
		return id, n, err
	}
	head := paddedHead(typ, n, paddedLen)
	if _, err := w.f.WriteAt(head, start); err != nil {
		return id, n, fmt.Errorf("write pack: %w", err)
	}
	if id, err = w.readBack(typ, n, start); err != nil {
		return id, n, err
	}
	if w.Has(id) {
		return id, n, w.dropEntry(start)
	}
	return id, n, w.added(id, start)
}

// readBack hashes the object in the entry from start to the end of the file, and
// sums up the entry's bytes on the way.
func (w *Writer) readBack(typ Type, size, start int64) (id refpolicy.OID, err error) {
	raw := io.NewSectionReader(w.f, start, w.off-start)
	tee := &summed{r: raw, w: w}
	if _, err := io.CopyN(io.Discard, tee, paddedLen); err != nil {
		return id, fmt.Errorf("read back: %w", err)
	}
	in := getInput(tee, largeInput)
	defer in.put()
	zr, err := w.d.o.Codec.NewReader(in.Reader)
	if err != nil {
		return id, fmt.Errorf("read back: %w", err)
	}
	defer zr.Close()
	h := newObjectHash(typ, size)
	n, err := io.CopyBuffer(h, zr, make([]byte, copyLen))
	if err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	if err != nil || n != size {
		return id, fmt.Errorf("read back: %d bytes of %d: %w", n, size, errors.Join(err, errEntry))
	}
	return h.id()
}

// summed counts into the pack's and the entry's checksum what is read.
type summed struct {
	r io.Reader
	w *Writer
}

func (s *summed) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.w.sumUp(b[:n])
	return n, err
}

// deflateFrom writes the zlib stream of what r holds and tells how much it was.
func (w *Writer) deflateFrom(level int, r io.Reader) (int64, error) {
	zw, err := w.d.o.Codec.NewWriter(writerFunc(w.writeBytes), level)
	if err != nil {
		return 0, fmt.Errorf("deflate: %w", err)
	}
	n, err := io.CopyBuffer(onlyWriter{zw}, r, make([]byte, copyLen))
	if cerr := zw.Close(); err == nil {
		err = cerr
	}
	return n, err
}

func (w *Writer) writeBytes(b []byte) (int, error) {
	w.write(b)
	return len(b), w.lastErr
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// onlyWriter keeps io.CopyBuffer to the buffer it was given.
type onlyWriter struct{ io.Writer }

// objectHash is git's hash of an object; it knows the marks of known attacks.
type objectHash struct{ hash.Hash }

func newObjectHash(typ Type, size int64) objectHash {
	h := objectHash{gohash.New(crypto.SHA1)}
	fmt.Fprintf(h, "%s %d\x00", typ, size)
	return h
}

func (h objectHash) id() (id refpolicy.OID, err error) {
	if d, ok := h.Hash.(interface {
		CollisionResistantSum([]byte) ([]byte, bool)
	}); ok {
		sum, attack := d.CollisionResistantSum(nil)
		if attack {
			return id, ErrCollision
		}
		return refpolicy.OID(sum), nil
	}
	return refpolicy.OID(h.Sum(nil)), nil
}
