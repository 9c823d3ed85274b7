package sessions

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
)

// modelToken is what the model knows of a token.
type modelToken struct {
	Token
	family int
}

// tokenModel says which tokens may pass, from nothing but what was done.
type tokenModel struct {
	w       *world
	tokens  []modelToken
	revoked map[int]bool      // families
	epochs  map[string]uint64 // of sessions that have not ended
	until   map[string]time.Time
	leased  map[string]bool
}

func (m *tokenModel) session(t *rapid.T) string {
	return rapid.SampledFrom([]string{"s1", "s2"}).Draw(t, "session")
}

func (m *tokenModel) token(t *rapid.T) modelToken {
	if len(m.tokens) == 0 {
		t.Skip("no token yet")
	}
	return m.tokens[rapid.IntRange(0, len(m.tokens)-1).Draw(t, "token")]
}

func (m *tokenModel) dead(tok modelToken) bool {
	_, live := m.epochs[tok.SessionID]
	return !live || m.revoked[tok.family]
}

func (m *tokenModel) issue(t *rapid.T) {
	id := m.session(t)
	tok, err := m.w.k.Issue(context.Background(), m.w.repo, m.w.door(backend()), backend(), id, TokenSpec{TTL: time.Hour})
	if epoch, live := m.epochs[id]; (err == nil) != live || err == nil && tok.Epoch != epoch {
		t.Fatalf("Issue(%s) = epoch %d, %v; live %v, epoch %d", id, tok.Epoch, err, live, epoch)
	}
	if err == nil {
		m.tokens = append(m.tokens, modelToken{tok, len(m.tokens)})
	}
}

func (m *tokenModel) renew(t *rapid.T) {
	old := m.token(t)
	now := m.w.clock.Now()
	tok, err := m.w.renew(old.Token, TokenSpec{TTL: time.Hour})
	lost := m.leased[old.SessionID] && !now.Before(m.until[old.SessionID])
	want := !m.dead(old) && old.Epoch == m.epochs[old.SessionID] && now.Before(old.ExpiresAt) && !lost
	if (err == nil) != want {
		t.Fatalf("Renew(%s) = %v, want success %v", old.ID, err, want)
	}
	if err == nil {
		m.tokens = append(m.tokens, modelToken{tok, old.family})
	}
}

func (m *tokenModel) revoke(t *rapid.T) {
	tok := m.token(t)
	err := m.w.k.Revoke(context.Background(), m.w.repo, m.w.door(backend()), backend(), tok.SessionID, tok.ID, nil)
	if err == nil {
		m.revoked[tok.family] = true
	} else if m.w.clock.Now().Before(tok.ExpiresAt) {
		t.Fatalf("Revoke(%s): %v", tok.ID, err)
	}
}

func (m *tokenModel) lease(t *rapid.T) {
	id := m.session(t)
	l, err := m.w.k.Lease(context.Background(), m.w.repo, m.w.door(backend()), backend(), id, LeaseSpec{Action: Takeover, Holder: "h", TTL: time.Minute})
	epoch, live := m.epochs[id]
	if (err == nil) != live || err == nil && l.Epoch != epoch+1 {
		t.Fatalf("takeover of %s = %+v, %v; live %v at %d", id, l, err, live, epoch)
	}
	if err == nil {
		m.epochs[id], m.until[id], m.leased[id] = l.Epoch, l.ExpiresAt, true
	}
}

func (m *tokenModel) end(t *rapid.T) {
	id := m.session(t)
	if _, live := m.epochs[id]; !live {
		return
	}
	if _, err := m.w.k.End(context.Background(), m.w.repo, m.w.door(backend()), backend(), id, EndSpec{Holder: "h"}); err != nil {
		t.Fatalf("End(%s): %v", id, err)
	}
	delete(m.epochs, id)
}

func (m *tokenModel) pass(t *rapid.T) {
	m.w.clock.advance(time.Duration(rapid.IntRange(1, 3_000).Draw(t, "seconds")) * time.Second)
	if _, err := m.w.k.sweepTokens(context.Background(), m.w.repo, m.w.clock.Now()); err != nil {
		t.Fatalf("sweepTokens: %v", err)
	}
}

// check holds every token that was ever made against the model.
func (m *tokenModel) check(t *rapid.T) {
	for _, tok := range m.tokens {
		if !m.w.clock.Now().Before(tok.ExpiresAt) {
			continue // the verifier has refused it
		}
		err := m.w.standing(tok.Token)
		if want := !m.dead(tok) && tok.Epoch == m.epochs[tok.SessionID]; (err == nil) != want {
			t.Fatalf("Standing(%s) = %v, want success %v", tok.ID, err, want)
		}
	}
}

func TestTokenModel(t *testing.T) {
	runs := 0
	fs := vfs.NewMem()
	clock := newTestClock()
	db, err := pebbledb.Open("ledger", pebbledb.Options{FS: fs, Clock: clock.Now})
	if err != nil {
		t.Fatalf("pebbledb.Open: %v", err)
	}
	defer db.Close()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(db, testLimits)
		runs++
		w.clock, w.repo.ID = clock, fmt.Sprintf("r%d", runs)
		m := &tokenModel{w: w, revoked: map[int]bool{}, epochs: map[string]uint64{}, until: map[string]time.Time{}, leased: map[string]bool{}}
		for _, id := range []string{"s1", "s2"} {
			m.epochs[id] = w.session(t, CreateSpec{ID: id}).Epoch
		}
		t.Repeat(map[string]func(*rapid.T){
			"issue": m.issue, "renew": m.renew, "revoke": m.revoke, "lease": m.lease, "end": m.end, "pass": m.pass, "": m.check,
		})
	})
}
