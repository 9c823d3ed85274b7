package integration

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/integration/harness"
)

const (
	ownLimit = 64 << 20  // what headgate itself may grow by
	gitLimit = 256 << 20 // what any git process of its may have
)

// largeSize is how much is sent: 1 GiB unless HEADGATE_LARGE_MIB says otherwise.
func largeSize(t testing.TB) int64 { return int64(setting(t, "HEADGATE_LARGE_MIB", 1024)) << 20 }

// noiseReader gives n bytes that do not compress, and keeps their hash.
func noiseReader(seed uint64, n int64) io.Reader {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return io.LimitReader(rand.NewChaCha8(key), n)
}

// measure runs work and reports what memory the server took meanwhile.
func (g *gate) measure(what string, work func()) {
	g.t.Helper()
	before, err := harness.RSSAnon(g.PID())
	if err != nil {
		g.t.Fatal(err)
	}
	w := harness.WatchMemory(g.PID(), watchEvery)
	from := time.Now()
	work()
	own, child := w.Peak()
	g.t.Logf("%s: %.1fs, headgate grew by %d MiB, its largest git process had %d MiB", what, time.Since(from).Seconds(), (own-before)>>20, child>>20)
	if own-before > ownLimit {
		g.t.Errorf("%s: memory grew by %d MiB, want under %d", what, (own-before)>>20, ownLimit>>20)
	}
	if child > gitLimit {
		g.t.Errorf("%s: a git process had %d MiB, want under %d", what, child>>20, gitLimit>>20)
	}
}

func startPlain(t testing.TB, changes ...func(*harness.Options)) *gate {
	t.Helper()
	program, err := programs.Plain()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, program, changes...)
}

// A file of 1 GiB goes in by commit-pack and comes out by pointer with bounded memory.
func TestA07_LargeFileHasBoundedMemory(t *testing.T) {
	g := startPlain(t)
	g.broken = true // a clone of it for fsck would cost more than the test
	r := g.repo()
	size, sha := largeSize(t), ""
	g.measure("commit-pack", func() { sha = r.commitLarge("main", "big", "", noiseReader(seed, size)) })
	want := sha256.New()
	if _, err := io.Copy(want, noiseReader(seed, size)); err != nil {
		t.Fatal(err)
	}
	g.measure("file", func() {
		req, err := g.Request(harness.Ask{Path: r.path("/file?path=big&ref=" + sha), Token: r.read})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := g.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got := sha256.New()
		n, err := io.Copy(got, resp.Body)
		if err != nil || n != size || fmt.Sprintf("%x", got.Sum(nil)) != fmt.Sprintf("%x", want.Sum(nil)) {
			t.Errorf("file of %d bytes = %d, %d bytes, %v, sha256 equal %v", size, resp.StatusCode, n, err, fmt.Sprintf("%x", got.Sum(nil)) == fmt.Sprintf("%x", want.Sum(nil)))
		}
	})
}

// A push of 1 GiB streams through with bounded memory, and so do clones of it.
func TestCase12_2_LargePushHasBoundedMemory(t *testing.T) {
	g := startPlain(t)
	r := g.repo()
	g.broken = true
	dir := t.TempDir()
	g.run(dir, "init", "-q")
	big, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(big, noiseReader(seed+1, largeSize(t))); err != nil {
		t.Fatal(err)
	}
	if err := big.Close(); err != nil {
		t.Fatal(err)
	}
	g.run(dir, "-c", "core.compression=0", "add", "big")
	g.run(dir, "commit", "-q", "-m", "big")
	g.measure("push", func() {
		g.run(dir, "-c", "core.compression=0", "push", "-q", r.remote(r.write), "HEAD:refs/heads/main")
	})
	if got := r.head("main", false); got != g.run(dir, "rev-parse", "HEAD") {
		t.Fatalf("main = %q after the push", got)
	}
	g.measure("clone", func() { g.run(r.clone(r.remote(r.read), "--bare"), "fsck", "--strict") })
	g.measure("diff", func() {
		if a := r.get("/diff", "sha", "main"); a.Status != 200 || entry(a, "filtered_files", "big") == nil {
			t.Errorf("diff = %s, want big in filtered_files", a)
		}
	})
}

// Four that read a large file at once, by clone and by pointer, cost no multiple of it.
func TestCase12_2_FourReadersAtOnce(t *testing.T) {
	const size = 40 << 20 // four times that is far over the limit
	g := startPlain(t)
	g.broken = true // a clone of it for fsck would cost more than the test
	r := g.repo()
	sha := r.commitLarge("main", "big", "", noiseReader(seed+2, size))
	fetch := pkt("command=fetch") + "0001" + pkt("no-progress") + pkt("want "+sha+"\n") + pkt("done\n") + "0000"
	for what, ask := range map[string]func() harness.Ask{
		"four files": func() harness.Ask { return harness.Ask{Path: r.path("/file?path=big&ref=" + sha), Token: r.read} },
		"four clones": func() harness.Ask {
			return harness.Ask{
				Method: "POST", Path: r.gitPath(false, "git-upload-pack"), Basic: r.read, Body: strings.NewReader(fetch),
				Header: map[string]string{"Content-Type": "application/x-git-upload-pack-request", "Git-Protocol": "version=2"},
			}
		},
	} {
		g.measure(what, func() {
			var all errgroup.Group
			for range 4 {
				all.Go(func() error { return g.throwAway(ask(), size) })
			}
			if err := all.Wait(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// throwAway reads an answer of at least size bytes and keeps nothing of it.
func (g *gate) throwAway(a harness.Ask, size int64) error {
	req, err := g.Request(a)
	if err != nil {
		return err
	}
	resp, err := g.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode != 200 || n < size) {
		err = fmt.Errorf("%s %s = %d with %d bytes, want 200 and over %d", req.Method, req.URL.Path, resp.StatusCode, n, size)
	}
	return err
}
