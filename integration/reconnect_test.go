package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
	"github.com/headgate/headgate/integration/harness"
)

// Redis goes away under writers and comes back: meanwhile they are told 503, to come
// again, within the time of one call; what was acknowledged is there, each change once,
// and no lease was granted twice.
func TestCase13_4_RedisGoesAwayAndComesBack(t *testing.T) {
	redis := redistest.Start(t)
	c := twoNodes(t, redis.URL())
	c.failing()
	r, main := c.nodes[0].seeded()
	r.leased("shared", "")

	var stop atomic.Bool
	var work sync.WaitGroup
	var all []*careful
	grants := &grants{epochs: map[int64]string{}}
	for i, g := range c.nodes {
		for n := range 4 {
			w := &careful{r: r.on(g), branch: fmt.Sprintf("w%d-%d", i, n), head: r.session(fmt.Sprintf("w%d-%d", i, n), main)}
			all = append(all, w)
			work.Go(func() { w.run(t, &stop) })
		}
		work.Go(func() { grants.contend(t, r.on(g), fmt.Sprintf("holder-%d", i), &stop) })
	}
	for _, way := range []struct {
		name      string
		off, back func()
	}{{"stopped", redis.Stop, redis.Restart}, {"killed", redis.Kill, redis.Restart}} {
		progress(t, all)
		before := make([]int64, len(all))
		for i, w := range all {
			before[i] = w.refused.Load()
		}
		way.off()
		for i, w := range all {
			until(t, "a writer is refused while redis is "+way.name, func() bool { return w.refused.Load() > before[i] })
		}
		for i, g := range c.nodes {
			if a := g.do(harness.Ask{Path: "/readyz"}); a.Status != 503 {
				t.Errorf("/readyz of node %d while redis is %s = %s, want 503", i, way.name, a)
			}
		}
		way.back()
		for _, g := range c.nodes {
			if err := g.WaitReady(stateLimit); err != nil {
				t.Fatal(err)
			}
		}
	}
	progress(t, all)
	stop.Store(true)
	work.Wait()
	for _, w := range all {
		w.check(t)
	}
	wantGaplessLog(t, r)
	t.Logf("longest answer while redis was away: %s; %d leases", slowest(all), len(grants.epochs))
}

// progress waits until every writer has written some more.
func progress(t *testing.T, all []*careful) {
	t.Helper()
	for _, w := range all {
		before := w.done.Load()
		until(t, "writer of "+w.branch+" goes on", func() bool { return w.done.Load() >= before+3 })
	}
}

func slowest(all []*careful) (longest time.Duration) {
	for _, w := range all {
		longest = max(longest, w.longest)
	}
	return longest
}

// A careful writer commits to a branch that nobody else writes to. What became of a
// commit that was not answered it finds out before it goes on.
type careful struct {
	r       *repo
	branch  string
	head    string
	commits []string // all that are in, oldest first

	done, refused atomic.Int64
	longest       time.Duration // of an answer that refused
}

// refusalLimit is far above the two seconds that are promised: a busy machine is no
// failure.
const refusalLimit = 15 * time.Second

func (w *careful) run(t *testing.T, stop *atomic.Bool) {
	maybe := "" // content of the commit before, if it was not answered
	for n := 0; !stop.Load(); n++ {
		content := fmt.Sprintf("%s %d", w.branch, n)
		began := time.Now()
		a, err := w.r.g.Do(w.r.commitAsk(harness.Commit{
			Branch: w.branch, Ephemeral: true, Expected: w.head, Files: []harness.File{{Path: "state", Content: content}},
		}, w.r.write))
		took := time.Since(began)
		late := err == nil && a.Status == 409 && maybe != "" // it got in after all, after it was looked for
		switch {
		case late:
			if !w.resolve(t, maybe) {
				return
			}
			maybe = ""
		case err != nil || a.Status != 201 && a.Status != 503:
			t.Errorf("commit to %s = %s, %v; want 201 or 503", w.branch, a, err)
			return
		case a.Status == 201:
			w.in(a.Text("commit", "commit_sha"))
			maybe = ""
		default:
			w.longest = max(w.longest, took)
			if a.Header.Get("Retry-After") == "" || took > refusalLimit {
				t.Errorf("commit to %s = %s after %s; want 503 within 2 s, with Retry-After", w.branch, a, took)
			}
			w.refused.Add(1)
			maybe = content
			if !w.resolve(t, content) {
				return
			}
		}
	}
}

func (w *careful) in(sha string) {
	w.head = sha
	w.commits = append(w.commits, sha)
	w.done.Add(1)
}

// resolve finds out whether a commit that was not answered got in.
func (w *careful) resolve(t *testing.T, content string) bool {
	for deadline := time.Now().Add(stateLimit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		a, err := w.r.g.Do(harness.Ask{Path: w.r.path("/branch") + queryOf([]string{"name", w.branch, "ephemeral", "true"}), Token: w.r.read})
		if err != nil || a.Status == http.StatusServiceUnavailable {
			continue
		}
		got := a.Text("branch", "head_sha")
		switch {
		case a.Status != 200:
			t.Errorf("branch %s = %s, want 200 or 503", w.branch, a)
			return false
		case got == w.head:
			return true
		}
		f, err := w.r.g.Do(harness.Ask{Path: w.r.path("/file") + queryOf([]string{"ref", got, "path", "state"}), Token: w.r.read})
		if err != nil || f.Status == http.StatusServiceUnavailable {
			continue
		}
		if string(f.Body) != content {
			t.Errorf("%s is at %s with %s, want %s or the commit that was not answered", w.branch, got, f, w.head)
			return false
		}
		w.in(got)
		return true
	}
	t.Errorf("branch %s could not be read within %s", w.branch, stateLimit)
	return false
}

