package snapshot

import (
	"crypto/sha256"
	"fmt"
	"runtime"

	"github.com/klauspost/compress/zstd"
)

// A Coder makes blobs of contents and back. It is safe for concurrent use, and the same
// content always gives the same blob. One call works on one CPU; several at once wait for
// each other when there are more of them than CPUs.
type Coder struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

// NewCoder makes a Coder. It keeps about 2 MiB for each CPU.
func NewCoder() *Coder {
	cpus := runtime.GOMAXPROCS(0)
	// A frame tells its content's length and has no checksum: the content's strong hash is known.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(cpus), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithWindowSize(maxWindow), zstd.WithLowerEncoderMem(true), zstd.WithNoEntropyCompression(true))
	if err != nil {
		panic("snapshot: options of zstd: " + err.Error()) // they are constants
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(cpus), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(MaxContent), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic("snapshot: options of zstd: " + err.Error())
	}
	return &Coder{enc: enc, dec: dec}
}

// The level is the fastest, and literals are not entropy coded: on chunks of 16 KiB that
// look like memory that takes a tenth more space, a sixth less time to write, and half
// the time to read. The default level takes twice the time for frames a sixteenth smaller.
// What cannot shrink is given up within the first bytes, at several GB/s.

// maxWindow is how far back a frame's matches reach: all of any chunk of pages.
const maxWindow = MaxChunk

// Encode gives the blob of a content in buf, or the content itself if it does not shrink
// by a sixty-fourth: reading it back would cost more than it saves.
func (c *Coder) Encode(content, buf []byte) []byte {
	frame := c.enc.EncodeAll(content, buf[:0])
	if len(frame) >= len(content)-len(content)/64 {
		return content
	}
	return frame
}

// Decode gives the content of a blob, hashed: ErrDamaged if it is not what chunk says.
// The content is in buf if it fits, or the blob itself if it was stored as it is. Chunks
// of zeros have no blob.
func (c *Coder) Decode(chunk Chunk, blob, buf []byte) ([]byte, error) {
	content, err := c.inflate(chunk, blob, buf)
	if err != nil {
		return nil, err
	}
	if !chunk.Hash.IsZero() && sha256.Sum256(content) != [32]byte(chunk.Hash) {
		return nil, fmt.Errorf("%w: content does not have the hash %s", ErrDamaged, chunk.Hash)
	}
	return content, nil
}

func (c *Coder) inflate(chunk Chunk, blob, buf []byte) ([]byte, error) {
	length := int(chunk.Length)
	switch {
	case length > MaxContent:
		return nil, fmt.Errorf("%w: chunk of %d bytes", ErrDamaged, length)
	case chunk.Hash.IsZero() && len(blob) != 0:
		return nil, fmt.Errorf("%w: chunk of zeros with a blob", ErrDamaged)
	case len(blob) == length && !chunk.Hash.IsZero():
		return blob, nil
	case len(blob) > length:
		return nil, fmt.Errorf("%w: blob of %d bytes for a content of %d", ErrDamaged, len(blob), length)
	}
	if cap(buf) < length {
		buf = make([]byte, length)
	}
	if chunk.Hash.IsZero() {
		clear(buf[:length])
		return buf[:length], nil
	}
	// The capacity is all that a frame can fill, whatever it says of itself.
	content, err := c.dec.DecodeAll(blob, buf[:0:length])
	if err != nil {
		return nil, fmt.Errorf("%w: frame: %w", ErrDamaged, err)
	}
	if len(content) != length {
		return nil, fmt.Errorf("%w: frame of %d bytes, not %d", ErrDamaged, len(content), length)
	}
	return content, nil
}
