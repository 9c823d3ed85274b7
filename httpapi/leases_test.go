package httpapi

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

func TestLeaseActions(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a"})
	got := h.lease(200, "a", meta{"action": "acquire", "holder": "A", "ttl_s": 30})
	if got["epoch"] != 2.0 || got["holder"] != "A" || got["expires_at"] == nil {
		t.Errorf("first lease = %v, want epoch 2", got)
	}
	held := h.refused(409, "lease_held", ask{method: "POST", path: h.path("/sessions/a/lease"), token: h.write, body: meta{"action": "acquire", "holder": "B"}})
	if at(held, "lease", "holder") != "A" || at(held, "lease", "expires_at") == nil || held["hint"] == nil {
		t.Errorf("held lease = %v, want who has it, until when, and what to do", held)
	}
	if got = h.lease(200, "a", meta{"action": "renew", "holder": "A", "ttl_s": 60, "epoch": 2}); got["epoch"] != 2.0 {
		t.Errorf("renewed lease = %v, want epoch 2", got)
	}
	h.lease(409, "a", meta{"action": "renew", "holder": "A", "epoch": 1})
	if got = h.lease(200, "a", meta{"action": "takeover", "holder": "B"}); got["epoch"] != 3.0 || got["holder"] != "B" {
		t.Errorf("takeover = %v, want epoch 3 of B", got)
	}
	lost := h.lease(409, "a", meta{"action": "renew", "holder": "A"})
	if hint, _ := lost["hint"].(string); lost["code"] != "lease_lost" || !strings.Contains(hint, "acquire") {
		t.Errorf("renewal of a lost lease = %v, want lease_lost and what to do", lost)
	}
	h.lease(200, "a", meta{"action": "release", "holder": "B"})
	h.lease(409, "a", meta{"action": "release", "holder": "B"})
	if got := h.want(200, ask{path: h.path("/sessions/a"), token: h.read}).json(t); got["lease"] != nil || got["epoch"] != 3.0 {
		t.Errorf("session after release = %v, want no lease at epoch 3", got)
	}
}

// Renewing in time, at the last moment, after the end, and with odd times.
func TestCase13_2_Renew(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a", "holder": "A", "lease_ttl_s": 20})
	renew := func(status int, ttl any) map[string]any {
		t.Helper()
		return h.lease(status, "a", meta{"action": "renew", "holder": "A", "ttl_s": ttl})
	}
	h.clock.advance(10 * time.Second)
	renew(200, 20)
	h.clock.advance(19 * time.Second)
	renew(200, 20)
	for _, odd := range []any{0, -1, 1.5, "20", int64(1) << 40} {
		if got := renew(400, odd); got["code"] != "invalid_request" {
			t.Errorf("renewal for %v s = %v", odd, got)
		}
	}
	end, err := time.Parse(time.RFC3339, renew(200, 1_000_000_000)["expires_at"].(string))
	if left := end.Sub(h.clock.now()); err != nil || left > 24*time.Hour {
		t.Errorf("renewal for 10^9 s holds for %v, want at most the longest time", left)
	}
	renew(200, 1)
	h.clock.advance(2 * time.Second)
	if got := renew(409, 20); got["code"] != "lease_lost" {
		t.Errorf("renewal after the end = %v, want lease_lost", got)
	}
	h.lease(200, "a", meta{"action": "acquire", "holder": "B"})
	if got := renew(409, 20); got["code"] != "lease_lost" {
		t.Errorf("renewal after the end, of another's = %v, want lease_lost", got)
	}
}

func TestLeaseRefusals(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a"})
	for _, body := range []any{
		meta{"holder": "A"}, meta{"action": "steal", "holder": "A"}, meta{"action": "acquire"}, meta{"action": "acquire", "holder": "A", "wait_s": -1},
		meta{"action": "acquire", "holder": strings.Repeat("A", 257)}, meta{"action": "acquire", "holder": "A", "epoch": -1}, `[]`,
	} {
		h.refused(400, "invalid_request", ask{method: "POST", path: h.path("/sessions/a/lease"), token: h.write, body: body})
	}
	readOnly := tokenOf(t, tokens.Claims{Repo: h.name, Scopes: []tokens.Scope{tokens.GitWrite}, Refs: []refpolicy.Rule{rule("*", refpolicy.NoPush)}})
	h.refused(403, "policy_denied", ask{method: "POST", path: h.path("/sessions/a/lease"), token: readOnly, body: meta{"action": "acquire", "holder": "A"}})
	h.refused(403, "forbidden", ask{method: "POST", path: h.path("/sessions/a/lease"), token: h.read, body: meta{"action": "acquire", "holder": "A"}})
}

// Who waits for a lease gets it when it is released, and holds nobody up meanwhile,
// even where only one request works at a time and bodies have little time.
func TestLeaseWait(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.Limits.Turns, c.Limits.IdleTimeout = 1, time.Second })
	h.session(meta{"id": "a", "holder": "A"})
	waited := make(chan answer, 1)
	go func() {
		waited <- h.do(ask{method: "POST", path: h.path("/sessions/a/lease"), token: h.write, body: meta{"action": "acquire", "holder": "B", "wait_s": 30}})
	}()
	for range 12 { // longer than a body may stand still
		h.lease(200, "a", meta{"action": "renew", "holder": "A"})
		select {
		case got := <-waited:
			t.Fatalf("who waits was answered %d %s while the lease was held", got.status, got.body)
		case <-time.After(100 * time.Millisecond):
		}
	}
	h.lease(200, "a", meta{"action": "release", "holder": "A"})
	got := <-waited
	if v := got.json(t); got.status != 200 || v["holder"] != "B" || v["epoch"] != 2.0 {
		t.Errorf("who waited got %d %s, want the lease at epoch 2", got.status, got.body)
	}
}
