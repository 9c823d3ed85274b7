package integration

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/tokens"
)

func TestCase5_1_And_5_2_Paths(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	bad := []string{".git/config", ".git", "a/.git/x", ".GIT/x", ".Git", "..", "../x", "a/../../x", "a//b", "a/", "./a", ".", "a/./b", "", "a\x00b", "//abs"}
	for _, path := range bad {
		for _, remove := range []bool{false, true} {
			a := r.tryCommit(harness.Commit{Branch: "main", Files: []harness.File{{Path: path, Content: "x", Delete: remove}, {Path: "ok", Content: "x"}}})
			if a.Status != 400 || a.Text("result", "status") != "invalid" {
				t.Errorf("commit of path %q, delete %v = %s, want 400 invalid", path, remove, a)
			}
		}
		if a := r.file("main", path); a.Status != 400 && a.Status != 404 {
			t.Errorf("file %q = %s, want 400 or 404", path, a)
		}
		if a := r.get("/files", "path", path, "ref", "main"); path != "" && a.Status != 400 && a.Status != 404 && path != "a/" {
			t.Errorf("files below %q = %s, want 400 or 404", path, a)
		}
	}
	if got := r.head("main", false); got != head {
		t.Fatalf("bad paths moved main to %s", got)
	}
	good := []string{".gitignore", ".github/x", "a..b", "x.git/y", `a\b`, "a:b", `..\x`, "aux", "trail.", "trail ", "...x", "con.txt", "é", "/slash", strings.Repeat("n", 255), "a\tb", "new\nline"}
	var files []harness.File
	for _, path := range good {
		files = append(files, harness.File{Path: path, Content: "content of " + path})
	}
	sha := r.commit(harness.Commit{Branch: "main", Files: files})
	for _, path := range good {
		r.wantFile(sha, path, "content of "+path)
		if a := r.get("/diff", "sha", sha, "path", strings.TrimPrefix(path, "/")); a.Status != 200 || len(a.List("files")) != 1 {
			t.Errorf("diff of %q = %s, want it alone", path, a)
		}
	}
	if got := len(r.get("/files", "ref", sha).List("paths")); got != len(good)+2 {
		t.Errorf("files lists %d paths, want %d", got, len(good)+2)
	}
}

// Names that other systems trip over are plain names, literally and by one rule: a
// push and the API make the same tree of them, and a backslash divides nothing.
func TestCase5_2_PlainNamesByPushAndAPI(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	clone := r.clone(r.remote(r.write))
	names := []string{`a\b`, "a:b", `..\x`, "aux", "trail.", "trail "}
	blob := strings.TrimSpace(string(g.git.Run(clone, []byte("plain"), "hash-object", "-w", "--stdin").Stdout))
	var files, deleted []harness.File
	for _, name := range names {
		g.run(clone, "update-index", "--add", "--cacheinfo", "100644,"+blob+","+name)
		files = append(files, harness.File{Path: name, Content: "plain"})
		deleted = append(deleted, harness.File{Path: name, Delete: true})
	}
	g.run(clone, "commit", "-q", "-m", "names")
	g.run(clone, "push", "-q", "origin", "HEAD:refs/heads/pushed")
	tree := func(ref string) string { return r.get("/commit", "ref", ref).Text("commit", "tree_sha") }
	r.commit(harness.Commit{Branch: "api", Base: "main", Files: files})
	if pushed, api := tree("pushed"), tree("api"); pushed != api || pushed == tree(head) {
		t.Errorf("tree of the push is %s, of the API's commit %s; want one, and not that of main", pushed, api)
	}
	for _, name := range names {
		for _, ref := range []string{"pushed", "api"} {
			r.wantFile(ref, name, "plain")
		}
	}
	r.commit(harness.Commit{Branch: "pushed", Files: deleted})
	if got := tree("pushed"); got != tree(head) {
		t.Errorf("tree without the names is %s, want main's %s", got, tree(head))
	}
}

