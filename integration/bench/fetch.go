package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

// fetchRows measures what a fleet does: everybody fetches the same in the same moment.
func fetchRows(ctx context.Context, w *workshop) ([]row, error) {
	rows, err := w.equalFetchRows(ctx)
	if err != nil {
		return nil, err
	}
	return append(rows, w.fetchMemoryRows(ctx)...), nil
}

// equalFetchRows measures equal fetches of a history of two and a half times the
// commits that other rows have, which is 300 MB, beside git http-backend.
func (w *workshop) equalFetchRows(ctx context.Context) ([]row, error) {
	if !w.wants("fetch-equal") && !w.wants("fetch-clones") && !w.wants("fetch-again") {
		return nil, nil
	}
	long := &workshop{options: w.options}
	long.depth = w.depth * 5 / 2
	fixture, err := long.fixture(ctx)
	if err != nil {
		return nil, err
	}
	r, err := w.newHistoryRepo(ctx, "fleet", fixture)
	if err != nil {
		return nil, err
	}
	root := filepath.Join(w.dir, "plain-fleet")
	if _, err := git(ctx, "", nil, "clone", "-q", "--mirror", "--no-hardlinks", fixture, filepath.Join(root, fixtureName)); err != nil {
		return nil, err
	}
	address, err := w.httpBackend(ctx, root)
	if err != nil {
		return nil, err
	}
	theirs := &crew{w, fixture, address, "/" + fixtureName, ""}
	ours := &crew{w, fixture, r.server.address, "/" + r.name + ".git", r.basic()}
	const reference = "git http-backend, nginx, fcgiwrap"
	size := fmt.Sprintf("%d equal depth 1 fetches of %d commits", w.fleet, long.depth)
	return []row{
		{name: "fetch-equal", work: size + ", read and thrown away", reference: reference, goal: 8, figure: perOperation,
			ours: sharedOnce(r, ours.fetch(w.fleet, 1)), theirs: theirs.fetch(w.fleet, 1)},
		{name: "fetch-again", work: "one more of them, from the cache", reference: reference, figure: perOperation,
			ours: ours.fetch(1, 1), theirs: theirs.fetch(1, 1)},
		{name: "fetch-clones", work: fmt.Sprintf("%d real clones of depth 1", w.fleet), reference: reference, goal: 1.5, figure: perOperation,
			ours: w.cloneAll(r.remote()), theirs: w.cloneAll("http://" + address + "/" + fixtureName)},
	}, nil
}

// A crew are clients without git, each with a connection.
type crew struct {
	w             *workshop
	fixture       string
	address, path string
	authorization string
}

// fetch has so many clients ask for the tip of a branch at once, another branch from
// first on in each repetition.
func (c *crew) fetch(clients, first int) side {
	conns := c.w.connectAll(c.address, clients)
	return func(ctx context.Context, rep int) (float64, error) {
		tip, err := git(ctx, c.fixture, nil, "rev-parse", fmt.Sprintf("c/%d", first+rep%(historyBranches/2)))
		if err != nil {
			return 0, err
		}
		request := fetchMessage(c.path, c.authorization, "deepen 1\n", "want "+tip+"\n")
		return timed(1, func(int) error {
			var all errgroup.Group
			for _, conn := range conns {
				all.Go(func() error {
					n, err := conn.skim(request, http.StatusOK)
					if err == nil && n < 1<<20 {
						err = fmt.Errorf("fetch answered with %d bytes", n)
					}
					return err
				})
			}
			return all.Wait()
		})
	}
}

// fetchMessage is a request of protocol 2 for a whole pack.
func fetchMessage(path, authorization string, lines ...string) []byte {
	var body []byte
	for _, line := range []string{"command=fetch\n", "agent=bench/1\n", "object-format=sha1\n"} {
		body = append(body, pktLine(line)...)
	}
	body = append(body, "0001"...)
	for _, line := range append([]string{"ofs-delta\n", "no-progress\n"}, append(lines, "done\n")...) {
		body = append(body, pktLine(line)...)
	}
	body = append(body, "0000"...)
	return message("POST", path+"/git-upload-pack", authorization, "application/x-git-upload-pack-request", body, "Git-Protocol: version=2")
}

// sharedOnce holds fetches to one git process for each repetition.
func sharedOnce(r *repo, s side) side {
	return func(ctx context.Context, rep int) (float64, error) {
		before, err := r.server.metric("headgate_fetches_started_total")
		if err != nil {
			return 0, err
		}
		v, err := s(ctx, rep)
		if err != nil {
			return 0, err
		}
		after, err := r.server.metric("headgate_fetches_started_total")
		if err == nil && after != before+1 {
			err = fmt.Errorf("%g git processes were started for equal fetches, want 1", after-before)
		}
		return v, err
	}
}

// metric reads a value without labels from /metrics.
func (p *process) metric(name string) (float64, error) {
	answer, err := http.Get("http://" + p.address + "/metrics")
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

// cloneAll has the whole fleet clone at once, from the second half of the branches.
func (w *workshop) cloneAll(remote string) side {
	return func(ctx context.Context, rep int) (float64, error) {
		to := filepath.Join(w.scratch, "fleet")
		defer os.RemoveAll(to)
		branch := fmt.Sprintf("c/%d", 1+historyBranches/2+rep%(historyBranches/2))
		return timed(1, func(int) error {
			var all errgroup.Group
			for n := range w.fleet {
				all.Go(func() error {
					_, err := git(ctx, "", nil, "clone", "-q", "--depth=1", "--single-branch", "--branch", branch, remote, filepath.Join(to, strconv.Itoa(n)))
					return err
				})
			}
			return all.Wait()
		})
	}
}
