package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
)

// modelSession is what the model knows of a session.
type modelSession struct {
	id, ref, head, parent string
	epoch                 uint64
	holder                string
	until                 time.Time // of the lease; kept when it has expired
	used, freed, expires  time.Time
	idle, unused          time.Duration
	ended                 bool
}

// sessionModel drives two nodes on one ledger as several clients, one step after the
// other, and knows what each step has to come to.
type sessionModel struct {
	nodes    []*world
	clock    *testClock
	sessions []*modelSession
	known    map[string]uint64 // epoch that a client was last given, by client and session
	writes   int
}

func (m *sessionModel) node(t *rapid.T) *world { return rapid.SampledFrom(m.nodes).Draw(t, "node") }

func (m *sessionModel) client(t *rapid.T) string {
	return rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, "client")
}

func (m *sessionModel) session(t *rapid.T) *modelSession {
	if len(m.sessions) == 0 {
		t.Skip("no session yet")
	}
	return rapid.SampledFrom(m.sessions).Draw(t, "session")
}

func (m *sessionModel) held(s *modelSession) bool {
	return !s.ended && s.holder != "" && m.clock.Now().Before(s.until)
}

func (m *sessionModel) children(s *modelSession) (n int) {
	for _, c := range m.sessions {
		if c.parent == s.id && !c.ended {
			n++
		}
	}
	return n
}

// endsAt is when s ends; zero: never, or not while its children live.
func (m *sessionModel) endsAt(s *modelSession) (at time.Time) {
	if m.children(s) > 0 || s.ended {
		return at
	}
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if !s.expires.IsZero() {
		sooner(s.expires)
	}
	if s.idle > 0 {
		sooner(s.used.Add(s.idle))
	}
	since := s.used
	for _, t := range []time.Time{s.freed, s.until} {
		if t.After(since) {
			since = t
		}
	}
	if s.unused > 0 {
		sooner(since.Add(s.unused))
	}
	if !at.IsZero() && s.until.After(at) {
		at = s.until
	}
	return at
}

// gone is what the end of s means.
func (m *sessionModel) gone(s *modelSession) {
	s.ended, s.holder = true, ""
	for _, p := range m.sessions {
		if p.id == s.parent {
			p.freed = m.clock.Now()
		}
	}
}

func draw[T any](t *rapid.T, what string, from ...T) T { return rapid.SampledFrom(from).Draw(t, what) }

func (m *sessionModel) create(t *rapid.T) {
	if len(m.sessions) == 6 {
		t.Skip("enough sessions")
	}
	w, now := m.node(t), m.clock.Now()
	spec := CreateSpec{
		ID: fmt.Sprintf("s%d", len(m.sessions)), Holder: draw(t, "holder", "", "A"), LeaseTTL: 40 * time.Second,
		TTL: draw(t, "ttl", 0, 5*time.Minute), TTLUnused: draw(t, "unused", 0, time.Minute), IdleTimeout: ptr(draw(t, "idle", 0, 2*time.Minute)),
	}
	var parent *modelSession
	if len(m.sessions) > 0 && rapid.Bool().Draw(t, "from a session") {
		parent = m.session(t)
		spec.FromSession = parent.id
	}
	got, err := w.k.Create(context.Background(), w.repo, w.door(backend()), backend(), spec)
	if want := parent == nil || !parent.ended; (err == nil) != want {
		t.Fatalf("Create(%s from %q) = %v, want success %v", spec.ID, spec.FromSession, err, want)
	}
	if err != nil {
		return
	}
	s := &modelSession{
		id: spec.ID, ref: got.Ref, head: got.HeadSHA, parent: spec.FromSession, epoch: 1, holder: spec.Holder,
		used: now, idle: *spec.IdleTimeout, unused: spec.TTLUnused,
	}
	if spec.Holder != "" {
		s.until = now.Add(spec.LeaseTTL)
		m.known["A"+s.id] = 1
	}
	if spec.TTL > 0 {
		s.expires = now.Add(spec.TTL)
	}
	if parent != nil {
		parent.used = now
	}
	m.sessions = append(m.sessions, s)
}

