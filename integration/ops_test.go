package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/tokens"
)

// The one command of the README: it walks through a session with real git and goes
// on serving until it is told to stop.
func TestQuickstartWalksAndServes(t *testing.T) {
	program, err := programs.Race()
	if err != nil {
		t.Fatal(err)
	}
	git := &harness.Git{Home: t.TempDir()}
	folder := t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"commit", "-q", "--allow-empty", "-m", "first"}} {
		if out := git.Run(folder, nil, args...); out.Err != nil {
			t.Fatal(out.All())
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "quickstart", "--listen", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data"))
	cmd.Dir, cmd.Env = folder, append(git.Command(ctx, folder).Env, "GORACE=atexit_sleep_ms=0")
	var errs harness.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, url := "", ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said += lines.Text() + "\n"
		if _, rest, ok := strings.Cut(lines.Text(), "serving on "); ok && url == "" {
			url, _, _ = strings.Cut(rest, ";")
		}
		if strings.Contains(strings.ToLower(lines.Text()), "ctrl-c") {
			break
		}
	}
	wantHas(t, "quickstart", said, "git clone", "git push", "curl", "denied by policy", "precondition_failed", "stale epoch 1, session is at 2", "session.created", "diff")
	resp, err := http.Get(strings.TrimSpace(url) + "/readyz")
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("GET %s/readyz after the walk: %v %v", url, resp, err)
	} else {
		resp.Body.Close()
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	rest, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil {
		t.Errorf("quickstart ended with %v\n%s%s\n%s", err, said, rest, errs.String())
	}
	if strings.Contains(errs.String(), "DATA RACE") {
		t.Errorf("quickstart: %s", errs.String())
	}
}

// A key that goes from the file goes at once, with the tokens it signed; a bad file
// changes nothing; a new key needs no restart.
func TestKeysAreRotatedWithoutARestart(t *testing.T) {
	program, err := programs.Race()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var orgs [2]*harness.Org // one org's first and second key
	for i := range orgs {
		if orgs[i], err = harness.NewOrg(program, filepath.Join(dir, fmt.Sprint(i)), "acme"); err != nil {
			t.Fatal(err)
		}
	}
	first, second := orgs[0], orgs[1]
	config := func(files ...string) string {
		var keys []string
		for i, file := range files {
			keys = append(keys, fmt.Sprintf("{id = \"k%d\", file = %q}", i, file))
		}
		return "[orgs.acme]\nkeys = [" + strings.Join(keys, ", ") + "]\n"
	}
	b := start(t, withConfig(config(first.PublicFile)), func(o *harness.Options) { o.Trust = nil })
	b.org = first
	r := b.repoNamed("rotated")
	newToken, err := second.Sign(tokens.Claims{Repo: r.name, Scopes: []tokens.Scope{tokens.GitRead}})
	if err != nil {
		t.Fatal(err)
	}
	reload := func(text string) {
		if err := os.WriteFile(filepath.Clean(b.Data)+".toml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b.Hangup()
	}
	until := func(what, token string, status int) {
		t.Helper()
		var a harness.Answer
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if a = b.do(harness.Ask{Path: r.path("/branches"), Token: token}); a.Status == status {
				return
			}
		}
		t.Fatalf("%s: branches = %s, want %d", what, a, status)
	}
	until("first key", r.read, 200)
	until("a key that is not there", newToken, 401)
	reload(config(first.PublicFile, second.PublicFile))
	until("second key added", newToken, 200)
	until("first key beside it", r.read, 200)
	reload("[orgs.acme\nkeys = nonsense")
	b.waitLog("configuration not changed")
	until("after a bad file", r.read, 200)
	reload(config(second.PublicFile))
	until("first key gone", r.read, 401)
	until("second key stays", newToken, 200)
	b.failures = true // the bad file is told as an error
	b.repos = nil     // whose tokens are dead now
}

func (g *gate) waitLog(text string) {
	g.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if strings.Contains(g.Logs(), text) {
			return
		}
	}
	g.t.Fatalf("the log does not say %q:\n%s", text, g.tail())
}

