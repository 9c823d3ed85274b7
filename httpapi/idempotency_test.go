package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/tokens"
)

func named(key string) http.Header { return http.Header{"Idempotency-Key": {key}} }

// again makes a call twice: the second time it is answered as the first time, and told so.
func (g *gate) again(a ask) answer {
	g.t.Helper()
	one := g.do(a)
	if one.status >= 300 || one.header.Get("Idempotency-Replayed") != "" {
		g.t.Fatalf("%s %s = %d %s %v, want a first success", a.method, a.path, one.status, one.body, one.header)
	}
	two := g.do(a)
	if two.status != one.status || !bytes.Equal(two.body, one.body) || two.header.Get("Idempotency-Replayed") != "true" || two.header.Get("Content-Type") != one.header.Get("Content-Type") {
		g.t.Errorf("%s %s again = %d %s %v, want %d %s replayed", a.method, a.path, two.status, two.body, two.header, one.status, one.body)
	}
	return one
}

// the same key twice is the same commit, and one.
func TestA17_SameKeyTwice(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	root := r.commit(nil, file{path: "a", data: "0"})
	body := pack(t, meta{"expected_head_sha": root}, file{path: "a", data: strings.Repeat("1", 100_000)})
	made := g.again(ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: body, header: named("k1")})
	if c := at(made.json(t), "commit", "commit_sha"); c != r.head("main", false) {
		t.Errorf("commit = %v, want the head", c)
	}
	// The same route by its other path, in pieces.
	a := r.want(201, ask{method: "POST", path: r.old("/commit-pack"), token: r.write, body: io.MultiReader(bytes.NewReader(body)), header: named("k1")})
	if a.header.Get("Idempotency-Replayed") != "true" {
		t.Error("the same call by the other path is taken for another one")
	}
	if got := r.events(r.read); got.LastSeq != 2 {
		t.Errorf("the log has %d entries, want one for each commit", got.LastSeq)
	}
	// The same without a key is another commit, which its guard refuses.
	r.want(409, ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: body})
}

// Every call that changes something can be made again.
func TestEveryChangeCanBeRepeated(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	c := r.commit(nil, file{path: "a", data: "0"})
	other := token(t, "other", tokens.RepoWrite)
	g.again(ask{method: "POST", path: "/api/repos", token: other, body: meta{"default_branch": "trunk"}, header: named("k")})
	g.again(ask{method: "PATCH", path: "/api/repos/other", token: other, body: meta{"default_branch": "main"}, header: named("k")})
	g.again(ask{method: "DELETE", path: "/api/repos/other", token: other, header: named("k")})
	g.again(ask{method: "POST", path: r.path("/branches/create"), token: r.write, body: meta{"target_branch": "b", "base_ref": "main"}, header: named("k")})
	g.again(ask{method: "DELETE", path: r.path("/branches"), token: r.write, body: meta{"name": "b"}, header: named("k")})
	pin := g.again(ask{method: "POST", path: r.path("/pins"), token: r.write, body: meta{"sha": c, "holder": "x"}, header: named("k")}).json(t)
	if pins := at(r.want(200, ask{path: r.path("/pins"), token: r.read}).json(t), "pins").([]any); len(pins) != 1 {
		t.Errorf("pins = %v, want one", pins)
	}
	g.again(ask{method: "DELETE", path: r.path("/pins/" + pin["id"].(string)), token: r.write, header: named("k")})
	g.again(ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: pack(t, nil, file{path: "a", data: "1"}), header: named("k")})
	// A key has no meaning for what changes nothing.
	for range 2 {
		if a := r.want(200, ask{path: r.path("/branches"), token: r.read, header: named("k")}); a.header.Get("Idempotency-Replayed") != "" {
			t.Error("a GET was replayed")
		}
	}
}

