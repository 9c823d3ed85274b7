package integration

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
	"github.com/headgate/headgate/integration/harness"
)

// Random steps of holders and sandboxes over two nodes, one after another, against a
// simple model: what one node answered, the other one knows at once. No writer of an
// older epoch lands, a revoked token is dead everywhere.
func TestA01_LeasesOnTwoNodesFollowTheModel(t *testing.T) {
	c := twoNodes(t, redistest.Start(t).URL())
	r, main := c.nodes[0].seeded()
	clone := r.clone(r.remote(r.read))
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := &leaseModel{rt: rt, c: c, r: r, id: fmt.Sprint("m", run), clone: clone, head: main}
		m.begin()
		for range rapid.IntRange(1, setting(t, "HEADGATE_MODEL_STEPS", 20)).Draw(rt, "steps") {
			m.step()
		}
		m.agree()
	})
}

// leaseModel is one session as it has to be.
type leaseModel struct {
	rt    *rapid.T
	c     *cluster
	r     *repo
	id    string
	clone string

	epoch  int64
	holder string // empty: the lease is free
	leased bool   // it was held at some time
	head   string
	tokens []*sandboxToken
	n      int
}

type sandboxToken struct {
	text, jti, family string
	epoch             int64
	revoked           bool
}

// on is the repo at a node drawn at random.
func (m *leaseModel) on() *repo {
	return m.r.on(m.c.nodes[rapid.IntRange(0, len(m.c.nodes)-1).Draw(m.rt, "node")])
}

func (m *leaseModel) do(r *repo, method, tail, token string, body any) harness.Answer {
	m.rt.Helper()
	a, err := r.g.Do(harness.Ask{Method: method, Path: r.path(tail), Token: token, JSON: body})
	if err != nil {
		m.rt.Fatalf("%s %s: %v", method, tail, err)
	}
	return a
}

func (m *leaseModel) want(status int, what string, a harness.Answer) {
	m.rt.Helper()
	if a.Status != status {
		m.rt.Fatalf("%s = %s, want %d with epoch %d, holder %q", what, a, status, m.epoch, m.holder)
	}
}

func (m *leaseModel) begin() {
	body := map[string]any{"id": m.id, "base_ref": "main"}
	if rapid.Bool().Draw(m.rt, "held") {
		m.holder, m.leased = "h0", true
		body["holder"] = m.holder
	}
	a := m.do(m.on(), "POST", "/sessions", m.r.write, body)
	m.want(201, "create session", a)
	m.epoch = number(a, "epoch")
	m.issue()
}

func (m *leaseModel) step() {
	steps := map[string]func(){
		"acquire": func() { m.lease("acquire") }, "renew": func() { m.lease("renew") },
		"release": func() { m.lease("release") }, "takeover": func() { m.lease("takeover") },
		"issue": m.issue, "commit": m.commit, "commit again": m.commit, "push": m.push,
		"revoke": m.revoke, "renew token": m.renewToken,
	}
	names := []string{"acquire", "commit", "commit again", "issue", "push", "release", "renew", "renew token", "revoke", "takeover"}
	steps[rapid.SampledFrom(names).Draw(m.rt, "step")]()
}

func (m *leaseModel) lease(action string) {
	who := rapid.SampledFrom([]string{"h0", "h1", "h2"}).Draw(m.rt, "holder")
	a := m.do(m.on(), "POST", "/sessions/"+m.id+"/lease", m.r.write, map[string]any{"action": action, "holder": who, "ttl_s": 3600})
	granted := action == "takeover" || action == "acquire" && (m.holder == "" || m.holder == who) || m.holder == who
	if !granted {
		m.want(409, action+" by "+who, a)
		return
	}
	m.want(200, action+" by "+who, a)
	switch action {
	case "acquire", "takeover":
		m.epoch++
		m.holder, m.leased = who, true
	case "release":
		m.holder = ""
	}
	if got := number(a, "epoch"); got != m.epoch {
		m.rt.Fatalf("%s by %s = %s, want epoch %d", action, who, a, m.epoch)
	}
}

func (m *leaseModel) issue() {
	a := m.do(m.on(), "POST", "/sessions/"+m.id+"/tokens", m.r.write, map[string]any{})
	m.want(201, "issue token", a)
	if got := number(a, "epoch"); got != m.epoch {
		m.rt.Fatalf("issue token = epoch %d, want %d", got, m.epoch)
	}
	m.keep(a)
}

