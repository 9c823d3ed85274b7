package packs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// errNotStored: a block of the stream is deflated after all.
var errNotStored = errors.New("zlib stream has a deflated block")

// A storedReader reads a zlib stream of stored blocks straight from the file
// into the caller's buffer, several times faster than a general reader:
//
//	stream = cmf flg *block adler32
//	block  = 0000000f len16 ^len16 data     f: the last one
//
// What it gave is checked at its end by the idx's checksum of the whole entry,
// which includes what adler32 would tell.
type storedReader struct {
	f     io.ReaderAt
	at    int64
	left  int // of the block
	final bool
	crc   uint32 // of the entry so far
	want  uint32
}

// newStored gives nil when the entry does not begin with a stored block.
func (p *Pack) newStored(i int, off int64, h entryHead) *storedReader {
	buf := make([]byte, h.len+3)
	if _, err := p.f.ReadAt(buf, off); err != nil {
		return nil // the general reader will say what is wrong
	}
	z := buf[h.len:]
	if z[0]&15 != 8 || z[1]&0x20 != 0 || binary.BigEndian.Uint16(z)%31 != 0 || z[2]&6 != 0 {
		return nil
	}
	start := off + int64(h.len) + 2
	return &storedReader{f: p.f, at: start, crc: crc32.ChecksumIEEE(buf[:h.len+2]), want: p.idx.crc(i)}
}

func (s *storedReader) Read(b []byte) (int, error) {
	for s.left == 0 {
		if s.final {
			return 0, s.end()
		}
		if err := s.block(); err != nil {
			return 0, err
		}
	}
	b = b[:min(len(b), s.left)]
	if err := s.fill(b); err != nil {
		return 0, err
	}
	s.left -= len(b)
	return len(b), nil
}

func (s *storedReader) fill(b []byte) error {
	if _, err := s.f.ReadAt(b, s.at); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	s.at += int64(len(b))
	s.crc = crc32.Update(s.crc, crc32.IEEETable, b)
	return nil
}

func (s *storedReader) block() error {
	var head [5]byte
	if err := s.fill(head[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint16(head[1:])
	switch {
	case head[0]&6 != 0:
		return errNotStored
	case n != ^binary.LittleEndian.Uint16(head[3:]):
		return fmt.Errorf("%w: stored block", errEntry)
	}
	s.left, s.final = int(n), head[0]&1 == 1
	return nil
}

// end gives io.EOF when the whole entry was what the idx says.
func (s *storedReader) end() error {
	var adler [4]byte
	if err := s.fill(adler[:]); err != nil {
		return err
	}
	if s.crc != s.want {
		return fmt.Errorf("%w: checksum", errEntry)
	}
	return io.EOF
}
