package httpapi

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// A session made of the default branch tells repo, branch and head together, and
// where its branch is shown and where not.
func TestA01_CreateSession(t *testing.T) {
	h := newHouse(t)
	got := h.session(meta{"id": "s1", "labels": meta{"team": "red"}, "holder": "runner-1", "ttl_s": 3600, "idle_timeout_s": 600})
	for field, want := range map[string]any{
		"id": "s1", "repo_name": "team/site", "branch": "sessions/s1", "ref": refOfSession("s1"),
		"base_sha": h.main, "head_sha": h.main, "epoch": 1.0, "state": "active", "holder": "runner-1",
		"created_by": "builder", "idle_timeout_s": 600.0, "usable": true, "durability": "durable",
	} {
		if got[field] != want {
			t.Errorf("session's %s = %v, want %v", field, got[field], want)
		}
	}
	if at(got, "labels", "team") != "red" || at(got, "pointer", "repo_name") != "team/site" || at(got, "pointer", "sha") != h.main || at(got, "lease", "holder") != "runner-1" {
		t.Errorf("session = %v, want its label, pointer and lease", got)
	}
	for _, absent := range []string{"parent_id", "ended_at", "end_cause", "ttl_unused_s"} {
		if _, there := got[absent]; there {
			t.Errorf("session has %s = %v", absent, got[absent])
		}
	}
	end, err := time.Parse(time.RFC3339, got["expires_at"].(string))
	if left := time.Until(end); err != nil || left < 3590*time.Second || left > 3600*time.Second {
		t.Errorf("expires_at = %v, want 3600 s from now", got["expires_at"])
	}
	if head := h.head("sessions/s1", true); head != h.main {
		t.Errorf("its branch is at %s, want %s", head, h.main)
	}
	dir := t.TempDir()
	if refs := mustGit(t, dir, "ls-remote", h.remote("team/site.git", h.read)); strings.Contains(refs, "sessions/s1") {
		t.Errorf("the main remote shows the session: %s", refs)
	}
	if refs := mustGit(t, dir, "ls-remote", h.remote("team/site+ephemeral.git", h.read)); !strings.Contains(refs, h.main+"\trefs/heads/sessions/s1") {
		t.Errorf("the ephemeral remote shows %s, want the session", refs)
	}
}

func TestSessionsFromWhat(t *testing.T) {
	h := newHouse(t)
	made := h.session(meta{})
	if id, _ := made["id"].(string); id == "" || made["branch"] != "sessions/"+id {
		t.Errorf("session = %v, want an id of its own", made)
	}
	if _, there := made["lease"]; there || at(made, "labels") == nil {
		t.Errorf("session = %v, want no lease, and labels", made)
	}
	h.session(meta{"id": "a", "base_ref": "main", "branch": "work/a"})
	tip := at(h.commitAs(h.write, "work/a", "f", "1").json(t), "commit", "commit_sha").(string)
	for _, from := range []meta{
		{"from_session": "a"}, {"base_ref": "work/a", "base_is_ephemeral": true}, {"base_ref": tip},
	} {
		got := h.session(from)
		if got["base_sha"] != tip || got["head_sha"] != tip || (got["parent_id"] == "a") != (from["from_session"] != nil) {
			t.Errorf("session from %v = %v, want it at %s", from, got, tip)
		}
	}
	if got := h.want(200, ask{path: h.path("/sessions/a"), token: h.read}).json(t); got["head_sha"] != tip || got["base_sha"] != h.main {
		t.Errorf("session a = %v, want it at %s from %s", got, tip, h.main)
	}
}

