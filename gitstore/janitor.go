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
// registered and never will be. Correctness rests on that batch, not on who runs.
func (r *Repo) discardPack(ctx context.Context, name string) error {
	_, err := r.ledger.Apply(ctx, ledger.Batch{
		Space:  r.space,
		Checks: []ledger.Check{ledger.Absent(packKey(name))},
		Sets:   []ledger.Set{{Key: packKey(name), Value: mustJSON(packRecord{State: packDead})}},
	})
	var check *ledger.CheckError
	if errors.As(err, &check) {
		if rec, derr := decodePackRecord(check.Present); derr != nil || rec.State != packDead {
			return derr // registered after all
		}
		err = nil // dead already, but its files were left
	}
	if err != nil {
		return err
	}
	return r.dir.Remove(name)
}
