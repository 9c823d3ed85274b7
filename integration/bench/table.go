package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// A row is one piece of work, done by headgate and by a reference.
type row struct {
	name      string
	work      string // what is done
	reference string // by what else
	goal      float64
	least     float64 // operations a second that ours has to reach besides; 0: none
	figure    func(perSecond float64) string

	// ours and theirs do one repetition and tell the operations in a second.
	ours, theirs side
}

type side func(ctx context.Context, rep int) (perSecond float64, err error)

// A measurement holds a row's medians.
type measurement struct {
	ours, theirs, ratio float64
	load                string
}

// measure alternates the repetitions of both sides; which one is first alternates too.
func measure(ctx context.Context, r row, reps int) (measurement, error) {
	m := measurement{load: loadAverage()}
	var ours, theirs, ratios []float64
	for rep := range reps {
		sides := []side{r.ours, r.theirs}
		var got [2]float64
		for i := range sides {
			which := (rep + i) % 2
			perSecond, err := sides[which](ctx, rep)
			if err != nil {
				return m, fmt.Errorf("%s: %w", [...]string{"headgate", r.reference}[which], err)
			}
			got[which] = perSecond
		}
		ours, theirs, ratios = append(ours, got[0]), append(theirs, got[1]), append(ratios, got[0]/got[1])
	}
	m.ours, m.theirs, m.ratio = median(ours), median(theirs), median(ratios)
	return m, nil
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// loadAverage is that of the last minute; "?" where the system does not tell.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	load, _, _ := strings.Cut(string(text), " ")
	return load
}

// holds says whether the row's goals are met; "-" if it has none.
func (r *row) holds(m measurement) string {
	switch {
	case r.goal == 0:
		return "-"
	case m.ratio >= r.goal && m.ours >= r.least:
		return "yes"
	}
	return "no"
}

func (r *row) goalText() string {
	switch {
	case r.goal == 0:
		return "-"
	case r.least > 0:
		return fmt.Sprintf(">= %.3gx, >= %s", r.goal, r.figure(r.least))
	}
	return fmt.Sprintf(">= %.3gx", r.goal)
}

// perSecond and perOperation are how a figure may be written.
func perSecond(v float64) string { return fmt.Sprintf("%.0f/s", v) }

func perOperation(v float64) string {
	d := time.Duration(float64(time.Second) / v)
	return d.Round(max(time.Microsecond, d/1000)).String()
}

// megabytes writes how fast an operation of so many bytes runs.
func megabytes(bytes int) func(float64) string {
	return func(v float64) string { return fmt.Sprintf("%.0f MB/s", v*float64(bytes)/1e6) }
}

// A table writes Markdown.
type table struct {
	out   io.Writer
	begun bool
}

func newTable(out io.Writer) *table { return &table{out: out} }

func (t *table) add(r row, m measurement) {
	if !t.begun {
		t.begun = true
		fmt.Fprintln(t.out, "| row | work | headgate | reference | of the reference | ratio | goal | holds | load |")
		fmt.Fprintln(t.out, "|---|---|---|---|---|---|---|---|---|")
	}
	fmt.Fprintf(t.out, "| %s | %s | %s | %s | %s | %.2fx | %s | %s | %s |\n",
		r.name, r.work, r.figure(m.ours), r.reference, r.figure(m.theirs), m.ratio, r.goalText(), r.holds(m), m.load)
}
