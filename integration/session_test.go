package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/tokens"
)

func TestA01_SessionBranchFromDefaultBranch(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, main := g.seeded()
		a := r.tryBranch(map[string]any{"target_branch": "sessions/1", "base_ref": "main", "target_is_ephemeral": true})
		if a.Status != 200 || a.Text("commit_sha") != main || a.Text("repo_name") != r.name || a.Text("ref") != ephemeralPrefix+"sessions/1" {
			t.Errorf("create branch = %s, want 200 with repo %s, ref and %s", a, r.name, main)
		}
		if got := r.head("sessions/1", true); got != main {
			t.Errorf("head of sessions/1 = %s, want %s", got, main)
		}
		if got := r.head("sessions/1", false); got != "" {
			t.Errorf("the ordinary branch sessions/1 = %s, want none", got)
		}
		normal, ephemeral := r.refs(r.remote(r.read)), r.refs(r.ephemeral(r.read))
		for name := range normal {
			if strings.Contains(name, "sessions/1") || strings.Contains(name, "namespaces") {
				t.Errorf("the main remote shows %s", name)
			}
		}
		if ephemeral["refs/heads/sessions/1"] != main {
			t.Errorf("the ephemeral remote shows %v, want refs/heads/sessions/1 at %s", ephemeral, main)
		}
		if _, there := ephemeral["refs/heads/main"]; there {
			t.Errorf("the ephemeral remote shows refs/heads/main: %v", ephemeral)
		}
	})
}

// PI-1, PI-2, PI-4, PI-5: states of a session are commits on one ephemeral branch,
// which a plain clone does not get, and stay readable when the writer is gone.
func TestPI04_IntermediateWorkStaysOutOfNormalBranches(t *testing.T) {
	g := start(t)
	r, main := g.seeded()
	r.session("sessions/1", "main")
	var states []string
	head := main
	for i := range 5 {
		head = r.commit(harness.Commit{Branch: "sessions/1", Ephemeral: true, Expected: head, Files: []harness.File{{Path: "state.txt", Content: fmt.Sprint(i)}}})
		states = append(states, head)
	}
	clone := r.clone(r.remote(r.read))
	for _, state := range states {
		if out := g.git.Run(clone, nil, "cat-file", "-e", state); out.Err == nil {
			t.Errorf("a plain clone has the session's commit %s", state)
		}
	}
	if got := g.run(clone, "rev-list", "--all", "--count"); got != "1" {
		t.Errorf("a plain clone has %s commits, want 1", got)
	}
	if err := g.Stop(stopLimit); err != nil {
		t.Fatal(err)
	}
	if err := g.Restart(); err != nil {
		t.Fatal(err)
	}
	for i, state := range states {
		r.wantFile(state, "state.txt", fmt.Sprint(i))
	}
}

func TestA02_SessionBranchFromFullSHA(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, first := g.seeded()
		r.commit(harness.Commit{Branch: "main", Expected: first, Files: []harness.File{{Path: "b", Content: "b"}}})
		if got := r.session("sessions/old", first); got != first {
			t.Errorf("create branch from %s = %s", first, got)
		}
		other, elsewhere := g.seeded(harness.File{Path: "other", Content: "other"})
		for _, base := range []string{"1234567890123456789012345678901234567890", elsewhere, zeros} {
			a := r.tryBranch(map[string]any{"target_branch": "sessions/none", "base_ref": base, "target_is_ephemeral": true})
			if a.Status != 404 || a.Text("code") != "object_not_found" {
				t.Errorf("create branch from %s = %s, want 404 object_not_found", base, a)
			}
			if head := r.head("sessions/none", true); head != "" {
				t.Errorf("a refused create left sessions/none at %s", head)
			}
		}
		if other.head("main", false) != elsewhere {
			t.Error("another repo's branch moved")
		}
	})
}

