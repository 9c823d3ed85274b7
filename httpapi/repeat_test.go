package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/tokens"
)

// Calls of sessions that are made again under one key change nothing again and get
// the same answer; a token in it is signed anew, and is the same.
func TestA17_RepeatedCallsOfSessions(t *testing.T) {
	h := newHouse(t)
	call := func(method, tail, key string, body any) (first, again answer) {
		t.Helper()
		q := ask{method: method, path: h.path(tail), token: h.write, body: body, header: http.Header{"Idempotency-Key": {key}}}
		first, again = h.do(q), h.do(q)
		if first.status >= 300 || first.status != again.status || !bytes.Equal(first.body, again.body) || again.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s %s = %d %s, again %d %s", method, tail, first.status, first.body, again.status, again.body)
		}
		return first, again
	}
	made, _ := call("POST", "/sessions", "1", meta{"holder": "A"})
	id := made.json(t)["id"].(string)
	call("PATCH", "/sessions/"+id, "2", meta{"labels": meta{"a": "b"}})
	call("POST", "/sessions/"+id+"/lease", "3", meta{"action": "takeover", "holder": "B"})
	if got := h.want(200, ask{path: h.path("/sessions/" + id), token: h.read}).json(t); got["epoch"] != 2.0 {
		t.Errorf("epoch after a takeover that was sent twice = %v, want 2", got["epoch"])
	}
	token, _ := call("POST", "/sessions/"+id+"/tokens", "4", meta{})
	h.want(200, ask{path: "/api/whoami", token: token.json(t)["token"].(string)})
	fork, _ := call("POST", "/sessions/"+id+"/fork", "5", meta{"n": 2, "token": meta{}})
	f := fork.json(t)
	for i := range 2 {
		h.want(200, ask{path: "/api/whoami", token: at(f, "children", i, "token", "token").(string)})
	}
	group := f["group_id"].(string)
	call("POST", "/forks/"+group+"/pick", "6", meta{"winner": children(f)[0]})
	call("DELETE", "/forks/"+group, "7", nil)
	h.lease(200, id, meta{"action": "release", "holder": "B"})
	call("DELETE", "/sessions/"+id, "8", nil)
	if list := ids(h.want(200, ask{path: h.path("/sessions"), token: h.read}).json(t)); len(list) != 3 {
		t.Errorf("sessions = %v, want one and two children", list)
	}
	h.refused(422, "idempotency_mismatch", ask{method: "POST", path: h.path("/sessions"), token: h.write, body: meta{}, header: http.Header{"Idempotency-Key": {"1"}}})
}

// A knockVerifier tells when it has let a token in.
type knockVerifier struct {
	Verifier
	once sync.Once
	in   chan struct{}
}

func (k *knockVerifier) Verify(ctx context.Context, token string) (*tokens.Principal, error) {
	p, err := k.Verifier.Verify(ctx, token)
	if err == nil && p.Issued {
		k.once.Do(func() { close(k.in) })
	}
	return p, err
}

// A push that began before its token expired finishes; the next one does not begin.
func TestA12_PushOverExpiry(t *testing.T) {
	knock := &knockVerifier{in: make(chan struct{})}
	h := newHouse(t, func(c *Config) { knock.Verifier, c.Tokens = c.Tokens, knock })
	h.session(meta{"id": "a"})
	tok := h.issue("a", meta{"ttl_s": 60})["token"].(string)
	dir := t.TempDir()
	mustGit(t, dir, "clone", "-q", "-b", "sessions/a", h.remote("team/site+ephemeral.git", h.write), "w")
	dir += "/w"
	tip := commitFile(t, dir, "x", "1")
	cmd := exec.CommandContext(t.Context(), "git", "pack-objects", "--stdout", "--revs", "-q")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(tip+"\n^"+h.main+"\n")
	packed, err := cmd.Output()
	if err != nil {
		t.Fatalf("pack-objects: %v", err)
	}
	line := fmt.Sprintf("%s %s refs/heads/sessions/a\x00report-status", h.main, tip)
	command := fmt.Sprintf("%04x%s0000", len(line)+4, line)
	in, out := io.Pipe()
	go func() {
		_, _ = io.WriteString(out, command)
		<-knock.in
		h.clock.advance(2 * time.Minute)
		_, err := out.Write(packed)
		out.CloseWithError(err)
	}()
	push := ask{method: "POST", path: "/team/site+ephemeral.git/git-receive-pack", token: tok, body: in, header: http.Header{"Content-Type": {"application/x-git-receive-pack-request"}}}
	got := h.want(200, push)
	if !strings.Contains(string(got.body), "ok refs/heads/sessions/a") || h.head("sessions/a", true) != tip {
		t.Errorf("push over its token's end = %q, want it taken", got.body)
	}
	push.body = command + string(packed)
	if got := h.want(401, push); !strings.Contains(string(got.body), "expired") {
		t.Errorf("push after its token's end = %q", got.body)
	}
}
