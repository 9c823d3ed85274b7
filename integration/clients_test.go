package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// F-01: every client goes the whole way, over plain HTTP and over TLS with the
// tests' own CA, side by side; after each step stock git looks at what came of it.
func TestF01_ClientsOfAllAges(t *testing.T) {
	plain, secure := start(t), start(t, overTLS(t))
	secure.git.Env = secure.authority()
	secure.run("", "config", "--file", filepath.Join(secure.git.Home, ".gitconfig"), "http.sslCAInfo", secure.Cert.CAFile)
	var all errgroup.Group
	all.SetLimit(4) // some of them sleep a good deal
	for scheme, g := range map[string]*gate{"http": plain, "https": secure} {
		wide := g.wide(t)
		for _, impl := range implementations {
			if impl.plain && g.Cert != nil {
				continue
			}
			all.Go(func() error {
				t.Run(scheme+"/"+impl.name, func(t *testing.T) {
					mine := *g
					mine.t, mine.repos = t, nil
					j := &journey{t: t, g: &mine, implementation: impl, c: impl.start(t, &mine)}
					j.goes(wide)
				})
				return nil
			})
		}
	}
	_ = all.Wait() // what fails is told by each test
}

// wide makes a repository with 400 tags, each at a commit of its own.
func (g *gate) wide(t *testing.T) *repo {
	t.Helper()
	r, head := g.seeded()
	clone := r.clone(r.remote(r.write))
	var script strings.Builder
	for i := range 400 {
		fmt.Fprintf(&script, "reset refs/tags/t%d\ncommit refs/tags/t%d\ncommitter Ada <ada@example.com> %d +0000\ndata 4\nwork\nfrom %s\n", i, i, 1700000000+i, head)
	}
	if out := g.git.Run(clone, []byte(script.String()), "fast-import", "--quiet"); out.Err != nil {
		t.Fatalf("make 400 tags: %v\n%s", out.Err, out.All())
	}
	g.run(clone, "push", "-q", "--tags", "origin")
	return r
}

// A journey is one client on its way.
type journey struct {
	implementation
	t   *testing.T
	g   *gate
	c   client
	r   *repo
	dir string // its clone of r
}

func (j *journey) goes(wide *repo) {
	j.r, _ = j.g.seeded()
	stock := j.r.clone(j.r.remote(j.r.write))
	j.g.run(stock, "tag", "-a", "-m", "zero", "v0")
	j.r.work(stock, "second", "2")
	j.g.run(stock, "push", "-q", "--follow-tags", "origin", "main", "main:side")
	for _, step := range []func(){j.clones, j.lists, j.fetches, j.pushes, j.isRefused, j.isStale, j.deletes, j.tags, j.sandboxed, j.begins} {
		step()
	}
	j.clonesWide(wide)
	j.r.fsck()
}

// url is a remote as this client is given it.
func (j *journey) url(remote string) string {
	if j.byName {
		return strings.Replace(remote, "@127.0.0.1:", "@localhost:", 1)
	}
	return remote
}

func (j *journey) clone(remote, dir string, depth int) error {
	j.t.Helper()
	err := j.c.clone(j.url(remote), dir, depth)
	if err == nil && j.forgets {
		j.g.run(dir, "remote", "set-url", "origin", j.url(remote))
	}
	return err
}

// must ends the journey when a step failed.
func (j *journey) must(step string, err error) {
	j.t.Helper()
	if err != nil {
		j.t.Fatalf("%s: %s: %v", j.name, step, err)
	}
}

func (j *journey) commit(dir, path, text string) string {
	j.t.Helper()
	oid, err := j.c.commit(dir, path, text)
	j.must("commit "+path, err)
	if got := j.g.run(dir, "rev-parse", "HEAD"); got != oid {
		j.t.Errorf("%s: HEAD after commit %s = %s, want %s", j.name, path, got, oid)
	}
	return oid
}

// check has stock git look at a clone.
func (j *journey) check(step, dir string) {
	j.t.Helper()
	if out := j.g.git.Run(dir, nil, "fsck", "--strict", "--full"); out.Err != nil {
		j.t.Errorf("%s: git fsck after %s: %v\n%s", j.name, step, out.Err, out.All())
	}
}

func (j *journey) at(step, branch, want string) {
	j.t.Helper()
	if got := j.r.head(branch, false); got != want {
		j.t.Fatalf("%s: %s after %s = %q, want %q", j.name, branch, step, got, want)
	}
}

