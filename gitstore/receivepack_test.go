package gitstore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// pushTarget is an empty repo and a work tree with one commit that is not pushed.
type pushTarget struct {
	r   *Repo
	s   *gitServer
	url string
	w   *workTree
}

func newPushTarget(t *testing.T, l Limits) *pushTarget {
	t.Helper()
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Limits = l }), "repo")
	p := &pushTarget{r: r, s: newGitServer(t, r), w: newWorkTree(t)}
	p.url = p.s.url(someone, MainRemote)
	p.w.git("init", "-q")
	p.w.git("remote", "add", "origin", p.url)
	p.w.commit("README", "first\n")
	t.Cleanup(func() {
		p.s.noErrors()
		nothingLeft(t, r)
	})
	return p
}

// nothingLeft fails the test if anything unregistered is in the repo's folder.
func nothingLeft(t testing.TB, r *Repo) {
	t.Helper()
	files, err := r.dir.Files()
	if err != nil {
		t.Errorf("Files: %v", err)
	}
	known := map[string]bool{}
	for _, name := range r.packNames() {
		known[name] = true
	}
	for _, name := range files {
		if !known[name] {
			t.Errorf("pack %s is in the folder and not registered", name)
		}
	}
	incoming, err := filepath.Glob(filepath.Join(r.dir.Root(), "packs", "incoming-*"))
	if err != nil || len(incoming) > 0 {
		t.Errorf("quarantine left behind: %v, %v", incoming, err)
	}
	// A fetch ends with its client, and its process a moment later.
	var views []string
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		views, err = filepath.Glob(filepath.Join(r.store.scratch.path, "view-*"))
		if err != nil || len(views) == 0 || time.Now().After(end) {
			break
		}
	}
	if err != nil || len(views) > 0 {
		t.Errorf("views left behind: %v, %v", views, err)
	}
}

// at fails the test if a ref is not at want; "" is absent.
func (p *pushTarget) at(ref, want string) {
	p.s.t.Helper()
	got := ""
	if found, err := p.r.Ref(p.s.t.Context(), someone, refpolicy.RefName(ref)); err == nil {
		got = found.OID.String()
	}
	if got != want {
		p.s.t.Errorf("%s is at %q, want %q", ref, got, want)
	}
}

// eachRoad runs a test with packs parsed in memory and with packs indexed by git.
func eachRoad(t *testing.T, test func(t *testing.T, p *pushTarget)) {
	t.Run("small", func(t *testing.T) { test(t, newPushTarget(t, Limits{})) })
	t.Run("large", func(t *testing.T) { test(t, newPushTarget(t, Limits{HotPackBytes: 1})) })
}

// contains fails the test if what git said lacks a text.
func contains(t testing.TB, said string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(said, text) {
			t.Errorf("git said\n%s\nwhich lacks %q", said, text)
		}
	}
}

func TestF01_PushUpdatesForcesAndDeletes(t *testing.T) {
	eachRoad(t, func(t *testing.T, p *pushTarget) {
		w := p.w
		first := w.git("rev-parse", "HEAD")
		w.git("push", "-q", "origin", "main", "main:refs/heads/dev", "main:refs/notes/commits", "main:refs/x/y")
		p.at("refs/heads/main", first)
		p.at("refs/x/y", first)
		second := w.commit("README", "second\n")
		w.git("push", "-q", "origin", "main")
		p.at("refs/heads/main", second)
		w.git("reset", "-q", "--hard", first)
		other := w.commit("README", "other\n")
		contains(t, w.refused("push", "origin", "main"), "non-fast-forward")
		w.git("push", "-q", "--force-with-lease=main:"+second, "origin", "main")
		p.at("refs/heads/main", other)
		w.git("push", "-q", "origin", ":dev", ":refs/notes/commits")
		p.at("refs/heads/dev", "")
		p.at("refs/notes/commits", "")
		if out, err := w.try("push", "origin", "main"); err != nil || !strings.Contains(out, "up-to-date") {
			t.Errorf("push of what is there: %v\n%s", err, out)
		}
		cloneOf(t, p.url).fsck()
	})
}

