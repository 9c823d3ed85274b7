package gitstore

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// smallFetches serves a repo and counts the fetches that needed no git process.
func smallFetches(t *testing.T) (*Repo, *gitServer, *atomic.Int64) {
	t.Helper()
	small := &atomic.Int64{}
	s := openTestStore(t, func(o *Options) {
		o.Observe = func(what string, _ time.Duration) {
			if what == "small fetch" {
				small.Add(1)
			}
		}
	})
	r := newTestRepo(t, s, "site")
	return r, newGitServer(t, r), small
}

// Whatever a few commits did, a client that has the rest gets all of it and can go on:
// its repository is whole, and no git process was started.
func TestSmallFetch_IsWhole(t *testing.T) {
	r, s, small := smallFetches(t)
	w := newWorkTree(t)
	w.git("init", "-q", "-b", "main")
	for n := range 30 {
		w.commit(fmt.Sprintf("dir%d/sub/file%d", n%3, n), strings.Repeat(fmt.Sprintln(n), 50))
	}
	url := s.url(someone, MainRemote)
	w.git("push", "-q", url, "main")
	if err := r.Settle(t.Context()); err != nil {
		t.Fatalf("Settle: %v", err)
	}
	reader := cloneOf(t, url)
	random := rand.New(rand.NewPCG(7, 8))
	for round := range 12 {
		for range 1 + random.IntN(4) {
			changeSomething(w, random)
		}
		w.git("push", "-q", url, "main")
		before := small.Load()
		reader.git("pull", "-q", "--ff-only")
		if small.Load() != before+1 {
			t.Errorf("round %d: %d fetches without a git process, want one more than %d", round, small.Load(), before)
		}
		reader.fsck()
		if got, want := reader.git("rev-parse", "HEAD^{tree}"), w.git("rev-parse", "HEAD^{tree}"); got != want {
			t.Fatalf("round %d: the client is at tree %s, want %s", round, got, want)
		}
	}
	s.noErrors()
}

// changeSomething makes one commit, sometimes a merge.
func changeSomething(w *workTree, random *rand.Rand) {
	n := random.IntN(1_000_000)
	file := fmt.Sprintf("dir%d/sub/file%d", n%3, n)
	switch random.IntN(6) {
	case 0: // a file becomes a folder of its own name
		w.commit(fmt.Sprintf("turn%d", n), "file\n")
		w.git("rm", "-q", fmt.Sprintf("turn%d", n))
		w.commit(fmt.Sprintf("turn%d/inner", n), "file\n")
	case 1: // a folder moves
		w.commit(file, "to be moved\n")
		w.git("mv", fmt.Sprintf("dir%d", n%3), fmt.Sprintf("moved%d", n))
		w.git("commit", "-q", "-m", "move")
		w.git("mv", fmt.Sprintf("moved%d", n), fmt.Sprintf("dir%d", n%3))
		w.commit(file+".after", fmt.Sprint(n))
	case 2: // a merge of a side that began some commits ago
		w.git("checkout", "-q", "-b", "side", "HEAD~2")
		w.commit(fmt.Sprintf("side%d", n), "side\n")
		w.git("checkout", "-q", "main")
		w.git("merge", "-q", "--no-edit", "side")
		w.git("branch", "-q", "-D", "side")
	case 3: // nothing but a mode and a link
		w.git("update-index", "--add", "--cacheinfo", "120000,"+strings.TrimSpace(w.git("rev-parse", "HEAD:dir0/sub/file0"))+",link")
		w.git("commit", "-q", "--allow-empty", "-m", "link")
		w.git("checkout", "-q", "--", ".")
	case 4: // back to an older state
		w.git("read-tree", "HEAD~1")
		w.git("commit", "-q", "--allow-empty", "-m", "back")
		w.git("reset", "-q", "--hard")
	default:
		w.commit(file, fmt.Sprint(n))
	}
}

