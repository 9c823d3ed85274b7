package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	greedyOrg     = "greedy"
	greedyClients = 100
	greedyRepo    = "crowd"
)

// fairRows measures what an org feels of another: how long its commits take at
// most, 99 times of 100, while one token of the other commits from 100 clients.
// Those are a process of their own that gets what processor time the server and the
// measured client leave: in life they are on other machines.
func fairRows(_ context.Context, w *workshop) ([]row, error) {
	r, err := w.newRepo("modest")
	if err != nil {
		return nil, err
	}
	root, err := r.commit("main", statePath, states(1, stateBytes))
	if err != nil {
		return nil, err
	}
	modest := newCommitter(r, w.connect(r.server.address), "main", root)
	crowd, err := w.greedy(r.server)
	if err != nil {
		return nil, err
	}
	alone := func(ctx context.Context, _ int) (float64, error) { return w.slowest(ctx, modest) }
	beside := func(ctx context.Context, _ int) (float64, error) {
		clients, err := w.launch("crowd", crowd())
		if err != nil {
			return 0, err
		}
		defer clients.stop()
		return w.slowest(ctx, modest)
	}
	return []row{{
		name: "fair-commit", work: fmt.Sprintf("p99 of one client's commits while another org's token has %d", greedyClients),
		reference: "the same client alone", goal: 0.33, figure: perOperation, ours: beside, theirs: alone,
	}}, nil
}

// greedy makes the other org's repo on a server, with a branch for each client, and
// gives the command that lets them loose.
func (w *workshop) greedy(server *process) (func() *exec.Cmd, error) {
	token, err := w.tokenOf(greedyOrg, greedyRepo)
	if err != nil {
		return nil, err
	}
	r := &repo{server, greedyRepo, token}
	if err := r.post("/api/repos", "application/json", strings.NewReader("{}"), nil); err != nil {
		return nil, err
	}
	if _, err := r.commit("main", statePath, states(1, stateBytes)); err != nil {
		return nil, err
	}
	for i := range greedyClients {
		body := fmt.Sprintf(`{"target_branch":%q,"base_ref":"main"}`, greedyBranch(i))
		if err := r.post(r.path("/branches/create"), "application/json", strings.NewReader(body), nil); err != nil {
			return nil, err
		}
	}
	return func() *exec.Cmd {
		return exec.Command("nice", "-n", "19", filepath.Join(w.dir, "bench"), crowdCommand, server.address, token)
	}, nil
}

func greedyBranch(client int) string { return fmt.Sprintf("s/%d", client) }

// crowdCommand makes this program the crowd: ADDRESS TOKEN.
const crowdCommand = "crowd"

// runCrowd commits from many clients until ctx ends. It says when all have begun.
func runCrowd(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("%s: want ADDRESS TOKEN; it is the bench program that starts this one", crowdCommand)
	}
	r := &repo{&process{address: args[0]}, greedyRepo, args[1]}
	var began, clients errgroup.Group
	for i := range greedyClients {
		first := make(chan error, 1)
		began.Go(func() error { return <-first })
		clients.Go(func() error {
			head, err := r.commit(greedyBranch(i), statePath, states(uint64(time.Now().UnixNano()), stateBytes))
			first <- err
			if err != nil {
				return err
			}
			c := newCommitter(r, newConn(args[0]), greedyBranch(i), head)
			for err == nil && ctx.Err() == nil {
				err = c.step()
			}
			return err
		})
	}
	if err := began.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(out, "crowd commits to http://%s\n", args[0])
	return clients.Wait()
}

// slowest commits for a repetition's time and tells how many commits as slow as
// the 99th of 100 there would be in a second.
func (w *workshop) slowest(ctx context.Context, c *committer) (float64, error) {
	var took []time.Duration
	for start := time.Now(); time.Since(start) < w.span || len(took) < 100; {
		begun := time.Now()
		if err := c.step(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begun))
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	slices.Sort(took)
	return 1 / took[len(took)*99/100].Seconds(), nil
}
