package integration

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// A server's key id in the header opens nothing without the server's key: not with the
// customer's signature, not with none or HMAC, not for an id that no key has. A token
// that the server did sign cannot be changed in any claim. A flood of made-up ids keeps
// nobody else out.
func TestCase3_1_ForgedServerKeys(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	r.leased("a", "one")
	r.leased("b", "two")
	token := r.issued("a")
	claims := claimsOf(t, token)
	kid := headerOf(t, token)["kid"].(string)
	if !strings.HasPrefix(kid, "hg-") {
		t.Fatalf("kid of an issued token = %q, want hg-...", kid)
	}
	parts := strings.Split(token, ".")
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	edDSA := func(text string) []byte { sig, _ := jwt.SigningMethodEdDSA.Sign(text, stranger); return sig }
	hmacBy := func(key string) func(string) []byte {
		return func(text string) []byte { sig, _ := jwt.SigningMethodHS256.Sign(text, []byte(key)); return sig }
	}
	same := func(string) []byte { return signature }
	head := func(alg, kid string) map[string]any { return map[string]any{"alg": alg, "typ": "JWT", "kid": kid} }
	forged := map[string]string{
		"the customer's signature":                forge(t, head("ES256", kid), claims, g.es256),
		"the customer's signature, called EdDSA":  forge(t, head("EdDSA", kid), claims, g.es256),
		"another Ed25519 key":                     forge(t, head("EdDSA", kid), claims, edDSA),
		"no signature":                            forge(t, head("none", kid), claims, unsigned),
		"EdDSA without signature":                 forge(t, head("EdDSA", kid), claims, unsigned),
		"HS256 by the key id":                     forge(t, head("HS256", kid), claims, hmacBy(kid)),
		"HS256 by nothing":                        forge(t, head("HS256", kid), claims, hmacBy("")),
		"an id that no key has":                   forge(t, head("EdDSA", "hg-0123456789abcdef"), claims, edDSA),
		"an id with a path in it":                 forge(t, head("EdDSA", "hg-../../operator"), claims, edDSA),
		"the prefix alone":                        forge(t, head("EdDSA", "hg-"), claims, edDSA),
		"the id in capitals":                      forge(t, head("EdDSA", strings.ToUpper(kid)), claims, edDSA),
		"the key in the header":                   forge(t, map[string]any{"alg": "EdDSA", "kid": kid, "jwk": map[string]any{"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(stranger.Public().(ed25519.PublicKey))}}, claims, edDSA),
		"the id left out, the server's signature": forge(t, map[string]any{"alg": "EdDSA", "typ": "JWT"}, claims, same),
	}
	for claim, value := range map[string]any{
		"iss": "other", "sub": "boss", "repo": "team/other", "scopes": []string{"git:write", "git:read", "repo:write"}, "exp": 1 << 40, "iat": 0, "jti": claims["jti"].(string) + "x",
		"sid": "b", "epoch": 2, "refs": []any{[]any{"*", []string{}}}, "within": []any{}, "kid": "x",
	} {
		forged["changed "+claim] = forge(t, head("EdDSA", kid), with(claims, claim, value), same)
		forged["changed "+claim+", the customer's signature"] = forge(t, head("ES256", kid), with(claims, claim, value), g.es256)
	}
	for _, claim := range []string{"refs", "within", "epoch", "sid", "exp", "jti"} {
		forged["without "+claim] = forge(t, head("EdDSA", kid), with(claims, claim, nil), same)
	}
	for name, raw := range forged {
		if name != "without within" && raw == token {
			t.Fatalf("%s: nothing is forged", name)
		}
		for what, a := range map[string]harness.Ask{
			"whoami": {Path: "/api/whoami", Token: raw}, "branches": {Path: r.path("/branches"), Token: raw},
			"renew":  {Method: "POST", Path: "/api/tokens/renew", Token: raw, JSON: map[string]any{}},
			"commit": r.commitAsk(state("a", name), raw),
			"push":   {Path: r.gitPath(true, "info/refs") + "?service=git-receive-pack", Basic: raw},
		} {
			if got := g.do(a); got.Status != 401 {
				t.Errorf("%s: %s = %s, want 401", name, what, got)
			}
		}
	}
	// The claims of an issued token under the customer's own key are the customer's: what
	// is not confined by them is not, and renew is for issued tokens.
	own := forge(t, map[string]any{"alg": "ES256"}, claims, g.es256)
	wantCode(t, "renew of a customer's token with an issued one's claims", g.renew(own, map[string]any{}), 403, "forbidden")
	wantCode(t, "commit to b with it", g.do(r.commitAsk(state("b", "x"), own)), 403, "forbidden", "policy_denied")

	flood(t, g, func(n int) harness.Ask {
		return harness.Ask{Path: "/api/whoami", Token: forge(t, head("EdDSA", fmt.Sprintf("hg-%016x", n)), claims, edDSA)}
	}, harness.Ask{Path: "/api/whoami", Token: token})
}

func headerOf(t testing.TB, token string) (header map[string]any) {
	t.Helper()
	part, _, _ := strings.Cut(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(part)
	if err == nil {
		err = json.Unmarshal(raw, &header)
	}
	if err != nil {
		t.Fatal(err)
	}
	return header
}

// flood sends forged requests from several clients until others have been served; those
// have to be, each time. It tells how long they took.
func flood(t *testing.T, g *gate, forged func(n int) harness.Ask, good harness.Ask) {
	t.Helper()
	serve := func() time.Duration {
		began := time.Now()
		for range 50 {
			if a := g.do(good); a.Status != 200 {
				t.Errorf("a good request = %s, want 200", a)
			}
		}
		return time.Since(began) / 50
	}
	alone := serve()
	var n, let atomic.Int64
	var stop atomic.Bool
	var flooders sync.WaitGroup
	for range 4 {
		flooders.Go(func() {
			for !stop.Load() {
				if a, err := g.Do(forged(int(n.Add(1)))); err != nil || a.Status != 401 {
					let.Add(1)
				}
			}
		})
	}
	beside := serve()
	stop.Store(true)
	flooders.Wait()
	if let.Load() > 0 {
		t.Errorf("%d of %d forged requests were not answered by 401", let.Load(), n.Load())
	}
	t.Logf("a good request took %s alone, %s beside %d forged ones", alone, beside, n.Load())
}

// Clock skew: what a server signs is good neither before its time nor after it, without
// any leeway; a customer has a minute, no more. The nodes share a clock here, so the
// tokens are made with the server's own key for other times.
func TestA12_ClockSkew(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	_, epoch := r.leased("a", "one")
	real := claimsOf(t, r.issued("a"))
	keys, err := tokens.OpenServerKeys(filepath.Join(g.Data, "keys"), tokens.ServerKeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mint := tokens.NewIssuer(keys).Mint
	now := time.Now()
	for _, tc := range []struct {
		name       string
		issued     time.Duration
		expires    time.Duration
		mine       int // of an issued token
		customers  int // of a customer's
		notChecked string
	}{
		{"now", 0, time.Hour, 200, 200, ""},
		{"issued in half a minute", 30 * time.Second, time.Hour, 401, 200, ""},
		{"issued in ten minutes", 10 * time.Minute, time.Hour, 401, 401, ""},
		{"issued tomorrow", 24 * time.Hour, 25 * time.Hour, 401, 401, ""},
		{"expired a moment ago", -time.Hour, -time.Second, 401, 200, ""},
		{"expired two minutes ago", -time.Hour, -2 * time.Minute, 401, 401, ""},
	} {
		raw, err := mint(tokens.Grant{
			Org: "acme", Repo: r.name, Subject: "x", ID: real["jti"].(string), Session: "a", Epoch: uint64(epoch),
			Ref: refpolicy.RefName(ephemeralPrefix + "sessions/a"), Scopes: tokens.ScopesOf(tokens.GitRead, tokens.GitWrite),
			IssuedAt: now.Add(tc.issued), ExpiresAt: now.Add(tc.expires),
		})
		if err != nil {
			t.Fatal(err)
		}
		theirs := g.sign(tokens.Claims{Repo: r.name, Scopes: []tokens.Scope{tokens.GitRead}, IssuedAt: now.Add(tc.issued), ExpiresAt: now.Add(tc.expires)})
		for name, one := range map[string]struct {
			token string
			want  int
		}{"an issued token": {raw, tc.mine}, "a customer's token": {theirs, tc.customers}} {
			for _, a := range []harness.Ask{{Path: "/api/whoami", Token: one.token}, {Path: r.gitPath(true, "info/refs") + "?service=git-upload-pack", Basic: one.token}} {
				if got := g.do(a); got.Status != one.want {
					t.Errorf("%s, %s: GET %s = %s, want %d", name, tc.name, a.Path, got, one.want)
				}
			}
		}
	}
}

// Whoever may write only some refs can hand on no more: sessions, forks and tokens made
// with such a token, and what is renewed from those, keep its rules, whatever they ask.
func TestSessionsStayWithinTheirMaker(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	r.leased("theirs", "two")
	secret := g.want(201, r.commitAsk(state("theirs", "a secret of theirs"), r.write)).Text("commit", "commit_sha")
	fork := r.ask("POST", "/sessions/theirs/fork", r.write, map[string]any{"n": 2})
	r.want(201, "fork", fork)
	group, child := fork.Text("group_id"), fork.List("children")[0].(map[string]any)["session"].(map[string]any)["id"].(string)
	all := []tokens.Scope{tokens.GitWrite, tokens.GitRead}
	rules := []refpolicy.Rule{
		{Pattern: ephemeralPrefix + "mine/*", Ops: []refpolicy.Op{refpolicy.NoForcePush}},
		{Pattern: "main", Ops: []refpolicy.Op{refpolicy.NoPush}},
		{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}},
	}
	maker := g.sign(tokens.Claims{Repo: r.name, Subject: "team", Scopes: all, Refs: rules})
	reader := g.sign(tokens.Claims{Repo: r.name, Subject: "team", Scopes: all, Refs: []refpolicy.Rule{{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoPush}}}})

	for what, tc := range map[string]struct {
		method, tail string
		body         any
	}{
		"a session elsewhere":         {"POST", "/sessions", map[string]any{"base_ref": "main"}},
		"a session on their branch":   {"POST", "/sessions", map[string]any{"base_ref": "main", "branch": "sessions/theirs"}},
		"a session from theirs":       {"POST", "/sessions", map[string]any{"from_session": "theirs", "branch": "mine/x"}},
		"a session from their commit": {"POST", "/sessions", map[string]any{"base_ref": secret, "branch": "mine/x"}},
		"a session from their branch": {"POST", "/sessions", map[string]any{"base_ref": "sessions/theirs", "base_is_ephemeral": true, "branch": "mine/x"}},
		"a token of theirs":           {"POST", "/sessions/theirs/tokens", map[string]any{}},
		"their lease":                 {"POST", "/sessions/theirs/lease", map[string]any{"action": "takeover", "holder": "x"}},
		"a fork of theirs":            {"POST", "/sessions/theirs/fork", map[string]any{"n": 1, "token": map[string]any{}}},
		"their session":               {"GET", "/sessions/theirs", nil},
		"their tokens":                {"GET", "/sessions/theirs/tokens", nil},
		"their group":                 {"GET", "/forks/" + group, nil},
		"comparing their children":    {"GET", "/forks/" + group + "/compare", nil},
		"picking their child":         {"POST", "/forks/" + group + "/pick", map[string]any{"winner": child}},
		"closing their fork":          {"DELETE", "/forks/" + group, nil},
		"reporting on their child":    {"PUT", "/forks/" + group + "/children/" + child + "/validity", map[string]any{"valid": false}},
		"changing theirs":             {"PATCH", "/sessions/theirs", map[string]any{"labels": map[string]any{"a": "b"}}},
		"ending theirs":               {"DELETE", "/sessions/theirs?holder=two", nil},
		"what ending theirs frees":    {"DELETE", "/sessions/theirs?dry_run=true", nil},
	} {
		for name, token := range map[string]string{"who cannot read it": maker, "who can only read": reader} {
			a := r.ask(tc.method, tc.tail, token, tc.body)
			if token == reader && a.Status == 200 && (tc.method == "GET" || strings.Contains(tc.tail, "dry_run")) {
				continue
			}
			if a.Status != 403 && a.Status != 404 || strings.Contains(string(a.Body), `"token"`) {
				t.Errorf("%s by one %s = %s, want 403 or 404", what, name, a)
			}
			if token == maker && !strings.Contains(fmt.Sprint(tc.body), secret) && strings.Contains(string(a.Body), secret) {
				t.Errorf("%s by one %s = %s, which tells their head", what, name, a)
			}
		}
	}
	if list := r.ask("GET", "/sessions", maker, nil); strings.Contains(string(list.Body), "theirs") || strings.Contains(string(list.Body), child) {
		t.Errorf("sessions listed for one who cannot read theirs = %s", list)
	}

	r.want(201, "a session of its own", r.ask("POST", "/sessions", maker, map[string]any{"id": "own", "branch": "mine/own", "base_ref": "main"}))
	wide := map[string]any{"read": []string{"*", ephemeralPrefix + "*", "refs/heads/*"}}
	token := r.issuedFor("own", maker, wide)
	g.want(201, r.commitAsk(harness.Commit{Branch: "mine/own", Ephemeral: true, Files: []harness.File{{Path: "f", Content: "x"}}}, token))
	for name, raw := range map[string]string{
		"its token": token, "renewed": g.renew(token, map[string]any{}).Text("token"), "renewed for all": g.renew(token, map[string]any{"read": []string{"*"}}).Text("token"),
	} {
		if raw == "" {
			t.Errorf("%s: there is none", name)
			continue
		}
		r.wantNothingOf(raw, "theirs", secret)
		if refs := r.refs(r.remote(raw)); refs["refs/heads/main"] == "" {
			t.Errorf("%s: main is not shown in %v, which its maker may read", name, refs)
		}
	}
	// A fork's children would be where its maker may not write.
	wantCode(t, "fork of its own session", r.ask("POST", "/sessions/own/fork", maker, map[string]any{"n": 1, "token": wide}), 403, "policy_denied")
	both := append([]refpolicy.Rule{{Pattern: ephemeralPrefix + "sessions/ses_*"}}, rules...)
	both[0] = refpolicy.Rule{Pattern: ephemeralPrefix + "sessions/*", Ops: []refpolicy.Op{refpolicy.NoForcePush, refpolicy.VerifySig}}
	signed := g.sign(tokens.Claims{Repo: r.name, Subject: "team", Scopes: all, Refs: both})
	forked := r.ask("POST", "/sessions/own/fork", signed, map[string]any{"n": 1, "token": wide})
	r.want(201, "fork by one who may", forked)
	one := forked.List("children")[0].(map[string]any)
	raw := one["token"].(map[string]any)["token"].(string)
	branch := one["session"].(map[string]any)["branch"].(string)
	for name, raw := range map[string]string{"the child's token": raw, "renewed": g.renew(raw, map[string]any{}).Text("token")} {
		a := g.do(r.commitAsk(harness.Commit{Branch: branch, Ephemeral: true, Files: []harness.File{{Path: "f", Content: "unsigned"}}}, raw))
		wantCode(t, "an unsigned commit with "+name+", whose maker must sign", a, 403, "policy_denied", "forbidden")
	}
}

// A key says only for its own caller what was answered: not for another subject, not
// for another repo, and not for one with the same subject and other rights.
func TestIdempotencyKeysOfOthers(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	other, _ := g.seeded()
	r.leased("a", "one")
	r.leased("b", "two")
	other.leased("b", "two")
	all := []tokens.Scope{tokens.GitWrite, tokens.GitRead}
	ask := func(r *repo, tail, token string) harness.Answer {
		return g.do(harness.Ask{Method: "POST", Path: r.path(tail), Token: token, JSON: map[string]any{}, Header: map[string]string{"Idempotency-Key": "create-7"}})
	}
	first := ask(r, "/sessions/b/tokens", r.write)
	r.want(201, "a token of b", first)
	jti := first.Text("jti")
	again := ask(r, "/sessions/b/tokens", r.write)
	if again.Text("token") != first.Text("token") || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Fatalf("the same call again = %s, want the same token", again)
	}
	for name, tc := range map[string]struct {
		r      *repo
		token  string
		status int
	}{
		"another subject":                        {r, g.sign(tokens.Claims{Repo: r.name, Subject: "mallory", Scopes: all}), 201},
		"another subject that may not":           {r, g.sign(tokens.Claims{Repo: r.name, Subject: "mallory", Scopes: all, Refs: confinedTo("a")}), 404},
		"the same subject, confined to a":        {r, r.token(all, confinedTo("a")...), 404},
		"the same subject, bound to a":           {r, g.sign(tokens.Claims{Repo: r.name, Session: "a", Scopes: all}), 403},
		"the same subject, that may not write":   {r, r.token(all, refpolicy.Rule{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoPush}}), 403},
		"the same subject, that only reads":      {r, r.read, 403},
		"the same subject, another repo":         {other, other.write, 201},
		"a token for another repo, by this path": {r, other.write, 404},
		"the token of a":                         {r, r.issued("a"), 403},
	} {
		got := ask(tc.r, "/sessions/b/tokens", tc.token)
		if got.Status != tc.status || got.Header.Get("Idempotency-Replayed") != "" || got.Text("jti") == jti {
			t.Errorf("%s with the key = %s, replayed %q, want %d and an answer of its own", name, got, got.Header.Get("Idempotency-Replayed"), tc.status)
		}
	}
	// Two tokens of one session: the narrower one gets no more by the other's key.
	wide := r.issuedFor("a", r.write, map[string]any{"read": []string{"main"}})
	narrow := r.issuedFor("a", r.write, map[string]any{"permissions": []string{"git:read"}})
	renew := func(token string) harness.Answer {
		return g.do(harness.Ask{Method: "POST", Path: "/api/tokens/renew", Token: token, JSON: map[string]any{}, Header: map[string]string{"Idempotency-Key": "renew-1"}})
	}
	r.want(201, "renew of the wider", renew(wide))
	got := renew(narrow)
	if claims := claimsOf(t, got.Text("token")); fmt.Sprint(claims["scopes"]) != "[git:read]" || strings.Contains(fmt.Sprint(claims["refs"]), "main") {
		t.Errorf("renew of the narrower with the key of the wider one says %v", claims)
	}
}

// confinedTo are the rules of a sandbox of one session.
func confinedTo(session string) []refpolicy.Rule {
	return []refpolicy.Rule{
		{Pattern: ephemeralPrefix + "sessions/" + session, Ops: []refpolicy.Op{refpolicy.NoForcePush}},
		{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}},
	}
}
