package integration

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	headgate "github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// One byte of the last snapshot's chunks is another: its restore fails and leaves
// nothing, nothing fresh is begun instead, the session becomes view-only; the state
// before it still restores, and fsck names the damaged one (B-09). Once that is deleted
// the session goes on.
func TestB09_DR24_DamagedChunk(t *testing.T) {
	g := start(t)
	g.failures = true
	r, _ := g.seeded()
	u := r.runner("s")
	image := memory(11, 6)
	good := u.save(newImageFile(t, image))
	before := g.packFiles()
	bad := u.save(newImageFile(t, image.Mutate(1, 0.4, snapshottest.Clustered)))
	pack := slices.DeleteFunc(g.packFiles(), func(path string) bool { return slices.Contains(before, path) })
	if len(pack) != 1 {
		t.Fatalf("the second save made the packs %v, want one", pack)
	}
	flipInMiddle(t, pack[0])
	to := filepath.Join(t.TempDir(), "restored")
	complaint := u.fails("restore", []string{bad.SHA, to}, "damaged")
	wantHas(t, "its complaint", complaint, bad.SHA)
	if found, err := filepath.Glob(to + "*"); err != nil || len(found) > 0 {
		t.Errorf("a failed restore leaves %v, %v", found, err)
	}
	if a, err := g.Do(harness.Ask{Path: r.path("/snapshots/" + bad.SHA + "/image"), Token: u.token}); err == nil && (a.Status < 500 || a.Text("code") != "snapshot_damaged") {
		t.Errorf("image of a damaged snapshot = %s, want 5xx snapshot_damaged or a cut answer", a)
	}
	if now := r.sessionNow("s"); now.Text("state") != "view_only" || now.Get("usable") != false {
		t.Errorf("session = %s, want it view_only", now)
	}
	for _, s := range u.list() {
		if want := s.SHA == good.SHA; s.Usable != want || (s.State == "ready") != want {
			t.Errorf("listed %+v, want usable %v", s, want)
		}
	}
	u.wantRestored("the state before", good.SHA, image)
	if out, err := g.tool("fsck", "--server", g.URL, "--data", g.Data).CombinedOutput(); err == nil || !strings.Contains(string(out), bad.SHA) || strings.Contains(string(out), good.SHA) {
		t.Errorf("fsck = %v, %s; want it to name %s alone", err, out, bad.SHA)
	}
	u.run("rm", bad.SHA)
	if now := r.sessionNow("s"); now.Text("state") != "active" || now.Text("snapshot_sha") != good.SHA {
		t.Errorf("session = %s, want it active again at %s", now, good.SHA)
	}
	next := u.save(newImageFile(t, image.Mutate(2, 0.1, snapshottest.Clustered)), "--fresh")
	u.wantRestored("a save after it", next.SHA, image.Mutate(2, 0.1, snapshottest.Clustered))
}

// flipInMiddle changes one byte in the middle of a file.
func flipInMiddle(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	at := info.Size() / 2
	if _, err := f.ReadAt(one, at); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 0x10
	if _, err := f.WriteAt(one, at); err != nil {
		t.Fatal(err)
	}
}

// The disk is full at a save: it is refused as retryable, the ref does not move, the
// state before restores; with space again the same save succeeds (B-06).
func TestB06_DiskFullAtASave(t *testing.T) {
	for _, topology := range []string{"pebble", "redis"} {
		t.Run(topology, func(t *testing.T) {
			folder, onSmallDisk := smallPackDisk(t, 24)
			changes := []func(*harness.Options){onSmallDisk}
			if topology == "redis" {
				changes = append(changes, onRedis(t))
			}
			g := start(t, changes...)
			g.failures = true
			r, _ := g.seeded()
			u := r.runner("s")
			first, second := full(12, 2), full(13, 12)
			saved := u.save(newImageFile(t, first))
			free := fill(t, folder(), 2)
			file := newImageFile(t, second)
			u.fails("save", u.saveArgs(file), "no space")
			a := g.do(harness.Ask{Method: "POST", Path: r.path("/sessions/s/snapshots"), Token: u.token, Body: second.Reader(), Header: map[string]string{"Content-Type": "application/octet-stream"}})
			if a.Status != 507 || a.Text("code") != "no_space" || a.Get("retryable") != true {
				t.Errorf("save to a full disk = %s, want 507 no_space, retryable", a)
			}
			if now := r.sessionNow("s"); now.Text("snapshot_sha") != saved.SHA || now.Text("state") != "active" {
				t.Errorf("session on a full disk = %s, want it active at %s", now, saved.SHA)
			}
			u.wantRestored("on a full disk", saved.SHA, first)
			free()
			later := u.save(file)
			u.wantRestored("once there is space", later.SHA, second)
			if got := u.ready(); !slices.Equal(got, []string{later.SHA, saved.SHA}) {
				t.Errorf("ready = %v, want %s and %s", got, later.SHA, saved.SHA)
			}
		})
	}
}

