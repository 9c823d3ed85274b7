package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// A sessionDoor is a route of sessions by which a token might be told of what it may
// not read; name is an object's id, or that of a session, a fork or a token.
type sessionDoor struct {
	what string
	ask  func(h *house, name string) ask
}

// objectDoors take an object's id, recordDoors that of a fork of another session.
var (
	objectDoors = []sessionDoor{
		{"session at it", func(h *house, oid string) ask {
			return ask{method: "POST", path: h.path("/sessions"), body: meta{"id": "x", "branch": "mine/x", "base_ref": oid}}
		}},
		{"session at it, ephemeral", func(h *house, oid string) ask {
			return ask{method: "POST", path: h.path("/sessions"), body: meta{"id": "x", "branch": "mine/x", "base_ref": oid, "base_is_ephemeral": true}}
		}},
		{"session at what is before it", func(h *house, oid string) ask {
			return ask{method: "POST", path: h.path("/sessions"), body: meta{"id": "x", "branch": "mine/x", "base_ref": oid + "~1"}}
		}},
		{"session from it", func(h *house, oid string) ask {
			return ask{method: "POST", path: h.path("/sessions"), body: meta{"id": "x", "branch": "mine/x", "from_session": oid}}
		}},
		{"its file", func(h *house, oid string) ask { return ask{path: h.path("/file", "ref", oid, "path", "secret")} }},
		{"its commit", func(h *house, oid string) ask { return ask{path: h.path("/commit", "sha", oid)} }},
		{"its history", func(h *house, oid string) ask { return ask{path: h.path("/commits", "branch", oid)} }},
		{"its changes", func(h *house, oid string) ask { return ask{path: h.path("/diff", "sha", oid)} }},
	}
	recordDoors = []sessionDoor{
		{"fork", func(h *house, id string) ask { return ask{path: h.path("/forks/" + id)} }},
		{"comparison", func(h *house, id string) ask { return ask{path: h.path("/forks/" + id + "/compare")} }},
		{"pick", func(h *house, id string) ask {
			return ask{method: "POST", path: h.path("/forks/" + id + "/pick"), body: meta{"winner": "x"}}
		}},
		{"closing", func(h *house, id string) ask { return ask{method: "DELETE", path: h.path("/forks/" + id)} }},
		{"list below it", func(h *house, id string) ask { return ask{path: h.path("/sessions", "parent", id)} }},
	}
)

// For who may read session a alone, what only another reaches, and its forks and tokens,
// are like what is not there, by a customer's token and by an issued one.
func TestA13_SessionsTellNothing(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a"})
	h.session(meta{"id": "other-77"})
	secret := at(h.commitAs(h.write, "sessions/other-77", "secret", "1").json(t), "commit", "commit_sha").(string)
	group := h.fork(201, "other-77", meta{"n": 2})["group_id"].(string)
	foreign := h.issue("other-77", meta{})["jti"].(string)
	bearers := map[string]string{
		"issued": h.issued("a"),
		"customer's": tokenOf(t, tokens.Claims{Repo: h.name, Scopes: []tokens.Scope{tokens.GitWrite}, Refs: []refpolicy.Rule{
			rule(refOfSession("a"), refpolicy.NoForcePush), rule(refpolicy.EphemeralBranchPrefix + "mine/*"), rule("*", refpolicy.NoRead),
		}}),
	}
	absent := strings.Repeat("1234567890", 4)
	alike := func(who, what, there, missing string, one, other ask) {
		t.Helper()
		one.token, other.token = bearers[who], bearers[who]
		got, want := h.do(one), h.do(other)
		if got.status == 200 && !strings.HasPrefix(what, "list") || got.status == 201 || got.status >= 500 || got.status != want.status ||
			strings.ReplaceAll(string(got.body), there, "NAME") != strings.ReplaceAll(string(want.body), missing, "NAME") {
			t.Errorf("%s of %s by %s token = %d %.300s, what is not there is %d %.300s", what, there, who, got.status, got.body, want.status, want.body)
		}
	}
	for who := range bearers {
		for _, d := range objectDoors {
			alike(who, d.what, secret, absent, d.ask(h, secret), d.ask(h, absent))
		}
		for _, d := range recordDoors {
			alike(who, d.what, group, "fork_0", d.ask(h, group), d.ask(h, "fork_0"))
			alike(who, d.what, "other-77", "nope", d.ask(h, "other-77"), d.ask(h, "nope"))
		}
		q := func(jti string) ask { return ask{method: "DELETE", path: h.path("/sessions/a/tokens/" + jti)} }
		alike(who, "revocation", foreign, "nope", q(foreign), q("nope"))
	}
	if got := ids(h.want(200, ask{path: h.path("/sessions"), token: h.read}).json(t)); len(got) != 4 {
		t.Errorf("sessions = %v, want two and two children: no door made one", got)
	}
	h.want(200, ask{path: h.path("/sessions/other-77/tokens"), token: h.write})
	if list := h.want(200, ask{path: h.path("/sessions/other-77/tokens"), token: h.write}).json(t); at(list, "tokens", 0, "revoked_at") != nil {
		t.Errorf("a foreign token was revoked: %v", fmt.Sprint(list))
	}
}
