package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
)

// settleOften makes every few commits move from the ledger into a pack, so that
// kills meet settling too.
const settleOften = "[limits]\nsettle_objects = 40\nsettle_bytes = 65536\nhot_pack_bytes = 16384\n"

// upkeepOften makes packs be merged, indexed, pruned and removed all the while, too.
const upkeepOften = settleOften + "upkeep_every = \"100ms\"\npack_grace = \"100ms\"\nmerge_packs = 2\nindex_objects = 50\nprune_deletions = 3\n"

// Killed at random points under a mixed load, the server has after each restart
// every change that it acknowledged, and every ref leads to whole history (PI, C-13).
// Packs are merged, indexed and pruned all the while (G-03).
func TestC13_KilledUnderLoadLosesNothing(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		kills := setting(t, "HEADGATE_KILLS", 15)
		rng := random(t)
		r, main := g.seeded()
		l := &load{r: r, main: main, branches: map[string]*fate{}, settled: map[string]fate{}}
		const fsckEvery = 5
		for kill := range kills {
			ends := l.start(t, rng, 6)
			time.Sleep(time.Duration(rng.IntN(900_000)) * time.Microsecond) // the random point
			g.Kill()
			ends()
			if err := g.Restart(); err != nil {
				t.Fatalf("restart after kill %d: %v", kill, err)
			}
			l.check(t, kill)
			if kill%fsckEvery == fsckEvery-1 || kill == kills-1 {
				r.fsck()
			}
			if t.Failed() {
				t.Fatalf("wrong after kill %d of seed %d", kill, seed)
			}
		}
		l.checkAll(t)
		packs := g.packs()
		t.Logf("%d kills, %d acknowledged changes, %d unknown, %d packs", kills, l.acknowledged.Load(), l.unknown.Load(), packs)
		if l.acknowledged.Load() < int64(kills) || packs == 0 {
			t.Errorf("%d changes were acknowledged in %d rounds and %d packs made: no load to speak of", l.acknowledged.Load(), kills, packs)
		}
	}, withConfig(upkeepOften))
}

// A load is several clients that change branches of one repo, each its own, and
// what they know of them.
type load struct {
	r    *repo
	main string

	acknowledged, unknown atomic.Int64
	number                atomic.Int64

	mu       sync.Mutex // guards branches
	branches map[string]*fate

	settled map[string]fate // what was found after the kill that ended a branch's changes
}

// packs counts the pack files of all repos.
func (g *gate) packs() int {
	g.t.Helper()
	n := 0
	if err := g.DataFiles(func(path string, _ []byte) error {
		if strings.HasSuffix(path, ".pack") {
			n++
		}
		return nil
	}); err != nil {
		g.t.Fatal(err)
	}
	return n
}

// A fate is what is known of one branch: it is at the acknowledged value, or at the
// one of the change that was under way at the kill.
type fate struct {
	ephemeral bool
	sure      string // empty: the branch is not there
	content   string // of the file "state" at sure
	maybe     string // the value that an unanswered change gives; with pending
	pending   bool
	state     string // content of a pending change whose commit is not known
	commits   map[string]string
}

func (l *load) start(t *testing.T, rng *rand.Rand, clients int) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	for range clients {
		client := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		all.Go(func() { l.work(t, client) })
	}
	return all.Wait
}

// work changes one new branch until a request fails.
func (l *load) work(t *testing.T, rng *rand.Rand) {
	name := fmt.Sprintf("k/%d", l.number.Add(1))
	f := &fate{ephemeral: rng.IntN(2) == 0, commits: map[string]string{}}
	l.mu.Lock()
	l.branches[name] = f
	l.mu.Unlock()
	clone := ""
	for step := 0; ; step++ {
		ok := false
		switch {
		case f.sure == "":
			ok = l.create(name, f)
		case step > 3 && rng.IntN(10) == 0:
			ok = l.remove(name, f)
		case rng.IntN(4) == 0:
			ok = l.push(t, name, f, &clone, rng)
		default:
			ok = l.commit(name, f, rng)
		}
		if !ok {
			l.unknown.Add(1)
			return
		}
		l.acknowledged.Add(1)
	}
}

func (l *load) create(name string, f *fate) bool {
	f.pending, f.maybe, f.state = true, l.main, ""
	a, err := l.r.g.Do(harness.Ask{Method: "POST", Path: l.r.path("/branches/create"), Token: l.r.write, JSON: map[string]any{
		"target_branch": name, "base_ref": l.main, "target_is_ephemeral": f.ephemeral}})
	if err != nil || a.Status != 200 {
		return false
	}
	f.sure, f.content, f.pending = l.main, "", false
	return true
}

