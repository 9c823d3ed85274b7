package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The programs are run rarely, so this runs each of their rows once and small: the
// figures say nothing, but the table must be there whole.
func TestBenchSmoke(t *testing.T) {
	for _, program := range []string{"git", "nginx", "fcgiwrap", "restic"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is missing: %v", program, err)
			}
			t.Skipf("%s is missing: %v", program, err)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-short", "-fixtures", t.TempDir()}, &out); err != nil {
		t.Fatalf("run -short = %v after\n%s", err, out.String())
	}
	for _, name := range []string{
		"commit-1", "commit-32", "commit-apply-1", "commit-apply-32", "commit-git", "branch-1", "branch-32",
		"file-small", "file-large-noise", "file-large-again", "file-large-first", "diff-again", "diff-first", "fair-commit",
		"remote-clone-full", "remote-clone-depth1", "remote-push", "push-1", "push-8", "push-git",
		"upkeep-wire-clone-full", "upkeep-wire-clone-blobless", "upkeep-wire-fetch-1", "upkeep-wire-fetch-100", "upkeep-commit-clones", "upkeep-push-small",
		"refs-info", "refs-ls", "refs-ls-remote", "refs-ls-remote-normal", "refs-push", "refs-push-own",
		"refs-create", "refs-commit", "refs-get", "refs-list", "refs-list-created", "refs-delete",
		"events-busy", "events-idle", "events-commit",
		"snapshot-empty", "snapshot-first", "snapshot-again-clustered", "snapshot-stored-clustered", "snapshot-again-scattered", "snapshot-stored-scattered",
		"snapshot-again-same", "snapshot-restore", "snapshot-restore-cp", "snapshot-age", "snapshot-age-bytes", "snapshot-page-warm", "snapshot-page-cold",
		"snapshot-four-memory", "snapshot-four-commit",
		"fetch-equal", "fetch-again", "fetch-clones", "fetch-memory-headgate", "fetch-memory-git",
	} {
		if got := strings.Count(out.String(), "\n| "+name+" |"); got != 1 {
			t.Errorf("%d lines of %s, want one, in\n%s", got, name, out.String())
		}
	}
}

func TestRatioIsTheMedianOfTheRepetitions(t *testing.T) {
	r := row{goal: 2, figure: perSecond}
	for _, tc := range []struct {
		ours, theirs []float64
		want         measurement
		holds        string
	}{
		{[]float64{10, 40, 30}, []float64{5, 10, 15}, measurement{ours: 30, theirs: 10, ratio: 2}, "yes"},
		{[]float64{10, 40}, []float64{10, 20}, measurement{ours: 25, theirs: 15, ratio: 1.5}, "no"},
	} {
		r.ours, r.theirs = replay(tc.ours), replay(tc.theirs)
		m, err := measure(t.Context(), r, len(tc.ours))
		m.load = ""
		if err != nil || m != tc.want || r.holds(m) != tc.holds {
			t.Errorf("measure(%v beside %v) = %+v, %v, holds %q; want %+v, holds %q", tc.ours, tc.theirs, m, err, r.holds(m), tc.want, tc.holds)
		}
	}
}

func replay(figures []float64) side {
	return func(_ context.Context, rep int) (float64, error) { return figures[rep], nil }
}

func TestGoalMayHaveALeastFigure(t *testing.T) {
	r := row{goal: 0.6, least: 2000, figure: perSecond}
	if got := r.holds(measurement{ours: 1999, ratio: 3}); got != "no" {
		t.Errorf("holds of 1999/s at 3x = %q, want no: the goal says 2000/s", got)
	}
	if got := r.goalText(); got != ">= 0.6x, >= 2000/s" {
		t.Errorf("goalText = %q", got)
	}
}

func TestSweepHasALineForEachChunkSize(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{sweepCommand, "-image", "4"}, &out); err != nil {
		t.Fatalf("run sweep = %v after\n%s", err, out.String())
	}
	for _, size := range []string{"4", "8", "16", "32", "64", "128", "256"} {
		if got := strings.Count(out.String(), "\n| "+size+" KiB |"); got != 1 {
			t.Errorf("%d lines of %s KiB, want one, in\n%s", got, size, out.String())
		}
	}
}
