package snapshottest

import (
	"encoding/binary"
)

// A random is splitmix64: one word of state, the same on every machine.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	return mix(uint64(*r))
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// below gives a number under n, which is small.
func (r *random) below(n uint64) uint64 { return r.next() >> 32 * n >> 32 }

// share gives a number from 0 to under 1.
func (r *random) share() float64 { return float64(r.next()>>11) / (1 << 53) }

// The kinds of pages that are not zeros.
type kind int

const (
	text kind = iota
	code
	heap
	noise
)

// kindOf draws one: 30% text, 30% code, 25% heap, 15% random.
func kindOf(r *random) kind {
	switch n := r.below(20); {
	case n < 6:
		return text
	case n < 12:
		return code
	case n < 17:
		return heap
	}
	return noise
}

func fillAs(k kind, page *[PageBytes]byte, r random) {
	switch k {
	case text:
		fillPieces(page[:], r, &texts, 16)
	case code:
		fillPieces(page[:], r, &codes, 4)
	case heap:
		fillHeap(page[:], r)
	case noise:
		for at := 0; at < PageBytes; at += 8 {
			binary.LittleEndian.PutUint64(page[at:], r.next())
		}
	}
}

// fillHeap fills in pointers into one region, small numbers and zeros.
func fillHeap(page []byte, r random) {
	base := 0x00007f0000000000 | r.next()>>40<<20
	for at := 0; at < len(page); at += 8 {
		x := r.next()
		word := uint64(0)
		switch x & 7 {
		case 0, 1, 2:
			word = base + x>>44&^15
		case 3, 4:
			word = x >> 56
		}
		binary.LittleEndian.PutUint64(page[at:], word)
	}
}

// corpusBytes is how much text and code there is to take pieces of.
const corpusBytes = 64 << 10

var texts, codes = makeTexts(), makeCodes()

// fillPieces fills in pieces of a corpus, of 1 to 4 times least bytes and 8 on top.
func fillPieces(page []byte, r random, corpus *[corpusBytes + 128]byte, least int) {
	for at := 0; at < len(page); {
		x := r.next()
		from := int(x % corpusBytes)
		at += copy(page[at:], corpus[from:from+8+least+int(x>>32)%(3*least)])
	}
}

func makeTexts() (corpus [corpusBytes + 128]byte) {
	r := random(1)
	var words [512]string
	for i := range words {
		word := make([]byte, 2+r.below(8))
		for j := range word {
			word[j] = "etaoinshrdlucmfwygpbvk"[r.below(22)*r.below(22)/22]
		}
		words[i] = string(word) + " "
	}
	for at := 0; at < len(corpus); {
		at += copy(corpus[at:], words[r.below(512)*r.below(512)/512])
	}
	return corpus
}

func makeCodes() (corpus [corpusBytes + 128]byte) {
	r := random(2)
	var ops [96][3]byte
	for i := range ops {
		binary.LittleEndian.PutUint16(ops[i][:], uint16(r.next()))
		ops[i][2] = byte(r.next()) & 0xc7
	}
	for at := 0; at < len(corpus); {
		x := r.next()
		at += copy(corpus[at:], ops[r.below(96)*r.below(96)/96][:1+x&1+x>>1&1])
		if x>>8&3 == 0 { // an operand: a short distance, or rarely four bytes
			var operand [4]byte
			binary.LittleEndian.PutUint32(operand[:], uint32(x>>32))
			at += copy(corpus[min(at, len(corpus)):], operand[:1+3*(x>>10&1)])
		}
	}
	return corpus
}
