package pebbledb

import (
	"bytes"
	"hash/maphash"
	"sync/atomic"
)

const (
	// recentSlots is how many values recent holds at most: 4 MiB of them.
	recentSlots = 8 << 10
	// maxRecent is the longest key and value together that recent keeps, in bytes.
	maxRecent = 512
)

// recent remembers short values that were read lately, for the few keys that every
// batch of a space reads and checks: its generation, its record, the ref it moves.
// Each key has one slot; who comes last has it.
//
// What a slot tells of a key is always what stands there: only those who hold the
// lock of the key's space put it in or change it, and every change of a key passes
// put or forget under that lock.
type recent struct {
	seed  maphash.Seed
	slots []atomic.Pointer[recentValue]
}

// recentValue never changes.
type recentValue struct{ key, value []byte }

func newRecent() *recent {
	return &recent{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[recentValue], recentSlots)}
}

func (r *recent) slot(key []byte) *atomic.Pointer[recentValue] {
	return &r.slots[maphash.Bytes(r.seed, key)%uint64(len(r.slots))]
}

// value returns a copy of what stands under key, and whether that is known.
func (r *recent) value(key []byte) ([]byte, bool) {
	v := r.slot(key).Load()
	if v == nil || !bytes.Equal(v.key, key) {
		return nil, false
	}
	return append(make([]byte, 0, len(v.value)), v.value...), true
}

// keep remembers a value that was read.
func (r *recent) keep(key, value []byte) {
	if len(key)+len(value) > maxRecent {
		return
	}
	both := append(append(make([]byte, 0, len(key)+len(value)), key...), value...)
	r.slot(key).Store(&recentValue{both[:len(key):len(key)], both[len(key):]})
}

// put notes that key was changed to value, if it is remembered at all.
func (r *recent) put(key, value []byte) {
	s := r.slot(key)
	if v := s.Load(); v == nil || !bytes.Equal(v.key, key) {
		return
	}
	if len(key)+len(value) > maxRecent {
		s.Store(nil)
		return
	}
	r.keep(key, value)
}

// forget notes that nothing stands under key any more.
func (r *recent) forget(key []byte) {
	s := r.slot(key)
	if v := s.Load(); v != nil && bytes.Equal(v.key, key) {
		s.Store(nil)
	}
}

// forgetAll forgets every key that begins with prefix.
func (r *recent) forgetAll(prefix []byte) {
	for i := range r.slots {
		if v := r.slots[i].Load(); v != nil && bytes.HasPrefix(v.key, prefix) {
			r.slots[i].Store(nil)
		}
	}
}
