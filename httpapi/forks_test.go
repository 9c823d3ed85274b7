package httpapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// fork forks a session and gives the answer.
func (h *house) fork(status int, id string, body meta) map[string]any {
	h.t.Helper()
	return h.post(status, "/sessions/"+id+"/fork", body)
}

// children are the ids of an answer's children.
func children(fork map[string]any) []string {
	var ids []string
	for _, c := range fork["children"].([]any) {
		ids = append(ids, at(c, "session", "id").(string))
	}
	return ids
}

func TestD04_Fork(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "p", "labels": meta{"team": "red"}})
	state := at(h.commitAs(h.write, "sessions/p", "x", "1").json(t), "commit", "commit_sha").(string)
	got := h.fork(201, "p", meta{"n": 8, "labels": meta{"try": "1"}, "token": meta{"ttl_s": 600, "sub": "child"}})
	if got["state_sha"] != state || got["parent_id"] != "p" || got["keep_state"] != true || len(got["failed"].([]any)) != 0 || got["group_id"] == "" {
		t.Errorf("fork = %v, want one of p at %s", got, state)
	}
	ids := children(got)
	seen := map[string]bool{}
	for i, id := range ids {
		c := at(got, "children", i)
		tok := at(c, "token", "token").(string)
		seen[id], seen[tok], seen[at(c, "token", "jti").(string)] = true, true, true
		if at(c, "session", "head_sha") != state || at(c, "session", "base_sha") != state || at(c, "session", "parent_id") != "p" ||
			at(c, "session", "group_id") != got["group_id"] || at(c, "session", "labels", "try") != "1" || at(c, "session", "labels", "team") != "red" {
			t.Errorf("child = %v, want one of p at its state", at(c, "session"))
		}
		if a := h.commitAs(tok, "sessions/"+id, "y", fmt.Sprint(i)); a.status != 201 {
			t.Errorf("commit of child %d = %d %s", i, a.status, a.body)
		}
		if a := h.commitAs(tok, "sessions/"+ids[(i+1)%8], "y", "z"); a.status != 403 {
			t.Errorf("commit of child %d to another = %d %s", i, a.status, a.body)
		}
	}
	if len(ids) != 8 || len(seen) != 24 {
		t.Errorf("fork(8) = %d children, %d ids and tokens", len(ids), len(seen))
	}
	if head := h.head("sessions/p", true); head != state {
		t.Errorf("the parent is at %s, want %s", head, state)
	}
	again := h.want(200, ask{path: h.path("/forks/" + got["group_id"].(string)), token: h.read}).json(t)
	if !slices.Equal(children(again), ids) || at(again, "children", 0, "token") != nil {
		t.Errorf("fork as told later = %v, want the same children and no tokens", again)
	}
	if plain := h.fork(201, "p", meta{"n": 1, "keep_state": false}); at(plain, "children", 0, "token") != nil || plain["keep_state"] != false {
		t.Errorf("fork without tokens = %v", plain)
	}
}

// A fork over a limit makes nothing.
func TestD05_ForkOverLimits(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.Sessions.Limits.MaxLive = 4 })
	h.session(meta{"id": "p"})
	nine := h.refused(400, "invalid_request", ask{method: "POST", path: h.path("/sessions/p/fork"), token: h.write, body: meta{"n": 9}})
	if !strings.Contains(nine["detail"].(string), "max_fork_n") {
		t.Errorf("fork(9) = %v, want the limit's name", nine)
	}
	four := h.refused(409, "no_slots", ask{method: "POST", path: h.path("/sessions/p/fork"), token: h.write, body: meta{"n": 4}})
	if !strings.Contains(four["detail"].(string), "max_live") {
		t.Errorf("fork(4) = %v, want the limit's name", four)
	}
	if got := ids(h.want(200, ask{path: h.path("/sessions"), token: h.read}).json(t)); !slices.Equal(got, []string{"p"}) {
		t.Errorf("sessions = %v, want p alone", got)
	}
	h.fork(201, "p", meta{"n": 3})
	h.refused(409, "no_slots", ask{method: "POST", path: h.path("/sessions"), token: h.write, body: meta{}})
}

