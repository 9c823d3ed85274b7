package httpapi

import (
	"container/list"
	"context"
	"math"
	"sync"
	"time"

	"github.com/headgate/headgate/tokens"
)

// Fairness decides who of the requests that are here is let in, and who works when
// not all can. A token, an org and the server have a limit each on everything that
// a request uses up (a supply); who is over one waits a little and is then refused.
// Work itself goes by turns: a request has one while it works and gives it back
// while it waits for its client, so that there can be many slow clients and still
// little that runs at once. An org may take every turn as long as it is alone. While
// others are here, or were lately, it gets no more than twice what they want, so
// that what they do takes no longer than three times what it takes alone.
type fairness struct {
	patience time.Duration // of one who waits to be let in
	rate     int           // requests a second of a token
	interval time.Duration // between two of them
	burst    time.Duration // by how much it may be ahead of that
	limits   [levels][supplies]int64
	metrics  *Metrics
	begun    time.Time // times below are counted from here

	mu     sync.Mutex // guards what follows and every party; held for no longer than a step takes
	server party
	orgs   map[string]*orgParty
	tokens map[tokenKey]*tokenParty
	recent list.List // every *tokenParty, those that were left longest ago in front

	lastOrg   *orgParty     // who came last
	mixed     time.Duration // when last somebody came after a different org
	company   bool          // that was lately
	limited   bool          // an org's turns are not all there are
	wanted    int64         // turns that are used or waited for
	demanding []*orgParty   // by these orgs
}

// The levels that have limits.
const (
	ofToken = iota
	ofOrg
	ofAll
	levels
)

const (
	mixedFor = time.Second // how long an org is remembered as being here
	idleFor  = time.Minute // how long a token is remembered that does not come back

	tokensMost = 1 << 14     // how many are remembered, but for those that have a request
	retrySoon  = time.Second // for who is refused for what others use
)

type orgParty struct {
	party
	name   string
	tokens int   // in the table
	wanted int64 // turns that it uses or waits for
	index  int   // in demanding, if it wants any
}

type tokenKey struct{ org, token string }

type tokenParty struct {
	party
	key   tokenKey
	org   *orgParty
	place *list.Element // in recent
	here  int           // requests, those that wait included
	due   time.Duration // when the next request is due at the token's full rate
	left  time.Duration // when a request left last
}

func newFairness(l Limits, m *Metrics) *fairness {
	f := &fairness{
		patience: l.LimitWait,
		rate:     l.TokenRate,
		interval: time.Second / time.Duration(l.TokenRate),
		limits: [levels][supplies]int64{
			ofToken: {int64(l.TokenRequests), int64(l.TokenGit), int64(l.TokenStreams), l.TokenUpload, int64(l.Turns)},
			ofOrg:   {int64(l.OrgRequests), int64(l.OrgGit), int64(l.OrgStreams), l.OrgUpload, int64(l.Turns)},
			ofAll:   {int64(l.Requests), int64(l.Git), int64(l.Streams), l.Upload, int64(l.Turns)},
		},
		metrics: m, begun: time.Now(), mixed: math.MinInt64 / 2,
		orgs: make(map[string]*orgParty), tokens: make(map[tokenKey]*tokenParty),
	}
	f.burst = f.interval * time.Duration(l.TokenBurst-1)
	f.server.limits = f.limits[ofAll]
	return f
}

// enter lets a request of who in, which brings upload bytes. It fails with a
// *limitError, or with context.Canceled when ctx ended while the request waited.
func (f *fairness) enter(ctx context.Context, who *tokens.Principal, kind supply, upload int64) (*pass, error) {
	f.mu.Lock()
	now := time.Since(f.begun)
	t := f.tokenOf(tokenKey{who.Org, who.TokenHash}, now)
	f.meet(t.org, now)
	if early := t.early(now, f.interval, f.burst); early > 0 {
		f.unseat(t, now)
		f.mu.Unlock()
		return nil, f.refuse("token_rate", early, "a token may make %d requests a second", int64(f.rate))
	}
	p := &pass{f: f, token: t, kind: kind, done: ctx.Done()}
	w, err := f.ask(&t.party, kind, 1)
	f.mu.Unlock()
	if w != nil {
		err = f.await(p.done, w)
	}
	if err != nil {
		f.mu.Lock()
		f.unseat(t, time.Since(f.begun))
		f.mu.Unlock()
		return nil, err
	}
	if upload > 0 {
		if err := p.upload(upload); err != nil {
			p.leave()
			return nil, err
		}
	}
	return p, nil
}

// ask takes cost of s, or gives a waiter for it, or refuses: no more may wait at a
// party than its limit. The caller holds f.mu.
func (f *fairness) ask(p *party, s supply, cost int64) (*waiter, error) {
	if p.take(s, cost) {
		return nil, nil
	}
	// bodyBytes are waited for by those only who have a place.
	if s < bodyBytes {
		for level, q := 0, p; q != nil; level, q = level+1, q.parent {
			if int64(q.meters[s].waiting) >= q.limits[s] {
				return nil, f.over(level, s)
			}
		}
	}
	return p.wait(s, cost), nil
}

// await waits until w is granted, patience is at its end, or done is closed.
func (f *fairness) await(done <-chan struct{}, w *waiter) error {
	begun := time.Now()
	patience := time.NewTimer(f.patience)
	defer patience.Stop()
	select {
	case <-w.granted:
	case <-patience.C:
	case <-done:
	}
	f.metrics.waited(w.supply, time.Since(begun))
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.isGranted() {
		return nil
	}
	level := w.party.tight(w.supply, w.cost)
	w.withdraw()
	select {
	case <-done:
		return context.Canceled
	default:
		return f.over(level, w.supply)
	}
}

// tokenOf finds or makes the party of a token and counts one request more for it.
func (f *fairness) tokenOf(key tokenKey, now time.Duration) *tokenParty {
	t := f.tokens[key]
	if t == nil {
		org := f.orgs[key.org]
		if org == nil {
			org = &orgParty{name: key.org, party: party{parent: &f.server, limits: f.limits[ofOrg]}}
			f.orgs[key.org] = org
		}
		org.tokens++
		t = &tokenParty{key: key, org: org, due: now, party: party{parent: &org.party, limits: f.limits[ofToken]}}
		f.tokens[key] = t
		t.place = f.recent.PushBack(t)
	}
	t.here++
	return t
}

// unseat counts one request less for a token. Without any it is remembered for a
// while, then forgotten with its org; so memory is bounded by what is here.
func (f *fairness) unseat(t *tokenParty, now time.Duration) {
	t.here--
	t.left = now
	f.recent.MoveToBack(t.place)
	for range 2 { // more than are added, so that there are fewer in the end
		old := f.recent.Front().Value.(*tokenParty)
		switch {
		case old.here > 0:
			f.recent.MoveToBack(old.place)
		case len(f.tokens) > tokensMost || now-old.left >= idleFor:
			f.forget(old)
		}
		if f.recent.Len() == 0 {
			return
		}
	}
}

func (f *fairness) forget(t *tokenParty) {
	f.recent.Remove(t.place)
	delete(f.tokens, t.key)
	if t.org.tokens--; t.org.tokens == 0 {
		delete(f.orgs, t.org.name)
		if f.lastOrg == t.org {
			f.lastOrg = nil
		}
	}
}

// early is how long before its time a request of t comes, or 0, and then it is
// counted.
func (t *tokenParty) early(now, interval, burst time.Duration) time.Duration {
	due := max(t.due, now)
	if early := due - now - burst; early > 0 {
		return early
	}
	t.due = due + interval
	return 0
}
