package httpapi

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// gitIn runs the installed git in dir, away from the settings of whoever runs
// the tests, and gives its output and whether it succeeded.
func gitIn(t testing.TB, dir string, args ...string) (string, bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"HOME="+t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=true", "LC_ALL=C",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=C", "GIT_COMMITTER_EMAIL=c@example.org",
	)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// mustGit is gitIn that has to succeed.
func mustGit(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, ok := gitIn(t, dir, args...)
	if !ok {
		t.Fatalf("git %s:\n%s", strings.Join(args, " "), out)
	}
	return strings.TrimSpace(out)
}

// remote is a git URL with a token in it.
func (g *gate) remote(path, tok string) string {
	return strings.Replace(g.http.URL, "http://", "http://t:"+tok+"@", 1) + "/" + path
}

// work is a working copy with one commit that holds the file f.
func work(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	mustGit(t, dir, "init", "-q", "-b", "main")
	commitFile(t, dir, "f", "1\n")
	return dir
}

func commitFile(t testing.TB, dir, name, data string) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
	mustGit(t, dir, "add", name)
	mustGit(t, dir, "commit", "-q", "-m", "change "+name)
	return mustGit(t, dir, "rev-parse", "HEAD")
}

// A whole round: push into an empty repo, read it by the API, commit by the API,
// clone and fetch it, in every protocol version and under every form of the URL.
func TestGitRoundTrip(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("team-red/site")
	dir := work(t)
	mustGit(t, dir, "push", "-q", g.remote("team-red/site.git", r.write), "HEAD:main")
	if got := r.head("main", false); got != mustGit(t, dir, "rev-parse", "HEAD") {
		t.Errorf("main is at %s after a push", got)
	}
	c := r.commit(nil, file{path: "g", data: "by the API\n"})
	for i, path := range []string{"team-red/site.git", "team-red/site", "team-red%2Fsite.git", "//team-red/site.git"} {
		for version := range 3 {
			into := filepath.Join(t.TempDir(), "clone")
			mustGit(t, dir, "-c", fmt.Sprintf("protocol.version=%d", version), "clone", "-q", g.remote(path, r.read), into)
			if got := mustGit(t, into, "rev-parse", "HEAD"); got != c {
				t.Errorf("URL %d, protocol %d: clone is at %s, want %s", i, version, got, c)
			}
			mustGit(t, into, "fsck", "--strict")
		}
	}
	mustGit(t, dir, "pull", "-q", g.remote("team-red/site.git", r.read), "main")
	mustGit(t, dir, "push", "-q", g.remote("team-red/site+import.git", r.write), "HEAD:refs/heads/imported", "HEAD:refs/tags/v1")
	if got := r.head("imported", false); got != c {
		t.Errorf("imported branch is at %s, want %s", got, c)
	}
}

// A-01, the git side: a session's branch is shown by the ephemeral remote alone.
func TestA01_EphemeralRemote(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	head := r.commit(nil, file{path: "a", data: "1"})
	r.want(200, ask{method: "POST", path: r.path("/branches/create"), token: r.write, body: meta{"target_branch": "sessions/42", "target_is_ephemeral": true, "base_ref": "main"}})
	for path, want := range map[string]string{
		"r.git": "refs/heads/main", "r+ephemeral.git": "refs/heads/sessions/42", "r%2Bephemeral.git": "refs/heads/sessions/42", "r+ephemeral": "refs/heads/sessions/42",
	} {
		out := mustGit(t, t.TempDir(), "ls-remote", "--heads", g.remote(path, r.read))
		if out != head+"\t"+want {
			t.Errorf("ls-remote %s = %q, want %s alone", path, out, want)
		}
	}
	// A confined token clones, commits and pushes without naming a branch.
	confined := tokenOf(t, tokens.Claims{Repo: "r", Scopes: []tokens.Scope{tokens.GitWrite}, Refs: []refpolicy.Rule{
		rule("refs/namespaces/ephemeral/refs/heads/sessions/42", refpolicy.NoForcePush), rule("*", refpolicy.NoPush),
	}})
	dir := filepath.Join(t.TempDir(), "sandbox")
	mustGit(t, t.TempDir(), "clone", "-q", g.remote("r+ephemeral.git", confined), dir)
	next := commitFile(t, dir, "b", "2\n")
	mustGit(t, dir, "push", "-q")
	if got := r.head("sessions/42", true); got != next || r.head("main", false) != head {
		t.Errorf("after the sandbox's push its branch is at %s, want %s, and main as it was", got, next)
	}
	// PI-12: the API's guard sees what git pushed, and says who it was.
	a := r.want(409, ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: pack(t, meta{"target_branch": "sessions/42", "ephemeral": true, "expected_head_sha": head}, file{path: "a", data: "2"})})
	if at(a.json(t), "result", "old_sha") != next {
		t.Errorf("stale guard = %s, want the pushed head %s", a.body, next)
	}
}

