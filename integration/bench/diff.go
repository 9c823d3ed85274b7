package main

import (
	"context"
	"fmt"
	"net/http"
)

// diffPairs is how many pairs of commits one repetition asks for once each.
const diffPairs = 40

// diffRows measures what changed between two commits.
func diffRows(ctx context.Context, w *workshop) ([]row, error) {
	fixture, err := w.fixture(ctx)
	if err != nil {
		return nil, err
	}
	commits, err := commitsOf(ctx, fixture)
	if err != nil {
		return nil, err
	}
	r, err := w.newHistoryRepo(ctx, "diffs", fixture)
	if err != nil {
		return nil, err
	}
	conn := w.connect(r.server.address)
	ask := func(base, head string) error {
		_, err := conn.skim(message("GET", r.path("/diff?ref="+head+"&base_ref="+base), r.bearer(), "", nil), http.StatusOK)
		return err
	}
	gitDiff := func(ctx context.Context, base, head string) error {
		return gitSkim(ctx, fixture, "diff", "-b", base, head)
	}
	head, base := commits[0], commits[min(5, len(commits)-1)]
	if err := ask(base, head); err != nil {
		return nil, err
	}
	// Pairs a few commits apart; every repetition has its own.
	pair := func(rep, i int) (base, head string) {
		at := (rep*diffPairs + i) % (len(commits) - 10)
		return commits[at+2+i%7], commits[at]
	}
	return []row{
		{name: "diff-again", work: "commit diff by pointer, asked again", reference: "git diff", goal: 20, figure: perSecond,
			ours: func(ctx context.Context, _ int) (float64, error) {
				return w.rate(ctx, 1, func(int) error { return ask(base, head) })
			},
			theirs: func(ctx context.Context, _ int) (float64, error) {
				return w.rate(ctx, 1, func(int) error { return gitDiff(ctx, base, head) })
			}},
		{name: "diff-first", work: fmt.Sprintf("commit diff by pointer, first time, %d pairs once each", diffPairs), reference: "git diff", goal: 0.8, figure: perOperation,
			ours: func(_ context.Context, rep int) (float64, error) {
				return timed(diffPairs, func(i int) error { return ask(pair(rep, i)) })
			},
			theirs: func(ctx context.Context, rep int) (float64, error) {
				return timed(diffPairs, func(i int) error { base, head := pair(rep, i); return gitDiff(ctx, base, head) })
			}},
	}, nil
}
