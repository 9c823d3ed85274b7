package pebbledb

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// idFilter answers for nearly every batch id that is new that it is new, without a
// look at the disk. It is a Bloom filter for each of the two slots that ids are
// looked for in: it may say yes to what was never added, and never says no to what was.
type idFilter struct {
	seed maphash.Seed
	// blindUntil is the last slot in which it does not know all ids from before the
	// engine was opened, and so says yes to everything.
	blindUntil uint32
	sets       atomic.Pointer[idSets]
	turn       sync.Mutex // held to exchange sets
}

// idSets are the filters of slot and of the one before.
type idSets struct {
	slot      uint32
	cur, prev *idBits
}

const (
	idFilterBits = 1 << 23 // at a million ids in a slot one answer in forty is wrong
	idHashes     = 4
	// maxIDsAtOpen bounds how many ids are read when the engine is opened.
	maxIDsAtOpen = 1 << 20
)

type idBits [idFilterBits / 64]atomic.Uint64

func newIDFilter(slot uint32) *idFilter {
	f := &idFilter{seed: maphash.MakeSeed()}
	f.sets.Store(&idSets{slot: slot, cur: new(idBits), prev: new(idBits)})
	return f
}

// idHash hashes what follows the slot in an id's key.
func (f *idFilter) idHash(key []byte) uint64 { return maphash.Bytes(f.seed, key[5:]) }

// add notes an id that is applied in slot.
func (f *idFilter) add(slot uint32, hash uint64) {
	sets := f.sets.Load()
	if sets.slot < slot {
		sets = f.turnTo(slot)
	}
	switch slot {
	case sets.slot:
		sets.cur.set(hash)
	case sets.slot - 1:
		sets.prev.set(hash)
	}
}

func (f *idFilter) turnTo(slot uint32) *idSets {
	f.turn.Lock()
	defer f.turn.Unlock()
	sets := f.sets.Load()
	if sets.slot >= slot {
		return sets
	}
	next := &idSets{slot: slot, cur: new(idBits), prev: new(idBits)}
	if sets.slot == slot-1 {
		next.prev = sets.cur
	}
	f.sets.Store(next)
	return next
}

// mayHave says whether an id may have been applied in slot or the one before.
func (f *idFilter) mayHave(slot uint32, hash uint64) bool {
	sets := f.sets.Load()
	// A clock read before others turned to a later slot looks further back than the
	// sets still reach.
	return slot <= f.blindUntil || slot < sets.slot || sets.cur.has(hash) || sets.prev.has(hash)
}

func (b *idBits) set(hash uint64) {
	step := hash>>32 | 1
	for range idHashes {
		bit := hash % idFilterBits
		b[bit/64].Or(1 << (bit % 64))
		hash += step
	}
}

func (b *idBits) has(hash uint64) bool {
	step := hash>>32 | 1
	for range idHashes {
		bit := hash % idFilterBits
		if b[bit/64].Load()&(1<<(bit%64)) == 0 {
			return false
		}
		hash += step
	}
	return true
}

// loadIDs makes the engine's filter with the ids that stand on disk.
func (e *engine) loadIDs(slot uint32) error {
	e.ids = newIDFilter(slot)
	it, err := e.pdb.NewIter(&pebble.IterOptions{LowerBound: appendSlot(nil, slot-1), UpperBound: appendSlot(nil, slot+1)})
	if err != nil {
		return fmt.Errorf("read batch ids: %w", err)
	}
	left := maxIDsAtOpen
	for ok := it.First(); ok; ok = it.Next() {
		if left--; left < 0 {
			e.ids.blindUntil = slot + 1
			break
		}
		e.ids.add(slotIn(it.Key()), e.ids.idHash(it.Key()))
	}
	return it.Close()
}
