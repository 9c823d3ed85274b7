package integration

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// A wire is one connection to a gate that requests are written to as they are.
type wire struct {
	net.Conn
	in *bufio.Reader
	t  testing.TB
}

func (g *gate) dial() *wire {
	g.t.Helper()
	conn, err := net.Dial("tcp", g.Addr())
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return &wire{conn, bufio.NewReader(conn), g.t}
}

func (w *wire) send(text string) {
	w.t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		w.t.Fatalf("send %.80q: %v", text, err)
	}
}

// answer reads one answer to its end.
func (w *wire) answer(what, method string) harness.Answer {
	w.t.Helper()
	resp, err := http.ReadResponse(w.in, &http.Request{Method: method})
	if err != nil {
		w.t.Fatalf("%s: read answer: %v", what, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%s: read body of %d: %v", what, resp.StatusCode, err)
	}
	if resp.Close {
		resp.Header.Set("Connection", "close")
	}
	return harness.Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}
}

// A message is a request as it stands on a connection.
type message struct {
	method, path, auth string
	headers            []string
	body               string
	chunked            bool
	version            string // "1.1" unless given
}

func (m message) String() string {
	if m.method == "" {
		m.method = "GET"
	}
	if m.version == "" {
		m.version = "1.1"
	}
	lines := []string{m.method + " " + m.path + " HTTP/" + m.version, "Host: gate"}
	if m.auth != "" {
		lines = append(lines, "Authorization: "+m.auth)
	}
	lines = append(lines, m.headers...)
	switch {
	case m.chunked:
		return strings.Join(append(lines, "Transfer-Encoding: chunked"), "\r\n") + "\r\n\r\n" + chunks(m.body)
	case m.method == "GET":
		return strings.Join(lines, "\r\n") + "\r\n\r\n"
	}
	return strings.Join(append(lines, fmt.Sprintf("Content-Length: %d", len(m.body))), "\r\n") + "\r\n\r\n" + m.body
}

