package httpapi

import "time"

// A pass is what a request that was let in holds until it leaves. Its methods may be
// called on a nil pass, of a request without a token, and do nothing then.
type pass struct {
	f     *fairness
	token *tokenParty
	kind  supply          // places, streamPlaces or gitPlaces; the last work without turns
	eased bool            // of gitPlaces, and has one of places by now; guarded by f.mu
	done  <-chan struct{} // of the request's context

	// Guarded by f.mu.
	uploaded int64 // of bodyBytes
	resting  int   // how often rest was called without work; it may read and write at once
	turn     bool
	gone     bool
}

// upload counts n more bytes as brought, waiting until they may be.
func (p *pass) upload(n int64) error {
	p.f.mu.Lock()
	w, err := p.f.ask(&p.token.party, bodyBytes, n)
	p.f.mu.Unlock()
	if w != nil {
		err = p.f.await(p.done, w)
	}
	if err != nil {
		return err
	}
	p.f.mu.Lock()
	p.uploaded += n
	p.f.mu.Unlock()
	return nil
}

// begin takes the first turn. It fails as enter does.
func (p *pass) begin() error {
	if p == nil || p.kind == gitPlaces {
		return nil
	}
	p.f.mu.Lock()
	w := p.f.takeTurn(p.token)
	p.turn = w == nil
	p.f.mu.Unlock()
	if w == nil {
		return nil
	}
	err := p.f.await(p.done, w)
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if p.turn = err == nil; !p.turn {
		p.f.want(p.token.org, -1)
	}
	return err
}

// rest gives the turn back, before the request waits for its client.
func (p *pass) rest() {
	if p == nil || p.kind == gitPlaces {
		return
	}
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.resting++
	p.yield()
}

func (p *pass) yield() {
	if p.turn {
		p.turn = false
		p.f.endTurn(p.token)
	}
}

// work takes a turn again after rest, however long that takes: what has begun is
// finished. A request whose client has gone works on without one, to its end.
func (p *pass) work() {
	if p == nil || p.kind == gitPlaces {
		return
	}
	p.f.mu.Lock()
	p.resting--
	if p.resting > 0 || p.turn || p.gone {
		p.f.mu.Unlock()
		return
	}
	w := p.f.takeTurn(p.token)
	p.turn = w == nil
	p.f.mu.Unlock()
	if w == nil {
		return
	}
	begun := time.Now()
	select {
	case <-w.granted:
	case <-p.done:
	}
	p.f.metrics.waited(turns, time.Since(begun))
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if !w.isGranted() {
		w.withdraw()
		p.f.want(p.token.org, -1)
		return
	}
	p.turn = true
	if p.resting > 0 || p.gone {
		p.yield()
	}
}

// ease is for a request that needs no git process after all, or none any more: it
// takes an ordinary place instead, if there is one.
func (p *pass) ease() {
	if p == nil || p.kind != gitPlaces {
		return
	}
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if p.eased || p.gone || !p.token.take(places, 1) {
		return
	}
	p.eased = true
	p.token.release(gitPlaces, 1)
}

// leave gives everything back.
func (p *pass) leave() {
	if p == nil {
		return
	}
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	p.gone = true
	p.yield()
	if p.uploaded > 0 {
		p.token.release(bodyBytes, p.uploaded)
		p.uploaded = 0
	}
	if p.eased {
		p.token.release(places, 1)
	} else {
		p.token.release(p.kind, 1)
	}
	f.unseat(p.token, time.Since(f.begun))
}