func TestSessionsRefuse(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "s1"})
	h.want(200, ask{method: "POST", path: h.path("/branches/create"), token: h.write, body: meta{"target_branch": "taken", "target_is_ephemeral": true, "base_ref": "main"}})
	confined := tokenOf(t, tokens.Claims{Repo: h.name, Scopes: []tokens.Scope{tokens.GitWrite}, Refs: []refpolicy.Rule{
		rule(refpolicy.EphemeralBranchPrefix + "mine/*"), rule("*", refpolicy.NoPush),
	}})
	for _, tc := range []struct {
		status int
		code   string
		token  string
		body   any
	}{
		{409, "already_exists", h.write, meta{"id": "s1"}},
		{409, "already_exists", h.write, meta{"id": "s2", "branch": "taken"}},
		{409, "already_exists", h.write, meta{"id": "s2", "branch": "taken/below"}},
		{404, "ref_not_found", h.write, meta{"base_ref": "nope"}},
		{404, "object_not_found", h.write, meta{"base_ref": strings.Repeat("1", 40)}},
		{404, "session_not_found", h.write, meta{"from_session": "nope"}},
		{404, "snapshot_not_found", h.write, meta{"from_snapshot": h.main}},
		{400, "invalid_request", h.write, meta{"id": "a/b"}},
		{400, "invalid_request", h.write, meta{"branch": "a..b"}},
		{400, "invalid_request", h.write, meta{"branch": "HEAD"}},
		{400, "invalid_request", h.write, meta{"branch": "-x"}},
		{400, "invalid_request", h.write, meta{"branch": "refs/tags/x"}},
		{409, "already_exists", h.write, meta{"branch": "refs/heads/taken"}},
		{400, "invalid_request", h.write, meta{"from_session": "s1", "base_ref": "main"}},
		{400, "invalid_request", h.write, meta{"ttl_s": 0}},
		{400, "invalid_request", h.write, meta{"ttl_s": -1}},
		{400, "invalid_request", h.write, meta{"ttl_s": int64(1) << 62}},
		{400, "invalid_request", h.write, meta{"ttl_s": 1.5}},
		{400, "invalid_request", h.write, meta{"ttl_unused_s": 0}},
		{400, "invalid_request", h.write, meta{"idle_timeout_s": -1}},
		{400, "invalid_request", h.write, meta{"labels": meta{"a b": "c"}}},
		{400, "invalid_request", h.write, meta{"labels": meta{"a": 1}}},
		{400, "invalid_request", h.write, `[]`},
		{403, "forbidden", h.read, meta{}},
		{403, "policy_denied", confined, meta{"id": "s3"}},
		{401, "unauthorized", "", meta{}},
	} {
		h.refused(tc.status, tc.code, ask{method: "POST", path: h.path("/sessions"), token: tc.token, body: tc.body})
	}
	h.want(201, ask{method: "POST", path: h.path("/sessions"), token: confined, body: meta{"id": "s3", "branch": "mine/3"}})
	h.refused(404, "session_not_found", ask{path: h.path("/sessions/nope"), token: h.read})
	h.refused(404, "session_not_found", ask{path: h.path("/sessions/..%2fmeta"), token: h.read})
}

func ids(list map[string]any) []string {
	out := []string{}
	for _, s := range list["sessions"].([]any) {
		out = append(out, at(s, "id").(string))
	}
	return out
}

func TestListSessions(t *testing.T) {
	h := newHouse(t)
	for _, body := range []meta{
		{"id": "a", "labels": meta{"team": "red"}, "holder": "r1"}, {"id": "b", "labels": meta{"team": "blue"}}, {"id": "c", "from_session": "a", "labels": meta{"team": "red"}},
	} {
		h.session(body)
	}
	h.want(200, ask{method: "DELETE", path: h.path("/sessions/b"), token: h.write})
	for query, want := range map[string][]string{
		"": {"c", "b", "a"}, "state=active": {"c", "a"}, "state=ended": {"b"}, "label=team:red": {"c", "a"}, "label=team:": {},
		"holder=r1": {"a"}, "parent=a": {"c"}, "label=team:red&state=ended": {},
	} {
		got := h.want(200, ask{path: h.path("/sessions") + "?" + query, token: h.read}).json(t)
		if !slices.Equal(ids(got), want) || got["has_more"] != false {
			t.Errorf("list with %q = %v, want %v and no more", query, ids(got), want)
		}
	}
	page := h.want(200, ask{path: h.path("/sessions", "limit", "2"), token: h.read}).json(t)
	rest := h.want(200, ask{path: h.path("/sessions", "cursor", page["next_cursor"].(string)), token: h.read}).json(t)
	if all := append(ids(page), ids(rest)...); !slices.Equal(all, []string{"c", "b", "a"}) || page["has_more"] != true {
		t.Errorf("pages = %v", all)
	}
	for _, query := range []string{"state=asleep", "label=team", "label=:red", "label=a:b&label=c:d", "cursor=zzz", "limit=-1"} {
		h.refused(400, "invalid_request", ask{path: h.path("/sessions") + "?" + query, token: h.read})
	}
}

