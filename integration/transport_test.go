package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/tokens"
)

func TestCase1_1_GzippedRequests(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	clone := r.clone(r.remote(r.write))
	var refs strings.Builder
	for i := range 400 {
		fmt.Fprintf(&refs, "create refs/tags/t%d %s\n", i, g.run(clone, "commit-tree", "-m", fmt.Sprint(i), "HEAD^{tree}"))
	}
	if out := g.git.Run(clone, []byte(refs.String()), "update-ref", "--stdin"); out.Err != nil {
		t.Fatal(out.All())
	}
	g.run(clone, "push", "-q", "--tags", "origin")
	dir := filepath.Join(t.TempDir(), "c")
	tracing := &harness.Git{Home: g.git.Home, Env: []string{"GIT_TRACE_CURL=1"}}
	out := tracing.Run("", nil, "-c", "protocol.version=0", "clone", "-q", r.remote(r.read), dir)
	if out.Err != nil || !strings.Contains(strings.ToLower(out.Stderr), "content-encoding: gzip") {
		t.Fatalf("clone of 400 tags: %v, want a gzipped request\n%.2000s", out.Err, out.Stderr)
	}
	if got := strings.Count(g.run(dir, "tag"), "\n") + 1; got != 400 {
		t.Errorf("the clone has %d tags, want 400", got)
	}
	// x-gzip is the same.
	body := pkt("command=ls-refs\n") + "0001" + pkt("peel\n") + "0000"
	for _, coding := range []string{"gzip", "x-gzip"} {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = io.WriteString(w, body)
		_ = w.Close()
		a := g.do(harness.Ask{Method: "POST", Path: r.gitPath(false, "git-upload-pack"), Basic: r.read, Body: &packed,
			Header: map[string]string{"Content-Type": "application/x-git-upload-pack-request", "Content-Encoding": coding, "Git-Protocol": "version=2"}})
		if a.Status != 200 || !strings.Contains(string(a.Body), "refs/tags/t399") {
			t.Errorf("ls-refs with Content-Encoding %s = %s", coding, a)
		}
	}
}

func TestCase1_2_ProbeAndChunkedPush(t *testing.T) {
	g := start(t)
	r := g.repo()
	a := r.post(false, "git-receive-pack", "", "0000")
	if a.Status != 200 || len(a.Body) != 0 || a.Header.Get("Content-Type") != "application/x-git-receive-pack-result" {
		t.Errorf("probe with a flush = %s, %s; want 200, empty, the result type", a, a.Header.Get("Content-Type"))
	}
	dir := t.TempDir()
	g.run(dir, "init", "-q")
	write(t, dir, "big", string(noise(t, 3<<20)))
	g.run(dir, "add", "big")
	g.run(dir, "commit", "-q", "-m", "big")
	tracing := &harness.Git{Home: g.git.Home, Env: []string{"GIT_TRACE_CURL=1"}}
	out := tracing.Run(dir, nil, "push", r.remote(r.write), "HEAD:main")
	if out.Err != nil || !strings.Contains(strings.ToLower(out.Stderr), "transfer-encoding: chunked") {
		t.Errorf("push of 3 MB: %v, want a chunked request\n%.1000s", out.Err, out.Stderr)
	}
}

// F-01: 200 MB go through with the default http.postBuffer, in chunks.
func TestF01_PushOf200MB(t *testing.T) {
	g := start(t)
	r := g.repo()
	dir := t.TempDir()
	g.run(dir, "init", "-q")
	f, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, noiseReader(seed+2, 200<<20)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	g.run(dir, "-c", "core.compression=0", "add", "big")
	g.run(dir, "commit", "-q", "-m", "big")
	g.run(dir, "-c", "core.compression=0", "push", "-q", r.remote(r.write), "HEAD:main")
	if got := r.head("main", false); got != g.run(dir, "rev-parse", "HEAD") {
		t.Errorf("main = %q after a push of 200 MB", got)
	}
}