func TestForkRefuses(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "p"})
	narrow := tokenOf(t, tokens.Claims{Repo: h.name, Scopes: []tokens.Scope{tokens.GitWrite}, Refs: []refpolicy.Rule{rule(refOfSession("p")), rule("*", refpolicy.NoPush)}})
	for _, tc := range []struct {
		status int
		code   string
		token  string
		id     string
		body   any
	}{
		{400, "invalid_request", h.write, "p", meta{}}, {400, "invalid_request", h.write, "p", meta{"n": 0}}, {400, "invalid_request", h.write, "p", meta{"n": -1}},
		{400, "invalid_request", h.write, "p", meta{"n": 1, "token": meta{"ttl_s": 0}}}, {400, "invalid_request", h.write, "p", meta{"n": 1, "wait_s": -1}},
		{400, "invalid_request", h.write, "p", meta{"n": 1, "ttl_s": 0}}, {400, "invalid_request", h.write, "p", meta{"n": 1, "labels": meta{"a b": ""}}},
		{404, "session_not_found", h.write, "nope", meta{"n": 1}}, {403, "forbidden", h.read, "p", meta{"n": 1}}, {403, "policy_denied", narrow, "p", meta{"n": 1}},
	} {
		h.refused(tc.status, tc.code, ask{method: "POST", path: h.path("/sessions/" + tc.id + "/fork"), token: tc.token, body: tc.body})
	}
	for _, q := range []ask{
		{path: h.path("/forks/nope")}, {path: h.path("/forks/nope/compare")}, {method: "POST", path: h.path("/forks/nope/pick"), body: meta{"winner": "x"}},
		{method: "DELETE", path: h.path("/forks/nope")}, {path: h.path("/forks/..%2fmeta")},
	} {
		q.token = h.write
		h.refused(404, "fork_not_found", q)
	}
}

// A child that its runner reports failed: strict names the good ones, which stay
// usable; otherwise both lists are told.
func TestD06_ForkWaits(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "p"})
	for _, strict := range []bool{true, false} {
		answered := make(chan answer, 1)
		go func() {
			answered <- h.do(ask{method: "POST", path: h.path("/sessions/p/fork"), token: h.write, body: meta{"n": 8, "strict": strict, "wait_s": 30, "labels": meta{"strict": fmt.Sprint(strict)}}})
		}()
		var made []string
		for until := time.Now().Add(20 * time.Second); len(made) < 8 && time.Now().Before(until); {
			made = ids(h.want(200, ask{path: h.path("/sessions", "label", fmt.Sprint("strict:", strict)), token: h.read}).json(t))
		}
		if len(made) != 8 {
			t.Fatalf("%d children are there while the fork waits, want 8", len(made))
		}
		group := h.want(200, ask{path: h.path("/sessions/" + made[0]), token: h.read}).json(t)["group_id"].(string)
		for i, id := range made {
			body := meta{"valid": i != 3}
			if i == 3 {
				body["reason"] = "no kernel"
			}
			h.want(200, ask{method: "PUT", path: h.path("/forks/" + group + "/children/" + id + "/validity"), token: h.write, body: body})
		}
		a := <-answered
		got := a.json(t)
		if want := map[bool]int{true: 409, false: 201}[strict]; a.status != want || strict && got["code"] != "fork_failed" {
			t.Errorf("fork with a failed child, strict %v = %d %s", strict, a.status, a.body)
		}
		if good := children(got); len(good) != 7 || slices.Contains(good, made[3]) || at(got, "failed", 0, "session_id") != made[3] || at(got, "failed", 0, "reason") != "no kernel" || got["group_id"] != group {
			t.Errorf("fork with a failed child, strict %v = %s", strict, a.body)
		}
		if a := h.commitAs(h.write, "sessions/"+made[0], "x", "1"); a.status != 201 {
			t.Errorf("commit to a good child = %d %s", a.status, a.body)
		}
		for _, tc := range []struct {
			status int
			code   string
			child  string
			body   any
		}{{400, "invalid_request", made[0], meta{}}, {404, "fork_not_found", "p", meta{"valid": true}}, {404, "session_not_found", "nope", meta{"valid": true}}} {
			h.refused(tc.status, tc.code, ask{method: "PUT", path: h.path("/forks/" + group + "/children/" + tc.child + "/validity"), token: h.write, body: tc.body})
		}
	}
}

