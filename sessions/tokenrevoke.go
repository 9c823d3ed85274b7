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
// *StaleEpochError, *ledger.RepeatedError, and those of the door.
func (k *Keeper) Revoke(ctx context.Context, repo Repo, door Door, by Actor, id, jti string, once *ledger.Once[struct{}]) error {
	got, err := k.reads(repo).visible(ctx, door, id, storeKeys(once.StoreKey())...)
	if again := got.repeated(); again != nil {
		return again
	}
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
	if err != nil {
		return err
	}
	return k.revoke(ctx, repo, &revoking{by: by, family: tid.family, last: last, done: done}, once)
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

// A revoking is the revocation of a family whose last token expires at last; done says
// that it is revoked already.
type revoking struct {
	by     Actor
	family string
	last   time.Time
	done   bool
}

// batch is what is still to be written, with the answer of a call that may be repeated.
// The revocation outlives every token of the family: those there are, and those that
// are being renewed at this moment.
func (r *revoking) batch(repo Repo, now time.Time, longest time.Duration, answer ledger.Rider) ledger.Batch {
	b := ledger.Batch{Space: ledger.RepoSpace(repo.ID), Checks: answer.Checks, Sets: answer.Sets}
	if !r.done {
		forget := latest(r.last, now.Add(longest)).Add(revokedLonger)
		b.Checks = append(b.Checks, ledger.Absent(revokedKey(r.family)))
		b.Sets = append(b.Sets,
			ledger.Set{Key: revokedKey(r.family), Value: mustJSON(revocation{At: now, By: r.by})},
			ledger.Set{Key: revokedDueKey(forget, r.family)})
	}
	return b
}

// revoke writes a revocation. When another was quicker, the answer alone is written.
func (k *Keeper) revoke(ctx context.Context, repo Repo, r *revoking, once *ledger.Once[struct{}]) error {
	for range changeTries {
		now, err := k.Ledger.Now(ctx)
		if err != nil {
			return fmt.Errorf("revoke token: %w", err)
		}
		answer, err := once.Rider(struct{}{}, now)
		if err != nil {
			return fmt.Errorf("revoke token: %w", err)
		}
		b := r.batch(repo, now, k.Limits.TokenMax, answer)
		if len(b.Sets) == 0 {
			return nil
		}
		_, err = k.Ledger.Apply(ctx, b)
		var failed *ledger.CheckError
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &failed):
			return fmt.Errorf("revoke token: %w", err)
		}
		if again := k.reads(repo).known(ctx, once.StoreKey()); again != nil {
			return again
		}
		r.done = r.done || failed.Key == revokedKey(r.family)
	}
	return fmt.Errorf("revoke token: %w: its answer keeps changing", ledger.ErrUnavailable)
}

// revokedLonger is how long a revocation stays beyond the last of its tokens: a
// renewal that began before it may still have come after its clock was read.
const revokedLonger = time.Hour
