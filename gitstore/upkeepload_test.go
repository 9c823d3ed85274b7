package gitstore

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/gitcmd"
)

// Upkeep waits while requests run, though not for ever, and not when packs are many.
func TestUpkeepIsPutOffWhileRequestsRun(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Limits = Limits{UpkeepEvery: -1, MergePacks: 2} }), "repo")
	s := r.store
	s.limits.UpkeepEvery = time.Millisecond // how long it watches at most
	if s.putOff(t.Context(), r) {
		t.Errorf("upkeep is put off though nothing runs")
	}
	end := s.gitRuns.begin("another repo")
	for n := range 2 {
		put := 0
		for s.putOff(t.Context(), r) {
			put++
		}
		if put != deferrals {
			t.Errorf("turn %d: upkeep was put off %d times while a request ran, want %d", n, put, deferrals)
		}
	}
	many := make([]string, pressing*s.limits.MergePacks)
	real := r.packList.Swap(&many)
	if s.putOff(t.Context(), r) {
		t.Errorf("upkeep of %d packs is put off", len(many))
	}
	r.packList.Store(real)
	end()
	// Refs that move are work as well.
	stop := inBackground(t, func(context.Context) error { s.moves.Add(1); return nil })
	if !s.putOff(t.Context(), r) {
		t.Errorf("upkeep is not put off while refs move")
	}
	stop()
}

// However many repos want upkeep, one of its processes runs at a time, at low priority.
func TestUpkeepRunsOneProcess(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Limits.UpkeepEvery = -1 })
	var running, most atomic.Int64
	reading := func() *countedReader { return &countedReader{running: &running, most: &most} }
	done := make(chan error)
	for range 4 {
		go func() {
			done <- s.runLow(t.Context(), gitcmd.Cmd{Args: []string{"hash-object", "--stdin"}, Stdin: reading()})
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Errorf("runLow: %v", err)
		}
	}
	if most.Load() != 1 {
		t.Errorf("%d processes of upkeep read at the same time, want 1", most.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.low <- struct{}{}
	if err := s.runLow(ctx, gitcmd.Cmd{Args: []string{"version"}}); err == nil {
		t.Errorf("runLow outlives its context")
	}
	<-s.low
}

// countedReader notes how many of its kind are read from at a time.
type countedReader struct {
	running, most *atomic.Int64
	left          int
	begun         bool
}

func (c *countedReader) Read(p []byte) (int, error) {
	if !c.begun {
		c.begun, c.left = true, 100
		if n := c.running.Add(1); n > c.most.Load() {
			c.most.Store(n)
		}
	}
	if c.left--; c.left == 0 {
		c.running.Add(-1)
		return 0, io.EOF
	}
	return copy(p, "some content\n"), nil
}

// A repo that has just been opened and whose record has not been read yet is not
// looked after, and does no harm to those that are.
func TestUpkeepPassesOverAHalfOpenedRepo(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Limits.UpkeepEvery = -1 })
	r := newTestRepo(t, s, "repo")
	half, err := s.CreateRepo(t.Context(), someone, "acme", "half", "main", nil)
	if err != nil {
		t.Fatalf("CreateRepo: %v", err)
	}
	h, err := s.openRepo(t.Context(), half.ID)
	if err != nil || h.meta.Load() != nil {
		t.Fatalf("openRepo = %v, its record read: %v", err, h.meta.Load() != nil)
	}
	if got := s.openRepos(); len(got) != 1 || got[0] != r {
		t.Errorf("openRepos gives %d repos, want the one whose record has been read", len(got))
	}
}
