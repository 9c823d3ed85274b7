package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	headgate "github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// savesOften has upkeep and the reaper at work all the while, and uploads go that nobody
// goes on with.
const savesOften = upkeepOften + "[sessions]\nreap_every = \"100ms\"\n[snapshots]\nupload_ttl = \"3s\"\n"

// Killed at random points while sessions are saved, by uploads and by streams, and
// snapshots are deleted, the server has after each restart the old or the new snapshot
// of each session, never something between: all that it acknowledged restores. What was
// interrupted can be gone on with; the space of what nobody goes on with, and of what was
// deleted, returns (C-13, DR-23).
func TestC13_KilledWhileSnapshotsAreSaved(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		kills := setting(t, "HEADGATE_KILLS", 15)
		rng := random(t)
		r, _ := g.seeded()
		l := newSavers(r, rng, 4)
		for kill := range kills {
			ends := l.start(t)
			time.Sleep(time.Duration(rng.IntN(600_000)) * time.Microsecond) // the random point
			g.Kill()
			ends()
			if err := g.Restart(); err != nil {
				t.Fatalf("restart after kill %d: %v", kill, err)
			}
			l.check(t, kill)
			if kill%5 == 4 || kill == kills-1 {
				g.operate("fsck")
			}
			if t.Failed() {
				t.Fatalf("wrong after kill %d of seed %d", kill, seed)
			}
		}
		saved := l.saved.Load()
		t.Logf("%d kills, %d saves and %d deletions acknowledged, %d gone on with", kills, saved, l.deleted.Load(), l.resumed)
		if saved < int64(kills) {
			t.Errorf("%d saves were acknowledged in %d rounds: no load to speak of", saved, kills)
		}
		l.clear(t)
	}, withConfig(savesOften))
}

// savers save one session each.
type savers struct {
	r              *repo
	api            *headgate.Snapshots
	all            []*saves
	saved, deleted atomic.Int64
	resumed        int
}

// saves is what is known of the snapshots of one session.
type saves struct {
	id    string
	rng   *rand.Rand
	image *snapshottest.Image
	kept  map[string]*snapshottest.Image // acknowledged, and not deleted
	order []string                       // their ids, oldest first

	pending  *snapshottest.Image // of the save under way
	upload   string              // its id, if it is known
	dropping string              // what is being deleted
}

func newSavers(r *repo, rng *rand.Rand, n int) *savers {
	r.g.t.Helper()
	api, err := headgate.NewAPI(r.g.URL, r.both())
	if err != nil {
		r.g.t.Fatal(err)
	}
	l := &savers{r: r, api: api.Snapshots(r.name)}
	for i := range n {
		s := &saves{id: fmt.Sprint("s", i), rng: rand.New(rand.NewPCG(rng.Uint64(), 1)), kept: map[string]*snapshottest.Image{}}
		s.image = snapshottest.NewImage(rng.Uint64(), []int64{300_001, 1 << 20, 5 << 20, 9<<20 + 5}[i%4], 0.3)
		r.begin(map[string]any{"id": s.id, "base_ref": "main"})
		l.all = append(l.all, s)
	}
	return l
}

func (l *savers) start(t *testing.T) (wait func()) {
	var all sync.WaitGroup
	for _, s := range l.all {
		all.Go(func() {
			for l.step(t, s) {
			}
		})
	}
	return all.Wait
}

// step does one thing, and reports whether it was answered.
func (l *savers) step(t *testing.T, s *saves) bool {
	if len(s.order) > 3 && s.rng.IntN(3) == 0 {
		return l.remove(s, s.order[s.rng.IntN(len(s.order))])
	}
	how := []snapshottest.How{snapshottest.Clustered, snapshottest.Scattered}[s.rng.IntN(2)]
	s.pending, s.upload = s.image.Mutate(s.rng.Uint64(), 0.1, how), ""
	var got headgate.Snapshot
	var err error
	if s.rng.IntN(3) == 0 {
		got, err = l.stream(s)
	} else {
		got, err = l.save(s, "")
	}
	var refused *headgate.ServerError
	if errors.As(err, &refused) && refused.Status < 500 {
		t.Errorf("save of %s = %v", s.id, err)
	}
	if err != nil {
		return false
	}
	l.keep(s, got.SHA)
	return true
}

// keep notes that the pending image is saved.
func (l *savers) keep(s *saves, sha string) {
	s.image, s.pending = s.pending, nil
	s.kept[sha], s.order = s.image, append(s.order, sha)
	l.saved.Add(1)
}

// save saves by an upload, a new one or one that is gone on with.
func (l *savers) save(s *saves, upload string) (headgate.Snapshot, error) {
	ctx, cancel := context.WithTimeout(l.r.g.t.Context(), stateLimit)
	defer cancel()
	if upload == "" { // who dies with the server tries again in vain
		ctx = untilDown(ctx, l.r.g)
	}
	image := s.pending
	return l.api.Save(ctx, headgate.SaveOptions{
		Session: s.id, Upload: upload, Workers: 2,
		Parts: []headgate.SavePart{{Size: image.Size(), Open: func() (io.ReadCloser, error) { return io.NopCloser(image.Reader()), nil }}},
		Begun: func(up headgate.Upload) { s.upload = up.ID },
	})
}

