package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// A sandbox may fast-forward its own branch. Everything else it tries is refused
// ref by ref, git shows why, and what stands beside it in the push goes through.
func TestA11_SandboxMovesOneBranch(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, main := g.seeded()
		r.session("a", "main")
		r.session("b", "main")
		sandbox := r.sandbox("a")
		// OQ-G14: HEAD of the ephemeral remote is the one branch, so no flags are needed.
		clone := r.clone(r.ephemeral(sandbox))
		if got := g.run(clone, "symbolic-ref", "HEAD"); got != "refs/heads/a" {
			t.Fatalf("a sandbox's clone is on %s, want refs/heads/a", got)
		}
		one := r.work(clone, "one", "1")
		g.run(clone, "push", "-q")
		if got := r.head("a", true); got != one {
			t.Fatalf("head of a = %s after a push, want %s", got, one)
		}
		two := r.work(clone, "two", "2")
		g.run(clone, "branch", "-q", "rewound", main)
		g.run(clone, "remote", "add", "normal", r.remote(sandbox))
		for _, tc := range []struct {
			name, remote string
			specs        []string
			want         []string
		}{
			{"main", "normal", []string{"HEAD:refs/heads/main"}, []string{"push to refs/heads/main denied by policy"}},
			{"a tag", "normal", []string{"HEAD:refs/tags/v1"}, []string{"refs/tags/v1 denied by policy"}},
			{"a new branch", "normal", []string{"HEAD:refs/heads/n"}, []string{"denied by policy"}},
			{"notes", "normal", []string{"HEAD:refs/notes/commits"}, []string{"denied by policy"}},
			{"another session", "origin", []string{"HEAD:refs/heads/b"}, []string{"denied by policy"}},
			{"deleting its own", "origin", []string{":refs/heads/a"}, []string{"denied by policy"}},
			{"rewinding its own", "origin", []string{"+rewound:refs/heads/a"}, []string{"force push", "denied by policy"}},
			{"a hidden ref", "normal", []string{"HEAD:refs/namespaces/ephemeral/refs/heads/a"}, []string{"hidden ref"}},
		} {
			out := g.refused(clone, append([]string{"push", tc.remote}, tc.specs...)...)
			wantHas(t, "push of "+tc.name, out, append(tc.want, "[remote rejected]")...)
			if !strings.Contains(out, "remote: ") {
				t.Errorf("push of %s = %s, want a line from the remote that helps", tc.name, out)
			}
		}
		if r.head("main", false) != main || r.head("b", true) != main || r.head("a", true) != one {
			t.Errorf("refused pushes moved main to %s, b to %s, a to %s", r.head("main", false), r.head("b", true), r.head("a", true))
		}
		out := g.refused(clone, "push", "origin", "HEAD:refs/heads/a", "HEAD:refs/heads/b")
		wantHas(t, "push of a and b", out, "HEAD -> a", "denied by policy")
		if r.head("a", true) != two || r.head("b", true) != main {
			t.Errorf("a and b in one push: a at %s, b at %s; want %s and %s", r.head("a", true), r.head("b", true), two, main)
		}
		if refs := r.refs(r.remote(r.read)); len(refs) != 2 {
			t.Errorf("main remote shows %v, want HEAD and main alone", refs)
		}
	})
}

// The same rules hold for the calls that move refs (PI-19).
func TestPI19_PoliciesHoldOnTheAPI(t *testing.T) {
	g := start(t)
	r, main := g.seeded()
	r.session("a", "main")
	sandbox := r.sandbox("a")
	r.session("b", "main")
	state := g.want(201, r.commitAsk(harness.Commit{Branch: "a", Ephemeral: true, Files: []harness.File{{Path: "x", Content: "x"}}}, sandbox)).Text("commit", "commit_sha")
	for name, ask := range map[string]harness.Ask{
		"commit to main":   r.commitAsk(harness.Commit{Branch: "main", Files: []harness.File{{Path: "x", Content: "x"}}}, sandbox),
		"commit to b":      r.commitAsk(harness.Commit{Branch: "b", Ephemeral: true, Files: []harness.File{{Path: "x", Content: "x"}}}, sandbox),
		"create a branch":  {Method: "POST", Path: r.path("/branches/create"), JSON: map[string]any{"target_branch": "n", "base_ref": "main"}},
		"create existing":  {Method: "POST", Path: r.path("/branches/create"), JSON: map[string]any{"target_branch": "main", "base_ref": state}}, // OQ-S8
		"force its own":    {Method: "POST", Path: r.path("/branches/create"), JSON: map[string]any{"target_branch": "a", "target_is_ephemeral": true, "base_ref": "main", "force": true}},
		"delete its own":   {Method: "DELETE", Path: r.path("/branches"), JSON: map[string]any{"name": "a", "ephemeral": true}},
		"delete another's": {Method: "DELETE", Path: r.path("/branches"), JSON: map[string]any{"target_branch": "b", "ephemeral": true}},
	} {
		ask.Token = sandbox
		a := g.do(ask)
		if a.Status != 403 || !strings.Contains(a.Text("error"), "denied by policy") || a.Text("code") != "policy_denied" {
			t.Errorf("%s = %s, want 403 policy_denied", name, a)
		}
		if strings.HasPrefix(name, "commit") && a.Text("result", "status") != "forbidden" {
			t.Errorf("%s = %s, want result.status forbidden", name, a)
		}
	}
	if r.head("main", false) != main || r.head("a", true) != state || r.head("b", true) != main || r.head("n", false) != "" {
		t.Error("a refused call moved a branch")
	}
}

