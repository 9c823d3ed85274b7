package integration

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/tokens"
)

// forge is a token of any header and claims, signed by sign over its text.
func forge(t testing.TB, header, claims map[string]any, sign func(text string) []byte) string {
	t.Helper()
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(header) + "." + part(claims)
	return text + "." + base64.RawURLEncoding.EncodeToString(sign(text))
}

// es256 signs as the org does.
func (g *gate) es256(text string) []byte {
	g.t.Helper()
	sig, err := jwt.SigningMethodES256.Sign(text, g.org.Key)
	if err != nil {
		g.t.Fatal(err)
	}
	return sig
}

func unsigned(string) []byte { return nil }

// good is the claims of a token that may do everything in r.
func (r *repo) good() map[string]any {
	now := time.Now().Unix()
	return map[string]any{"iss": "acme", "sub": "x", "repo": r.name, "scopes": []string{"git:write", "git:read", "repo:write"}, "iat": now, "exp": now + 600}
}

func with(claims map[string]any, name string, value any) map[string]any {
	changed := map[string]any{}
	for k, v := range claims {
		changed[k] = v
	}
	if value == nil {
		delete(changed, name)
	} else {
		changed[name] = value
	}
	return changed
}

// Tokens that say too much, too little, or are signed by the wrong hand. None opens
// anything, on the API or for git (PI-9).
func TestCase3_1_To3_3_ForgedTokens(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	public, err := os.ReadFile(g.org.PublicFile)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := tokens.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	hmacOf := func(key []byte) func(string) []byte {
		return func(text string) []byte { m := hmac.New(sha256.New, key); m.Write([]byte(text)); return m.Sum(nil) }
	}
	strangers := func(text string) []byte { sig, _ := jwt.SigningMethodES256.Sign(text, stranger); return sig }
	rs := func(text string) []byte { sig, _ := jwt.SigningMethodRS256.Sign(text, rsaKey); return sig }
	alg := func(name any) map[string]any { return map[string]any{"alg": name, "typ": "JWT"} }
	es, good, now := alg("ES256"), r.good(), time.Now().Unix()
	valid := forge(t, es, good, g.es256)
	for name, tc := range map[string]struct {
		token  string
		status int
	}{
		"good":                    {valid, 200},
		"kid unknown":             {forge(t, map[string]any{"alg": "ES256", "kid": "no such"}, good, g.es256), 200}, // a hint
		"iat in 20 s":             {forge(t, es, with(good, "iat", now+20), g.es256), 200},
		"nbf in 20 s":             {forge(t, es, with(good, "nbf", now+20), g.es256), 200},
		"iat a day ago":           {forge(t, es, with(good, "iat", now-86400), g.es256), 200},
		"exp in a year":           {forge(t, es, with(good, "exp", now+365*86400), g.es256), 200},
		"exp float, integral":     {forge(t, es, with(good, "exp", float64(now+600)), g.es256), 200},
		"exp 1 s ago, in leeway":  {forge(t, es, with(good, "exp", now-1), g.es256), 200}, // OQ-A3
		"nbf in an hour":          {forge(t, es, with(good, "nbf", now+3600), g.es256), 401},
		"alg none":                {forge(t, alg("none"), good, unsigned), 401},
		"alg None":                {forge(t, alg("None"), good, unsigned), 401},
		"alg none, signed":        {forge(t, alg("none"), good, g.es256), 401},
		"HS256 by the public PEM": {forge(t, alg("HS256"), good, hmacOf(public)), 401},
		"HS256 by nothing":        {forge(t, alg("HS256"), good, hmacOf(nil)), 401},
		"RS256 by a stranger":     {forge(t, alg("RS256"), good, rs), 401},
		"RS256, signed ES256":     {forge(t, alg("RS256"), good, g.es256), 401},
		"ES512":                   {forge(t, alg("ES512"), good, g.es256), 401},
		"alg missing":             {forge(t, map[string]any{"typ": "JWT"}, good, g.es256), 401},
		"alg a number":            {forge(t, alg(1), good, g.es256), 401},
		"empty signature":         {forge(t, es, good, unsigned), 401},
		"garbage signature":       {forge(t, es, good, func(string) []byte { return []byte("garbage") }), 401},
		"zero signature":          {forge(t, es, good, func(string) []byte { return make([]byte, 64) }), 401},
		"signed by a stranger":    {forge(t, es, good, strangers), 401},
		"kid of another's":        {forge(t, map[string]any{"alg": "ES256", "kid": "acme"}, good, strangers), 401},
		"jwk in the header":       {forge(t, map[string]any{"alg": "ES256", "jwk": map[string]any{"kty": "EC"}}, good, strangers), 401},
		"crit in the header":      {forge(t, map[string]any{"alg": "ES256", "crit": []string{"x"}}, good, g.es256), 401},
		"another org":             {forge(t, es, with(good, "iss", "other"), g.es256), 401},
		"no org":                  {forge(t, es, with(good, "iss", nil), g.es256), 401},
		"no exp":                  {forge(t, es, with(good, "exp", nil), g.es256), 401},
		"exp a word":              {forge(t, es, with(good, "exp", "soon"), g.es256), 401},
		"exp 0":                   {forge(t, es, with(good, "exp", 0), g.es256), 401},
		"exp 2 minutes ago":       {forge(t, es, with(good, "exp", now-120), g.es256), 401},
		"exp negative":            {forge(t, es, with(good, "exp", -1), g.es256), 401},
		"exp huge":                {forge(t, es, with(good, "exp", math.MaxInt64), g.es256), 200}, // OQ-S9
		"scopes a word":           {forge(t, es, with(good, "scopes", "git:write"), g.es256), 401},
		"repo a number":           {forge(t, es, with(good, "repo", 7), g.es256), 401},
		"refs malformed":          {forge(t, es, with(good, "refs", []any{[]any{"a*b", []string{}}}), g.es256), 401},
		"refs a word":             {forge(t, es, with(good, "refs", "*"), g.es256), 401},
		"no repo":                 {forge(t, es, with(good, "repo", nil), g.es256), 403},
		"no scopes":               {forge(t, es, with(good, "scopes", nil), g.es256), 403},
		"three dots":              {valid + ".x", 401},
		"payload changed":         {strings.Replace(valid, ".", ".e", 1), 401},
		"not a token":             {"hello", 401},
		"padding":                 {valid + "==", 401},
	} {
		asks := map[string]harness.Ask{
			"file":     {Path: "/api/v1/repos/file?path=README.md", Token: tc.token},
			"info/ref": {Path: r.gitPath(false, "info/refs") + "?service=git-upload-pack", Basic: tc.token},
		}
		for door, ask := range asks {
			a := g.do(ask)
			if a.Status != tc.status {
				t.Errorf("%s: %s = %s, want %d", name, door, a, tc.status)
			}
			if a.Status == 401 && a.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: %s has no challenge", name, door)
			}
			if len(tc.token) > 40 && strings.Contains(string(a.Body), tc.token[len(tc.token)-20:]) {
				t.Errorf("%s: %s repeats the token: %s", name, door, a)
			}
		}
	}
	if r.head("main", false) != head {
		t.Error("main moved")
	}
}