// What a token may not read does not exist for it, by its id or in a list; another
// repo's sessions are not this one's.
func TestD11_SessionsOfOthers(t *testing.T) {
	g := newGate(t)
	h, other := g.newHouse("team/site"), g.newHouse("team/other")
	h.session(meta{"id": "a"})
	h.session(meta{"id": "b"})
	other.session(meta{"id": "o"})
	confined := tokenOf(t, tokens.Claims{Repo: h.name, Scopes: []tokens.Scope{tokens.GitWrite}, Refs: []refpolicy.Rule{
		rule(refOfSession("a")), rule(refpolicy.EphemeralBranchPrefix + "mine/*"), rule("*", refpolicy.NoRead),
	}})
	if got := ids(h.want(200, ask{path: h.path("/sessions"), token: confined}).json(t)); !slices.Equal(got, []string{"a"}) {
		t.Errorf("list = %v, want a alone", got)
	}
	for _, q := range []ask{
		{path: h.path("/sessions/b")}, {method: "PATCH", path: h.path("/sessions/b"), body: meta{"ttl_s": 5}}, {method: "DELETE", path: h.path("/sessions/b")},
		{method: "POST", path: h.path("/sessions/b/lease"), body: meta{"action": "takeover", "holder": "x"}},
		{method: "POST", path: h.path("/sessions/b/tokens"), body: meta{}}, {path: h.path("/sessions/b/tokens")},
		{method: "POST", path: h.path("/sessions/b/fork"), body: meta{"n": 2}}, {method: "POST", path: h.path("/sessions"), body: meta{"from_session": "b", "branch": "mine/b"}},
	} {
		q.token = confined
		hidden := h.refused(404, "session_not_found", q)
		q.path = strings.Replace(q.path, "/b", "/nope", 1)
		if body, ok := q.body.(meta); ok && body["from_session"] != nil {
			q.body = meta{"from_session": "nope", "branch": "mine/b"}
		}
		if missing := h.refused(404, "session_not_found", q); missing["detail"] != hidden["detail"] {
			t.Errorf("%s: a hidden session is %v, a missing one %v", q.path, hidden["detail"], missing["detail"])
		}
	}
	h.refused(404, "repository_not_found", ask{path: other.path("/sessions/o"), token: h.read})
	h.refused(404, "session_not_found", ask{path: h.path("/sessions/o"), token: h.read})
}

func TestPatchSession(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a", "labels": meta{"team": "red", "old": "1"}, "ttl_s": 60})
	patch := func(status int, body any) map[string]any {
		t.Helper()
		return h.want(status, ask{method: "PATCH", path: h.path("/sessions/a"), token: h.write, body: body}).json(t)
	}
	got := patch(200, `{"labels":{"old":null,"new":"2"},"ttl_s":0,"idle_timeout_s":90,"ttl_unused_s":30}`)
	labels := at(got, "labels").(map[string]any)
	if _, there := got["expires_at"]; there || got["idle_timeout_s"] != 90.0 || got["ttl_unused_s"] != 30.0 || len(labels) != 2 || labels["new"] != "2" {
		t.Errorf("patched session = %v", got)
	}
	if got["ends_at"] == nil {
		t.Errorf("patched session = %v, want ends_at", got)
	}
	for _, body := range []any{meta{}, meta{"ttl_s": -1}, meta{"labels": meta{"a b": "c"}}, `[]`, meta{"idle_timeout_s": int64(1) << 62}} {
		if got := patch(400, body); got["code"] != "invalid_request" {
			t.Errorf("patch with %v = %v", body, got)
		}
	}
}

// A session's end tells what it frees, before and after, and ends its branch.
func TestDeleteSession(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a"})
	h.commitAs(h.write, "sessions/a", "big", strings.Repeat("0123456789", 5000))
	would := h.want(200, ask{method: "DELETE", path: h.path("/sessions/a", "dry_run", "true"), token: h.write}).json(t)
	if would["dry_run"] != true || would["id"] != "a" || would["bytes_freed"].(float64) <= 0 || at(would, "session", "state") != "active" {
		t.Errorf("dry run = %v, want bytes and an active session", would)
	}
	h.head("sessions/a", true)
	done := h.want(200, ask{method: "DELETE", path: h.path("/sessions/a"), token: h.write}).json(t)
	if done["bytes_freed"] != would["bytes_freed"] || at(done, "session", "state") != "ended" || at(done, "session", "end_cause") != "deleted" || at(done, "session", "usable") != false {
		t.Errorf("end = %v, want what the dry run said", done)
	}
	h.refused(404, "ref_not_found", ask{path: h.path("/branch", "name", "sessions/a", "ephemeral", "true"), token: h.read})
	again := h.want(200, ask{method: "DELETE", path: h.path("/sessions/a"), token: h.write}).json(t)
	if again["bytes_freed"] != 0.0 {
		t.Errorf("second end = %v, want nothing freed", again)
	}
	if got := h.refused(409, "session_state", ask{method: "POST", path: h.path("/sessions/a/lease"), token: h.write, body: meta{"action": "acquire", "holder": "x"}}); got["state"] != "ended" || got["hint"] == nil {
		t.Errorf("lease on an ended session = %v, want its state and what to do", got)
	}
	h.refused(400, "invalid_request", ask{method: "DELETE", path: h.path("/sessions/a", "dry_run", "perhaps"), token: h.write})
}

