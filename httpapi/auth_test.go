package httpapi

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

const refsOf = "/info/refs?service=git-upload-pack"

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func TestCredentials(t *testing.T) {
	tok := "aaa.bbb.ccc"
	for _, tc := range []struct {
		header []string
		git    bool
		want   string
	}{
		{[]string{"Bearer " + tok}, false, tok},
		{[]string{"bearer  " + tok + " "}, false, tok},
		{[]string{"BEARER " + tok}, true, tok},
		{[]string{basic("t", tok)}, true, tok},
		{[]string{basic("", tok)}, true, tok},
		{[]string{"bAsIc" + strings.TrimPrefix(basic("me", tok), "Basic")}, true, tok},
		{[]string{basic("t", tok)}, false, ""},
		{[]string{basic("t", "")}, true, ""},
		{[]string{basic(tok, "")}, true, ""},
		{[]string{"Basic !!"}, true, ""},
		{[]string{"Basic " + base64.StdEncoding.EncodeToString([]byte(tok))}, true, ""},
		{[]string{tok}, true, ""},
		{[]string{"Bearer"}, false, ""},
		{[]string{"Bearer "}, false, ""},
		{[]string{"Negotiate " + tok}, true, ""},
		{[]string{"Bearer " + tok, "Bearer " + tok}, false, ""},
		{nil, true, ""},
	} {
		got, err := credentials(&http.Request{Header: http.Header{"Authorization": tc.header}}, tc.git)
		if got != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("credentials of %q, git %v = %q, %v; want %q", tc.header, tc.git, got, err, tc.want)
		}
	}
}

// Case 3.4: the challenge is Basic on git's paths and Bearer on the API's; who is
// known and may not gets none.
func TestCase3_4_Challenges(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	expired := tokenOf(t, tokens.Claims{Repo: "r", Scopes: []tokens.Scope{tokens.GitRead}, ExpiresAt: time.Now().Add(-2 * time.Minute)})
	for _, tc := range []struct {
		path, auth string
		status     int
		challenge  string
	}{
		{"/r.git" + refsOf, "", 401, "Basic"},
		{"/missing.git" + refsOf, "", 401, "Basic"}, // before anything is told of existence
		{"/r.git" + refsOf, "Bearer x", 401, "Basic"},
		{"/r.git" + refsOf, basic("t", expired), 401, "Basic"},
		{"/r.git" + refsOf, basic("t", token(t, "r")), 403, ""},
		{"/r.git/info/refs?service=git-receive-pack", basic("t", r.read), 403, ""},
		{"/r+import.git" + refsOf, basic("t", r.write), 403, ""},
		{"/r.git/info/refs", basic("t", r.read), 403, ""}, // the dumb protocol
		{"/r.git/info/refs?service=git-archive", basic("t", r.read), 403, ""},
		{"/other.git" + refsOf, basic("t", r.read), 404, ""},
		{"/api/v1/repos/branches", "", 401, "Bearer"},
		{"/api/v1/repos/branches", basic("t", r.read), 401, "Bearer"},
		{"/api/v1/repos/branches", "Bearer " + expired, 401, "Bearer"},
		{"/api/v1/repos/branches", "Bearer " + r.admin, 403, ""},
		{"/api/repos/other/branches", "Bearer " + r.read, 404, ""},
	} {
		h := http.Header{}
		if tc.auth != "" {
			h.Set("Authorization", tc.auth)
		}
		a := g.do(ask{path: tc.path, header: h})
		scheme, _, _ := strings.Cut(a.header.Get("WWW-Authenticate"), " ")
		if a.status != tc.status || scheme != tc.challenge {
			t.Errorf("GET %s as %.12q = %d, challenge %q; want %d, %q", tc.path, tc.auth, a.status, a.header.Get("WWW-Authenticate"), tc.status, tc.challenge)
		}
		if at(a.json(t), "error") == "" {
			t.Errorf("GET %s = %s, want an error text", tc.path, a.body)
		}
	}
	a := g.do(ask{path: "/r.git" + refsOf})
	if got := a.header.Get("WWW-Authenticate"); got != `Basic realm="Git Repository"` {
		t.Errorf("git's challenge is %s", got)
	}
}

// git shows its user the lines of a text answer, so it gets one.
func TestGitIsToldInText(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	a := g.do(ask{path: "/r.git/info/refs?service=git-receive-pack", token: r.read, header: http.Header{"User-Agent": {"git/2.39.5"}}})
	if a.status != 403 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") || string(a.body) != "token lacks scope git:write\n" {
		t.Errorf("git without the scope is told %d %s %q", a.status, a.header.Get("Content-Type"), a.body)
	}
}

