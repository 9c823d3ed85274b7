package integration

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
	"github.com/headgate/headgate/integration/harness"
)

// keepBusy has packs settled, merged, replaced and removed all the time, so that a
// backup meets packs that go while it copies them.
const keepBusy = settleOften + "upkeep_every = \"100ms\"\npack_grace = \"100ms\"\nmerge_packs = 2\nprune_deletions = 3\n"

// tool is the command line of the gate's program.
func (g *gate) tool(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(g.t.Context(), g.Program, args...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// operate runs a command that asks the gate's server, and has to succeed.
func (g *gate) operate(args ...string) string {
	g.t.Helper()
	return g.succeeds(append(args, "--server", g.URL, "--data", g.Data)...)
}

func (g *gate) succeeds(args ...string) string {
	g.t.Helper()
	out, err := g.tool(args...).CombinedOutput()
	if err != nil {
		g.t.Fatalf("headgate %s: %v\n%s\n%s", strings.Join(args, " "), err, out, g.tail())
	}
	return string(out)
}

// writers commit to a branch each, one commit after the other, and make and delete
// branches and repos beside them.
type writers struct {
	r    *repo
	turn chan struct{} // one for each change that may still be made
	all  sync.WaitGroup

	mu    sync.Mutex // guards heads
	heads map[string]string
}

func (r *repo) writers(n int, main string) *writers {
	w := &writers{r: r, turn: make(chan struct{}, 100_000), heads: map[string]string{}}
	for i := range n {
		w.all.Go(func() { w.commits(fmt.Sprintf("s/%d", i), main) })
	}
	w.all.Go(func() { w.comeAndGo(main) })
	return w
}

// more lets n more changes be made, by whoever comes first.
func (w *writers) more(n int) {
	for range n {
		w.turn <- struct{}{}
	}
}

func (w *writers) end() {
	close(w.turn)
	w.all.Wait()
}

// acknowledged are the commits that the server has answered for, by branch.
func (w *writers) acknowledged() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.heads)
}

func (w *writers) commits(branch, main string) {
	g := w.r.g
	head := main
	n := -1
	for range w.turn {
		n++
		files := []harness.File{{Path: "state", Content: fmt.Sprint(branch, n)}}
		if n%7 == 3 { // by way of a pack
			files = append(files, harness.File{Path: "large", Content: strings.Repeat(fmt.Sprint(branch, n, " "), 5000)})
		}
		c := harness.Commit{Branch: branch, Ephemeral: true, Expected: head, Files: files}
		if n == 0 {
			c.Base, c.Expected = "main", ""
		}
		a, err := g.Do(w.r.commitAsk(c, w.r.write))
		if err != nil || a.Status != 201 {
			g.t.Errorf("commit to %s = %s, %v; want 201", branch, a, err)
			return
		}
		head = a.Text("commit", "commit_sha")
		w.mu.Lock()
		w.heads[branch] = head
		w.mu.Unlock()
	}
}

func (w *writers) comeAndGo(main string) {
	g := w.r.g
	n := 0
	for range w.turn {
		n++
		branch := map[string]any{"target_branch": fmt.Sprint("gone/", n), "base_ref": main, "target_is_ephemeral": true, "ephemeral": true}
		for _, ask := range []harness.Ask{
			{Method: "POST", Path: w.r.path("/branches/create"), Token: w.r.write, JSON: branch},
			{Method: "DELETE", Path: w.r.path("/branches"), Token: w.r.write, JSON: branch},
		} {
			if a, err := g.Do(ask); err != nil || a.Status != 200 {
				g.t.Errorf("%s of a branch = %s, %v; want 200", ask.Method, a, err)
				return
			}
		}
	}
}

// wantAcknowledged exports a repo of a folder that no server has open and wants every
// branch to hold a commit that was acknowledged; git and headgate find it sound.
func (g *gate) wantAcknowledged(r *repo, want map[string]string, flags ...string) {
	g.t.Helper()
	if out := g.succeeds(append([]string{"fsck"}, flags...)...); !strings.Contains(out, "/"+r.name+": sound\n") {
		g.t.Errorf("headgate fsck of the restored store = %s", out)
	}
	plain := filepath.Join(g.t.TempDir(), "plain.git")
	g.succeeds(append([]string{"export", "--org", g.org.Name, "--repo", r.name, "--to", plain}, flags...)...)
	g.run(plain, "fsck", "--strict", "--full")
	for branch, commit := range want {
		g.run(plain, "merge-base", "--is-ancestor", commit, ephemeralPrefix+branch)
	}
	if len(want) == 0 {
		g.t.Error("nothing was acknowledged before the backup: the test proves nothing")
	}
}

