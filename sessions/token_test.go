package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

// session makes a session upon a commit of its own.
func (w *world) session(t fataler, spec CreateSpec) Session {
	t.Helper()
	if spec.BaseRef == "" && spec.FromSession == "" {
		spec.BaseRef = w.commit("", "base of "+spec.ID)
	}
	s, err := w.k.Create(context.Background(), w.repo, w.door(backend()), backend(), spec)
	if err != nil {
		t.Fatalf("Create(%+v): %v", spec, err)
	}
	return s
}

func (w *world) issue(t fataler, id string, spec TokenSpec) Token {
	t.Helper()
	tok, err := w.k.Issue(context.Background(), w.repo, w.door(backend()), backend(), id, spec)
	if err != nil {
		t.Fatalf("Issue(%s): %v", id, err)
	}
	return tok
}

func (w *world) lease(t fataler, id, holder string, action LeaseAction) Lease {
	t.Helper()
	l, err := w.k.Lease(context.Background(), w.repo, w.door(backend()), backend(), id, LeaseSpec{Action: action, Holder: holder})
	if err != nil {
		t.Fatalf("Lease(%s, %s): %v", id, action, err)
	}
	return l
}

func (w *world) end(t fataler, id string) {
	t.Helper()
	if _, err := w.k.End(context.Background(), w.repo, w.door(backend()), backend(), id, EndSpec{Admin: true}); err != nil {
		t.Fatalf("End(%s): %v", id, err)
	}
}

func (w *world) revoke(t fataler, id, jti string) {
	t.Helper()
	if err := w.k.Revoke(context.Background(), w.repo, w.door(backend()), backend(), id, jti, nil); err != nil {
		t.Fatalf("Revoke(%s, %s): %v", id, jti, err)
	}
}

func (w *world) standing(tok Token) error {
	return w.k.Standing(context.Background(), w.repo, holderOf(tok), tok.Ref)
}

func (w *world) renew(tok Token, spec TokenSpec) (Token, error) {
	return w.k.Renew(context.Background(), w.repo, holderOf(tok), spec)
}

// holderOf is who shows a token.
func holderOf(tok Token) Actor {
	epoch := tok.Epoch
	return Actor{Org: "acme", Subject: tok.Subject, KeyID: "hg-1", TokenID: tok.ID, Session: tok.SessionID, Epoch: &epoch}
}

func wantErr(t fataler, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

func wantStale(t fataler, what string, err error, have, session uint64) {
	t.Helper()
	var stale *StaleEpochError
	if !errors.As(err, &stale) || stale.Have != have || stale.Session != session {
		t.Fatalf("%s: %v, want stale epoch %d, session at %d", what, err, have, session)
	}
}

func TestIssue(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	s := w.session(t, CreateSpec{ID: "s1", Holder: "box"})
	within := [][]Rule{{{Pattern: "*", Ops: []string{"no-force-push"}}}}
	tok := w.issue(t, "s1", TokenSpec{TTL: time.Minute, Scopes: []string{"git:read"}, Read: []string{"main"}, Within: within, Subject: "agent"})
	now := w.clock.Now()
	switch {
	case tok.SessionID != "s1" || tok.Ref != s.Ref || tok.Epoch != 1 || tok.Subject != "agent":
		t.Errorf("Issue = %+v, want a token of s1 at epoch 1 for agent", tok)
	case !slices.Equal(tok.Scopes, []string{"git:read"}) || !slices.Equal(tok.Read, []string{"main"}) || len(tok.Within) != 1:
		t.Errorf("Issue = %+v, want what was asked for", tok)
	case !tok.IssuedAt.Equal(now) || !tok.ExpiresAt.Equal(now.Add(time.Minute)):
		t.Errorf("Issue: from %v to %v, want %v and a minute", tok.IssuedAt, tok.ExpiresAt, now)
	case tok.IssuedBy != backend():
		t.Errorf("Issue: by %+v, want %+v", tok.IssuedBy, backend())
	}
	wantErr(t, "Standing", w.standing(tok), nil)
	read, err := w.k.Token(t.Context(), w.repo, tok.ID)
	if err != nil || fmt.Sprint(read) != fmt.Sprint(tok) {
		t.Errorf("Token(%s) = %+v, %v, want %+v", tok.ID, read, err, tok)
	}
	if _, err := w.write(t, holderOf(tok), s.Ref, "work"); err != nil {
		t.Errorf("write with the token: %v", err)
	}
}

func TestIssueTimes(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "free"})
	w.session(t, CreateSpec{ID: "short", TTL: 90*time.Second + 500*time.Millisecond})
	for _, tc := range []struct {
		id   string
		ttl  time.Duration
		want time.Duration
	}{
		{"free", 0, 15 * time.Minute},
		{"free", 1_500 * time.Millisecond, 2 * time.Second}, // a token's time ends on a whole second
		{"free", 1_000_000 * time.Hour, 24 * time.Hour},
		{"short", 0, 90 * time.Second}, // no longer than its session
		{"short", time.Minute, time.Minute},
	} {
		tok := w.issue(t, tc.id, TokenSpec{TTL: tc.ttl})
		if got := tok.ExpiresAt.Sub(w.clock.Now()); got != tc.want {
			t.Errorf("Issue(%s, ttl %v) lasts %v, want %v", tc.id, tc.ttl, got, tc.want)
		}
		if !slices.Equal(tok.Scopes, []string{"git:read", "git:write"}) {
			t.Errorf("Issue without scopes has %v, want both", tok.Scopes)
		}
	}
}