// chunks is body in chunks of at most 1,000 bytes.
func chunks(body string) string {
	var b strings.Builder
	for len(body) > 0 {
		n := min(1000, len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

func gzipped(body string) string {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = io.WriteString(w, body)
	_ = w.Close()
	return packed.String()
}

func basic(token string) string { return "Basic " + basicOf(token) }

// lsRefs asks for every ref, in version 2.
func (r *repo) lsRefs() message {
	return message{
		method: "POST", path: r.gitPath(false, "git-upload-pack"), auth: basic(r.read), body: pkt("command=ls-refs\n") + "0000",
		headers: []string{"Content-Type: application/x-git-upload-pack-request", "Git-Protocol: version=2"},
	}
}

// create pushes a new branch at a commit that is there.
func (r *repo) create(branch, oid string) message {
	return message{
		method: "POST", path: r.gitPath(false, "git-receive-pack"), auth: basic(r.write),
		headers: []string{"Content-Type: application/x-git-receive-pack-request"},
		body:    pushBody("report-status", emptyPack, pushCommand{zeros, oid, "refs/heads/" + branch}),
	}
}

// F-01, cases 1.1, 1.2 and 1.8: bodies in every coding and framing, waited for or not.
func TestCase1_1_And1_2_And1_8_BodiesInEveryForm(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	for n, tc := range []struct {
		coding          string
		chunked, expect bool
	}{
		{"", false, false}, {"", true, false}, {"", false, true}, {"", true, true},
		{"gzip", false, false}, {"gzip", true, false}, {"gzip", true, true}, {"x-gzip", false, false}, {"x-gzip", true, true}, {"identity", true, false},
	} {
		what := fmt.Sprintf("coding %q, chunked %v, Expect %v", tc.coding, tc.chunked, tc.expect)
		branch := fmt.Sprintf("form-%d", n)
		w := g.dial()
		for _, m := range []message{r.create(branch, head), r.lsRefs()} {
			if tc.coding != "" {
				m.headers = append(m.headers, "Content-Encoding: "+tc.coding)
			}
			if strings.HasSuffix(tc.coding, "gzip") {
				m.body = gzipped(m.body)
			}
			m.chunked = tc.chunked
			text := m.String()
			if tc.expect {
				m.headers = append(m.headers, "Expect: 100-continue")
				text = m.String()
				end := strings.Index(text, "\r\n\r\n") + 4
				w.send(text[:end])
				line, err := w.in.ReadString('\n')
				if err != nil || line != "HTTP/1.1 100 Continue\r\n" {
					t.Fatalf("%s: first line = %q, %v; want 100", what, line, err)
				}
				if _, err := w.in.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				text = text[end:]
			}
			w.send(text)
			a := w.answer(what, m.method)
			if a.Status != 200 || !strings.Contains(string(a.Body), "refs/heads/"+branch) {
				t.Errorf("%s: %s = %s, want 200 with %s", what, m.path, a, branch)
			}
		}
		if got := r.head(branch, false); got != head {
			t.Errorf("%s: %s = %q, want %s", what, branch, got, head)
		}
	}
}

// Case 1.8: with a token that is no good the answer is final, the connection closes,
// and no byte of the body was asked for.
func TestCase1_8_ExpectWithABadToken(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	commit := message{method: "POST", path: r.path("/commit-pack"), headers: []string{"Content-Type: application/x-ndjson"}, body: strings.Repeat("x", 1<<20)}
	var waiting errgroup.Group
	for auth, status := range map[string]int{"Bearer bad": 401, "Bearer " + r.read: 403} {
		for _, m := range []message{r.create("x", head), commit} {
			for _, chunked := range []bool{false, true} {
				m.auth, m.chunked = auth, chunked
				m.headers = append(m.headers[:1:1], "Expect: 100-continue")
				waiting.Go(func() error {
					text := m.String()
					w := g.dial()
					if _, err := io.WriteString(w, text[:strings.Index(text, "\r\n\r\n")+4]); err != nil {
						return err
					}
					got, err := io.ReadAll(w.in)
					if err != nil || !strings.HasPrefix(string(got), fmt.Sprintf("HTTP/1.1 %d ", status)) || !strings.Contains(string(got), "\r\nConnection: close\r\n") {
						t.Errorf("POST %s, chunked %v, Expect and no good token = %.400q, %v; want a final %d that says it closes, and the end", m.path, chunked, got, err, status)
					}
					return nil
				})
			}
		}
	}
	if err := waiting.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := r.head("x", false); got != "" {
		t.Errorf("x = %s after pushes with tokens that are no good", got)
	}
}

// wrongs are requests that end in every status a client may cause.
func (r *repo) wrongs(head string) map[string]message {
	git := func(path, auth, body string, headers ...string) message {
		return message{method: "POST", path: path, auth: auth, body: body, headers: headers}
	}
	media := "Content-Type: application/x-git-receive-pack-request"
	push := r.gitPath(false, "git-receive-pack")
	commit := message{method: "POST", path: r.path("/commit-pack"), auth: "Bearer " + r.write, headers: []string{"Content-Type: application/x-ndjson"}}
	bad, stale, large := commit, commit, commit
	bad.body = "not json\n"
	stale.body = harness.Commit{Branch: "main", Expected: zeros, Files: []harness.File{{Path: "x", Content: "x"}}}.Lines()
	large.body = harness.Commit{Branch: "main", Files: []harness.File{{Path: "a", Content: "a"}, {Path: "b", Content: "b"}, {Path: "c", Content: "c"}}}.Lines()
	body := r.create("never", head).body
	return map[string]message{
		"400 api":      bad,
		"400 git":      git(push, basic(r.write), "abcd", media),
		"400 gzip":     git(push, basic(r.write), body, media, "Content-Encoding: gzip"),
		"401 none":     git(push, "", body, media),
		"401 bad":      git(push, basic("bad"), body, media),
		"401 api":      {method: "POST", path: r.path("/branches/create"), auth: "Bearer bad", body: `{"target_branch": "never"}`},
		"403 scope":    git(push, basic(r.read), body, media),
		"403 dumb":     {path: r.gitPath(false, "info/refs"), auth: basic(r.read)},
		"404 repo":     git("/team/none.git/git-receive-pack", basic(r.write), body, media),
		"404 route":    {method: "POST", path: "/nowhere", auth: basic(r.write), body: body},
		"405 method":   {method: "DELETE", path: push, auth: basic(r.write), body: body},
		"409 conflict": stale,
		"413 files":    large,
		"415 media":    git(push, basic(r.write), body, "Content-Type: text/plain"),
		"415 coding":   git(push, basic(r.write), body, media, "Content-Encoding: br"),
	}
}

// F-01: after an error to a small request the same connection serves a good one.
func TestF01_KeepAliveAfterErrors(t *testing.T) {
	g := start(t, withConfig("[limits]\ncommit_files = 2\n"))
	r, head := g.seeded()
	for what, wrong := range r.wrongs(head) {
		for _, chunked := range []bool{false, true} {
			if wrong.method == "" && chunked {
				continue
			}
			wrong.chunked = chunked
			w := g.dial()
			for range 2 {
				w.send(wrong.String())
				a := w.answer(what, wrong.method)
				if want := what[:3]; fmt.Sprint(a.Status) != want || a.Header.Get("Connection") == "close" {
					t.Fatalf("%s, chunked %v = %s %v, want %s and the connection kept", what, chunked, a, a.Header, want)
				}
			}
			w.send(r.lsRefs().String())
			if a := w.answer("ls-refs after "+what, "POST"); a.Status != 200 || !strings.Contains(string(a.Body), head+" refs/heads/main") {
				t.Errorf("ls-refs on the connection after %s, chunked %v = %s", what, chunked, a)
			}
		}
	}
	if got := r.head("never", false); got != "" {
		t.Errorf("never = %s after refused pushes", got)
	}
}

// Case 1.10: whoever sends 3 MB and only then looks at the answer finds it, whatever
// it is; if the server has enough of the connection, the answer says so.
func TestCase1_10_AnswerToABodyThatWasRefused(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	pack := string(noise(t, 3<<20))
	expired := g.sign(tokens.Claims{Repo: r.name, Scopes: []tokens.Scope{tokens.GitWrite}, ExpiresAt: time.Now().Add(-2 * time.Minute)})
	for what, m := range map[string]message{
		"401 expired": {auth: basic(expired), path: r.gitPath(false, "git-receive-pack")},
		"401 none":    {path: r.gitPath(false, "git-receive-pack")},
		"403 scope":   {auth: basic(r.read), path: r.gitPath(false, "git-receive-pack")},
		"404 repo":    {auth: basic(r.write), path: "/team/none.git/git-receive-pack"},
		"401 api":     {auth: "Bearer " + expired, path: r.path("/commit-pack")},
		"404 route":   {auth: basic(r.write), path: "/nowhere"},
	} {
		m.method, m.headers = "POST", []string{"Content-Type: application/x-git-receive-pack-request"}
		m.body = pushBody("report-status", pack, pushCommand{zeros, head, "refs/heads/never"})
		for _, chunked := range []bool{false, true} {
			m.chunked = chunked
			w := g.dial()
			w.send(m.String())
			a := w.answer(what, m.method)
			if fmt.Sprint(a.Status) != what[:3] {
				t.Errorf("%s with 3 MB, chunked %v = %s", what, chunked, a)
			}
			if a.Header.Get("Connection") == "close" {
				if rest, err := io.ReadAll(w.in); err != nil || len(rest) > 0 {
					t.Errorf("%s with 3 MB, chunked %v: after the answer came %q, %v; want the end", what, chunked, rest, err)
				}
				continue
			}
			w.send(r.lsRefs().String())
			if a := w.answer("ls-refs after "+what, "POST"); a.Status != 200 {
				t.Errorf("ls-refs on the connection after %s = %s", what, a)
			}
		}
	}
}

// F-01: HTTP/1.0, without a Host and without chunks in the answer.
func TestF01_HTTP1_0(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	refs := message{path: r.gitPath(false, "info/refs") + "?service=git-upload-pack", auth: basic(r.read), version: "1.0"}
	fetch := message{
		method: "POST", path: r.gitPath(false, "git-upload-pack"), auth: basic(r.read), version: "1.0",
		headers: []string{"Content-Type: application/x-git-upload-pack-request"}, body: pkt("want "+head+"\n") + "0000" + pkt("done\n"),
	}
	push := r.create("old", head)
	push.version = "1.0"
	for what, m := range map[string]message{head + " refs/heads/main": refs, "PACK": fetch, "ok refs/heads/old": push} {
		w := g.dial()
		w.send(strings.Replace(m.String(), "Host: gate\r\n", "", 1))
		text, err := io.ReadAll(w.in)
		if err != nil || !strings.HasPrefix(string(text), "HTTP/1.0 200") || strings.Contains(string(text), "Transfer-Encoding") || !strings.Contains(string(text), what) {
			t.Errorf("%s %s in HTTP/1.0 = %.300q, %v; want 200 with %q to the connection's end", m.method, m.path, text, err, what)
		}
	}
	w := g.dial()
	health := message{path: "/healthz", version: "1.0", headers: []string{"Connection: keep-alive"}}
	for range 2 { // a client that asks for it keeps its connection where the length is known
		w.send(health.String())
		if a := w.answer("/healthz", "GET"); a.Status != 200 {
			t.Fatalf("/healthz in HTTP/1.0 = %s", a)
		}
	}
}

// F-01: requests that do not wait for the answer before them are answered in order.
func TestF01_PipelinedRequests(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	var all strings.Builder
	const branches = 5
	for n := range branches {
		push := r.create(fmt.Sprintf("piped-%d", n), head)
		push.chunked = n%2 == 0
		all.WriteString(push.String() + r.lsRefs().String())
		all.WriteString(message{path: "/api/whoami", auth: "Bearer " + r.read}.String())
	}
	w := g.dial()
	go func() { _, _ = io.WriteString(w, all.String()) }()
	for n := range branches {
		branch := fmt.Sprintf("refs/heads/piped-%d", n)
		if a := w.answer("push", "POST"); a.Status != 200 || !strings.Contains(string(a.Body), "ok "+branch) {
			t.Fatalf("push %d of a row = %s, want ok %s", n, a, branch)
		}
		if a := w.answer("ls-refs", "POST"); a.Status != 200 || !strings.Contains(string(a.Body), branch+"\n") {
			t.Fatalf("ls-refs %d of a row = %s, want %s in it", n, a, branch)
		}
		if a := w.answer("whoami", "GET"); a.Status != 200 || a.Text("repo_name") != r.name {
			t.Fatalf("whoami %d of a row = %s", n, a)
		}
	}
}

// F-01: git and API speak HTTP/1.1 and HTTP/2 over TLS, in both directions.
func TestF01_HTTP2(t *testing.T) {
	g := start(t, overTLS(t))
	g.git.Env = g.authority()
	r, head := g.seeded()
	for major, client := range map[int]*http.Client{1: withoutHTTP2(g.Cert.Client()), 2: g.Cert.Client()} {
		for n, m := range []message{r.lsRefs(), r.create(fmt.Sprintf("over-%d", major), head)} {
			for _, form := range []string{"", "gzip"} {
				body := m.body
				if form == "gzip" {
					body = gzipped(body)
				}
				req, err := http.NewRequest("POST", g.URL+m.path, io.MultiReader(strings.NewReader(body))) // of unknown length
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", m.auth)
				for _, line := range m.headers {
					name, value, _ := strings.Cut(line, ": ")
					req.Header.Set(name, value)
				}
				if form != "" {
					req.Header.Set("Content-Encoding", form)
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Fatalf("HTTP/%d, request %d %s: %v", major, n, form, err)
				}
				text, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 || resp.ProtoMajor != major || !strings.Contains(string(text), "refs/heads/") {
					t.Errorf("HTTP/%d, request %d %s = HTTP/%d %d %.200q, %v", major, n, form, resp.ProtoMajor, resp.StatusCode, text, err)
				}
			}
		}
		g.Client = client
		sha := r.commit(harness.Commit{Branch: "main", Files: []harness.File{{Path: "big", Content: strings.Repeat(fmt.Sprint(major), 1<<20)}}})
		r.wantFile(sha, "big", strings.Repeat(fmt.Sprint(major), 1<<20))
		for what, wrong := range r.wrongs(head) {
			if what == "413 files" {
				continue // of a limit this server does not have
			}
			a := g.do(harness.Ask{Method: wrong.method, Path: wrong.path, Header: headersOf(wrong), Body: strings.NewReader(wrong.body)})
			if fmt.Sprint(a.Status) != what[:3] {
				t.Errorf("HTTP/%d, %s = %s", major, what, a)
			}
		}
	}
	tracing := &harness.Git{Home: g.git.Home, Env: append(g.authority(), "GIT_TRACE_CURL=1")}
	big := noise(t, 3<<20)
	for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
		dir := filepath.Join(t.TempDir(), "c")
		out := tracing.Run("", nil, "-c", "http.version="+version, "clone", r.remote(r.write), dir)
		if out.Err != nil || !strings.Contains(out.Stderr, "<= Recv header: "+version+" 200") {
			t.Fatalf("clone in %s: %v\n%.1500s", version, out.Err, out.All())
		}
		write(t, dir, "noise", string(big)+version)
		g.run(dir, "add", "-A")
		g.run(dir, "commit", "-q", "-m", version)
		out = tracing.Run(dir, nil, "-c", "http.version="+version, "push")
		if out.Err != nil || !strings.Contains(out.Stderr, "<= Recv header: "+version+" 200") {
			t.Errorf("push of 3 MB in %s: %v\n%.1500s", version, out.Err, out.All())
		}
		out = tracing.Run(dir, nil, "-c", "http.version="+version, "push", r.remote(r.read), "HEAD:never")
		if out.Err == nil || !strings.Contains(out.All(), "403") {
			t.Errorf("push in %s with a token that reads: %v, want 403\n%.1500s", version, out.Err, out.All())
		}
	}
}

func withoutHTTP2(c *http.Client) *http.Client {
	transport := c.Transport.(*http.Transport)
	transport.ForceAttemptHTTP2 = false
	return c
}

func headersOf(m message) map[string]string {
	h := map[string]string{}
	for _, line := range m.headers {
		name, value, _ := strings.Cut(line, ": ")
		h[name] = value
	}
	if m.auth != "" {
		h["Authorization"] = m.auth
	}
	return h
}

// F-01: one remote under each way to write its address.
func TestF01_AddressesAndCredentials(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	at := "http://t:" + r.read + "@" + g.Addr()
	for _, remote := range []string{
		at + "/" + r.name + ".git", at + "/" + r.name + ".git/", at + "/" + r.name, at + "/" + r.name + "/", at + "//" + r.name + ".git",
		at + "/" + strings.Replace(r.name, "/", "%2F", 1) + ".git", at + "/team/%73" + r.name[len("team/s"):] + ".git",
	} {
		dir := filepath.Join(t.TempDir(), "c")
		if out := g.git.Run("", nil, "clone", "-q", remote, dir); out.Err != nil {
			t.Errorf("clone of %s: %v\n%s", clip([]string{remote}), out.Err, out.All())
		} else if got := g.run(dir, "rev-parse", "HEAD"); got != head {
			t.Errorf("clone of %s is at %s, want %s", clip([]string{remote}), got, head)
		}
	}
	bare := "http://" + g.Addr() + "/" + r.name + ".git"
	for what, args := range map[string][]string{
		"any user":         {"ls-remote", strings.Replace(bare, "//", "//anybody%40example.com:"+r.read+"@", 1)},
		"no user":          {"ls-remote", strings.Replace(bare, "//", "//:"+r.read+"@", 1)},
		"Bearer":           {"-c", "http.extraHeader=Authorization: Bearer " + r.read, "ls-remote", bare},
		"lower-case":       {"-c", "http.extraHeader=Authorization: bearer " + r.read, "ls-remote", bare},
		"Basic by hand":    {"-c", "http.extraHeader=Authorization: basic " + basicOf(r.read), "ls-remote", bare},
		"credential store": {"-c", "credential.helper=!f() { echo username=t; echo password=" + r.read + "; }; f", "ls-remote", bare},
	} {
		if out := g.git.Run("", nil, args...); out.Err != nil || !strings.Contains(out.Stdout, head) {
			t.Errorf("%s: ls-remote: %v\n%s", what, out.Err, out.All())
		}
	}
	for what, remote := range map[string]string{
		"no credentials":         bare,
		"token as the user name": strings.Replace(bare, "//", "//"+r.read+":@", 1),
	} {
		out := g.git.Run("", nil, "ls-remote", remote)
		if out.Err == nil || !strings.Contains(out.All(), "Authentication failed") {
			t.Errorf("%s: ls-remote: %v, want authentication to fail\n%s", what, out.Err, out.All())
		}
	}
	for _, coding := range []string{"deflate, gzip, br, zstd", "gzip;q=0, identity", "*", ""} {
		a := g.do(harness.Ask{Path: r.gitPath(false, "info/refs") + "?service=git-upload-pack", Basic: r.read, Header: map[string]string{"Accept-Encoding": coding}})
		if a.Status != 200 || a.Header.Get("Content-Encoding") != "" || !strings.Contains(string(a.Body), head+" HEAD") {
			t.Errorf("info/refs with Accept-Encoding %q = %v %s, want it plain", coding, a.Header, a)
		}
	}
}

// Case 1.3: git uses everything that is advertised, and gets a report in band 1 that
// an outer flush ends.
func TestCase1_3_EveryCapabilityWorks(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	clone := r.clone(r.remote(r.write))
	tracing := &harness.Git{Home: g.git.Home, Env: []string{"GIT_TRACE_PACKET=1"}}
	out := tracing.Run(clone, nil, "push", "-o", "ci.skip", "origin", "HEAD:x")
	if out.Err != nil {
		t.Fatalf("push with an option: %v\n%s", out.Err, out.All())
	}
	wantHas(t, "trace of a push", out.Stderr, "report-status", "side-band-64k", "atomic", "ofs-delta", "delete-refs", "quiet", "push-options", "object-format=sha1",
		"ci.skip", "sideband< \\1000eunpack ok")
	if out = tracing.Run(clone, nil, "push", "--atomic", "origin", "HEAD:y", "HEAD:z", ":x"); out.Err != nil {
		t.Fatalf("atomic push: %v\n%s", out.Err, out.All())
	}
	if r.head("x", false) != "" || r.head("y", false) != head || r.head("z", false) != head {
		t.Errorf("x, y, z = %q, %q, %q after the atomic push", r.head("x", false), r.head("y", false), r.head("z", false))
	}
	if out = g.git.Run(clone, nil, "push", "--quiet", "origin", "HEAD:q"); out.Err != nil || out.All() != "" {
		t.Errorf("push --quiet: %v, said %q", out.Err, out.All())
	}
	stuck := r.token([]tokens.Scope{tokens.GitWrite}, refpolicy.Rule{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoPush}})
	if out := g.refused(clone, "push", "--quiet", r.remote(stuck), "HEAD:n"); !strings.Contains(out, "denied by policy") {
		t.Errorf("refused push --quiet said %q", out)
	}
}
