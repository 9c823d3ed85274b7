package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/sessions/snapshot"
)

// lateImages opens repos for a keeper that is made before its store.
type lateImages struct{ store *gitstore.Store }

func (l *lateImages) open(repo snapshot.RepoID, by snapshot.Actor) (snapshot.Repo, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := l.store.Repo(ctx, repo.Org, repo.Name)
	if err != nil {
		return nil, err
	}
	return NewSnapshotRepo(r, gitstore.Caller{Actor: gitstore.Actor(by)}), nil
}

func (l *lateImages) door(repo sessions.Repo, by sessions.Actor) (sessions.Door, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := l.store.Repo(ctx, repo.Org, repo.Name)
	if err != nil {
		return nil, err
	}
	return NewDoor(r, gitstore.Caller{Actor: gitstore.Actor(by)}), nil
}

// newKeep is a house with a session s, whose snapshots are bound by limits.
func newKeep(t testing.TB, limits snapshot.Limits) *house {
	t.Helper()
	h := newHouse(t, func(c *Config) { c.Snapshots.Limits = merged(c.Snapshots.Limits, limits) })
	h.session(meta{"id": "s"})
	return h
}

func merged(l, by snapshot.Limits) snapshot.Limits {
	if by.Cap != 0 {
		l.Cap = by.Cap
	}
	if by.Quota != 0 {
		l.Quota = by.Quota
	}
	return l
}

// image is memory-like content of n bytes: half of its pages are zeros.
func image(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	for at := 0; at < n; at += 8 << 10 {
		_, _ = r.Read(b[at:min(n, at+4<<10)])
	}
	return b
}

// metaHeader is what a save of one stream says besides its query.
func metaHeader(t testing.TB, m meta) map[string][]string {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]string{manifestHeader: {base64.RawURLEncoding.EncodeToString(text)}}
}

// saving is the request that saves an image as one stream.
func (h *house) saving(session string, body []byte, m meta, query ...string) ask {
	return ask{
		method: "POST", path: h.path("/sessions/"+session+"/snapshots", query...), token: h.write,
		body: body, header: metaHeader(h.t, m),
	}
}

// save saves an image and gives the answer.
func (h *house) save(session string, body []byte, m meta) map[string]any {
	h.t.Helper()
	return h.want(201, h.saving(session, body, m)).json(h.t)
}

func (h *house) snapshot(sha string) map[string]any {
	h.t.Helper()
	return h.want(200, ask{path: h.path("/snapshots/" + sha), token: h.read}).json(h.t)
}

func (h *house) imageOf(sha string, query ...string) answer {
	h.t.Helper()
	return h.want(200, ask{path: h.path("/snapshots/"+sha+"/image", query...), token: h.read})
}

// restored fails the test unless a snapshot's image is what it should be.
func (h *house) restored(sha string, want []byte) answer {
	h.t.Helper()
	a := h.imageOf(sha)
	if !bytes.Equal(a.body, want) {
		h.t.Fatalf("image of %s: %d bytes, sha256 %x; want %d bytes, %x", sha, len(a.body), sha256.Sum256(a.body), len(want), sha256.Sum256(want))
	}
	return a
}

func (h *house) get(session string) map[string]any {
	h.t.Helper()
	return h.want(200, ask{path: h.path("/sessions/" + session), token: h.read}).json(h.t)
}

// listed are the snapshots of a session by state and id, newest first.
func (h *house) listed(session string) (list []string) {
	h.t.Helper()
	all := h.want(200, ask{path: h.path("/sessions/" + session + "/snapshots"), token: h.read}).json(h.t)
	for i := range all["snapshots"].([]any) {
		list = append(list, fmt.Sprint(at(all, "snapshots", i, "state"), " ", at(all, "snapshots", i, "sha")))
	}
	return list
}

// A fullDisk has no room for packs while full is set.
type fullDisk struct {
	packs.FS
	full atomic.Bool
}

func (d *fullDisk) Create(name string) (packs.File, error) {
	f, err := d.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return fullFile{f, d}, nil
}

type fullFile struct {
	packs.File
	disk *fullDisk
}

func (f fullFile) Write(p []byte) (int, error) {
	if f.disk.full.Load() {
		return 0, &fs.PathError{Op: "write", Path: "pack", Err: syscall.ENOSPC}
	}
	return f.File.Write(p)
}

func (f fullFile) WriteAt(p []byte, off int64) (int, error) {
	if f.disk.full.Load() {
		return 0, &fs.PathError{Op: "write", Path: "pack", Err: syscall.ENOSPC}
	}
	return f.File.WriteAt(p, off)
}

// packsWith are the files of packs that hold some bytes as they are, with where.
func (g *gate) packsWith(content []byte) map[string]int {
	g.t.Helper()
	found := map[string]int{}
	err := filepath.WalkDir(filepath.Join(g.dir, "repos"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".pack") {
			return err
		}
		text, err := os.ReadFile(path)
		if at := bytes.Index(text, content); at >= 0 {
			found[path] = at
		}
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return found
}

// damage flips a bit of content where packs hold it.
func (g *gate) damage(content []byte) {
	g.t.Helper()
	found := g.packsWith(content)
	if len(found) == 0 {
		g.t.Fatal("no pack holds the chunk as it is")
	}
	for path, at := range found {
		if err := os.Chmod(path, 0o644); err != nil {
			g.t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			g.t.Fatal(err)
		}
		_, err = f.WriteAt([]byte{content[0] ^ 1}, int64(at))
		if cerr := f.Close(); err != nil || cerr != nil {
			g.t.Fatal(err, cerr)
		}
	}
}