// each ref of a push is judged on its own, and git prints why and what to do.
func TestA11_RefusedPushIsExplained(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	dir := work(t)
	mustGit(t, dir, "push", "-q", g.remote("r.git", r.write), "HEAD:main")
	tok := tokenOf(t, tokens.Claims{Repo: "r", Scopes: []tokens.Scope{tokens.GitWrite}, Refs: []refpolicy.Rule{rule("main", refpolicy.NoPush)}})
	commitFile(t, dir, "f", "2\n")
	out, ok := gitIn(t, dir, "push", g.remote("r.git", tok), "HEAD:main", "HEAD:other")
	if ok || !strings.Contains(out, "denied by policy") {
		t.Errorf("push to main: success %v, output %s; want a failure that says denied by policy", ok, out)
	}
	for _, text := range []string{"remote:", "this token can push *", "it expires in", "[new branch]"} {
		if !strings.Contains(out, text) {
			t.Errorf("output of the push has no %q:\n%s", text, out)
		}
	}
	if strings.Contains(out, "rpc failed") || strings.Contains(out, "HTTP") {
		t.Errorf("a refused ref is told by HTTP:\n%s", out)
	}
}

// Case 1.1: a gzip body, as git sends it for many haves, and its bounds.
func TestCase1_1_GzipBodies(t *testing.T) {
	g := newGate(t, func(c *Config) { c.Limits.FetchBytes = 100_000 })
	r := g.newRepo("r")
	dir := work(t)
	tip := mustGit(t, dir, "rev-parse", "HEAD")
	push := []string{"push", "-q", g.remote("r.git", r.write), "HEAD:main"}
	for i := range 400 {
		push = append(push, fmt.Sprintf("HEAD:refs/tags/t%d", i))
	}
	mustGit(t, dir, push...)
	into := filepath.Join(t.TempDir(), "clone")
	mustGit(t, dir, "-c", "protocol.version=0", "clone", "-q", g.remote("r.git", r.read), into)
	if got := strings.Count(mustGit(t, into, "tag"), "\n") + 1; got != 400 {
		t.Errorf("clone has %d tags, want 400", got)
	}
	want := "0032want " + tip + "\n00000009done\n"
	for _, tc := range []struct {
		encoding string
		body     []byte
		status   int
	}{
		{"gzip", zipped(t, []byte(want)), 200},
		{"x-gzip", zipped(t, []byte(want)), 200},
		{"GZIP", zipped(t, []byte(want)), 200},
		{"identity", []byte(want), 200},
		{"br", []byte(want), 415},
		{"gzip", []byte(want), 400},
		{"gzip", zipped(t, []byte(want))[:30], 400},
		{"gzip", zipped(t, append([]byte("0032want "+tip+"\n0000"), bytes.Repeat([]byte("0032have "+tip+"\n"), 100_000)...)), 413}, // 5 MB in a few KB
	} {
		a := r.do(ask{method: "POST", path: "/r.git/git-upload-pack", token: r.read, body: tc.body, header: http.Header{
			"Content-Type": {"application/x-git-upload-pack-request"}, "Content-Encoding": {tc.encoding},
		}})
		if a.status != tc.status || tc.status == 200 && !bytes.Contains(a.body, []byte("PACK")) {
			t.Errorf("%s body of %d bytes = %d %.200q, want %d", tc.encoding, len(tc.body), a.status, a.body, tc.status)
		}
	}
}

func zipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Case 1.2: the probe before a large push, and the chunked push after it.
func TestCase1_2_ProbeAndChunkedPush(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	for service, tok := range map[string]string{"git-receive-pack": r.write, "git-upload-pack": r.read} {
		a := r.do(ask{method: "POST", path: "/r.git/" + service, token: tok, body: "0000", header: http.Header{"Content-Type": {"application/x-" + service + "-request"}}})
		if a.status != 200 || len(a.body) != 0 || a.header.Get("Content-Type") != "application/x-"+service+"-result" {
			t.Errorf("probe of %s = %d %s %q, want an empty result", service, a.status, a.header.Get("Content-Type"), a.body)
		}
	}
	dir := work(t)
	noise := make([]byte, 3<<20)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	c := commitFile(t, dir, "noise", string(noise))
	mustGit(t, dir, "push", "-q", g.remote("r.git", r.write), "HEAD:main")
	if got := r.content(c, "noise"); got != string(noise) {
		t.Errorf("pushed file came back as %d bytes, want %d", len(got), len(noise))
	}
	// Case 1.10: an expired token fails before any pack is sent.
	expired := tokenOf(t, tokens.Claims{Repo: "r", Scopes: []tokens.Scope{tokens.GitWrite}, ExpiresAt: time.Now().Add(-2 * time.Minute)})
	out, ok := gitIn(t, dir, "push", g.remote("r.git", expired), "HEAD:late")
	if ok || !strings.Contains(out, "Authentication failed") {
		t.Errorf("push with an expired token: success %v, %s", ok, out)
	}
}