// check wants the branch to be just what went in.
func (w *careful) check(t *testing.T) {
	t.Helper()
	a := w.r.get("/commits", "branch", w.branch, "ephemeral", "true", "limit", "1")
	if a.Status != 200 {
		t.Errorf("commits of %s = %s, want 200", w.branch, a)
	}
	got := w.r.history(w.branch)
	want := slices.Clone(w.commits)
	slices.Reverse(want)
	if len(got) != len(want)+1 || !slices.Equal(got[:len(want)], want) {
		t.Errorf("%s has %d commits, newest %.12s; want the %d that went in, newest %.12s", w.branch, len(got)-1, got[0], len(want), w.head)
	}
}

// history is an ephemeral branch's commits, newest first.
func (r *repo) history(branch string) []string {
	r.g.t.Helper()
	var all []string
	for cursor := ""; ; {
		query := []string{"branch", branch, "ephemeral", "true", "limit", "100"}
		if cursor != "" {
			query = append(query, "cursor", cursor)
		}
		a := r.get("/commits", query...)
		for _, c := range a.List("commits") {
			sha, _ := c.(map[string]any)["sha"].(string)
			all = append(all, sha)
		}
		if cursor = a.Text("next_cursor"); cursor == "" {
			return all
		}
	}
}

// grants are the leases that were told, by epoch.
type grants struct {
	mu     sync.Mutex // guards epochs
	epochs map[int64]string
}

// contend takes the lease of the session "shared" and gives it back, over and over.
func (g *grants) contend(t *testing.T, r *repo, holder string, stop *atomic.Bool) {
	for n := 0; !stop.Load(); n++ {
		a, err := r.g.Do(harness.Ask{Method: "POST", Path: r.path("/sessions/shared/lease"), Token: r.write,
			JSON: map[string]any{"action": "acquire", "holder": holder, "ttl_s": 3600, "wait_s": 1}})
		switch {
		case err == nil && (a.Status == 503 || a.Status == 409):
			continue
		case err != nil || a.Status != 200:
			t.Errorf("acquire by %s = %s, %v; want 200, 409 or 503", holder, a, err)
			return
		}
		g.add(t, number(a, "epoch"), holder)
		release := map[string]any{"action": "release", "holder": holder, "epoch": number(a, "epoch")}
		for !stop.Load() {
			a, err := r.g.Do(harness.Ask{Method: "POST", Path: r.path("/sessions/shared/lease"), Token: r.write, JSON: release})
			if err == nil && a.Status != 503 {
				break // 200, or 409 when the release that was not answered was done
			}
		}
	}
}

func (g *grants) add(t *testing.T, epoch int64, holder string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if other, twice := g.epochs[epoch]; twice {
		t.Errorf("epoch %d was granted to %s and to %s", epoch, other, holder)
	}
	g.epochs[epoch] = holder
}

// wantGaplessLog reads the log of a repo as its events: numbered without gaps, each ref
// moved from where it was, and in the end where the refs are now.
func wantGaplessLog(t *testing.T, r *repo) {
	t.Helper()
	refs := map[string]string{}
	for after := int64(0); ; {
		a := r.get("/events", "after", fmt.Sprint(after), "limit", "1000")
		if a.Status != 200 {
			t.Fatalf("events after %d = %s, want 200", after, a)
		}
		for _, e := range a.List("events") {
			event := e.(map[string]any)
			after++
			if seq, _ := event["seq"].(float64); int64(seq) != after {
				t.Fatalf("event %v has number %v, want %d: the log has a gap", event["type"], event["seq"], after)
			}
			replay(t, refs, event)
		}
		if more, _ := a.Get("has_more").(bool); !more {
			break
		}
	}
	now := r.refs(r.remote(r.read))
	for name, oid := range r.refs(r.ephemeral(r.read)) {
		now[ephemeralPrefix+strings.TrimPrefix(name, "refs/heads/")] = oid
	}
	delete(now, "HEAD")
	for ref, oid := range now {
		if refs[ref] != oid && !strings.HasSuffix(ref, "^{}") {
			t.Errorf("%s is at %s, the log has it at %q", ref, oid, refs[ref])
		}
		delete(refs, ref)
	}
	for ref, oid := range refs {
		t.Errorf("the log has %s at %s, it is not there", ref, oid)
	}
}

// replay moves refs as an event says.
func replay(t *testing.T, refs map[string]string, event map[string]any) {
	t.Helper()
	changes, _ := event["changes"].([]any)
	for _, c := range changes {
		change := c.(map[string]any)
		ref, _ := change["ref"].(string)
		before := refs[ref]
		if before == "" {
			before = zeros
		}
		if change["old_sha"] != before {
			t.Errorf("event %v moves %s from %v, it was at %s", event["seq"], ref, change["old_sha"], before)
		}
		if refs[ref], _ = change["new_sha"].(string); refs[ref] == zeros {
			delete(refs, ref)
		}
	}
}
