package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Lease changes who holds a session. Acquire and takeover raise the epoch in the
// batch that writes the fence, so that no write of an older epoch lands after it.
// Errors: ErrInvalid, ErrNotFound, *LeaseHeldError (of acquire, after it has waited),
// ErrLeaseLost (of renew and release), *StateError, ErrForeignSession,
// *StaleEpochError, the door's.
func (k *Keeper) Lease(ctx context.Context, repo Repo, door Door, by Actor, id string, spec LeaseSpec) (Lease, error) {
	if err := k.completeLease(&spec); err != nil {
		return Lease{}, err
	}
	l, err := k.leaseOnce(ctx, repo, door, by, id, spec)
	if held := (*LeaseHeldError)(nil); spec.Wait > 0 && errors.As(err, &held) {
		return k.awaitLease(ctx, repo, door, by, id, spec)
	}
	return l, err
}

func (k *Keeper) completeLease(s *LeaseSpec) error {
	switch s.Action {
	case Acquire, Renew, Release, Takeover:
	default:
		return invalidf("a lease knows no action %q", s.Action)
	}
	if err := validHolder(s.Holder); err != nil {
		return err
	}
	if err := validTime("ttl", &s.TTL); err != nil {
		return err
	}
	if err := validTime("wait", &s.Wait); err != nil {
		return err
	}
	s.TTL = k.leaseTTL(s.TTL)
	if s.Wait = min(s.Wait, k.Limits.LeaseWaitMax); s.Action != Acquire {
		s.Wait = 0
	}
	return nil
}

// leaseTTL is for how long a lease is given; zero asks for the default.
func (k *Keeper) leaseTTL(asked time.Duration) time.Duration {
	if asked == 0 {
		return k.Limits.LeaseDefault
	}
	return min(asked, k.Limits.LeaseMax)
}

func (k *Keeper) leaseOnce(ctx context.Context, repo Repo, door Door, by Actor, id string, spec LeaseSpec) (l Lease, err error) {
	err = k.change(ctx, repo, door, id, spec.Once.StoreKey(), func(c *change) error {
		r, err := spec.apply(c, door, by)
		if err != nil {
			return err
		}
		c.w.rider.Checks = append(c.w.rider.Checks, c.base.check())
		r = c.w.put(c.stored, r)
		l = Lease{Holder: spec.Holder, Epoch: c.base.told(r.Epoch), ExpiresAt: c.now}
		if r.Lease != nil {
			l.ExpiresAt = r.Lease.Until
		}
		data := r.data(c.base, c.now)
		data.Action = spec.Action
		c.log = logEntry{Type: eventLease, Actor: by, Session: id, Data: mustJSON(data)}
		return carry(c, spec.Once, l)
	})
	return l, err
}

// apply is the record after the action.
func (s *LeaseSpec) apply(c *change, door Door, by Actor) (record, error) {
	live := c.leaseAt(c.now, c.base)
	keeps := s.Action == Renew || s.Action == Release
	if keeps {
		if by.Session != "" && by.Session != c.ID {
			return record{}, ErrForeignSession
		}
		if !s.own(live) || !sameEpoch(by.Epoch, live) {
			return record{}, c.lost(live)
		}
		by.Epoch = nil
		c.w.rider.Checks = append(c.w.rider.Checks, ledger.Before(live.ExpiresAt))
	}
	if err := c.changeable(door, by); err != nil {
		return record{}, err
	}
	if s.Action == Acquire && live != nil && live.Holder != s.Holder {
		return record{}, &LeaseHeldError{Lease: *live}
	}
	r := c.clone()
	r.UsedAt = latest(r.UsedAt, c.now)
	if s.Action == Release {
		r.Lease = nil
		return r, nil
	}
	if !keeps {
		r.Epoch++
	}
	r.Lease, r.Leased = &leaseRecord{Holder: s.Holder, Until: c.now.Add(s.TTL), Base: c.base.n}, true
	return r, nil
}

// own reports whether the lease that is live is the caller's.
func (s *LeaseSpec) own(live *Lease) bool {
	return live != nil && live.Holder == s.Holder && sameEpoch(s.Epoch, live)
}

func sameEpoch(epoch *uint64, live *Lease) bool {
	return epoch == nil || *epoch == live.Epoch
}

// lost tells who has the lease that somebody believed to hold.
func (c *change) lost(live *Lease) error {
	if !c.live() {
		return fmt.Errorf("%w: the session has ended", ErrLeaseLost)
	}
	epoch := c.base.told(c.Epoch)
	if live == nil {
		return fmt.Errorf("%w: it expired or was released, the session is at epoch %d; acquire it anew", ErrLeaseLost, epoch)
	}
	return fmt.Errorf("%w: %s holds it, the session is at epoch %d", ErrLeaseLost, live.Holder, epoch)
}

// awaitLease acquires a lease as soon as whoever holds it lets go or has it expire,
// and gives up with a *LeaseHeldError when the wait is over.
func (k *Keeper) awaitLease(ctx context.Context, repo Repo, door Door, by Actor, id string, spec LeaseSpec) (Lease, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	grown, err := k.Ledger.Watch(watching, ledger.RepoSpace(repo.ID))
	if err != nil {
		return Lease{}, fmt.Errorf("watch session %s: %w", id, err)
	}
	over := time.NewTimer(spec.Wait)
	defer over.Stop()
	for last := false; ; {
		l, err := k.leaseOnce(ctx, repo, door, by, id, spec)
		held := (*LeaseHeldError)(nil)
		if last || !errors.As(err, &held) {
			return l, err
		}
		now, err := k.Ledger.Now(ctx)
		if err != nil {
			return Lease{}, fmt.Errorf("read the ledger's clock: %w", err)
		}
		expires := time.NewTimer(max(held.Lease.ExpiresAt.Sub(now), time.Millisecond))
		select {
		case <-expires.C:
		case _, open := <-grown:
			if !open && ctx.Err() == nil {
				err = ledger.ErrClosed
			}
		case <-over.C:
			last = true
		case <-ctx.Done():
			err = ctx.Err()
		}
		expires.Stop()
		if err != nil {
			return Lease{}, fmt.Errorf("wait for the lease of session %s: %w", id, err)
		}
	}
}
