package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
)

// smallDisk is a file system of its own with this many MiB, as the data folder.
func smallDisk(t testing.TB, mib int) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", mib), "tmpfs", dir).CombinedOutput(); err != nil {
		t.Fatalf("mount a tmpfs of %d MiB (needs root): %v %s", mib, err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	return dir
}

// fill leaves so many MiB free; the file that fills is removed by the function that
// comes back.
func fill(t testing.TB, dir string, leave int) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for available(t, dir) > int64(leave)<<20 {
		if _, err := f.Write(block); err != nil {
			break // full
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// A disk that fills up: writes get 507, reads go on; when space returns writes go on,
// in the same process. Once by the watermark, once down to the last byte.
func TestG06_DiskFull(t *testing.T) {
	for _, tc := range []struct {
		name, limits string
		leave        int
	}{
		{"watermark", "watermark_bytes = 16777216\n", 8},
		{"last byte", "watermark_bytes = 0\n", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			disk := smallDisk(t, 240)
			g := start(t, withConfig("[limits]\nreserve_bytes = 75497472\n"+tc.limits+"ledger_cache_bytes = 8388608\n"), func(o *harness.Options) { o.Data = filepath.Join(disk, "data") })
			g.failures = true
			r, head := g.seeded()
			clone := r.clone(r.remote(r.write))
			pid := g.PID()
			free := fill(t, disk, tc.leave)
			head = r.fillUp(head)
			for path, content := range map[string]string{"README.md": "hello\n", "src/app.go": "package app\n"} {
				r.wantFile(head, path, content)
			}
			if got := r.head("main", false); got != head {
				t.Errorf("main = %s on a full disk, want %s", got, head)
			}
			r.work(clone, "pushed", "p")
			out := g.git.Run(clone, nil, "push", "origin", "HEAD:refs/heads/pushed")
			for i := 0; out.Err == nil && i < 10; i++ { // opening the ledger anew has made some space
				head = r.fillUp(head)
				out = g.git.Run(clone, nil, "push", "origin", fmt.Sprintf("HEAD:refs/heads/pushed%d", i))
			}
			if out.Err == nil || !strings.Contains(out.All(), "space") {
				t.Errorf("push to a full disk = %s, want it refused for want of space", out.All())
			}
			g.run("", "ls-remote", "-q", r.remote(r.read))
			free()
			var a harness.Answer
			for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
				if a = r.tryCommit(harness.Commit{Branch: "main", Expected: head, Files: []harness.File{{Path: "after", Content: "x"}}}); a.Status != 507 && a.Status != 503 {
					break
				}
			}
			if a.Status != 201 {
				t.Fatalf("commit after space returned = %s, want 201", a)
			}
			g.run(clone, "push", "-q", "origin", "HEAD:refs/heads/pushed")
			if g.PID() != pid || !g.Running() {
				t.Error("the process is another one")
			}
		})
	}
}

// fillUp commits until it is told that there is no space, and gives the head.
func (r *repo) fillUp(head string) string {
	r.g.t.Helper()
	rng := rand.New(rand.NewPCG(seed, uint64(repoNumber.Add(1)))) // other content at each call
	for i := range 1000 {
		var b strings.Builder
		for b.Len() < 200_000 {
			fmt.Fprintf(&b, "%016x", rng.Uint64())
		}
		a := r.tryCommit(harness.Commit{Branch: "main", Expected: head, Files: []harness.File{{Path: "fill", Content: b.String()}}})
		switch a.Status {
		case 201:
			head = a.Text("commit", "commit_sha")
		case 507:
			if a.Text("code") != "no_space" || a.Get("retryable") != true || a.Text("result", "status") == "" {
				r.g.t.Errorf("commit to a full disk = %s, want no_space, retryable", a)
			}
			return head
		default:
			r.g.t.Fatalf("commit %d to a full disk = %s, want 507", i, a)
		}
	}
	r.g.t.Fatal("the disk did not fill up")
	return ""
}

