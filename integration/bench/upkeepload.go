package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	wireReaders     = 20
	readerBytes     = 50 << 20 // a second, of each reader
	pacedCommits    = 100      // a second
	pacedClients    = 8
	pacedLeast      = 25 * time.Millisecond
	pushingClients  = 16
	pushingDefault  = 10 * time.Minute
	readersCommand  = "readers"
	upkeepPushesRow = "upkeep-push-small"
)

// busyUpkeep has a server settle and merge all the while.
const busyUpkeep = "[limits]\nupkeep_every = \"1s\"\nsettle_objects = 1000\nmerge_packs = 2\n"

// upkeepCommitRows measures how long commits take at most, 99 times of 100, while
// readers clone a large repository and its packs are merged. The readers are a process
// of their own that gets what processor time is left: in life they are elsewhere.
func upkeepCommitRows(ctx context.Context, w *workshop) ([]row, error) {
	double := *w
	double.depth *= 2
	fixture, err := double.fixture(ctx)
	if err != nil {
		return nil, err
	}
	r, err := w.newKeptRepo(ctx, "read", fixture)
	if err != nil {
		return nil, err
	}
	if err := w.restartBusy(r, "data-read"); err != nil {
		return nil, err
	}
	all, err := w.pacers(ctx, r, fixture)
	if err != nil {
		return nil, err
	}
	beside := func(distinct bool) side {
		return func(ctx context.Context, _ int) (float64, error) {
			clients, err := w.launch(readersCommand, w.readersOf(r, fixture, distinct))
			if err != nil {
				return 0, err
			}
			defer clients.stop()
			p99, err := all.p99(ctx)
			return 1 / p99.Seconds(), err
		}
	}
	alone := func(ctx context.Context, _ int) (float64, error) {
		p99, err := all.p99(ctx)
		return 1 / max(p99, pacedLeast/3).Seconds(), err
	}
	work := fmt.Sprintf("p99 of %d commits a second while %d readers clone the same commit of a repository and packs are merged", pacedCommits, wireReaders)
	return []row{
		{name: "upkeep-commit-clones", work: work, reference: "without readers, or 8.33 ms if that is more", goal: 0.33, figure: perOperation, ours: beside(false), theirs: alone},
		{name: "upkeep-commit-fetches", work: "the same, each reader another commit", reference: "the same", figure: perOperation, ours: beside(true), theirs: alone},
	}, nil
}

// restartBusy runs a repo's server again with upkeep at work.
func (w *workshop) restartBusy(r *repo, data string) (err error) {
	r.server.stop()
	config := filepath.Join(w.dir, "busy.toml")
	if err := os.WriteFile(config, []byte(busyUpkeep), 0o600); err != nil {
		return err
	}
	r.server, err = w.start("headgate", "serve", "--listen", "127.0.0.1:0", "--data", filepath.Join(w.dir, data), "--config", config, "--trust", org+"="+w.publicKey())
	return err
}

// pacers are clients that commit at a fixed rate in all.
type pacers struct {
	w   *workshop
	all []*committer
}

func (w *workshop) pacers(ctx context.Context, r *repo, fixture string) (*pacers, error) {
	head, err := git(ctx, fixture, nil, "rev-parse", "main")
	if err != nil {
		return nil, err
	}
	return w.pacersAt(r, head)
}

// pacersAt are pacers whose branches begin at head, where main is.
func (w *workshop) pacersAt(r *repo, head string) (*pacers, error) {
	p := &pacers{w: w}
	for i := range pacedClients {
		branch := fmt.Sprintf("paced/%d", i)
		body := fmt.Sprintf(`{"target_branch":%q,"base_ref":"main"}`, branch)
		if err := r.post(r.path("/branches/create"), "application/json", strings.NewReader(body), nil); err != nil {
			return nil, err
		}
		p.all = append(p.all, newCommitter(r, w.connect(r.server.address), branch, head))
	}
	return p, nil
}

// p99 commits for five times a repetition's time.
func (p *pacers) p99(ctx context.Context) (time.Duration, error) {
	stop := make(chan struct{})
	timer := time.AfterFunc(5*p.w.span, func() { close(stop) })
	defer timer.Stop()
	took, err := p.pace(ctx, stop)
	if err != nil {
		return 0, err
	}
	return percentile(took, 99), nil
}