func TestF01_ThinPushes(t *testing.T) {
	eachRoad(t, func(t *testing.T, p *pushTarget) {
		random := rand.New(rand.NewPCG(1, 2))
		lines := make([]string, 2000)
		for i := range lines {
			lines[i] = fmt.Sprintf("line %d %d", i, random.Int())
		}
		for range 6 {
			lines[random.IntN(len(lines))] = fmt.Sprint("changed ", random.Int())
			p.w.commit("big", strings.Join(lines, "\n"))
			p.w.commit(fmt.Sprintf("d/%d", random.Int()), "x")
			p.w.git("push", "-q", "origin", "main")
		}
		c := cloneOf(t, p.url)
		if got, want := c.git("rev-parse", "HEAD^{tree}"), p.w.git("rev-parse", "HEAD^{tree}"); got != want {
			t.Errorf("clone has tree %s, want %s", got, want)
		}
		c.fsck()
	})
}

func TestF01_Push500Commits(t *testing.T) {
	eachRoad(t, func(t *testing.T, p *pushTarget) {
		var h history
		parents := []int(nil)
		for n := range 500 {
			parents = []int{h.commit("refs/heads/main", 1577836800+n*60, parents, map[string]*blob{
				fmt.Sprintf("d%d/f%d", n%7, n%31): text(strings.Repeat(fmt.Sprintln(n), n%50+1)),
			})}
		}
		g := newGitSource(t)
		g.put(&h)
		g.git("push", "-q", p.url, "main")
		p.at("refs/heads/main", g.oid("main").String())
		c := cloneOf(t, p.url)
		if got := c.git("rev-list", "--count", "HEAD"); got != "500" {
			t.Errorf("clone has %s commits", got)
		}
		c.fsck()
	})
}

func TestF01_PushFromAShallowClone(t *testing.T) {
	eachRoad(t, func(t *testing.T, p *pushTarget) {
		for n := range 5 {
			p.w.commit("README", fmt.Sprint(n))
		}
		p.w.git("push", "-q", "origin", "main")
		c := cloneOf(t, p.url, "--depth=2")
		tip := c.commit("new", "x")
		c.git("push", "-q", "origin", "HEAD")
		p.at("refs/heads/main", tip)
		// Where the shallow history ends is nothing to build on elsewhere.
		other := newPushTarget(t, Limits{})
		contains(t, c.refused("push", other.url, "HEAD:refs/heads/x"), "[remote rejected]", "missing necessary objects")
		other.at("refs/heads/x", "")
	})
}

func TestF01_TagsAndPushOptions(t *testing.T) {
	eachRoad(t, func(t *testing.T, p *pushTarget) {
		w := p.w
		w.git("tag", "light")
		w.git("tag", "-a", "-m", "annotated", "v1")
		w.git("tag", "-a", "-m", "of a tag", "v2", "v1")
		w.git("tag", "tree", "HEAD^{tree}")
		w.git("tag", "blob", "HEAD:README")
		w.git("push", "-q", "-o", "ci.skip", "-o", "anything=1", "origin", "main", "--tags")
		for _, tag := range []string{"light", "v1", "v2", "tree", "blob"} {
			p.at("refs/tags/"+tag, w.git("rev-parse", "refs/tags/"+tag))
		}
		ref, err := p.r.Ref(t.Context(), someone, "refs/tags/v2")
		if want := w.git("rev-parse", "HEAD"); err != nil || ref.Peeled.String() != want {
			t.Errorf("v2 is peeled to %v (%v), want %s", ref.Peeled, err, want)
		}
		contains(t, w.refused("push", "origin", "tree:refs/heads/tree"), "non-commit object")
		c := cloneOf(t, p.url)
		if got, want := c.git("tag"), w.git("tag"); got != want {
			t.Errorf("clone has tags %q, want %q", got, want)
		}
		c.fsck()
	})
}

