package pebbledb

import (
	"sync"

	"github.com/headgate/headgate/gitstore/ledger"
)

// space is what the engine keeps in memory of a space in use.
type space struct {
	name ledger.Space
	base []byte // what its keys begin with
	refs int    // users and flights; guarded by spaceTable.mu

	// mu orders the batches of this space; it guards everything below. It is taken
	// before any lock of Pebble and never together with another space's.
	mu      sync.Mutex
	loaded  bool // meta has been read
	meta    meta
	pending *flight // the newest batch applied, durable or not; nil for none known
	key     []byte  // scratch
}

// maxIdleSpaces bounds how many spaces that nobody uses are kept in memory. A
// space that was forgotten costs one read when it comes back.
const maxIdleSpaces = 4096

// spaceTable finds the state of spaces. While anybody uses a space, or a batch of
// it is in flight, there is one state for it.
type spaceTable struct {
	mu     sync.Mutex
	states map[ledger.Space]*space
	idle   int
}

// acquire returns the state of s, which is to be released.
func (t *spaceTable) acquire(name ledger.Space) *space {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.states[name]
	switch {
	case s == nil:
		s = &space{name: name, base: dataBase(name)}
		t.states[name] = s
	case s.refs == 0:
		t.idle--
	}
	s.refs++
	return s
}

func (t *spaceTable) hold(s *space) {
	t.mu.Lock()
	s.refs++
	t.mu.Unlock()
}

func (t *spaceTable) release(s *space) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.refs--; s.refs > 0 {
		return
	}
	if t.idle++; t.idle > maxIdleSpaces {
		t.forgetSome()
	}
}

// forgetSome drops an eighth of the idle spaces, whichever the map gives first.
func (t *spaceTable) forgetSome() {
	keep := maxIdleSpaces - maxIdleSpaces/8
	for name, s := range t.states {
		if t.idle <= keep {
			return
		}
		if s.refs == 0 {
			delete(t.states, name)
			t.idle--
		}
	}
}

func (t *spaceTable) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.states)
}

// load reads the space's meta once; s.mu is held.
func (e *engine) load(s *space) error {
	if s.loaded {
		return nil
	}
	v, err := get(e.pdb, metaKey(s.name))
	if err != nil {
		return err
	}
	if v != nil {
		if s.meta, err = parseMeta(v); err != nil {
			return err
		}
	}
	s.loaded = true
	return nil
}
