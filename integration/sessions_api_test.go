package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// in is the gate for a part of a test.
func (g *gate) in(t testing.TB) *gate {
	part := *g
	part.t = t
	return &part
}

// part runs a part of a test on a repo of its own.
func (g *gate) part(t *testing.T, name string, test func(t *testing.T, r *repo)) {
	t.Helper()
	r, _ := g.seeded()
	t.Run(name, func(t *testing.T) { test(t, r.on(g.in(t))) })
}

// restarted kills the server and starts it again.
func (g *gate) restarted() {
	g.t.Helper()
	g.Kill()
	if err := g.Restart(); err != nil {
		g.t.Fatalf("restart after kill -9: %v", err)
	}
}

// begin makes a session.
func (r *repo) begin(body map[string]any) harness.Answer {
	r.g.t.Helper()
	a := r.ask("POST", "/sessions", r.write, body)
	r.want(201, "create session", a)
	return a
}

func (r *repo) sessionNow(id string) harness.Answer {
	r.g.t.Helper()
	a := r.ask("GET", "/sessions/"+id, r.read, nil)
	r.want(200, "get session "+id, a)
	return a
}

// A session from the default branch: the answer and the record have repo, branch and
// head, the main remote does not show it, the ephemeral one does. All of it is there
// after kill -9, for any server needs only what it holds.
func TestA01_PI06_PN27_CreateSession(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, main := g.seeded()
		made := r.begin(map[string]any{"labels": map[string]any{"task": "7"}})
		id := made.Text("id")
		want := map[string]string{"repo_name": r.name, "branch": "sessions/" + id, "ref": ephemeralPrefix + "sessions/" + id, "base_sha": main, "head_sha": main}
		head := g.want(201, r.commitAsk(state(id, "1"), r.issued(id))).Text("commit", "commit_sha")
		for when, a := range map[string]harness.Answer{"created": made, "read": r.sessionNow(id)} {
			if when == "read" {
				want["head_sha"] = head
			}
			for field, value := range want {
				if a.Text(field) != value && (when == "read" || field != "head_sha") {
					t.Errorf("%s: %s = %q, want %q", when, field, a.Text(field), value)
				}
			}
		}
		if made.Text("head_sha") != main {
			t.Errorf("created at %s, want %s", made.Text("head_sha"), main)
		}
		clone := r.clone(r.remote(r.read))
		if shown := g.run(clone, "for-each-ref"); strings.Contains(shown, id) || g.git.Run(clone, nil, "cat-file", "-e", head).Err == nil {
			t.Errorf("a plain clone has %s", shown)
		}
		token := r.issued(id)
		before := r.sessionNow(id)
		g.restarted()
		if after := r.sessionNow(id); string(after.Body) != string(before.Body) {
			t.Errorf("after kill -9 the session is %s, was %s", after, before)
		}
		if refs := r.refs(r.ephemeral(token)); refs["refs/heads/sessions/"+id] != head {
			t.Errorf("the ephemeral remote shows %v, want the session at %s", refs, head)
		}
		g.want(201, r.commitAsk(state(id, "2"), token))
	})
}

// Case 13.1: a lease runs out, another takes it; the old writer's fast-forward is
// refused by the API and by git, also after kill -9, and epochs only grow.
func TestA16_Case13_1_AnOldWriterIsFencedOff(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, _ := g.seeded()
		r.begin(map[string]any{"id": "s", "holder": "A", "lease_ttl_s": 1})
		old := r.issued("s")
		work := r.clone(r.ephemeral(old))
		taken := r.ask("POST", "/sessions/s/lease", r.write, map[string]any{"action": "acquire", "holder": "B", "ttl_s": 600, "wait_s": 30})
		r.want(200, "acquire of a lease that runs out", taken)
		if taken.Get("epoch") != 2.0 {
			t.Fatalf("second lease = %s, want epoch 2", taken)
		}
		head := g.want(201, r.commitAsk(state("s", "of B"), r.issued("s"))).Text("commit", "commit_sha")
		for _, when := range []string{"at once", "after kill -9"} {
			if when != "at once" {
				g.restarted()
			}
			a := g.do(r.commitAsk(state("s", "of A "+when), old))
			if a.Status != 403 || a.Text("code") != "stale_epoch" {
				t.Errorf("%s: commit of the old writer = %s, want 403 stale_epoch", when, a)
			}
			wantHas(t, "its refusal", string(a.Body), "stale epoch 1, session is at 2")
			// A fast-forward: from where the branch is now, by whoever read it elsewhere.
			g.run(work, "fetch", "-q", r.ephemeral(r.read), "refs/heads/sessions/s")
			g.run(work, "reset", "-q", "--hard", "FETCH_HEAD")
			r.work(work, "mine", when)
			wantHas(t, "its push", g.refused(work, "push", r.ephemeral(old), "HEAD:refs/heads/sessions/s"), "stale epoch 1, session is at 2")
			if got := r.head("sessions/s", true); got != head {
				t.Errorf("%s: the branch is at %s, want %s", when, got, head)
			}
		}
		if a := r.lease("s", "takeover", "C"); number(a, "epoch") != 3 {
			t.Errorf("takeover after kill -9 = %s, want epoch 3", a)
		}
	})
}