func TestF01_CloneForms(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, _ := g.seeded()
		work := r.clone(r.remote(r.write))
		for i := range 5 {
			r.work(work, fmt.Sprintf("f%d", i), fmt.Sprint(i))
		}
		g.run(work, "tag", "-a", "-m", "annotated", "v1", "HEAD~2")
		g.run(work, "push", "-q", "--tags", "origin", "main")
		tip := g.run(work, "rev-parse", "HEAD")
		for _, version := range []string{"0", "1", "2"} {
			proto := []string{"-c", "protocol.version=" + version}
			for name, tc := range map[string]struct {
				flags   []string
				commits string
			}{
				"whole":         {nil, "6"},
				"depth 1":       {[]string{"--depth", "1"}, "1"},
				"depth 3":       {[]string{"--depth", "3"}, "3"},
				"since":         {[]string{"--shallow-since=2020-01-01"}, "6"},
				"exclude":       {[]string{"--shallow-exclude=v1"}, "2"},
				"blob:none":     {[]string{"--filter=blob:none"}, "6"},
				"tree:0":        {[]string{"--filter=tree:0"}, "6"},
				"blob:limit":    {[]string{"--filter=blob:limit=1k"}, "6"},
				"single branch": {[]string{"--single-branch", "--no-tags"}, "6"},
				"mirror":        {[]string{"--mirror"}, "6"},
			} {
				dir := filepath.Join(t.TempDir(), "c")
				args := append(append(proto, "clone", "-q"), append(tc.flags, r.remote(r.read), dir)...)
				out := g.git.Run("", nil, args...)
				if out.Err != nil {
					t.Errorf("protocol %s, %s: %v\n%s", version, name, out.Err, out.All())
					continue
				}
				if got := g.run(dir, "rev-parse", "HEAD"); got != tip {
					t.Errorf("protocol %s, %s: HEAD = %s, want %s", version, name, got, tip)
				}
				if got := g.run(dir, "rev-list", "--count", "HEAD"); got != tc.commits {
					t.Errorf("protocol %s, %s: %s commits, want %s", version, name, got, tc.commits)
				}
				g.run(dir, "fsck", "--connectivity-only")
			}
		}
	})
}

// Case 1.6: blobs are missing at first and come when they are asked for.
func TestCase1_6_BlobsOnDemand(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	dir := r.clone(r.remote(r.read), "--filter=blob:none", "--no-checkout")
	missing := strings.Count(g.run(dir, "rev-list", "--objects", "--all", "--missing=print"), "?")
	if missing != 2 {
		t.Errorf("%d objects are missing after --filter=blob:none, want 2", missing)
	}
	g.run(dir, "checkout", "-q", "main")
	if text, err := os.ReadFile(filepath.Join(dir, "README.md")); err != nil || string(text) != "hello\n" {
		t.Errorf("README.md after checkout = %q, %v", text, err)
	}
}

func TestF01_ShallowPushLongPushAndFetchBySHA(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, first := g.seeded()
		work := r.clone(r.remote(r.write))
		// A push of 500 commits.
		var script strings.Builder
		for i := range 500 {
			fmt.Fprintf(&script, "commit refs/heads/long\ncommitter Ada <ada@example.com> %d +0000\ndata 4\nwork\n", 1700000000+i)
			if i == 0 {
				fmt.Fprintf(&script, "from %s\n", first)
			}
			content := fmt.Sprintf("state %d\n", i)
			fmt.Fprintf(&script, "M 100644 inline d/f%d\ndata %d\n%s\n", i%50, len(content), content)
		}
		if out := g.git.Run(work, []byte(script.String()), "fast-import", "--quiet"); out.Err != nil {
			t.Fatal(out.All())
		}
		g.run(work, "push", "-q", "origin", "long")
		long := g.run(work, "rev-parse", "long")
		if got := r.head("long", false); got != long {
			t.Fatalf("long = %s after a push of 500 commits, want %s", got, long)
		}
		// A push from a shallow clone.
		shallow := r.clone(r.remote(r.write), "--depth", "1", "-b", "long")
		pushed := r.work(shallow, "from-shallow", "x")
		g.run(shallow, "push", "-q", "origin", "HEAD:long")
		if got := r.head("long", false); got != pushed {
			t.Errorf("long = %s after a push from a shallow clone, want %s", got, pushed)
		}
		g.run(shallow, "fetch", "-q", "--unshallow")
		if got := g.run(shallow, "rev-list", "--count", "HEAD"); got != "502" {
			t.Errorf("unshallowed: %s commits, want 502", got)
		}
		// A fetch by id, of a commit that is no tip.
		middle := g.run(work, "rev-parse", "long~250")
		for _, version := range []string{"0", "2"} {
			dir := t.TempDir()
			g.run(dir, "init", "-q")
			g.run(dir, "-c", "protocol.version="+version, "fetch", "-q", r.remote(r.read), middle)
			if got := g.run(dir, "rev-parse", "FETCH_HEAD"); got != middle {
				t.Errorf("protocol %s: fetch by id = %s, want %s", version, got, middle)
			}
			wantHas(t, "fetch of an unknown id", g.refused(dir, "-c", "protocol.version="+version, "fetch", r.remote(r.read), strings.Repeat("12", 20)), "not our ref")
		}
	})
}

