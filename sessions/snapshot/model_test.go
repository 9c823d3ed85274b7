package snapshot

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger"
)

// modelSnap is what the model knows of a snapshot.
type modelSnap struct {
	id           OID
	session      string
	children     map[string]bool
	pinned       bool
	idle, unused time.Duration
	used, freed  time.Time
	asked        bool // somebody asked to delete it
	gone         bool
}

// snapModel saves, uses and deletes snapshots of a few sessions, with crashes between
// batches, and knows what may go, and what must.
type snapModel struct {
	w     *world
	snaps []*modelSnap // oldest first
	keep  map[string]int
	ended map[string]time.Time
	n     int
	cut   int // batches until the next power cut; negative: none
}

var errCut = errors.New("power cut")

func (m *snapModel) arm() {
	m.w.ledger.beforeApply(func(ledger.Batch) error {
		m.cut--
		if m.cut == -1 {
			return errCut
		}
		return nil
	})
}

func draw[T any](t *rapid.T, what string, from ...T) T { return rapid.SampledFrom(from).Draw(t, what) }

func (m *snapModel) one(t *rapid.T) *modelSnap {
	var there []*modelSnap
	for _, s := range m.snaps {
		if !s.gone {
			there = append(there, s)
		}
	}
	if len(there) == 0 {
		t.Skip("none yet")
	}
	return rapid.SampledFrom(there).Draw(t, "snapshot")
}

func (m *snapModel) last(session string) (last *modelSnap) {
	for _, s := range m.snaps {
		if s.session == session && !s.gone {
			last = s
		}
	}
	return last
}

func (m *snapModel) save(t *rapid.T) {
	session := draw(t, "session", "s1", "s2")
	if _, over := m.ended[session]; over {
		t.Skip("it has ended")
	}
	spec := SaveSpec{Session: session, IdleTimeout: ptr(draw(t, "idle", 0, time.Minute)), TTLUnused: draw(t, "unused", 0, 2*time.Minute)}
	keep, saysKeep := m.keep[session], false
	if rapid.Bool().Draw(t, "says what it keeps") {
		keep, saysKeep = draw(t, "keep", 0, 1, 2), true
		spec.KeepLast = &keep
	}
	m.n++
	got, err := m.w.trySave(t, snap{SaveSpec: spec, chunks: []string{"shared by all", session, fmt.Sprint("only here ", m.n)}})
	if err != nil {
		if !errors.Is(err, errCut) {
			t.Fatalf("save: %v", err)
		}
		return
	}
	if saysKeep {
		m.keep[session] = keep
	}
	m.snaps = append(m.snaps, &modelSnap{
		id: got.Commit, session: session, children: map[string]bool{}, idle: *spec.IdleTimeout, unused: spec.TTLUnused, used: m.w.clock.Now(),
	})
}

func (m *snapModel) start(t *rapid.T) {
	s := m.one(t)
	m.n++
	id := fmt.Sprint("c", m.n)
	if err := m.w.child(context.Background(), s.id, id, true, ReadyCheck(s.id)); err == nil {
		s.children[id], s.used = true, m.w.clock.Now()
	} else if !errors.Is(err, errCut) {
		t.Fatalf("start a child: %v", err)
	}
}

func (m *snapModel) stop(t *rapid.T) {
	s := m.one(t)
	for id := range s.children {
		if err := m.w.child(context.Background(), s.id, id, false); err == nil {
			delete(s.children, id)
			s.freed = m.w.clock.Now()
		}
	}
}

func (m *snapModel) pin(t *rapid.T) {
	s := m.one(t)
	s.pinned = !s.pinned
	m.w.users.pin(s.id, s.pinned)
}

func (m *snapModel) delete(t *rapid.T) {
	s := m.one(t)
	s.asked = true
	_, err := m.w.delete(s.id)
	inUse := len(s.children) > 0 || s.pinned
	if errors.Is(err, errCut) {
		return
	}
	if used := errors.As(err, new(*InUseError)); used != inUse || !used && err != nil {
		t.Fatalf("Delete of %+v: %v", *s, err)
	}
	if s.asked = !inUse; inUse {
		return
	}
	if got := m.w.got(t, s.id); got.State != Deleted && got.State != Deleting {
		t.Fatalf("after Delete it is %s", got.State)
	}
}

func (m *snapModel) end(t *rapid.T) {
	session := draw(t, "session", "s1", "s2")
	if _, over := m.ended[session]; !over && len(m.snaps) > 4 {
		m.w.end(session)
		m.ended[session] = m.w.clock.Now()
	}
}