func (j *journey) clones() {
	tip := j.r.head("main", false)
	j.dir = filepath.Join(j.t.TempDir(), "whole")
	j.must("clone", j.clone(j.r.remote(j.r.write), j.dir, 0))
	j.check("clone", j.dir)
	if got := j.g.run(j.dir, "rev-parse", "HEAD", "refs/remotes/origin/side", "v0^{commit}"); got != tip+"\n"+tip+"\n"+j.g.run(j.dir, "rev-parse", tip+"~") {
		j.t.Errorf("%s: HEAD, origin/side and v0 of the clone = %q, want %s twice and its parent", j.name, got, tip)
	}
	if got := j.g.run(j.dir, "symbolic-ref", "HEAD"); got != "refs/heads/main" {
		j.t.Errorf("%s: the clone is on %s, want refs/heads/main", j.name, got)
	}
	if text, err := os.ReadFile(filepath.Join(j.dir, "README.md")); err != nil || string(text) != "hello\n" {
		j.t.Errorf("%s: README.md of the clone = %q, %v", j.name, text, err)
	}
	if j.noDepth {
		return
	}
	shallow := filepath.Join(j.t.TempDir(), "shallow")
	j.must("clone of depth 1", j.clone(j.r.remote(j.r.write), shallow, 1))
	j.check("clone of depth 1", shallow)
	if got := j.g.run(shallow, "rev-list", "HEAD"); got != tip {
		j.t.Errorf("%s: commits of a clone of depth 1 = %q, want %s alone", j.name, got, tip)
	}
}

// lists compares what the client sees with what stock git sees.
func (j *journey) lists() {
	got, err := j.c.refs(j.url(j.r.remote(j.r.read)))
	j.must("list refs", err)
	for name, oid := range j.r.refs(j.r.remote(j.r.read)) {
		if base, peeled := strings.CutSuffix(name, "^{}"); peeled && got[name] == "" && got[base] != "" {
			continue // not every library asks for what a tag points at
		}
		if got[name] != oid {
			j.t.Errorf("%s: ref %s is shown as %q, want %s", j.name, name, got[name], oid)
		}
	}
}

func (j *journey) fetches() {
	next := j.r.commit(harness.Commit{Branch: "main", Files: []harness.File{{Path: "by-api", Content: "1"}}})
	j.must("fetch", j.c.fetch(j.dir))
	j.check("fetch", j.dir)
	if got := j.g.run(j.dir, "rev-parse", "refs/remotes/origin/main"); got != next {
		j.t.Fatalf("%s: origin/main after fetch = %s, want %s", j.name, got, next)
	}
	j.g.run(j.dir, "merge", "-q", "--ff-only", "origin/main")
	j.must("fetch of nothing", j.c.fetch(j.dir))
}

func (j *journey) pushes() {
	oid := j.commit(j.dir, "one", "1\n")
	j.must("fast-forward push", j.c.push(j.dir, "refs/heads/main:refs/heads/main"))
	j.at("fast-forward push", "main", oid)
	j.must("push of a new branch", j.c.push(j.dir, "refs/heads/main:refs/heads/topic"))
	j.at("push of a new branch", "topic", oid)
	next := j.commit(j.dir, "two", "2\n")
	j.must("push to the new branch", j.c.push(j.dir, "refs/heads/main:refs/heads/topic"))
	j.at("push to the new branch", "topic", next)
	j.at("push to the new branch", "main", oid)
}

// isRefused pushes to main with a token that may not, and then what the same token may.
func (j *journey) isRefused() {
	main, oid := j.r.head("main", false), j.g.run(j.dir, "rev-parse", "HEAD")
	token := j.r.token([]tokens.Scope{tokens.GitWrite}, refpolicy.Rule{Pattern: "main", Ops: []refpolicy.Op{refpolicy.NoPush}})
	j.g.run(j.dir, "remote", "set-url", "origin", j.url(j.r.remote(token)))
	j.wantRefusal("push to main with no-push", j.c.push(j.dir, "refs/heads/main:refs/heads/main"), "denied by policy")
	j.at("refused push", "main", main)
	j.must("push of an allowed branch with the same token", j.c.push(j.dir, "refs/heads/main:refs/heads/allowed"))
	j.at("allowed push", "allowed", oid)
	j.g.run(j.dir, "remote", "set-url", "origin", j.url(j.r.remote(j.r.write)))
}

func (j *journey) wantRefusal(step string, err error, words string) {
	j.t.Helper()
	if err == nil {
		j.t.Fatalf("%s: %s succeeded, want it refused", j.name, step)
	}
	if !regexp.MustCompile(words).MatchString(err.Error()) {
		j.t.Errorf("%s: %s was told %q, want %q in it", j.name, step, err, words)
	}
}

// isStale pushes what does not descend from main any more: refused; with force and a
// token that may not force: refused by the server; with force: done.
func (j *journey) isStale() {
	moved := j.r.commit(harness.Commit{Branch: "main", Files: []harness.File{{Path: "by-api", Content: "2"}}})
	j.must("fetch", j.c.fetch(j.dir))
	oid := j.commit(j.dir, "three", "3\n")
	j.wantRefusal("stale push", j.c.push(j.dir, "refs/heads/main:refs/heads/main"), `(?i)fast.?forward|behind|diverged|rejected`)
	j.at("stale push", "main", moved)
	token := j.r.token([]tokens.Scope{tokens.GitWrite}, refpolicy.Rule{Pattern: "main", Ops: []refpolicy.Op{refpolicy.NoForcePush}})
	j.g.run(j.dir, "remote", "set-url", "origin", j.url(j.r.remote(token)))
	j.wantRefusal("forced push with no-force-push", j.c.push(j.dir, "+refs/heads/main:refs/heads/main"), "force push.*denied by policy")
	j.at("forced push with no-force-push", "main", moved)
	j.g.run(j.dir, "remote", "set-url", "origin", j.url(j.r.remote(j.r.write)))
	j.must("forced push", j.c.push(j.dir, "+refs/heads/main:refs/heads/main"))
	j.at("forced push", "main", oid)
}