// What a push brings is listed and read, whatever its names; what git would trip
// over is refused.
func TestCase5_3_NamesByPush(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	clone := r.clone(r.remote(r.write))
	names := []string{"a:b", "aux", "con.txt", "trail ", "...x", "b\xff", strings.Repeat("n", 255)}
	for _, name := range names {
		write(t, clone, name, "content of "+name)
	}
	g.run(clone, "add", "-A")
	g.run(clone, "commit", "-q", "-m", "names")
	g.run(clone, "push", "-q", "origin", "main")
	for _, name := range names {
		r.wantFile("main", name, "content of "+name)
	}
	if a := r.get("/files"); a.Status != 200 || len(a.List("paths")) != len(names)+2 {
		t.Errorf("files = %s, want %d paths", a, len(names)+2)
	}
	if a := r.get("/diff", "sha", "main"); a.Status != 200 || len(a.List("files")) != len(names) {
		t.Errorf("diff = %s, want %d files", a, len(names))
	}
	head := r.head("main", false)
	blob := g.run(clone, "rev-parse", "HEAD:aux")
	for _, entry := range []string{".git", "..", ".", "a/b", "", ".GIT", "git~1", ".g\u200cit", ".git ", ".git..."} {
		tree := treeText("100644", entry, blob)
		text := commitText(objectID("tree", tree), head)
		report := r.rawPush(false, packObjects([]packed{{1, text, ""}, {2, tree, ""}}), pushCommand{head, objectID("commit", text), "refs/heads/main"})
		if !strings.Contains(report, "ng refs/heads/main") && !strings.HasPrefix(strings.Join(pktLines([]byte(report)), "|"), "unpack ") {
			t.Errorf("push of a tree entry %q = %q, want it refused", entry, report)
		}
		refused := strings.Contains(report, "ng refs/heads/main")
		if hostile := entry != "git~1" && !strings.HasPrefix(entry, ".git ") && !strings.HasPrefix(entry, ".git."); hostile && !refused && !strings.Contains(entry, "\u200c") {
			t.Errorf("push of a tree entry %q = %q, want it refused", entry, report)
		}
		if got := r.head("main", false); refused && got != head {
			t.Fatalf("a refused tree entry %q moved main", entry)
		} else if !refused {
			head = got
		}
	}
}

// A request line as it is written, which no HTTP library would send.
func (g *gate) line(method, target, auth string) (harness.Answer, error) {
	conn, err := net.Dial("tcp", g.Addr())
	if err != nil {
		return harness.Answer{}, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: gate\r\nConnection: close\r\nAuthorization: %s\r\n\r\n", method, target, auth)
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return harness.Answer{}, err
	}
	defer resp.Body.Close()
	return harness.Answer{Status: resp.StatusCode, Header: resp.Header}, nil
}