func TestCase2_1_BranchBelowABranch(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, _ := g.seeded()
		for _, branch := range []string{"dev", "a/b"} {
			if a := r.tryBranch(map[string]any{"target_branch": branch, "base_branch": "main"}); a.Status != 200 {
				t.Fatalf("create %s = %s, want 200", branch, a)
			}
		}
		clone := r.clone(r.remote(r.write))
		r.work(clone, "x", "x")
		for branch, there := range map[string]string{"dev/x": "dev", "a": "a/b"} {
			out := g.refused(clone, "push", "origin", "HEAD:refs/heads/"+branch)
			wantHas(t, "push of "+branch, out, "[remote rejected]")
			if a := r.tryBranch(map[string]any{"target_branch": branch, "base_branch": "main"}); a.Status != 409 || !strings.Contains(a.Text("error"), there) {
				t.Errorf("create %s = %s, want 409 naming %s", branch, a, there)
			}
			a := r.tryCommit(harness.Commit{Branch: branch, Base: "main", Files: []harness.File{{Path: "y", Content: "y"}}})
			if a.Status != 409 || a.Text("result", "status") != "conflict" || !strings.Contains(a.Text("error"), there) {
				t.Errorf("commit to %s = %s, want 409 conflict naming %s", branch, a, there)
			}
		}
	})
}

func TestCase2_2_Deletions(t *testing.T) {
	g := start(t)
	r, main := g.seeded()
	r.tryBranch(map[string]any{"target_branch": "topic", "base_branch": "main"})
	clone := r.clone(r.remote(r.write))
	g.run(clone, "push", "-q", "origin", ":topic")
	if got := r.head("topic", false); got != "" {
		t.Errorf("topic = %s after its deletion", got)
	}
	report := r.rawPush(false, "", pushCommand{zeros, zeros, "refs/heads/nope"})
	wantHas(t, "deleting a ref that is not there", report, "unpack ok", "ok refs/heads/nope")
	wantHas(t, "deleting the default branch", g.refused(clone, "push", "origin", ":main"), "deletion of the current branch prohibited")
	if got := r.head("main", false); got != main {
		t.Errorf("main = %s, want %s", got, main)
	}
	a := g.do(harness.Ask{Method: "DELETE", Path: r.path("/branches"), Token: r.write, JSON: map[string]any{"name": "main"}})
	if a.Status != 409 {
		t.Errorf("DELETE of the default branch = %s, want 409", a)
	}
	for name, status := range map[string]int{"refs/heads/main": 400, "missing": 404, "": 400} {
		if a := g.do(harness.Ask{Method: "DELETE", Path: r.path("/branches"), Token: r.write, JSON: map[string]any{"name": name}}); a.Status != status {
			t.Errorf("DELETE of branch %q = %s, want %d", name, a, status)
		}
	}
}

func TestCase2_3_RefNamesByPush(t *testing.T) {
	g := start(t)
	r, main := g.seeded()
	clone := r.clone(r.remote(r.write))
	wantHas(t, "push to refs/foo", g.refused(clone, "push", "origin", "HEAD:refs/foo"), "funny refname")
	for _, name := range []string{"refs/heads/a..b", "refs/heads/x.lock", "heads/x", "refs/heads/", "HEAD", "refs/heads/-a b", "refs/heads/a\x01b", "refs/heads/" + strings.Repeat("n", 5000)} {
		report := r.rawPush(false, "", pushCommand{zeros, main, name})
		if strings.Contains(report, "ok "+name) && !strings.Contains(report, "ng "+name) {
			t.Errorf("push of %.40q = %.300q, want it refused", name, report)
		}
	}
	// git takes refs/heads/HEAD; whatever we say, HEAD stays what it is.
	g.git.Run(clone, nil, "push", "origin", "HEAD:refs/heads/HEAD")
	if a := g.do(harness.Ask{Path: r.path(""), Token: r.read}); a.Text("default_branch") != "main" {
		t.Errorf("default branch = %s", a)
	}
	if refs := r.refs(r.remote(r.read)); refs["HEAD"] != main {
		t.Errorf("HEAD = %s, want %s; refs %v", refs["HEAD"], main, refs)
	}
}

