package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

func TestPins(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("team/site")
	head := r.commit(nil, file{path: "a", data: "1"})
	made := r.want(201, ask{method: "POST", path: r.path("/pins"), token: r.write, body: meta{"sha": head, "holder": "review 7", "ttl_s": 60}}).json(t)
	if made["sha"] != head || made["holder"] != "review 7" || made["id"] == "" {
		t.Errorf("pin = %v, want %s of review 7", made, head)
	}
	at0, err := time.Parse(time.RFC3339, at(made, "created_at").(string))
	end, err2 := time.Parse(time.RFC3339, at(made, "expires_at").(string))
	if err != nil || err2 != nil || end.Sub(at0) < 59*time.Second || end.Sub(at0) > 61*time.Second {
		t.Errorf("pin from %v to %v (%v, %v), want 60 s", made["created_at"], made["expires_at"], err, err2)
	}
	forever := r.want(201, ask{method: "POST", path: r.path("/pins"), token: r.write, body: meta{"sha": head, "holder": "x"}}).json(t)
	if _, there := forever["expires_at"]; there {
		t.Errorf("pin without ttl_s = %v, want no expires_at", forever)
	}
	page := r.want(200, ask{path: r.path("/pins", "limit", "1"), token: r.read}).json(t)
	if len(page["pins"].([]any)) != 1 || page["has_more"] != true {
		t.Errorf("page of one = %v, want one pin and more", page)
	}
	rest := r.want(200, ask{path: r.path("/pins", "cursor", page["next_cursor"].(string)), token: r.read}).json(t)
	if len(rest["pins"].([]any)) != 1 || rest["has_more"] != false || at(rest, "pins", 0, "id") == at(page, "pins", 0, "id") {
		t.Errorf("next page = %v, want the other pin", rest)
	}
	id := at(made, "id").(string)
	r.want(204, ask{method: "DELETE", path: r.path("/pins/" + id), token: r.write})
	if a := r.want(404, ask{method: "DELETE", path: r.path("/pins/" + id), token: r.write}).json(t); a["code"] != "pin_not_found" {
		t.Errorf("second deletion = %v, want pin_not_found", a)
	}
	if left := r.want(200, ask{path: r.path("/pins"), token: r.read}).json(t); len(left["pins"].([]any)) != 1 {
		t.Errorf("pins = %v, want one", left)
	}
}

func TestPinsRefuse(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	head := r.commit(nil, file{path: "a", data: "1"})
	for _, tc := range []struct {
		status int
		body   any
	}{
		{404, meta{"sha": strings.Repeat("1", 40), "holder": "x"}},
		{400, meta{"sha": "main", "holder": "x"}},
		{400, meta{"sha": head[:10], "holder": "x"}},
		{400, meta{"holder": "x"}},
		{400, meta{"sha": head}},
		{400, meta{"sha": head, "holder": strings.Repeat("x", 257)}},
		{400, meta{"sha": head, "holder": "a\nb"}},
		{400, meta{"sha": head, "holder": "x", "ttl_s": 0}},
		{400, meta{"sha": head, "holder": "x", "ttl_s": -5}},
		{400, meta{"sha": head, "holder": "x", "ttl_s": int64(1) << 62}},
		{400, meta{"sha": head, "holder": "x", "ttl_s": int64(1) << 33}},
		{400, meta{"sha": head, "holder": "x", "ttl_s": "60"}},
		{400, `[]`},
	} {
		r.want(tc.status, ask{method: "POST", path: r.path("/pins"), token: r.write, body: tc.body})
	}
	r.want(403, ask{method: "POST", path: r.path("/pins"), token: r.read, body: meta{"sha": head, "holder": "x"}})
	r.want(403, ask{method: "DELETE", path: r.path("/pins/pin_1"), token: r.read})
	r.want(404, ask{method: "DELETE", path: r.path("/pins/..%2fmeta"), token: r.write})
	r.want(404, ask{method: "DELETE", path: r.path("/pins/pin_1"), token: r.write})
	r.want(400, ask{path: r.path("/pins", "cursor", "zzz"), token: r.read})
}

