package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

const (
	agedBytes    = 256 << 20 // of the image that is saved again and again
	agedKeptEach = 8         // one of so many parts of its saves is remembered as it was
)

// aged is a session with many snapshots of one image.
type aged struct {
	w      *workshop
	r      *repo
	image  *imageFile
	unique int64       // stored bytes of all its chunks there ever were, each once
	kept   []agedState // some, the first and the last among them
}

type agedState struct {
	sha   string
	image *snapshottest.Image
}

// agedRows measure what age costs: restoring the last of many snapshots, what all of
// them take, and one page of any.
func (w *workshop) agedRows(ctx context.Context) []row {
	made := sync.OnceValues(func() (*aged, error) { return w.newAged(ctx) })
	do := func(step func(*aged, context.Context) (float64, error)) side {
		return func(ctx context.Context, _ int) (float64, error) {
			a, err := made()
			if err != nil {
				return 0, err
			}
			return step(a, ctx)
		}
	}
	limit := func(d time.Duration) side {
		return func(context.Context, int) (float64, error) { return 1 / d.Seconds(), nil }
	}
	size := fmt.Sprintf("%d saves of a %d MiB image without zeros, 1%% of its pages changed each", w.saves, w.agedSize()>>20)
	page := "p50 of a page by its address, of any of them, "
	return []row{
		{name: "snapshot-age", work: "restore the last of " + size, reference: "restore the first", goal: 0.83, figure: perOperation, ours: do((*aged).restoreLast), theirs: do((*aged).restoreFirst)},
		{name: "snapshot-age-bytes", work: "bytes of packs and indexes, after headgate gc --now, of " + size, reference: "stored bytes of the chunks, each once", goal: 1 / 1.5, figure: mebibytes, ours: do((*aged).packed), theirs: do((*aged).once)},
		{name: "snapshot-page-warm", work: page + "warm", reference: "limit", goal: 1, figure: perOperation, ours: do((*aged).pageWarm), theirs: limit(time.Millisecond)},
		{name: "snapshot-page-cold", work: page + "page cache dropped before each", reference: "limit", goal: 1, figure: perOperation, ours: do((*aged).pageCold), theirs: limit(5 * time.Millisecond)},
	}
}

// agedSize is smaller where figures say nothing.
func (w *workshop) agedSize() int64 { return min(agedBytes, int64(w.image)<<20) }

const agedSession = "aged"

func (w *workshop) newAged(ctx context.Context) (*aged, error) {
	r, err := w.newSnapshotRepo("aged")
	if err != nil {
		return nil, err
	}
	// Pages that are written are no zeros afterwards: were there any at first, the last
	// image would be more than the first.
	image, err := newImageFile(filepath.Join(w.dir, "aged.img"), w.agedSize(), 0)
	if err != nil {
		return nil, err
	}
	a := &aged{w: w, r: r, image: image}
	if err := r.begin(agedSession); err != nil {
		return nil, err
	}
	return a, a.grow(ctx)
}

// grow saves the image again and again.
func (a *aged) grow(ctx context.Context) error {
	begun := time.Now()
	known, coder := map[snapshot.Hash]bool{{}: true}, snapshot.NewCoder()
	before := (*snapshottest.Image)(nil)
	for n := range a.w.saves {
		if n > 0 {
			before = a.image.image
			if err := a.image.change([]snapshottest.How{snapshottest.Clustered, snapshottest.Scattered}[n%2]); err != nil {
				return err
			}
		}
		if err := a.count(before, known, coder); err != nil {
			return err
		}
		saved, err := a.w.snapshotSave(ctx, a.r, agedSession, a.image.path)
		if err != nil {
			return fmt.Errorf("save %d: %w", n, err)
		}
		if n%max(1, a.w.saves/agedKeptEach) == 0 || n == a.w.saves-1 {
			a.kept = append(a.kept, agedState{saved.SHA, a.image.image})
		}
	}
	fmt.Fprintf(os.Stderr, "bench: %d saves in %s\n", a.w.saves, time.Since(begun).Round(time.Millisecond))
	return nil
}

// count adds what chunks that were never seen are stored as.
func (a *aged) count(before *snapshottest.Image, known map[snapshot.Hash]bool, coder *snapshot.Coder) error {
	buf, out := make([]byte, snapshot.DefaultChunk), make([]byte, 2*snapshot.DefaultChunk)
	one := func(chunk int64) error {
		content := buf[:min(snapshot.DefaultChunk, a.image.image.Size()-chunk*snapshot.DefaultChunk)]
		if _, err := a.image.image.ReadAt(content, chunk*snapshot.DefaultChunk); err != nil {
			return err
		}
		if c := snapshot.ChunkOf(content); !known[c.Hash] {
			known[c.Hash] = true
			a.unique += int64(len(coder.Encode(content, out)))
		}
		return nil
	}
	const pages = snapshot.DefaultChunk / snapshottest.PageBytes
	if before == nil {
		for chunk := int64(0); chunk*snapshot.DefaultChunk < a.image.image.Size(); chunk++ {
			if err := one(chunk); err != nil {
				return err
			}
		}
		return nil
	}
	last := -1
	for p := range a.image.image.ChangedPages(before) {
		if p/pages == last {
			continue
		}
		last = p / pages
		if err := one(int64(last)); err != nil {
			return err
		}
	}
	return nil
}

func (a *aged) restoreFirst(ctx context.Context) (float64, error) { return a.restore(ctx, a.kept[0]) }
func (a *aged) restoreLast(ctx context.Context) (float64, error) {
	return a.restore(ctx, a.kept[len(a.kept)-1])
}

// restore restores a snapshot and looks whether it is what was saved.
func (a *aged) restore(ctx context.Context, s agedState) (float64, error) {
	to, want := filepath.Join(a.w.dir, "aged-restored.img"), filepath.Join(a.w.dir, "aged-want.img")
	defer os.Remove(to)
	perSecond, err := timed(1, func(int) error { return a.w.snapshotRestore(ctx, a.r, s.sha, to) })
	if err != nil {
		return 0, err
	}
	defer os.Remove(want)
	return perSecond, errors.Join(writeImage(want, s.image), sameFiles(want, to))
}

// packed counts once upkeep has removed what it has merged into other packs.
func (a *aged) packed(ctx context.Context) (float64, error) {
	gc := exec.CommandContext(ctx, filepath.Join(a.w.dir, "headgate"), "gc", "--now", "--server", "http://"+a.r.server.address, "--data", a.data())
	if _, err := output(gc); err != nil {
		return 0, err
	}
	n, err := packBytes(a.data())
	return 1 / float64(n), err
}

func (a *aged) once(context.Context) (float64, error) { return 1 / float64(a.unique), nil }

func (a *aged) data() string { return filepath.Join(a.w.dir, "data-"+a.r.name) }