// Under load a backup of a running server holds every commit that was acknowledged
// before it began, and comes back on an empty machine, on either engine (G-04).
func TestG04_BackupUnderLoad(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, main := g.seeded()
		w := r.writers(3, main)
		w.more(200)
		waitFor(t, func() bool { return len(w.acknowledged()) == 3 && len(w.turn) < 50 && g.packs() > 1 })
		dir := filepath.Join(t.TempDir(), "backup")
		var before map[string]string
		for range 2 { // the second one finds packs of the first gone
			before = w.acknowledged()
			w.more(200)
			g.operate("backup", "--to", dir)
			w.more(20)
			g.operate("gc", "--now")
		}
		w.more(20)
		if out := g.operate("fsck"); !strings.Contains(out, ": sound\n") {
			t.Errorf("fsck of a server that serves = %s", out)
		}
		w.more(20)
		during := filepath.Join(t.TempDir(), "during.git")
		g.operate("export", "--org", g.org.Name, "--repo", r.name, "--to", during)
		w.end()
		g.run(during, "fsck", "--strict", "--full")
		for branch, commit := range before {
			g.run(during, "merge-base", "--is-ancestor", commit, ephemeralPrefix+branch)
		}
		embedded, shared := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "data")
		g.succeeds("restore", "--from", dir, "--data", embedded)
		g.wantAcknowledged(r, before, "--data", embedded)
		url := redistest.Start(t).URL()
		g.succeeds("restore", "--from", dir, "--data", shared, "--ledger", url)
		g.wantAcknowledged(r, before, "--data", shared, "--ledger", url)
		g.serves(r, before, embedded)
		key, err := os.ReadFile(filepath.Join(g.Data, "operator.key"))
		if err != nil || len(key) < 64 || strings.Contains(g.Logs(), strings.TrimSpace(string(key))) {
			t.Errorf("operator key of %d bytes, %v; or the log holds it", len(key), err)
		}
	}, withConfig(keepBusy))
}

// serves starts a server on a restored folder and goes on where the backup was taken.
func (g *gate) serves(r *repo, heads map[string]string, data string) {
	g.t.Helper()
	s, err := harness.Start(harness.Options{Program: g.Program, Data: data, Trust: g.Trust, Client: http.DefaultClient})
	if err != nil {
		g.t.Fatalf("start a server on the restored data: %v", err)
	}
	defer func() {
		if err := s.Stop(stopLimit); err != nil {
			g.t.Errorf("stop the restored server: %v", err)
		}
	}()
	for branch := range heads {
		a, err := s.Do(harness.Ask{Path: r.path("/branch") + queryOf([]string{"name", branch, "ephemeral", "true"}), Token: r.read})
		if err != nil || a.Status != 200 {
			g.t.Fatalf("branch %s of the restored server = %s, %v", branch, a, err)
		}
		c := harness.Commit{Branch: branch, Ephemeral: true, Expected: a.Text("branch", "head_sha"), Files: []harness.File{{Path: "after", Content: "restore"}}}
		if a, err := s.Do(r.commitAsk(c, r.write)); err != nil || a.Status != 201 {
			g.t.Errorf("commit to %s of the restored server = %s, %v; want 201", branch, a, err)
		}
	}
}

func waitFor(t testing.TB, what func() bool) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); !what(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("what is waited for does not come")
		}
	}
}

// Whoever of the two is killed in the middle of a backup: the folder's earlier backup
// is the one that counts, the server goes on, and the next backup is whole.
func TestG04_KilledInABackup(t *testing.T) {
	g := start(t)
	r, main := g.seeded()
	dir := filepath.Join(t.TempDir(), "backup")
	g.operate("backup", "--to", dir)
	first, err := os.ReadFile(filepath.Join(dir, "MANIFEST"))
	if err != nil {
		t.Fatal(err)
	}
	head, text := main, noise(t, 3<<20)
	for i, kill := range []func(*exec.Cmd){
		func(*exec.Cmd) { g.Kill() },
		func(cmd *exec.Cmd) { _ = cmd.Process.Kill() },
		func(cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGTERM) },
	} {
		killed := false
		for try := 0; !killed && try < 10; try++ {
			var large []harness.File
			for n := range 4 {
				large = append(large, harness.File{Path: fmt.Sprint("large", n), Content: string(text[:3<<20-i-try-n])})
			}
			head = r.commit(harness.Commit{Branch: "main", Expected: head, Files: large})
			cmd := g.tool("backup", "--to", dir, "--server", g.URL, "--data", g.Data)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			var parts []string
			waitFor(t, func() bool {
				parts, _ = filepath.Glob(filepath.Join(dir, "packs", "*", "*.pack.part"))
				return len(parts) > 0 || len(ended) > 0
			})
			kill(cmd)
			if err := <-ended; err != nil {
				killed = true
			} else if first, err = os.ReadFile(filepath.Join(dir, "MANIFEST")); err != nil { // it was faster
				t.Fatal(err)
			}
			if !g.Running() {
				if err := g.Restart(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !killed {
			t.Fatalf("kill %d never meets a backup under way", i)
		}
		if now, err := os.ReadFile(filepath.Join(dir, "MANIFEST")); err != nil || string(now) != string(first) {
			t.Errorf("after kill %d the manifest is another, %v: a cut backup is taken for whole", i, err)
		}
	}
	g.succeeds("restore", "--from", dir, "--data", filepath.Join(t.TempDir(), "data"))
	g.operate("backup", "--to", dir)
	data := filepath.Join(t.TempDir(), "data")
	g.succeeds("restore", "--from", dir, "--data", data)
	plain := filepath.Join(t.TempDir(), "plain.git")
	g.succeeds("export", "--org", g.org.Name, "--repo", r.name, "--to", plain, "--data", data)
	if got := g.run(plain, "rev-parse", "main"); got != head {
		t.Errorf("main after the last backup = %s, want %s", got, head)
	}
}
