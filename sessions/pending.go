package sessions

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// This file holds what is still being built; each method leaves it for its own file.

var errPending = errors.New("not built yet")

func (k *Keeper) Fork(ctx context.Context, repo Repo, door Door, by Actor, id string, spec ForkSpec) (Fork, error) {
	return Fork{}, errPending
}
func (k *Keeper) Group(ctx context.Context, repo Repo, door Door, id string) (Fork, error) {
	return Fork{}, errPending
}
func (k *Keeper) Pick(ctx context.Context, repo Repo, door Door, by Actor, group, winner string, once *ledger.Once[Session]) (Session, error) {
	return Session{}, errPending
}
func (k *Keeper) Close(ctx context.Context, repo Repo, door Door, by Actor, group string, once *ledger.Once[Closing]) (Closing, error) {
	return Closing{}, errPending
}

// groupDue lets go of what is up in a group when its look is due (dueKey with the id
// groupDueID gives); next is when to look again, zero: never. The reaper takes the
// look at when away afterwards and puts one at next.
func (k *Keeper) groupDue(ctx context.Context, repo Repo, door Door, group string, now time.Time) (next time.Time, err error) {
	return time.Time{}, nil
}