func (m *leaseModel) keep(a harness.Answer) {
	family, _, _ := strings.Cut(a.Text("jti"), ".")
	m.tokens = append(m.tokens, &sandboxToken{text: a.Text("token"), jti: a.Text("jti"), family: family, epoch: number(a, "epoch")})
}

func (m *leaseModel) token() *sandboxToken {
	return m.tokens[rapid.IntRange(0, len(m.tokens)-1).Draw(m.rt, "token")]
}

// standing is what a call with a token is answered that it may make.
func (m *leaseModel) standing(tok *sandboxToken, good int) int {
	switch {
	case tok.revoked:
		return 401
	case tok.epoch != m.epoch:
		return 403
	}
	return good
}

func (m *leaseModel) commit() {
	tok := m.token()
	m.n++
	c := state(m.id, fmt.Sprint(m.id, m.n))
	c.Expected = m.head
	r := m.on()
	a, err := r.g.Do(r.commitAsk(c, tok.text))
	if err != nil {
		m.rt.Fatalf("commit: %v", err)
	}
	want := m.standing(tok, 201)
	m.want(want, fmt.Sprintf("commit with a token of epoch %d, revoked %t", tok.epoch, tok.revoked), a)
	if want == 201 {
		m.head = a.Text("commit", "commit_sha")
	}
}

// push pushes a commit on the head with plain git.
func (m *leaseModel) push() {
	tok, g := m.token(), m.c.nodes[0]
	r := m.on()
	git := func(args ...string) string {
		out := g.git.Run(m.clone, nil, args...)
		if out.Err != nil {
			m.rt.Fatalf("git %s: %v %s", clip(args), out.Err, out.All())
		}
		return strings.TrimSpace(out.Stdout)
	}
	git("fetch", "-q", r.ephemeral(r.read), "refs/heads/sessions/"+m.id)
	if got := git("rev-parse", "FETCH_HEAD"); got != m.head {
		m.rt.Fatalf("fetch gives %s, want %s", got, m.head)
	}
	m.n++
	next := git("commit-tree", "-p", m.head, "-m", fmt.Sprint(m.id, m.n), m.head+"^{tree}")
	out := g.git.Run(m.clone, nil, "push", "-q", r.ephemeral(tok.text), next+":refs/heads/sessions/"+m.id)
	if want := m.standing(tok, 201); (out.Err == nil) != (want == 201) {
		m.rt.Fatalf("push with a token of epoch %d, revoked %t = %v %s, want as %d with epoch %d", tok.epoch, tok.revoked, out.Err, out.All(), want, m.epoch)
	} else if want == 201 {
		m.head = next
	} else if want == 403 && !strings.Contains(out.All(), fmt.Sprintf("stale epoch %d, session is at %d", tok.epoch, m.epoch)) {
		m.rt.Fatalf("push with an old epoch says %q, want stale epoch %d, session is at %d", out.All(), tok.epoch, m.epoch)
	}
}

func (m *leaseModel) revoke() {
	tok := m.token()
	a := m.do(m.on(), "DELETE", "/sessions/"+m.id+"/tokens/"+tok.jti, m.r.write, nil)
	if a.Status != 204 {
		m.want(204, "revoke token", a)
	}
	for _, other := range m.tokens {
		other.revoked = other.revoked || other.family == tok.family
	}
}

func (m *leaseModel) renewToken() {
	tok, r := m.token(), m.on()
	a, err := r.g.Do(harness.Ask{Method: "POST", Path: "/api/tokens/renew", Token: tok.text, JSON: map[string]any{}})
	if err != nil {
		m.rt.Fatalf("renew token: %v", err)
	}
	want := m.standing(tok, 201)
	if want == 201 && m.leased && m.holder == "" {
		want = 409
	}
	if m.want(want, fmt.Sprintf("renew token of epoch %d, revoked %t", tok.epoch, tok.revoked), a); want == 201 {
		m.keep(a)
	}
}

