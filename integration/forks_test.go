package integration

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
)

func (r *repo) fork(parent string, body map[string]any) harness.Answer {
	r.g.t.Helper()
	a := r.ask("POST", "/sessions/"+parent+"/fork", r.write, body)
	r.want(201, "fork "+parent, a)
	return a
}

// childrenOf are the ids of a fork's children.
func (r *repo) childrenOf(fork harness.Answer) (ids []string) {
	r.g.t.Helper()
	for _, c := range fork.List("children") {
		ids = append(ids, c.(map[string]any)["session"].(map[string]any)["id"].(string))
	}
	return ids
}

// tokensOf are the tokens of a fork's children.
func tokensOf(fork harness.Answer) (raw []string) {
	for _, c := range fork.List("children") {
		raw = append(raw, c.(map[string]any)["token"].(map[string]any)["token"].(string))
	}
	return raw
}

// listed are all sessions that a query finds.
func (r *repo) listed(query ...string) (all []map[string]any) {
	r.g.t.Helper()
	for cursor := ""; ; {
		asked := append([]string{"limit", "100"}, query...)
		if cursor != "" {
			asked = append(asked, "cursor", cursor)
		}
		a := r.get("/sessions", asked...)
		r.want(200, "list sessions", a)
		for _, s := range a.List("sessions") {
			all = append(all, s.(map[string]any))
		}
		if cursor = a.Text("next_cursor"); cursor == "" {
			return all
		}
	}
}

// Killed with -9 at random moments while it forks, the server has after each restart
// all eight children of a fork or none, and the parent where it was (D-04).
func TestD04_KilledInTheMiddleOfAFork(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		rng := random(t)
		kills := setting(t, "HEADGATE_FORK_KILLS", 5)
		r, _ := g.seeded()
		r.begin(map[string]any{"id": "p"})
		head := r.commit(state("p", "the parent's"))
		unanswered := 0
		for kill := range kills {
			round := fmt.Sprint(kill)
			answered := 0
			var forking sync.WaitGroup
			forking.Go(func() {
				for {
					a, err := g.Do(harness.Ask{Method: "POST", Path: r.path("/sessions/p/fork"), Token: r.write,
						JSON: map[string]any{"n": 8, "token": map[string]any{}, "labels": map[string]any{"round": round}}})
					if err != nil {
						return
					}
					if ids := r.childrenOf(a); a.Status != 201 || len(ids) != 8 || len(slices.Compact(slices.Sorted(slices.Values(tokensOf(a))))) != 8 {
						t.Errorf("fork = %s, want eight children and eight tokens", a)
						return
					}
					answered++
				}
			})
			time.Sleep(time.Duration(5_000+rng.IntN(60_000)) * time.Microsecond) // the random point
			g.Kill()
			forking.Wait()
			if err := g.Restart(); err != nil {
				t.Fatalf("restart after kill %d: %v", kill, err)
			}
			groups := r.wholeGroups(head, "label", "round:"+round)
			if groups != answered && groups != answered+1 {
				t.Errorf("kill %d: %d forks are there, %d were answered", kill, groups, answered)
			}
			if groups == answered+1 {
				unanswered++
			}
			if got := r.head("sessions/p", true); got != head {
				t.Errorf("kill %d: the parent is at %s, want %s", kill, got, head)
			}
		}
		t.Logf("%d kills, %d forks were there without their answers", kills, unanswered)
		if live, refs := r.listed("state", "active"), r.refs(r.ephemeral(r.read)); len(live) != len(refs) {
			t.Errorf("%d sessions are live and %d branches there", len(live), len(refs))
		}
		wantGaplessLog(t, r)
	})
}

// wholeGroups counts the forks among the sessions that a query finds: each has eight
// children that are at head and can be written with a token.
func (r *repo) wholeGroups(head string, query ...string) int {
	r.g.t.Helper()
	groups := map[string]int{}
	for _, s := range r.listed(query...) {
		groups[s["group_id"].(string)]++
		if s["head_sha"] != head || s["base_sha"] != head || s["parent_id"] != "p" {
			r.g.t.Errorf("child = %v, want it at %s", s, head)
		}
	}
	for group, n := range groups {
		told := r.ask("GET", "/forks/"+group, r.read, nil)
		children := r.childrenOf(told)
		if n != 8 || len(children) != 8 {
			r.g.t.Errorf("group %s has %d children in the list, %d of its own, want 8", group, n, len(children))
			continue
		}
		if list := r.ask("GET", "/sessions/"+children[7]+"/tokens", r.write, nil).List("tokens"); len(list) != 1 {
			r.g.t.Errorf("a child has the tokens %v, want one", list)
		}
	}
	return len(groups)
}

