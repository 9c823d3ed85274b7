package gitstore

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/headgate/headgate/refpolicy"
)

const (
	// hotInflated bounds what the objects of a pack that is parsed in memory have
	// together, deltas and what they make included. Deflated again they fit into
	// one batch of the ledger, however badly they deflate.
	hotInflated = 6 << 20
	packHeader  = 12
	packTrailer = sha1.Size
)

// errHandOver says that a pack is fine so far and too large to be parsed in memory.
var errHandOver = errors.New("pack is too large to be parsed in memory")

// packFault is ErrBadObject with what is wrong with a pack.
func packFault(format string, args ...any) error {
	return fmt.Errorf("%w: pack: %s", ErrBadObject, fmt.Sprintf(format, args...))
}

// parsedPack is what a small pack holds.
type parsedPack struct {
	objects []NewObject
	bases   []refpolicy.OID // stored objects that some came as deltas against
	missing []refpolicy.OID // bases that are nowhere; then not all objects are known
}

// packEntry is one entry of a pack, inflated.
type packEntry struct {
	typ  ObjectType    // or ofsDelta, refDelta
	at   int           // where it begins
	back int           // ofsDelta: where its base begins
	base refpolicy.OID // refDelta
	data []byte        // of a delta its instructions
}

// The forms of entries that are no object by themselves.
const (
	ofsDelta ObjectType = 6
	refDelta ObjectType = 7
)

// packParser reads a pack that is whole in memory:
//
//	pack  = "PACK" version count *entry sha1     ; version 2 or 3, both numbers 4 bytes
//	entry = head [ back / base ] zlib-stream
//	head  = type and size of what is inflated: 3 bits of type, 4 and then 7 bits of
//	        size a byte, lowest first, while the top bit is set
//	back  = how far before the entry its base begins, for an ofsDelta
//	base  = oid of the base, for a refDelta
type packParser struct {
	data    []byte // without the trailer
	pos     int
	left    int   // bytes that may still be inflated or made by deltas
	file    int64 // the most that one object may have
	entries []packEntry
}

// packBounds are what a pack that is parsed in memory may have; one over them is
// handed over, but for depth.
type packBounds struct {
	objects int
	file    int64 // bytes of each object
	depth   int   // deltas on top of each other; more is ErrBadObject
}

// parsePack reads a small pack and resolves its deltas. read gives stored objects,
// for bases that are not in the pack; ErrObjectNotFound makes one missing. Errors:
// ErrBadObject, errHandOver, what read gave.
func parsePack(ctx context.Context, data []byte, most packBounds, read func(context.Context, refpolicy.OID) (object, error)) (parsedPack, error) {
	p := &packParser{data: data, left: hotInflated, file: most.file}
	n, err := p.header(most.objects)
	if err != nil {
		return parsedPack{}, err
	}
	for range n {
		if err := p.entry(); err != nil {
			return parsedPack{}, err
		}
	}
	if p.pos != len(p.data) {
		return parsedPack{}, packFault("%d bytes after its last object", len(p.data)-p.pos)
	}
	d := newDeltaResolver(p, most.depth)
	return d.resolve(ctx, read)
}

// header reads the head of the pack, checks and cuts off its trailer, and gives
// the number of entries.
func (p *packParser) header(maxObjects int) (int, error) {
	if len(p.data) < packHeader+packTrailer || string(p.data[:4]) != "PACK" {
		return 0, packFault("no header")
	}
	if v := binary.BigEndian.Uint32(p.data[4:]); v != 2 && v != 3 {
		return 0, packFault("version %d", v)
	}
	n := binary.BigEndian.Uint32(p.data[8:])
	if int64(n) > int64(maxObjects) {
		return 0, errHandOver
	}
	body := p.data[:len(p.data)-packTrailer]
	if sum := sha1.Sum(body); !bytes.Equal(sum[:], p.data[len(body):]) {
		return 0, packFault("checksum does not match")
	}
	p.data, p.pos = body, packHeader
	p.entries = make([]packEntry, 0, n)
	return int(n), nil
}

func (p *packParser) entry() error {
	e := packEntry{at: p.pos}
	typ, size, err := readEntryHead(p)
	if err != nil {
		return err
	}
	e.typ = typ
	switch e.typ {
	case CommitObject, TreeObject, BlobObject, TagObject:
	case ofsDelta:
		back, err := readBaseOffset(p, int64(e.at))
		if err != nil {
			return err
		}
		e.back = int(back)
	case refDelta:
		if len(p.data)-p.pos < len(e.base) {
			return packFault("cut short")
		}
		p.pos += copy(e.base[:], p.data[p.pos:])
	default:
		return packFault("entry of type %d", e.typ)
	}
	if e.data, err = p.inflate(size); err != nil {
		return err
	}
	p.entries = append(p.entries, e)
	return nil
}

// ReadByte gives the next byte.
func (p *packParser) ReadByte() (byte, error) {
	if p.pos >= len(p.data) {
		return 0, packFault("cut short")
	}
	p.pos++
	return p.data[p.pos-1], nil
}

// inflate reads the zlib stream of an entry, which must have exactly size bytes.
func (p *packParser) inflate(size uint64) ([]byte, error) {
	if size > uint64(p.left) || size > uint64(p.file) {
		return nil, errHandOver
	}
	p.left -= int(size)
	src := bytes.NewReader(p.data[p.pos:])
	z, err := inflater(src)
	if err != nil {
		return nil, packFault("entry cannot be inflated")
	}
	defer z.Close()
	data := make([]byte, size)
	if _, err := io.ReadFull(z, data); err != nil {
		return nil, packFault("entry cannot be inflated")
	}
	var more [1]byte
	if n, err := io.ReadFull(z, more[:]); n != 0 || err != io.EOF {
		return nil, packFault("entry cannot be inflated")
	}
	p.pos = len(p.data) - src.Len()
	return data, nil
}