// Cases 13.2 and 13.3: renewing in time, too late and by odd times; waiting for a
// lease that is held and for one whose holder died.
func TestCase13_2_And13_3_Leases(t *testing.T) {
	t.Parallel() // with the others that mostly wait
	g := start(t, withConfig("[sessions]\nlease_max_ttl = \"1h\"\n"))
	g.part(t, "renew", func(t *testing.T, r *repo) {
		r.begin(map[string]any{"id": "s", "holder": "A", "lease_ttl_s": 60})
		renew := func(ttl any) harness.Answer {
			return r.ask("POST", "/sessions/s/lease", r.write, map[string]any{"action": "renew", "holder": "A", "ttl_s": ttl})
		}
		if a := renew(600); a.Status != 200 || a.Get("epoch") != 1.0 || leaseLeft(t, a) < 500*time.Second {
			t.Errorf("renew = %s, want ten minutes from now at epoch 1", a)
		}
		if a := renew(1_000_000_000); a.Status != 200 || leaseLeft(t, a) > time.Hour+time.Second {
			t.Errorf("renew for 10^9 s = %s, want it cut to an hour", a)
		}
		for _, odd := range []any{0, -1} {
			wantCode(t, fmt.Sprint("renew for ", odd), renew(odd), 400, "invalid_request")
		}
		if a := renew(1); a.Status != 200 {
			t.Errorf("renew for a second = %s", a)
		}
		until(t, "the lease ends", func() bool { return r.sessionNow("s").Get("lease") == nil })
		wantCode(t, "renew after the end, nobody else there", renew(60), 409, "lease_lost")
		r.want(200, "acquire by another", r.lease("s", "acquire", "B"))
		wantCode(t, "renew after another has it", renew(60), 409, "lease_lost")
		if a := r.sessionNow("s"); a.Text("lease", "holder") != "B" || a.Get("epoch") != 2.0 {
			t.Errorf("session = %s, want B at epoch 2", a)
		}
	})
	g.part(t, "wait", func(t *testing.T, r *repo) {
		r.begin(map[string]any{"id": "s", "holder": "A", "lease_ttl_s": 600})
		ask := func(holder string, wait int) (harness.Answer, time.Duration) {
			began := time.Now()
			a := r.ask("POST", "/sessions/s/lease", r.write, map[string]any{"action": "acquire", "holder": holder, "ttl_s": 60, "wait_s": wait})
			return a, time.Since(began)
		}
		a, took := ask("B", 1)
		if wantCode(t, "acquire of a held lease, with a wait", a, 409, "lease_held"); took < time.Second {
			t.Errorf("it was refused after %s, want a second", took)
		}
		a, _ = ask("C", 0)
		wantCode(t, "acquire without a wait", a, 409, "lease_held")
		r.want(200, "the holder's last renewal", r.ask("POST", "/sessions/s/lease", r.write, map[string]any{"action": "renew", "holder": "A", "ttl_s": 1}))
		a, _ = ask("B", 30)
		if a.Status != 200 || a.Get("epoch") != 2.0 {
			t.Errorf("acquire once the holder is gone = %s, want epoch 2", a)
		}
	})
}

// leaseLeft is how long the lease of an answer still lives.
func leaseLeft(t testing.TB, a harness.Answer) time.Duration {
	t.Helper()
	at, err := time.Parse(time.RFC3339, a.Text("expires_at"))
	if err != nil {
		t.Fatalf("lease %s: %v", a, err)
	}
	return time.Until(at)
}