// What runs is finished before the server ends; what comes then is turned away.
func TestStopFinishesWhatRuns(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, head := g.seeded()
		text := harness.Commit{Branch: "main", Expected: head, Files: []harness.File{{Path: "late", Content: "late"}}}.Lines()
		read, w := io.Pipe()
		ask := r.packAsk("", r.write)
		ask.Body = read
		type result struct {
			a   harness.Answer
			err error
		}
		done := make(chan result, 1)
		go func() {
			a, err := g.Do(ask)
			done <- result{a, err}
		}()
		_, _ = io.WriteString(w, text[:len(text)/2])
		for deadline := time.Now().Add(20 * time.Second); !strings.Contains(string(g.do(harness.Ask{Path: "/metrics"}).Body), "\nheadgate_requests_running 2\n"); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the commit does not run")
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- g.Stop(stopLimit) }()
		g.waitLog("shutting down")
		_, _ = io.WriteString(w, text[len(text)/2:])
		w.Close()
		if got := <-done; got.err != nil || got.a.Status != 201 {
			t.Errorf("a commit that ran when the server was stopped = %s, %v; want 201", got.a, got.err)
		}
		if err := <-ended; err != nil {
			t.Errorf("stop = %v, want it in order", err)
		}
		if _, err := net.Dial("tcp", g.Addr()); err == nil {
			t.Error("the port still takes connections")
		}
		if err := g.Restart(); err != nil {
			t.Fatal(err)
		}
		r.wantFile("main", "late", "late")
	})
}

// Two servers never share one data folder on the embedded ledger.
func TestDataFolderIsTakenOnce(t *testing.T) {
	g := start(t)
	second, err := harness.Start(harness.Options{Program: g.Program, Data: g.Data, Trust: g.Trust})
	if err == nil {
		_ = second.Stop(stopLimit)
		t.Error("a second server started on the same data")
	}
	later := filepath.Join(t.TempDir(), "later")
	if err := os.MkdirAll(later, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(later, "FORMAT"), []byte("999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := harness.Start(harness.Options{Program: g.Program, Data: later, Trust: g.Trust}); err == nil {
		_ = s.Stop(stopLimit)
		t.Error("data of a later format was opened")
	}
}

func TestOperationsEndpoints(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, _ := g.seeded()
		r.clone(r.remote(r.read))
		for path, parts := range map[string][]string{
			"/healthz": nil, "/readyz": nil,
			"/openapi.json": {`"/api/repos/{repo}/commit-pack"`, `"/api/v1/repos/commit-pack"`},
			"/metrics":      {`headgate_requests_total{route="commit.pack",status="201"} 1`, "headgate_request_seconds_bucket", "headgate_git_processes", "go_goroutines"},
		} {
			a := g.want(200, harness.Ask{Path: path})
			wantHas(t, path, string(a.Body), parts...)
			if a.Header.Get("X-Request-Id") == "" {
				t.Errorf("%s has no request id", path)
			}
		}
	})
}

func TestHTTP2OverTLS(t *testing.T) {
	g := start(t, overTLS(t))
	r, head := g.seeded()
	req, err := g.Request(harness.Ask{Path: r.path("/file?path=README.md&ref=" + head), Token: r.read})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := g.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.ProtoMajor != 2 || string(body) != "hello\n" {
		t.Errorf("file over TLS = %s %s %q, %v; want HTTP/2 and the file", resp.Proto, resp.Status, body, err)
	}
	g.git.Env = append(g.git.Env, "GIT_SSL_CAINFO="+g.Cert.CAFile)
	clone := r.clone(r.remote(r.write))
	next := r.work(clone, "big", string(noise(t, 5<<20)))
	g.run(clone, "push", "-q")
	if got := r.head("main", false); got != next {
		t.Errorf("main = %s after a push over TLS, want %s", got, next)
	}
}

// A push that began in time is finished after its token's end.
func TestA12_PushBegunBeforeExpiryCompletes(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	end := time.Now().Add(3 * time.Second)
	claims := r.good()
	claims["exp"] = end.Unix() - 60 // the leeway
	token := forge(t, map[string]any{"alg": "ES256"}, claims, g.es256)
	text := commitText(emptyTree, head)
	body := pushBody("report-status", packObjects([]packed{{1, text, ""}, {2, nil, ""}}), pushCommand{head, objectID("commit", text), "refs/heads/main"})
	read, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, body[:len(body)-10])
		time.Sleep(time.Until(end.Add(2 * time.Second))) // until the token is dead
		_, _ = io.WriteString(w, body[len(body)-10:])
		w.Close()
	}()
	a := g.do(harness.Ask{Method: "POST", Path: r.gitPath(false, "git-receive-pack"), Basic: token, Body: read, Header: map[string]string{"Content-Type": "application/x-git-receive-pack-request"}})
	if !strings.Contains(string(a.Body), "ok refs/heads/main") {
		t.Errorf("push over the end of its token = %s, want it taken", a)
	}
	if a := g.do(harness.Ask{Path: r.path("/branches"), Token: token}); a.Status != 401 {
		t.Errorf("the token after its end = %s, want 401", a)
	}
}