// agree wants all nodes to tell what the model says.
func (m *leaseModel) agree() {
	for i, g := range m.c.nodes {
		a := m.do(m.r.on(g), "GET", "/sessions/"+m.id, m.r.read, nil)
		if a.Text("lease", "holder") != m.holder || number(a, "epoch") != m.epoch || a.Text("head_sha") != m.head {
			m.rt.Fatalf("session on node %d = %s, want holder %q, epoch %d, head %s", i, a, m.holder, m.epoch, m.head)
		}
		for _, tok := range m.tokens {
			who, err := g.Do(harness.Ask{Path: "/api/whoami", Token: tok.text})
			if want := map[bool]int{true: 401, false: 200}[tok.revoked]; err != nil || who.Status != want {
				m.rt.Fatalf("whoami on node %d with a token that is revoked (%t) = %s, %v; want %d", i, tok.revoked, who, err, want)
			}
		}
	}
}

// Sandboxes on two nodes take a session over from each other and commit all the while:
// by the log, every commit was made at the epoch that was in force at its place.
func TestA01_NoStaleWriterLandsBetweenTwoNodes(t *testing.T) {
	c := twoNodes(t, redistest.Start(t).URL())
	r, _ := c.nodes[0].seeded()
	r.leased("s", "h0")
	told := &epochs{of: map[string]int64{}}
	turns := setting(t, "HEADGATE_TAKEOVERS", 20)
	var work sync.WaitGroup
	for i := range 3 {
		at := r.on(c.nodes[i%len(c.nodes)])
		work.Go(func() {
			for range turns {
				told.turn(t, at, fmt.Sprint("h", i))
			}
		})
	}
	work.Wait()
	told.check(t, r)
}

// epochs are those of the tokens that were issued, by their ids.
type epochs struct {
	mu      sync.Mutex // guards what follows
	of      map[string]int64
	refused int
}

// turn takes the session over and commits until another one has it.
func (e *epochs) turn(t *testing.T, r *repo, holder string) {
	ask := func(tail string, body any) harness.Answer {
		a, err := r.g.Do(harness.Ask{Method: "POST", Path: r.path(tail), Token: r.write, JSON: body})
		if err != nil || a.Status >= 300 {
			t.Errorf("POST %s = %s, %v; want it done", tail, a, err)
		}
		return a
	}
	ask("/sessions/s/lease", map[string]any{"action": "takeover", "holder": holder, "ttl_s": 3600})
	issued := ask("/sessions/s/tokens", map[string]any{})
	e.mu.Lock()
	e.of[issued.Text("jti")] = number(issued, "epoch")
	e.mu.Unlock()
	for n := range 6 {
		a, err := r.g.Do(r.commitAsk(state("s", fmt.Sprint(holder, number(issued, "epoch"), n)), issued.Text("token")))
		switch {
		case err != nil || a.Status != 201 && a.Status != 403 && a.Status != 409:
			t.Errorf("commit = %s, %v; want 201, 403 or 409", a, err)
		case a.Status == 403:
			e.mu.Lock()
			e.refused++
			e.mu.Unlock()
			return
		}
	}
}

// check replays the log.
func (e *epochs) check(t *testing.T, r *repo) {
	t.Helper()
	now, commits := int64(1), 0
	for after := int64(0); ; {
		a := r.get("/events", "after", fmt.Sprint(after), "limit", "1000", "session", "s")
		for _, v := range a.List("events") {
			event := v.(map[string]any)
			data, _ := event["data"].(map[string]any)
			if epoch, ok := data["epoch"].(float64); ok {
				if int64(epoch) < now {
					t.Errorf("event %v brings epoch %v after %d", event["seq"], epoch, now)
				}
				now = int64(epoch)
			}
			actor, _ := event["actor"].(map[string]any)
			jti, _ := actor["jti"].(string)
			if epoch, ok := e.of[jti]; ok && event["type"] == "ref.updated" {
				commits++
				if epoch != now {
					t.Errorf("event %v: a writer of epoch %d landed at epoch %d", event["seq"], epoch, now)
				}
			}
		}
		if more, _ := a.Get("has_more").(bool); !more {
			break
		}
		after = number(a, "last_seq")
	}
	t.Logf("%d commits at their epochs, %d turns ended by a refusal, %d tokens", commits, e.refused, len(e.of))
	if commits == 0 || e.refused == 0 || now < 2 {
		t.Errorf("%d commits, %d refusals, last epoch %d: nothing was tried", commits, e.refused, now)
	}
}
