package gitstore

import (
	"context"
	"time"

	"github.com/headgate/headgate/gitstore/gitcmd"
)

// runLow runs a git process of upkeep: at low priority, and one at a time in the whole
// store, so that whatever many repos need takes the memory of one process.
func (s *Store) runLow(ctx context.Context, c gitcmd.Cmd) error {
	select {
	case s.low <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.low }()
	c.Low = true
	return s.git.Run(ctx, c)
}

const (
	// calmFor is how long nobody must have asked for anything before upkeep begins.
	calmFor = 100 * time.Millisecond
	// deferrals is how often a repo is put off while requests run. A store that is
	// never calm is looked after all the same, at low priority.
	deferrals = 5
	// pressing is how many times more packs than usually merged make upkeep press: from
	// there on every read costs more than putting it off saves.
	pressing = 4
)

// putOff reports whether the upkeep of a repo should wait for a calmer time.
func (s *Store) putOff(ctx context.Context, r *Repo) bool {
	if len(r.packNames()) >= pressing*s.limits.MergePacks || r.deferred.Load() >= deferrals || s.calm(ctx) {
		r.deferred.Store(0)
		return false
	}
	r.deferred.Add(1)
	return true
}

// calm watches for a moment whether git processes run for requests or refs move.
func (s *Store) calm(ctx context.Context) bool {
	before := s.moves.Load()
	if s.gitRuns.any() {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(min(calmFor, s.limits.UpkeepEvery)):
	}
	return s.moves.Load() == before && !s.gitRuns.any()
}