// Cases 1.4, 1.7 and 1.9: the advertisements byte by byte.
func TestCase1_7_Advertisements(t *testing.T) {
	g := newGate(t)
	empty := g.newRepo("empty")
	r := g.newRepo("r")
	head := r.commit(nil, file{path: "a", data: "1"})
	get := func(repo, service, tok, protocol string) answer {
		h := http.Header{}
		if protocol != "" {
			h.Set("Git-Protocol", protocol)
		}
		a := g.want(200, ask{path: "/" + repo + ".git/info/refs?service=" + service, token: tok, header: h})
		if a.header.Get("Content-Type") != "application/x-"+service+"-advertisement" || !strings.HasPrefix(a.header.Get("Cache-Control"), "no-cache") {
			t.Errorf("%s of %s: headers %v", service, repo, a.header)
		}
		return a
	}
	body := string(get("empty", "git-receive-pack", empty.write, "").body)
	rest, ok := strings.CutPrefix(body, "001f# service=git-receive-pack\n0000")
	if !ok || len(rest) < 4 || !strings.HasPrefix(rest[4:], zeros+" capabilities^{}\x00") || !strings.HasSuffix(rest, "0000") {
		t.Errorf("receive-pack of an empty repo = %q", body)
	}
	for protocol, want := range map[string]string{
		"": "001e# service=git-upload-pack\n0000", "version=9": "001e# service=git-upload-pack\n0000", "version=2": "000eversion 2\n",
	} {
		body := string(get("r", "git-upload-pack", r.read, protocol).body)
		if !strings.HasPrefix(body, want) || !strings.HasSuffix(body, "0000") {
			t.Errorf("Git-Protocol %q: %.80q, want it to begin with %q", protocol, body, want)
		}
		if protocol != "version=2" && !strings.HasPrefix(body[len(want)+4:], head+" HEAD\x00") {
			t.Errorf("Git-Protocol %q: %.120q, want HEAD first", protocol, body)
		}
	}
	for _, contentType := range []string{"", "application/json", "application/x-git-receive-pack-request"} {
		h := http.Header{"Content-Type": {contentType}}
		a := g.do(ask{method: "POST", path: "/r.git/git-upload-pack", token: r.read, body: "0000", header: h})
		if a.status != 415 {
			t.Errorf("POST of type %q = %d, want 415", contentType, a.status)
		}
	}
	if a := g.do(ask{method: "HEAD", path: "/r.git" + refsOf, token: r.read}); a.status != 200 || len(a.body) != 0 {
		t.Errorf("HEAD info/refs = %d, %d bytes", a.status, len(a.body))
	}
}

// Cases 1.5 and 1.6: shallow and partial clones.
func TestCase1_5_ShallowAndPartial(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	for i := range 3 {
		r.commit(nil, file{path: "a", data: fmt.Sprint(i)})
	}
	for version := range 3 {
		into := filepath.Join(t.TempDir(), "shallow")
		mustGit(t, t.TempDir(), "-c", fmt.Sprintf("protocol.version=%d", version), "clone", "-q", "--depth", "1", g.remote("r.git", r.read), into)
		if got := mustGit(t, into, "rev-list", "--count", "HEAD"); got != "1" {
			t.Errorf("protocol %d: shallow clone has %s commits", version, got)
		}
	}
	into := filepath.Join(t.TempDir(), "partial")
	mustGit(t, t.TempDir(), "clone", "-q", "--filter=blob:none", "--no-checkout", g.remote("r.git", r.read), into)
	if out := mustGit(t, into, "rev-list", "--objects", "--all", "--missing=print"); strings.Count(out, "?") != 3 {
		t.Errorf("partial clone lacks %d blobs, want 3:\n%s", strings.Count(out, "?"), out)
	}
	mustGit(t, into, "checkout", "-q")
}