func (m *snapModel) step(t *rapid.T) {
	m.w.clock.advance(draw(t, "step", time.Second, 30*time.Second, time.Minute, 5*time.Minute))
	if _, err := m.w.k.Reap(context.Background(), m.w.repo); err != nil && !errors.Is(err, errCut) {
		t.Fatalf("Reap: %v", err)
	}
}

// crash lets the power fail after some more batches.
func (m *snapModel) crash(t *rapid.T) { m.cut = rapid.IntRange(0, 4).Draw(t, "batches") }

// upAt is when its time is up at the earliest; zero: never.
func (m *snapModel) upAt(s *modelSnap) (at time.Time) {
	if s.idle > 0 {
		at = earliest(at, s.used.Add(s.idle))
	}
	if s.unused > 0 {
		at = earliest(at, latest(s.used, s.freed).Add(s.unused))
	}
	return at
}

// check holds what is there against what may be gone.
func (m *snapModel) check(t *rapid.T) {
	now := m.w.clock.Now()
	for i, s := range m.snaps {
		got, err := m.w.k.Get(context.Background(), m.w.as(backend()), s.id)
		if err != nil {
			t.Fatalf("Get: %v", err)
		}
		if s.gone {
			if got.State == Ready {
				t.Fatalf("%s is there again", s.id)
			}
			continue
		}
		if got.State == Ready {
			continue
		}
		_, over := m.ended[s.session]
		up := m.upAt(s)
		expired := !up.IsZero() && !now.Before(up)
		lastOfLive := m.last(s.session) == s && !over
		newer := false
		for _, o := range m.snaps[i+1:] {
			newer = newer || o.session == s.session
		}
		switch {
		case len(s.children) > 0 || s.pinned:
			t.Fatalf("%s is %s, and in use: %+v", s.id, got.State, *s)
		case lastOfLive && !s.asked:
			t.Fatalf("%s is %s, and the last of a live session", s.id, got.State)
		case !s.asked && !expired && !(got.Reason == causeKept && newer):
			t.Fatalf("%s is %s at %s, and nothing says so: %+v", s.id, got.State, now, *s)
		}
		s.gone = true
	}
	m.w.sound(t)
	m.charged(t)
}

// charged checks that the repo is charged with every chunk that is kept, once a session.
func (m *snapModel) charged(t *rapid.T) {
	var want int64
	seen := map[string]bool{}
	for _, s := range m.snaps {
		for _, c := range m.w.images[s.id] {
			if !s.gone && !seen[s.session+"/"+c] {
				want += int64(len(c))
			}
			seen[s.session+"/"+c] = seen[s.session+"/"+c] || !s.gone
		}
	}
	if got, _, err := m.w.k.reads(m.w.repo).counters(context.Background()); err != nil || got != want {
		t.Fatalf("charged with %d bytes, %v; kept are %d", got, err, want)
	}
}

// settle ends all that is under way: what has to be gone by then is.
func (m *snapModel) settle(t *rapid.T) {
	m.cut = -2
	for range 6 {
		m.w.clock.advance(2 * usePatience)
		m.w.reaped(t)
		m.check(t)
	}
	for _, s := range m.snaps {
		if s.gone {
			if got := m.w.got(t, s.id); got.State != Deleted {
				t.Fatalf("%s stays %s", s.id, got.State)
			}
			continue
		}
		used := len(s.children) > 0 || s.pinned
		_, over := m.ended[s.session]
		if up := m.upAt(s); !used && !up.IsZero() && !m.w.clock.Now().Before(up) && (over || m.last(s.session) != s) {
			t.Fatalf("%s stays, though its time was up at %s: %+v", s.id, up, *s)
		}
	}
}

func TestModel(t *testing.T) {
	one, n := newWorld(t, Limits{}), 0
	rapid.Check(t, func(rt *rapid.T) {
		w := worldOn(one.ledger.Ledger, Limits{}) // a repo of its own
		n++
		w.clock, w.repo.ID = one.clock, fmt.Sprint("r", n)
		m := &snapModel{w: w, keep: map[string]int{}, ended: map[string]time.Time{}, cut: -2}
		w.session("s1", OID{})
		w.session("s2", OID{})
		m.arm()
		acts := map[string]func(*rapid.T){
			"save": m.save, "save again": m.save, "start": m.start, "stop": m.stop, "pin": m.pin, "delete": m.delete,
			"end": m.end, "step": m.step, "crash": m.crash, "": m.check,
		}
		rt.Repeat(acts)
		m.settle(rt)
	})
}