// Whoever is interrupted at a save goes on with the same command: what was sent is not
// sent again, also when the server was killed meanwhile.
func TestCase14_3_InterruptedSaveGoesOn(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	u := r.runner("s")
	image := full(14, 48)
	file := newImageFile(t, image)
	address, sent := counted(t, g.Addr())
	save := func(flags ...string) *exec.Cmd {
		cmd := u.command("save", u.saveArgs(file, flags...)...)
		cmd.Env = append(cmd.Env, "HEADGATE_SERVER=http://"+address)
		return cmd
	}
	cmd := save("--workers", "1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Some of it has come, not all.
	until(t, "chunks are staged", func() bool { return g.stagedBytes() > 4<<20 })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	staged := g.stagedBytes()
	if list := u.list(); len(list) != 1 || list[0].State != "capturing" {
		t.Fatalf("after the interruption there is %+v, want one that is captured", list)
	}
	if now := r.sessionNow("s"); now.Text("snapshot_sha") != "" {
		t.Errorf("session = %s, want no snapshot yet", now)
	}
	g.restarted()
	before := sent()
	out, complaint, err := finish(t, save())
	if err != nil {
		t.Fatalf("going on: %v\n%s", err, complaint)
	}
	got := decoded[headgate.Snapshot](t, out)
	if got.State != "ready" || sent()-before > got.Stored-staged/2 {
		t.Errorf("going on = %+v after %d bytes, want it ready after far less than %d: %d were there", got, sent()-before, got.Stored, staged)
	}
	u.wantRestored("gone on with", got.SHA, image)
	if list := u.list(); len(list) != 1 {
		t.Errorf("there are %d snapshots, want one", len(list))
	}
}

// counted is an address that leads to another, and how much was sent there by it.
func counted(t testing.TB, to string) (address string, sent func() int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var n atomic.Int64
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go forward(in, to, &n)
		}
	}()
	return l.Addr().String(), n.Load
}

func forward(in net.Conn, to string, n *atomic.Int64) {
	defer in.Close()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		_, _ = io.Copy(in, out)
		in.Close()
	}()
	_, _ = io.Copy(io.MultiWriter(out, counter{n}), in)
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// stagedBytes is what lies in stages of uploads.
func (g *gate) stagedBytes() (n int64) {
	g.t.Helper()
	_ = filepath.WalkDir(filepath.Join(g.Data, "repos"), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.Contains(path, "/uploads/") {
			return nil // it has gone meanwhile
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}

// A clone of the workspace, of either remote, never gets what belongs to snapshots, how
// much there is of it; nor does anybody see their refs (PN-23).
func TestPN23_ClonesDownloadNoMemory(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, _ := g.seeded()
		u := r.runner("s")
		count := func() (objects []string) {
			for _, remote := range []string{r.remote(r.read), r.ephemeral(r.read)} {
				dir := r.mirror(remote)
				objects = append(objects, g.run(dir, "count-objects", "-v"), g.run(dir, "rev-parse", "--all"))
			}
			return objects
		}
		before := count()
		image := full(15, 3)
		var shas []string
		for n := range 5 {
			image = image.Mutate(uint64(n), 0.2, snapshottest.Clustered)
			shas = append(shas, u.save(newImageFile(t, image)).SHA)
		}
		after := count()
		for i := range before {
			if sameLines(before[i]) != sameLines(after[i]) {
				t.Errorf("clones had %q before five saves, %q after them", before[i], after[i])
			}
		}
		for _, remote := range []string{r.remote(u.token), r.ephemeral(u.token)} {
			for name, oid := range r.refs(remote) {
				if strings.Contains(name, "snapshots") || slices.Contains(shas, oid) {
					t.Errorf("%s shows %s at %s", clip([]string{remote}), name, oid)
				}
			}
			for _, sha := range shas {
				if out := g.git.Run("", nil, "fetch-pack", remote, sha); out.Err == nil {
					t.Errorf("fetch of snapshot %s succeeds: %s", sha, out.All())
				}
			}
		}
	})
}

