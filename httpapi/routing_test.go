package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/tokens"
)

// raw sends a request line as it is, which no HTTP library would, and gives the
// answer.
func (g *gate) raw(method, target, auth string) answer {
	g.t.Helper()
	conn, err := net.Dial("tcp", g.http.Listener.Addr().String())
	if err != nil {
		g.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n", method, target)
	if auth != "" {
		fmt.Fprintf(conn, "Authorization: %s\r\n", auth)
	}
	fmt.Fprint(conn, "\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		g.t.Fatalf("%s %q: %v", method, target, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatalf("%s %q: read answer: %v", method, target, err)
	}
	return answer{resp.StatusCode, resp.Header, body}
}

// Hostile and odd paths, on the wire as written. None redirects, none is a 5xx,
// and only the ones that name the token's repo reach it.
func TestHostilePaths(t *testing.T) {
	g := newGate(t)
	g.newRepo("team-red/site")
	g.newRepo("etc")
	slash := "Bearer " + token(t, "team-red/site", tokens.GitRead)
	for _, tc := range []struct {
		target string
		status int
	}{
		{"/api/repos/team-red%2Fsite", 200},
		{"/api/repos/team-red%2fsite", 200},
		{"//api/repos/team-red%2Fsite", 200},
		{"///api/v1/repo", 200},
		{"/api/v1/repo", 200},
		{"/api/repos/team-red%2Fsite?x=%zz", 200},
		{"/api/repos/team%2Dred%2Fsite", 200},
		{"/api/repos/team-red/site", 404},        // OQ-R2
		{"/api/repos/team-red%252Fsite", 404},    // decoded once, not twice
		{"/api/repos/team-red%2Fsite/", 404},     // no clean-up of slashes
		{"/api//repos/team-red%2Fsite", 404},     //
		{"/api/repos//team-red%2Fsite", 404},     //
		{"/api/repos/../repos/team-red%2F", 404}, //
		{"/api/repos/team-red%2Fsite/../x", 404}, //
		{"/api/repos/%2e%2e", 404},               //
		{"/api/repos/%2e%2e%2fetc", 404},         //
		{"/api/repos/..", 404},                   //
		{"/api/repos/team-red%2Fsite%2F", 404},   //
		{"/api/repos/%2Fteam-red%2Fsite", 404},   //
		{"/api/repos/team-red%2F%2Fsite", 404},   //
		{"/api/repos/team-red%2Fsite.git", 404},  //
		{"/api/repos/team-red%2Fsite%00", 404},   //
		{"/api/repos/team-red%2Fsite%0a", 404},   //
		{"/api/repos/team-red%2Fsite%7f", 404},   //
		{"/api/repos/TEAM-RED%2Fsite", 404},      // OQ-R3
		{"/api/repos/etc", 404},                  // another's
		{"/api/repos/org", 404},                  //
		{"/api/repos/" + strings.Repeat("a", 300), 404},
		{"/api/repos/" + strings.Repeat("%2e%2e%2f", 300), 404},
		{"/api/repos/:repo", 404},
		{"/api/repos/*", 404},
		{"/api/v1/repos/file%2Fx", 404},
		{"/api/v1/nothing", 404},
		{"/", 404},
		{"/api", 404},
		{"/healthz/", 404},
		{"/.git/config", 404},
		{"/etc/passwd", 404},
		{"/team-red/site.git", 404},
		{"/team-red/site.git/HEAD", 404},
		{"/team-red/site.git/objects/info/packs", 404},
		{"/info/refs?service=git-upload-pack", 404},
		{"/.git/info/refs?service=git-upload-pack", 404},
		{"/..%2f..%2fetc.git/info/refs?service=git-upload-pack", 404},
		{"/%2e%2e/etc.git/info/refs?service=git-upload-pack", 404},
		{"/etc.git/info/refs?service=git-upload-pack", 404},
		{"/team-red/site.git.git/info/refs?service=git-upload-pack", 404},
		{"/team-red%252Fsite.git/info/refs?service=git-upload-pack", 404},
		{"/team-red/site+ephemeral+ephemeral.git/info/refs?service=git-upload-pack", 404},
		{"/team-red/site%00.git/info/refs?service=git-upload-pack", 404},
		{"/" + strings.Repeat("a", 300) + ".git/info/refs?service=git-upload-pack", 404},
		{"/api/repos/team-red%2Fsite/info/refs?service=git-upload-pack", 404},
		{"/api/repos/%zz", 400}, // refused by net/http itself
	} {
		a := g.raw("GET", tc.target, slash)
		if a.status != tc.status {
			t.Errorf("GET %s = %d %.200s, want %d", tc.target, a.status, a.body, tc.status)
		}
		if a.header.Get("Location") != "" {
			t.Errorf("GET %s redirects to %s", tc.target, a.header.Get("Location"))
		}
		if tc.status == 404 && (a.header.Get("Content-Type") != "application/json" || at(a.json(t), "status") != float64(404)) {
			t.Errorf("GET %s = %s %.200s, want a JSON problem", tc.target, a.header.Get("Content-Type"), a.body)
		}
	}
}

func TestParseGitPath(t *testing.T) {
	for _, tc := range []struct {
		path      string
		repo      string
		remote    gitstore.Remote
		importing bool
		service   gitService
	}{
		{"/a.git/info/refs", "a", gitstore.MainRemote, false, infoRefs},
		{"/a/info/refs", "a", gitstore.MainRemote, false, infoRefs},
		{"/team-red/site.git/git-upload-pack", "team-red/site", gitstore.MainRemote, false, uploadPack},
		{"/team-red%2Fsite%2Bephemeral.git/git-receive-pack", "team-red/site", gitstore.EphemeralRemote, false, receivePack},
		{"/a+ephemeral.git/git-receive-pack", "a", gitstore.EphemeralRemote, false, receivePack},
		{"/a+ephemeral/git-receive-pack", "a", gitstore.EphemeralRemote, false, receivePack},
		{"/a+import.git/git-receive-pack", "a", gitstore.MainRemote, true, receivePack},
		{"/a.git+ephemeral.git/info/refs", "a.git", gitstore.EphemeralRemote, false, infoRefs},
		{"/a+import+ephemeral.git/info/refs", "a+import", gitstore.EphemeralRemote, false, infoRefs},
		{"/a.git.git/info/refs", "a.git", gitstore.MainRemote, false, infoRefs},
		{"/a%252Fb/info/refs", "a%2Fb", gitstore.MainRemote, false, infoRefs},
		{"/x/info/refs/info/refs", "x/info/refs", gitstore.MainRemote, false, infoRefs},
		{"/api/v1/repos/info/refs", "api/v1/repos", gitstore.MainRemote, false, infoRefs},
	} {
		p, ok := parseGitPath(tc.path)
		if !ok || p.repo != tc.repo || p.remote != tc.remote || p.importing != tc.importing || p.service != tc.service {
			t.Errorf("parseGitPath(%s) = %+v, %v; want %+v", tc.path, p, ok, tc)
		}
	}
	for _, path := range []string{"/", "/a.git", "/info/refs", "/a.git/HEAD", "/a.git/info/refs/", "/a%zz/info/refs", "/a.git%2Finfo%2Frefs", "/api/repos"} {
		if p, ok := parseGitPath(path); ok {
			t.Errorf("parseGitPath(%s) = %+v, want none", path, p)
		}
	}
}

func FuzzParseGitPath(f *testing.F) {
	f.Add("/team-red%2Fsite%2Bephemeral.git/git-receive-pack")
	f.Add("//..%2f.git/info/refs")
	f.Fuzz(func(t *testing.T, path string) {
		if p, ok := parseGitPath(path); ok && (p.method == "" || p.route == "") {
			t.Errorf("parseGitPath(%q) = %+v without a route", path, p)
		}
	})
}

func TestWrongMethod(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	for _, tc := range []struct{ method, path, allow string }{
		{"PUT", "/api/v1/repos", "GET"},
		{"POST", r.path("/file"), "GET"},
		{"DELETE", r.path("/commit-pack"), "POST"},
		{"GET", r.path("/branches/create"), "POST"},
		{"POST", "/healthz", "GET"},
		{"POST", "/r.git/info/refs", "GET"},
		{"GET", "/r.git/git-upload-pack", "POST"},
		{"HEAD", "/r.git/git-receive-pack", "POST"},
	} {
		a := g.do(ask{method: tc.method, path: tc.path, token: r.write})
		if a.status != 405 || !strings.Contains(a.header.Get("Allow"), tc.allow) {
			t.Errorf("%s %s = %d, Allow %q; want 405 and %s", tc.method, tc.path, a.status, a.header.Get("Allow"), tc.allow)
		}
		if tc.method != "HEAD" && at(a.json(t), "code") != "method_not_allowed" {
			t.Errorf("%s %s = %s, want the code method_not_allowed", tc.method, tc.path, a.body)
		}
	}
}

// HEAD of what GET answers is the same without a body.
func TestHeadHasRoutes(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", "/api/whoami", "/api/v1/repo", r.path(""), r.path("/branches"), r.path("/commits"), r.path("/files")} {
		get, head := g.do(ask{path: path, token: r.read}), g.do(ask{method: "HEAD", path: path, token: r.read})
		if get.status != head.status || len(head.body) != 0 || get.header.Get("Content-Type") != head.header.Get("Content-Type") {
			t.Errorf("HEAD %s = %d, %d bytes; GET = %d", path, head.status, len(head.body), get.status)
		}
	}
}

