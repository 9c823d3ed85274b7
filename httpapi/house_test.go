package httpapi

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// A testClock is the time of a gate: of its ledger, and of what it verifies tokens by.
type testClock struct {
	mu  sync.Mutex // guards off
	off time.Duration
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.off)
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += d
}

// serverKeys are the keys of one test server.
func serverKeys(t testing.TB, clock *testClock) *tokens.ServerKeys {
	t.Helper()
	keys, err := tokens.OpenServerKeys(t.TempDir(), tokens.ServerKeyOptions{Now: clock.now})
	if err != nil {
		t.Fatalf("open server keys: %v", err)
	}
	return keys
}

// A house is a repo with one commit on main, and what tests of sessions do in it.
type house struct {
	*repo
	main string
}

func (g *gate) newHouse(name string) *house {
	g.t.Helper()
	r := g.newRepo(name)
	return &house{repo: r, main: r.commit(nil, file{path: "README.md", data: "hello\n"})}
}

func newHouse(t testing.TB, change ...func(*Config)) *house {
	t.Helper()
	return newGate(t, change...).newHouse("team/site")
}

// post is a POST by the repo's writer that has to succeed.
func (h *house) post(status int, tail string, body any) map[string]any {
	h.t.Helper()
	return h.want(status, ask{method: "POST", path: h.path(tail), token: h.write, body: body}).json(h.t)
}

// session makes a session and gives it.
func (h *house) session(body meta) map[string]any {
	h.t.Helper()
	return h.post(201, "/sessions", body)
}

// lease does an action on a session's lease and gives the answer.
func (h *house) lease(status int, id string, body meta) map[string]any {
	h.t.Helper()
	return h.post(status, "/sessions/"+id+"/lease", body)
}

// issue makes a token for a session and gives the answer that hands it out.
func (h *house) issue(id string, body meta) map[string]any {
	h.t.Helper()
	return h.post(201, "/sessions/"+id+"/tokens", body)
}

func (h *house) issued(id string) string {
	h.t.Helper()
	return h.issue(id, meta{})["token"].(string)
}

// commitAs tries to commit a file to a branch of a session.
func (h *house) commitAs(tok, branch, path, data string) answer {
	h.t.Helper()
	return h.do(ask{
		method: "POST", path: h.path("/commit-pack"), token: tok,
		body: pack(h.t, meta{"target_branch": branch, "ephemeral": true}, file{path: path, data: data}),
	})
}

func refOfSession(id string) string { return refpolicy.EphemeralBranchPrefix + "sessions/" + id }

// code is the code of an error's body.
func code(t testing.TB, a answer) string {
	t.Helper()
	text, _ := a.json(t)["code"].(string)
	return text
}

// refused does a request that has to fail with this status and code.
func (g *gate) refused(status int, want string, a ask) map[string]any {
	g.t.Helper()
	got := g.want(status, a)
	if c := code(g.t, got); c != want {
		g.t.Fatalf("%s %s = %d %s, want the code %s", first(a.method, "GET"), a.path, got.status, got.body, want)
	}
	return got.json(g.t)
}

// A value of the wrong type is told by the field's name, and not in the words of the
// language that this is written in.
func TestWrongTypesAreToldByField(t *testing.T) {
	h := newHouse(t)
	h.session(meta{"id": "s"})
	for body, want := range map[string]string{
		`{"action": "acquire", "holder": "h", "ttl_s": "soon"}`: "ttl_s may not be a string",
		`{"action": 7, "holder": "h"}`:                          "action may not be a number",
	} {
		a := h.want(400, ask{method: "POST", path: h.path("/sessions/s/lease"), token: h.write, body: body})
		if detail, _ := a.json(t)["detail"].(string); !strings.Contains(detail, want) || strings.Contains(string(a.body), "Go ") {
			t.Errorf("lease with %s = %s, want %q", body, a.body, want)
		}
	}
}
