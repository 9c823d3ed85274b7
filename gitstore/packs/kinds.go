package packs

import (
	"fmt"
	"sync"
)

const (
	// kindStep is how many deltas are gone down before one is worth being remembered.
	// The chains that git makes unasked, of 50 deltas, hardly come to twice as many.
	kindStep = 32
	// maxKinds bounds what is remembered of one pack.
	maxKinds = 1 << 18
)

// kinds remembers of some deltas far up in chains what they are in the end, so that
// asking all objects of a chain for their types does not go down all of it each time.
type kinds struct {
	mu sync.Mutex
	at map[int64]kind // by offset
}

// kind is the type of a delta's object and how many deltas stand below it, itself
// included.
type kind struct {
	typ   Type
	depth int
}

func (k *kinds) get(off int64) (kind, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	got, ok := k.at[off]
	return got, ok
}

func (k *kinds) put(passed []int64, end kind, steps int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at == nil || len(k.at)+len(passed) > maxKinds {
		k.at = map[int64]kind{}
	}
	for i, off := range passed {
		k.at[off] = kind{end.typ, end.depth + steps - (i+1)*kindStep}
	}
}

// kindAt gives the type of the object whose entry at off has the head h.
func (p *Pack) kindAt(off int64, h entryHead) (Type, error) {
	var passed []int64 // every kindStep-th delta
	var end kind
	steps := 0
	for h.isDelta() {
		if steps > 0 && steps%kindStep == 0 {
			passed = append(passed, off)
		}
		if steps >= kindStep {
			var ok bool
			if end, ok = p.kinds.get(off); ok {
				break
			}
		}
		if steps++; steps > maxDepth {
			return 0, fmt.Errorf("%w: chain of deltas is too long", errDelta)
		}
		var err error
		if off, err = p.baseOffset(off, h); err != nil {
			return 0, err
		}
		if h, err = p.head(off); err != nil {
			return 0, err
		}
	}
	if end.depth == 0 {
		end.typ = h.typ
	}
	if steps+end.depth > maxDepth {
		return 0, fmt.Errorf("%w: chain of deltas is too long", errDelta)
	}
	if steps >= 2*kindStep {
		p.kinds.put(passed, end, steps)
	}
	return end.typ, nil
}
