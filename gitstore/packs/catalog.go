package packs

import (
	"encoding/binary"
	"slices"

	"github.com/headgate/headgate/refpolicy"
)

// A Catalog tells which of many packs may hold an object without asking each. It takes
// 8 bytes for an object: 40 bits of its id and 24 of the pack's number, in order. It is
// read-only and holds no pack.
type Catalog struct {
	entries []uint64
}

const (
	catalogPack = 24
	// MaxCatalog bounds the packs of a Catalog.
	MaxCatalog = 1 << catalogPack
)

// NewCatalog reads the ids of packs.
func NewCatalog(list []*Pack) *Catalog {
	n := 0
	for _, p := range list {
		n += p.Count()
	}
	c := &Catalog{entries: make([]uint64, 0, n)}
	for number, p := range list {
		for i := range p.Count() {
			c.entries = append(c.entries, catalogKey(p.idx.name(i))|uint64(number))
		}
	}
	slices.Sort(c.entries)
	return c
}

func catalogKey(id []byte) uint64 {
	return binary.BigEndian.Uint64(id) &^ (MaxCatalog - 1)
}

// Each calls fn with the numbers of the packs that may hold an object, ascending, until
// it says false.
func (c *Catalog) Each(id refpolicy.OID, fn func(number int) bool) {
	key := catalogKey(id[:])
	i, _ := slices.BinarySearch(c.entries, key)
	for ; i < len(c.entries) && c.entries[i]&^(MaxCatalog-1) == key; i++ {
		if !fn(int(c.entries[i] & (MaxCatalog - 1))) {
			return
		}
	}
}