func TestCase2_4_RefNamesByAPI(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	bad := []string{"a..b", "a.lock", "x.lock/y", "a@{b", "a.", ".a", "a/.b", "a//b", "a/", "/a", "a b", "a~b", "a^b", "a:b", "a?b", "a*b", "a[b", `a\b`, "a\tb", "a\x7fb", "HEAD", "-a", "--x=y", "../../config", "", "refs/tags/x", "refs/namespaces/ephemeral/refs/heads/x", strings.Repeat("n", 5000)}
	for _, name := range bad {
		for _, ephemeral := range []bool{false, true} {
			a := r.tryBranch(map[string]any{"target_branch": name, "base_ref": "main", "target_is_ephemeral": ephemeral})
			if a.Status != 400 || a.Text("error") == "" {
				t.Errorf("create branch %.40q = %s, want 400", name, a)
			}
			a = r.tryCommit(harness.Commit{Branch: name, Base: "main", Ephemeral: ephemeral, Files: []harness.File{{Path: "f", Content: "f"}}})
			if a.Status != 400 || a.Text("result", "status") != "invalid" {
				t.Errorf("commit to %.40q = %s, want 400 invalid", name, a)
			}
		}
	}
	for _, name := range []string{"ok/é", "a.LOCK", "@a", "{", "1.0", "feature/x-y_z"} {
		if a := r.tryBranch(map[string]any{"target_branch": name, "base_ref": "main"}); a.Status != 200 {
			t.Errorf("create branch %q = %s, want 200", name, a)
		}
	}
	if a := r.get("/branches", "limit", "100"); len(a.List("branches")) != 7 {
		t.Errorf("branches = %s, want main and the six good names", a)
	}
}

func TestCase2_5_AtomicOrNot(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, _ := g.seeded()
		clone := r.clone(r.remote(r.write))
		head := r.work(clone, "x", "x")
		out := g.refused(clone, "push", "--atomic", "origin", "HEAD:refs/heads/n1", "HEAD:refs/heads/main/x")
		wantHas(t, "atomic push", out, "atomic")
		if got := r.head("n1", false); got != "" {
			t.Errorf("n1 = %s after a refused atomic push", got)
		}
		g.refused(clone, "push", "origin", "HEAD:refs/heads/n1", "HEAD:refs/heads/main/x")
		if got := r.head("n1", false); got != head {
			t.Errorf("n1 = %q after a push with one refused, want %s", got, head)
		}
	})
}

// A rule stops what it names and lets through what an earlier one allows.
func TestRulesAreFirstMatch(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	token := r.token([]tokens.Scope{tokens.GitWrite}, refpolicy.Rule{Pattern: "agents/*"}, refpolicy.Rule{Pattern: "refs/heads/odd", Ops: []refpolicy.Op{"no-such-op"}}, refpolicy.Rule{Pattern: "refs/heads/*", Ops: []refpolicy.Op{refpolicy.NoPush}})
	clone := r.clone(r.remote(token))
	r.work(clone, "x", "x")
	for ref, allowed := range map[string]bool{"refs/heads/agents/1": true, "refs/heads/agents/1/2": false, "refs/heads/agents": false, "refs/heads/odd": false, "refs/tags/t": true} {
		out := g.git.Run(clone, nil, "push", "origin", "HEAD:"+ref)
		if ref == "refs/heads/agents/1/2" {
			continue // a folder of a branch, refused for that
		}
		if (out.Err == nil) != allowed {
			t.Errorf("push of %s: %v, want allowed %v\n%s", ref, out.Err, allowed, out.All())
		}
	}
	// refs/heads/* does not touch ephemeral branches.
	r.session("s", "main")
	g.run(clone, "push", "-q", r.ephemeral(token), "HEAD:refs/heads/s")
	a := g.do(harness.Ask{Path: "/api/whoami", Token: token})
	if a.Status != 200 || a.Text("repo_name") != r.name || len(a.List("refs")) != 3 || fmt.Sprint(a.List("scopes")) != "[git:write]" {
		t.Errorf("whoami = %s, want repo, scope and three rules", a)
	}
}