func TestF01_Case2_5_Atomic(t *testing.T) {
	eachRoad(t, func(t *testing.T, p *pushTarget) {
		p.w.git("push", "-q", "origin", "main")
		p.w.commit("a", "a")
		out := p.w.refused("push", "--atomic", "origin", "HEAD:n1", "HEAD:refs/heads/main/x")
		contains(t, out, "atomic transaction failed", "cannot lock ref refs/heads/main/x: refs/heads/main exists; cannot create")
		p.at("refs/heads/n1", "")
		out = p.w.refused("push", "origin", "HEAD:n1", "HEAD:refs/heads/main/x")
		contains(t, out, "[new branch]", "[remote rejected] HEAD -> main/x")
		p.at("refs/heads/n1", p.w.git("rev-parse", "HEAD"))
		// A name that is refused before the door makes an atomic push fail as well.
		out = p.w.refused("push", "--atomic", "origin", "HEAD:n2", "HEAD:refs/heads/HEAD")
		contains(t, out, "atomic transaction failed", "funny refname")
		p.at("refs/heads/n2", "")
		p.w.git("push", "-q", "--atomic", "origin", "HEAD:n2", "HEAD:n3")
		p.at("refs/heads/n3", p.w.git("rev-parse", "HEAD"))
	})
}

func TestCase2_1_NameClash(t *testing.T) {
	p := newPushTarget(t, Limits{})
	p.w.git("push", "-q", "origin", "HEAD:dev", "HEAD:a/b")
	contains(t, p.w.refused("push", "origin", "HEAD:dev/x"), "refs/heads/dev exists; cannot create")
	contains(t, p.w.refused("push", "origin", "HEAD:a"), "refs/heads/a/b exists; cannot create")
	eph := p.s.url(someone, EphemeralRemote)
	p.w.git("push", "-q", eph, "HEAD:refs/heads/dev")
	contains(t, p.w.refused("push", eph, "HEAD:refs/heads/dev/x"), "cannot lock ref refs/heads/dev/x: refs/heads/dev exists; cannot create")
	// Whoever may not read the other ref is not told its name.
	secret := p.s.url(confined(t, refpolicy.EphemeralBranchPrefix+"dev/y"), EphemeralRemote)
	out := p.w.refused("push", secret, "HEAD:refs/heads/dev/y")
	contains(t, out, "cannot lock ref refs/heads/dev/y: another ref exists; cannot create")
}

func TestCase2_2_Deletion(t *testing.T) {
	p := newPushTarget(t, Limits{})
	p.w.git("push", "-q", "origin", "main", "main:topic")
	p.w.git("push", "-q", "origin", ":topic")
	p.at("refs/heads/topic", "")
	contains(t, p.w.refused("push", "origin", ":main"), "deletion of the current branch prohibited")
	p.at("refs/heads/main", p.w.git("rev-parse", "HEAD"))
	zero := refpolicy.ZeroOID.String()
	got := p.s.post(t, someone, MainRemote, "git-receive-pack", "", pkts(zero+" "+zero+" refs/heads/nope\x00report-status side-band-64k", ""))
	contains(t, got, "warning: refs/heads/nope: deleting a ref that does not exist", "unpack ok", "ok refs/heads/nope")
}

