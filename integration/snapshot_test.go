package integration

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	headgate "github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// A save while the sandbox runs: it is capturing, then ready, and what was written after
// it is not in it (D-01). What was left out is named by the save and by the restore
// (C-06). After kill -9 every ready state restores (D-14), whole and by ranges (D-17).
func TestD01_D14_D17_C06_SaveAndRestore(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, main := g.seeded()
		u := r.runner("s")
		first := memory(1, 6)
		got := u.savePiped(first)
		if got.State != "ready" || !got.Usable || got.VerifiedAt.IsZero() || got.Workspace != main || got.Size != first.Size() || got.Zero == 0 {
			t.Errorf("save = %+v, want it ready, verified, of workspace %s", got, main)
		}
		file := filepath.Join(t.TempDir(), "memory")
		second := first.Mutate(1, 0.05, snapshottest.Scattered)
		later := u.save(imageFile(t, file, second), "--exclude", "gpu=cannot be captured", "--name", "later", "--boundary", "manual")
		imageFile(t, file, second.Mutate(2, 0.5, snapshottest.Scattered)) // the sandbox goes on
		if later.Name != "later" || later.Parent != got.SHA || len(later.Excluded) != 1 || later.New >= later.Stored {
			t.Errorf("second save = %+v, want it named, after %s, with what was left out, and little of it new", later, got.SHA)
		}
		if again := u.save(imageFile(t, file, second), "--exclude", "gpu=cannot be captured"); again.Status != "skipped" || again.SHA != later.SHA {
			t.Errorf("save of the same = %+v, want it skipped", again)
		}
		empty := u.save(imageFile(t, file, bytes.NewBuffer(nil)))
		g.restarted()
		if got, want := u.ready(), []string{empty.SHA, later.SHA, got.SHA}; !slices.Equal(got, want) {
			t.Errorf("ready after kill -9 = %v, want %v", got, want)
		}
		u.wantRestored("the first", got.SHA, first)
		u.wantRestored("the second", later.SHA, second)
		u.wantRestored("the empty one", empty.SHA, bytes.NewBuffer(nil))
		path, told := u.restore("last", "--session", "s")
		wantImage(t, "last", path, bytes.NewBuffer(nil))
		if told.SHA != empty.SHA {
			t.Errorf("last = %s, want %s", told.SHA, empty.SHA)
		}
		if _, told = u.restore(later.SHA); len(told.Excluded) != 1 || told.Excluded[0].Name != "gpu" {
			t.Errorf("restore tells of %v left out, want gpu", told.Excluded)
		}
		for _, n := range random(t).Perm(first.Pages())[:40] {
			u.wantPage(got.SHA, first, n)
			u.wantPage(later.SHA, second, n)
		}
	})
}

// savePiped saves what comes by a pipe, and looks on while it comes.
func (u *runner) savePiped(image *snapshottest.Image) headgate.Snapshot {
	t := u.r.g.t
	t.Helper()
	cmd := u.command("save", u.saveArgs("-")...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	half := image.Size() / 2
	if _, err := io.Copy(in, io.NewSectionReader(image, 0, half)); err != nil {
		t.Fatal(err)
	}
	until(t, "the save is seen", func() bool { return len(u.list()) == 1 })
	if now := u.list()[0]; now.State != "capturing" || now.SHA != "" || now.Usable {
		t.Errorf("while it is saved it is %+v, want it capturing and without an id", now)
	}
	if _, err := io.Copy(in, io.NewSectionReader(image, half, image.Size()-half)); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("save from a pipe: %v\n%s%s", err, errs.String(), u.r.g.tail())
	}
	return decoded[headgate.Snapshot](t, out.String())
}

// wantPage asks for one page by its address.
func (u *runner) wantPage(sha string, image *snapshottest.Image, n int) {
	u.r.g.t.Helper()
	at := int64(n) * snapshottest.PageBytes
	want := make([]byte, snapshottest.PageBytes)
	if _, err := image.ReadAt(want, at); err != nil {
		u.r.g.t.Fatal(err)
	}
	a := u.image(sha, fmt.Sprintf("bytes=%d-%d", at, at+snapshottest.PageBytes-1))
	if a.Status != 206 || !bytes.Equal(a.Body, want) {
		u.r.g.t.Errorf("page %d of %s = %d with %d bytes, want those of the image", n, sha, a.Status, len(a.Body))
	}
}

