package snapshot

import (
	"encoding/hex"
	"fmt"
)

// An OID is the id of a git object.
type OID [20]byte

// IsZero reports whether o stands for nothing.
func (o OID) IsZero() bool { return o == OID{} }

// String is the id as 40 hex digits; empty for the zero OID.
func (o OID) String() string {
	if o.IsZero() {
		return ""
	}
	return hex.EncodeToString(o[:])
}

// ParseOID reads 40 lower-case hex digits: ErrInvalid otherwise.
func ParseOID(s string) (o OID, err error) {
	if len(s) != 2*len(o) || !lowerHex(s) {
		return o, invalidf("%q is not a full object id", s)
	}
	_, err = hex.Decode(o[:], []byte(s))
	return o, err
}

// A Hash is the SHA-256 of something; of a chunk of zeros and of a leaf without a tree
// it is the zero Hash.
type Hash [32]byte

// IsZero reports whether h stands for zeros.
func (h Hash) IsZero() bool { return h == Hash{} }

// String is the hash as 64 hex digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads 64 lower-case hex digits: ErrInvalid otherwise.
func ParseHash(s string) (h Hash, err error) {
	if len(s) != 2*len(h) || !lowerHex(s) {
		return h, invalidf("%q is not a SHA-256 hash", s)
	}
	_, err = hex.Decode(h[:], []byte(s))
	return h, err
}

func lowerHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// A Chunk is one entry of a leaf's list.
type Chunk struct {
	Length uint32 // bytes of its content
	Hash   Hash   // of its content; zero: zeros alone
}

// LeafChunks is how many chunks a leaf has at most.
const LeafChunks = 256

// A Leaf is a run of chunks, by its number within its part.
type Leaf struct {
	Index  int
	Chunks []Chunk
}

func (l Leaf) String() string { return fmt.Sprintf("leaf %d of %d chunks", l.Index, len(l.Chunks)) }

// A Layout says how an image is cut into chunks.
type Layout string

// The layouts there are.
const (
	Pages  Layout = "pages"  // every ChunkBytes
	Stream Layout = "stream" // by content
)

// The kinds of parts that headgate knows by name; others are kept as they are called.
const (
	KindMemory    = "memory"    // pages
	KindDisk      = "disk"      // pages
	KindFiles     = "files"     // stream: a tar of the workspace
	KindNamespace = "namespace" // stream: a pickled or JSON namespace
)

const (
	// MinChunk and MaxChunk bound chunk_bytes, in bytes; it is a power of two.
	MinChunk = 4 << 10
	MaxChunk = 1 << 20
	// DefaultChunk is what a save that names none gets: see the sweep in the README.
	DefaultChunk = 16 << 10
	// MaxImage is the largest image, in bytes.
	MaxImage = 1 << 40
	// MaxParts is how many parts a snapshot has at most.
	MaxParts = 64
)
