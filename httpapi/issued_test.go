package httpapi

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// A token that is handed out says what it may do, clones and pushes its session's
// branch as it is, and nothing else.
func TestPN24_IssueToken(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a", "holder": "A"})
	h.session(meta{"id": "b"})
	got := h.issue("a", meta{"ttl_s": 600, "read": []string{"main"}, "sub": "sandbox-7"})
	for field, want := range map[string]any{"session_id": "a", "sub": "sandbox-7", "epoch": 1.0} {
		if got[field] != want {
			t.Errorf("token's %s = %v, want %v", field, got[field], want)
		}
	}
	wantRefs := fmt.Sprint([]any{
		map[string]any{"pattern": refOfSession("a"), "ops": []any{"no-force-push"}},
		map[string]any{"pattern": tokens.SnapshotRefPrefix + "a", "ops": []any{"no-force-push"}},
		map[string]any{"pattern": "refs/heads/main", "ops": []any{"no-push"}},
		map[string]any{"pattern": "*", "ops": []any{"no-read"}},
	})
	if fmt.Sprint(got["refs"]) != wantRefs {
		t.Errorf("token's refs = %v, want %v", got["refs"], wantRefs)
	}
	tok := got["token"].(string)
	me := h.want(200, ask{path: "/api/whoami", token: tok}).json(t)
	if me["session"] != "a" || me["epoch"] != 1.0 || me["session_epoch"] != 1.0 || at(me, "lease", "holder") != "A" || fmt.Sprint(me["refs"]) != wantRefs {
		t.Errorf("whoami of an issued token = %v", me)
	}
	if left := me["expires_in_s"].(float64); left < 590 || left > 601 {
		t.Errorf("token lives %v s, want 600", left)
	}
	dir := filepath.Join(t.TempDir(), "w")
	mustGit(t, t.TempDir(), "clone", "-q", got["ephemeral_remote_url"].(string), dir)
	tip := commitFile(t, dir, "x", "1")
	mustGit(t, dir, "push", "-q")
	if head := h.head("sessions/a", true); head != tip {
		t.Errorf("session is at %s after the sandbox's push, want %s", head, tip)
	}
	if refs := mustGit(t, dir, "ls-remote", got["remote_url"].(string)); !strings.Contains(refs, h.main) {
		t.Errorf("the main remote shows %q to a token that may read main", refs)
	}
	if out, ok := gitIn(t, dir, "push", "origin", "HEAD:sessions/b"); ok || !strings.Contains(out, "sessions/b") {
		t.Errorf("push to another session: %v %s", ok, out)
	}
	if a := h.commitAs(tok, "sessions/a", "y", "2"); a.status != 201 {
		t.Errorf("commit by the API = %d %s", a.status, a.body)
	}
	if a := h.commitAs(tok, "sessions/b", "y", "2"); a.status != 403 || code(t, a) != "policy_denied" {
		t.Errorf("commit to another session = %d %s, want 403 policy_denied", a.status, a.body)
	}
}

func TestTokensRefuse(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a"})
	for _, body := range []any{
		meta{"ttl_s": 0}, meta{"ttl_s": -1}, meta{"ttl_s": int64(1) << 62}, meta{"permissions": []string{"repo:write"}}, meta{"permissions": []string{"git:admin"}},
		meta{"read": []string{""}}, meta{"read": []string{"a**b c"}}, meta{"read": "main"}, meta{"sub": strings.Repeat("x", 257)}, `[]`,
	} {
		h.refused(400, "invalid_request", ask{method: "POST", path: h.path("/sessions/a/tokens"), token: h.write, body: body})
	}
	noPush := tokenOf(t, tokens.Claims{Repo: h.name, Scopes: []tokens.Scope{tokens.GitWrite}, Refs: []refpolicy.Rule{rule("*", refpolicy.NoPush)}})
	h.refused(403, "policy_denied", ask{method: "POST", path: h.path("/sessions/a/tokens"), token: noPush, body: meta{}})
	h.refused(403, "forbidden", ask{method: "POST", path: h.path("/sessions/a/tokens"), token: h.read, body: meta{}})
	h.refused(404, "session_not_found", ask{method: "POST", path: h.path("/sessions/nope/tokens"), token: h.write, body: meta{}})
	h.refused(403, "forbidden", ask{method: "POST", path: "/api/tokens/renew", token: h.write, body: meta{}})
	end, err := time.Parse(time.RFC3339, h.issue("a", meta{"ttl_s": 1_000_000_000})["expires_at"].(string))
	if left := time.Until(end); err != nil || left > 24*time.Hour+time.Minute {
		t.Errorf("a token for 10^9 s lives %v, want at most the longest time", left)
	}
}

