package sessions

import (
	"context"

	"github.com/headgate/headgate/gitstore/ledger"
)

// known is the *ledger.RepeatedError of a call that was made before: storeKey is
// where its answer would be, empty for a call that may not be repeated.
func (r reader) known(ctx context.Context, storeKey string) error {
	if storeKey == "" {
		return nil
	}
	got, err := r.get(ctx, storeKey)
	if err != nil {
		return err
	}
	return ledger.Repeated(got[0])
}

// move moves refs through the door. Whatever refuses a call that is known by then,
// the call was made before.
func (k *Keeper) move(ctx context.Context, repo Repo, door Door, m Move, storeKey string) error {
	err := door.Move(ctx, m)
	if err == nil {
		return nil
	}
	if again := k.reads(repo).known(ctx, storeKey); again != nil {
		return again
	}
	return err
}

// storeKeys is storeKey as what else is to be read.
func storeKeys(storeKey string) []string {
	if storeKey == "" {
		return nil
	}
	return []string{storeKey}
}

// repeated is the *ledger.RepeatedError of what was read besides a session.
func (r reading) repeated() error {
	if len(r.extra) == 0 {
		return nil
	}
	return ledger.Repeated(r.extra[0])
}
