package packs

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/headgate/headgate/refpolicy"
)

const (
	idxHeadLen   = 8 + 256*4 // magic, version, fanout
	idxTrailLen  = 20 + 20   // checksum of the pack, checksum of the idx
	idxPerObject = 20 + 4 + 4
	packHeadLen  = 12
	packTrailLen = 20
	maxObjects   = 1 << 28
)

var idxMagic = []byte{0xff, 't', 'O', 'c', 0, 0, 0, 2}

var errIdx = errors.New("idx is malformed")

// An idx is a version 2 idx in memory, as it is in the file:
//
//	magic version fanout[256] name[n] crc32[n] offset32[n] offset64[m] packsum idxsum
//
// It is read-only and needs no lock. (go-git's MemoryIndex remembers each look-up
// in a map under a lock, and trusts names to be sorted.)
type idx struct {
	n                         int
	fanout                    []byte
	names, crcs, off32, off64 []byte
	packSum                   []byte
}

// readIdx reads and checks a whole idx of that size. Nothing is allocated that
// the size does not bear out.
func readIdx(r io.ReaderAt, size, packSize int64) (*idx, error) {
	var head [idxHeadLen]byte
	if size < idxHeadLen+idxTrailLen {
		return nil, fmt.Errorf("%w: %d bytes", errIdx, size)
	}
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, fmt.Errorf("read idx: %w", err)
	}
	n := int64(binary.BigEndian.Uint32(head[idxHeadLen-4:]))
	least := idxHeadLen + idxTrailLen + n*idxPerObject
	if n > maxObjects || size < least || size > least+n*8 || (size-least)%8 != 0 {
		return nil, fmt.Errorf("%w: %d bytes for %d objects", errIdx, size, n)
	}
	buf := make([]byte, size)
	if _, err := r.ReadAt(buf, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read idx: %w", err)
	}
	return parseIdx(buf, packSize)
}

// parseIdx checks everything that later look-ups rely on.
func parseIdx(buf []byte, packSize int64) (*idx, error) {
	if len(buf) < idxHeadLen+idxTrailLen || !bytes.Equal(buf[:8], idxMagic) {
		return nil, fmt.Errorf("%w: not a version 2 idx", errIdx)
	}
	body, sum := buf[:len(buf)-20], buf[len(buf)-20:]
	if got := sha1.Sum(body); !bytes.Equal(got[:], sum) {
		return nil, fmt.Errorf("%w: checksum does not match", errIdx)
	}
	x := &idx{fanout: buf[8:idxHeadLen]}
	x.n = int(x.fan(255))
	rest := body[idxHeadLen : len(body)-20]
	if x.n > maxObjects || len(rest) < x.n*idxPerObject || (len(rest)-x.n*idxPerObject)%8 != 0 {
		return nil, fmt.Errorf("%w: too short for %d objects", errIdx, x.n)
	}
	x.packSum = body[len(body)-20:]
	x.names, rest = rest[:x.n*20], rest[x.n*20:]
	x.crcs, rest = rest[:x.n*4], rest[x.n*4:]
	x.off32, x.off64 = rest[:x.n*4], rest[x.n*4:]
	if err := x.checkNames(); err != nil {
		return nil, err
	}
	return x, x.checkOffsets(packSize)
}

func (x *idx) fan(b int) uint32 { return binary.BigEndian.Uint32(x.fanout[4*b:]) }

// checkNames: sorted, without a double, and where the fanout says.
func (x *idx) checkNames() error {
	i := 0
	for b := range 256 {
		end := int(x.fan(b))
		if end < i || end > x.n {
			return fmt.Errorf("%w: fanout falls at %d", errIdx, b)
		}
		for ; i < end; i++ {
			name := x.name(i)
			if int(name[0]) != b || i > 0 && bytes.Compare(x.name(i-1), name) >= 0 {
				return fmt.Errorf("%w: name %d is out of order", errIdx, i)
			}
		}
	}
	return nil
}

func (x *idx) checkOffsets(packSize int64) error {
	for i := range x.n {
		off, ok := x.offset(i)
		if !ok || off < packHeadLen || off >= packSize-packTrailLen {
			return fmt.Errorf("%w: offset of object %d is outside the pack", errIdx, i)
		}
	}
	return nil
}

func (x *idx) name(i int) []byte { return x.names[20*i : 20*i+20] }

func (x *idx) oid(i int) refpolicy.OID { return refpolicy.OID(x.name(i)) }

func (x *idx) crc(i int) uint32 { return binary.BigEndian.Uint32(x.crcs[4*i:]) }

// offset of object i: 31 bits, or the number of a 64-bit one.
func (x *idx) offset(i int) (int64, bool) {
	v := binary.BigEndian.Uint32(x.off32[4*i:])
	if v>>31 == 0 {
		return int64(v), true
	}
	k := int(v &^ (1 << 31))
	if k >= len(x.off64)/8 {
		return 0, false
	}
	off := binary.BigEndian.Uint64(x.off64[8*k:])
	return int64(off), off < 1<<62
}

// find gives the position of an object.
func (x *idx) find(id refpolicy.OID) (int, bool) {
	lo, hi := 0, int(x.fan(int(id[0])))
	if id[0] > 0 {
		lo = int(x.fan(int(id[0]) - 1))
	}
	i := lo + sort.Search(hi-lo, func(i int) bool { return bytes.Compare(x.name(lo+i), id[:]) >= 0 })
	return i, i < hi && bytes.Equal(x.name(i), id[:])
}