// Requests as older and plainer clients sent them.
func TestF01_OldProtocolForms(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, head := g.seeded()
		for name, tc := range map[string]struct{ caps, protocol string }{
			"bare":                     {"", ""},
			"side-band":                {"side-band", ""},
			"side-band-64k, ofs-delta": {"side-band-64k ofs-delta thin-pack", ""},
			"multi_ack":                {"multi_ack", ""},
			"multi_ack_detailed":       {"multi_ack_detailed no-done side-band-64k", ""},
			"no-progress":              {"side-band-64k no-progress include-tag", ""},
			"version 1":                {"side-band-64k", "version=1"},
		} {
			want := "want " + head
			if tc.caps != "" {
				want += " " + tc.caps
			}
			a := r.post(false, "git-upload-pack", tc.protocol, pkt(want+"\n")+"0000"+pkt("done\n"))
			data := a.Body
			if strings.Contains(tc.caps, "side-band") {
				data, _ = unband(a.Body)
			}
			dir := t.TempDir()
			g.run(dir, "init", "-q", "--bare")
			out := g.git.Run(dir, packOf(data), "index-pack", "--stdin")
			if a.Status != 200 || out.Err != nil {
				t.Errorf("%s: fetch = %d, %d bytes; index-pack: %v %s", name, a.Status, len(a.Body), out.Err, out.All())
				continue
			}
			g.run(dir, "cat-file", "-e", head+"^{tree}")
		}
		for name, caps := range map[string]string{
			"bare": "", "report-status": "report-status", "v2 report": "report-status-v2", "side-band": "report-status side-band-64k",
			"all": "report-status side-band-64k ofs-delta atomic quiet delete-refs agent=git/1.0",
		} {
			branch := "refs/heads/raw-" + strings.ReplaceAll(name, " ", "-")
			a := r.post(false, "git-receive-pack", "", pushBody(caps, emptyPack, pushCommand{zeros, head, branch}))
			body := string(a.Body)
			if strings.Contains(caps, "side-band") {
				data, _ := unband(a.Body)
				body = string(data)
			}
			if a.Status != 200 || (caps == "") != (body == "") || (caps != "" && !strings.Contains(body, "ok "+branch)) {
				t.Errorf("%s: push = %s, want a report only if one was asked for", name, a)
			}
			if got := r.head(strings.TrimPrefix(branch, "refs/heads/"), false); got != head {
				t.Errorf("%s: %s = %q after the push, want %s", name, branch, got, head)
			}
		}
		if a := r.post(false, "git-receive-pack", "", pushBody("report-status side-band-64k", emptyPack, pushCommand{zeros, head, "refs/heads/banded"})); !strings.HasSuffix(string(a.Body), "0000") {
			t.Errorf("a banded report = %q, want an outer flush at its end", a.Body)
		}
	})
}

// emptyPack is a pack of no objects with its checksum.
var emptyPack = "PACK\x00\x00\x00\x02\x00\x00\x00\x00\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e"