func TestIssueRefusals(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	s := w.session(t, CreateSpec{ID: "s1"})
	w.session(t, CreateSpec{ID: "gone"})
	w.end(t, "gone")
	foreign, stale := holderOf(w.issue(t, "s1", TokenSpec{})), holderOf(w.issue(t, "s1", TokenSpec{}))
	foreign.Session = "gone"
	*stale.Epoch = 7
	hidden, unwritable := w.door(backend()), w.door(backend())
	hidden.canRead = func(string) bool { return false }
	unwritable.mayWrite = func(ref string) bool { return ref != s.Ref }
	var ended *StateError
	if _, err := w.k.Issue(t.Context(), w.repo, w.door(backend()), backend(), "gone", TokenSpec{}); !errors.As(err, &ended) || ended.State != Ended {
		t.Errorf("Issue for an ended session: %v, want its state", err)
	}
	for _, tc := range []struct {
		name string
		door Door
		by   Actor
		id   string
		spec TokenSpec
		want error
	}{
		{"unknown session", w.door(backend()), backend(), "s2", TokenSpec{}, ErrNotFound},
		{"malformed id", w.door(backend()), backend(), "a/b", TokenSpec{}, ErrNotFound},
		{"branch that the caller may not read", hidden, backend(), "s1", TokenSpec{}, ErrNotFound},
		{"branch that the caller may not write", unwritable, backend(), "s1", TokenSpec{}, errDenied},
		{"another session's token", w.door(foreign), foreign, "s1", TokenSpec{}, ErrForeignSession},
		{"negative time", w.door(backend()), backend(), "s1", TokenSpec{TTL: -1}, ErrInvalid},
		{"scope beyond git", w.door(backend()), backend(), "s1", TokenSpec{Scopes: []string{"repo:write"}}, ErrInvalid},
		{"empty pattern", w.door(backend()), backend(), "s1", TokenSpec{Read: []string{""}}, ErrInvalid},
		{"too many patterns", w.door(backend()), backend(), "s1", TokenSpec{Read: make([]string, 65)}, ErrInvalid},
		{"subject of two lines", w.door(backend()), backend(), "s1", TokenSpec{Subject: "a\nb"}, ErrInvalid},
		{"rules beyond a header", w.door(backend()), backend(), "s1", TokenSpec{Within: [][]Rule{make([]Rule, 2_000)}}, ErrInvalid},
	} {
		_, err := w.k.Issue(t.Context(), w.repo, tc.door, tc.by, tc.id, tc.spec)
		wantErr(t, "Issue: "+tc.name, err, tc.want)
	}
	_, err := w.k.Issue(t.Context(), w.repo, w.door(stale), stale, "s1", TokenSpec{})
	wantStale(t, "Issue with a stale epoch", err, 7, 1)
	if got := len(w.keys(t, tokenPrefix("s1"))); got != 2 {
		t.Errorf("%d tokens are recorded, want the 2 that were issued", got)
	}
}

