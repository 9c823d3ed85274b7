package snapshot

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is how many characters the names and kinds of parts have at most.
const MaxName = 128

// Complete fills in the defaults, with regions by address: *FieldError for what no part
// can be. Memory and disks are pages, everything else a stream unless it says otherwise.
func (p PartSpec) Complete() (PartSpec, error) {
	p.Kind = cmp.Or(p.Kind, KindMemory)
	p.Name = cmp.Or(p.Name, p.Kind)
	p.ChunkBytes = cmp.Or(p.ChunkBytes, DefaultChunk)
	if p.Layout == "" {
		p.Layout = Stream
		if p.Kind == KindMemory || p.Kind == KindDisk {
			p.Layout = Pages
		}
	}
	p.Regions = slices.Clone(p.Regions)
	slices.SortFunc(p.Regions, func(a, b Region) int { return cmp.Compare(a.Address, b.Address) })
	if err := p.check(); err != nil {
		return PartSpec{}, err
	}
	return p, nil
}

// check is nil for a complete part.
func (p PartSpec) check() *FieldError {
	switch {
	case !goodName(p.Kind):
		return &FieldError{Field: "kind", Text: fmt.Sprintf("must be 1 to %d printable characters without a slash", MaxName)}
	case !goodName(p.Name):
		return &FieldError{Field: "name", Text: fmt.Sprintf("must be 1 to %d printable characters without a slash", MaxName)}
	case p.Layout != Pages && p.Layout != Stream:
		return &FieldError{Field: "layout", Text: fmt.Sprintf("must be %s or %s", Pages, Stream)}
	case p.ChunkBytes < MinChunk || p.ChunkBytes > MaxChunk || bits.OnesCount(uint(p.ChunkBytes)) != 1:
		return &FieldError{Field: "chunk_bytes", Text: fmt.Sprintf("must be a power of two from %d to %d", MinChunk, MaxChunk)}
	case p.Size < -1 || p.Size > MaxImage:
		return &FieldError{Field: "size_bytes", Text: fmt.Sprintf("must be 0 to %d", int64(MaxImage))}
	}
	return checkRegions(p.Regions, p.Size)
}

func goodName(name string) bool {
	if name == "" || name == "." || name == ".." || !utf8.ValidString(name) || utf8.RuneCountInString(name) > MaxName {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return r == '/' || !unicode.IsPrint(r) })
}

// checkRegions is nil if regions rise by address, do not overlap there, and lie in an
// image of size bytes; of a size of -1 that is not known yet.
func checkRegions(regions []Region, size int64) *FieldError {
	if size < 0 {
		size = MaxImage
	}
	var next uint64 // the first address that is free
	for i, r := range regions {
		switch {
		case r.Size <= 0 || r.Offset < 0 || r.Offset > size || r.Size > size-r.Offset:
			return &FieldError{Field: "regions", Text: fmt.Sprintf("region %d is not within the image", i)}
		case r.Address+uint64(r.Size)-1 < r.Address:
			return &FieldError{Field: "regions", Text: fmt.Sprintf("region %d goes over the last address", i)}
		case i > 0 && (r.Address < next || next == 0):
			return &FieldError{Field: "regions", Text: fmt.Sprintf("region %d overlaps the one before", i)}
		}
		next = r.Address + uint64(r.Size) // 0 behind the last address
	}
	return nil
}