func TestA03_CommitWithTheRightHead(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, main := g.seeded(harness.File{Path: "a", Content: "a"}, harness.File{Path: "d/b", Content: "b"})
		r.session("s", "main")
		a := r.tryCommit(harness.Commit{Branch: "s", Ephemeral: true, Expected: main, Message: "state 1\n\nlonger", Files: []harness.File{{Path: "d/c", Content: "c"}}})
		sha := a.Text("commit", "commit_sha")
		if a.Status != 201 || a.Text("result", "old_sha") != main || a.Text("result", "new_sha") != sha || a.Get("result", "success") != true || a.Text("result", "status") != "ok" {
			t.Fatalf("commit-pack = %s, want 201, old %s and the new commit", a, main)
		}
		commit := r.get("/commit", "sha", sha)
		if p := commit.List("commit", "parent_shas"); len(p) != 1 || p[0] != main || commit.Text("commit", "message") != "state 1\n\nlonger" {
			t.Errorf("commit = %s, want parent %s and the message sent", commit, main)
		}
		clone := r.clone(r.ephemeral(r.read), "-b", "s")
		if got := g.run(clone, "diff", "--name-status", main, sha); got != "A\td/c" {
			t.Errorf("git diff = %q, want only d/c added", got)
		}
		r.wantFile(sha, "a", "a")
		r.wantFile(sha, "d/b", "b")
		r.wantFile(sha, "d/c", "c")
	})
}

// The losing writer learns what the head is and who moved it (PI-12, PI-13).
func TestA04_StaleHeadIsRefused(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, main := g.seeded()
		r.session("s", "main")
		winner := g.sign(tokens.Claims{Repo: r.name, Subject: "winner", Scopes: []tokens.Scope{tokens.GitWrite}})
		won := g.want(201, r.commitAsk(harness.Commit{Branch: "s", Ephemeral: true, Expected: main, Files: []harness.File{{Path: "f", Content: "won"}}}, winner))
		head := won.Text("commit", "commit_sha")
		a := r.tryCommit(harness.Commit{Branch: "s", Ephemeral: true, Expected: main, Files: []harness.File{{Path: "f", Content: "lost"}}})
		if a.Status != 409 || a.Text("result", "status") != "precondition_failed" || a.Get("result", "success") != false {
			t.Fatalf("stale commit = %s, want 409 precondition_failed", a)
		}
		if a.Text("result", "old_sha") != head || a.Text("result", "last_writer", "sub") != "winner" || a.Text("result", "last_writer", "at") == "" {
			t.Errorf("stale commit = %s, want the head %s and last writer winner", a, head)
		}
		if v, there := a.Get("commit").(map[string]any); there || v != nil {
			t.Errorf("stale commit = %s, want commit null", a)
		}
		if got := r.head("s", true); got != head {
			t.Errorf("head = %s after a refused write, want %s", got, head)
		}
	})
}

func TestA06_DeleteAndRepeatedPaths(t *testing.T) {
	g := start(t)
	r, main := g.seeded(harness.File{Path: "keep", Content: "k"}, harness.File{Path: "dir/gone", Content: "g"}, harness.File{Path: "dir/stays", Content: "s"})
	head := r.commit(harness.Commit{Branch: "main", Expected: main, Files: []harness.File{
		{Path: "dir/gone", Delete: true},
		{Path: "twice", Content: "first"}, {Path: "twice", Content: "second"},
		{Path: "back", Content: "x"}, {Path: "back", Delete: true},
		{Path: "keep", Delete: true}, {Path: "keep", Content: "again"},
	}})
	for path, content := range map[string]string{"keep": "again", "dir/stays": "s", "twice": "second"} {
		r.wantFile(head, path, content)
	}
	for _, path := range []string{"dir/gone", "back"} {
		if a := r.file(head, path); a.Status != 404 {
			t.Errorf("file %s = %s, want 404", path, a)
		}
	}
	// PI-22: several paths, one commit.
	if got := g.run(r.clone(r.remote(r.read)), "rev-list", "--count", "HEAD"); got != "2" {
		t.Errorf("main has %s commits, want 2", got)
	}
}
