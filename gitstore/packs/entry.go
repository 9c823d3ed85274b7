package packs

import (
	"errors"

	"github.com/headgate/headgate/refpolicy"
)

var (
	errEntry = errors.New("entry is malformed")
	errDelta = errors.New("delta is malformed")
)

// maxHead is the longest head of an entry: type and size in 10 bytes at most,
// then a base's name or distance.
const maxHead = 10 + 20

// maxSize bounds the size an entry may claim.
const maxSize = 1 << 50

// An entryHead is what stands before an entry's zlib data.
type entryHead struct {
	typ  Type
	size int64         // of the object, or of the delta
	back int64         // ofsDelta: how far before this entry its base begins
	base refpolicy.OID // refDelta
	len  int           // bytes of the head itself
}

func (h entryHead) isDelta() bool { return h.typ == ofsDelta || h.typ == refDelta }

// parseHead reads
//
//	head = 1ttt ssss *(1sssssss) 0sssssss | 0ttt ssss   type, size from the low bits up
//	       [ofs | base-oid]
//	ofs  = *(1ooooooo) 0ooooooo                         from the high bits down, plus one a step
func parseHead(b []byte) (h entryHead, err error) {
	if len(b) == 0 {
		return h, errEntry
	}
	c := b[0]
	h.typ, h.size, h.len = Type(c>>4&7), int64(c&15), 1
	for shift := 4; c&0x80 != 0; shift += 7 {
		if h.len >= len(b) || shift > 60 {
			return h, errEntry
		}
		c = b[h.len]
		h.len++
		h.size |= int64(c&0x7f) << shift
	}
	if h.size < 0 || h.size > maxSize {
		return h, errEntry
	}
	switch {
	case h.typ.Valid():
		return h, nil
	case h.typ == refDelta:
		if len(b)-h.len < len(h.base) {
			return h, errEntry
		}
		h.len += copy(h.base[:], b[h.len:])
		return h, nil
	case h.typ == ofsDelta:
		return h, h.parseBack(b)
	}
	return h, errEntry
}

func (h *entryHead) parseBack(b []byte) error {
	for i := 0; ; i++ {
		if h.len >= len(b) || i > 8 {
			return errEntry
		}
		c := b[h.len]
		h.len++
		h.back = h.back<<7 | int64(c&0x7f)
		if c&0x80 == 0 {
			break
		}
		h.back++
	}
	if h.back <= 0 {
		return errEntry
	}
	return nil
}

// AppendHead writes the head of an entry that is no delta.
func AppendHead(b []byte, typ Type, size int64) []byte {
	c := byte(typ)<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		b = append(b, c|0x80)
		c = byte(size & 0x7f)
	}
	return append(b, c)
}

// paddedHead is a head whose size takes width bytes in all, however small it is:
// it is written over once the size is known. Readers take the zero groups at its
// end as they take any other.
func paddedHead(typ Type, size int64, width int) []byte {
	b := AppendHead(make([]byte, 0, width), typ, size)
	for len(b) < width {
		b[len(b)-1] |= 0x80
		b = append(b, 0)
	}
	return b
}

// deltaSizes reads the sizes of base and result that a delta begins with.
func deltaSizes(d []byte) (src, dst int64, rest []byte, err error) {
	if src, d, err = deltaSize(d); err != nil {
		return 0, 0, nil, err
	}
	if dst, d, err = deltaSize(d); err != nil {
		return 0, 0, nil, err
	}
	return src, dst, d, nil
}

func deltaSize(d []byte) (n int64, rest []byte, err error) {
	for i, shift := 0, 0; i < len(d) && shift < 56; i, shift = i+1, shift+7 {
		n |= int64(d[i]&0x7f) << shift
		if d[i]&0x80 == 0 {
			return n, d[i+1:], nil
		}
	}
	return 0, nil, errDelta
}

// applyDelta makes the object that d describes on top of base:
//
//	delta  = src-size dst-size *(copy | insert)
//	copy   = 1sss oooo, then the bytes of offset and size whose bit is set; size 0 is 0x10000
//	insert = 0nnn nnnn, then n bytes, n > 0
//
// The caller has bounded dst-size.
func applyDelta(base, d []byte) ([]byte, error) {
	src, dst, d, err := deltaSizes(d)
	if err != nil || src != int64(len(base)) {
		return nil, errDelta
	}
	out := make([]byte, 0, dst)
	for len(d) > 0 {
		c := d[0]
		d = d[1:]
		var piece []byte
		switch {
		case c&0x80 != 0:
			piece, d, err = deltaCopy(c, base, d)
			if err != nil {
				return nil, err
			}
		case c == 0 || int(c) > len(d):
			return nil, errDelta
		default:
			piece, d = d[:c], d[c:]
		}
		if int64(len(out)+len(piece)) > dst {
			return nil, errDelta
		}
		out = append(out, piece...)
	}
	if int64(len(out)) != dst {
		return nil, errDelta
	}
	return out, nil
}

func deltaCopy(c byte, base, d []byte) (piece, rest []byte, err error) {
	var v [7]int64
	for i := range v {
		if c>>i&1 == 0 {
			continue
		}
		if len(d) == 0 {
			return nil, nil, errDelta
		}
		v[i], d = int64(d[0]), d[1:]
	}
	off := v[0] | v[1]<<8 | v[2]<<16 | v[3]<<24
	n := v[4] | v[5]<<8 | v[6]<<16
	if n == 0 {
		n = 0x10000
	}
	if off+n > int64(len(base)) {
		return nil, nil, errDelta
	}
	return base[off : off+n], d, nil
}