func (l *load) remove(name string, f *fate) bool {
	f.pending, f.maybe, f.state = true, "", ""
	a, err := l.r.g.Do(harness.Ask{Method: "DELETE", Path: l.r.path("/branches"), Token: l.r.write, JSON: map[string]any{"target_branch": name, "ephemeral": f.ephemeral}})
	if err != nil || a.Status != 200 {
		return false
	}
	f.sure, f.pending, f.commits = "", false, map[string]string{}
	return true
}

func (l *load) commit(name string, f *fate, rng *rand.Rand) bool {
	content := fmt.Sprintf("%x", rng.Uint64())
	files := []harness.File{{Path: "state", Content: content}}
	if rng.IntN(8) == 0 { // over hot_pack_bytes: by way of a pack
		var b strings.Builder
		for b.Len() < 100_000 {
			fmt.Fprintf(&b, "%x", rng.Uint64())
		}
		files = append(files, harness.File{Path: "large", Content: b.String()})
	}
	f.pending, f.maybe, f.state = true, "", content
	a, err := l.r.g.Do(l.r.commitAsk(harness.Commit{Branch: name, Ephemeral: f.ephemeral, Expected: f.sure, Files: files}, l.r.write))
	if err != nil || a.Status != 201 {
		return false
	}
	f.sure, f.content, f.pending = a.Text("commit", "commit_sha"), content, false
	f.commits[f.sure] = content
	return true
}

// push makes a commit with git in a clone and pushes it.
func (l *load) push(t *testing.T, name string, f *fate, clone *string, rng *rand.Rand) bool {
	g, remote := l.r.g, l.r.remote(l.r.write)
	if f.ephemeral {
		remote = l.r.ephemeral(l.r.write)
	}
	if *clone == "" {
		*clone = t.TempDir()
		if out := g.git.Run(*clone, nil, "init", "-q"); out.Err != nil {
			return false
		}
	}
	content := fmt.Sprintf("%x", rng.Uint64())
	if out := g.git.Run(*clone, nil, "fetch", "-q", remote, "refs/heads/"+name); out.Err != nil {
		return false
	}
	if out := g.git.Run(*clone, nil, "checkout", "-q", "-f", "--detach", "FETCH_HEAD"); out.Err != nil {
		return false
	}
	write(t, *clone, "state", content)
	if out := g.git.Run(*clone, nil, "add", "state"); out.Err != nil {
		return false
	}
	if out := g.git.Run(*clone, nil, "commit", "-q", "-m", "pushed"); out.Err != nil {
		return false
	}
	sha := strings.TrimSpace(g.git.Run(*clone, nil, "rev-parse", "HEAD").Stdout)
	f.pending, f.maybe, f.state = true, sha, content
	if out := g.git.Run(*clone, nil, "push", "-q", remote, "HEAD:refs/heads/"+name); out.Err != nil {
		return false
	}
	f.sure, f.content, f.pending = sha, content, false
	f.commits[sha] = content
	return true
}

// check compares every branch with its fate, then forgets the branches.
func (l *load) check(t *testing.T, kill int) {
	t.Helper()
	for name, f := range l.branches {
		got := l.r.head(name, f.ephemeral)
		if got != f.sure && !l.mayBe(f, got) {
			t.Errorf("kill %d: branch %s is at %q, acknowledged was %q (under way: %v %q)", kill, name, got, f.sure, f.pending, f.maybe)
			continue
		}
		for sha, content := range f.commits {
			if a := l.r.file(sha, "state"); a.Status != 200 || string(a.Body) != content {
				t.Errorf("kill %d: state at acknowledged commit %s of %s = %s, want %q", kill, sha, name, a, content)
			}
		}
		l.settled[name] = fate{ephemeral: f.ephemeral, sure: got}
	}
	if got := l.r.head("main", false); got != l.main {
		t.Errorf("kill %d: main = %q, want %s", kill, got, l.main)
	}
	clear(l.branches)
}

// checkAll looks at every branch of all rounds again: later kills took nothing away.
func (l *load) checkAll(t *testing.T) {
	t.Helper()
	for name, f := range l.settled {
		if got := l.r.head(name, f.ephemeral); got != f.sure {
			t.Errorf("branch %s = %q at the end, was %q", name, got, f.sure)
		}
	}
}

// mayBe reports whether a branch at got is explained by the change under way.
func (l *load) mayBe(f *fate, got string) bool {
	if !f.pending {
		return false
	}
	if f.state == "" || f.maybe != "" || got == "" { // all but an API commit know their value beforehand
		return got == f.maybe
	}
	a := l.r.get("/commit", "sha", got)
	parents := a.List("commit", "parent_shas")
	return len(parents) == 1 && parents[0] == f.sure && string(l.r.file(got, "state").Body) == f.state
}
