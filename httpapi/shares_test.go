package httpapi

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A tree is a server with two orgs of two tokens each, for one supply.
type tree struct {
	server party
	orgs   [2]party
	tokens [4]party
	limits [levels][supplies]int64
}

func newTree(s supply, token, org, all int64) *tree {
	t := &tree{}
	t.limits[ofToken][s], t.limits[ofOrg][s], t.limits[ofAll][s] = token, org, all
	t.server.limits = t.limits[ofAll]
	for i := range t.orgs {
		t.orgs[i] = party{parent: &t.server, limits: t.limits[ofOrg]}
	}
	for i := range t.tokens {
		t.tokens[i] = party{parent: &t.orgs[i/2], limits: t.limits[ofToken]}
	}
	return t
}

// A shareModel does what parties do in the plainest way: it looks at everybody.
type shareModel struct {
	used    [4]int64
	served  [4]int
	orgs    [2]int // when served
	waiting []*modelWaiter
	serial  int
	limits  [levels]int64
}

type modelWaiter struct {
	token   int
	granted bool
	real    *waiter
}

func (m *shareModel) org(o int) int64 { return m.used[2*o] + m.used[2*o+1] }

func (m *shareModel) fits(token int) bool {
	return m.used[token] < m.limits[ofToken] && m.org(token/2) < m.limits[ofOrg] && m.org(0)+m.org(1) < m.limits[ofAll]
}

// serve grants, while something is free, to the least using org's least using
// token's first waiter.
func (m *shareModel) serve() {
	for {
		best := m.bestOf(0)
		if other := m.bestOf(1); best == nil || other != nil && less(m.rank(other, m.org(1), m.orgs[1]), m.rank(best, m.org(0), m.orgs[0])) {
			best = other
		}
		if best == nil {
			return
		}
		m.serial++
		m.used[best.token]++
		m.served[best.token], m.orgs[best.token/2] = m.serial, m.serial
		best.granted = true
		m.waiting = slices.DeleteFunc(m.waiting, func(w *modelWaiter) bool { return w == best })
	}
}

// bestOf is the waiter of an org that is next in it; nil if none can be served.
func (m *shareModel) bestOf(org int) (best *modelWaiter) {
	for _, w := range m.waiting {
		if w.token/2 == org && m.fits(w.token) &&
			(best == nil || less(m.rank(w, m.used[w.token], m.served[w.token]), m.rank(best, m.used[best.token], m.served[best.token]))) {
			best = w
		}
	}
	return best
}

// rank orders by use, then by when something was given last, then by arrival.
func (m *shareModel) rank(w *modelWaiter, used int64, served int) []int64 {
	return []int64{used, int64(served), int64(slices.Index(m.waiting, w))}
}

func less(a, b []int64) bool { return slices.Compare(a, b) < 0 }

// Whatever comes in whatever order, the parties grant what the plain model grants.
func TestSharesAgreeWithModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limits := [levels]int64{
			rapid.Int64Range(1, 4).Draw(rt, "token"), rapid.Int64Range(1, 6).Draw(rt, "org"), rapid.Int64Range(1, 8).Draw(rt, "all"),
		}
		m := &shareModel{limits: limits}
		tr := newTree(turns, limits[ofToken], limits[ofOrg], limits[ofAll])
		var all []*modelWaiter
		for step := range rapid.IntRange(1, 80).Draw(rt, "steps") {
			token := rapid.IntRange(0, 3).Draw(rt, fmt.Sprint("token ", step))
			p := &tr.tokens[token]
			switch rapid.IntRange(0, 4).Draw(rt, fmt.Sprint("step ", step)) {
			case 0, 1, 2:
				if took, fits := p.take(turns, 1), m.fits(token); took != fits {
					rt.Fatalf("take of token %d = %v, the model says %v", token, took, fits)
				} else if took {
					m.used[token]++
				} else {
					w := &modelWaiter{token: token, real: p.wait(turns, 1)}
					m.waiting, all = append(m.waiting, w), append(all, w)
				}
			case 3:
				if m.used[token] > 0 {
					m.used[token]--
					p.release(turns, 1)
				}
			case 4:
				if len(m.waiting) > 0 {
					w := m.waiting[token%len(m.waiting)]
					m.waiting = slices.DeleteFunc(m.waiting, func(o *modelWaiter) bool { return o == w })
					w.real.withdraw()
					w.granted = true // as the waiter stands in no queue either
				}
			}
			m.serve()
			tr.compare(rt, m, all)
		}
	})
}

