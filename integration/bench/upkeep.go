package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
)

// upkeepWireRows measures clones and fetches of a repository that upkeep has been
// through, beside git http-backend, whose repository is packed as it was pushed there.
func upkeepWireRows(ctx context.Context, w *workshop) ([]row, error) {
	fixture, err := w.fixture(ctx)
	if err != nil {
		return nil, err
	}
	r, err := w.newKeptRepo(ctx, "kept", fixture)
	if err != nil {
		return nil, err
	}
	theirs, err := w.pushedPlain(ctx, fixture)
	if err != nil {
		return nil, err
	}
	const reference = "git http-backend, nginx, fcgiwrap"
	blobless := []string{"--filter=blob:none", "--no-checkout"}
	rows := []row{
		{name: "upkeep-wire-clone-full", work: "git clone --bare, full history", goal: 1, ours: w.clones(r.remote(), 1, "--bare"), theirs: w.clones(theirs, 1, "--bare")},
		{name: "upkeep-wire-clone-blobless", work: "git clone, no blobs, no checkout", goal: 1, ours: w.clones(r.remote(), 1, blobless...), theirs: w.clones(theirs, 1, blobless...)},
	}
	for _, commits := range []int{1, 100} {
		f, err := w.newFetcher(ctx, fixture, commits)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{
			name: fmt.Sprintf("upkeep-wire-fetch-%d", commits), work: fmt.Sprintf("git fetch of %d commits that were just pushed", commits),
			goal: 1.3, ours: f.fetches(r.remote(), "ours"), theirs: f.fetches(theirs, "theirs"),
		})
	}
	for i := range rows {
		rows[i].reference, rows[i].figure = reference, perOperation
	}
	return rows, nil
}

// newKeptRepo starts a server with the fixture in a repo, pushed as anybody would,
// after all upkeep has been done.
func (w *workshop) newKeptRepo(ctx context.Context, name, fixture string) (*repo, error) {
	r, err := w.newHistoryRepo(ctx, name, fixture)
	if err != nil {
		return nil, err
	}
	r.server.stop()
	data := filepath.Join(w.dir, "data-"+name)
	if out, err := exec.CommandContext(ctx, filepath.Join(w.dir, "headgate"), "gc", "--now", "--data", data).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("headgate gc: %w: %s", err, out)
	}
	r.server, err = w.headgate(data)
	return r, err
}

// pushedPlain serves the fixture from a plain repository into which it was pushed
// over the wire, so that it is packed as git receives it.
func (w *workshop) pushedPlain(ctx context.Context, fixture string) (remote string, err error) {
	root := filepath.Join(w.dir, "pushed")
	plain := filepath.Join(root, fixtureName)
	if _, err := git(ctx, "", nil, "init", "-q", "--bare", "--initial-branch=main", plain); err != nil {
		return "", err
	}
	for _, setting := range []string{"http.receivepack", "uploadpack.allowFilter"} {
		if _, err := git(ctx, plain, nil, "config", setting, "true"); err != nil {
			return "", err
		}
	}
	address, err := w.httpBackend(ctx, root)
	if err != nil {
		return "", err
	}
	remote = "http://" + address + "/" + fixtureName
	_, err = git(ctx, fixture, nil, "-c", "http.postBuffer=1048576", "push", "-q", remote, "refs/heads/*:refs/heads/*")
	return remote, err
}

// A fetcher fetches commits that it has had pushed before.
type fetcher struct {
	w       *workshop
	fixture string
	commits int
	source  string // a bare repository that makes the commits
	n       int
}

func (w *workshop) newFetcher(ctx context.Context, fixture string, commits int) (*fetcher, error) {
	dir := filepath.Join(w.scratch, fmt.Sprintf("fetch-source-%d", commits))
	w.onStop(func() { os.RemoveAll(dir) })
	_, err := git(ctx, "", nil, "clone", "-q", "--bare", "--shared", "--single-branch", "--branch", "main", fixture, dir)
	return &fetcher{w: w, fixture: fixture, commits: commits, source: dir}, err
}

// fetches has new commits pushed to remote and measures how long a client that has
// everything else takes to fetch them.
func (f *fetcher) fetches(remote, side string) side {
	return func(ctx context.Context, _ int) (float64, error) {
		f.n++
		branch := fmt.Sprintf("new/%d-%d", f.commits, f.n)
		if err := f.grow(ctx, branch); err != nil {
			return 0, err
		}
		if _, err := git(ctx, f.source, nil, "push", "-q", remote, branch); err != nil {
			return 0, err
		}
		client := filepath.Join(f.w.scratch, "fetch-client-"+side)
		defer os.RemoveAll(client)
		// Without alternates, for which git starts processes of its own.
		if _, err := git(ctx, "", nil, "clone", "-q", "--bare", "--no-hardlinks", "--single-branch", "--branch", "main", f.fixture, client); err != nil {
			return 0, err
		}
		for _, setting := range []string{"gc.auto=0", "maintenance.auto=false"} {
			name, value, _ := strings.Cut(setting, "=")
			if _, err := git(ctx, client, nil, "config", name, value); err != nil {
				return 0, err
			}
		}
		return timed(1, func(int) error {
			_, err := git(ctx, client, nil, "fetch", "-q", remote, "refs/heads/"+branch+":refs/heads/"+branch)
			return err
		})
	}
}

// grow makes commits on top of main, each with one more file of 1 KiB.
func (f *fetcher) grow(ctx context.Context, branch string) error {
	in, out := io.Pipe()
	var work errgroup.Group
	work.Go(func() error {
		w := bufio.NewWriter(out)
		for i := range f.commits {
			fmt.Fprintf(w, "commit refs/heads/%s\ncommitter bench <bench@example.invalid> %d +0000\ndata 4\nstep\n", branch, 1_800_000_000+i)
			if i == 0 {
				fmt.Fprintf(w, "from refs/heads/main\n")
			}
			content := states(uint64(f.n*1000+i), stateBytes)
			fmt.Fprintf(w, "M 100644 inline new/file%04d.json\ndata %d\n%s\n", i, len(content), content)
		}
		err := w.Flush()
		out.CloseWithError(err)
		return err
	})
	_, err := git(ctx, f.source, in, "fast-import", "--quiet")
	in.Close()
	if werr := work.Wait(); err == nil && werr != nil && !strings.Contains(werr.Error(), "closed") {
		err = werr
	}
	return err
}