// A grant is what its maker may do itself, and no more.
func TestIssuedWithinItsMaker(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a"})
	maker := tokenOf(t, tokens.Claims{Repo: h.name, Scopes: []tokens.Scope{tokens.GitWrite}, Refs: []refpolicy.Rule{
		rule(refOfSession("*")), rule("main", refpolicy.NoRead),
	}})
	made := h.want(201, ask{method: "POST", path: h.path("/sessions/a/tokens"), token: maker, body: meta{"read": []string{"*"}}}).json(t)
	tok := made["token"].(string)
	h.want(200, ask{path: h.path("/branch", "name", "sessions/a", "ephemeral", "true"), token: tok})
	h.refused(404, "ref_not_found", ask{path: h.path("/branch", "name", "main"), token: tok})
}

func TestListAndRevokeTokens(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a"})
	first := h.issue("a", meta{"sub": "one"})
	h.clock.advance(time.Second)
	second := h.issue("a", meta{"sub": "two", "permissions": []string{"git:read"}})
	path := h.path("/sessions/a/tokens")
	list := h.want(200, ask{path: path, token: h.write})
	v := list.json(t)
	if len(v["tokens"].([]any)) != 2 || at(v, "tokens", 0, "sub") != "two" || at(v, "tokens", 1, "jti") != first["jti"] || v["has_more"] != false {
		t.Errorf("tokens = %v, want two and one", v)
	}
	if body := string(list.body); strings.Contains(body, first["token"].(string)) || strings.Contains(body, "eyJ") {
		t.Errorf("a list tells tokens: %s", body)
	}
	page := h.want(200, ask{path: path + "?limit=1", token: h.write}).json(t)
	rest := h.want(200, ask{path: path + "?limit=1&cursor=" + page["next_cursor"].(string), token: h.write}).json(t)
	if page["has_more"] != true || at(page, "tokens", 0, "jti") != second["jti"] || at(rest, "tokens", 0, "jti") != first["jti"] {
		t.Errorf("pages = %v and %v", page, rest)
	}
	h.refused(400, "invalid_request", ask{path: path + "?cursor=!", token: h.write})
	h.refused(403, "forbidden", ask{path: path, token: h.read})

	tok := first["token"].(string)
	renewed := h.want(201, ask{method: "POST", path: "/api/tokens/renew", token: tok}).json(t)["token"].(string)
	h.want(204, ask{method: "DELETE", path: path + "/" + first["jti"].(string), token: h.write})
	for _, dead := range []string{tok, renewed} {
		got := h.refused(401, "unauthorized", ask{path: "/api/whoami", token: dead})
		if hint, _ := got["hint"].(string); !strings.Contains(hint, "/api/tokens/renew") || strings.Contains(hint, dead) {
			t.Errorf("hint for a dead token = %q", hint)
		}
		h.refused(401, "unauthorized", ask{method: "POST", path: "/api/tokens/renew", token: dead})
		if a := h.commitAs(dead, "sessions/a", "x", "1"); a.status != 401 {
			t.Errorf("commit with a revoked token = %d %s, want 401", a.status, a.body)
		}
		if out, ok := gitIn(t, t.TempDir(), "ls-remote", h.remote("team/site+ephemeral.git", dead)); ok || strings.Contains(out, "refs/heads") {
			t.Errorf("ls-remote with a revoked token: %v %s", ok, out)
		}
	}
	h.want(200, ask{path: "/api/whoami", token: second["token"].(string)})
	h.refused(404, "token_not_found", ask{method: "DELETE", path: path + "/nope", token: h.write})
}

