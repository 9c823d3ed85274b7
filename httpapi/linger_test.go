package httpapi

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// talk sends text on a connection of its own and reads to the connection's end.
func (g *gate) talk(text string) (string, error) {
	conn, err := net.Dial("tcp", g.http.Listener.Addr().String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	all, err := io.ReadAll(conn)
	return string(all), err
}

// Case 12.1: whoever announces a body and does not send it holds his connection for
// a limited time, also where nobody reads it.
func TestCase12_1_BodiesThatNeverCome(t *testing.T) {
	g := newGate(t, func(c *Config) {
		c.Limits.IdleTimeout, c.Limits.HeaderTimeout = 200*time.Millisecond, 200*time.Millisecond
	})
	r := g.newRepo("r")
	var all sync.WaitGroup
	for _, tc := range []struct{ what, request, auth, status, waiting string }{
		{"no handler reads it", "GET /healthz", "", "200", "200"},
		{"of somebody unknown", "POST " + r.path("/commit-pack"), "Bearer bad", "401", "401"},
		{"without a route", "POST /nowhere", "Bearer " + r.write, "404", "404"},
		{"of a git client", "POST /r.git/git-receive-pack", "Bearer " + r.read, "408", "403"},
	} {
		for expect, status := range map[string]string{"": tc.status, "Expect: 100-continue\r\n": tc.waiting} {
			all.Go(func() {
				head := fmt.Sprintf("%s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Length: 1000\r\n%s\r\n", tc.request, tc.auth, expect)
				got, err := g.talk(head)
				if err != nil || !strings.HasPrefix(got, "HTTP/1.1 "+status) {
					t.Errorf("%s, %q: answer %.80q, %v; want %s and the end of the connection", tc.what, expect, got, err, status)
				}
				if expect != "" && !strings.Contains(got, "Connection: close\r\n") {
					t.Errorf("%s: answer %.300q to one who waits does not say that the connection closes", tc.what, got)
				}
			})
		}
	}
	all.Go(func() {
		got, err := g.talk(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n{", r.path("/commit-pack"), r.write))
		if err != nil || !strings.HasPrefix(got, "HTTP/1.1 408 ") || !strings.Contains(got, "Connection: close\r\n") {
			t.Errorf("a commit that stops in its first line: answer %.300q, %v; want 408 and the end of the connection", got, err)
		}
	})
	all.Wait()
}

// Case 1.10: somebody unknown who sends some megabytes before he looks still finds
// his answer; it says that the connection closes.
func TestCase1_10_LargeBodyOfSomebodyUnknown(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	for _, path := range []string{r.path("/commit-pack"), "/r.git/git-receive-pack", "/nowhere"} {
		got, err := g.talk(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, 3<<20, strings.Repeat("x", 3<<20)))
		if err != nil || !strings.HasPrefix(got, "HTTP/1.1 40") || !strings.Contains(got, "Connection: close\r\n") {
			t.Errorf("POST %s of 3 MB without a token = %.300q, %v; want a refusal and the end of the connection", path, got, err)
		}
	}
}

// What follows a body that is broken is never taken for a request.
func TestF01_BrokenBodyEndsItsConnection(t *testing.T) {
	g := newGate(t, func(c *Config) {
		c.Limits.IdleTimeout, c.Limits.HeaderTimeout = 200*time.Millisecond, 200*time.Millisecond
	})
	r := g.newRepo("r")
	head := r.commit(nil, file{path: "a", data: "1"})
	next := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	command := func(ref string) string {
		line := strings.Repeat("0", 40) + " " + head + " " + ref + "\x00report-status"
		return fmt.Sprintf("%04x%s0000", len(line)+4, line)
	}
	var all sync.WaitGroup
	for _, path := range []string{r.path("/commit-pack"), "/r.git/git-receive-pack", "/r.git/git-upload-pack", "/nowhere"} {
		for what, framing := range map[string]string{
			"malformed chunk":   "Transfer-Encoding: chunked\r\n\r\n5\r\nabcdeXX",
			"malformed size":    "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
			"cut chunk":         fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n5\r\nab\r\n", len(command("refs/heads/x")), command("refs/heads/x")),
			"a body that stops": "Content-Length: 500\r\n\r\n" + command("refs/heads/x"),
		} {
			service := path[strings.LastIndex(path, "/")+1:]
			all.Go(func() {
				got, err := g.talk(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/x-%s-request\r\n%s%s", path, r.write, service, framing, next))
				if n := strings.Count(got, "HTTP/1.1 "); n > 1 {
					t.Errorf("POST %s, %s: %d answers %.800q, %v; want one", path, what, n, got, err)
				}
			})
		}
	}
	all.Wait()
	r.want(404, ask{path: r.path("/branch", "name", "x"), token: r.read})
}
