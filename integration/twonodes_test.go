package integration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
	"github.com/headgate/headgate/integration/harness"
)

// Sixteen writers on each of two nodes, on shared branches and on their own, by the
// commit API and by git; a node is killed every few seconds, Redis is restarted twice.
// Every acknowledged commit is there, of those that expected one head one got in, and
// the log is without gaps and leads to where the refs are.
func TestDR20_TwoNodesKilledUnderLoad(t *testing.T) {
	redis := redistest.Start(t)
	c := twoNodes(t, redis.URL(), withConfig(settleOften))
	c.failing()
	rounds := setting(t, "HEADGATE_TWO_NODES_ROUNDS", 4)
	l := newCrowd(t, c)
	for range sharedBranches {
		l.share()
	}
	rng := random(t)
	var stop atomic.Bool
	var writers sync.WaitGroup
	for node := range c.nodes {
		for n := range 16 {
			rng := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
			writers.Go(func() {
				switch {
				case n < 8:
					l.onShared(node, rng, &stop)
				case n < 14:
					l.onOwn(node, fmt.Sprintf("own-%d-%d", node, n), &stop)
				default:
					l.byGit(node, fmt.Sprintf("git-%d-%d", node, n), &stop)
				}
			})
		}
	}
	for round := range rounds {
		l.grown(60)
		if round%2 == 1 && round < 4 {
			redis.Kill()
			redis.Restart()
			l.grown(40)
		}
		g := c.nodes[round%len(c.nodes)]
		g.Kill()
		l.grown(30) // on the other node
		if err := g.Restart(); err != nil {
			t.Fatalf("restart of node %d: %v", round%len(c.nodes), err)
		}
	}
	l.grown(60)
	stop.Store(true)
	writers.Wait()
	l.check()
}

const sharedBranches = 4

// A crowd is what writers on several nodes know of one repo.
type crowd struct {
	t *testing.T
	c *cluster
	r *repo // as the first node serves it

	root   string
	acked  atomic.Int64
	shared []string

	mu      sync.Mutex                   // guards what follows
	winners map[string]map[string]string // branch -> expected head -> the commit that was acknowledged
	pushed  map[string]bool              // commits that git was told to be in
}

func newCrowd(t *testing.T, c *cluster) *crowd {
	r, root := c.nodes[0].seeded()
	return &crowd{t: t, c: c, r: r, root: root, winners: map[string]map[string]string{}, pushed: map[string]bool{}}
}

func (l *crowd) share() {
	name := fmt.Sprintf("shared-%d", len(l.shared))
	l.r.session(name, "main")
	l.shared = append(l.shared, name)
}

// grown waits until so many more writes were acknowledged.
func (l *crowd) grown(n int64) {
	l.t.Helper()
	before := l.acked.Load()
	until(l.t, fmt.Sprintf("%d more acknowledged writes", n), func() bool { return l.acked.Load() >= before+n || l.t.Failed() })
}

// on is the repo at a writer's own node, or at another while that one is away.
func (l *crowd) on(node, try int) *repo { return l.r.on(l.c.nodes[(node+try)%len(l.c.nodes)]) }

// commit sends a commit that expects head; sha is empty when it was refused, or not
// answered.
func (l *crowd) commit(r *repo, branch, head, content string) (sha string, sure bool) {
	a, err := r.g.Do(r.commitAsk(harness.Commit{
		Branch: branch, Ephemeral: true, Expected: head, Files: []harness.File{{Path: "state", Content: content}},
	}, r.write))
	if err != nil || a.Status == 503 {
		return "", false
	}
	if a.Status == 409 {
		return "", true
	}
	if a.Status != 201 {
		l.t.Errorf("commit to %s = %s, want 201, 409 or 503", branch, a)
		return "", false
	}
	sha = a.Text("commit", "commit_sha")
	l.won(branch, head, sha)
	// What one node has acknowledged, every node shows at once.
	for _, g := range l.c.nodes {
		l.wantReadable(r.on(g), sha, content)
	}
	return sha, true
}

// wantReadable checks a commit that was just acknowledged, on a node that answers.
func (l *crowd) wantReadable(r *repo, sha, content string) {
	a, err := r.g.Do(harness.Ask{Path: r.path("/file") + queryOf([]string{"ref", sha, "path", "state"}), Token: r.read})
	if err == nil && a.Status != 503 && (a.Status != 200 || string(a.Body) != content) {
		l.t.Errorf("file of the acknowledged commit %s = %s, want %q", sha, a, content)
	}
}

func (l *crowd) won(branch, head, sha string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.winners[branch]
	if of == nil {
		of = map[string]string{}
		l.winners[branch] = of
	}
	if other, twice := of[head]; twice {
		l.t.Errorf("%s and %s both expected %s at %s and were acknowledged", other, sha, branch, head)
	}
	of[head] = sha
	l.acked.Add(1)
}

