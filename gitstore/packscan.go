package gitstore

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/headgate/headgate/refpolicy"
)

// maxDelta bounds the objects that come as deltas and their bases: whoever resolves
// a delta holds both in memory. Larger files come whole, as git sends them.
const maxDelta = 256 << 20

// errLargeDelta is what a push is told that goes over maxDelta.
var errLargeDelta error = &unpackError{fmt.Sprintf("an object of over %d bytes comes as a delta or is the base of one", maxDelta)}

// packScan reads a large pack as it streams by, entry by entry, and finds what is
// wrong with it before git is asked to hold its objects in memory. It keeps ids and
// sizes, never content.
type packScan struct {
	in      *bufio.Reader
	read    func() int64 // how much was taken from what is under in
	most    int64        // the largest object, inflated
	delta   int64        // the largest that may be a delta or the base of one
	limits  PushLimits   // what the whole pack may have
	count   int
	size    int64                  // of what is inflated and resolved so far
	deltas  []deltaPlace           // in the order of the pack
	big     map[int64]bool         // where entries over maxDelta begin
	bigIDs  map[refpolicy.OID]bool // their ids
	bases   map[refpolicy.OID]bool // what deltas by id are against
	inflate []byte                 // buffer
}

// deltaPlace is where a delta begins and how many stand below it, itself included, as
// far as the pack tells before it is resolved.
type deltaPlace struct {
	at    int64
	depth int32
}

func newPackScan(in io.Reader, read func() int64, most int64, limits PushLimits) *packScan {
	return &packScan{
		in: bufio.NewReaderSize(in, 128<<10), read: read, most: most, delta: maxDelta, limits: limits, inflate: make([]byte, 64<<10),
		big: map[int64]bool{}, bigIDs: map[refpolicy.OID]bool{}, bases: map[refpolicy.OID]bool{},
	}
}

// run reads to the end of the pack and of what holds it. Errors: ErrBadObject,
// *unpackError, what the reader gave.
func (s *packScan) run() error {
	var head [packHeader]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return cutShort(err)
	}
	if v := binary.BigEndian.Uint32(head[4:]); string(head[:4]) != "PACK" || v != 2 && v != 3 {
		return packFault("no header of version 2 or 3")
	}
	s.count = int(binary.BigEndian.Uint32(head[8:]))
	if most := s.limits.PackObjects; s.count > most {
		return &unpackError{fmt.Sprintf("pack has %d objects, over the limit of %d", s.count, most)}
	}
	for range s.count {
		if err := s.entry(); err != nil {
			return cutShort(err)
		}
	}
	if _, err := s.in.Discard(packTrailer); err != nil {
		return cutShort(err)
	}
	if _, err := s.in.ReadByte(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = packFault("bytes after its last object")
		}
		return err
	}
	for id := range s.bases {
		if s.bigIDs[id] {
			return errLargeDelta
		}
	}
	return nil
}

// cutShort says of an end in the middle that the pack is at fault, not the reader.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		var lost *lostError
		if !errors.As(err, &lost) {
			return packFault("cut short")
		}
	}
	return err
}

func (s *packScan) place() int64 { return s.read() - int64(s.in.Buffered()) }

func (s *packScan) entry() error {
	at := s.place()
	typ, size, err := readEntryHead(s.in)
	if err != nil {
		return err
	}
	switch typ {
	case CommitObject, TreeObject, TagObject:
		if size > maxWhole {
			return badObject(typ, "over the limit of %d bytes", maxWhole)
		}
	case BlobObject:
		if size > uint64(s.most) {
			return &unpackError{fmt.Sprintf("a file is over the limit of %d bytes", s.most)}
		}
	case ofsDelta:
		back, err := readBaseOffset(s.in, at)
		if err != nil {
			return err
		}
		if s.big[back] {
			return errLargeDelta
		}
		if err := s.stack(at, s.depthAt(back)+1); err != nil {
			return err
		}
	case refDelta:
		var base refpolicy.OID
		if _, err := io.ReadFull(s.in, base[:]); err != nil {
			return err
		}
		s.bases[base] = true
		if err := s.stack(at, 1); err != nil {
			return err
		}
	default:
		return packFault("entry of type %d", typ)
	}
	if typ == ofsDelta || typ == refDelta {
		return s.instructions(size)
	}
	return s.whole(typ, at, int64(size))
}

// stack notes a delta.
func (s *packScan) stack(at int64, depth int32) error {
	if int(depth) > s.limits.DeltaDepth {
		return tooDeep(s.limits.DeltaDepth)
	}
	s.deltas = append(s.deltas, deltaPlace{at, depth})
	return nil
}

