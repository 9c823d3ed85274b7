package httpapi

import "time"

// What is in this file is about turns, of which an org's limit moves with what
// others want. It is for who holds f.mu.

// meet notes that a request of org came.
func (f *fairness) meet(org *orgParty, now time.Duration) {
	if f.lastOrg != nil && f.lastOrg != org {
		f.mixed = now
	}
	f.lastOrg = org
	if company := now-f.mixed < mixedFor; company != f.company {
		f.company = company
		f.reshare()
		f.server.serve(turns)
	}
}

// takeTurn gives t a turn, or a waiter for it.
func (f *fairness) takeTurn(t *tokenParty) *waiter {
	f.want(t.org, 1)
	if t.take(turns, 1) {
		return nil
	}
	return t.wait(turns, 1)
}

func (f *fairness) endTurn(t *tokenParty) {
	t.use(turns, -1)
	f.want(t.org, -1)
}

// want notes that org wants n turns more, and gives what is free by the limits that
// follow from it. Giving does not change what is wanted, so one round is enough.
func (f *fairness) want(org *orgParty, n int64) {
	before := org.wanted
	org.wanted += n
	f.wanted += n
	switch {
	case before == 0:
		org.index = len(f.demanding)
		f.demanding = append(f.demanding, org)
		f.limit(org, f.limits[ofAll][turns])
	case org.wanted == 0:
		last := len(f.demanding) - 1
		f.demanding[org.index] = f.demanding[last]
		f.demanding[org.index].index = org.index
		f.demanding[last] = nil
		f.demanding = f.demanding[:last]
	}
	f.reshare()
	f.server.serve(turns)
}

// reshare sets the limits of the orgs that want turns. When they are so many that
// the others leave everybody all turns, there is nothing to look at.
func (f *fairness) reshare() {
	all := f.limits[ofAll][turns]
	limited := f.company && int64(len(f.demanding)) <= all/2+1
	if !limited && !f.limited {
		return
	}
	f.limited = limited
	for _, org := range f.demanding {
		most := all
		if limited {
			most = min(all, max(2, all/32, 2*(f.wanted-org.wanted)))
		}
		f.limit(org, most)
	}
}

func (f *fairness) limit(org *orgParty, most int64) {
	if org.limits[turns] != most {
		org.limits[turns] = most
		org.settle(turns)
	}
}