// A read-only token reads and pushes nothing.
func TestIssuedReadOnly(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a"})
	tok := h.issue("a", meta{"permissions": []string{"git:read"}})["token"].(string)
	h.want(200, ask{path: h.path("/branch", "name", "sessions/a", "ephemeral", "true"), token: tok})
	if a := h.commitAs(tok, "sessions/a", "x", "1"); a.status != 403 {
		t.Errorf("commit with a read-only token = %d %s", a.status, a.body)
	}
	h.refused(403, "forbidden", ask{method: "POST", path: "/api/tokens/renew", token: tok, body: meta{"permissions": []string{"git:write"}}})
	h.want(201, ask{method: "POST", path: "/api/tokens/renew", token: tok})
}

// Renewed to the same or less with nothing but the token; never to more, nor when
// the lease is gone, the token has expired, or the session has ended.
func TestA12_Renew(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a", "holder": "A", "lease_ttl_s": 600})
	h.session(meta{"id": "b"})
	first := h.issue("a", meta{"read": []string{"main"}, "sub": "s"})
	tok := first["token"].(string)
	renew := func(status int, body any) map[string]any {
		t.Helper()
		return h.want(status, ask{method: "POST", path: "/api/tokens/renew", token: tok, body: body}).json(t)
	}
	same := renew(201, nil)
	if fmt.Sprint(same["refs"]) != fmt.Sprint(first["refs"]) || same["sub"] != "s" || same["jti"] == first["jti"] || fmt.Sprint(same["scopes"]) != fmt.Sprint(first["scopes"]) {
		t.Errorf("renewed token = %v, want the grant of %v", same, first)
	}
	less := renew(201, meta{"permissions": []string{"git:read"}, "read": []string{}})
	if len(less["refs"].([]any)) != 3 || fmt.Sprint(less["scopes"]) != "[git:read]" {
		t.Errorf("token renewed to less = %v", less)
	}
	for _, more := range []meta{
		{"read": []string{"*"}}, {"read": []string{refOfSession("b")}}, {"read": []string{"refs/heads/*"}}, {"sub": "somebody else"},
		{"read": []string{"main", "other"}},
	} {
		if got := renew(403, more); got["code"] != "forbidden" {
			t.Errorf("renewal to %v = %v, want forbidden", more, got)
		}
	}
	renew(400, meta{"ttl_s": -1})
	tok = less["token"].(string)
	if got := renew(403, meta{"permissions": []string{"git:write"}}); got["code"] != "forbidden" {
		t.Errorf("renewal back to writing = %v, want forbidden", got)
	}
	renew(403, meta{"read": []string{"main"}})

	tok = same["token"].(string)
	h.clock.advance(11 * time.Minute)
	if got := renew(409, nil); got["code"] != "lease_lost" || !strings.Contains(got["hint"].(string), "/api/tokens/renew") {
		t.Errorf("renewal without the lease = %v, want lease_lost", got)
	}
	h.clock.advance(5 * time.Minute)
	got := renew(401, nil)
	if hint, _ := got["hint"].(string); got["code"] != "unauthorized" || !strings.Contains(hint, "expired") || !strings.Contains(hint, "$TOKEN") || strings.Contains(hint, tok) {
		t.Errorf("renewal of an expired token = %v, want what to do", got)
	}
}

