package gitstore

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// fetchSource is a repo with a history to fetch parts of: ten commits on main, an
// hour apart, of which the fourth has the annotated tag v1 and the seventh the
// lightweight tag light, and a branch side of two commits more.
type fetchSource struct {
	r       *Repo
	s       *gitServer
	url     string
	commits []string
	side    string
	began   int
}

func newFetchSource(t *testing.T, l Limits) *fetchSource {
	t.Helper()
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Limits = l }), "repo")
	s := newGitServer(t, r)
	f := &fetchSource{r: r, s: s, url: s.url(someone, MainRemote), began: 1577836800}
	w := newWorkTree(t)
	w.git("init", "-q")
	w.now = f.began
	for n := range 10 {
		f.commits = append(f.commits, w.commit(fmt.Sprintf("dir%d/file", n%3), fileAt(n)))
		switch n {
		case 3:
			w.git("tag", "-a", "-m", "version 1", "v1")
		case 6:
			w.git("tag", "light")
		}
	}
	w.git("checkout", "-q", "-b", "side", "HEAD~5")
	w.commit("side", "1\n")
	f.side = w.commit("side", "2\n")
	w.git("push", "-q", f.url, "main", "side", "--tags")
	return f
}

// fileAt is what the commit n of a fetchSource writes.
func fileAt(n int) string {
	return strings.Repeat("what all versions have\n", 50) + strings.Repeat(strconv.Itoa(n)+"\n", 100*n+1)
}

// eachFetch runs a test on work trees of every protocol version.
func eachFetch(t *testing.T, test func(t *testing.T, f *fetchSource, w *workTree)) {
	f := newFetchSource(t, Limits{})
	eachProtocol(t, func(t *testing.T, version string) {
		w := newWorkTree(t, version)
		w.git("init", "-q")
		w.git("remote", "add", "origin", f.url)
		test(t, f, w)
		w.fsck()
		f.s.noErrors()
	})
}

func TestF01_FetchAll(t *testing.T) {
	eachFetch(t, func(t *testing.T, f *fetchSource, w *workTree) {
		w.git("fetch", "-q", "origin")
		refs := w.git("for-each-ref", "--format=%(refname)")
		want := "refs/remotes/origin/main\nrefs/remotes/origin/side\nrefs/tags/light\nrefs/tags/v1"
		if refs != want {
			t.Errorf("fetched refs\n%s\nwant\n%s", refs, want)
		}
		if got := w.git("rev-parse", "v1^{commit}"); got != f.commits[3] {
			t.Errorf("v1 is %s, want %s", got, f.commits[3])
		}
	})
}

// A tag that points into what is fetched comes along in the same request.
func TestF01_IncludeTag(t *testing.T) {
	eachFetch(t, func(t *testing.T, f *fetchSource, w *workTree) {
		out := w.command("fetch", "-q", "origin", "refs/heads/main:refs/remotes/origin/main")
		out.Env = append(out.Env, "GIT_TRACE_PACKET=1")
		trace, err := out.CombinedOutput()
		if err != nil {
			t.Fatalf("fetch: %v: %s", err, trace)
		}
		if got := w.git("rev-parse", "v1^{}"); got != f.commits[3] {
			t.Errorf("v1 is %s, want %s", got, f.commits[3])
		}
		if n := strings.Count(string(trace), "> want "); n > 3 {
			t.Errorf("%d wants were sent: the tag did not come along", n)
		}
	})
}

func TestF01_Case1_5_Shallow(t *testing.T) {
	eachFetch(t, func(t *testing.T, f *fetchSource, w *workTree) {
		w.git("fetch", "-q", "--depth=1", "origin", "main")
		if got := w.git("rev-list", "--count", "FETCH_HEAD"); got != "1" {
			t.Errorf("depth 1 gave %s commits", got)
		}
		w.git("fetch", "-q", "--depth=3", "origin", "main")
		if got := w.git("rev-list", "--count", "FETCH_HEAD"); got != "3" {
			t.Errorf("depth 3 gave %s commits", got)
		}
		w.git("fetch", "-q", "--deepen=2", "origin", "main")
		if got := w.git("rev-list", "--count", "FETCH_HEAD"); got != "5" {
			t.Errorf("deepen by 2 gave %s commits, want 5", got)
		}
		w.git("fetch", "-q", "--unshallow", "origin", "main")
		if got := w.git("rev-list", "--count", "FETCH_HEAD"); got != "10" {
			t.Errorf("unshallow gave %s commits, want 10", got)
		}
	})
}

