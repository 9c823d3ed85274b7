package integration

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// A repo is one repository on a gate, with tokens for it.
type repo struct {
	g           *gate
	name        string
	write, read string
}

var repoNumber atomic.Int64

const zeros = "0000000000000000000000000000000000000000"

// repo creates an empty repository.
func (g *gate) repo() *repo {
	g.t.Helper()
	return g.repoNamed(fmt.Sprintf("team/site-%d", repoNumber.Add(1)))
}

func (g *gate) repoNamed(name string) *repo {
	g.t.Helper()
	r := &repo{g: g, name: name}
	r.write = r.token([]tokens.Scope{tokens.GitWrite})
	r.read = r.token([]tokens.Scope{tokens.GitRead})
	g.want(201, harness.Ask{
		Method: "POST", Path: "/api/v1/repos", Token: r.token([]tokens.Scope{tokens.RepoWrite}),
		JSON: map[string]any{"default_branch": "main"},
	})
	g.repos = append(g.repos, r)
	return r
}

// seeded is a repository whose main has one commit with these files.
func (g *gate) seeded(files ...harness.File) (*repo, string) {
	g.t.Helper()
	r := g.repo()
	if len(files) == 0 {
		files = []harness.File{{Path: "README.md", Content: "hello\n"}, {Path: "src/app.go", Content: "package app\n"}}
	}
	return r, r.commit(harness.Commit{Branch: "main", Files: files})
}

// token is a token for this repo; the rules are its refs claim.
func (r *repo) token(scopes []tokens.Scope, rules ...refpolicy.Rule) string {
	r.g.t.Helper()
	return r.g.sign(tokens.Claims{Repo: r.name, Scopes: scopes, Refs: rules})
}

// sandbox is the token of a sandbox: it may fast-forward one ephemeral branch.
func (r *repo) sandbox(branch string) string {
	r.g.t.Helper()
	return r.token([]tokens.Scope{tokens.GitWrite, tokens.GitRead},
		refpolicy.Rule{Pattern: ephemeralPrefix + branch, Ops: []refpolicy.Op{refpolicy.NoForcePush}},
		refpolicy.Rule{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoPush}})
}

const ephemeralPrefix = "refs/namespaces/ephemeral/refs/heads/"

func (r *repo) path(tail string) string { return "/api/repos/" + url.PathEscape(r.name) + tail }

func (r *repo) remote(token string) string { return r.g.Remote(r.name, token, false) }

func (r *repo) ephemeral(token string) string { return r.g.Remote(r.name, token, true) }

// tryCommit sends a commit and gives what came.
func (r *repo) tryCommit(c harness.Commit) harness.Answer {
	r.g.t.Helper()
	return r.g.do(r.commitAsk(c, r.write))
}

func (r *repo) commitAsk(c harness.Commit, token string) harness.Ask {
	return r.packAsk(c.Lines(), token)
}

// packAsk is a commit-pack of these lines.
func (r *repo) packAsk(lines, token string) harness.Ask {
	return harness.Ask{
		Method: "POST", Path: r.path("/commit-pack"), Token: token, Body: strings.NewReader(lines),
		Header: map[string]string{"Content-Type": "application/x-ndjson"},
	}
}

// commit makes a commit and gives its id.
func (r *repo) commit(c harness.Commit) string {
	r.g.t.Helper()
	a := r.tryCommit(c)
	sha := a.Text("commit", "commit_sha")
	if a.Status != 201 || len(sha) != 40 {
		r.g.t.Fatalf("commit-pack to %s = %s, want 201 with a commit", c.Branch, a)
	}
	return sha
}

func (r *repo) tryBranch(body map[string]any) harness.Answer {
	r.g.t.Helper()
	return r.g.do(harness.Ask{Method: "POST", Path: r.path("/branches/create"), Token: r.write, JSON: body})
}

// session creates an ephemeral branch from base and gives its head.
func (r *repo) session(branch, base string) string {
	r.g.t.Helper()
	a := r.tryBranch(map[string]any{"target_branch": branch, "base_ref": base, "target_is_ephemeral": true})
	if a.Status != 200 || len(a.Text("commit_sha")) != 40 {
		r.g.t.Fatalf("create branch %s from %s = %s, want 200 with a commit", branch, base, a)
	}
	return a.Text("commit_sha")
}

// head is a branch's present commit, empty when the branch does not exist.
func (r *repo) head(branch string, ephemeral bool) string {
	r.g.t.Helper()
	a := r.get("/branch", "name", branch, "ephemeral", fmt.Sprint(ephemeral))
	if a.Status == 404 {
		return ""
	}
	if a.Status != 200 {
		r.g.t.Fatalf("get branch %s = %s, want 200 or 404", branch, a)
	}
	return a.Text("branch", "head_sha")
}

// get asks with pairs of query parameters.
func (r *repo) get(tail string, query ...string) harness.Answer {
	r.g.t.Helper()
	return r.g.do(harness.Ask{Path: r.path(tail) + queryOf(query), Token: r.read})
}

func queryOf(pairs []string) string {
	if len(pairs) == 0 {
		return ""
	}
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return "?" + v.Encode()
}

func (r *repo) file(ref, path string) harness.Answer {
	r.g.t.Helper()
	return r.get("/file", "ref", ref, "path", path)
}

// wantFile checks a file's bytes at a commit.
func (r *repo) wantFile(ref, path, content string) {
	r.g.t.Helper()
	a := r.file(ref, path)
	if a.Status != 200 || string(a.Body) != content {
		r.g.t.Errorf("file %s at %.12s = %d %d bytes %.80q, want %d bytes %.80q", path, ref, a.Status, len(a.Body), a.Body, len(content), content)
	}
}

// clone clones a remote into a new folder.
func (r *repo) clone(remote string, flags ...string) string {
	r.g.t.Helper()
	dir := filepath.Join(r.g.t.TempDir(), "clone")
	args := append(append([]string{"clone", "-q"}, flags...), remote, dir)
	r.g.run("", args...)
	return dir
}

// work writes a file in a clone and commits it; it gives the new commit.
func (r *repo) work(clone, path, content string) string {
	r.g.t.Helper()
	write(r.g.t, clone, path, content)
	r.g.run(clone, "add", "-A", "--", path)
	r.g.run(clone, "commit", "-q", "-m", "work on "+path)
	return r.g.run(clone, "rev-parse", "HEAD")
}

func write(t testing.TB, dir, path, content string) {
	t.Helper()
	full := filepath.Join(dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fsck clones both remotes whole and has git check them.
func (r *repo) fsck() {
	r.g.t.Helper()
	for _, remote := range []string{r.remote(r.read), r.ephemeral(r.read)} {
		dir := r.mirror(remote)
		if out := r.g.git.Run(dir, nil, "fsck", "--strict", "--full"); out.Err != nil {
			r.g.t.Errorf("git fsck of %s: %v\n%s", clip([]string{remote}), out.Err, out.All())
		}
	}
}

// mirror is a bare clone with every ref of a remote.
func (r *repo) mirror(remote string) string {
	r.g.t.Helper()
	return r.clone(remote, "--mirror")
}

// refs is what a remote shows, name to commit.
func (r *repo) refs(remote string) map[string]string {
	r.g.t.Helper()
	refs := map[string]string{}
	for line := range strings.Lines(r.g.run("", "ls-remote", "-q", remote)) {
		oid, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		refs[name] = oid
	}
	return refs
}