// A cache of verified tokens does not outlive the token.
func TestExpiredTokenIsNotRemembered(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	soon := forge(t, map[string]any{"alg": "ES256"}, with(r.good(), "exp", time.Now().Unix()-58), g.es256) // 2 s of the leeway left
	ask := harness.Ask{Path: r.path("/branches"), Token: soon}
	g.want(200, ask)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if a := g.do(ask); a.Status == 401 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a token is still taken long after its end")
		}
	}
}

func TestCase3_4_Challenges(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	for path, want := range map[string]string{
		r.gitPath(false, "info/refs") + "?service=git-upload-pack": "Basic realm=",
		r.gitPath(true, "info/refs") + "?service=git-receive-pack": "Basic realm=",
		"/no/such/repo.git/info/refs?service=git-upload-pack":      "Basic realm=",
		"/api/v1/repos/branches":                                   "Bearer",
		r.path("/branches"):                                        "Bearer",
		"/api/repos/none/file?path=x":                              "Bearer",
	} {
		for name, header := range map[string]string{"nothing": "", "an empty password": "Basic dDo=", "an odd scheme": "Digest x", "a bare word": "x"} {
			a := g.do(harness.Ask{Path: path, Header: map[string]string{"Authorization": header}})
			if a.Status != 401 || !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), want) {
				t.Errorf("GET %s with %s = %d, challenge %q; want 401 and %s", path, name, a.Status, a.Header.Get("WWW-Authenticate"), want)
			}
		}
	}
	// Somebody known who may not is refused without a new challenge.
	if a := g.do(harness.Ask{Path: r.gitPath(false, "info/refs") + "?service=git-receive-pack", Basic: r.read}); a.Status != 403 || a.Header.Get("WWW-Authenticate") != "" {
		t.Errorf("receive-pack with git:read = %s, challenge %q; want 403 and none", a, a.Header.Get("WWW-Authenticate"))
	}
	for _, scheme := range []string{"bearer", "BEARER"} {
		if a := g.do(harness.Ask{Path: r.path("/branches"), Header: map[string]string{"Authorization": scheme + " " + r.read}}); a.Status != 200 {
			t.Errorf("Authorization: %s = %s, want 200", scheme, a)
		}
	}
}

