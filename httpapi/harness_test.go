package httpapi

import (
	"bytes"
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/tokens"
)

// A gate is a running server over a store of its own, as clients see it.
type gate struct {
	t      testing.TB
	server *Server
	http   *httptest.Server
	logs   *syncBuffer
	clock  *testClock
	dir    string
	disk   *fullDisk
}

// acmeKey signs the tokens of the org acme in every test.
var acmeKey = sync.OnceValue(func() crypto.Signer {
	key, err := tokens.GenerateKey()
	if err != nil {
		panic(err)
	}
	return key
})

func newGate(t testing.TB, change ...func(*Config)) *gate {
	t.Helper()
	logs := &syncBuffer{}
	logger := slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	quiet := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	clock := &testClock{}
	db, err := pebbledb.Open(filepath.Join(dir, "ledger"), pebbledb.Options{Logger: quiet, Clock: clock.now})
	if err != nil {
		t.Fatalf("open ledger: %v", err)
	}
	images, disk := &lateImages{}, &fullDisk{FS: packs.OS{}}
	keeper := sessions.New(sessions.Options{Ledger: db, Logger: quiet, Doors: images.door})
	snapshots := snapshot.New(snapshot.Options{Ledger: db, Logger: quiet, Users: NewSnapshotUsers(keeper), Repos: images.open})
	store, err := gitstore.Open(t.Context(), gitstore.Options{Dir: dir, Ledger: db, Logger: quiet, Guard: NewGuard(keeper, snapshots), FS: disk})
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	images.store = store
	keys := serverKeys(t, clock)
	c := Config{
		Store: store, Tokens: acmeVerifier(t, clock.now, tokens.WithServerKeys(keys)), Logger: logger,
		Sessions: keeper, Snapshots: snapshots, Issuer: tokens.NewIssuer(keys), Now: clock.now,
	}
	for _, f := range change {
		f(&c)
	}
	s := New(c)
	srv := httptest.NewUnstartedServer(s)
	srv.Config = s.HTTPServer()
	srv.Listener = Listener(srv.Listener)
	srv.Start()
	t.Cleanup(func() {
		srv.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := store.Close(ctx); err != nil {
			t.Errorf("close store: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Errorf("close ledger: %v", err)
		}
	})
	return &gate{t: t, server: s, http: srv, logs: logs, clock: clock, dir: dir, disk: disk}
}

func acmeVerifier(t testing.TB, now func() time.Time, more ...tokens.VerifierOption) *tokens.Verifier {
	t.Helper()
	return tokens.NewVerifier(keyringOf(t, "acme"), now, more...)
}

// verifierOf believes the same key for each of the orgs.
func verifierOf(t testing.TB, orgs ...string) *tokens.Verifier {
	t.Helper()
	return tokens.NewVerifier(keyringOf(t, orgs...), nil)
}

func keyringOf(t testing.TB, orgs ...string) *tokens.Keyring {
	t.Helper()
	key, err := tokens.NewKey("k1", acmeKey().Public())
	if err != nil {
		t.Fatalf("NewKey: %v", err)
	}
	keys := tokens.NewKeyring()
	all := make(map[string][]tokens.Key)
	for _, org := range orgs {
		all[org] = []tokens.Key{key}
	}
	keys.Replace(all)
	return keys
}

// token signs a token of acme for repo with the given scopes, good for an hour.
func token(t testing.TB, repo string, scopes ...tokens.Scope) string {
	t.Helper()
	return tokenOf(t, tokens.Claims{Repo: repo, Scopes: scopes})
}

// tokenOf fills what is left out of c.
func tokenOf(t testing.TB, c tokens.Claims) string {
	t.Helper()
	c.Org = first(c.Org, "acme")
	c.Subject = first(c.Subject, "builder")
	if c.ExpiresAt.IsZero() {
		c.ExpiresAt = time.Now().Add(time.Hour)
	}
	raw, err := tokens.Sign(acmeKey(), c)
	if err != nil {
		t.Fatalf("sign token: %v", err)
	}
	return raw
}

// An answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// json decodes the body, whose media type has to say what it is.
func (a answer) json(t testing.TB) map[string]any {
	t.Helper()
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Fatalf("Content-Type %q, want application/json; status %d, body %.300s", got, a.status, a.body)
	}
	var v map[string]any
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("answer %.300s is no JSON object: %v", a.body, err)
	}
	return v
}

// at walks into JSON: at(v, "result", "status").
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

// An ask is a request to be made.
type ask struct {
	method, path string
	token        string
	body         any // []byte, string, io.Reader, or encoded as JSON
	header       http.Header
}

// do makes the request over the wire, without following redirects.
func (g *gate) do(a ask) answer {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), first(a.method, "GET"), g.http.URL+a.path, bodyOf(g.t, a.body))
	if err != nil {
		g.t.Fatalf("%s %s: %v", a.method, a.path, err)
	}
	maps.Copy(req.Header, a.header)
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	return g.send(req)
}

