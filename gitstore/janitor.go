package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// sharedGrace is how long an incoming file or folder may stand untouched where
// other processes may be at work in it. It is longer than the longest request.
const sharedGrace = 6 * time.Hour

// tidyOnce tidies a repo when it is opened for the first time in this process:
// later a write may be under way in it.
func (r *Repo) tidyOnce(ctx context.Context) error {
	if _, done := r.store.tidied.Load(r.id); done {
		return nil
	}
	if err := r.tidy(ctx); err != nil {
		return err
	}
	r.store.tidied.Store(r.id, struct{}{})
	return nil
}

// tidy removes what writes left behind that never came to their end. Where no other
// process shares the data folder nothing can be under way.
func (r *Repo) tidy(ctx context.Context) error {
	if r.store.shared {
		if _, err := r.dir.SweepDead(r.store.scratch.gone); err != nil {
			return err
		}
		_, err := r.dir.Sweep(sharedGrace)
		return err
	}
	if _, err := r.dir.Sweep(0); err != nil {
		return err
	}
	if err := r.tidyIndexes(ctx); err != nil {
		return err
	}
	if err := r.sweepSegments(ctx, 0); err != nil {
		return err
	}
	names, err := r.dir.Files()
	if err != nil {
		return err
	}
	known := append(slices.Clone(r.packNames()), r.condemned()...)
	for _, name := range names {
		if slices.Contains(known, name) {
			continue
		}
		if err := r.discardPack(ctx, name); err != nil {
			return fmt.Errorf("remove unregistered pack %s: %w", name, err)
		}
	}
	return nil
}

// discardPack removes a pack's files after a batch has made sure that it is not
// registered and never will be. Correctness rests on that batch, not on who runs. Of a
// repo that the ledger does not know nothing is removed, since its packs may be all
// there is of it: that is ErrRepoNotFound.
func (r *Repo) discardPack(ctx context.Context, name string) error {
	err := r.markDead(ctx, name)
	for genMoved(err) && ctx.Err() == nil { // a prune has begun
		err = r.markDead(ctx, name)
	}
	var check *ledger.CheckError
	switch {
	case errors.As(err, &check) && check.Key == packKey(name):
		if rec, derr := decodePackRecord(check.Present); derr != nil || rec.State != packDead {
			return derr // registered after all
		}
		// Dead already, but its files were left.
	case errors.As(err, &check):
		return ErrRepoNotFound
	case err != nil:
		return err
	}
	return r.dir.Remove(name)
}

// markDead puts a pack without a record on record as dead, in a repo that exists.
func (r *Repo) markDead(ctx context.Context, name string) error {
	gen, err := readKey(ctx, r.ledger.ReadKeys, r.space, genKey)
	if err == nil && gen == nil {
		err = ErrRepoNotFound
	}
	if err != nil {
		return err
	}
	_, err = r.ledger.Apply(ctx, ledger.Batch{
		Space:  r.space,
		Checks: []ledger.Check{ledger.Equal(genKey, gen), ledger.Absent(packKey(name))},
		Sets:   []ledger.Set{{Key: packKey(name), Value: mustJSON(packRecord{State: packDead})}},
	})
	return err
}
