package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Revoke makes a token dead at once, with every other of its family: the one it goes
// on from and all that were renewed from that. The caller must be able to write the
// session's branch. A revoked one stays revoked. Errors: ErrNotFound, ErrTokenNotFound
// (also for one that has expired with all its family), ErrForeignSession,
// *StaleEpochError, and those of the door.
func (k *Keeper) Revoke(ctx context.Context, repo Repo, door Door, by Actor, id, jti string) error {
	got, err := k.reads(repo).visible(ctx, door, id)
	if err != nil {
		return err
	}
	if err := got.mine(by); err != nil {
		return err
	}
	if err := door.MayWrite(got.ref()); err != nil {
		return err
	}
	tid, ok := parseTokenID(jti)
	if !ok {
		return ErrTokenNotFound
	}
	last, done, err := k.familyOfToken(ctx, repo, id, tid)
	if err != nil || done {
		return err
	}
	return k.revoke(ctx, repo, by, tid.family, last)
}

// familyOfToken looks for a token among those of a session, and tells when the last
// of its family expires, and whether they are revoked already. A family's first id
// stands for all of it, even when that token itself has expired.
func (k *Keeper) familyOfToken(ctx context.Context, repo Repo, session string, tid tokenID) (last time.Time, done bool, err error) {
	found := false
	err = k.eachToken(ctx, repo, session, "", func(_ *tokenRecord, id tokenID, revoked []byte) (bool, error) {
		if id.family == tid.family {
			found = found || id == tid || tid.own == tid.family
			done = done || revoked != nil
			last = latest(last, id.expiresAt())
		}
		return true, nil
	})
	if err == nil && !found {
		err = ErrTokenNotFound
	}
	return last, done, err
}

// revoke writes the revocation. It outlives every token of the family: those there
// are, and those that are being renewed at this moment.
func (k *Keeper) revoke(ctx context.Context, repo Repo, by Actor, family string, last time.Time) error {
	now, err := k.Ledger.Now(ctx)
	if err != nil {
		return fmt.Errorf("revoke token: %w", err)
	}
	forget := latest(last, now.Add(k.Limits.TokenMax)).Add(revokedLonger)
	_, err = k.Ledger.Apply(ctx, ledger.Batch{
		Space:  ledger.RepoSpace(repo.ID),
		Checks: []ledger.Check{ledger.Absent(revokedKey(family))},
		Sets: []ledger.Set{
			{Key: revokedKey(family), Value: mustJSON(revocation{At: now, By: by})},
			{Key: revokedDueKey(forget, family)},
		},
	})
	var already *ledger.CheckError
	if err != nil && !errors.As(err, &already) {
		return fmt.Errorf("revoke token: %w", err)
	}
	return nil
}

// revokedLonger is how long a revocation stays beyond the last of its tokens: a
// renewal that began before it may still have come after its clock was read.
const revokedLonger = time.Hour