// The state of a fork goes with its last child, unless it is kept.
func TestD07_StateOfAFork(t *testing.T) {
	h := newHouse(t)
	pins := func() []any {
		return h.want(200, ask{path: h.path("/pins"), token: h.read}).json(t)["pins"].([]any)
	}
	for left, keep := range []bool{false, true} { // how many pins stay
		id := fmt.Sprint("p-", keep)
		h.session(meta{"id": id})
		state := at(h.commitAs(h.write, "sessions/"+id, "x", id).json(t), "commit", "commit_sha")
		got := h.fork(201, id, meta{"n": 2, "keep_state": keep})
		group := got["group_id"].(string)
		if held := pins(); len(held) != 1 || at(held[0], "sha") != state {
			t.Errorf("pins of a fork = %v, want its state", held)
		}
		h.want(200, ask{method: "DELETE", path: h.path("/sessions/" + children(got)[0]), token: h.write})
		if held := pins(); len(held) != 1 {
			t.Errorf("pins with one child left = %v, want the state", held)
		}
		closed := h.want(200, ask{method: "DELETE", path: h.path("/forks/" + group), token: h.write}).json(t)
		if closed["ended"] != 1.0 || closed["gone"] != 1.0 || closed["state_gone"] != !keep {
			t.Errorf("closing with keep_state %v = %v", keep, closed)
		}
		if held := pins(); len(held) != left {
			t.Errorf("pins of a closed fork with keep_state %v = %v", keep, held)
		}
		told := h.want(200, ask{path: h.path("/forks/" + group), token: h.read}).json(t)
		if told["closed_at"] == nil || at(told, "children", 0, "session", "state") != "ended" || at(told, "children", 1, "session", "end_cause") != "closed" {
			t.Errorf("closed fork = %v", told)
		}
		stranger := tokenOf(t, tokens.Claims{Repo: h.name, Subject: "stranger", Scopes: []tokens.Scope{tokens.GitWrite}})
		h.refused(403, "forbidden", ask{method: "DELETE", path: h.path("/forks/" + group), token: stranger})
	}
}

func TestPickAWinner(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "p"})
	got := h.fork(201, "p", meta{"n": 3})
	group, kids := got["group_id"].(string), children(got)
	tip := at(h.commitAs(h.write, "sessions/"+kids[1], "x", "won").json(t), "commit", "commit_sha")
	pick := func(status int, body any) map[string]any {
		t.Helper()
		return h.want(status, ask{method: "POST", path: h.path("/forks/" + group + "/pick"), token: h.write, body: body}).json(t)
	}
	pick(400, meta{})
	pick(404, meta{"winner": "nope"})
	if parent := pick(200, meta{"winner": kids[1]}); parent["id"] != "p" || parent["head_sha"] != tip {
		t.Errorf("picked = %v, want p at %v", parent, tip)
	}
	if again := pick(200, meta{"winner": kids[1]}); again["head_sha"] != tip {
		t.Errorf("picked again = %v", again)
	}
	if other := pick(409, meta{"winner": kids[0]}); other["code"] != "already_picked" {
		t.Errorf("another winner = %v, want already_picked", other)
	}
	if head := h.head("sessions/p", true); head != tip {
		t.Errorf("the parent is at %s, want %v", head, tip)
	}
	for i, id := range kids {
		child := h.want(200, ask{path: h.path("/sessions/" + id), token: h.read}).json(t)
		if _, ends := child["expires_at"]; ends != (i != 1) || child["state"] != "active" {
			t.Errorf("child %d after the pick = %v", i, child)
		}
	}
}