// F-03: a client that drops in the middle of a push moves nothing.
func TestF03_CutPush(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	head := r.commit(nil, file{path: "a", data: "1"})
	dir := work(t)
	tip := mustGit(t, dir, "rev-parse", "HEAD")
	cmd := exec.Command("git", "pack-objects", "--all", "--stdout", "-q")
	cmd.Dir = dir
	packed, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	line := zeros + " " + tip + " refs/heads/cut\x00report-status"
	body := append(fmt.Appendf(nil, "%04x%s0000", len(line)+4, line), packed...)
	for _, n := range []int{3, 50, len(body) - len(packed), len(body) / 2, len(body) - 1} {
		conn, err := net.Dial("tcp", g.http.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /r.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/x-git-receive-pack-request\r\nContent-Length: %d\r\n\r\n%s", r.write, len(body), body[:n])
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
		if a := r.do(ask{path: r.path("/branch", "name", "cut"), token: r.read}); a.status != 404 {
			t.Errorf("a push cut after %d of %d bytes made its branch: %s", n, len(body), a.body)
		}
	}
	a := r.do(ask{method: "POST", path: "/r.git/git-receive-pack", token: r.write, body: body, header: http.Header{"Content-Type": {"application/x-git-receive-pack-request"}}})
	if a.status != 200 || !strings.Contains(string(a.body), "ok refs/heads/cut") {
		t.Errorf("the whole push = %d %q", a.status, a.body)
	}
	if got := r.head("main", false); got != head {
		t.Errorf("main moved to %s", got)
	}
}

// Case 2.2 and git.md 4: deleting the default branch is refused, others go.
func TestCase2_2_Deletes(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	dir := work(t)
	url := g.remote("r.git", r.write)
	mustGit(t, dir, "push", "-q", url, "HEAD:main", "HEAD:topic")
	mustGit(t, dir, "push", "-q", url, ":topic")
	if out, ok := gitIn(t, dir, "push", url, ":main"); ok || !strings.Contains(out, "deletion of the current branch prohibited") {
		t.Errorf("deleting main: success %v\n%s", ok, out)
	}
	if out := mustGit(t, dir, "ls-remote", "--heads", url); !strings.HasSuffix(out, "refs/heads/main") || strings.Contains(out, "topic") {
		t.Errorf("heads = %s, want main alone", out)
	}
}

// A signed commit is told with its signature and exactly what was signed.
func TestSignedCommit(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("ssh-keygen is missing")
		}
		t.Skip("ssh-keygen is missing")
	}
	g := newGate(t)
	r := g.newRepo("r")
	dir := work(t)
	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v %s", err, out)
	}
	mustGit(t, dir, "-c", "gpg.format=ssh", "-c", "user.signingkey="+key, "commit", "-q", "--allow-empty", "-S", "-m", "signed")
	mustGit(t, dir, "push", "-q", g.remote("r.git", r.write), "HEAD:main")
	c := at(r.want(200, ask{path: r.path("/commit", "ref", "main"), token: r.read}).json(t), "commit")
	signature, _ := at(c, "signature").(string)
	payload, _ := at(c, "payload").(string)
	if !strings.HasPrefix(signature, "-----BEGIN SSH SIGNATURE-----\n") || !strings.HasPrefix(payload, "tree ") || strings.Contains(payload, "gpgsig") || !strings.HasSuffix(payload, "\n\nsigned\n") {
		t.Errorf("signature %q, payload %q", signature, payload)
	}
}

// Case 5.3: what a push brought is listed and read, also under names that JSON
// cannot carry: paging goes past them, and their bytes work as a path.
func TestCase5_3_OddNames(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	dir := t.TempDir()
	mustGit(t, dir, "init", "-q", "-b", "main")
	names := []string{"...x", "a:b", "aux", "con.txt", "trail ", strings.Repeat("n", 250), "\xff", "\xff\xfe/x", "z"}
	for _, name := range names {
		if i := strings.LastIndexByte(name, '/'); i > 0 {
			if err := os.MkdirAll(filepath.Join(dir, name[:i]), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("content of "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mustGit(t, dir, "add", ".")
	mustGit(t, dir, "commit", "-q", "-m", "odd names")
	mustGit(t, dir, "push", "-q", g.remote("r.git", r.write), "HEAD:main")
	for _, name := range names {
		if got := r.content("main", name); got != "content of "+name {
			t.Errorf("%q = %q", name, got)
		}
	}
	seen := 0
	for cursor, more := "", true; more; {
		v := r.want(200, ask{path: r.path("/files", "limit", "1", "cursor", cursor), token: r.read}).json(t)
		if seen += len(v["paths"].([]any)); seen > len(names) {
			t.Fatalf("paging goes in circles at cursor %q", cursor)
		}
		more = v["has_more"].(bool)
		cursor, _ = v["next_cursor"].(string)
	}
	if seen != len(names) {
		t.Errorf("%d files by pages, want %d", seen, len(names))
	}
	r.want(400, ask{path: r.path("/files", "cursor", "/!"), token: r.read})
	r.want(200, ask{path: r.path("/diff", "ref", "main"), token: r.read}).json(t)
}
