package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/integration/harness"
)

// largeBlob is the size of one large file, in MiB.
const largeBlob = 64

// fetchMemoryRows tell how much memory is used at most while the fleet fetches all
// of a repository with large blobs and upkeep goes on. The figures are MiB, the
// references limits.
func (w *workshop) fetchMemoryRows(ctx context.Context) []row {
	peaks := sync.OnceValues(func() ([2]int64, error) { return w.fetchLarge(ctx) })
	peak := func(which int) side {
		return func(context.Context, int) (float64, error) {
			p, err := peaks()
			return 1 / float64(p[which]), err
		}
	}
	limit := func(mib int64) side {
		return func(context.Context, int) (float64, error) { return 1 / float64(mib<<20), nil }
	}
	figure := func(v float64) string { return fmt.Sprintf("%.0f MiB", 1/v/(1<<20)) }
	work := fmt.Sprintf("during %d fetches and upkeep of %d MiB of large blobs", w.fleet, w.large)
	return []row{
		{name: "fetch-memory-headgate", work: "RssAnon of headgate " + work, reference: "limit", goal: 1, figure: figure, ours: peak(0), theirs: limit(256)},
		{name: "fetch-memory-git", work: "RssAnon of the largest git process " + work, reference: "limit", goal: 1, figure: figure, ours: peak(1), theirs: limit(1024)},
	}
}

// fetchLarge gives the most anonymous memory that headgate, and any one git process
// of its, had while the fleet fetched, half of it another branch than the others,
// and small pushes gave upkeep something to do.
func (w *workshop) fetchLarge(ctx context.Context) (peaks [2]int64, err error) {
	settings := filepath.Join(w.dir, "busy.toml")
	text := "[limits]\nupkeep_every = \"1s\"\nsettle_objects = 200\nmerge_packs = 2\nprune_deletions = 2\n"
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		return peaks, err
	}
	token, err := w.token("large")
	if err != nil {
		return peaks, err
	}
	server, err := w.start("headgate", "serve", "--listen", "127.0.0.1:0", "--data", filepath.Join(w.dir, "data-large"),
		"--trust", org+"="+w.publicKey(), "--config", settings)
	if err != nil {
		return peaks, err
	}
	r := &repo{server, "large", token}
	if err := r.post("/api/repos", "application/json", strings.NewReader("{}"), nil); err != nil {
		return peaks, err
	}
	tips, err := w.pushLarge(ctx, r)
	if err != nil {
		return peaks, err
	}
	watch := harness.WatchMemory(server.cmd.Process.Pid, 20*time.Millisecond)
	err = w.fetchBusily(ctx, r, tips)
	peaks[0], peaks[1] = watch.Peak()
	if err == nil && (peaks[0] == 0 || peaks[1] == 0) {
		err = errors.New("no memory was seen")
	}
	return peaks, err
}

// pushLarge fills a repo with large blobs, and gives the tips of two branches that
// hold them all.
func (w *workshop) pushLarge(ctx context.Context, r *repo) (tips []string, err error) {
	dir := filepath.Join(w.dir, "large.git")
	defer os.RemoveAll(dir)
	if _, err := git(ctx, "", nil, "init", "-q", "--bare", "--initial-branch=main", dir); err != nil {
		return nil, err
	}
	in, out := io.Pipe()
	go func() {
		b := bufio.NewWriterSize(out, 1<<20)
		fmt.Fprint(b, "commit refs/heads/main\nmark :1\ncommitter bench <bench@example.invalid> 1700000000 +0000\ndata 6\nlarge\n")
		for n := range max(1, w.large/largeBlob) {
			size := min(w.large, largeBlob) << 20
			fmt.Fprintf(b, "M 100644 inline file%03d.bin\ndata %d\n", n, size)
			b.Write(noise(uint64(n), size)) // a bufio.Writer keeps its error
			b.WriteByte('\n')
		}
		fmt.Fprint(b, "commit refs/heads/other\nmark :2\ncommitter bench <bench@example.invalid> 1700000001 +0000\ndata 6\nother\nfrom :1\nM 100644 inline small\ndata 1\nx\n")
		out.CloseWithError(b.Flush())
	}()
	options := []string{"-c", "core.compression=0", "-c", "core.bigFileThreshold=1m", "-c", "fastimport.unpackLimit=0"}
	if _, err := git(ctx, dir, in, append(options, "fast-import", "--quiet")...); err != nil {
		return nil, err
	}
	if _, err := git(ctx, dir, nil, append(options, "push", "-q", r.remote(), "refs/heads/*:refs/heads/*")...); err != nil {
		return nil, err
	}
	said, err := git(ctx, dir, nil, "rev-parse", "main", "other")
	return strings.Fields(said), err
}

// fetchBusily lets the fleet fetch while commits, and branches that go, keep upkeep busy.
func (w *workshop) fetchBusily(ctx context.Context, r *repo, tips []string) error {
	done := make(chan struct{})
	var busy errgroup.Group
	busy.Go(func() error {
		for n := 0; ; n++ {
			select {
			case <-done:
				return nil
			default:
			}
			branch := fmt.Sprintf("busy/%d", n)
			create := fmt.Sprintf(`{"base_ref":"other","target_branch":%q}`, branch)
			if err := r.post(r.path("/branches/create"), "application/json", strings.NewReader(create), nil); err != nil {
				return err
			}
			if _, err := r.commit(branch, statePath, states(uint64(n), stateBytes)); err != nil {
				return err
			}
			if err := r.dropBranch(branch); err != nil {
				return err
			}
		}
	})
	var all errgroup.Group
	for n := range w.fleet {
		conn := w.connect(r.server.address)
		request := fetchMessage("/"+r.name+".git", r.basic(), "want "+tips[n%len(tips)]+"\n")
		all.Go(func() error {
			got, err := conn.skim(request, http.StatusOK)
			if least := int64(w.large) << 20; err == nil && got < least {
				err = fmt.Errorf("fetch answered with %d bytes, want %d and more", got, least)
			}
			return err
		})
	}
	err := all.Wait()
	close(done)
	return errors.Join(err, busy.Wait())
}

// dropBranch deletes a branch.
func (r *repo) dropBranch(name string) error {
	request, err := http.NewRequest(http.MethodDelete, "http://"+r.server.address+r.path("/branches"), bytes.NewReader(fmt.Appendf(nil, `{"name":%q}`, name)))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", r.bearer())
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("delete branch: %s: %.300s", answer.Status, text)
	}
	return err
}