func TestCase1_4_And1_7_And1_9_Advertisements(t *testing.T) {
	g := start(t)
	r := g.repo()
	get := func(service, protocol string) harness.Answer {
		ask := harness.Ask{Path: r.gitPath(false, "info/refs") + "?service=" + service, Basic: r.write, Header: map[string]string{}}
		if protocol != "" {
			ask.Header["Git-Protocol"] = protocol
		}
		return g.do(ask)
	}
	a := get("git-receive-pack", "")
	first := "001f# service=git-receive-pack\n0000"
	if !strings.HasPrefix(string(a.Body), first) || !strings.Contains(string(a.Body), zeros+" capabilities^{}\x00") || !strings.HasSuffix(string(a.Body), "0000") {
		t.Errorf("receive-pack of an empty repo = %q", a.Body)
	}
	clone := r.clone(r.remote(r.write))
	head := r.work(clone, "first", "1")
	g.run(clone, "push", "-q", "origin", "HEAD:main")
	a = get("git-upload-pack", "")
	if !strings.HasPrefix(string(a.Body), "001e# service=git-upload-pack\n0000") || !strings.Contains(string(a.Body), head+" HEAD\x00") || !strings.HasSuffix(string(a.Body), "0000") {
		t.Errorf("upload-pack advertisement = %q", a.Body)
	}
	if a.Header.Get("Content-Type") != "application/x-git-upload-pack-advertisement" || !strings.Contains(a.Header.Get("Cache-Control"), "no-cache") {
		t.Errorf("headers of info/refs = %v", a.Header)
	}
	if v2 := get("git-upload-pack", "version=2"); !strings.HasPrefix(string(v2.Body), "000eversion 2") {
		t.Errorf("info/refs of version 2 = %q, want it to start with the version line", v2.Body)
	}
	if v1 := get("git-upload-pack", "version=1"); !strings.Contains(string(v1.Body), "version 1") && !strings.Contains(string(v1.Body), head+" HEAD") {
		t.Errorf("info/refs of version 1 = %q", v1.Body)
	}
	if v9 := get("git-upload-pack", "version=9"); string(v9.Body) != string(a.Body) {
		t.Errorf("info/refs of version 9 = %q, want that of version 0", v9.Body)
	}
	if dumb := g.do(harness.Ask{Path: r.gitPath(false, "info/refs"), Basic: r.read}); dumb.Status != 403 {
		t.Errorf("info/refs without a service = %s, want 403", dumb)
	}
	wrong := g.do(harness.Ask{Method: "POST", Path: r.gitPath(false, "git-upload-pack"), Basic: r.read, Body: strings.NewReader("0000"), Header: map[string]string{"Content-Type": "text/plain"}})
	if wrong.Status != 415 {
		t.Errorf("upload-pack of text/plain = %s, want 415", wrong)
	}
	// An unborn HEAD tells a clone of an empty repo which branch to begin.
	empty := g.want(201, harness.Ask{Method: "POST", Path: "/api/v1/repos", Token: g.sign(tokens.Claims{Repo: "trunked", Scopes: []tokens.Scope{tokens.RepoWrite}}), JSON: map[string]any{"default_branch": "trunk"}})
	fresh := r.clone(g.Remote("trunked", g.sign(tokens.Claims{Repo: "trunked", Scopes: []tokens.Scope{tokens.GitRead}}), false))
	if got := g.run(fresh, "symbolic-ref", "HEAD"); got != "refs/heads/trunk" {
		t.Errorf("HEAD of a clone of an empty repo = %s, want refs/heads/trunk (%s)", got, empty)
	}
}

