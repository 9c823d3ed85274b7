package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
	"github.com/headgate/headgate/integration/harness"
)

// smallPackDisk puts the packs, and they alone, on a file system of their own with so
// many MiB; it gives the folder. Two nodes find it there already.
func smallPackDisk(t testing.TB, mib int) (folder func() string, change func(*harness.Options)) {
	t.Helper()
	mounted := ""
	return func() string { return mounted }, func(o *harness.Options) {
		path := filepath.Join(o.Data, "repos")
		if mounted == path {
			return
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", mib), "tmpfs", path).CombinedOutput(); err != nil {
			t.Fatalf("mount a tmpfs of %d MiB (needs root): %v %s", mib, err, out)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("umount", path).CombinedOutput(); err != nil {
				t.Errorf("umount: %v %s", err, out)
			}
		})
		mounted = path
	}
}

// mergeOften makes packs be settled and merged within moments.
const mergeOften = "[limits]\nsettle_objects = 40\nsettle_bytes = 65536\nhot_pack_bytes = 65536\nmerge_packs = 4\nupkeep_every = \"200ms\"\npack_grace = \"100ms\"\n"

// The disk under the packs fills up while packs are merged, hot objects settled, and
// pushes and files taken: nothing moves wrongly, nothing is left, what needs no pack
// goes on, and all goes on when space returns, in the same processes, on every node.
func TestG06_DiskOfPacksFull(t *testing.T) {
	for _, topology := range []string{"pebble", "redis, two nodes"} {
		t.Run(topology, func(t *testing.T) {
			folder, onSmallDisk := smallPackDisk(t, 24)
			c := &cluster{}
			changes := []func(*harness.Options){withConfig(mergeOften), onSmallDisk}
			if topology != "pebble" {
				c.redis = redistest.Start(t)
				changes = append(changes, func(o *harness.Options) { o.Ledger = c.redis.URL() })
			}
			first := start(t, changes...)
			c.nodes = []*gate{first}
			if c.redis != nil {
				changes = append([]func(*harness.Options){func(o *harness.Options) { o.Data, o.Trust = first.Data, first.Trust }}, changes...)
				second := start(t, changes...)
				second.org = first.org
				c.nodes = append(c.nodes, second)
			}
			c.failing()
			fillPacks(t, c, folder())
		})
	}
}

func fillPacks(t *testing.T, c *cluster, disk string) {
	g := c.nodes[0]
	pids := map[*gate]int{}
	for _, node := range c.nodes {
		pids[node] = node.PID()
	}
	r, head := g.seeded()
	for range 3 {
		next, pack, _ := r.bigPush(head, 2<<20)
		wantHas(t, "a push", r.rawPush(false, pack, pushCommand{head, next, "refs/heads/main"}), "ok refs/heads/main")
		head = next
	}
	// Merge: a fourth pack has room, all four together have not.
	free := fill(t, disk, 1)
	next, pack, _ := r.bigPush(head, 100<<10)
	wantHas(t, "a push that still fits", r.on(c.other()).rawPush(false, pack, pushCommand{head, next, "refs/heads/main"}), "ok refs/heads/main")
	head = next
	c.waitNoSpace(t, "merge packs")
	free2 := fillWhole(t, disk)

	// Push, and a large file by the API.
	clone := r.clone(r.remote(r.write))
	r.work(clone, "more", string(freshNoise(t, 1<<20)))
	for _, node := range c.nodes {
		out := g.refused(clone, "push", r.on(node).remote(r.write), "HEAD:refs/heads/pushed")
		wantHas(t, "push to a full disk", out, "no space left on the server", "[remote rejected]")
		a := r.on(node).tryCommit(harness.Commit{Branch: "main", Expected: head, Files: []harness.File{{Path: "file", Content: string(freshNoise(t, 1<<20))}}})
		if a.Status != 507 || a.Text("code") != "no_space" || a.Get("retryable") != true {
			t.Errorf("large commit to a full disk = %.300s, want 507 no_space, retryable", a.Body)
		}
	}
	c.wantHead(r, "on a full disk", "pushed", "")
	c.wantHead(r, "on a full disk", "main", head)

	// Settle: what is small goes on.
	var state string
	for i := range 30 {
		state = fmt.Sprint("state ", i)
		head = r.on(c.nodes[i%len(c.nodes)]).commit(harness.Commit{Branch: "main", Expected: head, Files: []harness.File{{Path: "state", Content: state}, {Path: fmt.Sprintf("s/%d", i), Content: state}}})
	}
	c.waitNoSpace(t, `"msg":"settle"`)
	for _, node := range c.nodes {
		r.on(node).wantFile(head, "state", state)
		r.on(node).wantFile(head, "README.md", "hello\n")
	}
	c.wantHead(r, "on a full disk", "main", head)
	c.wantNoQuarantine(t, "on a full disk")

	free2()
	free()
	for i, node := range c.nodes {
		g.run(clone, "push", "-q", r.on(node).remote(r.write), fmt.Sprintf("HEAD:refs/heads/pushed%d", i))
		head = r.on(node).commit(harness.Commit{Branch: "main", Expected: head, Files: []harness.File{{Path: "file", Content: string(freshNoise(t, 1<<20))}}})
	}
	for deadline := time.Now().Add(60 * time.Second); largestPack(t, disk) < 6<<20; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the largest pack has %d bytes a minute after space returned, want three of 2 MiB merged", largestPack(t, disk))
		}
	}
	c.wantHead(r, "after space returned", "main", head)
	c.wantNoQuarantine(t, "after space returned")
	for node, pid := range pids {
		if !node.Running() || node.PID() != pid {
			t.Error("a process is another one")
		}
	}
}

