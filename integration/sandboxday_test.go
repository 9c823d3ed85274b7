package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/integration/harness"
)

// A sandbox's day with plain git: it clones, works, loses its lease to another, is
// refused with a sentence that says what to do, and the work is resumed elsewhere from
// the pointer (PI-6, PI-19, PI-21, PN-18, PN-27, A-01, A-12, A-16).
func TestPI21_SandboxesDay(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, main := g.seeded(harness.File{Path: "task.md", Content: "do it\n"})
		made := g.want(201, harness.Ask{Method: "POST", Path: r.path("/sessions"), Token: r.write, JSON: map[string]any{
			"base_ref": "main", "holder": "sandbox-1", "labels": map[string]string{"task": "7"},
		}})
		id, branch := made.Text("id"), made.Text("branch")
		if made.Text("head_sha") != main || made.Text("base_sha") != main || made.Text("repo_name") != r.name || made.Get("epoch") != 1.0 || made.Text("lease", "holder") != "sandbox-1" {
			t.Fatalf("create session = %s, want it at %s, epoch 1, held by sandbox-1", made, main)
		}
		first := g.want(201, harness.Ask{Method: "POST", Path: r.path("/sessions/" + id + "/tokens"), Token: r.write, JSON: map[string]any{}})

		// A clone without flags stands on the session's branch; commit and push need none either.
		work := filepath.Join(t.TempDir(), "work")
		g.run(".", "clone", "-q", r.ephemeral(first.Text("token")), work)
		if got := g.run(work, "rev-parse", "--abbrev-ref", "HEAD"); got != branch {
			t.Errorf("the clone is on %q, want %q", got, branch)
		}
		pushWork(g, work, "1")
		head := g.run(work, "rev-parse", "HEAD")
		if shown := g.want(200, harness.Ask{Path: r.path("/sessions/" + id), Token: r.read}); shown.Text("pointer", "sha") != head {
			t.Errorf("the session after a push = %s, want its pointer at %s", shown, head)
		}

		// It renews with nothing but the token.
		renewed := g.want(201, harness.Ask{Method: "POST", Path: "/api/tokens/renew", Token: first.Text("token"), JSON: map[string]any{}})
		g.run(work, "remote", "set-url", "origin", r.ephemeral(renewed.Text("token")))
		pushWork(g, work, "2")
		head = g.run(work, "rev-parse", "HEAD")

		// Somebody takes over: even a fast-forward of the old writer is refused, in words.
		lease := g.want(200, harness.Ask{Method: "POST", Path: r.path("/sessions/" + id + "/lease"), Token: r.write, JSON: map[string]any{
			"action": "takeover", "holder": "sandbox-2", "ttl_s": 600,
		}})
		if lease.Get("epoch") != 2.0 {
			t.Errorf("takeover = %s, want epoch 2", lease)
		}
		commitWork(g, work, "3")
		said := g.refused(work, "push", "origin", "HEAD")
		wantHas(t, "the refused push", said, "stale epoch 1, session is at 2")
		if strings.Contains(said, renewed.Text("token")) {
			t.Error("the refusal shows the token")
		}
		if got := r.head(branch, true); got != head {
			t.Errorf("the branch is at %s after a stale push, want %s", got, head)
		}
		a := g.do(harness.Ask{Method: "POST", Path: "/api/tokens/renew", Token: renewed.Text("token"), JSON: map[string]any{}})
		if a.Status != 403 || a.Text("code") != "stale_epoch" {
			t.Errorf("renew by the old writer = %s, want 403 stale_epoch", a)
		}

		// Elsewhere the work goes on from the pointer.
		second := g.want(201, harness.Ask{Method: "POST", Path: r.path("/sessions/" + id + "/tokens"), Token: r.write, JSON: map[string]any{}})
		other := filepath.Join(t.TempDir(), "other")
		g.run(".", "clone", "-q", r.ephemeral(second.Text("token")), other)
		if got := g.run(other, "rev-parse", "HEAD"); got != head {
			t.Errorf("the new sandbox begins at %s, want %s", got, head)
		}
		pushWork(g, other, "4")
		refusedElsewhere(t, g, r, other, second.Text("token"))

		// The session ends with its branch, and its tokens with it.
		g.want(409, harness.Ask{Method: "DELETE", Path: r.path("/sessions/" + id), Token: r.write})
		ended := g.want(200, harness.Ask{Method: "DELETE", Path: r.path("/sessions/" + id + "?holder=sandbox-2"), Token: r.write})
		if bytes, _ := ended.Get("bytes_freed").(float64); bytes <= 0 {
			t.Errorf("end of a session with work of its own = %s, want the bytes it frees", ended)
		}
		if a := g.do(harness.Ask{Path: "/api/whoami", Token: second.Text("token")}); a.Status != 401 {
			t.Errorf("whoami with a token of an ended session = %s, want 401", a)
		}
		if out := g.refused(".", "ls-remote", r.ephemeral(second.Text("token"))); strings.Contains(out, "refs/heads") {
			t.Errorf("a token of an ended session lists %s", out)
		}
		r.wantFile(head, "work", "2")
	})
}

