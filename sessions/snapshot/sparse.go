package snapshot

import (
	"encoding/binary"
)

// A SparseHeader begins a sparse stream.
type SparseHeader struct {
	Part   Part   `json:"part"`
	Sealed bool   `json:"sealed,omitempty"`
	Offset int64  `json:"offset"` // of the range that is told
	Length int64  `json:"length"`
	Commit string `json:"sha"`
}

func (h SparseHeader) check() error {
	if err := h.Part.check(); err != nil {
		return invalidf("sparse header: part: %v", err)
	}
	if h.Offset < 0 || h.Length < 0 || h.Offset > h.Part.Size || h.Length > h.Part.Size-h.Offset {
		return invalidf("sparse header: range is not within the image")
	}
	if _, err := ParseOID(h.Commit); err != nil && h.Commit != "" {
		return invalidf("sparse header: sha: %v", err)
	}
	return nil
}

// A Record is one record of a sparse stream: zeros (Blob nil), or a chunk. A blob as long
// as the content is the content.
type Record struct {
	Offset int64 // of its content in the image; of chunks that are sent it means nothing
	Length int64 // bytes of content
	Hash   Hash
	Blob   []byte // valid until the next record is read
}

// Chunk is the entry of the record's content; of zeros longer than MaxContent none.
func (r Record) Chunk() Chunk { return Chunk{Length: uint32(r.Length), Hash: r.Hash} }

// check is ErrInvalid for what no record can be.
func (r Record) check() error {
	switch {
	case r.Offset < 0 || r.Length <= 0 || r.Length > MaxImage || r.Offset > MaxImage-r.Length:
		return invalidf("sparse record of %d bytes at %d", r.Length, r.Offset)
	case r.Hash.IsZero() != (len(r.Blob) == 0):
		return invalidf("sparse record at %d: zeros have neither hash nor blob", r.Offset)
	case !r.Hash.IsZero() && (r.Length > MaxContent || int64(len(r.Blob)) > r.Length):
		return invalidf("sparse record at %d: blob of %d bytes for a content of %d", r.Offset, len(r.Blob), r.Length)
	}
	return nil
}

// The kinds of records on the wire.
const (
	recordEnd byte = iota
	recordZeros
	recordStored
	recordZstd
)

const (
	sparseMagic   = "HGSPARSE\x01" // the last byte is the version
	maxHeader     = MaxManifest
	recordPrefix  = 1 + 8 + 8 + 4 + 32
	sparseBuffers = 64 << 10
)

// A wireRecord is what stands before a blob.
type wireRecord struct {
	kind           byte
	offset, length int64
	stored         uint32
	hash           Hash
}

func (w wireRecord) append(b []byte) []byte {
	b = append(b, w.kind)
	b = binary.BigEndian.AppendUint64(b, uint64(w.offset))
	b = binary.BigEndian.AppendUint64(b, uint64(w.length))
	b = binary.BigEndian.AppendUint32(b, w.stored)
	return append(b, w.hash[:]...)
}

func wireRecordOf(b *[recordPrefix]byte) wireRecord {
	return wireRecord{
		kind:   b[0],
		offset: int64(binary.BigEndian.Uint64(b[1:])),
		length: int64(binary.BigEndian.Uint64(b[9:])),
		stored: binary.BigEndian.Uint32(b[17:]),
		hash:   Hash(b[21:]),
	}
}

// kindOf is the kind of a record that check has passed.
func kindOf(r Record) byte {
	switch {
	case r.Hash.IsZero():
		return recordZeros
	case int64(len(r.Blob)) == r.Length:
		return recordStored
	}
	return recordZstd
}
