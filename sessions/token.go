package sessions

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

const (
	// useGrain is how old a session's last use may grow before a token's issue counts
	// as a new one: it spares the session's record most writes.
	useGrain = time.Minute
	// tokenTries bounds how often a token's batch is made anew because something it
	// was made from had changed.
	tokenTries = 50
)

// Issue makes the record of a token with which a sandbox may write the branch of an
// active session, whether anybody holds its lease or not. The caller must be able to
// write the branch; what else binds the caller goes into spec.Within. Errors:
// ErrNotFound, ErrInvalid, *StateError, ErrForeignSession, *StaleEpochError,
// *ledger.RepeatedError, and those of the door.
func (k *Keeper) Issue(ctx context.Context, repo Repo, door Door, by Actor, id string, spec TokenSpec) (made Token, err error) {
	g, err := k.grant(spec)
	if err != nil {
		return Token{}, err
	}
	err = k.makeToken(ctx, repo, &made, func(from reader, now time.Time) (ledger.Batch, error) {
		got, err := readOnce(ctx, from, id, spec.Once)
		if err != nil {
			return ledger.Batch{}, err
		}
		switch {
		case !got.exists() || !door.CanRead(got.ref()):
			return ledger.Batch{}, ErrNotFound
		case got.State != Active:
			return ledger.Batch{}, &StateError{ID: id, State: got.State}
		}
		if err := got.mine(by); err != nil {
			return ledger.Batch{}, err
		}
		if err := door.MayWrite(got.ref()); err != nil {
			return ledger.Batch{}, err
		}
		var b ledger.Batch
		made, err = k.addToken(&b, got, g, "", by, now, spec.Once)
		return b, err
	})
	return made, err
}

// Renew makes the record of a token that goes on from the one by says (jti, sid and
// epoch), whose signature and time the caller has checked. What spec leaves empty
// stays as it was; scopes can only become fewer and policies more; the subject stays.
// Errors: ErrTokenDead, *StaleEpochError; ErrLeaseLost when the session has, or ever
// had, a lease and none is live; ErrInvalid, *ledger.RepeatedError.
func (k *Keeper) Renew(ctx context.Context, repo Repo, by Actor, spec TokenSpec) (made Token, err error) {
	old, ok := by.issued()
	if !ok || validID(by.Session) != nil {
		return Token{}, ErrTokenDead
	}
	g, err := k.grant(spec)
	if err != nil {
		return Token{}, err
	}
	err = k.makeToken(ctx, repo, &made, func(from reader, now time.Time) (ledger.Batch, error) {
		got, err := readOnce(ctx, from, by.Session, spec.Once, revokedKey(old.family), tokenKey(by.Session, old))
		if err != nil {
			return ledger.Batch{}, err
		}
		b, err := renewable(got, by, old, now)
		if err != nil {
			return ledger.Batch{}, err
		}
		prior, _, err := decodeToken(got.extra[1])
		if err != nil {
			return ledger.Batch{}, err
		}
		narrow, err := g.narrowed(prior, spec)
		if err != nil {
			return ledger.Batch{}, err
		}
		made, err = k.addToken(&b, got, narrow, old.family, by, now, spec.Once)
		return b, err
	})
	return made, err
}

// renewable refuses the token old, whose family's revocation and whose record were
// read with its session, and begins the batch of what must still hold.
func renewable(got reading, by Actor, old tokenID, now time.Time) (b ledger.Batch, err error) {
	if !got.exists() || !got.live() || got.extra[0] != nil || got.extra[1] == nil || !now.Before(old.expiresAt()) {
		return b, ErrTokenDead
	}
	if epoch := got.base.told(got.Epoch); *by.Epoch != epoch {
		return b, &StaleEpochError{Ref: got.ref(), Have: *by.Epoch, Session: epoch}
	}
	lease := got.leaseAt(now, got.base)
	if got.Leased && lease == nil {
		return b, ErrLeaseLost
	}
	if lease != nil {
		b.Checks = append(b.Checks, ledger.Before(lease.ExpiresAt))
	}
	b.Checks = append(b.Checks, ledger.Absent(revokedKey(old.family)))
	return b, nil
}