// Case 11.1: settling all the time while clients push and commit loses nothing.
func TestCase11_1_SettlingUnderLoad(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, main := g.seeded()
		var all sync.WaitGroup
		deadline := time.Now().Add(time.Duration(setting(t, "HEADGATE_SETTLE_SECONDS", 8)) * time.Second)
		heads := make([]string, 4)
		for i := range heads {
			branch := fmt.Sprintf("c%d", i)
			if a := r.tryBranch(map[string]any{"target_branch": branch, "base_ref": "main"}); a.Status != 200 {
				t.Fatal(a)
			}
			clone := ""
			if i%2 == 0 {
				clone = r.clone(r.remote(r.write), "-b", branch)
			}
			all.Go(func() {
				head := main
				for n := 0; time.Now().Before(deadline); n++ {
					if clone != "" {
						write(t, clone, "f", fmt.Sprint(n))
						for _, args := range [][]string{{"add", "f"}, {"commit", "-q", "-m", "x"}, {"push", "-q", "origin", "HEAD"}} {
							if out := g.git.Run(clone, nil, args...); out.Err != nil {
								t.Errorf("git %s: %v %s", clip(args), out.Err, out.All())
								return
							}
						}
						continue
					}
					a, err := g.Do(r.commitAsk(harness.Commit{Branch: branch, Expected: head, Files: []harness.File{{Path: fmt.Sprintf("d%d/f", n%7), Content: fmt.Sprint(n)}}}, r.write))
					if err != nil || a.Status != 201 {
						t.Errorf("commit %d = %s, %v", n, a, err)
						return
					}
					head = a.Text("commit", "commit_sha")
				}
			})
		}
		all.Wait()
		if g.packs() == 0 {
			t.Error("nothing was settled")
		}
		wantLeftovers(t, g)
	}, withConfig(settleOften))
}

// Case 11.2: clients that die in the middle of a large push, and a server that dies
// too, leave nothing behind and block nobody.
func TestCase11_2_DyingInALargePush(t *testing.T) {
	g := startPlain(t)
	r, head := g.seeded()
	clone := r.clone(r.remote(r.write))
	write(t, clone, "big", string(noise(t, 100<<20)))
	g.run(clone, "-c", "core.compression=0", "add", "big")
	g.run(clone, "commit", "-q", "-m", "big")
	next := g.run(clone, "rev-parse", "HEAD")
	pack := g.git.Run(clone, []byte(next+"\n^"+head+"\n"), "pack-objects", "--revs", "--stdout", "-q", "--compression=0")
	whole := pushBody("report-status", pack.Stdout, pushCommand{head, next, "refs/heads/main"})
	before := g.packs()
	for i := range 10 {
		r.cutPush(whole, len(whole)/2, true)
		if i == 5 {
			r.dieInPush(whole)
		}
	}
	wantLeftovers(t, g)
	if after := g.packs(); after != before {
		t.Errorf("%d packs after pushes that died, %d before", after, before)
	}
	g.run(clone, "-c", "core.compression=0", "push", "-q", "origin", "HEAD:main")
	if got := r.head("main", false); got != next {
		t.Errorf("main = %s after the whole push, want %s", got, next)
	}
}

// dieInPush kills the server when half of a push has arrived, and starts it again.
func (r *repo) dieInPush(whole string) {
	r.g.t.Helper()
	half := newHalfReader(whole)
	done := make(chan struct{})
	go func() {
		defer close(done)
		req, err := r.g.Request(harness.Ask{Method: "POST", Path: r.gitPath(false, "git-receive-pack"), Basic: r.write,
			Header: map[string]string{"Content-Type": "application/x-git-receive-pack-request"},
			Body:   half})
		if err != nil {
			return
		}
		if resp, err := r.g.Client.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-half.half
	r.g.Kill()
	<-done
	if err := r.g.Restart(); err != nil {
		r.g.t.Fatal(err)
	}
}

// A halfReader tells when half of its text was taken, and gives no more then until
// the connection is gone.
type halfReader struct {
	text string
	at   int
	half chan struct{}
	once sync.Once
}

func newHalfReader(text string) *halfReader {
	return &halfReader{text: text, half: make(chan struct{})}
}

func (h *halfReader) Read(p []byte) (int, error) {
	if h.at >= len(h.text)/2 {
		h.once.Do(func() { close(h.half) })
		time.Sleep(10 * time.Millisecond) // a client that goes on slowly
		p = p[:min(1, len(p))]
	}
	n := copy(p, h.text[h.at:])
	h.at += n
	return n, nil
}

func available(t testing.TB, dir string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}
