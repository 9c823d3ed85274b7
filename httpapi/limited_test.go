package httpapi

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/tokens"
)

// limited gives the limits of a test to a gate.
func limited(l FairLimits, change ...func(*Limits)) func(*Config) {
	return func(c *Config) {
		c.Limits.FairLimits = l
		for _, f := range change {
			f(&c.Limits)
		}
	}
}

// An upload is a commit-pack whose body is sent bit by bit.
type upload struct {
	body   *io.PipeWriter
	answer chan answer
}

func (r *repo) upload() *upload {
	r.t.Helper()
	body, w := io.Pipe()
	u := &upload{w, make(chan answer, 1)}
	req, err := http.NewRequestWithContext(r.t.Context(), "POST", r.http.URL+r.path("/commit-pack"), body)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.write)
	go func() {
		resp, err := r.http.Client().Transport.RoundTrip(req)
		if err != nil {
			u.answer <- answer{}
			return
		}
		defer resp.Body.Close()
		got, _ := io.ReadAll(resp.Body)
		u.answer <- answer{resp.StatusCode, resp.Header, got}
	}()
	return u
}

// waitUsed waits until n of a supply are used.
func (g *gate) waitUsed(s supply, n int64) {
	g.t.Helper()
	g.waitUse(s, n, n)
}

// waitUse waits until least to most of a supply are used.
func (g *gate) waitUse(s supply, least, most int64) {
	g.t.Helper()
	f := g.server.fair
	for end := time.Now().Add(20 * time.Second); ; <-time.After(time.Millisecond) {
		f.mu.Lock()
		used := f.server.meters[s].used
		f.mu.Unlock()
		if least <= used && used <= most {
			return
		}
		if time.Now().After(end) {
			g.t.Fatalf("%s: %d used, want %d to %d", supplyNames[s], used, least, most)
		}
	}
}

// OQ-E5: over a limit every road says 429 with Retry-After and the limit's name, in
// its own form and before the body is read; others go on; a place that comes free
// is used.
func TestOQE5_OverALimit(t *testing.T) {
	g := newGate(t, limited(FairLimits{TokenRequests: 1, LimitWait: 30 * time.Millisecond}))
	r := g.newRepo("r")
	r.commit(nil, file{path: "a", data: "1"})
	u := r.upload()
	g.waitUsed(places, 1)

	a := r.want(429, ask{path: "/api/whoami", token: r.write})
	v := a.json(t)
	if v["code"] != "too_many_requests" || v["retryable"] != true || !strings.Contains(v["error"].(string), "(token_requests)") || a.header.Get("Retry-After") != "1" {
		t.Errorf("429 = %s, Retry-After %q; want too_many_requests, retryable, and the limit's name", a.body, a.header.Get("Retry-After"))
	}
	a = r.want(429, ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: pack(t, nil, file{path: "a", data: "2"})})
	if at(a.json(t), "result", "status") != "unavailable" {
		t.Errorf("a refused commit = %s, want an envelope with the status unavailable", a.body)
	}
	if out, ok := gitIn(t, work(t), "push", g.remote("r.git", r.write), "HEAD:x"); ok || !strings.Contains(out, "remote: too many requests: a token may have 1 requests running at once (token_requests)") || !strings.Contains(out, "429") {
		t.Errorf("git push over the limit: %v\n%s\nwant the limit's name for the user", ok, out)
	}
	r.wantNoContinue()
	r.want(200, ask{path: "/api/whoami", token: r.read})
	if m := string(g.want(200, ask{path: "/metrics"}).body); !strings.Contains(m, `headgate_limited_total{reason="token_requests"} 4`) || !strings.Contains(m, `headgate_queue_wait_seconds_count{for="request"} 4`) {
		t.Errorf("metrics do not count four refusals and four waits:\n%s", grep(m, "limited", "queue_wait"))
	}
	_, _ = u.body.Write(pack(t, nil, file{path: "a", data: "3"}))
	_ = u.body.Close()
	if a := <-u.answer; a.status != 201 {
		t.Errorf("the upload that was there first = %d %.300s, want 201", a.status, a.body)
	}
	g.waitUsed(places, 0)
	r.want(200, ask{path: "/api/whoami", token: r.write})
}

