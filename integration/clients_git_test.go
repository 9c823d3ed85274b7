package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/integration/harness"
)

// F-01, cases 1.5 and 1.6: histories are cut and lengthened as git can, in both
// versions that do it.
func TestCase1_5_DeepenAndUnshallow(t *testing.T) {
	g := start(t)
	r, first := g.seeded()
	work := r.clone(r.remote(r.write))
	for day := range 6 {
		date := fmt.Sprintf("2021-01-0%dT12:00:00Z", day+1)
		dated := &harness.Git{Home: g.git.Home, Env: []string{"GIT_AUTHOR_DATE=" + date, "GIT_COMMITTER_DATE=" + date}}
		write(t, work, "f", date)
		g.run(work, "add", "f")
		if out := dated.Run(work, nil, "commit", "-q", "-m", date); out.Err != nil {
			t.Fatal(out.All())
		}
	}
	g.run(work, "tag", "old", "HEAD~3")
	g.run(work, "push", "-q", "origin", "main", "old")
	count := func(what, dir, want string) {
		t.Helper()
		if got := g.run(dir, "rev-list", "--count", "HEAD"); got != want {
			t.Errorf("%s: %s commits, want %s", what, got, want)
		}
		if out := g.git.Run(dir, nil, "fsck", "--strict"); out.Err != nil {
			t.Errorf("%s: fsck: %v\n%s", what, out.Err, out.All())
		}
	}
	for _, version := range []string{"0", "2"} {
		proto := "protocol.version=" + version
		dir := r.clone(r.remote(r.read), "-c", proto, "--depth", "1")
		count(version+": --depth 1", dir, "1")
		for _, step := range []struct{ flag, commits string }{
			{"--deepen=2", "3"}, {"--depth=2", "2"}, {"--shallow-exclude=old", "3"}, {"--shallow-since=2021-01-03T00:00:00Z", "4"},
		} {
			g.run(dir, "fetch", "-q", step.flag)
			count(version+": "+step.flag, dir, step.commits)
		}
		g.run(dir, "fetch", "-q", "--unshallow")
		count(version+": --unshallow", dir, "7")
		if g.run(dir, "rev-list", "--max-parents=0", "HEAD") != first {
			t.Errorf("%s: the unshallowed history does not begin at %s", version, first)
		}
		alone := r.clone(r.remote(r.read), "-c", proto, "--single-branch", "--no-tags", "--shallow-since=2021-01-05T00:00:00Z")
		count(version+": clone --shallow-since", alone, "2")
		if tags := g.run(alone, "tag"); tags != "" {
			t.Errorf("%s: --no-tags brought %q", version, tags)
		}
	}
}

// Case 1.6: what a filter left out comes by its id when it is needed, and only that.
func TestCase1_6_LazyFetchesOfEveryFilter(t *testing.T) {
	g := start(t)
	r, _ := g.seeded(harness.File{Path: "small", Content: "small\n"}, harness.File{Path: "d/large", Content: strings.Repeat("large\n", 1000)})
	work := r.clone(r.remote(r.write))
	old := g.run(work, "rev-parse", "HEAD:d/large")
	write(t, work, "d/large", strings.Repeat("new\n", 1000))
	g.run(work, "commit", "-q", "-am", "new")
	g.run(work, "push", "-q")
	for _, version := range []string{"0", "2"} {
		for filter, missing := range map[string]int{"blob:none": 3, "blob:limit=1k": 2, "tree:0": 2} {
			what := "version " + version + ", filter " + filter
			dir := r.clone(r.remote(r.read), "-c", "protocol.version="+version, "--filter="+filter, "--no-checkout")
			got := strings.Count(g.run(dir, "rev-list", "--objects", "--all", "--missing=print"), "?")
			if got != missing {
				t.Errorf("%s: %d objects are missing, want %d", what, got, missing)
			}
			if text := g.run(dir, "cat-file", "blob", old); text+"\n" != strings.Repeat("large\n", 1000) {
				t.Errorf("%s: blob by id = %d bytes", what, len(text))
			}
			g.run(dir, "checkout", "-q", "main")
			if text, err := os.ReadFile(filepath.Join(dir, "d/large")); err != nil || string(text) != strings.Repeat("new\n", 1000) {
				t.Errorf("%s: d/large after checkout = %d bytes, %v", what, len(text), err)
			}
			if text := g.run(dir, "log", "--format=%s", "-p", "--", "d/large"); !strings.Contains(text, "-large") {
				t.Errorf("%s: log -p = %.200q", what, text)
			}
			g.run(dir, "fetch", "-q", "--refetch")
			g.run(dir, "fsck", "--connectivity-only")
		}
	}
}