// untilDown ends when the server has.
func untilDown(ctx context.Context, g *gate) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil && g.Running() {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		cancel()
	}()
	return ctx
}

// stream saves by one request.
func (l *savers) stream(s *saves) (headgate.Snapshot, error) {
	a, err := l.r.g.Do(harness.Ask{
		Method: "POST", Path: l.r.path("/sessions/" + s.id + "/snapshots"), Token: l.r.write, Body: s.pending.Reader(),
		Header: map[string]string{"Content-Type": "application/octet-stream"},
	})
	if err == nil && a.Status != http.StatusCreated {
		err = &headgate.ServerError{Status: a.Status, Text: a.String()}
	}
	return headgate.Snapshot{SHA: a.Text("sha")}, err
}

func (l *savers) remove(s *saves, sha string) bool {
	s.dropping = sha
	ctx, cancel := context.WithTimeout(l.r.g.t.Context(), stateLimit)
	defer cancel()
	if _, err := l.api.Delete(ctx, sha, false); err != nil {
		return false
	}
	l.forget(s, sha)
	l.deleted.Add(1)
	return true
}

func (l *savers) forget(s *saves, sha string) {
	s.dropping = ""
	delete(s.kept, sha)
	s.order = slices.DeleteFunc(s.order, func(one string) bool { return one == sha })
}

// check compares every session with what is known of it, and goes on with what was
// interrupted.
func (l *savers) check(t *testing.T, kill int) {
	t.Helper()
	for _, s := range l.all {
		what := fmt.Sprintf("kill %d, session %s", kill, s.id)
		ready := l.ready(t, s)
		for _, sha := range ready {
			if s.kept[sha] != nil {
				continue
			}
			if s.pending == nil || sha != ready[0] {
				t.Errorf("%s: %s is ready, and nobody was told of it", what, sha)
				continue
			}
			l.keep(s, sha)
		}
		if s.dropping != "" && !slices.Contains(ready, s.dropping) {
			l.forget(s, s.dropping)
		}
		s.dropping = ""
		for _, sha := range s.order {
			if !slices.Contains(ready, sha) {
				t.Errorf("%s: %s was acknowledged, and is not ready: %v", what, sha, ready)
			}
		}
		last := l.r.sessionNow(s.id).Text("snapshot_sha")
		if len(s.order) > 0 && (len(ready) == 0 || last != ready[0]) {
			t.Errorf("%s: its last snapshot is %q, ready are %v", what, last, ready)
		}
		if s.pending != nil && s.upload != "" && s.rng.IntN(2) == 0 {
			l.goOn(t, what, s)
		}
		s.pending, s.upload = nil, ""
		for _, sha := range s.order[max(0, len(s.order)-2):] {
			l.wantImage(t, what, sha, s.kept[sha])
		}
	}
}

// goOn goes on with an upload that was interrupted, if it is still there.
func (l *savers) goOn(t *testing.T, what string, s *saves) {
	t.Helper()
	got, err := l.save(s, s.upload)
	var refused *headgate.ServerError
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound: // its time was up
	case err != nil:
		t.Errorf("%s: going on with an upload: %v", what, err)
	default:
		l.keep(s, got.SHA)
		l.resumed++
	}
}

// ready are the snapshots of a session that can be restored, newest first.
func (l *savers) ready(t *testing.T, s *saves) (shas []string) {
	t.Helper()
	err := l.api.List(t.Context(), s.id, func(one headgate.Snapshot) error {
		switch one.State {
		case "ready":
			shas = append(shas, one.SHA)
		case "failed":
			if one.Usable || one.SHA != "" {
				t.Errorf("session %s has a failed snapshot %+v", s.id, one)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("list snapshots of %s: %v", s.id, err)
	}
	return shas
}

// A held is an image in memory, which begins as zeros.
type held []byte

func (h held) WriteAt(p []byte, off int64) (int, error) { return copy(h[off:], p), nil }

func (l *savers) wantImage(t *testing.T, what, sha string, image *snapshottest.Image) {
	t.Helper()
	got, want := make(held, image.Size()), bytes.Buffer{}
	if _, err := l.api.Restore(t.Context(), sha, headgate.RestoreOptions{At: got}); err != nil {
		t.Errorf("%s: restore of %s: %v", what, sha, err)
		return
	}
	if _, err := image.WriteTo(&want); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s: %s restores to something else", what, sha)
	}
}

// clear looks at every snapshot once more, deletes all, and waits for the space.
func (l *savers) clear(t *testing.T) {
	t.Helper()
	g := l.r.g
	until(t, "dead uploads are gone", func() bool { return g.stagedBytes() == 0 })
	for _, s := range l.all {
		for _, sha := range s.order {
			l.wantImage(t, "at the end", sha, s.kept[sha])
		}
		for _, sha := range slices.Clone(s.order) {
			if !l.remove(s, sha) {
				t.Errorf("%s is not deleted", sha)
			}
		}
	}
	if g.Ledger != "" { // the upkeep lease of a node that was killed lasts longer than a test
		return
	}
	g.operate("gc", "--now")
	until(t, "the space of snapshots returns", func() bool { return g.packBytes() < 200_000 })
}