// The same key for anything else is refused, whatever it is that differs.
func TestSameKeyForAnotherRequest(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	c := r.commit(nil, file{path: "a", data: "0"})
	one := pack(t, nil, file{path: "a", data: "1"})
	post := func(path string, body any, token string) ask {
		return ask{method: "POST", path: path, token: token, body: body, header: named("k")}
	}
	pin := func(holder string) string {
		a := r.want(201, ask{method: "POST", path: r.path("/pins"), token: r.write, body: meta{"sha": c, "holder": holder}})
		return a.json(t)["id"].(string)
	}
	first, second := pin("a"), pin("b")
	r.want(201, post(r.path("/commit-pack"), one, r.write))
	r.want(200, post(r.path("/branches/create"), `{"target_branch":"b","base_ref":"main"}`, r.write))
	r.want(204, ask{method: "DELETE", path: r.path("/pins/" + first), token: r.write, header: named("k")})
	for what, a := range map[string]ask{
		"another body":              post(r.path("/commit-pack"), pack(t, nil, file{path: "a", data: "2"}), r.write),
		"a longer body":             post(r.path("/commit-pack"), append(bytes.Clone(one), "\n"...), r.write),
		"a much longer body":        post(r.path("/commit-pack"), append(bytes.Clone(one), bytes.Repeat([]byte("x"), 1<<20)...), r.write),
		"a shorter body":            post(r.path("/commit-pack"), one[:len(one)-1], r.write),
		"no body":                   post(r.path("/commit-pack"), "", r.write),
		"another query":             post(r.path("/commit-pack", "x", "1"), one, r.write),
		"another JSON body":         post(r.path("/branches/create"), `{"target_branch":"c","base_ref":"main"}`, r.write),
		"another parameter of path": {method: "DELETE", path: r.path("/pins/" + second), token: r.write, header: named("k")},
	} {
		if v := r.want(422, a).json(t); v["code"] != "idempotency_mismatch" || v["retryable"] != false {
			t.Errorf("%s = %v", what, v)
		}
	}
	// Another subject, another route, another repo: other calls.
	other := tokenOf(t, tokens.Claims{Repo: "r", Subject: "other", Scopes: []tokens.Scope{tokens.GitWrite}})
	r.want(412, post(r.path("/commit-pack"), one, other)) // no changes: it is no repeat for this one
	r2 := g.newRepo("r2")
	if a := r.want(201, post(r2.path("/commit-pack"), one, r2.write)); a.header.Get("Idempotency-Replayed") != "" {
		t.Error("a call in another repo was answered with what was stored")
	}
}

// Only successes are stored: what has failed may succeed when it is made again.
func TestFailureIsNotStored(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	create := ask{method: "POST", path: r.path("/branches/create"), token: r.write, body: meta{"target_branch": "b", "base_ref": "main"}, header: named("k")}
	r.want(404, create)
	body := pack(t, meta{"expected_head_sha": strings.Repeat("0", 40)}, file{path: "a", data: "0"})
	cut := ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: body[:len(body)-20], header: named("k")}
	r.want(400, cut)
	cut.body = body
	g.again(cut)
	g.again(create)
	if a := r.want(401, ask{method: "POST", path: create.path, body: create.body, header: create.header}); a.header.Get("Idempotency-Replayed") != "" {
		t.Error("an answer was given to nobody")
	}
	r.want(403, ask{method: "POST", path: create.path, token: r.read, body: create.body, header: create.header})
}

func TestIdempotencyKeyForms(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	r.commit(nil, file{path: "a", data: "0"})
	for i, tc := range []struct {
		keys []string
		want int
	}{
		{[]string{"k"}, 200}, {[]string{strings.Repeat("k", 128)}, 200}, {[]string{`a "b" ~!{}`}, 200}, {[]string{" k2 "}, 200},
		{[]string{""}, 400}, {[]string{strings.Repeat("k", 129)}, 400}, {[]string{"k\u00fc"}, 400}, {[]string{"a\tb"}, 400},
		{[]string{"a", "a"}, 400}, {[]string{"a", "b"}, 400},
	} {
		a := ask{method: "POST", path: r.path("/branches/create"), token: r.write, body: meta{"target_branch": fmt.Sprint("b", i), "base_ref": "main"}}
		a.header = http.Header{"Idempotency-Key": tc.keys}
		if got := g.do(a); got.status != tc.want {
			t.Errorf("keys %q = %d %s, want %d", tc.keys, got.status, got.body, tc.want)
		}
	}
	// Who may not is not told what else is wrong.
	r.want(401, ask{method: "POST", path: r.path("/branches/create"), header: named("")})
}

// Many at once with one key: one of them makes the change, and all are answered so.
func TestRaceOfEqualKeys(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	root := r.commit(nil, file{path: "a", data: "0"})
	other := token(t, "other", tokens.RepoWrite)
	for what, a := range map[string]ask{
		"commit with its guard": {method: "POST", path: r.path("/commit-pack"), token: r.write, body: pack(t, meta{"expected_head_sha": root}, file{path: "a", data: "1"})},
		"commit without":        {method: "POST", path: r.path("/commit-pack"), token: r.write, body: pack(t, meta{"target_branch": "free", "base_branch": "main"}, file{path: "a", data: "2"})},
		"create a branch":       {method: "POST", path: r.path("/branches/create"), token: r.write, body: []byte(`{"target_branch":"b","base_ref":"` + root + `"}`)},
		"pin":                   {method: "POST", path: r.path("/pins"), token: r.write, body: []byte(`{"sha":"` + root + `","holder":"x"}`)},
		"create a repo":         {method: "POST", path: "/api/repos", token: other, body: []byte(`{}`)},
	} {
		a.header = named(what)
		answers := make(chan answer, 50)
		var calls sync.WaitGroup
		for range cap(answers) {
			calls.Go(func() { answers <- g.do(a) })
		}
		calls.Wait()
		close(answers)
		made := 0
		var said string
		for got := range answers {
			if got.header.Get("Idempotency-Replayed") == "" {
				made++
			}
			if said = first(said, string(got.body)); string(got.body) != said || got.status >= 300 {
				t.Errorf("%s: one was answered %d %s, another %s", what, got.status, got.body, said)
			}
		}
		if made != 1 {
			t.Errorf("%s: %d of 50 calls made a change, want 1", what, made)
		}
	}
	if pins := at(r.want(200, ask{path: r.path("/pins"), token: r.read}).json(t), "pins").([]any); len(pins) != 1 {
		t.Errorf("pins = %v, want one", pins)
	}
	if got := r.events(r.read); got.LastSeq != 4 {
		t.Errorf("the log has %d entries, want 4", got.LastSeq)
	}
}