// What a fork makes: children at the parent's state, with its labels and times, that
// say where they come from; each token writes its own child alone; the parent runs on.
// Attempts side by side are compared, the best is picked, the others are over (PI-21).
func TestDR06_DR10_DR16_PI21_AttemptsSideBySide(t *testing.T) {
	g := start(t)
	r, main := g.seeded()
	r.begin(map[string]any{"id": "p", "labels": map[string]any{"set-up": "done"}, "idle_timeout_s": 900})
	head := r.commit(state("p", "set up"))
	fork := r.fork("p", map[string]any{"n": 3, "token": map[string]any{"ttl_s": 300}, "labels": map[string]any{"try": "1"}})
	ids, raw := r.childrenOf(fork), tokensOf(fork)
	if fork.Text("state_sha") != head || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 3 {
		t.Fatalf("fork = %s, want three children of %s", fork, head)
	}
	r.commit(state("p", "the parent runs on"))
	for i, id := range ids {
		s := r.sessionNow(id)
		if s.Text("parent_id") != "p" || s.Text("base_sha") != head || s.Text("labels", "set-up") != "done" || s.Text("labels", "try") != "1" || s.Get("idle_timeout_s") != 900.0 {
			t.Errorf("child = %s, want it from p at %s with its labels and times", s, head)
		}
		g.want(201, r.commitAsk(harness.Commit{Branch: "sessions/" + id, Ephemeral: true, Files: []harness.File{
			{Path: "answer", Content: fmt.Sprint(i)}, {Path: "notes", Content: "alike"}, {Path: fmt.Sprint("only-", i), Content: "x"},
		}}, raw[i]))
		wantCode(t, "a child's commit to another", g.do(r.commitAsk(state(ids[(i+1)%3], "x"), raw[i])), 403, "policy_denied", "forbidden")
		wantCode(t, "a child's commit to the parent", g.do(r.commitAsk(state("p", "x"), raw[i])), 403, "policy_denied", "forbidden")
	}
	// A session from another's state says so too.
	if s := r.begin(map[string]any{"from_session": ids[0]}); s.Text("parent_id") != ids[0] || s.Text("base_sha") != r.head("sessions/"+ids[0], true) {
		t.Errorf("session from a child = %s, want its state", s)
	}
	status := map[string]string{}
	for _, f := range r.get("/forks/" + fork.Text("group_id") + "/compare").List("files") {
		status[f.(map[string]any)["path"].(string)] = f.(map[string]any)["status"].(string)
	}
	if want := map[string]string{"answer": "differs", "notes": "same", "only-0": "only_here", "only-1": "only_here", "only-2": "only_here"}; fmt.Sprint(status) != fmt.Sprint(want) {
		t.Errorf("comparison = %v, want %v", status, want)
	}

	// The parent has gone on, so that a pick would rewind it; of a second fork it does not.
	a := r.ask("POST", "/forks/"+fork.Text("group_id")+"/pick", r.write, map[string]any{"winner": ids[1]})
	if a.Status != 409 {
		t.Errorf("pick over the parent's own work = %s, want 409", a)
	}
	fork = r.fork("p", map[string]any{"n": 2})
	ids = r.childrenOf(fork)
	best := r.commit(state(ids[1], "best"))
	picked := r.ask("POST", "/forks/"+fork.Text("group_id")+"/pick", r.write, map[string]any{"winner": ids[1]})
	if picked.Status != 200 || picked.Text("head_sha") != best || r.head("sessions/p", true) != best {
		t.Errorf("pick = %s, want p at %s", picked, best)
	}
	if r.sessionNow(ids[0]).Text("expires_at") == "" || r.sessionNow(ids[1]).Text("expires_at") != "" {
		t.Error("after a pick only the losers are to end soon")
	}
	if got := r.head("main", false); got != main {
		t.Errorf("main is at %s, want %s", got, main)
	}
}