// Compared are the files that children changed: what all have alike, what differs,
// and what one alone has.
func TestCompareChildren(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "p"})
	h.commitAs(h.write, "sessions/p", "gone", "1")
	state := at(h.commitAs(h.write, "sessions/p", "kept", "1").json(t), "commit", "commit_sha")
	got := h.fork(201, "p", meta{"n": 2})
	group, kids := got["group_id"].(string), children(got)
	for i, files := range [][]file{
		{{path: "alike", data: "1"}, {path: "README.md", data: "one"}, {path: "only", data: "1"}, {path: "gone", del: true}},
		{{path: "alike", data: "1"}, {path: "README.md", data: "two"}},
	} {
		h.commit(meta{"target_branch": "sessions/" + kids[i], "ephemeral": true}, files...)
	}
	v := h.want(200, ask{path: h.path("/forks/" + group + "/compare"), token: h.read}).json(t)
	if v["group_id"] != group || v["base_sha"] != state || fmt.Sprint(v["children"]) != fmt.Sprint(kids) || v["truncated"] != false {
		t.Errorf("comparison = %v", v)
	}
	status := map[string]any{}
	for _, f := range v["files"].([]any) {
		path := at(f, "path").(string)
		status[path] = at(f, "status")
		first, second := at(f, "by", 0), at(f, "by", 1)
		if at(first, "session") != kids[0] || at(second, "session") != kids[1] {
			t.Errorf("%s is by %v, want both children in order", path, at(f, "by"))
		}
		switch path {
		case "only":
			if at(first, "mode") != "100644" || at(second, "absent") != true || at(f, "base") != nil {
				t.Errorf("only = %v", f)
			}
		case "gone":
			if at(first, "absent") != true || at(second, "sha") != at(f, "base", "sha") {
				t.Errorf("gone = %v", f)
			}
		case "alike":
			if at(first, "sha") != at(second, "sha") || at(first, "absent") != nil {
				t.Errorf("alike = %v", f)
			}
		}
	}
	if want := map[string]any{"alike": "same", "README.md": "differs", "only": "only_here", "gone": "differs"}; fmt.Sprint(status) != fmt.Sprint(want) {
		t.Errorf("files are %v, want %v", status, want)
	}
	h.want(200, ask{method: "DELETE", path: h.path("/forks/" + group), token: h.write})
	if v := h.want(200, ask{path: h.path("/forks/" + group + "/compare"), token: h.read}).json(t); len(v["files"].([]any)) != 0 || len(v["children"].([]any)) != 0 {
		t.Errorf("comparison of a closed fork = %v, want empty lists", v)
	}
}

// The settings of sessions are told as they are in force.
func TestLimitsOfSessions(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.Sessions.Limits.MaxForkN = 5 })
	limits := h.want(200, ask{path: "/api/limits", token: h.read}).json(t)["limits"].(map[string]any)
	l := h.server.Sessions.Limits
	for name, want := range map[string]any{
		"sessions.max_fork_n": 5.0, "sessions.max_live": float64(l.MaxLive), "sessions.lease_ttl_s": 60.0, "sessions.lease_max_ttl_s": 86400.0,
		"sessions.lease_max_wait_s": 60.0, "sessions.token_ttl_s": 900.0, "sessions.token_max_ttl_s": 86400.0, "sessions.idle_timeout_s": 0.0,
		"sessions.loser_ttl_s": 600.0, "sessions.state_idle_s": 1800.0, "sessions.reap_every_s": 5.0, "sessions.ended_for_s": (30 * 24 * time.Hour).Seconds(),
	} {
		if limits[name] != want {
			t.Errorf("limit %s = %v, want %v", name, limits[name], want)
		}
	}
}