func (m *sessionModel) lease(t *rapid.T) {
	w, c, s := m.node(t), m.client(t), m.session(t)
	spec := LeaseSpec{Holder: c, Action: draw(t, "action", Acquire, Renew, Release, Takeover), TTL: draw(t, "ttl", 20*time.Second, time.Minute)}
	keeps := spec.Action == Renew || spec.Action == Release
	if epoch, ok := m.known[c+s.id]; keeps && ok {
		spec.Epoch = &epoch
	}
	before := s.epoch
	l, err := w.k.Lease(context.Background(), w.repo, w.door(backend()), backend(), s.id, spec)
	want := !s.ended
	switch spec.Action {
	case Acquire:
		want = want && (!m.held(s) || s.holder == c)
	case Renew, Release:
		want = want && m.held(s) && s.holder == c && (spec.Epoch == nil || *spec.Epoch == s.epoch)
	}
	if (err == nil) != want {
		t.Fatalf("%s of %+v by %s = %v, want success %v", spec.Action, *s, c, err, want)
	}
	if err != nil {
		return
	}
	s.used = m.clock.Now()
	if spec.Action == Release {
		s.holder, s.until = "", time.Time{}
		return
	}
	if !keeps {
		s.epoch++
	}
	if l.Epoch != s.epoch || l.Epoch < before {
		t.Fatalf("%s of %s gives epoch %d, want %d after %d", spec.Action, s.id, l.Epoch, s.epoch, before)
	}
	s.holder, s.until = c, s.used.Add(spec.TTL)
	m.known[c+s.id] = l.Epoch
}

// write commits as a client with the epoch that it was last given, or as the backend.
func (m *sessionModel) write(t *rapid.T) {
	w, c, s := m.node(t), m.client(t), m.session(t)
	by := backend()
	epoch, ok := m.known[c+s.id]
	if ok {
		by.Epoch, by.Session = &epoch, s.id
	}
	m.writes++
	sha := w.commit(s.head, fmt.Sprint(m.writes))
	err := w.door(by).Move(context.Background(), Move{Changes: []Change{{Ref: s.ref, Old: s.head, New: sha}}})
	want := !s.ended && (!ok || epoch == s.epoch)
	if (err == nil) != want {
		t.Fatalf("write of %s (epoch %d, known %v) to %+v = %v, want success %v", c, epoch, ok, *s, err, want)
	}
	if stale := (*StaleEpochError)(nil); !s.ended && ok && epoch != s.epoch && !errors.As(err, &stale) {
		t.Fatalf("write of an old epoch: %v, want a StaleEpochError", err)
	}
	if err == nil {
		s.head, s.used = sha, m.clock.Now()
	}
}

func (m *sessionModel) end(t *rapid.T) {
	w, c, s := m.node(t), m.client(t), m.session(t)
	_, err := w.k.End(context.Background(), w.repo, w.door(backend()), backend(), s.id, EndSpec{Holder: c})
	want := s.ended || (!m.held(s) || s.holder == c) && m.children(s) == 0
	if (err == nil) != want {
		t.Fatalf("End(%+v) for %s = %v, want success %v", *s, c, err, want)
	}
	if err == nil && !s.ended {
		m.gone(s)
	}
}

// remove deletes a branch by another road.
func (m *sessionModel) remove(t *rapid.T) {
	w, s := m.node(t), m.session(t)
	err := w.door(backend()).Move(context.Background(), Move{Changes: []Change{{Ref: s.ref, Old: s.head}}})
	if (err == nil) == s.ended {
		t.Fatalf("delete the branch of %+v = %v", *s, err)
	}
	if err == nil {
		m.gone(s)
	}
}