// Case 1.8: what a client that waits for 100 Continue is told.
func TestCase1_8_ExpectContinue(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	send := func(path, media, auth string, body string) string {
		conn, err := net.Dial("tcp", g.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: gate\r\nAuthorization: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n", path, auth, media, len(body))
		first := make([]byte, 12)
		if _, err := io.ReadFull(conn, first); err != nil {
			t.Fatalf("POST %s: %v", path, err)
		}
		if string(first) != "HTTP/1.1 100" {
			return string(first)
		}
		_, _ = io.WriteString(conn, body)
		rest, _ := io.ReadAll(conn)
		return string(first) + string(rest)
	}
	push := pushBody("report-status", emptyPack, pushCommand{zeros, head, "refs/heads/expected"})
	commit := harness.Commit{Branch: "main", Files: []harness.File{{Path: "x", Content: "x"}}}.Lines()
	basic := func(token string) string { return "Basic " + basicOf(token) }
	if got := send(r.gitPath(false, "git-receive-pack"), "application/x-git-receive-pack-request", basic(r.write), push); !strings.HasPrefix(got, "HTTP/1.1 100") || !strings.Contains(got, "ok refs/heads/expected") {
		t.Errorf("push with Expect = %q, want 100 and the report", got)
	}
	if got := send(r.path("/commit-pack"), "application/x-ndjson", "Bearer "+r.write, commit); !strings.HasPrefix(got, "HTTP/1.1 100") || !strings.Contains(got, "HTTP/1.1 201") {
		t.Errorf("commit-pack with Expect = %q, want 100 and 201", got)
	}
	for _, path := range []string{r.gitPath(false, "git-receive-pack"), r.path("/commit-pack")} {
		if got := send(path, "application/x-git-receive-pack-request", basic("bad"), push); got != "HTTP/1.1 401" {
			t.Errorf("POST %s with a bad token and Expect = %q, want 401 at once", path, got)
		}
	}
}

func basicOf(token string) string {
	return base64.StdEncoding.EncodeToString([]byte("t:" + token))
}

// Case 1.10: an expired token is told so before any pack is sent.
func TestCase1_10_And_A12_ExpiredTokenBeforeAnyPack(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	clone := r.clone(r.remote(r.write))
	write(t, clone, "big", string(noise(t, 3<<20)))
	g.run(clone, "add", "big")
	g.run(clone, "commit", "-q", "-m", "big")
	expired := g.sign(tokens.Claims{Repo: r.name, Scopes: []tokens.Scope{tokens.GitWrite}, ExpiresAt: time.Now().Add(-2 * time.Minute)})
	tracing := &harness.Git{Home: g.git.Home, Env: []string{"GIT_TRACE_CURL=1"}}
	out := tracing.Run(clone, nil, "push", r.remote(expired), "HEAD:main")
	if out.Err == nil || strings.Contains(out.Stderr, "POST /") {
		t.Errorf("push with an expired token: %v, want 401 on info/refs and no POST\n%.2000s", out.Err, out.Stderr)
	}
	if got := r.head("main", false); got != head {
		t.Errorf("main = %s, want %s", got, head)
	}
	g.run(clone, "push", "-q", r.remote(r.write), "HEAD:main")
}

// cutPush sends the first n bytes of a push, whole requests announced or in chunks,
// then breaks the connection and waits until the server has noticed.
func (r *repo) cutPush(whole string, n int, chunked bool) {
	r.g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	body := io.MultiReader(strings.NewReader(whole[:n]), cutReader{})
	req, err := http.NewRequestWithContext(ctx, "POST", r.g.URL+r.gitPath(false, "git-receive-pack"), body)
	if err != nil {
		r.g.t.Fatal(err)
	}
	if !chunked {
		req.ContentLength = int64(len(whole))
	}
	req.SetBasicAuth("t", r.write)
	req.Header.Set("Content-Type", "application/x-git-receive-pack-request")
	resp, err := r.g.Client.Do(req)
	if err == nil {
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if strings.Contains(string(text), "ok refs/heads/main") {
			r.g.t.Errorf("a push cut after %d bytes was answered %q", n, text)
		}
	}
	r.g.quiet()
}

// quiet waits until no request but the one that asks is running.
func (g *gate) quiet() {
	g.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if strings.Contains(string(g.do(harness.Ask{Path: "/metrics"}).Body), "\nheadgate_requests_running 1\n") {
			return
		}
	}
	g.t.Fatal("requests are still running after 30 s")
}