// What fetchSmall does not answer goes the long way, with the same result.
func TestSmallFetch_LeavesTheRestToGit(t *testing.T) {
	_, s, small := smallFetches(t)
	w := newWorkTree(t)
	w.git("init", "-q", "-b", "main")
	w.commit("a", "1\n")
	w.commit("a", "2\n")
	url := s.url(someone, MainRemote)
	w.git("push", "-q", url, "main")
	shallow, partial := cloneOf(t, url, "--depth", "1"), cloneOf(t, url, "--filter=blob:none", "--no-checkout")
	whole := cloneOf(t, url)
	w.commit("a", "3\n")
	w.git("tag", "-a", "-m", "three", "v3")
	w.git("push", "-q", url, "main", "v3")
	for name, reader := range map[string]*workTree{"shallow": shallow, "partial": partial, "tag comes along": whole} {
		reader.git("fetch", "-q")
		if got, want := reader.git("rev-parse", "origin/main"), w.git("rev-parse", "main"); got != want {
			t.Errorf("%s: fetched %s, want %s", name, got, want)
		}
		if got, want := reader.git("rev-parse", "v3"), w.git("rev-parse", "v3"); got != want {
			t.Errorf("%s: tag v3 is %s, want %s", name, got, want)
		}
	}
	w.git("checkout", "-q", "--orphan", "other")
	w.commit("b", "1\n")
	w.git("push", "-q", url, "other")
	whole.git("fetch", "-q", url, "other")
	whole.fsck()
	w.git("checkout", "-q", "main")
	w.write("large", noise(2<<20))
	w.commit("a", "4\n")
	w.git("push", "-q", url, "main")
	if n := small.Load(); n != 0 {
		t.Errorf("%d fetches went without git, want none", n)
	}
	whole.git("fetch", "-q")
	whole.fsck()
	s.noErrors()
}

// A caller that may read one branch is not helped along by what it says it has of another.
func TestA13_SmallFetchKnowsNoForeignHaves(t *testing.T) {
	_, s, small := smallFetches(t)
	w := newWorkTree(t)
	w.git("init", "-q", "-b", "main")
	w.commit("a", "1\n")
	all := s.url(someone, MainRemote)
	w.git("push", "-q", all, "main", "main:refs/heads/mine")
	w.commit("secret", "of main alone\n")
	w.git("push", "-q", all, "main")
	policy, err := refpolicy.New([]refpolicy.Rule{{Pattern: "refs/heads/mine"}, {Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	confined := someone
	confined.Policy = policy
	w.git("checkout", "-q", "-b", "mine", "main~1")
	w.commit("own", "of mine\n")
	w.git("push", "-q", all, "mine")
	reader := cloneOf(t, all) // has main, and main's secret
	w.commit("own", "more of mine\n")
	w.git("push", "-q", all, "mine")
	before := small.Load()
	reader.git("fetch", "-q", s.url(confined, MainRemote), "mine")
	if small.Load() != before+1 {
		t.Errorf("the fetch of one commit needed git")
	}
	if got, want := reader.git("rev-parse", "FETCH_HEAD"), w.git("rev-parse", "mine"); got != want {
		t.Errorf("fetched %s, want %s", got, want)
	}
	var out strings.Builder
	wants, foreign := revOf(t, w, "mine"), revOf(t, w, "main")
	request := v2Fetch("want "+wants.String(), "have "+foreign.String(), "have "+revOf(t, w, "mine~1").String())
	if err := s.r.UploadPack(t.Context(), confined, GitRequest{Protocol: "version=2", In: strings.NewReader(request), Out: &out}); err != nil {
		t.Fatalf("UploadPack: %v", err)
	}
	if strings.Contains(out.String(), "ACK "+foreign.String()) || !strings.Contains(out.String(), "ACK "+revOf(t, w, "mine~1").String()) {
		t.Errorf("a have of another branch was acknowledged, or an own one was not: %.200q", out.String())
	}
	s.noErrors()
}

// v2Fetch is the body of a v2 fetch command with these arguments.
func v2Fetch(args ...string) string {
	var b strings.Builder
	line := func(text string) { fmt.Fprintf(&b, "%04x%s\n", len(text)+5, text) }
	line("command=fetch")
	b.WriteString("0001")
	for _, a := range append([]string{"thin-pack", "no-progress", "ofs-delta"}, args...) {
		line(a)
	}
	b.WriteString("0000")
	return b.String()
}

func revOf(t *testing.T, w *workTree, rev string) refpolicy.OID {
	t.Helper()
	return mustOID(t, strings.TrimSpace(w.git("rev-parse", rev)))
}