func TestIssueCountsAsUseOnceAMinute(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	s := w.session(t, CreateSpec{ID: "s1"})
	used := func() time.Time {
		got, err := w.k.Get(t.Context(), w.repo, w.door(backend()), "s1")
		if err != nil {
			t.Fatalf("Get: %v", err)
		}
		return got.UsedAt
	}
	w.clock.advance(59 * time.Second)
	w.issue(t, "s1", TokenSpec{})
	if got := used(); !got.Equal(s.UsedAt) {
		t.Errorf("a token after 59 s made the last use %v, want %v as it was", got, s.UsedAt)
	}
	w.clock.advance(time.Second)
	tok := w.issue(t, "s1", TokenSpec{})
	if got := used(); !got.Equal(w.clock.Now()) {
		t.Errorf("a token after 60 s made the last use %v, want %v", got, w.clock.Now())
	}
	w.clock.advance(time.Minute)
	if _, err := w.renew(tok, TokenSpec{}); err != nil {
		t.Fatalf("Renew: %v", err)
	}
	if got := used(); !got.Equal(w.clock.Now()) {
		t.Errorf("a renewal made the last use %v, want %v", got, w.clock.Now())
	}
}

func TestA12_RenewedTokenIsTheSameOrNarrower(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "s1"})
	own := []Rule{{Pattern: "*", Ops: []string{"no-force-push"}}}
	first := w.issue(t, "s1", TokenSpec{Scopes: []string{"git:read"}, Read: []string{"main"}, Within: [][]Rule{own}, Subject: "agent"})
	w.clock.advance(5 * time.Minute)
	same, err := w.renew(first, TokenSpec{})
	if err != nil {
		t.Fatalf("Renew: %v", err)
	}
	if !slices.Equal(same.Scopes, first.Scopes) || !slices.Equal(same.Read, first.Read) || len(same.Within) != 1 || same.Subject != "agent" || same.Epoch != 1 {
		t.Errorf("Renew to the same = %+v, want as %+v", same, first)
	}
	if want := w.clock.Now().Add(15 * time.Minute); !same.ExpiresAt.Equal(want) {
		t.Errorf("Renew lasts until %v, want %v", same.ExpiresAt, want)
	}
	if familyOf(same.ID) != first.ID || same.ID == first.ID {
		t.Errorf("Renew made %s, want another of the family %s", same.ID, first.ID)
	}
	narrow := []Rule{{Pattern: "main", Ops: []string{"no-read"}}}
	less, err := w.renew(same, TokenSpec{Read: []string{}, Within: [][]Rule{own, narrow}, Subject: "root", Scopes: []string{"git:read", "git:write"}})
	if err != nil {
		t.Fatalf("Renew to less: %v", err)
	}
	if !slices.Equal(less.Scopes, []string{"git:read"}) || len(less.Read) != 0 || len(less.Within) != 2 || less.Subject != "agent" {
		t.Errorf("Renew to less = %+v, want no scope or subject of more, no reads, both policies", less)
	}
	if familyOf(less.ID) != first.ID {
		t.Errorf("Renew of a renewed token made %s, want the family %s", less.ID, first.ID)
	}
	_, err = w.renew(less, TokenSpec{Scopes: []string{"git:write"}})
	wantErr(t, "Renew to another scope", err, ErrInvalid)
	for _, tok := range []Token{first, same, less} {
		wantErr(t, "Standing", w.standing(tok), nil)
	}
}