func (m *sessionModel) pass(t *rapid.T) {
	m.clock.advance(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
}

// reap reaps until nothing is due, and the model ends what has to end.
func (m *sessionModel) reap(t *rapid.T) {
	w, now := m.node(t), m.clock.Now()
	for round := 0; ; round++ {
		next, err := w.k.Reap(context.Background(), w.repo)
		if err != nil {
			t.Fatalf("Reap: %v", err)
		}
		if next.IsZero() || next.After(now) {
			break
		}
		if round == 20 {
			t.Fatalf("the reaper still wants to look at %s, it is %s", next, now)
		}
	}
	for again := true; again; {
		again = false
		for _, s := range m.sessions {
			if at := m.endsAt(s); !at.IsZero() && !now.Before(at) {
				m.gone(s)
				again = true
			}
		}
	}
}

// check holds every session against the model.
func (m *sessionModel) check(t *rapid.T) {
	w := m.nodes[len(m.sessions)%len(m.nodes)]
	for _, s := range m.sessions {
		got, err := w.k.Get(context.Background(), w.repo, w.door(backend()), s.id)
		if err != nil {
			t.Fatalf("Get(%s): %v", s.id, err)
		}
		holder := ""
		if m.held(s) {
			holder = s.holder
		}
		if (got.State == Ended) != s.ended || got.Epoch != s.epoch || got.Holder != holder || got.HeadSHA != s.head || !got.EndsAt.Equal(m.endsAt(s)) {
			t.Fatalf("session is\n%+v\nmodel\n%+v, held by %q, ends at %s", got, *s, holder, m.endsAt(s))
		}
		if head := w.head(t, s.ref); (head == "") != s.ended {
			t.Fatalf("branch of %+v is at %q", *s, head)
		}
	}
	if live := len(w.keys(t, fenceKeys)); live != m.live() {
		t.Fatalf("%d fences, %d live sessions", live, m.live())
	}
}

func (m *sessionModel) live() (n int) {
	for _, s := range m.sessions {
		if !s.ended {
			n++
		}
	}
	return n
}

// replay plays the log and holds what comes of it against what stands.
func (m *sessionModel) replay(t *rapid.T) {
	refs, epochs, ended := map[string]string{}, map[string]uint64{}, map[string]bool{}
	for _, e := range m.nodes[0].log(t) {
		for _, c := range e.Changes {
			if refs[c.Ref] != c.Old {
				t.Fatalf("log moves %s from %q, it was at %q", c.Ref, c.Old, refs[c.Ref])
			}
			if refs[c.Ref] = c.New; c.New == "" {
				delete(refs, c.Ref)
			}
		}
		var d struct {
			sessionData
			endedData
		}
		if len(e.Data) > 0 {
			if err := json.Unmarshal(e.Data, &d); err != nil {
				t.Fatalf("data of %s: %v", e.Type, err)
			}
		}
		switch e.Type {
		case eventCreated, eventLease:
			if d.Epoch < epochs[e.Session] {
				t.Fatalf("log takes %s from epoch %d to %d", e.Session, epochs[e.Session], d.Epoch)
			}
			epochs[e.Session] = d.Epoch
		case eventEnded:
			for _, id := range append(d.Ended, e.Session) {
				ended[id] = true
			}
		}
	}
	for _, s := range m.sessions {
		head := s.head
		if s.ended {
			head = ""
		}
		if refs[s.ref] != head || epochs[s.id] != s.epoch || ended[s.id] != s.ended {
			t.Fatalf("log leaves %s at %q, epoch %d, ended %v; model %+v", s.id, refs[s.ref], epochs[s.id], ended[s.id], *s)
		}
	}
}

func TestSessionsAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := newTestClock()
		db, err := pebbledb.Open("ledger", pebbledb.Options{FS: vfs.NewMem(), Clock: clock.Now})
		if err != nil {
			t.Fatalf("pebbledb.Open: %v", err)
		}
		defer func() { _ = db.Close() }()
		w := newWorld(db, testLimits)
		w.clock = clock
		sha := w.commit("", "first")
		if err := w.door(backend()).Move(context.Background(), Move{Changes: []Change{{Ref: "refs/heads/HEAD", New: sha}}}); err != nil {
			t.Fatalf("create HEAD: %v", err)
		}
		m := &sessionModel{nodes: []*world{w, twin(w)}, clock: clock, known: map[string]uint64{}}
		t.Repeat(map[string]func(*rapid.T){
			"create": m.create, "lease": m.lease, "lease again": m.lease, "write": m.write, "write again": m.write,
			"end": m.end, "remove": m.remove, "pass": m.pass, "reap": m.reap, "": m.check,
		})
		m.replay(t)
	})
}