// Case 3.7 and the order of checks: token, claim and path, scope, repo, body.
func TestCase3_7_ScopesAndOrder(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	none := token(t, "r")
	ghostRead := token(t, "ghost", tokens.GitRead)
	ghost := token(t, "ghost", tokens.GitWrite, tokens.RepoWrite)
	wide := token(t, "org", tokens.OrgRead, tokens.RepoWrite, tokens.GitWrite)
	for _, tc := range []struct {
		method, path, token, body string
		status                    int
		text                      string
	}{
		{"POST", r.path("/commit-pack"), r.read, "", 403, "git:write"},
		{"POST", r.path("/branches/create"), r.read, "{", 403, "git:write"}, // scope before body
		{"DELETE", r.path("/branches"), r.read, "", 403, "git:write"},
		{"DELETE", r.path(""), r.write, "", 403, "repo:write"},
		{"DELETE", "/api/v1/repos/delete", r.write, "", 403, "repo:write"},
		{"PATCH", r.path(""), r.write, "", 403, "repo:write"},
		{"POST", "/api/repos", r.write, "", 403, "repo:write"},
		{"GET", "/api/repos", r.write, "", 403, "org:read"},
		{"GET", r.path("/files"), none, "", 403, "git:read"},
		{"GET", r.path(""), none, "", 200, ""}, // OQ-A6
		{"GET", "/api/whoami", none, "", 200, ""},
		{"GET", "/api/repos/other/files", none, "", 404, "repository not found"}, // path before scope
		{"GET", "/api/v1/repos/files", ghostRead, "", 404, "repository not found"},
		{"POST", "/api/v1/repos/branches/create", ghostRead, "", 403, "git:write"}, // scope before existence
		{"POST", "/api/v1/repos/branches/create", ghost, "{", 404, "repository not found"},
		{"POST", r.path("/branches/create"), r.write, "{", 400, "JSON"},
		{"GET", "/api/v1/repos", wide, "", 200, ""},
		{"POST", "/api/v1/repos", wide, "", 403, "org-wide"}, // OQ-S3
		{"GET", "/api/v1/repo", wide, "", 404, ""},
		{"POST", "/api/v1/repos", tokenOf(t, tokens.Claims{Scopes: []tokens.Scope{tokens.RepoWrite}}), "", 403, "repo claim"},
		{"GET", "/api/v1/repos", tokenOf(t, tokens.Claims{Scopes: []tokens.Scope{tokens.OrgRead}}), "", 403, "repo claim"},
		{"GET", "/api/v1/repos", tokenOf(t, tokens.Claims{Org: "other", Repo: "org", Scopes: []tokens.Scope{tokens.OrgRead}}), "", 401, ""},
	} {
		a := g.do(ask{method: tc.method, path: tc.path, token: tc.token, body: tc.body})
		if a.status != tc.status || !strings.Contains(string(a.body), tc.text) {
			t.Errorf("%s %s = %d %.300s, want %d and %q", tc.method, tc.path, a.status, a.body, tc.status, tc.text)
		}
	}
	g.want(200, ask{path: r.path(""), token: r.read}) // and nothing was changed
}

// Case 3.5: what is another's looks like what is missing, byte for byte.
func TestCase3_5_AnothersRepoIsMissing(t *testing.T) {
	g := newGate(t)
	a := g.newRepo("a")
	g.newRepo("b")
	for _, tc := range []struct{ method, tail string }{
		{"GET", ""}, {"GET", "/file?path=x"}, {"GET", "/diff?ref=main"}, {"POST", "/commit-pack"}, {"DELETE", ""}, {"PATCH", ""},
	} {
		var seen []answer
		for _, name := range []string{"b", "missing"} {
			got := g.do(ask{method: tc.method, path: "/api/repos/" + name + tc.tail, token: token(t, "a", tokens.GitWrite, tokens.RepoWrite)})
			if got.status != 404 {
				t.Errorf("%s of %s%s with a token of a = %d %s, want 404", tc.method, name, tc.tail, got.status, got.body)
			}
			seen = append(seen, got)
		}
		if string(seen[0].body) != string(seen[1].body) {
			t.Errorf("%s %s tells repos apart: %s and %s", tc.method, tc.tail, seen[0].body, seen[1].body)
		}
		ghost := token(t, "ghost", tokens.GitWrite, tokens.RepoWrite)
		own := g.do(ask{method: tc.method, path: "/api/repos/ghost" + tc.tail, token: ghost})
		if string(own.body) != string(seen[0].body) {
			t.Errorf("%s %s of a missing repo with its own token = %s, another's = %s", tc.method, tc.tail, own.body, seen[0].body)
		}
	}
	g.want(200, ask{path: "/api/v1/repo", token: token(t, "b")})
	_ = a
}