func TestRenewRefusals(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "s1", Holder: "box", LeaseTTL: time.Minute})
	w.session(t, CreateSpec{ID: "s2"})
	tok, other := w.issue(t, "s1", TokenSpec{}), w.issue(t, "s2", TokenSpec{TTL: time.Minute})

	forged := tok
	forged.SessionID = "s2"
	_, err := w.renew(forged, TokenSpec{})
	wantErr(t, "Renew with the id of another session's token", err, ErrTokenDead)
	forged.SessionID = "../s1"
	_, err = w.renew(forged, TokenSpec{})
	wantErr(t, "Renew with a malformed session", err, ErrTokenDead)
	forged = tok
	forged.ID = newTokenID("", tok.IssuedAt, tok.ExpiresAt).String()
	_, err = w.renew(forged, TokenSpec{})
	wantErr(t, "Renew of a token that was never issued", err, ErrTokenDead)
	_, err = w.k.Renew(t.Context(), w.repo, backend(), TokenSpec{})
	wantErr(t, "Renew of a customer's token", err, ErrTokenDead)

	w.clock.advance(time.Minute)
	_, err = w.renew(tok, TokenSpec{})
	wantErr(t, "Renew after the lease expired", err, ErrLeaseLost)
	_, err = w.renew(other, TokenSpec{})
	wantErr(t, "Renew of an expired token", err, ErrTokenDead)
	w.lease(t, "s1", "box", Acquire)
	_, err = w.renew(tok, TokenSpec{})
	wantStale(t, "Renew after the lease was taken again", err, 1, 2)
	second := w.issue(t, "s1", TokenSpec{})
	if _, err = w.renew(second, TokenSpec{}); err != nil {
		t.Fatalf("Renew under a live lease: %v", err)
	}
	w.lease(t, "s1", "box", Release)
	_, err = w.renew(second, TokenSpec{})
	wantErr(t, "Renew after the lease was released", err, ErrLeaseLost)
	w.end(t, "s1")
	_, err = w.renew(second, TokenSpec{})
	wantErr(t, "Renew after the end", err, ErrTokenDead)
}

func TestA16_TakeoverMakesTokensStale(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	s := w.session(t, CreateSpec{ID: "s1", Holder: "box"})
	tok := w.issue(t, "s1", TokenSpec{})
	w.lease(t, "s1", "other", Takeover)
	wantStale(t, "Standing", w.standing(tok), 1, 2)
	_, err := w.renew(tok, TokenSpec{})
	wantStale(t, "Renew", err, 1, 2)
	_, err = w.write(t, holderOf(tok), s.Ref, "late")
	wantStale(t, "write", err, 1, 2)
	wantErr(t, "Standing of a new token", w.standing(w.issue(t, "s1", TokenSpec{})), nil)
}

func TestRevokedFamilyIsDead(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	s := w.session(t, CreateSpec{ID: "s1"})
	w.session(t, CreateSpec{ID: "s2"})
	first, apart, others := w.issue(t, "s1", TokenSpec{TTL: time.Minute}), w.issue(t, "s1", TokenSpec{}), w.issue(t, "s2", TokenSpec{})
	second, err := w.renew(first, TokenSpec{TTL: time.Hour})
	if err != nil {
		t.Fatalf("Renew: %v", err)
	}
	for _, jti := range []string{"", "x", others.ID, first.ID + "." + apart.ID} {
		err := w.k.Revoke(t.Context(), w.repo, w.door(backend()), backend(), "s1", jti, nil)
		wantErr(t, "Revoke of what s1 did not issue", err, ErrTokenNotFound)
	}
	denied := w.door(backend())
	denied.mayWrite = func(string) bool { return false }
	wantErr(t, "Revoke by a reader", w.k.Revoke(t.Context(), w.repo, denied, backend(), "s1", first.ID, nil), errDenied)
	wantErr(t, "Standing before", w.standing(second), nil)

	w.revoke(t, "s1", second.ID)
	w.revoke(t, "s1", first.ID) // twice is once
	for _, tok := range []Token{first, second} {
		wantErr(t, "Standing of a revoked family", w.standing(tok), ErrTokenDead)
		_, err := w.renew(tok, TokenSpec{})
		wantErr(t, "Renew of a revoked family", err, ErrTokenDead)
		_, err = w.write(t, holderOf(tok), s.Ref, "late")
		wantErr(t, "write with a revoked token", err, ErrTokenDead)
		read, err := w.k.Token(t.Context(), w.repo, tok.ID)
		if err != nil || !read.RevokedAt.Equal(w.clock.Now()) {
			t.Errorf("Token = %+v, %v, want it revoked at %v", read, err, w.clock.Now())
		}
	}
	wantErr(t, "Standing of another family", w.standing(apart), nil)
	w.clock.advance(time.Minute) // the first has expired, its family has not
	w.revoke(t, "s1", first.ID)
}