// waitNoSpace waits until a node's log tells of a full disk in a line with this text.
func (c *cluster) waitNoSpace(t testing.TB, text string) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for _, g := range c.nodes {
			for line := range strings.Lines(g.Logs()) {
				full := strings.Contains(line, "no space left") || strings.Contains(line, "Out of diskspace") // as git says it
				if full && strings.Contains(line, text) {
					return
				}
			}
		}
	}
	t.Fatalf("no node tells of a full disk in %q:\n%s", text, c.nodes[0].tail())
}

// fillWhole fills a file system to the last byte.
func fillWhole(t testing.TB, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler2")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func largestPack(t testing.TB, disk string) (size int64) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(disk, "*/repo_*/packs/pack-*.pack"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if info, err := os.Stat(path); err == nil { // else it was replaced meanwhile
			size = max(size, info.Size())
		}
	}
	return size
}

// The memory of the Redis fills up, with two nodes on it: writes get 507 on both, reads
// go on, and writes again when there is room.
func TestG06_LedgerFullOnTwoNodes(t *testing.T) {
	redis := redistest.Start(t, "--maxmemory-policy", "noeviction")
	first := start(t, func(o *harness.Options) { o.Ledger = redis.URL() })
	second := start(t, func(o *harness.Options) { o.Ledger, o.Data, o.Trust = redis.URL(), first.Data, first.Trust })
	second.org = first.org
	c := &cluster{nodes: []*gate{first, second}, redis: redis}
	c.failing()
	r, head := first.seeded()
	clone := r.clone(r.remote(r.write))
	r.work(clone, "pushed", "p")
	redis.Do("config", "set", "maxmemory", "1mb") // less than it has
	for _, node := range c.nodes {
		a := r.on(node).tryCommit(harness.Commit{Branch: "main", Expected: head, Files: []harness.File{{Path: "f", Content: string(freshNoise(t, 300_000))}}})
		if a.Status != 507 || a.Text("code") != "no_space" {
			t.Errorf("commit to a full ledger = %.300s, want 507 no_space", a.Body)
		}
		out := first.refused(clone, "push", r.on(node).remote(r.write), "HEAD:refs/heads/pushed")
		wantHas(t, "push to a full ledger", out, "no space left on the server", "[remote rejected]")
		r.on(node).wantFile(head, "README.md", "hello\n")
	}
	c.wantHead(r, "on a full ledger", "main", head)
	c.wantHead(r, "on a full ledger", "pushed", "")
	redis.Do("config", "set", "maxmemory", "0")
	first.run(clone, "push", "-q", r.on(second).remote(r.write), "HEAD:refs/heads/pushed")
	next := r.on(second).commit(harness.Commit{Branch: "main", Expected: head, Files: []harness.File{{Path: "after", Content: "x"}}})
	c.wantHead(r, "when there is room again", "main", next)
	c.wantNoQuarantine(t, "when there is room again")
}