// depthAt is how many deltas stand below what begins there, itself included.
func (s *packScan) depthAt(at int64) int32 {
	i, ok := slices.BinarySearchFunc(s.deltas, at, func(d deltaPlace, at int64) int { return cmp.Compare(d.at, at) })
	if !ok {
		return 0
	}
	return s.deltas[i].depth
}

// add counts what an entry takes when it is inflated and resolved.
func (s *packScan) add(size int64) error {
	if s.size += size; s.size > s.limits.PackInflated {
		return &unpackError{fmt.Sprintf("pack inflates to over the limit of %d bytes", s.limits.PackInflated)}
	}
	return nil
}

// mayBeDeep reports whether deltas by id, of which the pack does not tell where their
// bases stand, may be over the limit on depth.
func (s *packScan) mayBeDeep() bool {
	return len(s.bases) > 0 && len(s.deltas) > s.limits.DeltaDepth
}

// instructions reads a delta and holds what it says of sizes against the bound.
func (s *packScan) instructions(size uint64) error {
	if size > 2*uint64(s.delta) {
		return errLargeDelta
	}
	z, err := inflater(s.in)
	if err != nil {
		return notInflated(err)
	}
	defer z.Close()
	var head [20]byte
	n, err := io.ReadFull(z, head[:min(size, uint64(len(head)))])
	if err != nil {
		return notInflated(err)
	}
	base, result, _, err := deltaSizes(head[:n])
	if err != nil {
		return err
	}
	if result > uint64(s.most) {
		return &unpackError{fmt.Sprintf("an object is over the limit of %d bytes", s.most)}
	}
	if most := uint64(s.delta); base > most || result > most {
		return errLargeDelta
	}
	if err := s.add(int64(size) + int64(result)); err != nil {
		return err
	}
	return s.drain(z, io.Discard, int64(size)-int64(n))
}

// whole reads an object. The id of a big one is kept.
func (s *packScan) whole(typ ObjectType, at, size int64) error {
	if err := s.add(size); err != nil {
		return err
	}
	z, err := inflater(s.in)
	if err != nil {
		return notInflated(err)
	}
	defer z.Close()
	if size <= s.delta {
		return s.drain(z, io.Discard, size)
	}
	h := plumbing.NewHasher(plumbing.ObjectType(typ), size)
	if err := s.drain(z, h, size); err != nil {
		return err
	}
	s.big[at], s.bigIDs[refpolicy.OID(h.Sum())] = true, true
	return nil
}

// drain reads what is left of a zlib stream, which must be size bytes.
func (s *packScan) drain(z io.Reader, to io.Writer, size int64) error {
	n, err := io.CopyBuffer(justWriter{to}, io.LimitReader(z, size+1), s.inflate)
	if err != nil {
		return notInflated(err)
	}
	if n != size {
		return packFault("entry cannot be inflated")
	}
	return nil
}

// notInflated tells a broken zlib stream from a reader that failed.
func notInflated(err error) error {
	var lost *lostError
	var fault *unpackError
	if errors.As(err, &lost) || errors.As(err, &fault) || errors.Is(err, errGitEnded) {
		return err
	}
	return packFault("entry cannot be inflated")
}

// readEntryHead reads type and size of an entry; see packParser for the grammar.
func readEntryHead(r io.ByteReader) (typ ObjectType, size uint64, err error) {
	b, err := r.ReadByte()
	if err != nil {
		return 0, 0, err
	}
	typ, size = ObjectType(b>>4&7), uint64(b&15)
	for shift := 4; b&0x80 != 0; shift += 7 {
		if b, err = r.ReadByte(); err != nil {
			return 0, 0, err
		}
		if shift > 56 {
			return 0, 0, packFault("size of an entry is out of bounds")
		}
		size |= uint64(b&0x7f) << shift
	}
	return typ, size, nil
}

// readBaseOffset reads where the base of an ofsDelta at a place begins: a big-endian
// number of 7 bits a byte, in which each further byte adds one to what stands before it.
func readBaseOffset(r io.ByteReader, at int64) (int64, error) {
	b, err := r.ReadByte()
	if err != nil {
		return 0, err
	}
	n := int64(b & 0x7f)
	for b&0x80 != 0 {
		if b, err = r.ReadByte(); err != nil {
			return 0, err
		}
		if n++; n >= 1<<50 {
			return 0, packFault("base of a delta is out of bounds")
		}
		n = n<<7 | int64(b&0x7f)
	}
	if n == 0 || n > at {
		return 0, packFault("base of a delta is out of bounds")
	}
	return at - n, nil
}

// justWriter keeps io.CopyBuffer to the buffer it was given.
type justWriter struct{ io.Writer }
