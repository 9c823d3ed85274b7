package gitstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/gitstore/gitcmd"
)

// doubt is that the index in use may be broken.
type doubt struct {
	raisedAt atomic.Int64 // unix nanoseconds
	verify   atomic.Bool  // who uses it next reads it whole
	check    atomic.Bool  // upkeep lets git check it
	rewrite  atomic.Bool  // it was retired
}

func (d *doubt) raise() {
	now := time.Now().UnixNano()
	if last := d.raisedAt.Load(); now-last < int64(doubtEvery) || !d.raisedAt.CompareAndSwap(last, now) {
		return
	}
	d.verify.Store(true)
	d.check.Store(true)
}

// doubted reports whether upkeep has a doubt of a repo's index to settle.
func (x *indexes) doubted(repo string) bool {
	ri := x.known(repo)
	return ri != nil && (ri.doubt.check.Load() || ri.doubt.rewrite.Load())
}

// settleDoubt checks an index that git may have failed on, and retires it if git finds
// it wrong. rewrite is true if one that was in use has been retired.
func (r *Repo) settleDoubt(ctx context.Context) (rewrite bool, err error) {
	ri := r.store.indexes.known(r.id)
	if ri == nil {
		return false, nil
	}
	d := &ri.doubt
	if d.check.Swap(false) {
		if err := r.checkIndex(ctx); err != nil {
			return false, fmt.Errorf("check index: %w", err)
		}
	}
	return d.rewrite.Swap(false), nil
}

// checkIndex lets git look through the index in use.
func (r *Repo) checkIndex(ctx context.Context) error {
	ri := r.store.indexes.of(r.id)
	path, release := r.useIndex(ctx)
	defer release()
	if path == "" {
		return nil
	}
	ri.mu.Lock()
	x := ri.current
	ri.mu.Unlock()
	if x == nil {
		return nil
	}
	err := errors.Join(r.gitVerifyIndex(ctx, x.name, x.rec)...)
	var exit *gitcmd.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	r.store.log.Warn("index is broken", "repo", r.id, "index", x.name, "err", err)
	ri.doubt.rewrite.Store(true)
	return r.retireIndex(ctx, x.name)
}

// gitVerifyIndex lets git verify the files of an index; what it finds wrong are
// *gitcmd.ExitErrors, of the multi-pack-index first.
func (r *Repo) gitVerifyIndex(ctx context.Context, name string, rec indexRecord) (errs []error) {
	verify := func(args ...string) {
		if err := r.store.runLow(ctx, gitcmd.Cmd{Args: args, GitDir: r.dir.Root(), ObjectDir: r.dir.IndexPath(name), Timeout: transferTimeout}); err != nil {
			errs = append(errs, err)
		}
	}
	for _, f := range rec.Files {
		switch {
		case f.IsGraph():
			verify("commit-graph", "verify", "--no-progress")
		case !f.IsBitmap():
			verify("multi-pack-index", "verify", "--no-progress")
		}
	}
	return errs
}