// Every route of the one list stands in the API document, and nothing else does.
func TestOpenAPIListsEveryRoute(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string                `json:"operationId"`
			Scope       tokens.Scope          `json:"x-scope"`
			Responses   map[string]any        `json:"responses"`
			Security    []map[string][]string `json:"security"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(openapiDocument, &doc); err != nil {
		t.Fatalf("openapi.json: %v", err)
	}
	listed := 0
	for _, rt := range routes {
		for _, path := range rt.paths {
			op, ok := doc.Paths[path][strings.ToLower(rt.method)]
			if !ok {
				t.Errorf("%s %s (%s) is not in openapi.json", rt.method, path, rt.name)
				continue
			}
			listed++
			if strings.TrimSuffix(op.OperationID, ".v1") != rt.name || op.Scope != rt.scope || len(op.Responses) == 0 {
				t.Errorf("%s %s: openapi.json says %s, scope %q; the route is %s, scope %q", rt.method, path, op.OperationID, op.Scope, rt.name, rt.scope)
			}
			if (rt.access == open) != (len(op.Security) == 0) {
				t.Errorf("%s %s: openapi.json says security %v", rt.method, path, op.Security)
			}
		}
	}
	written := 0
	for _, ops := range doc.Paths {
		written += len(ops)
	}
	if written != listed {
		t.Errorf("openapi.json has %d operations, %d of them are routes", written, listed)
	}
}

func TestHealth(t *testing.T) {
	notReady := true
	g := newGate(t, func(c *Config) {
		c.Ready = func(ctx context.Context) error {
			if notReady {
				return fmt.Errorf("ledger is away")
			}
			return nil
		}
	})
	g.want(200, ask{path: "/healthz"})
	a := g.want(503, ask{path: "/readyz"})
	if at(a.json(t), "retryable") != true || a.header.Get("Retry-After") == "" {
		t.Errorf("/readyz not ready = %v %s, want retryable with Retry-After", a.header, a.body)
	}
	notReady = false
	g.want(200, ask{path: "/readyz"})
	g.want(200, ask{path: "/openapi.json"}).json(t)
	m := g.want(200, ask{path: "/metrics"})
	for _, line := range []string{
		`headgate_requests_total{route="ready",status="503"} 1`, `headgate_requests_total{route="ready",status="200"} 1`,
		`headgate_request_seconds_count{route="health"} 1`, "headgate_requests_running 1", "go_goroutines",
	} {
		if !strings.Contains(string(m.body), line) {
			t.Errorf("/metrics has no line %s", line)
		}
	}
}