// Another's repo and one that does not exist answer alike (OQ-A4).
func TestCase3_5_AnothersRepo(t *testing.T) {
	g := start(t)
	a, _ := g.seeded()
	b, head := g.seeded()
	calls := func(name string) []harness.Ask {
		base := "/api/repos/" + strings.ReplaceAll(name, "/", "%2F")
		return []harness.Ask{
			{Path: base}, {Path: base + "/file?path=README.md"}, {Path: base + "/diff?sha=" + head}, {Path: base + "/commits"}, {Path: base + "/branches"},
			{Method: "POST", Path: base + "/commit-pack", Body: strings.NewReader(harness.Commit{Branch: "main", Files: []harness.File{{Path: "x", Content: "x"}}}.Lines())},
			{Method: "POST", Path: base + "/branches/create", JSON: map[string]any{"target_branch": "x", "base_ref": "main"}},
			{Method: "DELETE", Path: base + "/branches", JSON: map[string]any{"name": "main"}},
			{Method: "DELETE", Path: base},
			{Path: "/" + name + ".git/info/refs?service=git-upload-pack"}, {Path: "/" + name + "+ephemeral.git/info/refs?service=git-receive-pack"},
		}
	}
	token := g.sign(tokens.Claims{Repo: a.name, Scopes: []tokens.Scope{tokens.GitWrite, tokens.GitRead, tokens.RepoWrite}})
	theirs, missing := calls(b.name), calls("team/none")
	for i := range theirs {
		theirs[i].Token, missing[i].Token = token, token
		got, want := g.do(theirs[i]), g.do(missing[i])
		if got.Status != 404 || got.Status != want.Status || string(got.Body) != string(want.Body) || got.Header.Get("Content-Type") != want.Header.Get("Content-Type") {
			t.Errorf("%s %s = %s, for a missing one %s; want the same 404", theirs[i].Method, theirs[i].Path, got, want)
		}
	}
	if b.head("main", false) != head {
		t.Error("another's main moved")
	}
}

func TestCase3_7_MissingScopes(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	clone := r.clone(r.remote(r.write))
	r.work(clone, "x", "x")
	pack := harness.Commit{Branch: "main", Files: []harness.File{{Path: "x", Content: "x"}}}
	writes := map[string]harness.Ask{
		"commit-pack":   r.commitAsk(pack, ""),
		"create-branch": {Method: "POST", Path: r.path("/branches/create"), JSON: map[string]any{"target_branch": "x", "base_ref": "main"}},
		"delete-branch": {Method: "DELETE", Path: r.path("/branches"), JSON: map[string]any{"name": "x"}},
	}
	admin := map[string]harness.Ask{
		"create repo": {Method: "POST", Path: "/api/v1/repos", JSON: map[string]any{}},
		"delete repo": {Method: "DELETE", Path: r.path("")},
		"update repo": {Method: "PATCH", Path: r.path(""), JSON: map[string]any{"default_branch": "x"}},
	}
	check := func(asks map[string]harness.Ask, scope string, scopes ...tokens.Scope) {
		token := g.sign(tokens.Claims{Repo: r.name, Scopes: scopes})
		for name, ask := range asks {
			ask.Token = token
			if name == "commit-pack" {
				ask.Body = strings.NewReader(pack.Lines())
			}
			if a := g.do(ask); a.Status != 403 || !strings.Contains(a.Text("error"), scope) {
				t.Errorf("%s with %v = %s, want 403 naming %s", name, scopes, a, scope)
			}
		}
	}
	check(writes, "git:write", tokens.GitRead)
	check(writes, "git:write", tokens.RepoWrite)
	check(writes, "git:write")
	check(admin, "repo:write", tokens.GitWrite)
	check(map[string]harness.Ask{"list repos": {Path: "/api/v1/repos"}}, "org:read", tokens.GitWrite)
	check(map[string]harness.Ask{"read": {Path: r.path("/branches")}}, "git:read", tokens.RepoWrite)
	if out := g.refused(clone, "push", r.remote(r.read), "HEAD:main"); !strings.Contains(out, "403") {
		t.Errorf("push with git:read = %s, want 403", out)
	}
	if r.head("main", false) != head || g.do(harness.Ask{Path: r.path(""), Token: r.read}).Text("default_branch") != "main" {
		t.Error("a refused call changed the repo")
	}
	// OQ-S3: an org-wide token creates nothing.
	if a := g.do(harness.Ask{Method: "POST", Path: "/api/v1/repos", Token: g.sign(tokens.Claims{Repo: "org", Scopes: []tokens.Scope{tokens.RepoWrite}}), JSON: map[string]any{}}); a.Status != 403 {
		t.Errorf("create repo with the claim org = %s, want 403", a)
	}
}

// Tokens with many rules fit; a boundless one is cut off (auth.md 1.4).
func TestHugeTokens(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	rules := func(n int) string {
		var refs []any
		for i := range n {
			refs = append(refs, []any{fmt.Sprintf("refs/heads/branch-%d", i), []string{"no-push"}})
		}
		return forge(t, map[string]any{"alg": "ES256"}, with(r.good(), "refs", refs), g.es256)
	}
	fits := rules(1000)
	if len(fits) < 48<<10 || len(fits) > 62<<10 {
		t.Fatalf("the token has %d bytes, want about 55 KiB", len(fits))
	}
	g.want(200, harness.Ask{Path: r.path("/branches"), Token: fits})
	g.run("", "ls-remote", "-q", r.remote(fits))
	if a, err := g.Do(harness.Ask{Path: r.path("/branches"), Token: rules(20_000)}); err == nil && a.Status != 431 && a.Status != 401 {
		t.Errorf("a token of over a MiB = %s, want 431, 401 or a cut connection", a)
	}
	g.want(200, harness.Ask{Path: r.path("/branches"), Token: r.read})
}