// A snapshot goes to another server as one file, and is there with the same id and the
// same bytes (D-15, DR-9).
func TestD15_ExportedAndImportedElsewhere(t *testing.T) {
	from, to := start(t), start(t, onRedis(t))
	r, _ := from.seeded()
	there, _ := to.seeded()
	u, v := r.runner("s"), there.runner("elsewhere")
	image := memory(2, 5)
	u.save(newImageFile(t, image.Mutate(1, 0.5, snapshottest.Clustered)))
	saved := u.save(newImageFile(t, image))
	bundle := filepath.Join(t.TempDir(), "snapshot.bundle")
	u.run("export", saved.SHA, bundle)
	took := decoded[headgate.Snapshot](t, v.run("import", "--json", "--session", "elsewhere", bundle))
	if took.SHA != saved.SHA || took.State != "ready" || took.Root != saved.Root || took.Session != "elsewhere" {
		t.Errorf("import = %+v, want %s ready with the hash %s", took, saved.SHA, saved.Root)
	}
	to.restarted()
	v.wantRestored("imported", saved.SHA, image)
	u.wantRestored("exported", saved.SHA, image)
	if next := v.save(newImageFile(t, image.Mutate(2, 0.01, snapshottest.Clustered))); next.Parent != saved.SHA || next.New > saved.Stored/4 {
		t.Errorf("save after the import = %+v, want it to add little to %d bytes", next, saved.Stored)
	}
}

// Two sessions made of one state restore it with ids, seeds and tokens of their own, and
// no token is in anything that is stored of it (D-18, D-03).
func TestD18_D03_EachRestoreHasItsOwnIdentity(t *testing.T) {
	g := start(t)
	r, main := g.seeded()
	image := memory(3, 4)
	u := r.runner("s")
	backend := u.token
	u.token = r.issued("s")
	saved := u.save(newImageFile(t, image))
	later := u.save(newImageFile(t, image.Mutate(4, 0.01, snapshottest.Scattered)))
	var seen []string
	given := []string{u.token, backend}
	for _, id := range []string{"child-1", "child-2"} {
		made := r.begin(map[string]any{"id": id, "from_snapshot": saved.SHA})
		if made.Text("base_sha") != main || !strings.Contains(string(made.Body), saved.SHA) {
			t.Errorf("session from a snapshot = %s, want it to name %s", made, saved.SHA)
		}
		own := r.issued(id)
		child := r.runnerOf(id, own) // its sandbox has what it is made of, and nothing else of its parent's
		path, told := child.restore(saved.SHA)
		wantImage(t, id, path, image)
		child.fails("restore", []string{later.SHA, filepath.Join(t.TempDir(), "later")}, "not found")
		seen, given = append(seen, told.RestoreID, told.Seed), append(given, own)
		next := child.save(newImageFile(t, image.Mutate(5, 0.01, snapshottest.Scattered)))
		if next.Parent != saved.SHA || next.New > saved.Stored/2 {
			t.Errorf("save of %s = %+v, want it after %s and little of it new", id, next, saved.SHA)
		}
	}
	slices.Sort(seen)
	if len(slices.Compact(seen)) != 4 || given[2] == given[3] {
		t.Errorf("ids and seeds of two restores = %v, want four", seen)
	}
	for path, object := range u.objects(saved.SHA) {
		for what, secret := range g.secrets(given...) {
			if bytes.Contains(object, secret) {
				t.Errorf("%s is in object %s", what, path)
			}
		}
	}
}

// objects are all objects that an exported snapshot is made of, by id; of chunks their
// content as well.
func (u *runner) objects(sha string) map[string][]byte {
	t := u.r.g.t
	t.Helper()
	dir := u.unbundled(sha)
	all := map[string][]byte{}
	for line := range strings.Lines(u.r.g.run(dir, "cat-file", "--batch-all-objects", "--batch-check")) {
		fields := strings.Fields(line)
		out := u.r.g.git.Run(dir, nil, "cat-file", fields[1], fields[0])
		if out.Err != nil {
			t.Fatal(out.All())
		}
		all[fields[0]] = []byte(out.Stdout)
		if content := inflated([]byte(out.Stdout)); content != nil {
			all[fields[0]+", inflated"] = content
		}
	}
	if len(all) < 10 {
		t.Fatalf("the bundle of %s has %d objects", sha, len(all))
	}
	return all
}