// Deleting what somebody uses is refused with the names of who does.
func TestD09_DeleteInUse(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a", "holder": "runner-1"})
	h.session(meta{"id": "c", "from_session": "a"})
	q := ask{method: "DELETE", path: h.path("/sessions/a"), token: h.write}
	got := h.refused(409, "in_use", q)
	if at(got, "holders", 0, "kind") != "lease" || at(got, "holders", 0, "id") != "runner-1" || at(got, "holders", 1, "kind") != "child" || at(got, "holders", 1, "id") != "c" {
		t.Errorf("in use = %v, want its holder and its child", got)
	}
	h.lease(200, "a", meta{"action": "release", "holder": "runner-1"})
	if got := h.refused(409, "in_use", q); at(got, "holders", 0, "id") != "c" || len(got["holders"].([]any)) != 1 {
		t.Errorf("in use = %v, want the child alone", got)
	}
	h.want(200, ask{method: "DELETE", path: h.path("/sessions/c"), token: h.write})
	h.want(200, q)
	h.session(meta{"id": "d", "holder": "me"})
	h.want(200, ask{method: "DELETE", path: h.path("/sessions/d", "holder", "me"), token: h.write})
}

// Only who created a session, or an admin of the repo, deletes it.
func TestD13_WhoMayDelete(t *testing.T) {
	h := newHouse(t)
	stranger := tokenOf(t, tokens.Claims{Repo: h.name, Subject: "stranger", Scopes: []tokens.Scope{tokens.GitWrite}})
	admin := tokenOf(t, tokens.Claims{Repo: h.name, Subject: "admin", Scopes: []tokens.Scope{tokens.GitWrite, tokens.RepoWrite}})
	for _, id := range []string{"a", "b"} {
		h.session(meta{"id": id})
		h.refused(403, "forbidden", ask{method: "DELETE", path: h.path("/sessions/" + id), token: stranger})
		h.refused(403, "forbidden", ask{method: "DELETE", path: h.path("/sessions/"+id, "dry_run", "true"), token: stranger})
	}
	h.want(200, ask{method: "DELETE", path: h.path("/sessions/a"), token: h.write})
	h.want(200, ask{method: "DELETE", path: h.path("/sessions/b"), token: admin})
}

// A repo that was cloned works on with its session's branch, and the pointer that
// the session gives is what was pushed.
func TestSessionIsABranchOfGit(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a"})
	dir := filepath.Join(t.TempDir(), "w")
	mustGit(t, t.TempDir(), "clone", "-q", "-b", "sessions/a", h.remote("team/site+ephemeral.git", h.write), dir)
	tip := commitFile(t, dir, "x", "1")
	mustGit(t, dir, "push", "-q")
	if got := h.want(200, ask{path: h.path("/sessions/a"), token: h.read}).json(t); at(got, "pointer", "sha") != tip {
		t.Errorf("pointer = %v, want %s", got["pointer"], tip)
	}
	mustGit(t, dir, "push", "-q", "origin", ":sessions/a")
	if got := h.want(200, ask{path: h.path("/sessions/a"), token: h.read}).json(t); got["state"] != "ended" || got["head_sha"] != tip {
		t.Errorf("session of a deleted branch = %v, want it ended at %s", got, tip)
	}
}

// Without a keeper there are no sessions, and no issued token is good.
func TestNoSessions(t *testing.T) {
	g := newGate(t, func(c *Config) { c.Sessions = nil })
	r := g.newRepo("r")
	r.refused(400, "not_supported", ask{path: r.path("/sessions"), token: r.read})
	if _, there := r.want(200, ask{path: "/api/limits", token: r.read}).json(t)["limits"].(map[string]any)["sessions.max_fork_n"]; there {
		t.Errorf("limits of sessions are told where there are none")
	}
}
