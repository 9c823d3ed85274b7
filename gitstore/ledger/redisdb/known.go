package redisdb

import (
	"sync"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

const (
	// A drop is remembered by Redis for longer than a space is by a node, so that a
	// node never takes an old drop for a loss.
	dropMemory  = 7 * 24 * time.Hour
	knownMemory = 6 * 24 * time.Hour

	// knownSpaces bounds what a node remembers: between one and two times as many.
	knownSpaces = 50_000
)

// state is what Redis told about a space: at is the clock of version ver, logAt
// that of log entry seq, syncs how often the space was resynced. place and name are
// of the own batch that made version ver, if one of this process did.
type state struct {
	inc, ver, at int64
	seq          uint64
	logAt        int64
	syncs        int64
	place, name  string
	heard        time.Time
}

func (st state) mark() Mark { return Mark{st.inc, st.ver, st.seq, st.syncs} }

// known remembers the newest state of each space that this node was told.
type known struct {
	mu         sync.Mutex
	young, old map[ledger.Space]state // when young is full it becomes old, and old goes
	lost       map[ledger.Space]*LostWritesError
	now        func() time.Time
	perHalf    int
}

func newKnown() *known {
	return &known{
		young: map[ledger.Space]state{}, lost: map[ledger.Space]*LostWritesError{},
		now: time.Now, perHalf: knownSpaces,
	}
}

// get returns what is known of s, the zero state for nothing.
func (k *known) get(s ledger.Space) (state, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.lost[s]; e != nil {
		return state{}, e
	}
	return k.find(s), nil
}

// told is what this node was told of s, also while writes to it are stopped.
func (k *known) told(s ledger.Space) state {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.find(s)
}

// find needs mu.
func (k *known) find(s ledger.Space) state {
	st, ok := k.young[s]
	if !ok {
		st = k.old[s]
	}
	if k.now().Sub(st.heard) > knownMemory {
		return state{}
	}
	return st
}

// applied takes over what an applied batch was told; a new incarnation is right
// there, since the script has compared it with what the node knew.
func (k *known) applied(s ledger.Space, st state, logged bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	have := k.find(s)
	if st.inc > have.inc {
		have = state{inc: st.inc}
	}
	k.merge(s, have, st, logged)
}

// read takes over what a reader was told of an incarnation that is known, or of a
// space of which nothing is.
func (k *known) read(s ledger.Space, st state, logged bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	have := k.find(s)
	if have.inc == 0 {
		have.inc = st.inc
	}
	k.merge(s, have, st, logged)
}

// merge keeps the newer of have and st. Answers arrive in any order.
func (k *known) merge(s ledger.Space, have, st state, logged bool) {
	if st.inc == 0 || st.inc != have.inc {
		return
	}
	if st.ver > have.ver {
		have.ver, have.at, have.place, have.name = st.ver, st.at, st.place, st.name
	}
	if logged && st.seq > have.seq {
		have.seq, have.logAt = st.seq, st.logAt
	}
	have.syncs = max(have.syncs, st.syncs)
	k.put(s, have)
}

// put needs mu.
func (k *known) put(s ledger.Space, st state) {
	st.heard = k.now()
	if len(k.young) >= k.perHalf {
		k.old, k.young = k.young, make(map[ledger.Space]state, k.perHalf)
	}
	k.young[s] = st
}

// behind records that found is not what this node was told; had is what the asker
// knew. It stays recorded until the space is renewed.
func (k *known) behind(s ledger.Space, had state, found Mark) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	lost := &LostWritesError{Space: s, Found: found, Known: had.mark()}
	if k.lost[s] == nil && k.find(s).inc <= had.inc { // else it was renewed since the question
		k.lost[s] = lost
	}
	return lost
}

// renew takes over the incarnation that was found, or made, instead of what was
// known; the zero state is for a space that is no more.
func (k *known) renew(s ledger.Space, st state) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.lost, s)
	if have := k.find(s); have.inc > st.inc && st.inc > 0 {
		return // told later, arrived before
	}
	delete(k.old, s)
	delete(k.young, s)
	if st.inc > 0 {
		k.put(s, st)
	}
}

// spaces are those that this node was told of.
func (k *known) spaces() []ledger.Space {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]ledger.Space, 0, len(k.young)+len(k.old))
	for s := range k.young {
		all = append(all, s)
	}
	for s := range k.old {
		if _, twice := k.young[s]; !twice {
			all = append(all, s)
		}
	}
	return all
}

// forget is for a space that was dropped.
func (k *known) forget(s ledger.Space) { k.renew(s, state{}) }