// A fork over max_fork_n or over the limit of live sessions is refused before anything
// is made, and the limits are told.
func TestD05_DR15_ForkOverALimit(t *testing.T) {
	g := start(t, withConfig("[sessions]\nmax_live = 10\n"))
	r, _ := g.seeded()
	r.begin(map[string]any{"id": "p"})
	limits := g.want(200, harness.Ask{Path: "/api/limits", Token: r.read})
	if limits.Get("limits", "sessions.max_fork_n") != 8.0 || limits.Get("limits", "sessions.max_live") != 10.0 {
		t.Errorf("limits = %s, want forks of 8 and 10 live sessions", limits)
	}
	before := r.get("/events", "limit", "1000").Get("last_seq")
	wantCode(t, "fork(9)", r.ask("POST", "/sessions/p/fork", r.write, map[string]any{"n": 9, "token": map[string]any{}}), 400, "invalid_request")
	fork := r.fork("p", map[string]any{"n": 8, "token": map[string]any{}})
	after := r.get("/events", "limit", "1000").Get("last_seq")
	wantCode(t, "fork(2) with room for one", r.ask("POST", "/sessions/p/fork", r.write, map[string]any{"n": 2, "token": map[string]any{}}), 409, "no_slots")
	if now := r.get("/events", "limit", "1000").Get("last_seq"); now != after || before == after {
		t.Errorf("the log was at %v, then at %v and after the refusals at %v", before, after, now)
	}
	if got := len(r.listed()); got != 9 || len(r.refs(r.ephemeral(r.read))) != 9 {
		t.Errorf("%d sessions and %v, want nine of each", got, r.refs(r.ephemeral(r.read)))
	}
	r.want(200, "close", r.ask("DELETE", "/forks/"+fork.Text("group_id"), r.write, nil))
	r.fork("p", map[string]any{"n": 8})
}

// One child of eight fails: a strict fork names the seven good ones and the failed one
// in its error, another one in its answer; the good ones stay usable either way.
func TestD06_DR13_AChildFails(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	r.begin(map[string]any{"id": "p"})
	for strict, status := range map[bool]int{true: 409, false: 201} {
		answered := make(chan harness.Answer, 1)
		label := fmt.Sprint(strict)
		go func() {
			a, _ := g.Do(harness.Ask{Method: "POST", Path: r.path("/sessions/p/fork"), Token: r.write,
				JSON: map[string]any{"n": 8, "strict": strict, "wait_s": 50, "token": map[string]any{}, "labels": map[string]any{"strict": label}}})
			answered <- a // the zero Answer is wrong too
		}()
		var made []map[string]any
		until(t, "eight children", func() bool { made = r.listed("label", "strict:"+label); return len(made) == 8 })
		failing := made[3]["id"].(string)
		for _, s := range made {
			r.want(200, "report on a child", r.ask("PUT", fmt.Sprintf("/forks/%s/children/%s/validity", s["group_id"], s["id"]), r.write,
				map[string]any{"valid": s["id"] != failing, "reason": "no kernel"}))
		}
		a := <-answered
		good, failed := r.childrenOf(a), a.List("failed")
		if a.Status != status || len(good) != 7 || slices.Contains(good, failing) || len(failed) != 1 || failed[0].(map[string]any)["session_id"] != failing {
			t.Fatalf("fork with a failed child, strict %v = %s, want %d with seven good ones and %s failed", strict, a, status, failing)
		}
		for i, token := range tokensOf(a) {
			g.want(201, r.commitAsk(state(good[i], label), token))
		}
	}
}

// Closing a fork ends its children; its state goes with the last of them, unless it is
// to be kept.
func TestD07_DR11_DR12_ClosingAFork(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	r.begin(map[string]any{"id": "p"})
	state1 := r.commit(state("p", "1"))
	held := func() (n int) {
		for _, pin := range r.get("/pins").List("pins") {
			if pin.(map[string]any)["sha"] == state1 {
				n++
			}
		}
		return n
	}
	for _, keep := range []bool{false, true} {
		fork := r.fork("p", map[string]any{"n": 2, "keep_state": keep, "token": map[string]any{}})
		ids, raw := r.childrenOf(fork), tokensOf(fork)
		r.want(200, "end a child", r.ask("DELETE", "/sessions/"+ids[0], r.write, nil))
		if held() != 1 {
			t.Errorf("keep_state %v: the state is held %d times while a child lives, want once", keep, held())
		}
		closed := r.ask("DELETE", "/forks/"+fork.Text("group_id"), r.write, nil)
		if closed.Status != 200 || closed.Get("ended") != 1.0 || closed.Get("state_gone") != !keep {
			t.Errorf("close with keep_state %v = %s", keep, closed)
		}
		if left := map[bool]int{false: 0, true: 1}[keep]; held() != left {
			t.Errorf("keep_state %v: the state is held %d times after the last child, want %d", keep, held(), left)
		}
		for i, id := range ids {
			if s := r.sessionNow(id); s.Text("state") != "ended" || r.head("sessions/"+id, true) != "" {
				t.Errorf("child of a closed fork = %s, want it ended and its branch gone", s)
			}
			r.wantDead("the fork is closed", raw[i])
		}
	}
}