func TestTokenIsOfOneSessionAndRepo(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	a, b := w.session(t, CreateSpec{ID: "a"}), w.session(t, CreateSpec{ID: "b"})
	tok := w.issue(t, "a", TokenSpec{})
	actor := holderOf(tok)
	forged := actor
	forged.Session = "b"
	elsewhere := Repo{ID: "r2", Org: "acme", Name: "other"}
	wantErr(t, "Standing on another's ref", w.k.Standing(t.Context(), w.repo, actor, b.Ref), ErrTokenDead)
	wantErr(t, "Standing as another", w.k.Standing(t.Context(), w.repo, forged, a.Ref), ErrTokenDead)
	wantErr(t, "Standing on an ordinary ref", w.k.Standing(t.Context(), w.repo, actor, "refs/heads/main"), ErrTokenDead)
	wantErr(t, "Standing in another repo", w.k.Standing(t.Context(), elsewhere, actor, a.Ref), ErrTokenDead)
	wantErr(t, "Standing of a customer's token", w.k.Standing(t.Context(), w.repo, backend(), a.Ref), ErrTokenDead)
	_, err := w.write(t, actor, b.Ref, "across")
	wantErr(t, "write to another session", err, ErrForeignSession)
	_, err = w.k.Token(t.Context(), elsewhere, tok.ID)
	wantErr(t, "Token in another repo", err, ErrTokenNotFound)
	w.end(t, "a")
	wantErr(t, "Standing after the end", w.standing(tok), ErrTokenDead)
	again := w.session(t, CreateSpec{ID: "a2", Branch: "sessions/a"})
	if again.Ref != a.Ref {
		t.Fatalf("the branch of a2 is %s, want %s", again.Ref, a.Ref)
	}
	wantErr(t, "Standing when another session has the branch", w.standing(tok), ErrTokenDead)
}

func TestLostWritesMakeTokensStale(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "s1"})
	tok := w.issue(t, "s1", TokenSpec{})
	_, err := w.ledger.Apply(t.Context(), ledger.Batch{Space: ledger.RepoSpace(w.repo.ID), Adds: []ledger.Add{{Key: baseKey, Delta: 1 << 20}}})
	if err != nil {
		t.Fatalf("Apply: %v", err)
	}
	wantStale(t, "Standing", w.standing(tok), 1, 1<<20+1)
	wantErr(t, "Standing of a new one", w.standing(w.issue(t, "s1", TokenSpec{})), nil)
}

