package integration

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
)

// keepAnswers lets answers be kept however little space there is.
const keepAnswers = "[limits]\nfetch_spare_bytes = 1\n"

// fetchAsk is a request of protocol 2 for all of a commit.
func (r *repo) fetchAsk(commit, token string) harness.Ask {
	var body strings.Builder
	for _, line := range []string{"command=fetch", "0001", "no-progress", "ofs-delta", "want " + commit, "done", "0000"} {
		if line == "0001" || line == "0000" {
			body.WriteString(line)
			continue
		}
		fmt.Fprintf(&body, "%04x%s", len(line)+4, line)
	}
	return harness.Ask{
		Method: "POST", Path: "/" + r.name + ".git/git-upload-pack", Token: token, Body: strings.NewReader(body.String()),
		Header: map[string]string{"Content-Type": "application/x-git-upload-pack-request", "Git-Protocol": "version=2"},
	}
}

// open sends a request and reads no more of the answer than its head.
func (g *gate) open(a harness.Ask) *http.Response {
	g.t.Helper()
	req, err := g.Request(a)
	if err != nil {
		g.t.Fatal(err)
	}
	resp, err := g.Client.Do(req)
	if err != nil {
		g.t.Fatalf("%s %s: %v\n%s", a.Method, a.Path, err, g.tail())
	}
	g.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// wantFetches demands values of the metrics about fetches.
func (g *gate) wantFetches(when string, want map[string]string) {
	g.t.Helper()
	for name, value := range want {
		if got := g.metric("headgate_fetches_" + name + "_total"); got != value {
			g.t.Errorf("%s: %s fetches were %s, want %s", when, got, name, value)
		}
	}
}

// Many real clones at once, in all versions of the protocol: one git process answers
// all that ask for the same, 0 and 1 among each other, and every clone is whole.
func TestF01_EqualClonesShareOneProcess(t *testing.T) {
	g := start(t, withConfig(keepAnswers))
	r, head := g.seeded()
	r.commitLarge("main", "big", head, noiseReader(seed, 4<<20))
	head = r.head("main", false)
	const each = 3
	var all sync.WaitGroup
	for i := range 3 * each {
		dir := filepath.Join(t.TempDir(), "clone")
		all.Go(func() {
			out := g.git.Run("", nil, "-c", fmt.Sprintf("protocol.version=%d", i%3), "clone", "-q", "--bare", r.remote(r.read), dir)
			if out.Err != nil {
				t.Errorf("clone %d: %v %s", i, out.Err, out.All())
				return
			}
			if out := g.git.Run(dir, nil, "fsck", "--strict"); out.Err != nil {
				t.Errorf("fsck of clone %d: %v %s", i, out.Err, out.All())
			}
			if out := g.git.Run(dir, nil, "rev-parse", "HEAD"); strings.TrimSpace(out.Stdout) != head {
				t.Errorf("clone %d is at %s, want %s", i, out.Stdout, head)
			}
		})
	}
	all.Wait()
	g.wantFetches("after the clones", map[string]string{"started": "2"})
	next := r.commit(harness.Commit{Branch: "main", Expected: head, Files: []harness.File{{Path: "next", Content: "x"}}})
	if got := g.run(r.clone(r.remote(r.read)), "rev-parse", "HEAD"); got != next {
		t.Errorf("a clone after the next commit is at %s, want %s", got, next)
	}
	g.wantFetches("after the next commit", map[string]string{"started": "3"})
}

// Fetches that wait for slow clients and need no process keep no other from being let
// in: with two places for requests that may need one, ten are answered at once.
func TestSlowSharedFetchesHoldNoGitPlace(t *testing.T) {
	g := start(t, withConfig(keepAnswers+"token_git_requests = 2\norg_git_requests = 2\ngit_requests = 2\nlimit_wait = \"20s\"\n"))
	r := g.repo()
	r.commitLarge("main", "big", "", noiseReader(seed+2, 16<<20))
	ask := func() harness.Ask { return r.fetchAsk(r.head("main", false), r.read) }
	var open []*http.Response
	for i := range 10 {
		resp := g.open(ask())
		if resp.StatusCode != 200 {
			t.Fatalf("fetch %d beside slow ones = %d, want 200", i, resp.StatusCode)
		}
		open = append(open, resp)
	}
	open[0].Body.Close() // for whom the process was started
	var size int64
	for i, resp := range open[1:] {
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil || n < 16<<20 || size != 0 && n != size {
			t.Errorf("slow fetch %d got %d bytes, %v; want what the others got, %d", i+1, n, err, size)
		}
		size = n
	}
	g.wantFetches("after slow fetches", map[string]string{"started": "1", "dropped": "0"})
	g.idle("fetches")
}

// Killed while it spools, the server leaves nothing of that behind.
func TestKilledWhileSpoolingLeavesNothing(t *testing.T) {
	g := start(t, withConfig(keepAnswers))
	r := g.repo()
	r.commitLarge("main", "big", "", noiseReader(seed+3, 16<<20))
	head := r.head("main", false)
	g.open(r.fetchAsk(head, r.read))
	if g.metric("headgate_fetch_cache_bytes") == "0" {
		t.Error("nothing is spooled while a slow client reads")
	}
	g.Kill()
	if err := g.Restart(); err != nil {
		t.Fatalf("Restart: %v", err)
	}
	if got := g.metric("headgate_fetch_cache_bytes"); got != "0" {
		t.Errorf("%s bytes are kept after a restart, want none", got)
	}
	runs, err := filepath.Glob(filepath.Join(g.Data, "scratch", "*"))
	left, _ := filepath.Glob(filepath.Join(g.Data, "scratch", "*", "fetches", "*"))
	if err != nil || len(runs) != 1 || len(left) != 0 {
		t.Errorf("scratch has %v with %v, want one folder without files of fetches", runs, left)
	}
	r.clone(r.remote(r.read), "--bare")
	g.wantFetches("after the restart", map[string]string{"started": "1", "served": "0"})
}

// A disk that fills up while an answer is spooled fails no client; with space again
// answers are kept again.
func TestG06_DiskFullWhileFetching(t *testing.T) {
	disk := smallDisk(t, 260)
	g := start(t, withConfig(keepAnswers+"watermark_bytes = 0\nreserve_bytes = 75497472\nledger_cache_bytes = 8388608\n"),
		func(o *harness.Options) { o.Data = filepath.Join(disk, "data") })
	r := g.repo()
	const size = 24 << 20
	r.commitLarge("main", "big", "", noiseReader(seed+4, size))
	head := r.head("main", false)
	free := fill(t, disk, 8)
	fetch := func() {
		t.Helper()
		resp := g.open(r.fetchAsk(head, r.read))
		if n, err := io.Copy(io.Discard, resp.Body); resp.StatusCode != 200 || err != nil || n < size {
			t.Errorf("fetch = %d with %d bytes, %v; want 200 and more than %d", resp.StatusCode, n, err, size)
		}
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(fetch)
	}
	all.Wait()
	if got := g.metric("headgate_fetches_dropped_total"); got == "0" {
		t.Error("an answer larger than the disk was kept")
	}
	if got := g.metric("headgate_fetch_cache_bytes"); got != "0" {
		t.Errorf("%s bytes are kept of answers that did not fit", got)
	}
	free()
	for deadline := time.Now().Add(30 * time.Second); g.metric("headgate_fetches_served_total") == "0"; { // a look at the disk counts for a moment
		fetch()
		if time.Now().After(deadline) {
			t.Fatal("nothing is kept after space has returned")
		}
	}
}
