package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// changeTries is how often a batch is made anew when what it was made from has changed.
const changeTries = 64

// A change is a batch in the making that moves no ref.
type change struct {
	reading
	now time.Time
	w   *writing
	log logEntry
}

// change changes one session in a batch of its own: make says how, of what stands.
// It is asked again whenever that has changed meanwhile.
func (k *Keeper) change(ctx context.Context, repo Repo, door Door, id, storeKey string, make func(c *change) error) error {
	by := k.reads(repo)
	for range changeTries {
		now, err := k.Ledger.Now(ctx)
		if err != nil {
			return fmt.Errorf("read the ledger's clock: %w", err)
		}
		got, err := by.visible(ctx, door, id, storeKeys(storeKey)...)
		if again := got.repeated(); again != nil {
			return again
		}
		if err != nil {
			return err
		}
		c := &change{reading: got, now: now, w: k.writing(now, got.base)}
		if err := make(c); err != nil {
			return err
		}
		err = k.apply(ctx, repo, c)
		var failed *ledger.CheckError
		if !errors.As(err, &failed) {
			return err
		}
	}
	return fmt.Errorf("change session %s: %w: it keeps changing", id, ledger.ErrUnavailable)
}

func (k *Keeper) apply(ctx context.Context, repo Repo, c *change) error {
	b := ledger.Batch{Space: ledger.RepoSpace(repo.ID), Log: c.log.encode()}
	b.Carry(c.w.done(k.Limits.MaxLive))
	if _, err := k.Ledger.Apply(ctx, b); err != nil {
		return fmt.Errorf("change session %s: %w", c.ID, err)
	}
	k.looks.note(repo, c.w.due)
	return nil
}