func TestTokensListsNewestFirst(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "s1"})
	w.session(t, CreateSpec{ID: "s10"}) // whose keys begin like s1's
	w.issue(t, "s10", TokenSpec{})
	var want []string
	for i := range 7 {
		ttl := time.Hour
		if i == 3 {
			ttl = time.Minute
		}
		tok := w.issue(t, "s1", TokenSpec{TTL: ttl})
		if i != 3 {
			want = append(want, tok.ID)
		}
		w.clock.advance(time.Second)
	}
	last, err := w.k.Token(t.Context(), w.repo, want[0])
	if err != nil {
		t.Fatalf("Token: %v", err)
	}
	renewed, err := w.renew(last, TokenSpec{TTL: time.Hour})
	if err != nil {
		t.Fatalf("Renew: %v", err)
	}
	want = append(want, renewed.ID)
	slices.Reverse(want)
	w.clock.advance(time.Minute)
	for _, limit := range []int{1, 2, 3, 7, 100} {
		var got []string
		cursor := ""
		for first := true; first || cursor != ""; first = false {
			page, next, err := w.k.Tokens(t.Context(), w.repo, w.door(backend()), "s1", cursor, limit)
			if err != nil || len(page) > limit {
				t.Fatalf("Tokens(limit %d) = %d, %v", limit, len(page), err)
			}
			for _, tok := range page {
				got = append(got, tok.ID)
			}
			cursor = next
		}
		if !slices.Equal(got, want) {
			t.Errorf("Tokens by %d = %v, want %v", limit, got, want)
		}
	}
	_, _, err = w.k.Tokens(t.Context(), w.repo, w.door(backend()), "s1", "../x", 1)
	wantErr(t, "Tokens with a malformed cursor", err, ErrBadCursor)
	_, _, err = w.k.Tokens(t.Context(), w.repo, w.door(backend()), "none", "", 1)
	wantErr(t, "Tokens of no session", err, ErrNotFound)
}

func TestA17_IssueTwiceWithOneKey(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "s1"})
	once := &ledger.Once[Token]{Key: "k", Answer: func(tok Token) ([]byte, error) { return []byte(tok.ID), nil }}
	tok := w.issue(t, "s1", TokenSpec{Once: once})
	w.end(t, "s1")
	_, err := w.k.Issue(t.Context(), w.repo, w.door(backend()), backend(), "s1", TokenSpec{Once: once})
	if stored, ok := ledger.IsRepeated(err); !ok || string(stored) != tok.ID {
		t.Errorf("Issue again after the end: %q, %v, want the stored answer %s", stored, err, tok.ID)
	}
	w.session(t, CreateSpec{ID: "s2"})
	old := w.issue(t, "s2", TokenSpec{})
	once = &ledger.Once[Token]{Key: "r", Answer: once.Answer}
	renewed, err := w.renew(old, TokenSpec{Once: once})
	if err != nil {
		t.Fatalf("Renew: %v", err)
	}
	w.revoke(t, "s2", old.ID)
	_, err = w.renew(old, TokenSpec{Once: once})
	if stored, ok := ledger.IsRepeated(err); !ok || string(stored) != renewed.ID {
		t.Errorf("Renew again: %q, %v, want the stored answer %s", stored, err, renewed.ID)
	}
}

func TestFailedIssueLeavesNothing(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "s1"})
	before := w.keys(t, "session")
	broken := errors.New("disk is gone")
	w.ledger.beforeApply(func(ledger.Batch) error { return broken })
	_, err := w.k.Issue(t.Context(), w.repo, w.door(backend()), backend(), "s1", TokenSpec{})
	wantErr(t, "Issue", err, broken)
	w.ledger.beforeApply(nil)
	if after := w.keys(t, "session"); !slices.Equal(before, after) {
		t.Errorf("a failed issue left %v, want %v", after, before)
	}
}

