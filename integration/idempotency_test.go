package integration

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
)

// named gives a request a key.
func named(a harness.Ask, key string) harness.Ask {
	header := map[string]string{"Idempotency-Key": key}
	for name, value := range a.Header {
		header[name] = value
	}
	a.Header = header
	return a
}

// streamed sends a body in pieces whose length nobody knows beforehand.
func streamed(text string) io.Reader {
	in, out := io.Pipe()
	go func() {
		for len(text) > 0 {
			n := min(len(text), 700)
			if _, err := io.WriteString(out, text[:n]); err != nil {
				return
			}
			text = text[n:]
		}
		out.Close()
	}()
	return in
}

// A repeatedCall is a call that is made again.
type repeatedCall struct {
	what  string
	make  func() harness.Ask
	first harness.Answer
}

// Calls with a key are answered again as they were, and done once, also after kill -9.
func TestA17_SameKeyAfterKill(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, _ := g.seeded()
		r.begin(map[string]any{"id": "s", "holder": "one"})
		r.begin(map[string]any{"id": "p"})
		r.begin(map[string]any{"id": "gone"})
		group := r.ask("POST", "/sessions/p/fork", r.write, map[string]any{"n": 1})
		r.want(201, "fork", group)
		child := r.childrenOf(group)[0]
		revoked := r.issue("s", r.write, map[string]any{})
		r.want(201, "issue token", revoked)
		var calls []*repeatedCall
		add := func(what string, ask func() harness.Ask) {
			calls = append(calls, &repeatedCall{what: what, make: func() harness.Ask { return named(ask(), fmt.Sprint("call-", what)) }})
		}
		json := func(method, tail string, body any) {
			add(method+" "+tail, func() harness.Ask { return harness.Ask{Method: method, Path: r.path(tail), Token: r.write, JSON: body} })
		}
		add("commit-pack", func() harness.Ask {
			ask := r.commitAsk(harness.Commit{Branch: "main", Files: []harness.File{{Path: "once", Content: strings.Repeat("once\n", 2000)}}}, r.write)
			text, _ := io.ReadAll(ask.Body)
			ask.Body = streamed(string(text))
			return ask
		})
		json("POST", "/sessions", map[string]any{"id": "made"})
		json("PATCH", "/sessions/s", map[string]any{"labels": map[string]any{"a": "b"}})
		json("POST", "/sessions/s/lease", map[string]any{"action": "takeover", "holder": "two"})
		json("POST", "/sessions/s/tokens", map[string]any{})
		json("POST", "/sessions/p/fork", map[string]any{"n": 8, "token": map[string]any{}})
		json("PUT", "/forks/"+group.Text("group_id")+"/children/"+child+"/validity", map[string]any{"valid": true})
		json("DELETE", "/sessions/s/tokens/"+revoked.Text("jti"), nil)
		json("DELETE", "/sessions/gone", nil)
		for _, c := range calls {
			if c.first = g.do(c.make()); c.first.Status >= 300 || c.first.Header.Get("Idempotency-Replayed") != "" {
				t.Fatalf("%s = %s, want it done", c.what, c.first)
			}
		}
		log := r.get("/events", "limit", "1000").Get("last_seq")
		for _, when := range []string{"again", "after kill -9"} {
			if when != "again" {
				g.restarted()
			}
			for _, c := range calls {
				a := g.do(c.make())
				if a.Status != c.first.Status || !bytes.Equal(a.Body, c.first.Body) || a.Header.Get("Idempotency-Replayed") != "true" {
					t.Errorf("%s %s = %s (replayed %q), want %s", c.what, when, a, a.Header.Get("Idempotency-Replayed"), c.first)
				}
				if token := a.Text("token"); token != "" {
					g.want(200, harness.Ask{Path: "/api/whoami", Token: token})
				}
				for _, child := range a.List("children") {
					g.want(200, harness.Ask{Path: "/api/whoami", Token: child.(map[string]any)["token"].(map[string]any)["token"].(string)})
				}
			}
			if now := r.get("/events", "limit", "1000").Get("last_seq"); now != log {
				t.Errorf("%s: the log went from %v to %v, want nothing done", when, log, now)
			}
		}
		other := named(harness.Ask{Method: "POST", Path: r.path("/sessions"), Token: r.write, JSON: map[string]any{"id": "else"}}, "call-POST /sessions")
		wantCode(t, "the key for another request", g.do(other), 422, "idempotency_mismatch")
		if commits := r.get("/commits", "branch", "main").List("commits"); len(commits) != 2 {
			t.Errorf("main has %d commits, want the first and one more", len(commits))
		}
	})
}

// A call whose answer was lost to kill -9 is made again until it is answered: it is
// done once, whether the kill came before or after.
func TestA17_LostAnswers(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		rng := random(t)
		r, _ := g.seeded()
		r.begin(map[string]any{"id": "s"})
		const rounds = 4
		for n := range rounds {
			call := func() harness.Ask {
				ask := named(r.commitAsk(state("s", fmt.Sprint(n)), r.write), fmt.Sprint("round-", n))
				return ask
			}
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, _ = g.Do(call()) // its answer does not count
			}()
			time.Sleep(time.Duration(rng.IntN(15_000)) * time.Microsecond) // the random point
			g.Kill()
			<-sent
			if err := g.Restart(); err != nil {
				t.Fatal(err)
			}
			first := g.want(201, call())
			again := g.want(201, call())
			if sha := first.Text("commit", "commit_sha"); sha == "" || sha != again.Text("commit", "commit_sha") || r.head("sessions/s", true) != sha {
				t.Errorf("round %d: commit %s, then %s", n, first, again)
			}
		}
		if got := len(r.history("sessions/s")); got != rounds+1 {
			t.Errorf("the session has %d commits, want %d", got, rounds+1)
		}
	})
}
