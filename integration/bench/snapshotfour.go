package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/integration/harness"
)

const (
	fourClients   = 4
	fourMostBytes = 256 << 20 // by which headgate's memory may grow
)

// four is what was seen while clients saved large images at once.
type four struct {
	grown        int64         // bytes of anonymous memory
	idle, beside time.Duration // of commits, the slowest of a hundred
}

// fourRows measure what others notice of large saves. There is one run for all rows. The
// clients get what processor time is left: in life they are elsewhere.
func (w *workshop) fourRows(ctx context.Context) []row {
	run := sync.OnceValues(func() (four, error) { return w.saveFour(ctx) })
	figure := func(of func(four) float64) side {
		return func(context.Context, int) (float64, error) {
			f, err := run()
			return 1 / of(f), err
		}
	}
	work := fmt.Sprintf("while %d clients save %d MiB each", fourClients, w.largeImage)
	return []row{
		{name: "snapshot-four-memory", work: "growth of headgate's RssAnon " + work, reference: "limit", goal: 1, figure: mebibytes,
			ours:   figure(func(f four) float64 { return float64(max(f.grown, 1)) }),
			theirs: func(context.Context, int) (float64, error) { return 1.0 / fourMostBytes, nil }},
		{name: "snapshot-four-commit", work: fmt.Sprintf("p99 of %d commits a second %s", pacedCommits, work), reference: "without them, or 8.33 ms if that is more", goal: 0.33, figure: perOperation,
			ours:   figure(func(f four) float64 { return f.beside.Seconds() }),
			theirs: figure(func(f four) float64 { return max(f.idle, pacedLeast/3).Seconds() })},
	}
}

// saveFour lets the clients save at once while commits go on.
func (w *workshop) saveFour(ctx context.Context) (f four, err error) {
	r, err := w.newSnapshotRepo("four")
	if err != nil {
		return f, err
	}
	head, err := r.commit("main", statePath, states(2, stateBytes))
	if err != nil {
		return f, err
	}
	all, err := w.pacersAt(r, head)
	if err != nil {
		return f, err
	}
	image := filepath.Join(w.dir, "four.img")
	defer os.Remove(image)
	if _, err := newImageFile(image, int64(w.largeImage)<<20, zeroShare); err != nil {
		return f, err
	}
	for client := range fourClients {
		if err := r.begin(fmt.Sprintf("four-%d", client)); err != nil {
			return f, err
		}
	}
	if f.idle, err = all.p99(ctx); err != nil {
		return f, err
	}
	pid := r.server.cmd.Process.Pid
	before, err := harness.RSSAnon(pid)
	if err != nil {
		return f, err
	}
	watch := harness.WatchMemory(pid, 20*time.Millisecond)
	begun := time.Now()
	f.beside, err = w.commitBeside(ctx, all, r, image)
	most, _ := watch.Peak()
	f.grown = most - before
	fmt.Fprintf(os.Stderr, "bench: %d saves of %d MiB in %s\n", fourClients, w.largeImage, time.Since(begun).Round(time.Millisecond))
	return f, err
}

// commitBeside gives the p99 of commits for as long as the clients save.
func (w *workshop) commitBeside(ctx context.Context, all *pacers, r *repo, image string) (time.Duration, error) {
	saved := make(chan struct{})
	var took []time.Duration
	var work errgroup.Group
	work.Go(func() (err error) {
		took, err = all.pace(ctx, saved)
		return err
	})
	saves, saving := errgroup.WithContext(ctx)
	for client := range fourClients {
		saves.Go(func() error {
			args := append([]string{"-n", "19", filepath.Join(w.dir, "headgate")}, r.snapshotArgs("save")...)
			args = append(args, "--session", fmt.Sprintf("four-%d", client), "--state", filepath.Join(w.dir, "states"), image)
			_, err := output(exec.CommandContext(saving, "nice", args...))
			return err
		})
	}
	err := saves.Wait()
	close(saved)
	if werr := work.Wait(); err == nil {
		err = werr
	}
	if err != nil {
		return 0, err
	}
	return percentile(took, 99), nil
}