func TestSweepTokens(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "s1"})
	short, long := w.issue(t, "s1", TokenSpec{TTL: time.Minute}), w.issue(t, "s1", TokenSpec{TTL: time.Hour})
	w.revoke(t, "s1", short.ID)
	sweep := func() time.Time {
		next, err := w.k.sweepTokens(t.Context(), w.repo, w.clock.Now())
		if err != nil {
			t.Fatalf("sweepTokens: %v", err)
		}
		return next
	}
	if next := sweep(); !next.Equal(short.ExpiresAt.Add(sweepGrain)) {
		t.Errorf("the next sweep is at %v, want soon after %v", next, short.ExpiresAt)
	}
	w.clock.advance(time.Minute)
	if next := sweep(); !next.Equal(long.ExpiresAt.Add(sweepGrain)) {
		t.Errorf("the next sweep is at %v, want soon after %v", next, long.ExpiresAt)
	}
	_, err := w.k.Token(t.Context(), w.repo, short.ID)
	wantErr(t, "Token of a swept one", err, ErrTokenNotFound)
	if _, err := w.k.Token(t.Context(), w.repo, long.ID); err != nil {
		t.Errorf("Token of a live one: %v", err)
	}
	wantErr(t, "Standing of a swept, revoked token", w.standing(short), ErrTokenDead)
	w.clock.advance(24 * time.Hour)
	sweep()
	if got := w.keys(t, revokedKeys); len(got) != 1 {
		t.Errorf("revocations after a day: %v, want the one there is", got)
	}
	w.clock.advance(time.Hour)
	if next := sweep(); !next.IsZero() {
		t.Errorf("the next sweep is at %v, want none", next)
	}
	for _, list := range []string{revokedKeys, tokenKeys, tokenDueKeys, revokedDueKeys} {
		if got := w.keys(t, list); len(got) != 0 {
			t.Errorf("%v is left", got)
		}
	}
}

func TestSweepTokensGoesOnInPages(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "s1"})
	got, err := w.k.reads(w.repo).read(t.Context(), "s1")
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	g, err := w.k.grant(TokenSpec{TTL: time.Second})
	if err != nil {
		t.Fatalf("grant: %v", err)
	}
	b := ledger.Batch{Space: ledger.RepoSpace(w.repo.ID)}
	for range sweepPage + 1 {
		rec, id, err := g.token(&got.record, got.base, "", backend(), w.clock.Now())
		if err != nil {
			t.Fatalf("token: %v", err)
		}
		b.Sets = append(b.Sets, rec.sets(id)...)
	}
	if _, err := w.ledger.Apply(t.Context(), b); err != nil {
		t.Fatalf("Apply: %v", err)
	}
	if keys := w.leftByTokens(t, "s1"); len(keys) != 2*(sweepPage+1) {
		t.Errorf("tokenKeys = %d, want two for each of %d", len(keys), sweepPage+1)
	}
	w.clock.advance(time.Second)
	for _, left := range []int{1, 0} {
		next, err := w.k.sweepTokens(t.Context(), w.repo, w.clock.Now())
		if err != nil || next.IsZero() != (left == 0) {
			t.Errorf("sweepTokens = %v, %v, want to go on: %v", next, err, left != 0)
		}
		if got := len(w.keys(t, tokenKeys)); got != left {
			t.Errorf("%d tokens are left, want %d", got, left)
		}
	}
}

func (w *world) leftByTokens(t *testing.T, id string) []string {
	t.Helper()
	v, err := w.ledger.Read(t.Context(), ledger.RepoSpace(w.repo.ID))
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	defer v.Close()
	keys, err := w.k.tokenKeys(t.Context(), v, id, 10_000)
	if err != nil {
		t.Fatalf("tokenKeys: %v", err)
	}
	return keys
}

// Whatever the order in which a renewal and a revocation, a takeover or the end come
// to be applied, no token passes afterwards.
func TestRaceRenewAgainstItsEnds(t *testing.T) {
	for name, kill := range map[string]func(w *world, tok Token) error{
		"revoke": func(w *world, tok Token) error {
			return w.k.Revoke(context.Background(), w.repo, w.door(backend()), backend(), "s1", tok.ID, nil)
		},
		"takeover": func(w *world, tok Token) error {
			_, err := w.k.Lease(context.Background(), w.repo, w.door(backend()), backend(), "s1", LeaseSpec{Action: Takeover, Holder: "other"})
			return err
		},
		"end": func(w *world, tok Token) error {
			_, err := w.k.End(context.Background(), w.repo, w.door(backend()), backend(), "s1", EndSpec{Holder: "box"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				w := pebbleWorld(t, testLimits)
				w.session(t, CreateSpec{ID: "s1", Holder: "box"})
				tok := w.issue(t, "s1", TokenSpec{})
				var wg sync.WaitGroup
				made := make([]Token, 4)
				for i := range made {
					wg.Go(func() { made[i], _ = w.renew(tok, TokenSpec{}) })
				}
				if err := kill(w, tok); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				wg.Wait()
				for _, tok := range append(made, tok) {
					if tok.ID != "" && w.standing(tok) == nil {
						t.Fatalf("token %s passes after %s", tok.ID, name)
					}
				}
			}
		})
	}
}