// After a takeover the old writer is refused, by push and API, even for what would be
// a fast-forward; it is told so in words, and may still ask who it is.
func TestA16_Takeover(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a", "holder": "A"})
	old := h.issue("a", meta{})
	tok := old["token"].(string)
	dir := filepath.Join(t.TempDir(), "w")
	mustGit(t, t.TempDir(), "clone", "-q", old["ephemeral_remote_url"].(string), dir)
	h.lease(200, "a", meta{"action": "takeover", "holder": "B"})
	commitFile(t, dir, "x", "1")
	out, ok := gitIn(t, dir, "push")
	if ok || !strings.Contains(out, "stale epoch 1, session is at 2") || !strings.Contains(out, "taken this session over") {
		t.Errorf("push of an old writer: %v\n%s", ok, out)
	}
	got := h.commitAs(tok, "sessions/a", "x", "1").json(t)
	if got["code"] != "stale_epoch" || at(got, "result", "status") != "forbidden" || got["epoch"] != 1.0 || got["session_epoch"] != 2.0 || !strings.Contains(got["hint"].(string), "taken this session over") {
		t.Errorf("commit of an old writer = %v", got)
	}
	for _, q := range []ask{
		{path: h.path("/sessions/a")}, {path: h.path("/branches")}, {method: "POST", path: "/api/tokens/renew"},
		{method: "POST", path: h.path("/sessions/a/lease"), body: meta{"action": "renew", "holder": "A"}},
	} {
		q.token = tok
		h.refused(403, "stale_epoch", q)
	}
	if out, ok := gitIn(t, dir, "fetch"); ok || !strings.Contains(out, "stale epoch 1, session is at 2") {
		t.Errorf("fetch of an old writer: %v\n%s", ok, out)
	}
	me := h.want(200, ask{path: "/api/whoami", token: tok}).json(t)
	if me["epoch"] != 1.0 || me["session_epoch"] != 2.0 || len(at(me, "may", "push").([]any)) != 0 || at(me, "lease", "holder") != "B" {
		t.Errorf("whoami of an old writer = %v", me)
	}
	if a := h.commitAs(h.issued("a"), "sessions/a", "x", "1"); a.status != 201 {
		t.Errorf("commit of the new writer = %d %s", a.status, a.body)
	}
	if a := h.commitAs(h.write, "sessions/a", "x", "2"); a.status != 201 {
		t.Errorf("commit of the backend = %d %s", a.status, a.body)
	}
	// A customer's own token that names session and epoch is held to them too.
	epoch := uint64(1)
	bound := tokenOf(t, tokens.Claims{Repo: h.name, Scopes: []tokens.Scope{tokens.GitWrite}, Session: "a", Epoch: &epoch})
	if a := h.commitAs(bound, "sessions/a", "x", "3"); a.status != 403 || code(t, a) != "stale_epoch" {
		t.Errorf("commit with an old epoch claim = %d %s", a.status, a.body)
	}
}

// With the session its tokens end.
func TestTokensDieWithTheSession(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a"})
	tok := h.issued("a")
	h.want(200, ask{method: "DELETE", path: h.path("/sessions/a"), token: h.write})
	for _, q := range []ask{
		{path: "/api/whoami"}, {path: "/api/limits"}, {path: h.path("")}, {path: h.path("/file", "path", "README.md", "ref", h.main)}, {method: "POST", path: "/api/tokens/renew"},
		{method: "POST", path: h.path("/sessions"), body: meta{}},
	} {
		q.token = tok
		h.refused(401, "unauthorized", q)
	}
	h.session(meta{"id": "a2", "branch": "sessions/a"})
	if a := h.commitAs(tok, "sessions/a", "x", "1"); a.status != 401 {
		t.Errorf("commit to a branch of the same name = %d %s, want 401", a.status, a.body)
	}
}

// Whoever knows a session's id, and nothing else, is told nothing.
func TestB12_PN25_AnIDOpensNothing(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a"})
	for _, rt := range routes {
		if rt.access == open || rt.access == operator {
			continue
		}
		for _, path := range rt.paths {
			path = pathFor(h, path, "a")
			for _, header := range []http.Header{nil, {"Authorization": {"Bearer a"}}, {"Authorization": {"Bearer sessions/a"}}} {
				if got := h.do(ask{method: rt.method, path: path, header: header}); got.status != 401 {
					t.Errorf("%s %s with %v = %d %s, want 401", rt.method, path, header, got.status, got.body)
				}
			}
		}
	}
	if out, ok := gitIn(t, t.TempDir(), "ls-remote", h.remote("team/site+ephemeral.git", "a")); ok || strings.Contains(out, "refs/") {
		t.Errorf("ls-remote with an id for a token: %v %s", ok, out)
	}
}

// pathFor fills the parameters of a route's path.
func pathFor(h *house, path, id string) string {
	path = strings.ReplaceAll(path, "/api/repos/{repo}", h.path(""))
	return strings.NewReplacer("{id}", id, "{part}", "x", "{hash}", strings.Repeat("1", 64)).Replace(path)
}

