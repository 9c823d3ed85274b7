package integration

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
	"github.com/headgate/headgate/integration/harness"
)

// twoNodes starts two servers on one Redis, given by its URL, and one data folder.
func twoNodes(t *testing.T, url string, changes ...func(*harness.Options)) *cluster {
	t.Helper()
	connections := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	changes = append(changes[:len(changes):len(changes)], func(o *harness.Options) { o.Ledger, o.Client = url, connections })
	first := start(t, changes...)
	second := start(t, append(changes, func(o *harness.Options) { o.Data, o.Trust = first.Data, first.Trust })...)
	second.org = first.org
	return &cluster{nodes: []*gate{first, second}}
}

// stateLimit bounds every wait for something that must come.
const stateLimit = 60 * time.Second

// until waits for something that must come.
func until(t testing.TB, what string, there func() bool) {
	t.Helper()
	for deadline := time.Now().Add(stateLimit); !there(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", stateLimit, what)
		}
	}
}

// ask sends a request with this token; the body is JSON.
func (r *repo) ask(method, tail, token string, body any) harness.Answer {
	r.g.t.Helper()
	return r.g.do(harness.Ask{Method: method, Path: r.path(tail), Token: token, JSON: body})
}

// leased makes a session with a holder, and a token for it; it gives the token and the
// epoch.
func (r *repo) leased(id, holder string) (token string, epoch int64) {
	r.g.t.Helper()
	a := r.ask("POST", "/sessions", r.write, map[string]any{"id": id, "base_ref": "main", "holder": holder})
	if a.Status != 201 {
		r.g.t.Fatalf("create session %s = %s, want 201", id, a)
	}
	return r.issued(id), number(a, "epoch")
}

func (r *repo) issued(session string) string {
	r.g.t.Helper()
	a := r.ask("POST", "/sessions/"+session+"/tokens", r.write, map[string]any{})
	if a.Status != 201 || a.Text("token") == "" {
		r.g.t.Fatalf("issue token of %s = %s, want 201 with a token", session, a)
	}
	return a.Text("token")
}

// lease asks for an action on a session's lease, for an hour.
func (r *repo) lease(session, action, holder string) harness.Answer {
	r.g.t.Helper()
	return r.ask("POST", "/sessions/"+session+"/lease", r.write, map[string]any{"action": action, "holder": holder, "ttl_s": 3600})
}

func number(a harness.Answer, names ...string) int64 {
	n, _ := a.Get(names...).(float64)
	return int64(n)
}

// state is a commit to a session's branch, at whatever its head is.
func state(session, content string) harness.Commit {
	return harness.Commit{Branch: "sessions/" + session, Ephemeral: true, Files: []harness.File{{Path: "state", Content: content}}}
}

// A failover by Sentinel to a replica that missed acknowledged writes is noticed: the
// writes stop, the repo goes on in a new incarnation, who reads the log is told, and a
// writer of before gets in on no node, neither the one that was in force nor the one
// whose end was lost.
func TestDR21_FailoverThatLosesWrites(t *testing.T) {
	w := redistest.StartWatched(t)
	c := twoNodes(t, w.URL())
	c.failing()
	one, two := c.nodes[0], c.nodes[1]
	r, _ := one.seeded()
	old, epoch := r.leased("s", "old")
	r.want(201, "a commit of the first holder", r.g.do(r.commitAsk(state("s", "kept"), old)))

	w.CutReplica()
	taken := r.lease("s", "takeover", "new")
	if r.want(200, "takeover", taken); number(taken, "epoch") != epoch+1 {
		t.Fatalf("takeover = %s, want epoch %d", taken, epoch+1)
	}
	young := r.issued("s")
	r.want(201, "a commit of the second holder", r.g.do(r.commitAsk(state("s", "lost"), young)))
	told := number(r.on(two).get("/events", "limit", "1000"), "last_seq")
	resynced := make(chan bool, 1)
	go func() { resynced <- r.on(two).awaitResync(told) }()

	// The first holder, whose end is lost, tries on both nodes all the while, the
	// second one once Redis is back.
	var stop atomic.Bool
	var writers sync.WaitGroup
	var refusals [2]atomic.Int64
	try := func(i int, token string) {
		for _, g := range c.nodes {
			writers.Go(func() {
				for n := 0; !stop.Load(); n++ {
					a, err := g.Do(r.commitAsk(state("s", fmt.Sprint(i, n)), token))
					switch {
					case err == nil && a.Status == 403:
						refusals[i].Add(1)
					case err != nil || a.Status != 503 || a.Header.Get("Retry-After") == "":
						t.Errorf("commit of writer %d during the failover = %s, %v; want 403, or 503 with Retry-After", i, a, err)
						return
					}
				}
			})
		}
	}
	try(0, old)
	w.FailOver()
	try(1, young)
	until(t, "a lease after the failover", func() bool { taken = r.lease("s", "takeover", "newest"); return taken.Status == 200 })
	now := r.issued("s")
	for i := range refusals {
		before := refusals[i].Load()
		until(t, fmt.Sprintf("writer %d is told that its epoch is over", i), func() bool { return refusals[i].Load() > before+4 })
	}
	stop.Store(true)
	writers.Wait()

	if got := number(taken, "epoch"); got <= 1<<20 {
		t.Errorf("epoch after the failover = %d, want it far above all that were told", got)
	}
	if !<-resynced {
		t.Errorf("no resync came to who reads events after %d", told)
	}
	for i, g := range c.nodes {
		content := fmt.Sprintf("after the failover %d", i)
		r.want(201, "a commit of the present holder", g.do(r.commitAsk(state("s", content), now)))
		for _, other := range c.nodes {
			r.on(other).wantFile(r.on(other).head("sessions/s", true), "state", content)
		}
		if err := g.WaitReady(stateLimit); err != nil {
			t.Error(err)
		}
	}
}

func (r *repo) want(status int, what string, a harness.Answer) {
	r.g.t.Helper()
	if a.Status != status {
		r.g.t.Fatalf("%s = %s, want %d", what, a, status)
	}
}

// awaitResync reads events after a number until one says resync.
func (r *repo) awaitResync(after int64) bool {
	for deadline := time.Now().Add(stateLimit); time.Now().Before(deadline); {
		a, err := r.g.Do(harness.Ask{Path: r.path("/events") + queryOf([]string{"after", fmt.Sprint(after), "wait_s", "20"}), Token: r.read})
		if err != nil || a.Status != 200 {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		for _, e := range a.List("events") {
			if event, _ := e.(map[string]any); event["type"] == "resync" {
				return true
			}
		}
		after = number(a, "last_seq")
	}
	return false
}