// When a session ends is visible before, and it ends then; never while somebody holds
// its lease or a child of it lives. A kept state of a fork goes by its idle timeout.
func TestB08_D08_DR19_DR20_TimesOfSessions(t *testing.T) {
	t.Parallel() // with the others that mostly wait
	g := start(t, withConfig("[sessions]\nreap_every = \"100ms\"\n"))
	r, _ := g.seeded()
	begun := time.Now()
	for id, body := range map[string]map[string]any{
		"ttl":    {"ttl_s": 1},
		"idle":   {"idle_timeout_s": 1},
		"unused": {"ttl_unused_s": 1},
	} {
		body["id"] = id
		a := r.begin(body)
		ends, err := time.Parse(time.RFC3339, a.Text("ends_at"))
		if err != nil || ends.Before(begun.Add(time.Second).Truncate(time.Second)) || ends.After(time.Now().Add(time.Second)) {
			t.Errorf("session %s ends at %q (%v), want in a second", id, a.Text("ends_at"), err)
		}
	}
	r.begin(map[string]any{"id": "held", "ttl_s": 1, "holder": "A", "lease_ttl_s": 600})
	r.begin(map[string]any{"id": "parent"})
	r.begin(map[string]any{"id": "child", "from_session": "parent"})
	r.want(200, "set the parent's times", r.ask("PATCH", "/sessions/parent", r.write, map[string]any{"ttl_unused_s": 1, "idle_timeout_s": 1}))
	r.begin(map[string]any{"id": "forked"})
	fork := r.ask("POST", "/sessions/forked/fork", r.write, map[string]any{"n": 2, "state_idle_timeout_s": 1})
	r.want(201, "fork", fork)
	ended := func(id string) func() bool {
		return func() bool { return r.sessionNow(id).Text("state") == "ended" }
	}
	for _, id := range []string{"ttl", "idle", "unused"} {
		until(t, id+" ends", ended(id))
		if a := r.sessionNow(id); a.Text("end_cause") != "expired" || r.head("sessions/"+id, true) != "" {
			t.Errorf("session %s = %s, want it expired and its branch gone", id, a)
		}
	}
	r.begin(map[string]any{"id": "later", "ttl_s": 1})
	until(t, "one that began later ends", ended("later"))
	for _, id := range []string{"held", "parent"} {
		if a := r.sessionNow(id); a.Text("state") != "active" {
			t.Errorf("%s = %s, want it active while in use", id, a)
		}
	}
	if pins := r.get("/pins").List("pins"); len(pins) != 1 {
		t.Errorf("pins = %v, want the state whose children live", pins)
	}
	r.want(200, "end the child", r.ask("DELETE", "/sessions/child", r.write, nil))
	r.want(200, "release", r.lease("held", "release", "A"))
	r.want(200, "close the fork", r.ask("DELETE", "/forks/"+fork.Text("group_id"), r.write, nil))
	until(t, "the held one ends", ended("held"))
	until(t, "the parent ends", ended("parent"))
	until(t, "the state goes", func() bool { return len(r.get("/pins").List("pins")) == 0 })
}

// A session in use is not deleted and says who uses it; only its creator or an admin
// deletes it.
func TestD13_DR21_WhoMayDelete(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	r.begin(map[string]any{"id": "s", "holder": "sandbox-1"})
	r.begin(map[string]any{"id": "child", "from_session": "s"})
	stranger := g.sign(tokens.Claims{Repo: r.name, Subject: "stranger", Scopes: []tokens.Scope{tokens.GitWrite}})
	admin := g.sign(tokens.Claims{Repo: r.name, Subject: "admin", Scopes: []tokens.Scope{tokens.GitWrite, tokens.RepoWrite}})
	wantCode(t, "a stranger deletes", r.ask("DELETE", "/sessions/s?holder=sandbox-1", stranger, nil), 403, "forbidden")
	wantCode(t, "a stranger asks what that frees", r.ask("DELETE", "/sessions/s?dry_run=true", stranger, nil), 403, "forbidden")
	for _, token := range []string{r.write, admin} {
		a := r.ask("DELETE", "/sessions/s", token, nil)
		wantCode(t, "delete in use", a, 409, "in_use")
		wantHas(t, "its holders", fmt.Sprint(a.List("holders")), "sandbox-1", "child")
	}
	r.want(200, "an admin deletes the child", r.ask("DELETE", "/sessions/child", admin, nil))
	r.want(200, "its creator deletes it", r.ask("DELETE", "/sessions/s?holder=sandbox-1", r.write, nil))
}