func (tr *tree) compare(rt *rapid.T, m *shareModel, all []*modelWaiter) {
	for i := range tr.tokens {
		if got := tr.tokens[i].meters[turns].used; got != m.used[i] {
			rt.Fatalf("token %d uses %d, the model says %d", i, got, m.used[i])
		}
	}
	for i, w := range all {
		if w.real.isGranted() != w.granted {
			rt.Fatalf("waiter %d of token %d granted: %v, the model says %v", i, w.token, w.real.isGranted(), w.granted)
		}
	}
	if got := tr.server.meters[turns].waiting; got != len(m.waiting) {
		rt.Fatalf("%d wait, the model says %d", got, len(m.waiting))
	}
}

// Of things of any size no more is given than there is, but to one who has nothing;
// and everybody gets what he waits for in the end.
func TestLargeSharesAreBoundedAndNobodyIsForgotten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tr := newTree(bodyBytes, 10, 15, 20)
		type claim struct {
			token int
			cost  int64
			w     *waiter // nil: had at once
		}
		var claims []claim
		for step := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			c := claim{token: rapid.IntRange(0, 3).Draw(rt, fmt.Sprint("token ", step)), cost: rapid.Int64Range(1, 25).Draw(rt, fmt.Sprint("cost ", step))}
			if p := &tr.tokens[c.token]; !p.take(bodyBytes, c.cost) {
				c.w = p.wait(bodyBytes, c.cost)
			}
			claims = append(claims, c)
			if rapid.Bool().Draw(rt, fmt.Sprint("release ", step)) {
				for i, c := range claims {
					if c.w == nil || c.w.isGranted() {
						tr.tokens[c.token].release(bodyBytes, c.cost)
						claims = slices.Delete(claims, i, i+1)
						break
					}
				}
			}
			for i := range tr.tokens {
				if used := tr.tokens[i].meters[bodyBytes].used; used > 25 {
					rt.Fatalf("token %d uses %d of 10", i, used)
				}
			}
		}
		for len(claims) > 0 {
			before := len(claims)
			for i, c := range claims {
				if c.w == nil || c.w.isGranted() {
					tr.tokens[c.token].release(bodyBytes, c.cost)
					claims = slices.Delete(claims, i, i+1)
					break
				}
			}
			if len(claims) == before {
				rt.Fatalf("%d wait for ever, with %d used", before, tr.server.meters[bodyBytes].used)
			}
		}
		if m := &tr.server.meters[bodyBytes]; m.used != 0 || m.waiting != 0 || len(m.ready.parties) != 0 {
			rt.Fatalf("after all is done %d is used, %d wait, %d orgs are ready", m.used, m.waiting, len(m.ready.parties))
		}
	})
}

// What a large one waits for is not nibbled away by those who come after it.
func TestNobodyGetsAheadOfALargeOne(t *testing.T) {
	tr := newTree(bodyBytes, 100, 100, 10)
	tr.tokens[0].take(bodyBytes, 6)
	large := tr.tokens[1].wait(bodyBytes, 8)
	if tr.tokens[2].take(bodyBytes, 1) {
		t.Error("take(1) of 4 that are saved up for one who waits for 8 succeeds")
	}
	small := tr.tokens[2].wait(bodyBytes, 1)
	tr.tokens[0].release(bodyBytes, 6)
	if !large.isGranted() || !small.isGranted() {
		t.Errorf("after the release the large one has its share: %v, the small one: %v; want both", large.isGranted(), small.isGranted())
	}
}
