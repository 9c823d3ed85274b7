package integration

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/tokens"
)

// Case 15.6: a stream shows its token what the token may see and ends with the token,
// on whichever node it is: at its exp, at its session's end, when it is revoked, when it
// is denied.
func TestCase15_6_StreamsOfSessions(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	for _, id := range []string{"a", "b", "c"} {
		r.want(201, "session "+id, r.ask("POST", "/sessions", r.write, map[string]any{"id": id, "base_ref": "main"}))
	}
	token := r.issued("a")
	short := r.issuedFor("a", r.write, map[string]any{"ttl_s": 3})
	revoked := r.issue("a", r.write, map[string]any{})
	ending := r.issued("c")
	denied := g.sign(tokens.Claims{Repo: r.name, Subject: "leaky", ID: "leaked-1", Scopes: []tokens.Scope{tokens.GitRead}})
	streams := map[string]*listening{}
	for name, raw := range map[string]string{"long": token, "short": short, "revoked": revoked.Text("token"), "ending": ending, "denied": denied} {
		streams[name] = r.listen(raw)
	}
	b := g.want(201, r.commitAsk(state("b", "a secret of b"), r.write)).Text("commit", "commit_sha")
	main := r.commit(harness.Commit{Branch: "main", Files: []harness.File{{Path: "m", Content: "m"}}})
	own := g.want(201, r.commitAsk(state("a", "mine"), r.write)).Text("commit", "commit_sha")
	for _, name := range []string{"long", "short", "revoked"} {
		streams[name].await(own)
	}
	streams["denied"].await(b) // it may read all
	g.want(204, harness.Ask{Method: "DELETE", Path: r.path("/sessions/a/tokens/" + revoked.Text("jti")), Token: r.write})
	g.want(200, harness.Ask{Method: "DELETE", Path: r.path("/sessions/c"), Token: r.write})
	g.deny("add", "--jti", "leaked-1")
	last := g.want(201, r.commitAsk(state("a", "after it was revoked"), r.write)).Text("commit", "commit_sha")
	for _, name := range []string{"revoked", "ending", "denied", "short"} {
		text := streams[name].ended()
		if !strings.Contains(text, "the token is not accepted any more") {
			t.Errorf("the stream of %s ended with %.300q", name, text[max(0, len(text)-300):])
		}
		if name != "short" && strings.Contains(text, last) {
			t.Errorf("the stream of %s shows what came after its end", name)
		}
	}
	streams["long"].await(last)
	for name, s := range streams {
		if text := s.text(); name != "denied" && (strings.Contains(text, b) || strings.Contains(text, main) || strings.Contains(text, "sessions/b")) {
			t.Errorf("the stream of %s shows others: %s", name, text)
		}
	}
	if exp := claimsOf(t, short)["exp"].(float64); time.Now().Before(time.Unix(int64(exp), 0)) {
		t.Error("the stream of the short token ended before its time")
	}
	if a := g.do(harness.Ask{Path: r.path("/events?session=b"), Token: token}); strings.Contains(string(a.Body), b) {
		t.Errorf("events of b for a's token = %s", a)
	}
	r.wantNothingOf(token, "b", b)
}

// A listening is a stream that is open, with what came.
type listening struct {
	t    testing.TB
	read harness.Buffer
	over chan struct{}
}

// listen opens an event stream from the log's beginning.
func (r *repo) listen(token string) *listening {
	r.g.t.Helper()
	req, err := r.g.Request(harness.Ask{Path: r.path("/events"), Token: token, Header: map[string]string{"Accept": "text/event-stream"}})
	if err != nil {
		r.g.t.Fatal(err)
	}
	resp, err := r.g.Client.Do(req.WithContext(r.g.t.Context()))
	if err != nil || resp.StatusCode != http.StatusOK {
		r.g.t.Fatalf("open stream = %v, %v, want 200", resp, err)
	}
	s := &listening{t: r.g.t, over: make(chan struct{})}
	go func() {
		defer close(s.over)
		defer resp.Body.Close()
		_, _ = io.Copy(&s.read, bufio.NewReader(resp.Body)) // how it ends is seen in what it said
	}()
	r.g.t.Cleanup(func() { resp.Body.Close() })
	return s
}

func (s *listening) text() string { return s.read.String() }

func (s *listening) await(what string) {
	s.t.Helper()
	until(s.t, "an event with "+what, func() bool { return strings.Contains(s.text(), what) })
}

// ended waits for the stream's end and gives all it said.
func (s *listening) ended() string {
	s.t.Helper()
	select {
	case <-s.over:
	case <-time.After(stateLimit):
		s.t.Errorf("a stream does not end, it said %s", s.text())
	}
	return s.text()
}