func TestCase2_3_RefNames(t *testing.T) {
	p := newPushTarget(t, Limits{})
	p.w.git("push", "-q", "origin", "main")
	tip := p.w.git("rev-parse", "HEAD")
	for name, want := range map[string]string{
		"refs/foo":                               "funny refname",
		"refs/heads/HEAD":                        "funny refname",
		"refs/tags/HEAD":                         "funny refname",
		"refs/heads/a..b":                        "funny refname",
		"refs/heads/x.lock":                      "funny refname",
		"heads/x":                                "funny refname",
		"refs/heads/":                            "funny refname",
		"refs/heads/a b":                         "funny refname",
		"HEAD":                                   "funny refname",
		"refs/heads/\xff\x01":                    "funny refname",
		"refs/namespaces/x/y":                    "deny updating a hidden ref",
		"refs/namespaces/ephemeral/refs/heads/x": "deny updating a hidden ref",
		"refs/heads/" + strings.Repeat("n", 5000):               "funny refname",
		"refs/heads/" + strings.Repeat("n/", 400) + "x":         "",
		"refs/namespaces/state/refs/snapshots/" + "0123456789a": "deny updating a hidden ref",
	} {
		got := p.s.post(t, someone, MainRemote, "git-receive-pack", "",
			pkts(refpolicy.ZeroOID.String()+" "+tip+" "+name+"\x00report-status", "")+emptyPack)
		if want == "" {
			contains(t, got, "unpack ok", "ok "+name)
			continue
		}
		contains(t, got, "unpack ok", "ng ", want)
	}
	eph := p.s.url(someone, EphemeralRemote)
	contains(t, p.w.refused("push", eph, "HEAD:refs/notes/commits"), "the ephemeral remote takes branches and tags only")
	contains(t, p.w.refused("push", eph, "HEAD:refs/namespaces/ephemeral/refs/heads/x"), "deny updating a hidden ref")
	p.w.git("push", "-q", eph, "HEAD:refs/heads/x")
	p.at("refs/namespaces/ephemeral/refs/heads/x", tip)
}

func TestStalePush(t *testing.T) {
	p := newPushTarget(t, Limits{})
	first := p.w.git("rev-parse", "HEAD")
	p.w.git("push", "-q", "origin", "main")
	second := p.w.commit("a", "a")
	p.w.git("push", "-q", "origin", "main")
	got := p.s.post(t, someone, MainRemote, "git-receive-pack", "",
		pkts(refpolicy.ZeroOID.String()+" "+first+" refs/heads/main\x00report-status side-band-64k", "")+emptyPack)
	contains(t, got, "ng refs/heads/main failed to update ref", "it is at "+second+", written by tester at ")
	p.at("refs/heads/main", second)
}

func TestA11_PushOfASessionToken(t *testing.T) {
	p := newPushTarget(t, Limits{})
	tip := p.w.git("rev-parse", "HEAD")
	backend := p.s.url(someone, EphemeralRemote)
	p.w.git("push", "-q", "origin", "main")
	p.w.git("push", "-q", backend, "main:refs/heads/s/a", "main:refs/heads/s/b")
	c := confined(t, refpolicy.EphemeralBranchPrefix+"s/a")
	main, eph := p.s.url(c, MainRemote), p.s.url(c, EphemeralRemote)
	w := cloneOf(t, eph)
	next := w.commit("work", "1")
	w.git("push", "-q", "origin", "HEAD")
	p.at(refpolicy.EphemeralBranchPrefix+"s/a", next)
	for _, tc := range []struct {
		url, spec string
	}{
		{main, "HEAD:refs/heads/main"},
		{main, "HEAD:refs/heads/new"},
		{main, "HEAD:refs/tags/t"},
		{eph, "HEAD:refs/heads/s/b"},
		{eph, "HEAD:refs/heads/s/c"},
		{eph, "HEAD:refs/tags/t"},
		{eph, ":refs/heads/s/a"},
		{eph, "+HEAD^:refs/heads/s/a"},
	} {
		out := w.refused("push", tc.url, tc.spec)
		contains(t, out, "[remote rejected]", "denied by policy", "remote: this token can push what the test lets it")
	}
	p.at("refs/heads/main", tip)
	p.at(refpolicy.EphemeralBranchPrefix+"s/a", next)
	p.at(refpolicy.EphemeralBranchPrefix+"s/b", tip)
	// Other refs of the same push are judged on their own.
	last := w.commit("work", "2")
	out := w.refused("push", "origin", "HEAD:refs/heads/s/a", "HEAD:refs/heads/s/b")
	contains(t, out, "s/b (push to refs/namespaces/ephemeral/refs/heads/s/b denied by policy: rule * has no-read)")
	p.at(refpolicy.EphemeralBranchPrefix+"s/a", last)
	p.at(refpolicy.EphemeralBranchPrefix+"s/b", tip)
}