// An issued token may do what the table says and nothing else, on every route there
// is; what it is not let do it is refused before anything else about it is looked at.
func TestIssuedTokensAreConfined(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a", "holder": "A"})
	h.session(meta{"id": "b"})
	tok := h.issued("a")
	allowed := []string{
		"branch.diff", "branch.get", "branch.list", "commit.diff", "commit.get", "commit.list", "commit.pack",
		"events", "file.get", "file.head", "file.list", "limits", "pin.list", "repo.get",
		"sealing-key", "session.get", "session.lease",
		"snapshot.bundle", "snapshot.delete", "snapshot.get", "snapshot.hot-order", "snapshot.image", "snapshot.import", "snapshot.key", "snapshot.lineage", "snapshot.list", "snapshot.save",
		"token.renew", "upload.begin", "upload.chunk", "upload.chunks", "upload.content", "upload.drop", "upload.get", "upload.missing", "upload.seal", "whoami",
	}
	var got []string
	for _, rt := range routes {
		if rt.access == open || rt.access == operator {
			continue
		}
		for _, path := range rt.paths {
			a := h.do(ask{method: rt.method, path: pathFor(h, path, "a"), token: tok, body: `{}`})
			confined := a.status == 403 && strings.Contains(string(a.body), errConfined.text)
			if confined != (rt.issued == refused) && rt.method != "HEAD" {
				t.Errorf("%s %s (%s) with an issued token = %d %.200s", rt.method, path, rt.name, a.status, a.body)
			}
			if rt.issued == ownOnly {
				h.refused(403, "forbidden", ask{method: rt.method, path: pathFor(h, path, "b"), token: tok, body: `{}`})
				h.refused(403, "forbidden", ask{method: rt.method, path: pathFor(h, path, "nope"), token: tok, body: `{}`})
			}
		}
		if rt.issued != refused && !slices.Contains(got, rt.name) {
			got = append(got, rt.name)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, allowed) {
		t.Errorf("issued tokens may use %v, want %v", got, allowed)
	}
	h.refused(403, "forbidden", ask{method: "POST", path: h.path("/sessions/a/lease"), token: tok, body: meta{"action": "acquire", "holder": "A"}})
	h.refused(403, "forbidden", ask{method: "POST", path: h.path("/sessions/a/lease"), token: tok, body: meta{"action": "takeover", "holder": "A"}})
	h.want(200, ask{method: "POST", path: h.path("/sessions/a/lease"), token: tok, body: meta{"action": "renew", "holder": "A"}})
	h.want(200, ask{method: "POST", path: h.path("/sessions/a/lease"), token: tok, body: meta{"action": "release", "holder": "A"}})
}

// A refused push tells how the token is renewed, with a place for the token.
func TestPushAdviceOfIssuedTokens(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.PublicURL = "https://gate.example" })
	h.session(meta{"id": "a"})
	tok := h.issued("a")
	dir := filepath.Join(t.TempDir(), "w")
	mustGit(t, t.TempDir(), "clone", "-q", h.remote("team/site+ephemeral.git", tok), dir)
	commitFile(t, dir, "x", "1")
	out, ok := gitIn(t, dir, "push", "origin", "HEAD:other")
	want := `curl -sS -X POST -H "Authorization: Bearer $TOKEN" https://gate.example/api/tokens/renew`
	if ok || !strings.Contains(out, want) || strings.Contains(strings.ReplaceAll(out, h.remote("", tok), ""), tok) {
		t.Errorf("refused push: %v\n%s\nwant the line %s", ok, out, want)
	}
}

// Who lost a race is told where the branch is, and who wrote it when.
func TestPI13_LoserIsTold(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "a"})
	winner := h.issue("a", meta{"sub": "sandbox-1"})["token"].(string)
	tip := at(h.commitAs(winner, "sessions/a", "x", "1").json(t), "commit", "commit_sha")
	got := h.want(409, ask{method: "POST", path: h.path("/commit-pack"), token: h.write, body: pack(t, meta{
		"target_branch": "sessions/a", "ephemeral": true, "expected_head_sha": h.main,
	}, file{path: "x", data: "2"})}).json(t)
	at0, err := time.Parse(time.RFC3339, fmt.Sprint(at(got, "result", "last_writer", "at")))
	if at(got, "result", "status") != "precondition_failed" || at(got, "result", "new_sha") != tip || at(got, "result", "last_writer", "sub") != "sandbox-1" || err != nil || time.Since(at0) > time.Minute {
		t.Errorf("loser is told %v, want %v by sandbox-1", got, tip)
	}
}