func TestF01_Case1_5_ShallowSince(t *testing.T) {
	eachFetch(t, func(t *testing.T, f *fetchSource, w *workTree) {
		w.git("fetch", "-q", fmt.Sprintf("--shallow-since=%d", f.began+6*3600), "origin", "main")
		if got := w.git("rev-list", "--count", "FETCH_HEAD"); got != "4" {
			t.Errorf("shallow-since gave %s commits, want 4", got)
		}
	})
}

func TestF01_DeepenNot(t *testing.T) {
	eachFetch(t, func(t *testing.T, f *fetchSource, w *workTree) {
		for _, name := range []string{"v1", "refs/tags/v1"} {
			c := cloneOf(t, f.url, "--shallow-exclude="+name, "-b", "main", "--single-branch", "-c", w.cfg[0])
			if got := c.git("rev-list", "--count", "HEAD"); got != "6" {
				t.Errorf("shallow-exclude=%s gave %s commits, want 6", name, got)
			}
		}
		out := w.refused("fetch", "-q", "--shallow-exclude=nothing", "origin", "main")
		if !strings.Contains(out, "ambiguous deepen-not: nothing") {
			t.Errorf("shallow-exclude=nothing was told\n%s", out)
		}
	})
}

func TestF01_Case1_6_FilterAndLazyFetch(t *testing.T) {
	eachFetch(t, func(t *testing.T, f *fetchSource, w *workTree) {
		p := newWorkTree(t, w.cfg...)
		p.git("clone", "-q", "--filter=blob:none", "--no-checkout", f.url, ".")
		missing := p.git("rev-list", "--objects", "--all", "--missing=print")
		if n := strings.Count(missing, "\n?"); n < 10 {
			t.Errorf("%d blobs are missing after a clone without blobs", n)
		}
		p.git("checkout", "-q", "main")
		if got := p.git("show", "HEAD:dir0/file"); got+"\n" != fileAt(9) {
			t.Errorf("lazily fetched file has %d bytes", len(got))
		}
		for _, filter := range []string{"blob:limit=100", "tree:0", "combine:blob:none+tree:3"} {
			p := newWorkTree(t, w.cfg...)
			p.git("clone", "-q", "--bare", "--filter="+filter, f.url, ".")
		}
		out := w.refused("fetch", "--filter=sparse:oid="+f.commits[0], "origin")
		if !strings.Contains(out, "not supported") {
			t.Errorf("filter sparse:oid was told\n%s", out)
		}
	})
}

func TestF01_FetchBySHA(t *testing.T) {
	eachFetch(t, func(t *testing.T, f *fetchSource, w *workTree) {
		w.git("fetch", "-q", "origin", f.commits[5])
		if got := w.git("rev-list", "--count", "FETCH_HEAD"); got != "6" {
			t.Errorf("fetch of the sixth commit gave %s commits", got)
		}
		missing := strings.Repeat("12", 20)
		out := w.refused("fetch", "-q", "origin", missing)
		if !strings.Contains(out, "upload-pack: not our ref "+missing) {
			t.Errorf("fetch of a commit that does not exist was told\n%s", out)
		}
	})
}