func TestCase12_2_LimitsNameThemselves(t *testing.T) {
	p := newPushTarget(t, Limits{HotPackBytes: 1 << 10, PackBytes: 64 << 10, RefsPerPush: 3})
	random := rand.New(rand.NewPCG(3, 4))
	content := make([]byte, 200<<10)
	for i := range content {
		content[i] = byte(random.Uint32())
	}
	p.w.git("push", "-q", "origin", "HEAD:refs/heads/small")
	if err := os.WriteFile(filepath.Join(p.w.dir, "large"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	p.w.git("add", "-A")
	p.w.git("commit", "-q", "-m", "large")
	contains(t, p.w.refused("push", "origin", "main"), "pack is over the limit of 65536 bytes", "[remote rejected] main -> main (unpacker error)")
	p.at("refs/heads/main", "")
	contains(t, p.w.refused("push", "origin", "HEAD^:refs/heads/1", "HEAD^:refs/heads/2", "HEAD^:refs/heads/3", "HEAD^:refs/heads/4"), "more than 3 ref updates")
	p.at("refs/heads/1", "")
}

func TestCase5_3_OddNames(t *testing.T) {
	eachRoad(t, func(t *testing.T, p *pushTarget) {
		for _, name := range []string{"a:b", "aux", "con.txt", "trail ", "...x", "n\xff", strings.Repeat("l", 240), `a\b`, "trail.", ".gitignore", ".github/x"} {
			p.w.write(name, name)
		}
		p.w.git("add", "-A")
		p.w.git("commit", "-q", "-m", "odd names")
		p.w.git("push", "-q", "origin", "main")
		c := cloneOf(t, p.url)
		if got, want := c.git("ls-tree", "-r", "HEAD"), p.w.git("ls-tree", "-r", "HEAD"); got != want {
			t.Errorf("clone has\n%s\nwant\n%s", got, want)
		}
	})
}

// A pointer file of git-lfs is a file like any other.
func TestA15_LFSPointerIsAPlainFile(t *testing.T) {
	p := newPushTarget(t, Limits{})
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("a1", 32) + "\nsize 12345\n"
	p.w.commit("image.bin", pointer)
	p.w.git("push", "-q", p.s.url(someone, EphemeralRemote), "main:refs/heads/s/1")
	c := cloneOf(t, p.s.url(someone, EphemeralRemote), "-b", "s/1")
	if got := c.git("show", "HEAD:image.bin"); got+"\n" != pointer {
		t.Errorf("pointer came back as %q", got)
	}
}

func TestCase1_4_EmptyRepoAdvertisement(t *testing.T) {
	p := newPushTarget(t, Limits{})
	got := p.s.get(t, someone, MainRemote, "git-receive-pack", "")
	want := "001f# service=git-receive-pack\n0000"
	if !strings.HasPrefix(got, want) || !strings.HasPrefix(got[len(want)+4:], strings.Repeat("0", 40)+" capabilities^{}\x00") || !strings.HasSuffix(got, "0000") {
		t.Errorf("advertisement of an empty repo is %q", got)
	}
	for _, word := range strings.Fields("report-status report-status-v2 delete-refs ofs-delta side-band-64k quiet atomic object-format=sha1 push-options agent=") {
		if !strings.Contains(got, word) {
			t.Errorf("advertisement lacks %s: %q", word, got)
		}
	}
	p.w.git("push", "-q", "origin", "main")
}
