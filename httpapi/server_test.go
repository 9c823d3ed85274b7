package httpapi

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/tokens"
)

// A panicVerifier stands for any bug behind the door.
type panicVerifier struct{}

func (panicVerifier) Verify(context.Context, string) (*tokens.Principal, error) { panic("a bug") }

func TestPanicIsAnAnswer(t *testing.T) {
	g := newGate(t, func(c *Config) { c.Tokens = panicVerifier{} })
	for range 2 { // the server goes on
		a := g.want(500, ask{path: "/api/whoami", token: "x"})
		if v := a.json(t); v["error"] != internalText || v["code"] != "internal" || v["retryable"] != false {
			t.Errorf("a panic is told as %s", a.body)
		}
	}
	if log := g.logs.String(); !strings.Contains(log, "a bug") || !strings.Contains(log, "status=500") {
		t.Errorf("log of a panic:\n%s", log)
	}
}

// An error after the first byte only cuts the stream: a client must not take what
// came for the whole.
func TestErrorAfterTheFirstByteCuts(t *testing.T) {
	s := New(Config{Logger: slog.New(slog.DiscardHandler)})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, r := s.newExchange(w, r)
		defer s.end(x, r)
		s.Metrics.begin()
		_, _ = io.WriteString(x, "half")
		x.Flush()
		s.fail(x, r, fmt.Errorf("read object: %w", gitstore.ErrObjectNotFound))
	}))
	defer srv.Close()
	resp, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if string(body) != "half" || err == nil {
		t.Errorf("cut answer = %q, %v; want half and an error", body, err)
	}
}

// The one log line of a request, and its levels.
func TestRequestLog(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("team-red/site")
	r.want(200, ask{path: r.path("") + "?secret=1", token: r.read})
	a := r.want(404, ask{path: r.path("/branch", "name", "x"), token: r.read})
	log := g.logs.String()
	for _, line := range []string{
		"level=DEBUG msg=request request_id=", "method=GET route=repo.get status=200", "org=acme sub=builder", "repo=team-red/site",
		"level=INFO msg=request request_id=" + a.header.Get("X-Request-Id") + " method=GET route=branch.get status=404",
		"token=" + tokens.ShortHash(r.read), `error="`,
	} {
		if !strings.Contains(log, line) {
			t.Errorf("log has no %q:\n%s", line, log)
		}
	}
	if strings.Contains(log, "secret") {
		t.Errorf("log holds a query:\n%s", log)
	}
}

// Case 1.9 of the limits: 64 KiB of headers pass, a megabyte does not.
func TestHeaderLimit(t *testing.T) {
	g := newGate(t)
	for n, want := range map[int]int{64 << 10: 401, 1 << 20: 431} {
		a := g.do(ask{path: "/api/whoami", header: http.Header{"X-Long": {strings.Repeat("x", n)}}})
		if a.status != want {
			t.Errorf("%d bytes of headers = %d, want %d", n, a.status, want)
		}
	}
}

// The same over HTTP/2, where bodies and deadlines are of streams.
func TestHTTP2(t *testing.T) {
	g := newGate(t)
	srv := httptest.NewUnstartedServer(g.server)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	g.http = srv
	r := g.newRepo("r")
	c := r.commit(nil, file{path: "a", data: strings.Repeat("x", 200_000)})
	if got := r.content(c, "a"); len(got) != 200_000 {
		t.Errorf("file over HTTP/2 = %d bytes", len(got))
	}
	limit := strings.Repeat("x", 4<<20)
	a := r.want(400, ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: pack(t, meta{"author": nil}, file{path: "a", data: limit}, file{path: "b", data: limit})})
	if at(a.json(t), "result", "status") != "invalid" {
		t.Errorf("early refusal over HTTP/2 = %s", a.body)
	}
	out, ok := gitIn(t, t.TempDir(), "-c", "http.sslVerify=false", "ls-remote", strings.Replace(srv.URL, "https://", "https://t:"+r.read+"@", 1)+"/r.git")
	if !ok || !strings.Contains(out, c) {
		t.Errorf("ls-remote over TLS: %v %s", ok, out)
	}
}
