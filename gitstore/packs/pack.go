package packs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/refpolicy"
)

// A Pack is an open pack: immutable, shared, safe for concurrent use. It is
// readable until each of its holders has called Release, even when its file is
// removed meanwhile.
type Pack struct {
	name  string
	f     File
	size  int64
	idx   *idx
	codec Codec
	cache *BaseCache
	most  int64 // Options.MaxInMemory
	refs  atomic.Int64

	verified sync.Map // offsets of large objects that were seen to have their ids
	kinds    kinds

	sortOnce sync.Once
	sorted   []int64 // offsets of all entries and of the trailer, ascending
}

func openPack(d *Dir, name string) (*Pack, error) {
	return openFiles(d, name, d.path(name, ".pack"), d.path(name, ".idx"))
}

// openFiles opens a pack and its idx by path. The caller's hold is the first.
func openFiles(d *Dir, name, packPath, idxPath string) (*Pack, error) {
	p := &Pack{name: name, codec: d.o.Codec, cache: d.o.Cache, most: d.o.MaxInMemory}
	f, size, err := openSized(d.fs, packPath)
	if err != nil {
		return nil, p.openError(err)
	}
	p.f, p.size = f, size
	p.refs.Store(1)
	if err := p.load(d.fs, idxPath); err != nil {
		_ = f.Close()
		return nil, p.openError(err)
	}
	return p, nil
}

func openSized(fsys FS, path string) (File, int64, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// openError: a file that is not there is missing; one that cannot be opened for
// want of descriptors or rights is no damage; everything else is.
func (p *Pack) openError(err error) error {
	var path *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("open pack %s: %w: %w", p.name, ErrPackMissing, err)
	case errors.As(err, &path) && path.Op == "open":
		return fmt.Errorf("open pack %s: %w", p.name, err)
	}
	return p.broken(err)
}

func (p *Pack) load(fsys FS, idxPath string) error {
	f, size, err := openSized(fsys, idxPath)
	if err != nil {
		return err
	}
	defer f.Close()
	if p.size < packHeadLen+packTrailLen {
		return fmt.Errorf("%w: pack of %d bytes", errEntry, p.size)
	}
	if p.idx, err = readIdx(f, size, p.size); err != nil {
		return err
	}
	var head [packHeadLen]byte
	if _, err := p.f.ReadAt(head[:], 0); err != nil {
		return fmt.Errorf("read pack header: %w", err)
	}
	want := packHeader(uint32(p.idx.n))
	if head != want {
		return fmt.Errorf("pack header is %x, want %x", head, want)
	}
	var sum [packTrailLen]byte
	if _, err := p.f.ReadAt(sum[:], p.size-packTrailLen); err != nil {
		return fmt.Errorf("read pack trailer: %w", err)
	}
	if !bytes.Equal(sum[:], p.idx.packSum) {
		return errors.New("pack trailer is not the one its idx names")
	}
	return nil
}

func packHeader(n uint32) (h [packHeadLen]byte) {
	copy(h[:], "PACK\x00\x00\x00\x02")
	binary.BigEndian.PutUint32(h[8:], n)
	return h
}

func (p *Pack) broken(err error) error {
	var already *BrokenError
	if errors.As(err, &already) {
		return err
	}
	return &BrokenError{Name: p.name, Err: err}
}

// retain takes a hold, unless the last one is gone.
func (p *Pack) retain() bool {
	for {
		n := p.refs.Load()
		if n <= 0 {
			return false
		}
		if p.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release ends one hold; the last one closes the file. One call too many is a
// bug of the caller and panics.
func (p *Pack) Release() {
	switch n := p.refs.Add(-1); {
	case n == 0:
		_ = p.f.Close() // it was only read
		p.cache.dropPack(p)
	case n < 0:
		panic("packs: Release of a pack that nobody holds: " + p.name)
	}
}

// Name is the pack's name, pack-<40 hex>.
func (p *Pack) Name() string { return p.name }

// Size is the length of the pack file in bytes.
func (p *Pack) Size() int64 { return p.size }

// Count is the number of objects.
func (p *Pack) Count() int { return p.idx.n }

// Has reports whether the pack holds the object.
func (p *Pack) Has(id refpolicy.OID) bool {
	_, ok := p.idx.find(id)
	return ok
}

// Find gives where the object's entry begins.
func (p *Pack) Find(id refpolicy.OID) (offset int64, ok bool) {
	i, ok := p.idx.find(id)
	if !ok {
		return 0, false
	}
	return p.idx.offset(i)
}

// ForEach calls fn for every object in the order of ids until it says false.
func (p *Pack) ForEach(fn func(id refpolicy.OID, offset int64) bool) {
	for i := range p.idx.n {
		off, _ := p.idx.offset(i) // checked when the idx was read
		if !fn(p.idx.oid(i), off) {
			return
		}
	}
}

// entryEnd gives where the entry that begins at off ends.
func (p *Pack) entryEnd(off int64) (int64, error) {
	p.sortOnce.Do(func() {
		p.sorted = make([]int64, 0, p.idx.n+1)
		for i := range p.idx.n {
			o, _ := p.idx.offset(i)
			p.sorted = append(p.sorted, o)
		}
		p.sorted = append(p.sorted, p.size-packTrailLen)
		slices.Sort(p.sorted)
	})
	i, ok := slices.BinarySearch(p.sorted, off)
	if !ok || i+1 >= len(p.sorted) {
		return 0, errEntry
	}
	return p.sorted[i+1], nil
}

// head reads the head of the entry at off.
func (p *Pack) head(off int64) (entryHead, error) {
	end := p.size - packTrailLen
	if off < packHeadLen || off >= end {
		return entryHead{}, fmt.Errorf("%w: offset %d", errEntry, off)
	}
	var buf [maxHead]byte
	b := buf[:min(maxHead, end-off)]
	if _, err := p.f.ReadAt(b, off); err != nil {
		return entryHead{}, fmt.Errorf("read entry at %d: %w", off, err)
	}
	h, err := parseHead(b)
	if err != nil {
		return h, fmt.Errorf("entry at %d: %w", off, err)
	}
	return h, nil
}

// baseOffset gives where the base of the delta at off begins.
func (p *Pack) baseOffset(off int64, h entryHead) (int64, error) {
	if h.typ == ofsDelta {
		if h.back > off-packHeadLen {
			return 0, fmt.Errorf("entry at %d: %w: base before the pack", off, errEntry)
		}
		return off - h.back, nil
	}
	at, ok := p.Find(h.base)
	if !ok {
		return 0, fmt.Errorf("entry at %d: %w: base %s is not in the pack", off, errEntry, h.base)
	}
	return at, nil
}

// section reads the pack from off to its trailer.
func (p *Pack) section(off int64) *io.SectionReader {
	return io.NewSectionReader(p.f, off, p.size-packTrailLen-off)
}