func (j *journey) deletes() {
	j.must("delete a branch", j.c.push(j.dir, ":refs/heads/topic"))
	j.at("its deletion", "topic", "")
	j.wantRefusal("deletion of the default branch", j.c.push(j.dir, ":refs/heads/main"), "deletion of the current branch prohibited")
}

func (j *journey) tags() {
	head := j.g.run(j.dir, "rev-parse", "HEAD")
	j.must("tag", j.c.tag(j.dir, "light", ""))
	j.must("annotated tag", j.c.tag(j.dir, "v1", "one\n"))
	for _, name := range []string{"light", "v1"} {
		spec := "refs/tags/" + name
		j.must("push of tag "+name, j.c.push(j.dir, spec+":"+spec))
	}
	refs := j.r.refs(j.r.remote(j.r.read))
	if refs["refs/tags/light"] != head || refs["refs/tags/v1^{}"] != head || refs["refs/tags/v1"] != j.g.run(j.dir, "rev-parse", "v1") {
		j.t.Errorf("%s: refs after pushes of tags at %s = %v", j.name, head, refs)
	}
	j.must("delete a tag", j.c.push(j.dir, ":refs/tags/light"))
	if refs := j.r.refs(j.r.remote(j.r.read)); refs["refs/tags/light"] != "" || refs["refs/tags/v1"] == "" {
		j.t.Errorf("%s: refs after deletion of tag light = %v", j.name, refs)
	}
}

// sandboxed is what a sandbox does: clone, commit, push, and name nothing.
func (j *journey) sandboxed() {
	base := j.r.session("sessions/1", "main")
	j.r.session("sessions/2", "main")
	token := j.r.token([]tokens.Scope{tokens.GitWrite},
		refpolicy.Rule{Pattern: ephemeralPrefix + "sessions/1", Ops: []refpolicy.Op{refpolicy.NoForcePush}},
		refpolicy.Rule{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}})
	dir := filepath.Join(j.t.TempDir(), "sandbox")
	j.must("clone of the ephemeral remote", j.clone(j.r.ephemeral(token), dir, 0))
	if got := j.g.run(dir, "symbolic-ref", "HEAD"); got != "refs/heads/sessions/1" {
		j.t.Errorf("%s: the sandbox's clone is on %s, want refs/heads/sessions/1", j.name, got)
	}
	refs, err := j.c.refs(j.url(j.r.ephemeral(token)))
	if j.must("list refs of the ephemeral remote", err); len(refs) != 2 || refs["HEAD"] != base || refs["refs/heads/sessions/1"] != base {
		j.t.Errorf("%s: the sandbox sees %v, want HEAD and its branch at %s", j.name, refs, base)
	}
	oid := j.commit(dir, "state", "1\n")
	j.must("push of the sandbox", j.c.push(dir))
	if got := j.r.head("sessions/1", true); got != oid {
		j.t.Errorf("%s: sessions/1 after the sandbox's push = %s, want %s", j.name, got, oid)
	}
	j.wantRefusal("push to another's session", j.c.push(dir, "refs/heads/sessions/1:refs/heads/sessions/2"), `denied by policy|(?i)fast.?forward`)
	if got := j.r.head("sessions/2", true); got != base {
		j.t.Errorf("%s: sessions/2 after the sandbox's push to it = %s, want %s", j.name, got, base)
	}
	j.check("the sandbox's work", dir)
}

// begins makes the first commit of an empty repository.
func (j *journey) begins() {
	r := j.g.repo()
	dir := filepath.Join(j.t.TempDir(), "empty")
	err := j.clone(r.remote(r.write), dir, 0)
	if j.noEmpty {
		if err == nil {
			err = errors.New("it can, the table says it cannot")
		} else {
			j.g.run("", "init", "-q", dir)
			j.g.run(dir, "remote", "add", "origin", j.url(r.remote(r.write)))
			err = nil
		}
	}
	j.must("clone of an empty repository", err)
	oid := j.commit(dir, "first", "1\n")
	// Which branch the default one is, versions before 2 do not say of an empty repository.
	j.must("first push", j.c.push(dir, j.g.run(dir, "symbolic-ref", "HEAD")+":refs/heads/main"))
	if got := r.head("main", false); got != oid {
		j.t.Errorf("%s: main after the first push = %q, want %s", j.name, got, oid)
	}
	r.fsck()
}

func (j *journey) clonesWide(wide *repo) {
	dir := filepath.Join(j.t.TempDir(), "wide")
	j.must("clone of 400 tags", j.clone(wide.remote(wide.read), dir, 0))
	if got := len(strings.Fields(j.g.run(dir, "tag"))); got != 400 {
		j.t.Errorf("%s: the clone has %d tags, want 400", j.name, got)
	}
	j.check("clone of 400 tags", dir)
}