// Whoever may read one session sees that one in lists, and nobody sees those of
// another repo. An id alone opens nothing.
func TestD11_B12_PN25_Isolation(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	other, _ := g.seeded()
	for _, id := range []string{"a", "b"} {
		r.begin(map[string]any{"id": id})
	}
	other.begin(map[string]any{"id": "o"})
	confined := r.token([]tokens.Scope{tokens.GitWrite, tokens.GitRead}, confinedTo("a")...)
	for token, want := range map[string][]string{r.read: {"b", "a"}, confined: {"a"}, other.read: {"o"}} {
		of := r
		if token == other.read {
			of = other
		}
		var got []string
		for _, s := range of.ask("GET", "/sessions", token, nil).List("sessions") {
			got = append(got, s.(map[string]any)["id"].(string))
		}
		if !slices.Equal(got, want) {
			t.Errorf("sessions = %v, want %v", got, want)
		}
	}
	wantCode(t, "b for who may not read it", r.ask("GET", "/sessions/b", confined, nil), 404, "session_not_found")
	wantCode(t, "a session of another repo", r.ask("GET", "/sessions/o", r.read, nil), 404, "session_not_found")
	wantCode(t, "another repo", r.ask("GET", "/sessions", other.read, nil), 404, "repository_not_found")
	for _, ask := range g.everyRoute(r.name, "a") {
		for _, id := range []string{"", "a", "sessions/a"} {
			ask.Token = id
			if a := g.do(ask); a.Status != 401 {
				t.Errorf("%s %s with %q for a token = %s, want 401", ask.Method, ask.Path, id, a)
			}
		}
	}
	if said := g.refused("", "ls-remote", r.ephemeral("a")); strings.Contains(said, "refs/") {
		t.Errorf("ls-remote with an id for a token = %s", said)
	}
}

// Nothing below refs/bases of the state namespace can be made or deleted by push or
// API, whoever asks (DR-3).
func TestDR03_NobodyTouchesBases(t *testing.T) {
	g := start(t)
	r, main := g.seeded()
	r.begin(map[string]any{"id": "s"})
	const base = "refs/namespaces/state/refs/bases/ubuntu"
	clone := r.clone(r.remote(r.write))
	all := r.token([]tokens.Scope{tokens.GitWrite, tokens.GitRead, tokens.RepoWrite}, refpolicy.Rule{Pattern: "*"})
	for who, token := range map[string]string{"backend": r.write, "admin": all, "sandbox": r.issued("s")} {
		for _, remote := range []string{r.remote(token), r.ephemeral(token)} {
			g.refused(clone, "push", remote, "HEAD:"+base)
			g.refused(clone, "push", remote, ":"+base)
		}
		for _, ephemeral := range []bool{false, true} {
			for what, a := range map[string]harness.Answer{
				"create":  r.ask("POST", "/branches/create", token, map[string]any{"target_branch": base, "base_ref": "main", "target_is_ephemeral": ephemeral}),
				"delete":  r.ask("DELETE", "/branches", token, map[string]any{"name": base, "ephemeral": ephemeral}),
				"session": r.ask("POST", "/sessions", token, map[string]any{"branch": base}),
				"commit":  g.do(r.commitAsk(harness.Commit{Branch: base, Ephemeral: ephemeral, Files: []harness.File{{Path: "x", Content: "x"}}}, token)),
			} {
				if a.Status != 400 && a.Status != 403 && a.Status != 404 {
					t.Errorf("%s of a base by a %s = %s, want it refused", what, who, a)
				}
			}
		}
	}
	for _, remote := range []string{r.remote(r.read), r.ephemeral(r.read)} {
		for name, oid := range r.refs(remote) {
			if strings.Contains(name, "bases") || oid != main {
				t.Errorf("a remote shows %s at %s", name, oid)
			}
		}
	}
}

// The loser of a race is told the present head and who wrote it, and can go on from
// there (PI-13). The sandbox's token writes its one branch alone (PI-19, PN-24).
func TestPI13_PI19_PN24_LoserIsTold(t *testing.T) {
	g := start(t)
	r, main := g.seeded()
	r.begin(map[string]any{"id": "s", "holder": "one"})
	token := r.issuedFor("s", r.write, map[string]any{"sub": "sandbox-1", "ttl_s": 300})
	head := g.want(201, r.commitAsk(state("s", "1"), token)).Text("commit", "commit_sha")
	late := state("s", "2")
	late.Expected = main
	a := g.do(r.commitAsk(late, r.write))
	if a.Status != 409 || a.Text("result", "status") != "precondition_failed" || a.Text("result", "new_sha") != head || a.Text("result", "last_writer", "sub") != "sandbox-1" {
		t.Errorf("loser is told %s, want %s by sandbox-1", a, head)
	}
	late.Expected = a.Text("result", "new_sha")
	g.want(201, r.commitAsk(late, r.write))
	for _, branch := range []harness.Commit{{Branch: "main"}, {Branch: "other"}, {Branch: "sessions/t", Ephemeral: true}} {
		branch.Files = []harness.File{{Path: "x", Content: "x"}}
		wantCode(t, "commit to "+branch.Branch, g.do(r.commitAsk(branch, token)), 403, "policy_denied", "forbidden")
	}
	me := g.want(200, harness.Ask{Path: "/api/whoami", Token: token})
	if left, _ := me.Get("expires_in_s").(float64); me.Text("session") != "s" || me.Get("epoch") != 1.0 || left <= 0 || left > 301 {
		t.Errorf("whoami = %s, want session s, epoch 1, at most 300 s", me)
	}
}