// refusedElsewhere tries what a session's token must not do.
func refusedElsewhere(t *testing.T, g *gate, r *repo, work, token string) {
	t.Helper()
	before := r.head("main", false)
	wantHas(t, "a push to another session", g.refused(work, "push", "origin", "HEAD:refs/heads/sessions/another"), "[remote rejected]")
	g.refused(work, "push", r.remote(token), "HEAD:refs/heads/main")
	g.refused(work, "push", "--force", "origin", "HEAD~1:refs/heads/"+g.run(work, "rev-parse", "--abbrev-ref", "HEAD"))
	if after := r.head("main", false); after != before {
		t.Errorf("main went from %s to %s by a session's token", before, after)
	}
	for _, ask := range []harness.Ask{
		{Method: "POST", Path: r.path("/sessions"), JSON: map[string]any{"base_ref": "main"}},
		{Method: "GET", Path: r.path("/sessions")},
		{Method: "DELETE", Path: r.path("/branches"), JSON: map[string]any{"target_branch": "main"}},
	} {
		ask.Token = token
		if a := g.do(ask); a.Status != 403 {
			t.Errorf("%s %s by a session's token = %s, want 403", ask.Method, ask.Path, a)
		}
	}
}

func commitWork(g *gate, work, content string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(work, "work"), []byte(content), 0o644); err != nil {
		g.t.Fatal(err)
	}
	g.run(work, "add", "work")
	g.run(work, "commit", "-q", "-m", "work "+content)
}

func pushWork(g *gate, work, content string) {
	g.t.Helper()
	commitWork(g, work, content)
	g.run(work, "push", "-q")
}

// The credential helper tells git the newest token and renews it, so that a sandbox
// works on for longer than any of its tokens lives.
func TestA12_CredentialHelperRenews(t *testing.T) {
	g := start(t, withConfig("[sessions]\ntoken_ttl = \"10s\"\n"))
	r, _ := g.seeded()
	made := g.want(201, harness.Ask{Method: "POST", Path: r.path("/sessions"), Token: r.write, JSON: map[string]any{"base_ref": "main", "holder": "sandbox"}})
	id := made.Text("id")
	issued := g.want(201, harness.Ask{Method: "POST", Path: r.path("/sessions/" + id + "/tokens"), Token: r.write, JSON: map[string]any{}})
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(issued.Text("token")), 0o600); err != nil {
		t.Fatal(err)
	}
	helper := fmt.Sprintf("!%s git-credential --server %s --token-file %s", g.Program, g.URL, file)
	work := filepath.Join(t.TempDir(), "work")
	remote := g.URL + "/" + r.name + "+ephemeral.git"
	g.run(".", "-c", "credential.helper="+helper, "clone", "-q", remote, work)
	g.run(work, "config", "credential.helper", helper)
	for n := 0; ; n++ {
		pushWork(g, work, fmt.Sprint(n))
		now, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(now)); got != issued.Text("token") {
			break // pushed with a token that the helper has renewed
		}
	}
	if got, want := r.head(made.Text("branch"), true), g.run(work, "rev-parse", "HEAD"); got != want {
		t.Errorf("the branch is at %s, want %s", got, want)
	}
}
