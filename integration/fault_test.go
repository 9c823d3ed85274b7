package integration

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
	"github.com/headgate/headgate/integration/harness"
)

// A cluster is the nodes that serve one store: one on the embedded ledger, or two on a
// Redis and a data folder that they share. Faults happen to the first.
type cluster struct {
	nodes []*gate
	redis *redistest.Server // nil: the embedded ledger
}

// onEachCluster runs a test on every topology.
func onEachCluster(t *testing.T, test func(*testing.T, *cluster), changes ...func(*harness.Options)) {
	t.Run("pebble", func(t *testing.T) { test(t, &cluster{nodes: []*gate{start(t, changes...)}}) })
	t.Run("redis, two nodes", func(t *testing.T) {
		c := &cluster{redis: redistest.Start(t)}
		changes := append(changes[:len(changes):len(changes)], func(o *harness.Options) { o.Ledger = c.redis.URL() })
		first := start(t, changes...)
		second := start(t, append(changes, func(o *harness.Options) { o.Data, o.Trust = first.Data, first.Trust })...)
		second.org = first.org
		c.nodes = []*gate{first, second}
		test(t, c)
	})
}

// other is a node that no fault happens to, or the only one.
func (c *cluster) other() *gate { return c.nodes[len(c.nodes)-1] }

// failing says that answers of 5xx are part of the test.
func (c *cluster) failing() {
	for _, g := range c.nodes {
		g.failures = true
	}
}

// on is the repo as another node serves it.
func (r *repo) on(g *gate) *repo { return &repo{g: g, name: r.name, write: r.write, read: r.read} }

// wantHead checks a branch on every node that runs.
func (c *cluster) wantHead(r *repo, what, branch, want string) {
	r.g.t.Helper()
	for i, g := range c.nodes {
		if !g.Running() {
			continue
		}
		if got := r.on(g).head(branch, false); got != want {
			r.g.t.Errorf("%s: %s on node %d = %q, want %q", what, branch, i, got, want)
		}
	}
}

// wantNoQuarantine waits until nothing that only a write or a fetch under way needs is
// in the data folder.
func (c *cluster) wantNoQuarantine(t testing.TB, what string) {
	t.Helper()
	data := c.nodes[0].Data
	var left []string
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		left = nil
		for _, pattern := range []string{"repos/*/repo_*/packs/incoming-*", "scratch/run-*/view-*", "scratch/run-*/content-*"} {
			found, err := filepath.Glob(filepath.Join(data, pattern))
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, found...)
		}
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("%s: left in quarantine after a minute: %v", what, left)
}

// A road is a way that a push takes through the server.
type road struct {
	name  string
	bytes int // of the file in the push: under and over hot_pack_bytes
}

var roads = []road{{"small", 300 << 10}, {"large", 3 << 20}}

// bigPush makes a commit on head with a file of noise and gives its id and the body of
// its push to main.
func (r *repo) bigPush(head string, size int) (next, pack, body string) {
	r.g.t.Helper()
	clone := r.clone(r.remote(r.write))
	write(r.g.t, clone, "big", string(freshNoise(r.g.t, size)))
	for i := range 20 {
		write(r.g.t, clone, fmt.Sprintf("d/%d", i), fmt.Sprint(i))
	}
	r.g.run(clone, "add", "-A")
	r.g.run(clone, "commit", "-q", "-m", "big")
	next = r.g.run(clone, "rev-parse", "HEAD")
	out := r.g.git.Run(clone, []byte(next+"\n^"+head+"\n"), "pack-objects", "--revs", "--stdout", "-q")
	if out.Err != nil {
		r.g.t.Fatal(out.All())
	}
	return next, out.Stdout, pushBody("report-status", out.Stdout, pushCommand{head, next, "refs/heads/main"})
}

// freshNoise is noise that has nothing in common with what was given before.
func freshNoise(t testing.TB, n int) []byte {
	t.Helper()
	b, k := noise(t, n), byte(repoNumber.Add(1))
	for i := range b {
		b[i] ^= k
	}
	return b
}

// A push cut at random offsets moves nothing and leaves nothing behind, on any node.
func TestF03_PushCutAtRandomOffsets(t *testing.T) {
	onEachCluster(t, func(t *testing.T, c *cluster) {
		g := c.nodes[0]
		for _, road := range roads {
			t.Run(road.name, func(t *testing.T) {
				rng := random(t)
				r, head := g.seeded()
				next, pack, whole := r.bigPush(head, road.bytes)
				before := g.packs()
				for i := range setting(t, "HEADGATE_CUTS", 50) {
					n := rng.IntN(len(whole) - 1)
					if i < 10 {
						n = rng.IntN(400) // commands and the pack's first entries too
					}
					r.cutPush(whole, n, i%2 == 0)
					if got := r.on(c.other()).head("main", false); got != head {
						t.Fatalf("a push cut after %d of %d bytes moved main to %s", n, len(whole), got)
					}
				}
				c.wantNoQuarantine(t, "after cut pushes")
				if after := g.packs(); after != before {
					t.Errorf("%d packs after cut pushes, %d before", after, before)
				}
				report := r.on(c.other()).rawPush(false, pack, pushCommand{head, next, "refs/heads/main"})
				wantHas(t, "the whole push", report, "unpack ok", "ok refs/heads/main")
				c.wantHead(r, "after the whole push", "main", next)
			})
		}
		wantLeftovers(t, g)
	})
}