// pace commits until stop is closed, a hundred times at least. A commit's time is
// counted from when it was due, so that a server that stands still is charged for all it
// holds up.
func (p *pacers) pace(ctx context.Context, stop <-chan struct{}) ([]time.Duration, error) {
	var mu sync.Mutex
	var took []time.Duration
	due := make(chan time.Time, 100*pacedCommits)
	work, ctx := errgroup.WithContext(ctx)
	for _, c := range p.all {
		work.Go(func() error {
			for at := range due {
				if err := errors.Join(ctx.Err(), c.step()); err != nil {
					return err
				}
				mu.Lock()
				took = append(took, time.Since(at))
				mu.Unlock()
			}
			return nil
		})
	}
	tick := time.NewTicker(time.Second / pacedCommits)
	defer tick.Stop()
	for n := 0; (n < 100 || !closed(stop)) && ctx.Err() == nil; n++ {
		select {
		case due <- <-tick.C:
		case <-ctx.Done():
		}
	}
	close(due)
	err := work.Wait()
	return took, err
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func percentile(took []time.Duration, n int) time.Duration {
	slices.Sort(took)
	return took[len(took)*n/100]
}

// readersOf is the command that lets the readers loose.
func (w *workshop) readersOf(r *repo, fixture string, distinct bool) *exec.Cmd {
	return exec.Command("nice", "-n", "19", filepath.Join(w.dir, "bench"), readersCommand, r.server.address, "/"+r.name+".git", r.basic(), fixture, fmt.Sprint(distinct))
}

// runReaders clones over the wire from many connections, again and again, until ctx
// ends. It says when all have begun.
func runReaders(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 5 {
		return fmt.Errorf("%s: want ADDRESS PATH AUTHORIZATION FIXTURE DISTINCT; it is the bench program that starts this one", readersCommand)
	}
	address, path, authorization, fixture, distinct := args[0], args[1], args[2], args[3], args[4] == "true"
	work, ctx := errgroup.WithContext(ctx)
	var begun sync.WaitGroup
	for i := range wireReaders {
		branch := "main"
		if distinct {
			branch = fmt.Sprintf("c/%d", i+1)
		}
		tip, err := git(ctx, fixture, nil, "rev-parse", branch)
		if err != nil {
			return err
		}
		begun.Add(1)
		first := sync.OnceFunc(begun.Done)
		work.Go(func() error {
			defer first()
			for ctx.Err() == nil {
				if err := readSlowly(ctx, "http://"+address+path, authorization, tip, first); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	begun.Wait()
	fmt.Fprintf(out, "readers clone from http://%s\n", address)
	return work.Wait()
}

// readSlowly fetches all of a commit and reads it at a reader's speed.
func readSlowly(ctx context.Context, url, authorization, tip string, first func()) error {
	var body []byte
	for _, line := range []string{"command=fetch\n", "agent=bench/1\n", "object-format=sha1\n"} {
		body = append(body, pktLine(line)...)
	}
	body = append(body, "0001"...)
	for _, line := range []string{"ofs-delta\n", "no-progress\n", "want " + tip + "\n", "done\n"} {
		body = append(body, pktLine(line)...)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/git-upload-pack", strings.NewReader(string(append(body, "0000"...))))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", authorization)
	request.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	request.Header.Set("Git-Protocol", "version=2")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	first()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests, http.StatusServiceUnavailable: // told to come again
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		return nil
	default:
		return fmt.Errorf("fetch: %s", response.Status)
	}
	const slice = 20 * time.Millisecond
	tick := time.NewTicker(slice)
	defer tick.Stop()
	for {
		if _, err := io.CopyN(io.Discard, response.Body, readerBytes*int64(slice)/int64(time.Second)); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		<-tick.C
	}
}

// upkeepPushRows measures whether small pushes grow slower as they go on: the slowest
// of a hundred in the last tenth of the time beside that in the first. Asked for by
// its whole name it takes ten minutes, or what -pushes-for says.
func upkeepPushRows(ctx context.Context, w *workshop) ([]row, error) {
	fixture, err := w.fixture(ctx)
	if err != nil {
		return nil, err
	}
	r, err := w.newHistoryRepo(ctx, "small", fixture)
	if err != nil {
		return nil, err
	}
	tree, err := rootTree(ctx, fixture)
	if err != nil {
		return nil, err
	}
	head, err := git(ctx, fixture, nil, "rev-parse", "main")
	if err != nil {
		return nil, err
	}
	all := make([]*wirePush, pushingClients)
	for i := range all {
		all[i] = &wirePush{gitPeer{w.connect(r.server.address), "/" + r.name + ".git", r.basic()}, fmt.Sprintf("refs/heads/small/%d", i), tree, zeroID, head}
	}
	span := w.pushing
	switch {
	case span > 0:
	case slices.Contains(w.only, upkeepPushesRow):
		span = pushingDefault
	default:
		span = 5 * w.span
	}
	// Both figures are of one run: who is asked first makes it, who comes second has it.
	var kept *[2]time.Duration
	part := func(which int) side {
		return func(ctx context.Context, _ int) (float64, error) {
			if kept != nil {
				p99 := kept[which]
				kept = nil
				return 1 / p99.Seconds(), nil
			}
			first, last, err := pushFor(ctx, all, span)
			kept = &[2]time.Duration{first, last}
			return 1 / kept[which].Seconds(), err
		}
	}
	return []row{{
		name: upkeepPushesRow, work: fmt.Sprintf("p99 of small pushes from %d clients, last tenth of %s", pushingClients, span),
		reference: "first tenth", goal: 0.83, figure: perOperation, ours: part(1), theirs: part(0),
	}}, nil
}

// pushFor pushes from all clients and gives the 99th of a hundred of the first and of
// the last tenth of the time.
func pushFor(ctx context.Context, all []*wirePush, span time.Duration) (first, last time.Duration, err error) {
	var mu sync.Mutex
	var early, late []time.Duration
	work, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for _, p := range all {
		work.Go(func() error {
			for n := 0; time.Since(start) < span || n < 20; n++ {
				begun := time.Now()
				if err := errors.Join(ctx.Err(), p.step()); err != nil {
					return err
				}
				took, at := time.Since(begun), begun.Sub(start)
				mu.Lock()
				if at < span/10 {
					early = append(early, took)
				}
				if at >= span*9/10 {
					late = append(late, took)
				}
				mu.Unlock()
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return 0, 0, err
	}
	if len(early) == 0 || len(late) == 0 {
		return 0, 0, fmt.Errorf("%d pushes in the first tenth, %d in the last", len(early), len(late))
	}
	return percentile(early, 99), percentile(late, 99), nil
}
