package sessions

import (
	"context"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Patch changes a session's labels and times. It is no use of the session. Errors:
// ErrInvalid, ErrNotFound, *StateError, ErrForeignSession, *StaleEpochError, the door's.
func (k *Keeper) Patch(ctx context.Context, repo Repo, door Door, by Actor, id string, p Patch) (Session, error) {
	if err := p.validate(); err != nil {
		return Session{}, err
	}
	var told Session
	err := k.change(ctx, repo, door, id, p.Once.StoreKey(), func(c *change) error {
		if err := c.changeable(door, by); err != nil {
			return err
		}
		r := c.clone()
		if err := p.apply(&r, c.now); err != nil {
			return err
		}
		r = c.w.put(c.stored, r)
		c.log = logEntry{Type: eventChanged, Actor: by, Session: id, Data: mustJSON(r.data(c.base, c.now))}
		after := c.reading
		after.record = r
		var err error
		if told, err = k.tell(ctx, repo, door, after, c.now); err != nil {
			return err
		}
		return carry(c, p.Once, told)
	})
	return told, err
}

// carry stores the answer of a call that may be repeated.
func carry[T any](c *change, once *ledger.Once[T], result T) error {
	rider, err := once.Rider(result, c.now)
	if err != nil {
		return err
	}
	c.w.rider.Join(rider)
	return nil
}

func (p *Patch) validate() error {
	for _, d := range []struct {
		what string
		d    **time.Duration
	}{{"ttl", &p.TTL}, {"idle timeout", &p.IdleTimeout}, {"unused ttl", &p.TTLUnused}} {
		if *d.d == nil {
			continue
		}
		cut := **d.d
		if err := validTime(d.what, &cut); err != nil {
			return err
		}
		*d.d = &cut
	}
	return nil
}

func (p *Patch) apply(r *record, now time.Time) error {
	if r.Labels == nil && len(p.Labels) > 0 {
		r.Labels = map[string]string{}
	}
	for key, val := range p.Labels {
		if val == nil {
			delete(r.Labels, key)
		} else {
			r.Labels[key] = *val
		}
	}
	if err := validLabels(r.Labels); err != nil {
		return err
	}
	if p.TTL != nil {
		r.ExpiresAt = time.Time{}
		if *p.TTL > 0 {
			r.ExpiresAt = now.Add(*p.TTL)
		}
	}
	if p.IdleTimeout != nil {
		r.Idle = *p.IdleTimeout
	}
	if p.TTLUnused != nil {
		r.Unused = *p.TTLUnused
	}
	return nil
}