// A token that may read one session pins nothing else and learns of no pin of
// others; what it is told of a foreign commit is what it is told of a missing one.
func TestA13_PinsTellNothing(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	own := r.commit(meta{"target_branch": "s/a", "ephemeral": true}, file{path: "a", data: "1"})
	r.want(200, ask{method: "POST", path: r.path("/branches/create"), token: r.write, body: meta{"target_branch": "s/b", "target_is_ephemeral": true, "base_ref": "s/a", "base_is_ephemeral": true}})
	secret := r.commit(meta{"target_branch": "s/b", "ephemeral": true}, file{path: "a", data: "2"})
	foreign := at(r.want(201, ask{method: "POST", path: r.path("/pins"), token: r.write, body: meta{"sha": secret, "holder": "x"}}).json(t), "id").(string)
	confined := tokenOf(t, tokens.Claims{Repo: "r", Subject: "sandbox", Scopes: []tokens.Scope{tokens.GitRead, tokens.GitWrite}, Refs: []refpolicy.Rule{
		rule("refs/namespaces/ephemeral/refs/heads/s/a"), rule("*", refpolicy.NoRead),
	}})
	missing := strings.Repeat("1", 40)
	no := r.want(404, ask{method: "POST", path: r.path("/pins"), token: confined, body: meta{"sha": missing, "holder": "x"}})
	hidden := r.want(404, ask{method: "POST", path: r.path("/pins"), token: confined, body: meta{"sha": secret, "holder": "x"}})
	if strings.ReplaceAll(string(no.body), missing, secret) != string(hidden.body) {
		t.Errorf("missing = %s, hidden = %s; want one answer", no.body, hidden.body)
	}
	r.want(404, ask{path: r.path("/file", "ref", secret, "path", "a"), token: confined})
	r.want(404, ask{method: "DELETE", path: r.path("/pins/" + foreign), token: confined})
	r.want(201, ask{method: "POST", path: r.path("/pins"), token: confined, body: meta{"sha": own, "holder": "x"}})
	page := r.want(200, ask{path: r.path("/pins"), token: confined}).json(t)
	if len(page["pins"].([]any)) != 1 || at(page, "pins", 0, "sha") != own {
		t.Errorf("pins of the confined token = %v, want its own alone", page["pins"])
	}
}

// Backends often put one subject into all their tokens. One that is confined to a
// session sees and deletes no pins that others of its subject made; its own it still
// does when its branch is gone.
func TestA13_PinsOfOneSubject(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	r.commit(nil, file{path: "b", data: "0"})
	own := r.commit(meta{"target_branch": "s/a", "base_branch": "main", "ephemeral": true}, file{path: "a", data: "1"})
	secret := r.commit(meta{"target_branch": "s/b", "base_branch": "main", "ephemeral": true}, file{path: "b", data: "3"})
	confinedTo := func(branch string) string {
		return tokenOf(t, tokens.Claims{Repo: "r", Scopes: []tokens.Scope{tokens.GitRead, tokens.GitWrite}, Refs: []refpolicy.Rule{
			rule("refs/namespaces/ephemeral/refs/heads/" + branch), rule("*", refpolicy.NoRead),
		}})
	}
	pin := func(token, sha string) string {
		return at(r.want(201, ask{method: "POST", path: r.path("/pins"), token: token, body: meta{"sha": sha, "holder": "x"}}).json(t), "id").(string)
	}
	a, b := confinedTo("s/a"), confinedTo("s/b")
	foreign := []string{pin(r.write, secret), pin(b, secret)}
	mine := pin(a, own)
	r.want(200, ask{method: "DELETE", path: r.path("/branches"), token: r.write, body: meta{"name": "s/a", "ephemeral": true}})
	if page := r.want(200, ask{path: r.path("/pins"), token: confinedTo("s/a")}).json(t); len(page["pins"].([]any)) != 1 || at(page, "pins", 0, "id") != mine {
		t.Errorf("pins of the confined token = %v, want its own alone", page["pins"])
	}
	for _, id := range foreign {
		r.want(404, ask{method: "DELETE", path: r.path("/pins/" + id), token: a})
	}
	r.want(204, ask{method: "DELETE", path: r.path("/pins/" + mine), token: a})
}

// After 50 states every one reads. When the session is deleted and swept, what is
// pinned reads on, and nothing else of it.
func TestA10_StatesAfterTheSweep(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	r.commit(nil, file{path: "a", data: "main"})
	var states []string
	for i := range 50 {
		states = append(states, r.commit(meta{"target_branch": "s", "base_branch": "main", "ephemeral": true}, file{path: "a", data: fmt.Sprint("state ", i)}))
	}
	for i, sha := range states {
		if got := r.content(sha, "a"); got != fmt.Sprint("state ", i) {
			t.Errorf("a at state %d is %q", i, got)
		}
	}
	r.want(201, ask{method: "POST", path: r.path("/pins"), token: r.write, body: meta{"sha": states[25], "holder": "reader"}})
	r.want(200, ask{method: "DELETE", path: r.path("/branches"), token: r.write, body: meta{"name": "s", "ephemeral": true}})
	if _, err := g.server.Store.GC(t.Context(), nil, true); err != nil {
		t.Fatalf("GC: %v", err)
	}
	for i, sha := range states {
		status := 404
		if i <= 25 { // the pinned one and what it builds on
			status = 200
		}
		a := r.want(status, ask{path: r.path("/file", "ref", sha, "path", "a"), token: r.read})
		if status == 404 && at(a.json(t), "code") != "object_not_found" {
			t.Errorf("state %d = %s, want object_not_found", i, a.body)
		}
	}
}
