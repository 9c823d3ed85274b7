package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
)

var zeroPage [4 << 10]byte

// ChunkOf is the entry of a content: at most MaxContent bytes.
func ChunkOf(content []byte) Chunk {
	c := Chunk{Length: uint32(len(content))}
	if !Zeros(content) {
		c.Hash = sha256.Sum256(content)
	}
	return c
}

// Zeros reports whether content is zeros alone; nothing is.
func Zeros(content []byte) bool {
	// Most of what is not zeros shows it in its first word.
	if len(content) >= 8 && binary.LittleEndian.Uint64(content) != 0 {
		return false
	}
	for len(content) > len(zeroPage) {
		if !bytes.Equal(content[:len(zeroPage)], zeroPage[:]) {
			return false
		}
		content = content[len(zeroPage):]
	}
	return bytes.Equal(content, zeroPage[:len(content)])
}