// Case 3.6 and A-14: no token, and no piece of one, in logs and answers.
func TestCase3_6_NoTokenInLogsOrAnswers(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	stranger := tokenOf(t, tokens.Claims{Org: "stranger", Repo: "r"})
	var bodies strings.Builder
	for _, tok := range []string{r.read, r.write, stranger, stranger + "x", "no.jwt.atall-0123456789abcdef"} {
		for _, a := range []ask{
			{path: "/api/v1/repos/files?token=" + tok, token: tok},
			{path: "/api/v1/nothing?token=" + tok, token: tok},
			{path: "/api/repos/" + tok + "/files", token: tok},
			{path: "/r.git" + refsOf + "&x=" + tok, header: http.Header{"Authorization": {basic("t", tok)}}},
			{path: "/" + tok + ".git" + refsOf, header: http.Header{"Authorization": {basic("t", tok)}}},
			{method: "POST", path: "/api/v1/repos/commit-pack", token: tok, body: "{"},
			{path: "/api/whoami", token: tok},
		} {
			got := g.do(a)
			bodies.Write(got.body)
			for _, values := range got.header {
				bodies.WriteString(strings.Join(values, "\n"))
			}
		}
		for where, text := range map[string]string{"log": g.logs.String(), "answer": bodies.String()} {
			if strings.Contains(text, tok[len(tok)-20:]) {
				t.Errorf("the end of a token stands in a %s", where)
			}
		}
		if !strings.Contains(g.logs.String(), tokens.ShortHash(tok)) {
			t.Errorf("no log line names the token's hash %s", tokens.ShortHash(tok))
		}
	}
}

func TestWhoami(t *testing.T) {
	g := newGate(t)
	epoch := uint64(3)
	mine := "refs/namespaces/ephemeral/refs/heads/sessions/42"
	confined := tokenOf(t, tokens.Claims{
		Subject: "sandbox", Repo: "team-red/site", Scopes: []tokens.Scope{tokens.GitWrite}, Session: "42", Epoch: &epoch,
		Refs: []refpolicy.Rule{rule(mine, refpolicy.NoForcePush), rule("main", refpolicy.NoPush), rule("*", refpolicy.NoRead)},
	})
	v := g.want(200, ask{path: "/api/whoami", token: confined}).json(t)
	for path, want := range map[string]any{
		"org": "acme", "sub": "sandbox", "repo_name": "team-red/site", "session": "42", "epoch": float64(3),
	} {
		if v[path] != want {
			t.Errorf("whoami %s = %v, want %v", path, v[path], want)
		}
	}
	if s := v["expires_in_s"].(float64); s < 3500 || s > 3600 {
		t.Errorf("expires_in_s = %v, want about an hour", s)
	}
	if got := at(v, "may", "push"); len(got.([]any)) != 1 || at(got, 0) != mine {
		t.Errorf("may.push = %v, want %s alone", got, mine)
	}
	if got := at(v, "may", "read").([]any); len(got) != 2 || got[1] != "refs/heads/main" {
		t.Errorf("may.read = %v, want the session's branch and main", got)
	}
	if at(v, "refs", 2, "ops", 0) != "no-read" || at(v, "refs", 0, "pattern") != mine {
		t.Errorf("refs = %v, want the rules in order", v["refs"])
	}
	free := g.want(200, ask{path: "/api/whoami", token: token(t, "r")}).json(t)
	if len(at(free, "may", "push").([]any)) != 0 || len(free["refs"].([]any)) != 0 || len(free["scopes"].([]any)) != 0 {
		t.Errorf("whoami without scopes = %v, want empty lists", free)
	}
}

func TestAdvice(t *testing.T) {
	s := New(Config{Now: func() time.Time { return time.Unix(1790000000, 0) }})
	policy, err := refpolicy.New([]refpolicy.Rule{rule("main", refpolicy.NoPush), rule("s/1"), rule("*", refpolicy.NoPush)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &tokens.Principal{Scopes: tokens.ScopesOf(tokens.GitWrite), Policy: policy}
	for left, want := range map[time.Duration]string{
		10 * time.Minute: "this token can push refs/heads/s/1; it expires in 10m0s",
		-time.Second:     "this token can push refs/heads/s/1; it has just expired",
		800 * time.Hour:  "this token can push refs/heads/s/1; it expires on 2026-10-24",
	} {
		p.ExpiresAt = s.Now().Add(left)
		if got := s.abilities(p); got != want {
			t.Errorf("advice %v before expiry = %q, want %q", left, got, want)
		}
	}
}