// F-01: what people push with.
func TestF01_PushForms(t *testing.T) {
	g := start(t)
	r, first := g.seeded()
	clone := r.clone(r.remote(r.write))
	other := r.clone(r.remote(r.write))
	// A lease on what was last seen: refused when it moved, done when it did not.
	moved := r.work(other, "by-other", "1")
	g.run(other, "push", "-q")
	g.run(clone, "commit", "-q", "--amend", "-m", "rewritten")
	wantHas(t, "push --force-with-lease of what moved", g.refused(clone, "push", "--force-with-lease", "origin", "main"), "stale info")
	if got := r.head("main", false); got != moved {
		t.Fatalf("main = %s after a refused lease, want %s", got, moved)
	}
	g.run(clone, "fetch", "-q")
	g.run(clone, "push", "-q", "--force-with-lease", "--force-if-includes", "origin", "HEAD:fresh")
	g.run(clone, "push", "-q", "--force-with-lease=main:"+moved, "origin", "main")
	rewritten := g.run(clone, "rev-parse", "HEAD")
	if got := r.head("main", false); got != rewritten {
		t.Errorf("main = %s after --force-with-lease=main:%.7s, want %s", got, moved, rewritten)
	}
	// Tags that point into what is pushed go along; others stay.
	g.run(clone, "tag", "-a", "-m", "one", "v1")
	g.run(clone, "tag", "light")
	r.work(clone, "more", "1")
	g.run(clone, "push", "-q", "--follow-tags")
	refs := r.refs(r.remote(r.read))
	if refs["refs/tags/v1^{}"] != rewritten || refs["refs/tags/light"] != "" {
		t.Errorf("refs after push --follow-tags = %v, want v1 at %s and not light", refs, rewritten)
	}
	// A push with options, several at once; a dry run does nothing.
	g.run(clone, "push", "-q", "-o", "a=b", "-o", "c", "origin", "HEAD:opted")
	g.run(clone, "push", "-q", "--dry-run", "origin", "HEAD:dry")
	if r.head("opted", false) == "" || r.head("dry", false) != "" {
		t.Errorf("opted = %q, dry = %q", r.head("opted", false), r.head("dry", false))
	}
	// A mirror goes to an empty repository with all its refs, and prunes.
	to := g.repo()
	mirror := r.mirror(r.remote(r.read))
	g.run(mirror, "push", "-q", "--mirror", to.remote(to.write))
	if got, want := fmt.Sprint(to.refs(to.remote(to.read))), fmt.Sprint(r.refs(r.remote(r.read))); got != want {
		t.Errorf("refs of the mirror = %s, want %s", got, want)
	}
	g.run(mirror, "update-ref", "-d", "refs/heads/opted")
	g.run(mirror, "push", "-q", "--mirror", to.remote(to.write))
	if got := to.head("opted", false); got != "" {
		t.Errorf("opted = %s after push --mirror without it", got)
	}
	g.run(clone, "push", "-q", "origin", "--delete", "opted", "fresh")
	if r.head("opted", false) != "" || r.head("fresh", false) != "" || r.head("main", false) == first {
		t.Error("push --delete of two branches left one")
	}
}

// F-01: other things that git does with a remote.
func TestF01_OtherUsesOfARemote(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	for _, version := range []string{"0", "2"} {
		got := g.run("", "-c", "protocol.version="+version, "ls-remote", "--symref", r.remote(r.read), "HEAD")
		if want := "ref: refs/heads/main\tHEAD\n" + head + "\tHEAD"; got != want {
			t.Errorf("version %s: ls-remote --symref = %q, want %q", version, got, want)
		}
	}
	// An archive is not to be had over HTTP, and git is told so at once.
	out := g.refused("", "archive", "--remote="+r.remote(r.read), "HEAD")
	wantHas(t, "git archive --remote", out, "fatal:")
	if a := r.post(false, "git-upload-archive", "", "0000"); a.Status != 404 {
		t.Errorf("POST git-upload-archive = %s, want 404", a)
	}
	if a := g.do(harness.Ask{Path: r.gitPath(false, "info/refs") + "?service=git-upload-archive", Basic: r.read}); a.Status != 403 {
		t.Errorf("info/refs of git-upload-archive = %s, want 403", a)
	}
	// Nothing is offered that is not served, and git that would like it clones all the same.
	a := g.do(harness.Ask{Path: r.gitPath(false, "info/refs") + "?service=git-upload-pack", Basic: r.read, Header: map[string]string{"Git-Protocol": "version=2"}})
	for _, name := range []string{"bundle-uri", "object-info", "packfile-uris", "sparse-oid"} {
		if strings.Contains(string(a.Body), name) {
			t.Errorf("version 2 offers %s: %q", name, a.Body)
		}
	}
	if a := r.post(false, "git-upload-pack", "version=2", pkt("command=bundle-uri\n")+"0000"); a.Status != 200 || !strings.Contains(string(a.Body), "ERR ") {
		t.Errorf("command=bundle-uri = %s, want an ERR packet", a)
	}
	r.clone(r.remote(r.read), "-c", "transfer.bundleURI=true")
	// A submodule in another repository, by a relative address.
	super, _ := g.seeded()
	work := super.clone(super.remote(super.write))
	g.run(work, "submodule", "--quiet", "add", r.remote(r.read), "sub")
	g.run(work, "config", "-f", ".gitmodules", "submodule.sub.url", "../"+filepath.Base(r.name)+".git")
	g.run(work, "add", ".gitmodules")
	g.run(work, "commit", "-q", "-m", "with a submodule")
	g.run(work, "push", "-q")
	helped := "credential.helper=!f() { while read l; do case $l in path=" + r.name + ".git) p=" + r.read + ";; path=*) p=" + super.read + ";; esac; done; echo username=t; echo password=$p; }; f"
	dir := filepath.Join(t.TempDir(), "c")
	g.run("", "-c", helped, "-c", "credential.useHttpPath=true", "clone", "-q", "--recurse-submodules", "http://"+g.Addr()+"/"+super.name+".git", dir)
	if text, err := os.ReadFile(filepath.Join(dir, "sub", "README.md")); err != nil || string(text) != "hello\n" {
		t.Errorf("README.md of the submodule = %q, %v", text, err)
	}
}