func (g *gate) send(req *http.Request) answer {
	g.t.Helper()
	resp, err := g.http.Client().Transport.RoundTrip(req)
	if err != nil {
		g.t.Fatalf("%s %s: %v", req.Method, req.URL.Path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatalf("%s %s: read answer: %v", req.Method, req.URL.Path, err)
	}
	return answer{resp.StatusCode, resp.Header, body}
}

func bodyOf(t testing.TB, body any) io.Reader {
	t.Helper()
	switch b := body.(type) {
	case nil:
		return nil
	case []byte:
		return bytes.NewReader(b)
	case string:
		return strings.NewReader(b)
	case io.Reader:
		return b
	}
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatalf("encode body: %v", err)
	}
	return bytes.NewReader(raw)
}

// want does the request and fails the test unless the status is the wanted one.
func (g *gate) want(status int, a ask) answer {
	g.t.Helper()
	got := g.do(a)
	if got.status != status {
		g.t.Fatalf("%s %s = %d %.400s, want %d", first(a.method, "GET"), a.path, got.status, got.body, status)
	}
	return got
}

// A repo is a repo of acme with the tokens to use it.
type repo struct {
	*gate
	name  string
	admin string // repo:write
	write string
	read  string
}

// newRepo makes a repo that has no commit.
func (g *gate) newRepo(name string) *repo {
	g.t.Helper()
	r := &repo{
		gate: g, name: name, admin: token(g.t, name, tokens.RepoWrite),
		write: token(g.t, name, tokens.GitWrite), read: token(g.t, name, tokens.GitRead),
	}
	g.want(201, ask{method: "POST", path: "/api/v1/repos", token: r.admin, body: `{"default_branch":"main"}`})
	return r
}

// path is a path of the new route set.
func (r *repo) path(tail string, query ...string) string {
	p := "/api/repos/" + url.PathEscape(r.name) + tail
	if len(query) > 0 {
		v := url.Values{}
		for i := 0; i < len(query); i += 2 {
			v.Add(query[i], query[i+1])
		}
		p += "?" + v.Encode()
	}
	return p
}

// old is the same path of the old route set.
func (r *repo) old(tail string, query ...string) string {
	return "/api/v1/repos" + strings.TrimPrefix(r.path(tail, query...), r.path(""))
}

// A file is one entry of a commit-pack in a test.
type file struct {
	path, data string
	mode       string
	del        bool
}

type meta map[string]any

// pack writes a commit-pack body: m over defaults, each file in one chunk.
func pack(t testing.TB, m meta, files ...file) []byte {
	t.Helper()
	all := meta{
		"target_branch": "main", "commit_message": "state",
		"author": meta{"name": "Build Bot", "email": "bot@example.org"},
	}
	maps.Copy(all, m)
	var entries []meta
	var chunks []byte
	for i, f := range files {
		id := fmt.Sprintf("c%d", i)
		e := meta{"path": f.path, "content_id": id}
		if f.mode != "" {
			e["mode"] = f.mode
		}
		if f.del {
			e["operation"] = "delete"
		} else {
			chunks = append(chunks, chunkOf(t, id, f.data, true)...)
		}
		entries = append(entries, e)
	}
	if _, given := all["files"]; !given && entries != nil {
		all["files"] = entries
	}
	return append(lineOf(t, meta{"metadata": all}), chunks...)
}

func chunkOf(t testing.TB, id, data string, eof bool) []byte {
	t.Helper()
	return lineOf(t, meta{"blob_chunk": meta{
		"content_id": id, "data": base64.StdEncoding.EncodeToString([]byte(data)), "eof": eof,
	}})
}

func lineOf(t testing.TB, v any) []byte {
	t.Helper()
	line, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("encode line: %v", err)
	}
	return append(line, '\n')
}

// commit commits files with the metadata m and gives the new commit's id.
func (r *repo) commit(m meta, files ...file) string {
	r.t.Helper()
	a := r.want(201, ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: pack(r.t, m, files...)})
	return at(a.json(r.t), "commit", "commit_sha").(string)
}

// head is the commit a branch is at, by the API.
func (r *repo) head(branch string, ephemeral bool) string {
	r.t.Helper()
	a := r.want(200, ask{path: r.path("/branch", "name", branch, "ephemeral", fmt.Sprint(ephemeral)), token: r.read})
	return at(a.json(r.t), "branch", "head_sha").(string)
}

// content is a file's bytes at a revision.
func (r *repo) content(rev, path string) string {
	r.t.Helper()
	return string(r.want(200, ask{path: r.path("/file", "ref", rev, "path", path), token: r.read}).body)
}

// rule is one rule of a token; without ops it allows.
func rule(pattern string, ops ...refpolicy.Op) refpolicy.Rule {
	return refpolicy.Rule{Pattern: pattern, Ops: ops}
}

// A syncBuffer may be written to by many at once.
type syncBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