// A server that is stopped, in order or by kill -9, while a push arrives: no ref moves,
// quarantine goes, the other node serves on, and after a restart all is as before.
func TestF03_ServerStoppedInMidPush(t *testing.T) {
	onEachCluster(t, func(t *testing.T, c *cluster) {
		g := c.nodes[0]
		g.failures = true // a push that is cut by the stop
		for _, road := range roads {
			for _, how := range []string{"kill", "term"} {
				t.Run(road.name+"/"+how, func(t *testing.T) {
					r, head := g.seeded()
					next, pack, whole := r.bigPush(head, road.bytes)
					half := newHalfReader(whole)
					done := r.stream(half)
					<-half.half
					if road.name == "large" {
						g.waitIncoming()
					}
					if how == "kill" {
						g.Kill()
					} else if err := g.Stop(stopLimit); err != nil {
						t.Errorf("stop in mid-push = %v, want it in order", err)
					}
					if answer := <-done; strings.Contains(answer, "ok refs/heads/main") {
						t.Errorf("half a push was answered %q", answer)
					}
					if other := c.other(); other != g {
						c.wantHead(r, "while the first node is gone", "main", head)
						c.wantNoQuarantine(t, "by the other node")
						next2 := r.on(other).commit(harness.Commit{Branch: "beside", Base: "main", Files: []harness.File{{Path: "x", Content: road.name + how}}})
						c.wantHead(r, "while the first node is gone", "beside", next2)
					}
					if err := g.Restart(); err != nil {
						t.Fatal(err)
					}
					c.wantHead(r, "after the restart", "main", head)
					c.wantNoQuarantine(t, "after the restart")
					report := r.rawPush(false, pack, pushCommand{head, next, "refs/heads/main"})
					wantHas(t, "the push once more", report, "unpack ok", "ok refs/heads/main")
					c.wantHead(r, "after the push once more", "main", next)
				})
			}
		}
		wantLeftovers(t, g)
	}, withConfig("[limits]\nshutdown_timeout = \"1s\"\n"))
}

// A push that goes on after the server was told to stop is finished.
func TestF03_PushFinishesBeforeTheStop(t *testing.T) {
	onEachCluster(t, func(t *testing.T, c *cluster) {
		g := c.nodes[0]
		for _, road := range roads {
			r, head := g.seeded()
			next, _, whole := r.bigPush(head, road.bytes)
			body, w := io.Pipe()
			done := r.stream(body)
			_, _ = io.WriteString(w, whole[:len(whole)/2])
			stopped := make(chan error, 1)
			go func() { stopped <- g.Stop(stopLimit) }()
			g.waitLog("shutting down")
			_, _ = io.WriteString(w, whole[len(whole)/2:])
			w.Close()
			if answer := <-done; !strings.Contains(answer, "ok refs/heads/main") {
				t.Errorf("%s push that went on during a stop = %q, want it taken", road.name, answer)
			}
			if err := <-stopped; err != nil {
				t.Errorf("stop = %v, want it in order", err)
			}
			c.wantHead(r, "on the other node", "main", next)
			if err := g.Restart(); err != nil {
				t.Fatal(err)
			}
			c.wantHead(r, "after the restart", "main", next)
		}
	})
}

// stream sends a push whose body comes as it comes; what was answered, or "", comes back.
// The body is not read before the server has asked for it.
func (r *repo) stream(body io.Reader) <-chan string {
	r.g.t.Helper()
	req, err := r.g.Request(harness.Ask{Method: "POST", Path: r.gitPath(false, "git-receive-pack"), Basic: r.write,
		Header: map[string]string{"Content-Type": "application/x-git-receive-pack-request", "Expect": "100-continue"}, Body: body})
	if err != nil {
		r.g.t.Fatal(err)
	}
	done := make(chan string, 1)
	// No connection that another request uses.
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	go func() {
		defer client.CloseIdleConnections()
		resp, err := client.Do(req)
		if err != nil {
			done <- ""
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		done <- string(text)
	}()
	return done
}

// waitIncoming waits until a push is in quarantine.
func (g *gate) waitIncoming() {
	g.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if found, _ := filepath.Glob(filepath.Join(g.Data, "repos/*/repo_*/packs/incoming-*")); len(found) > 0 {
			return
		}
	}
	g.t.Fatal("no push came into quarantine within 30 s")
}
