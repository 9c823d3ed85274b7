package sessions

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// This file holds what is still being built; each method leaves it for its own file.

var errPending = errors.New("not built yet")

func (k *Keeper) Create(ctx context.Context, repo Repo, door Door, by Actor, spec CreateSpec) (Session, error) {
	return Session{}, errPending
}
func (k *Keeper) Get(ctx context.Context, repo Repo, door Door, id string) (Session, error) {
	return Session{}, errPending
}
func (k *Keeper) List(ctx context.Context, repo Repo, door Door, f Filter, cursor string, limit int) (Page, error) {
	return Page{}, errPending
}
func (k *Keeper) Patch(ctx context.Context, repo Repo, door Door, by Actor, id string, p Patch) (Session, error) {
	return Session{}, errPending
}
func (k *Keeper) End(ctx context.Context, repo Repo, door Door, by Actor, id string, spec EndSpec) (Ending, error) {
	return Ending{}, errPending
}
func (k *Keeper) Lease(ctx context.Context, repo Repo, door Door, by Actor, id string, spec LeaseSpec) (Lease, error) {
	return Lease{}, errPending
}

// Issue makes a token's record; Renew one that goes on from old, which the caller has proved to hold.
func (k *Keeper) Issue(ctx context.Context, repo Repo, door Door, by Actor, id string, spec TokenSpec) (Token, error) {
	return Token{}, errPending
}
func (k *Keeper) Renew(ctx context.Context, repo Repo, by Actor, spec TokenSpec) (Token, error) {
	return Token{}, errPending
}

// Token reads one record, Tokens lists those of a session that are not expired, newest first.
func (k *Keeper) Token(ctx context.Context, repo Repo, jti string) (Token, error) {
	return Token{}, errPending
}
func (k *Keeper) Tokens(ctx context.Context, repo Repo, door Door, id, cursor string, limit int) ([]Token, string, error) {
	return nil, "", errPending
}
func (k *Keeper) Revoke(ctx context.Context, repo Repo, door Door, by Actor, id, jti string) error {
	return errPending
}

// Standing is nil while an issued token (actor: its claims sid, epoch, jti) may be used on ref, its own:
// ErrTokenDead, or *StaleEpochError.
func (k *Keeper) Standing(ctx context.Context, repo Repo, actor Actor, ref string) error {
	return errPending
}

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

// Run reaps until ctx ends. Reap does one round over one repo and tells when the next is due.
func (k *Keeper) Run(ctx context.Context) error { return errPending }
func (k *Keeper) Reap(ctx context.Context, repo Repo) (next time.Time, err error) {
	return time.Time{}, errPending
}

// groupDue lets go of what is up in a group when its look is due (dueKey with the id
// groupDueID gives); next is when to look again, zero: never. The reaper takes the
// look at when away afterwards and puts one at next.
func (k *Keeper) groupDue(ctx context.Context, repo Repo, door Door, group string, now time.Time) (next time.Time, err error) {
	return time.Time{}, nil
}

// tokenKeys are keys of what the tokens of an ended session have left, at most limit.
func (k *Keeper) tokenKeys(ctx context.Context, v ledger.View, id string, limit int) ([]string, error) {
	return nil, nil
}
