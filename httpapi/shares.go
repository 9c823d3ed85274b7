package httpapi

import (
	"container/heap"
	"container/list"
)

// A supply is one thing that requests use up while they are here, and that is
// shared out fairly.
type supply uint8

const (
	places       supply = iota // of requests, but for those that take one of the next two
	gitPlaces                  // of requests that may need a git process
	streamPlaces               // of requests that wait for what is still to happen
	bodyBytes                  // that large bodies of running requests have brought
	turns                      // at work, which is all but waiting for one's client or for events
	supplies
)

// A party is somebody whom supplies are shared out to: the server as a whole, one
// of its orgs, or one token of an org. Only tokens use and wait; what they use
// counts for their org and the server too.
//
// What is free goes to the org that uses least, in it to the token that uses
// least, there to who came first; of equals to who was served longest ago. Where
// the next one needs more than is free, it is saved up for him: nobody who comes
// new gets ahead of one who waits for the same. Parties have no lock of their own.
type party struct {
	parent *party
	limits [supplies]int64
	meters [supplies]meter
}

// A meter is what a party uses of one supply, and who below it waits for more.
type meter struct {
	used    int64
	waiting int // in the queues of this party and those below

	queue   list.List // of a token: its *waiters, first come first
	ready   partyHeap // of others: parties below that could be given their next
	index   int       // in the parent's ready
	isReady bool
	served  uint64 // when something was given last, as the server counts
	arrived uint64 // of the server: waiters so far
}

// A waiter stands in a token's queue until it is given its cost or withdraws.
type waiter struct {
	party   *party
	supply  supply
	cost    int64
	serial  uint64 // of arrival, as the server counts
	place   *list.Element
	granted chan struct{} // closed when the cost counts as used
}

// isGranted is for who holds the lock.
func (w *waiter) isGranted() bool { return w.place == nil }

// fits reports whether p itself may use cost more. Somebody who uses nothing may
// always have one thing, however large: a limit makes nothing impossible.
func (p *party) fits(s supply, cost int64) bool {
	used := p.meters[s].used
	return used == 0 || used+cost <= p.limits[s]
}

// tight is the level that keeps p from cost more: 0 the token, 1 the org, 2 the
// server; -1 if none does.
func (p *party) tight(s supply, cost int64) int {
	for level := 0; p != nil; level, p = level+1, p.parent {
		if !p.fits(s, cost) {
			return level
		}
	}
	return -1
}

// take gives the token p what it asks for, unless it has to wait for it.
func (p *party) take(s supply, cost int64) bool {
	for q := p; q != nil; q = q.parent {
		if first := q.first(s); !q.fits(s, cost) || first != nil && !q.fits(s, first.cost) {
			return false
		}
	}
	p.use(s, cost)
	return true
}

// wait puts the token p into its queue.
func (p *party) wait(s supply, cost int64) *waiter {
	arrived := &p.root().meters[s].arrived
	*arrived++
	w := &waiter{party: p, supply: s, cost: cost, serial: *arrived, granted: make(chan struct{})}
	w.place = p.meters[s].queue.PushBack(w)
	for q := p; q != nil; q = q.parent {
		q.meters[s].waiting++
	}
	p.settle(s)
	return w
}

// withdraw ends w's waiting, which was not granted.
func (w *waiter) withdraw() {
	w.leaveQueue()
	w.party.settle(w.supply)
	w.party.root().serve(w.supply) // who stood behind a large one may have room
}

func (w *waiter) leaveQueue() {
	w.party.meters[w.supply].queue.Remove(w.place)
	w.place = nil
	for q := w.party; q != nil; q = q.parent {
		q.meters[w.supply].waiting--
	}
}

// release gives back what the token p uses, and passes it on.
func (p *party) release(s supply, cost int64) {
	p.use(s, -cost)
	p.root().serve(s)
}

func (p *party) use(s supply, cost int64) {
	for q := p; q != nil; q = q.parent {
		q.meters[s].used += cost
	}
	p.settle(s)
}

func (p *party) root() *party {
	for p.parent != nil {
		p = p.parent
	}
	return p
}

// first is the waiter whose turn it is at p, whether or not p has what it needs.
func (p *party) first(s supply) *waiter {
	m := &p.meters[s]
	if m.waiting == 0 {
		return nil
	}
	if front := m.queue.Front(); front != nil {
		return front.Value.(*waiter)
	}
	if len(m.ready.parties) > 0 {
		return m.ready.parties[0].first(s)
	}
	return nil
}

// next is the waiter that p can serve now; nil if there is none.
func (p *party) next(s supply) *waiter {
	if w := p.first(s); w != nil && p.fits(s, w.cost) {
		return w
	}
	return nil
}

// settle puts p and the parties above it where they belong among those that are
// ready, after something changed about p.
func (p *party) settle(s supply) {
	for ; p.parent != nil; p = p.parent {
		m, siblings := &p.meters[s], &p.parent.meters[s].ready
		if m.waiting == 0 && !m.isReady {
			continue
		}
		ready := p.next(s) != nil
		siblings.supply = s
		switch {
		case ready && m.isReady:
			heap.Fix(siblings, m.index)
		case ready:
			heap.Push(siblings, p)
		case m.isReady:
			heap.Remove(siblings, m.index)
		}
		m.isReady = ready
	}
}

// serve gives what is free to those who wait.
func (p *party) serve(s supply) {
	for {
		w := p.next(s)
		if w == nil {
			return
		}
		serial := p.meters[s].served + 1
		for q := w.party; q != nil; q = q.parent {
			q.meters[s].served = serial
		}
		w.leaveQueue()
		w.party.use(s, w.cost)
		close(w.granted)
	}
}

// A partyHeap has the party that is to be served next on top.
type partyHeap struct {
	parties []*party
	supply  supply
}

var _ heap.Interface = (*partyHeap)(nil)

func (h *partyHeap) Len() int { return len(h.parties) }

func (h *partyHeap) Less(i, j int) bool {
	a, b := &h.parties[i].meters[h.supply], &h.parties[j].meters[h.supply]
	if a.used != b.used {
		return a.used < b.used
	}
	if a.served != b.served {
		return a.served < b.served
	}
	return h.parties[i].first(h.supply).serial < h.parties[j].first(h.supply).serial
}

func (h *partyHeap) Swap(i, j int) {
	h.parties[i], h.parties[j] = h.parties[j], h.parties[i]
	h.parties[i].meters[h.supply].index = i
	h.parties[j].meters[h.supply].index = j
}

// Push adds a party; it is for container/heap.
func (h *partyHeap) Push(x any) {
	p := x.(*party)
	p.meters[h.supply].index = len(h.parties)
	h.parties = append(h.parties, p)
}

// Pop takes the last party away; it is for container/heap.
func (h *partyHeap) Pop() any {
	last := len(h.parties) - 1
	p := h.parties[last]
	h.parties[last] = nil
	h.parties = h.parties[:last]
	return p
}