// Answers are stored without the tokens in them; the same tokens are given again.
func TestReplayedTokens(t *testing.T) {
	type body struct {
		Tokens []string `json:"tokens"`
		Label  string   `json:"label"`
	}
	q := &request{named: &namedCall{sum: sha256.New(), ended: true}, r: (&http.Request{}).WithContext(t.Context())}
	var grants []tokens.Grant
	for i := range 12 {
		grants = append(grants, tokens.Grant{Org: "acme", Repo: "r", ID: fmt.Sprintf("jti-%d", i), Session: "s"})
	}
	issue := func(g tokens.Grant) (string, error) { return "signed." + g.ID + ".end", nil }
	answer := func(label string, sign signer) (any, error) {
		b := body{Label: label}
		for _, g := range grants {
			token, err := sign(g)
			if err != nil {
				return nil, err
			}
			b.Tokens = append(b.Tokens, token)
		}
		return b, nil
	}
	live, _ := answer("a label", issue)
	want, _ := json.Marshal(live)
	once := onceSigned(q, 201, answer)
	stored, err := once.Answer("a label")
	if err != nil || bytes.Contains(stored, []byte("signed.")) {
		t.Fatalf("stored answer = %s, %v; want it without tokens", stored, err)
	}
	w := httptest.NewRecorder()
	q.x = &exchange{ResponseWriter: w}
	s := &Server{Config: Config{Issuer: issuerFunc(issue)}}
	if err := s.replay(q, stored); err != nil {
		t.Fatal(err)
	}
	if got := w.Body.String(); got != string(want)+"\n" || w.Code != 201 || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Idempotency-Replayed") != "true" {
		t.Errorf("replay = %d %s %v, want %s", w.Code, got, w.Header(), want)
	}
	// What a client can put into an answer stands for no token.
	a, err := decodeStoredAnswer(stored)
	if err != nil || len(a.Mark) != 32 {
		t.Fatalf("stored answer = %+v, %v", a, err)
	}
	if second, _ := once.Answer("a label"); bytes.Contains(second, []byte(a.Mark)) {
		t.Error("two stored answers use one mark")
	}
}

func FuzzIdempotencyKey(f *testing.F) {
	f.Add("k")
	f.Add("")
	f.Add(strings.Repeat("k", 129))
	f.Add("a\x00b")
	f.Fuzz(func(t *testing.T, key string) {
		got, err := idempotencyKey(named(key))
		good := key != "" && len(key) <= 128 && strings.IndexFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) < 0
		if good != (err == nil) || good && got != key || err != nil && problemOf(err).status != 400 {
			t.Fatalf("idempotencyKey(%q) = %q, %v", key, got, err)
		}
	})
}

func FuzzStoredAnswer(f *testing.F) {
	f.Add([]byte("{\"status\":201}\nbody"))
	f.Add([]byte("{}"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, stored []byte) {
		a, err := decodeStoredAnswer(stored)
		if err != nil {
			return
		}
		again, err := a.encode()
		if err != nil {
			t.Fatalf("encode(%q): %v", stored, err)
		}
		if b, err := decodeStoredAnswer(again); err != nil || !bytes.Equal(b.body, a.body) || b.Status != a.Status {
			t.Fatalf("%q comes back as %+v, %v", stored, b, err)
		}
	})
}

type issuerFunc func(tokens.Grant) (string, error)

func (f issuerFunc) Mint(g tokens.Grant) (string, error) { return f(g) }

func TestOpenAPITellsOfTheKey(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []map[string]any `json:"parameters"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(openapiDocument, &doc); err != nil {
		t.Fatal(err)
	}
	for _, rt := range routes {
		changes := rt.method != "GET" && rt.method != "HEAD" && rt.access != operator
		for _, path := range rt.paths {
			told := slices.ContainsFunc(doc.Paths[path][strings.ToLower(rt.method)].Parameters, func(p map[string]any) bool {
				return p["$ref"] == "#/components/parameters/IdempotencyKey"
			})
			if told != changes {
				t.Errorf("%s %s tells of the Idempotency-Key: %v, want %v", rt.method, path, told, changes)
			}
		}
	}
}
