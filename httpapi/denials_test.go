package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/tokens"
)

// denyingGate is a gate with an operator whose denials its verifier asks.
func denyingGate(t testing.TB) *gate {
	t.Helper()
	return operatorGate(t, func(c *Config) {
		list := tokens.NewDenyList(c.Sessions.Ledger, tokens.DenyListOptions{Now: c.Now})
		t.Cleanup(list.Close)
		c.Denials = list
		c.Tokens = tokens.NewVerifier(keyringOf(t, "acme"), c.Now, tokens.WithDenyList(list))
	})
}

// A leaked token is refused from the answer on, by API and git, named by its hash, its
// jti or its subject; other tokens are not; and taken back it is good again.
func TestDenyALeakedToken(t *testing.T) {
	g := denyingGate(t)
	r := g.newRepo("site")
	leaked := tokenOf(t, tokens.Claims{Repo: "site", ID: "token-7", Subject: "runner", IssuedAt: time.Now().Add(-time.Minute), Scopes: []tokens.Scope{tokens.GitWrite}})
	c := g.operator(operatorKey)
	for _, d := range []client.Denial{
		{TokenSHA256: tokens.TokenSHA256(leaked), Reason: "seen in a log"},
		{TokenID: "token-7", Until: time.Now().Add(time.Hour)},
		{Subject: "runner"},
	} {
		g.want(200, ask{path: "/api/whoami", token: leaked})
		made, err := c.Deny(t.Context(), "acme", d)
		if err != nil {
			t.Fatalf("Deny(%+v) = %v", d, err)
		}
		if made.By != "operator" || made.At.IsZero() || made.Reason != d.Reason || !made.Until.Equal(d.Until) || (d.Subject != "") == made.IssuedBefore.IsZero() {
			t.Errorf("Deny(%+v) = %+v, want the same with who, when and an id", d, made)
		}
		for _, path := range []string{"/api/whoami", r.path("/branches"), "/site.git/info/refs?service=git-upload-pack", "/site.git/info/refs?service=git-receive-pack"} {
			if a := g.do(ask{path: path, token: leaked}); a.status != 401 {
				t.Errorf("GET %s with a denied token = %d %s, want 401", path, a.status, a.body)
			}
		}
		g.refused(401, codeUnauthorized, ask{method: "POST", path: r.path("/commit-pack"), token: leaked, body: pack(t, nil, file{path: "a", data: "1"})})
		g.want(200, ask{path: r.path("/branches"), token: r.write})
		if got := listDenials(t, c, "acme"); len(got) != 1 || got[0] != made {
			t.Errorf("denials = %+v, want %+v", got, made)
		}
		if got := listDenials(t, c, "other"); len(got) != 0 {
			t.Errorf("denials of another org = %+v", got)
		}
		if err := c.Allow(t.Context(), "acme", made.ID); err != nil {
			t.Fatalf("Allow(%s) = %v", made.ID, err)
		}
		var refused *client.ServerError
		if err := c.Allow(t.Context(), "acme", made.ID); !errors.As(err, &refused) || refused.Status != 404 || refused.Code != codeNoDenial {
			t.Errorf("Allow again = %v, want 404 %s", err, codeNoDenial)
		}
	}
	g.want(200, ask{path: "/api/whoami", token: leaked})
}

func listDenials(t testing.TB, c *client.Client, org string) (list []client.Denial) {
	t.Helper()
	if err := c.Denials(t.Context(), org, func(d client.Denial) { list = append(list, d) }); err != nil {
		t.Fatalf("Denials(%s) = %v", org, err)
	}
	return list
}

// A denial ends at its time, and its pages are in order and without gaps.
func TestDenialsEndAndArePaged(t *testing.T) {
	g := denyingGate(t)
	g.newRepo("site")
	c := g.operator(operatorKey)
	tok := tokenOf(t, tokens.Claims{Repo: "site", ID: "t-000", ExpiresAt: time.Now().Add(5 * time.Hour), Scopes: []tokens.Scope{tokens.GitRead}})
	if _, err := c.Deny(t.Context(), "acme", client.Denial{TokenID: "t-000", Until: g.clock.now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	g.want(401, ask{path: "/api/whoami", token: tok})
	g.clock.advance(2 * time.Hour)
	g.want(200, ask{path: "/api/whoami", token: tok})
	for i := 1; i < 7; i++ {
		if _, err := c.Deny(t.Context(), "acme", client.Denial{TokenID: fmt.Sprintf("t-%03d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for cursor, pages := "", 0; ; pages++ {
		v := g.want(200, ask{path: "/api/operator/denials?org=acme&limit=3&cursor=" + cursor, token: operatorKey}).json(t)
		for _, d := range v["denials"].([]any) {
			ids = append(ids, at(d, "jti").(string))
		}
		next, more := v["next_cursor"].(string)
		if more != v["has_more"].(bool) {
			t.Errorf("page %d: next_cursor %q, has_more %v", pages, next, v["has_more"])
		}
		if !more {
			break
		}
		cursor = next
	}
	if got := fmt.Sprint(ids); got != "[t-000 t-001 t-002 t-003 t-004 t-005 t-006]" {
		t.Errorf("denials by pages = %s", got)
	}
}

// What is no denial is refused by its error, and without the key there is nothing.
func TestDenialsRefusals(t *testing.T) {
	g := denyingGate(t)
	for _, tc := range []struct {
		method, path string
		body         any
		status       int
		code         string
	}{
		{"POST", "deny", meta{"jti": "x"}, 400, codeInvalid},
		{"POST", "deny", meta{"org": "acme"}, 400, codeInvalid},
		{"POST", "deny", meta{"org": "acme", "jti": "x", "sub": "y"}, 400, codeInvalid},
		{"POST", "deny", meta{"org": "acme", "token_sha256": "abc"}, 400, codeInvalid},
		{"POST", "deny", meta{"org": "acme", "jti": "x", "issued_before": "2026-01-01T00:00:00Z"}, 400, codeInvalid},
		{"POST", "deny", meta{"org": "acme", "jti": "x", "until": "2020-01-01T00:00:00Z"}, 400, codeInvalid},
		{"POST", "deny", meta{"org": "acme", "jti": "x", "until": "tomorrow"}, 400, codeInvalid},
		{"POST", "deny", "[]", 400, codeInvalid},
		{"POST", "allow", meta{"id": "deny-jti/x"}, 400, codeInvalid},
		{"POST", "allow", meta{"org": "acme", "id": "deny-jti/x"}, 404, codeNoDenial},
		{"POST", "allow", meta{"org": "acme", "id": "quota"}, 404, codeNoDenial},
		{"GET", "denials", nil, 400, codeInvalid},
		{"GET", "denials?org=acme&cursor=quota", nil, 400, codeInvalid},
		{"GET", "denials?org=acme&limit=x", nil, 400, codeInvalid},
	} {
		a := ask{method: tc.method, path: operatorPrefix + tc.path, token: operatorKey, body: tc.body}
		g.refused(tc.status, tc.code, a)
		a.token = token(t, "org", tokens.OrgRead, tokens.RepoWrite)
		g.refused(http.StatusUnauthorized, codeUnauthorized, a)
	}
	none := operatorGate(t)
	none.refused(400, codeNotSupported, ask{method: "POST", path: operatorPrefix + "deny", token: operatorKey, body: meta{"org": "acme", "jti": "x"}})
}