// wantNoContinue: a client that waits for 100 is refused without being asked.
func (r *repo) wantNoContinue() {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.http.Listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\nContent-Length: 100000000\r\n\r\n", r.path("/commit-pack"), r.write)
	all, err := io.ReadAll(conn) // ends as the server closes
	if err != nil || !bytes.HasPrefix(all, []byte("HTTP/1.1 429 ")) || bytes.Contains(all, []byte("100 Continue")) {
		r.t.Errorf("a client that waits for 100 got %.200q, %v; want 429 alone", all, err)
	}
}

func grep(text string, words ...string) string {
	var lines []string
	for line := range strings.Lines(text) {
		for _, w := range words {
			if strings.Contains(line, w) && !strings.HasPrefix(line, "#") {
				lines = append(lines, line)
			}
		}
	}
	return strings.Join(lines, "")
}

func TestOQE5_RateOfAToken(t *testing.T) {
	g := newGate(t, limited(FairLimits{TokenRate: 1, TokenBurst: 3}))
	tok := token(t, "r", tokens.GitRead)
	for range 3 {
		g.want(200, ask{path: "/api/whoami", token: tok})
	}
	a := g.want(429, ask{path: "/api/whoami", token: tok})
	if a.header.Get("Retry-After") != "1" || !strings.Contains(string(a.body), "a token may make 1 requests a second (token_rate)") {
		t.Errorf("429 = %s, Retry-After %q", a.body, a.header.Get("Retry-After"))
	}
	g.want(200, ask{path: "/healthz"}) // no token, no limit
}

// Case 12.1: a client that stands still holds its place no longer than the idle
// timeout, and never a turn.
func TestCase12_1_SlowClientsHoldNoTurn(t *testing.T) {
	g := newGate(t, limited(FairLimits{TokenRequests: 4, Turns: 1, LimitWait: 20 * time.Second},
		func(l *Limits) { l.IdleTimeout = 1500 * time.Millisecond }))
	r := g.newRepo("r")
	var slow []*upload
	for range 3 {
		slow = append(slow, r.upload())
	}
	g.waitUsed(places, 3)
	r.commit(nil, file{path: "a", data: "1"}) // with the only turn
	slow = append(slow, r.upload())
	g.waitUsed(places, 4)
	r.commit(nil, file{path: "a", data: "2"}) // in the place of one that was cut
	for _, u := range slow {
		if a := <-u.answer; a.status != 408 {
			t.Errorf("an upload that stands still = %d %.200s, want 408", a.status, a.body)
		}
		_ = u.body.Close()
	}
	g.waitUsed(places, 0)
	g.waitUsed(turns, 0)
}

// Case 12.2: bodies over 1 MiB count from their header, or as they come. One is
// always taken, the next waits and is refused, also in mid-stream.
func TestCase12_2_BytesInFlight(t *testing.T) {
	g := newGate(t, limited(FairLimits{Upload: 10 << 20, LimitWait: 50 * time.Millisecond}))
	r := g.newRepo("r")
	big := make([]byte, 3<<20)
	_, _ = rand.Read(big)
	line := pack(t, nil, file{path: "big", data: string(big)})
	u := r.upload()
	go func() { _, _ = u.body.Write(line) }()
	g.waitUsed(bodyBytes, uploadStep)

	for name, body := range map[string]any{"of known size": line, "in chunks": io.MultiReader(bytes.NewReader(line))} {
		a := r.want(429, ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: body})
		if !strings.Contains(string(a.body), "(upload_bytes)") || at(a.json(t), "result", "status") != "unavailable" {
			t.Errorf("a large commit %s = %s, want an envelope that names upload_bytes", name, a.body)
		}
	}
	dir := work(t)
	commitFile(t, dir, "big", string(big))
	if out, ok := gitIn(t, dir, "push", g.remote("r.git", r.write), "HEAD:pushed"); ok || !strings.Contains(out, "429") {
		t.Errorf("a large push succeeds: %v, or does not tell of 429:\n%s", ok, out)
	}
	r.commit(nil, file{path: "a", data: "small ones go on"})
	_ = u.body.Close()
	if a := <-u.answer; a.status != 409 && a.status != 201 {
		t.Errorf("the first large commit = %d %.300s", a.status, a.body)
	}
	g.waitUsed(bodyBytes, 0)
	mustGit(t, dir, "push", "-q", g.remote("r.git", r.write), "HEAD:pushed")
	g.waitUsed(bodyBytes, 0)
	g.waitUsed(gitPlaces, 0)
}