// sameLines leaves out of what git counts how a clone was packed.
func sameLines(counted string) string {
	var kept []string
	for line := range strings.Lines(counted) {
		if name, _, _ := strings.Cut(line, ":"); name != "size-pack" && name != "packs" {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// Snapshots are in a backup, and restore on the machine that it comes back on (G-04).
func TestG04_SnapshotsComeBackFromABackup(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, main := g.seeded()
		u := r.runner("s")
		image := memory(16, 4)
		first := u.save(newImageFile(t, image))
		g.succeeds("fsck", "--server", g.URL, "--data", g.Data)
		dir := filepath.Join(t.TempDir(), "backup")
		g.operate("backup", "--to", dir)
		second := u.save(newImageFile(t, image.Mutate(1, 0.1, snapshottest.Scattered)))
		g.operate("backup", "--to", dir)
		data := filepath.Join(t.TempDir(), "data")
		g.succeeds("restore", "--from", dir, "--data", data)
		if out := g.succeeds("fsck", "--data", data); !strings.Contains(out, "/"+r.name+": sound\n") {
			t.Errorf("fsck of the restored store = %s", out)
		}
		back := startProgram(t, g.Program, func(o *harness.Options) { o.Data, o.Trust = data, g.Trust })
		back.org = g.org
		v := u.on(back)
		if got := v.ready(); !slices.Equal(got, []string{second.SHA, first.SHA}) {
			t.Errorf("ready after the restore = %v, want %s and %s", got, second.SHA, first.SHA)
		}
		v.wantRestored("the first, come back", first.SHA, image)
		v.wantRestored("the second, come back", second.SHA, image.Mutate(1, 0.1, snapshottest.Scattered))
		next := v.save(newImageFile(t, image.Mutate(2, 0.1, snapshottest.Scattered)))
		if next.Parent != second.SHA || next.Workspace != main {
			t.Errorf("save after the restore = %+v, want it after %s", next, second.SHA)
		}
	})
}

// Of two saves that are sealed at once, expecting the same state before them, one wins
// whole and the other is told; on two nodes what one saves the other restores.
func TestCase14_5_SavesOnTwoNodes(t *testing.T) {
	onEachCluster(t, func(t *testing.T, c *cluster) {
		r, _ := c.nodes[0].seeded()
		u := r.runner("s")
		image := memory(17, 3)
		base := u.save(newImageFile(t, image))
		v := u.on(c.other())
		v.state = t.TempDir()
		v.wantRestored("saved on the first node", base.SHA, image)
		images := []*snapshottest.Image{image.Mutate(1, 0.3, snapshottest.Scattered), image.Mutate(2, 0.3, snapshottest.Scattered)}
		type end struct {
			image *snapshottest.Image
			out   string
			told  string
			err   error
		}
		ends := make(chan end, 2)
		for i, w := range []*runner{u, v} {
			file := newImageFile(t, images[i])
			cmd := w.command("save", w.saveArgs(file, "--expected-head", base.SHA)...)
			go func() {
				var errs bytes.Buffer
				cmd.Stderr = &errs
				out, err := cmd.Output()
				ends <- end{images[i], string(out), errs.String(), err}
			}()
		}
		var won []end
		for range 2 {
			e := <-ends
			if e.err == nil {
				won = append(won, e)
			} else if !strings.Contains(e.told, base.SHA) && !strings.Contains(e.told, "another save of the session is ending") {
				t.Errorf("who loses is told %q, want where the ref is", e.told)
			}
		}
		if len(won) != 1 {
			t.Fatalf("%d of two saves that expect the same head won, want one", len(won))
		}
		winner := decoded[headgate.Snapshot](t, won[0].out)
		for _, w := range []*runner{u, v} {
			if got := w.ready(); !slices.Equal(got, []string{winner.SHA, base.SHA}) {
				t.Errorf("ready = %v, want %s and %s", got, winner.SHA, base.SHA)
			}
			w.wantRestored("the winner", winner.SHA, won[0].image)
		}
	})
}
