// Command bench measures headgate beside a reference, both in the same run on the
// same machine, and prints a Markdown table: our figure, the reference's, the
// ratio, the goal and whether it holds.
//
//	go run ./integration/bench [-only commit,diff-first] [-reps 5] [-for 2s] [-short]
//	go run ./integration/bench sweep [-image 256]
//
// The second prints what memory snapshots cost for each chunk size there is.
//
// The server is the program as it is built for use, the references are the least
// that could do the same work (floor), or git itself. Everything runs on loopback.
// A row is measured in repetitions that alternate with those of its reference; a
// figure is the median, and the ratio is the median of the repetitions' ratios, so
// that a machine whose speed drifts moves both sides. The load is the machine's
// load average when the row began.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	only       []string      // prefixes of rows' names; empty: all
	reps       int           // repetitions of a row
	span       time.Duration // how long one repetition works
	fileSize   int           // of a large file, in bytes
	depth      int           // commits of the repository that is cloned and compared
	fleet      int           // how many clients fetch the same at once
	large      int           // of the large blobs that a fleet fetches, together, in MiB
	branches   int           // sessions' branches of the repository that has many
	records    int           // sessions of the repo that has many records
	image      int           // of the memory image that is saved and restored, in MiB
	saves      int           // of the image that is saved again and again
	largeImage int           // of each image that is saved while others commit, in MiB
	pushing    time.Duration // how long small pushes go on; 0: what their row takes by itself
	fixtures   string        // where that repository is kept between runs
}

func parse(args []string) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "rows to measure, by the beginnings of their names, with commas between")
	flags.IntVar(&o.reps, "reps", 5, "repetitions of each row")
	flags.DurationVar(&o.span, "for", 2*time.Second, "how long one repetition works")
	flags.IntVar(&o.fileSize, "file-size", 50<<20, "bytes of a large file")
	flags.IntVar(&o.depth, "commits", 1200, "commits of the repository that is cloned and compared (1200: about 150 MB)")
	flags.IntVar(&o.fleet, "fleet", 20, "clients that fetch the same at once")
	flags.IntVar(&o.large, "large", 4096, "MiB of large blobs that are fetched while memory is watched")
	flags.IntVar(&o.branches, "branches", 100_000, "session branches of the repository that has many")
	flags.IntVar(&o.records, "records", 1_000_000, "sessions of the repo that has many records")
	flags.IntVar(&o.image, "image", 2048, "MiB of the memory image that is saved and restored")
	flags.IntVar(&o.saves, "saves", 2000, "saves of a memory image that is saved again and again")
	flags.IntVar(&o.largeImage, "large-image", 4096, "MiB of each memory image that is saved while others commit")
	flags.StringVar(&o.fixtures, "fixtures", filepath.Join(os.TempDir(), "headgate-bench"), "folder where that repository is kept between runs")
	flags.DurationVar(&o.pushing, "pushes-for", 0, "how long "+upkeepPushesRow+" goes on; 10 minutes when it is asked for by name")
	short := flags.Bool("short", false, "run everything once and small, to see that it runs; the figures say nothing")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	if *short {
		o.reps, o.span, o.fileSize, o.depth, o.fleet, o.large = 1, 50*time.Millisecond, 2<<20, 40, 3, 48
		o.branches, o.records = 1_500, 2_000
		o.image, o.saves, o.largeImage = 16, 20, 16
	}
	return o, nil
}

// wants reports whether a row is to be measured.
func (o *options) wants(row string) bool {
	for _, prefix := range o.only {
		if strings.HasPrefix(row, prefix) {
			return true
		}
	}
	return len(o.only) == 0
}

// needs reports whether any row of a group may be wanted.
func (o *options) needs(group string) bool {
	for _, prefix := range o.only {
		if strings.HasPrefix(prefix, group) || strings.HasPrefix(group, prefix) {
			return true
		}
	}
	return len(o.only) == 0
}

// A group is rows that are measured against one set-up server. Its rows' names
// begin with its own.
type group struct {
	name string
	rows func(context.Context, *workshop) ([]row, error)
}

var groups = []group{
	{"commit", commitRows},
	{"branch", branchRows},
	{"file", fileRows},
	{"diff", diffRows},
	{"fair", fairRows},
	{"remote", remoteRows},
	{"push", pushRows},
	{"refs", refsRows},
	{"session", sessionRows},
	{"records", recordRows},
	{"upkeep-wire", upkeepWireRows},
	{"upkeep-commit", upkeepCommitRows},
	{"upkeep-push", upkeepPushRows},
	{"fetch", fetchRows},
	{"events", eventsRows},
	{"snapshot", snapshotRows},
	{"redis", redisRows},
}

// run measures what args ask for and writes the table to out, row by row.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == crowdCommand {
		return runCrowd(ctx, args[1:], out)
	}
	if len(args) > 0 && args[0] == listenersCommand {
		return runListeners(ctx, args[1:], out)
	}
	if len(args) > 0 && args[0] == readersCommand {
		return runReaders(ctx, args[1:], out)
	}
	if len(args) > 0 && args[0] == sweepCommand {
		return runSweep(ctx, args[1:], out)
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	w, err := openWorkshop(ctx, o)
	if err != nil {
		return err
	}
	defer w.close()
	t := newTable(out)
	for _, g := range groups {
		if !o.needs(g.name) {
			continue
		}
		if err := runGroup(ctx, w, g, t); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	return nil
}

func runGroup(ctx context.Context, w *workshop, g group, t *table) error {
	defer w.stopAll()
	rows, err := g.rows(ctx, w)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if !w.wants(r.name) {
			continue
		}
		m, err := measure(ctx, r, w.reps)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		t.add(r, m)
	}
	return nil
}