// Names that try to leave the data folder, or to be another name than the token's.
func TestCase5_4_HostileRepoNames(t *testing.T) {
	g := start(t)
	outside := filepath.Join(filepath.Dir(g.Data), "outside")
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	before := tree(t, filepath.Dir(g.Data))
	for _, name := range []string{
		"../../tmp/x", "../outside", "..", ".", "", "/abs", "a//b", "a/", "a/../b", ".hidden", "a/.hidden", "-dash", "a/-dash", "a.git", "a.git/b", ".git", "a+b",
		"a+ephemeral", "+ephemeral", "a+import", "a%2fb", "%2e%2e", "%252F", "a b", "a\tb", "a\x00b", "a\nb", "a\x7fb", "é", `a\b`, "a:b", "org", strings.Repeat("n", 256), strings.Repeat("n/", 200) + "n",
	} {
		token := g.sign(tokens.Claims{Repo: name, Scopes: []tokens.Scope{tokens.RepoWrite, tokens.GitWrite}})
		a := g.do(harness.Ask{Method: "POST", Path: "/api/v1/repos", Token: token, JSON: map[string]any{}})
		if a.Status != 400 && a.Status != 403 && a.Status != 401 {
			t.Errorf("create repo %.60q = %s, want 400", name, a)
		}
		for _, path := range []string{"/api/v1/repo", "/api/repos/" + url.PathEscape(name), "/api/repos/" + url.PathEscape(name) + "/file?path=x", "/" + strings.ReplaceAll(url.PathEscape(name), "%2F", "/") + ".git/info/refs?service=git-upload-pack"} {
			if a, err := g.line("GET", path, "Bearer "+token); err != nil || a.Status < 400 || a.Status >= 500 || a.Header.Get("Location") != "" {
				t.Errorf("GET %.80q as %.40q = %d, %v; want 4xx and no redirect", path, name, a.Status, err)
			}
		}
	}
	for _, name := range []string{"con", "team-red/site", "A", "a", "a..b", "x_y-z.1", strings.Repeat("n", 255)} {
		g.repoNamed(name)
	}
	if after := tree(t, filepath.Dir(g.Data)); after != before {
		t.Errorf("beside the data folder there is now %s, before there was %s", after, before)
	}
}

// tree lists what stands in dir itself.
func tree(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// Paths on the wire, as written. None redirects, and only what names the token's
// repo reaches it.
func TestHostilePathsOnTheWire(t *testing.T) {
	g := start(t)
	g.repoNamed("team-red/site")
	token := "Bearer " + g.sign(tokens.Claims{Repo: "team-red/site", Scopes: []tokens.Scope{tokens.GitRead}})
	refs := "/info/refs?service=git-upload-pack"
	for target, status := range map[string]int{
		"/api/repos/team-red%2Fsite": 200, "//api/repos/team-red%2Fsite": 200, "///api/v1/repo": 200,
		"/team-red/site.git" + refs: 200, "/team-red%2Fsite.git" + refs: 200, "/team-red/site%2Bephemeral.git" + refs: 200, "/team-red/site" + refs: 200, "//team-red/site.git" + refs: 200,
		"/api/repos/team-red/site": 404, "/api/repos/team-red%252Fsite": 404, "/api/repos/team-red%2Fsite/": 404, "/api/repos/%2e%2e": 404, "/api/repos/%2e%2e%2fetc": 404, "/api/repos/..": 404,
		"/api/repos/../../etc/passwd": 404, "/..%2f..%2fetc.git" + refs: 404, "/../../etc.git" + refs: 404, "/%2e%2e/team-red/site.git" + refs: 404, "/team-red/../team-red/site.git" + refs: 404,
		"/team-red//site.git" + refs: 404, "/team-red%252Fsite.git" + refs: 404, "/team-red/site.git.git" + refs: 404, "/team-red/site+ephemeral+ephemeral.git" + refs: 404, "/+ephemeral.git" + refs: 404,
		"/.git" + refs: 404, "/team-red/site.git/HEAD": 404, "/team-red/site.git/objects/info/packs": 404, "/team-red/site.git/config": 404, "/team-red/site%00.git" + refs: 404, "/team-red/site%0a.git" + refs: 404,
		"/" + strings.Repeat("a", 300) + ".git" + refs: 404, "/api/repos/" + strings.Repeat("%2e%2e%2f", 300): 404, "/": 404, "/api": 404,
	} {
		a, err := g.line("GET", target, token)
		if err != nil || a.Status != status || a.Header.Get("Location") != "" {
			t.Errorf("GET %.100s = %d, %v, Location %q; want %d", target, a.Status, err, a.Header.Get("Location"), status)
		}
	}
	// The import remote takes pushes and shows nothing to fetch.
	if a, err := g.line("GET", "/team-red/site+import.git"+refs, token); err != nil || a.Status != 403 {
		t.Errorf("fetch from +import = %d, %v; want 403", a.Status, err)
	}
}