// unbundled is a repository with what a snapshot's bundle holds.
func (u *runner) unbundled(sha string) (dir string) {
	t := u.r.g.t
	t.Helper()
	bundle := filepath.Join(t.TempDir(), "bundle")
	u.run("export", sha, bundle)
	dir = filepath.Join(t.TempDir(), "plain")
	u.r.g.run("", "init", "-q", "--bare", dir)
	u.r.g.run(dir, "fetch", "-q", bundle, "+refs/*:refs/unbundled/*")
	u.r.g.run(dir, "fsck", "--strict", "--full")
	return dir
}

// A save over the cap says the cap and its size; the last valid state stays what is
// restored, and the session says that it is stale until a save fits again (C-05).
func TestC05_SaveOverTheCap(t *testing.T) {
	g := start(t, withConfig("[snapshots]\ncap_bytes = 3_000_000\n"))
	r, _ := g.seeded()
	u := r.runner("s")
	small, large := full(4, 2), full(5, 8)
	first := u.save(newImageFile(t, small))
	u.fails("save", u.saveArgs(newImageFile(t, large)), "over the cap of 3000000")
	a := g.do(harness.Ask{Method: "POST", Path: r.path("/sessions/s/snapshots"), Token: u.token, Body: large.Reader(), Header: map[string]string{"Content-Type": "application/octet-stream"}})
	wantCode(t, "save over the cap", a, 413, "over_cap")
	if number(a, "cap") != 3_000_000 || number(a, "size") <= 3_000_000 {
		t.Errorf("over the cap = %s, want cap and size", a)
	}
	g.restarted()
	if now := r.sessionNow("s"); now.Text("durability") != "stale" {
		t.Errorf("session = %s, want it stale", now)
	}
	u.wantRestored("after the refusal", first.SHA, small)
	if got := u.ready(); !slices.Equal(got, []string{first.SHA}) {
		t.Errorf("ready = %v, want %s alone", got, first.SHA)
	}
	u.save(newImageFile(t, small.Mutate(1, 0.02, snapshottest.Clustered)))
	if now := r.sessionNow("s"); now.Text("durability") == "stale" {
		t.Errorf("session after a save that fits = %s, want it stale no more", now)
	}
}

// Sixty saves in which one page in a hundred changes take hardly more than their chunks,
// and every one restores; an image of zeros takes next to nothing (D-16, small).
func TestD16_ManySavesStaySmall(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	u := r.runner("s")
	file := filepath.Join(t.TempDir(), "memory")
	image := full(6, 8)
	images, shas := []*snapshottest.Image{}, []string{}
	stored := int64(0)
	for n := range setting(t, "HEADGATE_SAVES", 60) {
		if n > 0 {
			image = image.Mutate(uint64(n), 0.01, []snapshottest.How{snapshottest.Clustered, snapshottest.Scattered}[n%2])
		}
		got := u.save(imageFile(t, file, image))
		images, shas, stored = append(images, image), append(shas, got.SHA), stored+got.New
	}
	if most := stored * 3 / 2; g.packBytes() > most {
		t.Errorf("packs hold %d bytes for %d of chunks, want at most %d", g.packBytes(), stored, most)
	}
	for _, n := range append(rand.New(rand.NewPCG(seed, 16)).Perm(len(shas))[:4], 0, len(shas)-1) {
		u.wantRestored(fmt.Sprintf("save %d", n), shas[n], images[n])
	}
	before := g.packBytes()
	zeros := snapshottest.NewImage(1, 256<<20, 1)
	v := r.runner("zeros")
	sha := v.save(newImageFile(t, zeros)).SHA
	if grown := g.packBytes() - before; grown > 1<<20 {
		t.Errorf("an image of zeros takes %d bytes, want under 1 MiB", grown)
	}
	path, _ := v.restore(sha)
	if size, blocks := sizes(t, path); size != zeros.Size() || blocks > 1<<20 {
		t.Errorf("restored zeros are a file of %d bytes that takes %d, want a hole of %d", size, blocks, zeros.Size())
	}
}
