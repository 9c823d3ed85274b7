package integration

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/tokens"
)

// issue makes a token for a session with the given grant, by whoever token is of.
func (r *repo) issue(session, token string, grant map[string]any) harness.Answer {
	r.g.t.Helper()
	return r.ask("POST", "/sessions/"+session+"/tokens", token, grant)
}

// issuedFor is the token that issue has to give.
func (r *repo) issuedFor(session, token string, grant map[string]any) string {
	r.g.t.Helper()
	a := r.issue(session, token, grant)
	if a.Status != 201 || a.Text("token") == "" {
		r.g.t.Fatalf("issue token of %s for %v = %s, want 201 with a token", session, grant, a)
	}
	return a.Text("token")
}

func (g *gate) renew(token string, body map[string]any) harness.Answer {
	g.t.Helper()
	return g.do(harness.Ask{Method: "POST", Path: "/api/tokens/renew", Token: token, JSON: body})
}

// claimsOf is what a token says, believed or not.
func claimsOf(t testing.TB, token string) map[string]any {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("a token of %d parts", len(parts))
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(raw, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// wantCode checks a refusal's status and code.
func wantCode(t testing.TB, what string, a harness.Answer, status int, codes ...string) {
	t.Helper()
	if a.Status != status || !slices.Contains(codes, a.Text("code")) {
		t.Errorf("%s = %s, want %d %v", what, a, status, codes)
	}
}

// wantDead checks that a token opens nothing: not by the API, not by git.
func (r *repo) wantDead(when, token string) {
	r.g.t.Helper()
	for _, a := range []harness.Ask{
		{Path: "/api/whoami", Token: token},
		{Path: r.path("/branches"), Token: token},
		{Method: "POST", Path: "/api/tokens/renew", Token: token, JSON: map[string]any{}},
		{Path: r.path("/events"), Token: token, Header: map[string]string{"Accept": "text/event-stream"}},
		{Path: r.gitPath(true, "info/refs") + "?service=git-upload-pack", Basic: token},
		{Path: r.gitPath(true, "info/refs") + "?service=git-receive-pack", Basic: token},
		{Method: "POST", Path: r.gitPath(true, "git-upload-pack"), Basic: token, Body: strings.NewReader("0000"), Header: map[string]string{"Content-Type": "application/x-git-upload-pack-request"}},
		{Method: "POST", Path: r.gitPath(true, "git-receive-pack"), Basic: token, Body: strings.NewReader("0000"), Header: map[string]string{"Content-Type": "application/x-git-receive-pack-request"}},
	} {
		if got := r.g.do(a); got.Status != 401 && !(got.Status == 403 && strings.Contains(a.Path, "receive-pack")) { // of a token that only reads
			r.g.t.Errorf("%s: %s %s = %s, want 401", when, a.Method, a.Path, got)
		}
	}
}

// A renewal gives the same or less, whatever is asked for, and nothing to whoever was
// revoked: neither the token, nor one renewed from it before, nor one renewed by a race
// of several at once.
func TestA12_RenewNeverGrows(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	r.leased("a", "sandbox")
	r.leased("b", "other")
	other, _ := g.seeded()
	other.leased("a", "sandbox")
	wide := r.issuedFor("a", r.write, map[string]any{"read": []string{"main"}, "ttl_s": 600})
	narrow := r.issuedFor("a", r.write, map[string]any{"read": []string{"main"}, "permissions": []string{"git:read"}})
	for _, tc := range []struct {
		name, token string
		body        map[string]any
		status      int
	}{
		{"every ref", wide, map[string]any{"read": []string{"*"}}, 403},
		{"every branch", wide, map[string]any{"read": []string{"refs/heads/*"}}, 403},
		{"another branch", wide, map[string]any{"read": []string{"main", "side"}}, 403},
		{"b's branch", wide, map[string]any{"read": []string{ephemeralPrefix + "sessions/b"}}, 403},
		{"all sessions", wide, map[string]any{"read": []string{ephemeralPrefix + "*"}}, 403},
		{"b's snapshots", wide, map[string]any{"read": []string{"refs/namespaces/state/refs/snapshots/b"}}, 403},
		{"another name", wide, map[string]any{"sub": "backend-of-the-boss"}, 403},
		{"repo:write", wide, map[string]any{"permissions": []string{"git:write", "repo:write"}}, 400},
		{"org:read", wide, map[string]any{"permissions": []string{"org:read"}}, 400},
		{"no time", wide, map[string]any{"ttl_s": 0}, 400},
		{"time backwards", wide, map[string]any{"ttl_s": -1}, 400},
		{"a pattern that is none", wide, map[string]any{"read": []string{"a*b"}}, 400},
		{"write with a reader's token", narrow, map[string]any{"permissions": []string{"git:write"}}, 403},
		{"both with a reader's token", narrow, map[string]any{"permissions": []string{"git:read", "git:write"}}, 403},
		{"a customer's token", r.write, map[string]any{}, 403},
	} {
		if a := g.renew(tc.token, tc.body); a.Status != tc.status || strings.Contains(string(a.Body), `"token"`) {
			t.Errorf("renew for %s = %s, want %d and no token", tc.name, a, tc.status)
		}
	}

	// What is no part of a renewal is not listened to.
	before := claimsOf(t, wide)
	a := g.renew(wide, map[string]any{
		"ttl_s": 1_000_000_000, "repo": other.name, "repo_name": other.name, "sid": "b", "session_id": "b", "epoch": 99, "iss": "other", "jti": "x",
		"refs": []any{[]any{"*", []string{}}}, "within": []any{}, "scopes": []string{"repo:write"}, "branch": "sessions/b",
	})
	if a.Status != 201 {
		t.Fatalf("renew = %s, want 201", a)
	}
	renewed := a.Text("token")
	after := claimsOf(t, renewed)
	for _, claim := range []string{"iss", "sub", "repo", "sid", "epoch", "refs", "within", "scopes"} {
		if got, want := fmt.Sprint(after[claim]), fmt.Sprint(before[claim]); got != want {
			t.Errorf("%s of the renewed token = %s, want %s", claim, got, want)
		}
	}
	if life := after["exp"].(float64) - after["iat"].(float64); life > (24*time.Hour).Seconds()+1 { // whole seconds
		t.Errorf("the renewed token lives for %v s, more than any may", life)
	}
	// Less stays less.
	less := g.renew(renewed, map[string]any{"read": []string{}, "permissions": []string{"git:read"}}).Text("token")
	wantCode(t, "renew of the narrower token for what it gave up", g.renew(less, map[string]any{"read": []string{"main"}}), 403, "forbidden")
	if got := claimsOf(t, g.renew(less, map[string]any{}).Text("token"))["scopes"]; fmt.Sprint(got) != "[git:read]" {
		t.Errorf("scopes after renewing a reader's token = %v, want git:read", got)
	}
	if a := g.do(r.commitAsk(state("a", "x"), less)); a.Status != 403 {
		t.Errorf("commit with a reader's token = %s, want 403", a)
	}

	g.want(204, harness.Ask{Method: "DELETE", Path: r.path("/sessions/a/tokens/" + claimsOf(t, wide)["jti"].(string)), Token: r.write})
	for name, token := range map[string]string{"the revoked token": wide, "one renewed from it": renewed, "a narrower one of its": less} {
		r.wantDead(name, token)
	}
	g.want(200, harness.Ask{Path: "/api/whoami", Token: narrow}) // another one of the same session
	if got := g.refused(".", "ls-remote", r.ephemeral(renewed)); strings.Contains(got, "refs/heads") {
		t.Errorf("ls-remote with a revoked token = %s", got)
	}
}

// Token of an ended session, on every route there is and for git, on both of two nodes:
// nothing. So it stays when a session gets the branch of that name again, when the
// branch is made without a session, and after a restart; the id is not given again.
func TestTokensAfterTheEnd(t *testing.T) {
	redis := redistest.Start(t)
	c := twoNodes(t, redis.URL())
	one, two := c.nodes[0], c.nodes[1]
	r, main := one.seeded()
	r.leased("a", "sandbox")
	token := r.issuedFor("a", r.write, map[string]any{"read": []string{"main"}})
	bound := one.sign(tokens.Claims{Repo: r.name, Session: "a", Scopes: []tokens.Scope{tokens.GitWrite}})
	// Another node takes it as the one that made it does.
	r.on(two).want(201, "a commit on the other node", two.do(r.on(two).commitAsk(state("a", "x"), token)))
	one.want(200, harness.Ask{Path: "/api/whoami", Token: two.renew(token, map[string]any{}).Text("token")})

	sweep := func(when string) {
		t.Helper()
		for _, g := range c.nodes {
			r.on(g).wantDead(when, token)
		}
		for _, a := range two.everyRoute(r.name, "a") {
			a.Token = token
			if got := two.do(a); got.Status != 401 {
				t.Errorf("%s: %s %s = %s, want 401", when, a.Method, a.Path, got)
			}
		}
	}
	one.want(200, harness.Ask{Method: "DELETE", Path: r.path("/sessions/a?holder=sandbox"), Token: r.write})
	sweep("ended")
	again := r.ask("POST", "/sessions", r.write, map[string]any{"id": "a", "base_ref": "main"})
	wantCode(t, "a session of an ended one's id", again, 409, "already_exists")
	made := r.ask("POST", "/sessions", r.write, map[string]any{"id": "a2", "branch": "sessions/a", "base_ref": "main"})
	r.want(201, "a session on the branch of the ended one", made)
	sweep("the branch has another session")
	wantCode(t, "commit by a customer's token that is bound to the ended session", two.do(r.on(two).commitAsk(state("a", "y"), bound)), 403, "forbidden")
	two.want(200, harness.Ask{Method: "DELETE", Path: r.path("/sessions/a2"), Token: r.write})
	r.session("sessions/a", "main")
	sweep("the branch has no session")
	if a := two.do(r.on(two).commitAsk(state("a", "y"), bound)); a.Status == 201 {
		t.Errorf("commit by a customer's token bound to the ended session = %s", a)
	}
	if err := two.Stop(stopLimit); err != nil {
		t.Fatal(err)
	}
	if err := two.Restart(); err != nil {
		t.Fatal(err)
	}
	r.on(two).wantDead("after a restart", token)
	if got := r.head("sessions/a", true); got != main {
		t.Errorf("the branch is at %s, want %s", got, main)
	}
}

// everyRoute asks every route of the API document that takes a token, about a session.
func (g *gate) everyRoute(repo, session string) []harness.Ask {
	g.t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			Security []map[string][]string `json:"security"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(g.want(200, harness.Ask{Path: "/openapi.json"}).Body, &doc); err != nil {
		g.t.Fatal(err)
	}
	fill := strings.NewReplacer("{repo}", url.PathEscape(repo), "{id}", session, "{part}", session, "{hash}", strings.Repeat("1", 64))
	var asks []harness.Ask
	for path, operations := range doc.Paths {
		for method, op := range operations {
			if len(op.Security) > 0 && op.Security[0]["token"] != nil {
				a := harness.Ask{Method: strings.ToUpper(method), Path: fill.Replace(path)}
				if a.Method != "GET" && a.Method != "HEAD" {
					a.JSON = map[string]any{}
				}
				asks = append(asks, a)
			}
		}
	}
	if len(asks) < 40 {
		g.t.Fatalf("the API document has %d operations with a token, want them all", len(asks))
	}
	slices.SortFunc(asks, func(a, b harness.Ask) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
	return asks
}

// The token of session a on session b by every road: an issued one, and one of the
// customer's that is bound to a (or to an epoch of it) but may write all branches. b, main
// and what only they reach stay as they are, and are not shown to the issued one.
func TestOneSessionsTokenOnAnother(t *testing.T) {
	g := start(t)
	r, main := g.seeded()
	r.leased("a", "one")
	_, epoch := r.leased("b", "two")
	secret := g.want(201, r.commitAsk(state("b", "a secret of b"), r.write)).Text("commit", "commit_sha")
	g.want(201, r.commitAsk(state("a", "work of a"), r.write))
	theirs := r.issue("b", r.write, map[string]any{}).Text("jti")
	fork := r.ask("POST", "/sessions/b/fork", r.write, map[string]any{"n": 1})
	r.want(201, "fork b", fork)
	group := fork.Text("group_id")

	issued := r.issuedFor("a", r.write, map[string]any{})
	old, fresh := uint64(epoch+7), uint64(epoch)
	all := []tokens.Scope{tokens.GitWrite, tokens.GitRead}
	bound := g.sign(tokens.Claims{Repo: r.name, Session: "a", Scopes: all})
	atEpoch := g.sign(tokens.Claims{Repo: r.name, Session: "a", Epoch: &fresh, Scopes: all})
	for name, token := range map[string]string{"the issued token": issued, "a customer's token bound to a": bound, "one bound to a and its epoch": atEpoch} {
		t.Logf("%s on b", name)
		for what, a := range map[string]harness.Ask{
			"commit":              r.commitAsk(state("b", "taken"), token),
			"commit to main":      r.commitAsk(harness.Commit{Branch: "main", Files: []harness.File{{Path: "x", Content: "x"}}}, token),
			"force its branch":    {Method: "POST", Path: r.path("/branches/create"), JSON: map[string]any{"target_branch": "sessions/b", "base_ref": "main", "target_is_ephemeral": true, "force": true}},
			"make a branch":       {Method: "POST", Path: r.path("/branches/create"), JSON: map[string]any{"target_branch": "sessions/c", "base_ref": "main", "target_is_ephemeral": true}},
			"delete its branch":   {Method: "DELETE", Path: r.path("/branches"), JSON: map[string]any{"name": "sessions/b", "ephemeral": true}},
			"lease: renew":        {Method: "POST", Path: r.path("/sessions/b/lease"), JSON: map[string]any{"action": "renew", "holder": "two"}},
			"lease: release":      {Method: "POST", Path: r.path("/sessions/b/lease"), JSON: map[string]any{"action": "release", "holder": "two"}},
			"lease: take over":    {Method: "POST", Path: r.path("/sessions/b/lease"), JSON: map[string]any{"action": "takeover", "holder": "thief"}},
			"a token":             {Method: "POST", Path: r.path("/sessions/b/tokens"), JSON: map[string]any{}},
			"revoke its token":    {Method: "DELETE", Path: r.path("/sessions/b/tokens/" + theirs)},
			"change it":           {Method: "PATCH", Path: r.path("/sessions/b"), JSON: map[string]any{"labels": map[string]any{"mine": "yes"}}},
			"end it":              {Method: "DELETE", Path: r.path("/sessions/b?holder=two")},
			"fork it":             {Method: "POST", Path: r.path("/sessions/b/fork"), JSON: map[string]any{"n": 1}},
			"make a session":      {Method: "POST", Path: r.path("/sessions"), JSON: map[string]any{"from_session": "b"}},
			"pick its child":      {Method: "POST", Path: r.path("/forks/" + group + "/pick"), JSON: map[string]any{"winner": fork.List("children")[0].(map[string]any)["session"].(map[string]any)["id"]}},
			"close its fork":      {Method: "DELETE", Path: r.path("/forks/" + group)},
			"report on its child": {Method: "PUT", Path: r.path("/forks/" + group + "/children/" + fork.List("children")[0].(map[string]any)["session"].(map[string]any)["id"].(string) + "/validity"), JSON: map[string]any{"valid": false}},
		} {
			a.Token = token
			if got := g.do(a); got.Status != 403 {
				t.Errorf("%s: %s = %s, want 403", name, what, got)
			}
		}
		for _, push := range []struct {
			ephemeral bool
			command   pushCommand
		}{
			{true, pushCommand{secret, main, "refs/heads/sessions/b"}}, {true, pushCommand{secret, zeros, "refs/heads/sessions/b"}},
			{true, pushCommand{zeros, main, "refs/heads/sessions/c"}}, {true, pushCommand{zeros, secret, "refs/heads/sessions/c"}},
			{false, pushCommand{main, secret, "refs/heads/main"}}, {false, pushCommand{zeros, main, "refs/heads/c"}}, {false, pushCommand{zeros, main, "refs/tags/c"}},
		} {
			a := g.do(harness.Ask{
				Method: "POST", Path: r.gitPath(push.ephemeral, "git-receive-pack"), Basic: token, Header: map[string]string{"Content-Type": "application/x-git-receive-pack-request"},
				Body: strings.NewReader(pushBody("report-status", packObjects(nil), push.command)),
			})
			if a.Status != 200 || strings.Contains(string(a.Body), "ok refs/") || !strings.Contains(string(a.Body), "ng refs/") {
				t.Errorf("%s: push of %v = %s, want it refused", name, push.command, a)
			}
		}
	}
	wantCode(t, "a pin by the issued token", r.ask("POST", "/pins", issued, map[string]any{"sha": secret, "holder": "x"}), 403, "forbidden")
	r.wantNothingOf(issued, "b", secret)

	// Odd names in a customer's claims are no way in, nor a way to make the server fail.
	for name, c := range map[string]tokens.Claims{
		"a long jti": {Session: "a", ID: strings.Repeat("j", 20_000)}, "a jti that is no text": {Session: "a", ID: "x\x00/y"},
		"a long sid": {Session: strings.Repeat("s", 20_000)}, "a sid that is no id": {Session: "a/../b"}, "a sid with more behind it": {Session: "a\x00b"},
	} {
		c.Repo, c.Scopes = r.name, all
		a := g.do(r.commitAsk(state("a", name), g.sign(c)))
		if want := map[bool]int{true: 201, false: 403}[c.Session == "a"]; a.Status != want {
			t.Errorf("commit to a with %s = %s, want %d", name, a, want)
		}
	}

	// A customer's epoch that is not the session's stops its own session's writes too.
	stale := g.sign(tokens.Claims{Repo: r.name, Session: "a", Epoch: &old, Scopes: all})
	wantCode(t, "commit with another epoch", g.do(r.commitAsk(state("a", "x"), stale)), 403, "stale_epoch")
	wantCode(t, "a token with another epoch", r.issue("a", stale, map[string]any{}), 403, "stale_epoch")
	g.want(201, r.commitAsk(state("a", "more of a"), atEpoch))
	// And it gives nothing: a token bound to a that may not write a's branch may not.
	reader := g.sign(tokens.Claims{Repo: r.name, Session: "a", Epoch: &fresh, Scopes: []tokens.Scope{tokens.GitRead}})
	wantCode(t, "commit with sid and epoch, and git:read alone", g.do(r.commitAsk(state("a", "x"), reader)), 403, "forbidden")

	if got := r.head("sessions/b", true); got != secret {
		t.Errorf("b is at %s, want %s", got, secret)
	}
	if got := r.head("main", false); got != main {
		t.Errorf("main is at %s, want %s", got, main)
	}
	b := g.want(200, harness.Ask{Path: r.path("/sessions/b"), Token: r.read})
	if b.Text("lease", "holder") != "two" || number(b, "epoch") != epoch || b.Text("state") != "active" || b.Text("labels", "mine") != "" {
		t.Errorf("b = %s, want it as it was", b)
	}
}

// wantNothingOf checks that a token is shown nothing of a session whose head is secret,
// on any route that an issued token may ask.
func (r *repo) wantNothingOf(token, session, secret string) {
	r.g.t.Helper()
	for _, path := range []string{
		"/sessions/" + session, "/branch?ephemeral=true&name=sessions/" + session, "/branches?ephemeral=true", "/branches", "/commit?sha=" + secret, "/commits?ref=" + secret,
		"/commits?ephemeral=true&branch=sessions/" + session, "/file?path=state&ref=" + secret, "/file?path=state&ephemeral=true&ref=sessions/" + session, "/files?ref=" + secret,
		"/diff?sha=" + secret, "/branches/diff?ephemeral=true&branch=sessions/" + session, "/pins", "/events", "/events?session=" + session, "/events?limit=1000",
	} {
		a := r.g.do(harness.Ask{Path: r.path(path), Token: token})
		// A refusal names what was asked for.
		told := a.Status == 200 && (strings.Contains(string(a.Body), secret) || strings.Contains(string(a.Body), "sessions/"+session))
		if told || strings.Contains(string(a.Body), "secret of") {
			r.g.t.Errorf("GET %s shows %s", path, a)
		}
	}
	if refs := r.refs(r.ephemeral(token)); refs["refs/heads/sessions/"+session] != "" {
		r.g.t.Errorf("ls-remote shows %v", refs)
	}
	dir := r.clone(r.ephemeral(token))
	r.g.refused(dir, "fetch", "origin", secret)
}