func TestTokensOnRedis(t *testing.T) {
	db, err := redisdb.Open(t.Context(), redistest.Start(t).URL(), redisdb.Options{})
	if err != nil {
		t.Fatalf("redisdb.Open: %v", err)
	}
	defer db.Close()
	w := newWorld(db, testLimits)
	w.session(t, CreateSpec{ID: "s1", Holder: "box"})
	first, apart := w.issue(t, "s1", TokenSpec{}), w.issue(t, "s1", TokenSpec{})
	second, err := w.renew(first, TokenSpec{})
	if err != nil {
		t.Fatalf("Renew: %v", err)
	}
	wantErr(t, "Standing", w.standing(second), nil)
	w.revoke(t, "s1", first.ID)
	wantErr(t, "Standing of a revoked family", w.standing(second), ErrTokenDead)
	page, _, err := w.k.Tokens(t.Context(), w.repo, w.door(backend()), "s1", "", 10)
	if err != nil || len(page) != 3 {
		t.Errorf("Tokens = %d, %v, want 3", len(page), err)
	}
	w.lease(t, "s1", "other", Takeover)
	wantStale(t, "Standing after takeover", w.standing(apart), 1, 2)
}

// A revocation under a key is answered once, also of what is revoked already.
func TestA17_RevokeTwiceWithOneKey(t *testing.T) {
	w := pebbleWorld(t, testLimits)
	w.session(t, CreateSpec{ID: "s1"})
	tok := w.issue(t, "s1", TokenSpec{})
	revoke := func(key string) error {
		once := &ledger.Once[struct{}]{Key: key, Answer: func(struct{}) ([]byte, error) { return []byte(key), nil }}
		return w.k.Revoke(t.Context(), w.repo, w.door(backend()), backend(), "s1", tok.ID, once)
	}
	for _, key := range []string{"first", "of what is revoked"} {
		if err := revoke(key); err != nil {
			t.Errorf("Revoke with key %q: %v", key, err)
		}
		if stored, ok := ledger.IsRepeated(revoke(key)); !ok || string(stored) != key {
			t.Errorf("Revoke again with key %q: stored %q, %v, want the stored answer", key, stored, ok)
		}
	}
}

// Several that revoke one token at once with one key: one is answered, the others are
// told that answer; with keys of their own all are answered.
func TestRaceRevokeWithKeys(t *testing.T) {
	for _, same := range []bool{true, false} {
		w := pebbleWorld(t, testLimits)
		w.session(t, CreateSpec{ID: "s1"})
		tok := w.issue(t, "s1", TokenSpec{})
		var all sync.WaitGroup
		var done, repeated atomic.Int64
		const callers = 8
		for n := range callers {
			key := "one"
			if !same {
				key = fmt.Sprint(n)
			}
			once := &ledger.Once[struct{}]{Key: key, Answer: func(struct{}) ([]byte, error) { return []byte("x"), nil }}
			all.Go(func() {
				err := w.k.Revoke(context.Background(), w.repo, w.door(backend()), backend(), "s1", tok.ID, once)
				if _, ok := ledger.IsRepeated(err); ok {
					repeated.Add(1)
				} else if err == nil {
					done.Add(1)
				} else {
					t.Errorf("Revoke: %v", err)
				}
			})
		}
		all.Wait()
		if want := map[bool]int64{true: 1, false: callers}[same]; done.Load() != want || repeated.Load() != callers-want {
			t.Errorf("one key %v: %d were answered and %d repeated, want %d of %d answered", same, done.Load(), repeated.Load(), want, callers)
		}
	}
}
