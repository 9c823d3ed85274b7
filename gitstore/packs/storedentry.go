package packs

import (
	"encoding/binary"
	"fmt"
	"hash/adler32"
	"hash/crc32"
)

// A stored entry holds its object as it is: the head, and a zlib stream of stored
// blocks (see storedReader). Memory images are compressed, or cannot be, before they
// come here, so that deflating would only take time.

const (
	maxBlock  = 1<<16 - 1 // bytes in a stored block
	blockHead = 5
	zlibHead  = 2
	zlibTrail = 4
)

// blocksOf is the number of stored blocks for n bytes; there is always a last one.
func blocksOf(n int) int { return max(1, (n+maxBlock-1)/maxBlock) }

// appendStored appends the stored entry of an object, and gives the entry's CRC-32.
func appendStored(b []byte, typ Type, content []byte) ([]byte, uint32) {
	start := len(b)
	b = AppendHead(b, typ, int64(len(content)))
	b = append(b, 0x78, 0x01)
	for rest := content; ; {
		n := min(len(rest), maxBlock)
		final := byte(0)
		if n == len(rest) {
			final = 1
		}
		b = append(b, final)
		b = binary.LittleEndian.AppendUint16(b, uint16(n))
		b = binary.LittleEndian.AppendUint16(b, ^uint16(n))
		b = append(b, rest[:n]...)
		if rest = rest[n:]; final == 1 {
			break
		}
	}
	b = binary.BigEndian.AppendUint32(b, adler32.Checksum(content))
	return b, crc32.ChecksumIEEE(b[start:])
}

// storedContent moves the content of a stored entry to the beginning of raw, and gives
// it. ok is false when the entry is of another form; raw is then as it was. The
// checksum of zlib is left to whoever has one of the whole entry.
func storedContent(raw []byte) (typ Type, content []byte, ok bool, err error) {
	n := 0
	h, ok, err := eachStored(raw, func(block []byte) { n += copy(raw[n:], block) })
	return h.typ, raw[:n], ok, err
}

// eachStored calls fn for each block of a stored entry, which may move it down in raw.
func eachStored(raw []byte, fn func(block []byte)) (h entryHead, ok bool, err error) {
	if h, err = parseHead(raw); err != nil {
		return h, false, err
	}
	z := raw[h.len:]
	want := int64(zlibHead+zlibTrail) + h.size + int64(blocksOf(int(h.size)))*blockHead
	if h.isDelta() || !beginsStored(z) || int64(len(z)) != want {
		return h, false, nil
	}
	left := h.size
	z = z[zlibHead:]
	for final := false; !final; {
		if len(z) < blockHead+zlibTrail {
			return h, true, fmt.Errorf("%w: stored block", errEntry)
		}
		n := int(binary.LittleEndian.Uint16(z[1:]))
		if z[0]&6 != 0 || n != int(^binary.LittleEndian.Uint16(z[3:])) || len(z)-blockHead-zlibTrail < n {
			return h, true, fmt.Errorf("%w: stored block", errEntry)
		}
		final = z[0]&1 == 1
		block := z[blockHead : blockHead+n]
		z, left = z[blockHead+n:], left-int64(n)
		fn(block)
	}
	if left != 0 || len(z) != zlibTrail {
		return h, true, fmt.Errorf("%w: %d bytes are missing of %d", errEntry, left, h.size)
	}
	return h, true, nil
}

// beginsStored reports whether a zlib stream begins with a stored block.
func beginsStored(z []byte) bool {
	return len(z) >= 3 && z[0]&15 == 8 && z[1]&0x20 == 0 && binary.BigEndian.Uint16(z)%31 == 0 && z[2]&6 == 0
}

// contentBytes is how many bytes the content of a stored blob's entry of so many has.
func contentBytes(entry int) int {
	n := entry
	for range 4 { // heads and blocks grow slower than what is in them
		n = entry - len(AppendHead(nil, Blob, int64(max(0, n)))) - zlibHead - zlibTrail - blocksOf(n)*blockHead
	}
	return n
}