// What the main remote shows ends where the namespaces begin, and goes on behind them.
func TestPI4_MainRemoteHidesEphemeralBranches(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "repo")
	s := newGitServer(t, r)
	main, eph := s.url(someone, MainRemote), s.url(someone, EphemeralRemote)
	w := newWorkTree(t)
	w.git("init", "-q")
	tip := w.commit("a", "a")
	w.git("push", "-q", main, "main", "main:refs/aaa/x", "main:refs/zzz/x", "main:refs/notes/commits", "main:refs/tags/t")
	for _, n := range []string{"s/1", "s/2"} {
		w.git("push", "-q", eph, "main:refs/heads/"+n)
	}
	eachProtocol(t, func(t *testing.T, version string) {
		c := newWorkTree(t, version)
		got := c.git("ls-remote", main)
		var want []string
		for _, ref := range []string{"HEAD", "refs/aaa/x", "refs/heads/main", "refs/notes/commits", "refs/tags/t", "refs/zzz/x"} {
			want = append(want, tip+"\t"+ref)
		}
		if got != strings.Join(want, "\n") {
			t.Errorf("main remote shows\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
		if got, want := c.git("ls-remote", eph), tip+"\trefs/heads/s/1\n"+tip+"\trefs/heads/s/2"; got != want {
			t.Errorf("ephemeral remote shows\n%s\nwant\n%s", got, want)
		}
		if got := c.git("ls-remote", main, "refs/namespaces/*"); got != "" {
			t.Errorf("main remote shows of refs/namespaces\n%s", got)
		}
	})
	s.noErrors()
}

func TestUnbornHead(t *testing.T) {
	st := openTestStore(t, nil)
	if _, err := st.CreateRepo(t.Context(), Caller{}, "acme", "empty", "trunk", nil); err != nil {
		t.Fatalf("CreateRepo: %v", err)
	}
	r, err := st.Repo(t.Context(), "acme", "empty")
	if err != nil {
		t.Fatalf("Repo: %v", err)
	}
	s := newGitServer(t, r)
	c := newWorkTree(t, "protocol.version=2")
	c.git("clone", "-q", s.url(someone, MainRemote), ".")
	if got := c.git("symbolic-ref", "HEAD"); got != "refs/heads/trunk" {
		t.Errorf("HEAD of the clone is %s, want refs/heads/trunk", got)
	}
	s.noErrors()
}

// Under a token confined to one branch clone, commit and push need no flags (OQ-G14).
func TestEphemeralHeadOfAConfinedToken(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "repo")
	s := newGitServer(t, r)
	const branch = refpolicy.EphemeralBranchPrefix + "s/1"
	url := s.url(confined(t, branch), EphemeralRemote)
	eachProtocol(t, func(t *testing.T, version string) {
		w := newWorkTree(t, version)
		w.git("clone", "-q", url, ".")
		if version == "protocol.version=2" {
			if got := w.git("symbolic-ref", "HEAD"); got != "refs/heads/s/1" {
				t.Errorf("HEAD of the clone is %s, want refs/heads/s/1", got)
			}
		}
		w.git("checkout", "-q", "-B", "s/1")
		w.commit("f"+version, "x")
		w.git("push", "-q", "origin", "HEAD")
		again := newWorkTree(t, version)
		again.git("clone", "-q", url, ".")
		if got := again.git("symbolic-ref", "HEAD"); got != "refs/heads/s/1" {
			t.Errorf("HEAD of the second clone is %s, want refs/heads/s/1", got)
		}
		again.git("commit", "-q", "--allow-empty", "-m", "more")
		again.git("push", "-q")
	})
	if out := newWorkTree(t).git("ls-remote", "--symref", s.url(someone, EphemeralRemote)); strings.Contains(out, "HEAD") {
		t.Errorf("an ephemeral remote without the default branch shows\n%s", out)
	}
	w := newWorkTree(t)
	w.git("init", "-q")
	w.commit("a", "a")
	w.git("push", "-q", s.url(someone, EphemeralRemote), "main")
	if out := w.git("ls-remote", "--symref", s.url(someone, EphemeralRemote)); !strings.HasPrefix(out, "ref: refs/heads/main\tHEAD") {
		t.Errorf("an ephemeral remote with the default branch shows\n%s", out)
	}
	s.noErrors()
}

// Tags of the ephemeral remote ride along too, and only its own.
func TestEphemeralTags(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "repo")
	s := newGitServer(t, r)
	url := s.url(someone, EphemeralRemote)
	w := newWorkTree(t)
	w.git("init", "-q")
	tip := w.commit("a", "a")
	w.git("tag", "-a", "-m", "e", "e1")
	w.git("push", "-q", url, "main", "e1")
	w.git("tag", "-a", "-m", "m", "m1")
	w.git("push", "-q", s.url(someone, MainRemote), "main", "m1")
	c := cloneOf(t, url)
	if got := c.git("tag"); got != "e1" {
		t.Errorf("tags of the ephemeral clone: %q, want e1", got)
	}
	ref, err := r.Ref(t.Context(), someone, refpolicy.EphemeralPrefix+"refs/tags/e1")
	if err != nil || ref.Peeled.String() != tip {
		t.Errorf("stored tag = %+v, %v; want peeled %s", ref, err, tip)
	}
	s.noErrors()
}

func TestCase1_7_ProtocolVersion(t *testing.T) {
	for header, want := range map[string]int{
		"": 0, "version=0": 0, "version=1": 1, "version=2": 2, "version=9": 0, "version=2:version=1": 2,
		"version=1:version=2": 2, "x:version=2:y": 2, "version=": 0, "Version=2": 0, "version=22": 0,
	} {
		if got := protocolVersion(header); got != want {
			t.Errorf("protocolVersion(%q) = %d, want %d", header, got, want)
		}
	}
}