// narrowed is what a token may say that goes on from prior.
func (g grant) narrowed(prior tokenRecord, spec TokenSpec) (grant, error) {
	g.subject = prior.Subject
	if spec.Read == nil {
		g.read = prior.Read
	}
	g.scopes = slices.DeleteFunc(slices.Clone(g.scopes), func(s string) bool { return !slices.Contains(prior.Scopes, s) })
	if len(g.scopes) == 0 {
		return g, invalidf("no scope is left of the token's own")
	}
	within := slices.Clone(prior.Within)
	for _, policy := range g.within {
		if !slices.ContainsFunc(within, func(p []Rule) bool { return reflect.DeepEqual(p, policy) }) {
			within = append(within, policy)
		}
	}
	g.within = within
	return g, g.validate()
}

// makeToken applies the batch that make makes, anew for as long as what it was made
// from changes meanwhile. What would be refused by something that is not durable yet
// is judged again by what is.
func (k *Keeper) makeToken(ctx context.Context, repo Repo, made *Token, make func(from reader, now time.Time) (ledger.Batch, error)) error {
	for range tokenTries {
		now, err := k.Ledger.Now(ctx)
		if err != nil {
			return fmt.Errorf("make token: %w", err)
		}
		b, err := make(k.peeks(repo), now)
		if err != nil {
			b, err = make(k.reads(repo), now)
		}
		if err != nil {
			return err
		}
		b.Space = ledger.RepoSpace(repo.ID)
		_, err = k.Ledger.Apply(ctx, b)
		var moved *ledger.CheckError
		switch {
		case err == nil:
			k.looks.note(repo, made.ExpiresAt.Add(sweepGrain))
			return nil
		case !errors.As(err, &moved):
			return fmt.Errorf("make token: %w", err)
		}
	}
	return fmt.Errorf("make token: %w: its session keeps changing", ledger.ErrUnavailable)
}

// addToken adds the record of a token for the session as it was read.
func (k *Keeper) addToken(b *ledger.Batch, got reading, g grant, family string, by Actor, now time.Time, once *ledger.Once[Token]) (Token, error) {
	rec, id, err := g.token(&got.record, got.base, family, by, now)
	if err != nil {
		return Token{}, err
	}
	made, err := rec.told(id, nil)
	if err != nil {
		return Token{}, err
	}
	answer, err := once.Rider(made, now)
	if err != nil {
		return Token{}, err
	}
	b.Checks = append(b.Checks, got.base.check(), ledger.Equal(fenceKey(got.ref()), got.fence().encode()))
	b.Sets = append(b.Sets, rec.sets(id)...)
	b.Carry(answer)
	b.Carry(k.usedNow(got, now))
	return made, nil
}

// usedNow holds the session's record to what was read and counts its use.
func (k *Keeper) usedNow(got reading, now time.Time) ledger.Rider {
	if now.Sub(got.UsedAt) < useGrain {
		return ledger.Rider{Checks: []ledger.Check{ledger.Equal(sessionKey(got.ID), got.raw)}}
	}
	r := got.clone()
	r.UsedAt = now
	w := k.writing(now, got.base)
	w.put(got.stored, r)
	return w.done(k.Limits.MaxLive)
}

// readOnce reads a session and other keys, unless the call is known.
func readOnce[T any](ctx context.Context, from reader, id string, once *ledger.Once[T], extra ...string) (reading, error) {
	if validID(id) != nil {
		return reading{}, ErrNotFound
	}
	if once == nil {
		return from.read(ctx, id, extra...)
	}
	got, err := from.read(ctx, id, append(slices.Clone(extra), once.StoreKey())...)
	if err != nil {
		return got, err
	}
	known := got.extra[len(extra)]
	got.extra = got.extra[:len(extra)]
	return got, ledger.Repeated(known)
}