// G-05 over HTTP, small: while one token has a hundred clients that commit without
// a pause, another org's commits all come through, none is refused, and all that was
// taken is given back. How fast is measured by a program.
func TestG05_CommitsBesideAGreedyToken(t *testing.T) {
	const clients, commits = 100, 20
	g := newGate(t, func(c *Config) { c.Tokens = verifierOf(t, "acme", "globex") })
	greedy := g.newRepo("r")
	greedy.commit(nil, file{path: "a", data: "1"})
	modest := &repo{
		gate: g, name: "s", admin: tokenOf(t, tokens.Claims{Org: "globex", Repo: "s", Scopes: []tokens.Scope{tokens.RepoWrite}}),
		write: tokenOf(t, tokens.Claims{Org: "globex", Repo: "s", Scopes: []tokens.Scope{tokens.GitWrite}}),
	}
	g.want(201, ask{method: "POST", path: "/api/v1/repos", token: modest.admin, body: `{}`})

	var stop atomic.Bool
	var crowd sync.WaitGroup
	client := manyClients()
	for i := range clients {
		crowd.Go(func() {
			for n := 0; !stop.Load(); n++ {
				body := pack(t, meta{"target_branch": fmt.Sprint("b", i), "base_branch": "main"}, file{path: "a", data: fmt.Sprint(i, n)})
				req, _ := http.NewRequest("POST", g.http.URL+greedy.path("/commit-pack"), bytes.NewReader(body))
				req.Header.Set("Authorization", "Bearer "+greedy.write)
				resp, err := client.Do(req)
				if err != nil {
					t.Errorf("greedy commit: %v", err)
					return
				}
				if _, _ = io.Copy(io.Discard, resp.Body); resp.StatusCode == 429 {
					t.Errorf("greedy commit = 429, want it to wait its turn")
				}
				resp.Body.Close()
			}
		})
	}
	g.waitUse(places, clients/2, clients)
	for n := range commits {
		modest.commit(nil, file{path: "a", data: fmt.Sprint(n)})
	}
	stop.Store(true)
	crowd.Wait()
	for s := range supplies {
		g.waitUsed(s, 0)
	}
}

func TestShowLimits(t *testing.T) {
	g := newGate(t, limited(FairLimits{TokenRequests: 7, LimitWait: 1500 * time.Millisecond}),
		func(c *Config) { c.InForce = map[string]any{"pack_bytes": int64(9), "git_wait": 2 * time.Second} })
	g.want(401, ask{path: "/api/limits"})
	v := g.want(200, ask{path: "/api/limits", token: token(t, "r", tokens.GitRead)}).json(t)
	for name, want := range map[string]float64{
		"token_requests": 7, "org_requests": 512, "limit_wait_s": 1.5, "idle_timeout_s": 30, "body_bytes": 1 << 20,
		"chunk_bytes": 4 << 20, "pack_bytes": 9, "git_wait_s": 2,
	} {
		if got := at(v, "limits", name); got != want {
			t.Errorf("limit %s = %v, want %v", name, got, want)
		}
	}
}
