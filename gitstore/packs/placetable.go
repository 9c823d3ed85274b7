package packs

import (
	"encoding/binary"

	"github.com/headgate/headgate/refpolicy"
)

// A placeTable finds the places of keys in a list that only grows. It takes a fraction
// of what a map of them would: a save may have millions of chunks. Keys are hashes, so
// any four bytes of one will do to spread them.
type placeTable struct {
	slots []uint32 // place + 1; 0 is free
	n     int
}

// find gives the place of the key that spread was taken of and that is at the place.
func (t *placeTable) find(spread uint32, is func(place int) bool) (int, bool) {
	if len(t.slots) == 0 {
		return 0, false
	}
	for i := t.slot(spread); t.slots[i] != 0; i = (i + 1) & (len(t.slots) - 1) {
		if place := int(t.slots[i] - 1); is(place) {
			return place, true
		}
	}
	return 0, false
}

func (t *placeTable) slot(spread uint32) int { return int(spread) & (len(t.slots) - 1) }

// add notes a place; spreadAt tells spread of the places there are, to make more room.
func (t *placeTable) add(spread uint32, place int, spreadAt func(place int) uint32) {
	if t.n >= len(t.slots)*3/4 {
		old := t.slots
		t.slots = make([]uint32, max(1024, 2*len(old)))
		for _, s := range old {
			if s != 0 {
				t.put(spreadAt(int(s-1)), s)
			}
		}
	}
	t.put(spread, uint32(place)+1)
	t.n++
}

func (t *placeTable) put(spread uint32, s uint32) {
	i := t.slot(spread)
	for t.slots[i] != 0 {
		i = (i + 1) & (len(t.slots) - 1)
	}
	t.slots[i] = s
}

func spreadOf(id refpolicy.OID) uint32 { return binary.LittleEndian.Uint32(id[4:]) }