// head is where a branch is, empty while the node does not answer.
func (l *crowd) head(r *repo, branch string) string {
	a, err := r.g.Do(harness.Ask{Path: r.path("/branch") + queryOf([]string{"name", branch, "ephemeral", "true"}), Token: r.read})
	if err != nil || a.Status == 503 {
		return ""
	}
	if a.Status != 200 {
		l.t.Errorf("branch %s = %s, want 200 or 503", branch, a)
	}
	return a.Text("branch", "head_sha")
}

// onShared commits to branches that others write to.
func (l *crowd) onShared(node int, rng *rand.Rand, stop *atomic.Bool) {
	for n := 0; !stop.Load() && !l.t.Failed(); n++ {
		r, branch := l.on(node, n%2), l.shared[rng.IntN(len(l.shared))]
		if head := l.head(r, branch); head != "" {
			l.commit(r, branch, head, fmt.Sprint(node, n, rng.Uint64()))
		}
	}
}

// onOwn commits to one branch that nobody else writes to: nothing is refused.
func (l *crowd) onOwn(node int, branch string, stop *atomic.Bool) {
	head, sure := l.root, false
	for try := 0; !sure && !stop.Load() && !l.t.Failed(); try++ {
		sure = l.create(l.on(node, try), branch)
	}
	open := false // the commit before was not answered: it may get in after it was looked for
	for n, try := 0, 0; sure && !stop.Load() && !l.t.Failed(); n++ {
		content := fmt.Sprint(branch, n)
		sha, answered := l.commit(l.on(node, try), branch, head, content)
		if answered && sha == "" && !open {
			l.t.Errorf("commit to %s, which nobody else writes to, was refused", branch)
		}
		open = !answered
		for sha == "" && !stop.Load() && !l.t.Failed() {
			try++ // the other node tells what became of it
			sha = l.head(l.on(node, try), branch)
		}
		head = sha
	}
}

func (l *crowd) create(r *repo, branch string) bool {
	a, err := r.g.Do(harness.Ask{Method: "POST", Path: r.path("/branches/create"), Token: r.write,
		JSON: map[string]any{"target_branch": branch, "base_ref": "main", "target_is_ephemeral": true}})
	return err == nil && (a.Status == 200 || a.Status == 409)
}

// byGit pushes commits with git to a branch of its own.
func (l *crowd) byGit(node int, branch string, stop *atomic.Bool) {
	g := l.c.nodes[0] // for its git
	dir := l.t.TempDir()
	run := func(args ...string) (string, bool) {
		out := g.git.Run(dir, nil, args...)
		return strings.TrimSpace(out.Stdout), out.Err == nil
	}
	remote := func(try int) string { r := l.on(node, try); return r.remote(r.write) }
	try := 0
	for _, ok := run("clone", "-q", remote(0), "."); !ok && !stop.Load(); try++ {
		_, ok = run("clone", "-q", remote(try), ".")
	}
	for n := 0; !stop.Load() && !l.t.Failed(); n++ {
		if _, ok := run("commit", "-q", "--allow-empty", "-m", fmt.Sprint(branch, n)); !ok {
			l.t.Errorf("git commit in %s failed", dir)
			return
		}
		sha, _ := run("rev-parse", "HEAD")
		for {
			if _, ok := run("push", "-q", remote(try), "HEAD:refs/heads/"+branch); ok {
				break
			}
			if try++; stop.Load() || l.t.Failed() {
				return
			}
		}
		l.mu.Lock()
		l.pushed[sha] = true
		l.mu.Unlock()
		l.acked.Add(1)
	}
}

// check compares what is there with what was acknowledged.
func (l *crowd) check() {
	l.t.Helper()
	parents := map[string]string{}
	for _, remote := range []string{l.r.ephemeral(l.r.read), l.r.remote(l.r.read)} {
		dir := l.r.mirror(remote)
		for line := range strings.Lines(l.r.g.run(dir, "rev-list", "--parents", "--all")) {
			sha, parent, _ := strings.Cut(strings.TrimSpace(line), " ")
			parents[sha] = parent
		}
	}
	lost, shared := 0, 0
	for branch, won := range l.winners {
		for head, sha := range won {
			if parent, there := parents[sha]; !there || parent != head {
				lost++
				l.t.Errorf("%s was acknowledged at %s on %s: there %t, parent %q", sha, branch, head, there, parent)
			}
		}
		if strings.HasPrefix(branch, "shared") {
			shared += len(won)
		}
	}
	for sha := range l.pushed {
		if _, there := parents[sha]; !there {
			lost++
			l.t.Errorf("%s was acknowledged to git, it is not there", sha)
		}
	}
	wantGaplessLog(l.t, l.r)
	for i, g := range l.c.nodes {
		if got, want := l.r.on(g).refs(l.r.on(g).ephemeral(l.r.read)), l.r.refs(l.r.ephemeral(l.r.read)); !maps.Equal(got, want) {
			l.t.Errorf("node %d shows %d refs, the first %d: not the same", i, len(got), len(want))
		}
	}
	l.t.Logf("%d acknowledged, %d of them on shared branches, %d by git, %d lost", l.acked.Load(), shared, len(l.pushed), lost)
}
