package gitstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/klauspost/compress/zlib"

	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// A hot object is stored in the form of a pack entry, so that settling copies it:
//
//	value = type gen size zdata
//	type  = %x01-04               ; one byte
//	gen   = prune generation it was written in ; uvarint
//	size  = inflated size         ; uvarint
//	zdata = zlib stream

// Writers and readers are pooled: a new zlib writer for each object costs more
// than the commit.
var (
	zlibWriters [zlib.BestCompression + 1]sync.Pool // by level
	zlibReaders sync.Pool
)

// codec gives klauspost's zlib to the packs.
type codec struct{}

var _ packs.Codec = codec{}

// NewReader is a pooled zlib reader on r.
func (codec) NewReader(r io.Reader) (io.ReadCloser, error) { return inflater(r) }

// NewWriter is a pooled zlib writer to w at a level from 0 to 9.
func (codec) NewWriter(w io.Writer, level int) (io.WriteCloser, error) { return deflater(w, level) }

type pooledWriter struct {
	*zlib.Writer
	level int
}

func deflater(w io.Writer, level int) (*pooledWriter, error) {
	if z, ok := zlibWriters[level].Get().(*pooledWriter); ok {
		z.Reset(w)
		return z, nil
	}
	z, err := zlib.NewWriterLevel(w, level)
	return &pooledWriter{z, level}, err
}

// Close ends the stream and returns the writer to the pool.
func (p *pooledWriter) Close() error {
	err := p.Writer.Close()
	zlibWriters[p.level].Put(p)
	return err
}

type resetReader interface {
	io.ReadCloser
	zlib.Resetter
}

// inflater gives a pooled zlib reader on r; closing it returns it to the pool.
func inflater(r io.Reader) (io.ReadCloser, error) {
	if z, ok := zlibReaders.Get().(resetReader); ok {
		if err := z.Reset(r, nil); err != nil {
			return nil, err
		}
		return &pooledReader{z}, nil
	}
	z, err := zlib.NewReader(r)
	if err != nil {
		return nil, err
	}
	return &pooledReader{z.(resetReader)}, nil
}

type pooledReader struct{ z resetReader }

func (p *pooledReader) Read(b []byte) (int, error) { return p.z.Read(b) }

func (p *pooledReader) Close() error {
	err := p.z.Close()
	zlibReaders.Put(p.z)
	return err
}

// minDeflated is from where an object is worth deflating, in bytes. What is smaller
// is mostly a tree of one or two entries, and those are nearly all object id.
const minDeflated = 100

// encodeHot makes the stored form of an object.
func encodeHot(o NewObject, gen uint64) []byte {
	var b bytes.Buffer
	b.Grow(len(o.Data)/2 + 32)
	head := make([]byte, 0, 24)
	head = append(head, byte(o.Type))
	head = binary.AppendUvarint(head, gen)
	head = binary.AppendUvarint(head, uint64(len(o.Data)))
	b.Write(head)
	level := zlib.BestSpeed
	if len(o.Data) < minDeflated {
		level = zlib.NoCompression
	}
	w, err := deflater(&b, level)
	if err != nil {
		panic(err) // both levels exist
	}
	w.Write(o.Data) // a bytes.Buffer takes everything
	w.Close()
	return b.Bytes()
}

// hotObject is a stored hot object, its data still deflated.
type hotObject struct {
	typ   ObjectType
	gen   uint64
	size  int64
	zdata []byte
}

func decodeHot(v []byte) (hotObject, error) {
	if len(v) < 3 || v[0] < byte(CommitObject) || v[0] > byte(TagObject) {
		return hotObject{}, fmt.Errorf("decode hot object: unknown form")
	}
	h := hotObject{typ: ObjectType(v[0])}
	gen, n := binary.Uvarint(v[1:])
	if n <= 0 {
		return hotObject{}, fmt.Errorf("decode hot object: bad generation")
	}
	size, m := binary.Uvarint(v[1+n:])
	if m <= 0 || size > math.MaxInt64 {
		return hotObject{}, fmt.Errorf("decode hot object: bad size")
	}
	h.gen, h.size, h.zdata = gen, int64(size), v[1+n+m:]
	return h, nil
}

func (h hotObject) inflate() ([]byte, error) {
	z, err := inflater(bytes.NewReader(h.zdata))
	if err != nil {
		return nil, fmt.Errorf("inflate hot object: %w", err)
	}
	defer z.Close()
	data := make([]byte, h.size)
	if _, err := io.ReadFull(z, data); err != nil {
		return nil, fmt.Errorf("inflate hot object: %w", err)
	}
	return data, nil
}

// hashObject is the id git gives an object.
func hashObject(t ObjectType, data []byte) refpolicy.OID {
	h := plumbing.NewHasher(plumbing.ObjectType(t), int64(len(data)))
	h.Write(data)
	return refpolicy.OID(h.Sum())
}

// newObject hashes data.
func newObject(t ObjectType, data []byte) NewObject {
	return NewObject{OID: hashObject(t, data), Type: t, Data: data}
}
