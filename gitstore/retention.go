package gitstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// Retention says until when something stays readable by its id.
type Retention struct {
	// Held is whether a ref or a pin holds it. Nothing else is promised to be there
	// after the next prune.
	Held bool
	// Until is when the last pin expires that holds it. Zero, of what is held: there is
	// no end but the deletion or rewinding of the ref, or the deletion of the pin.
	Until time.Time
}

// compare orders by how long something stays readable, the shortest first.
func (t Retention) compare(o Retention) int {
	return cmp.Or(order(t.Held, o.Held), order(t.Until.IsZero(), o.Until.IsZero()), t.Until.Compare(o.Until))
}

// order puts false before true.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Retention tells until when commits that Resolve gave to the caller are all
// readable; zero ids are passed over. It may walk all history, for ProofTimeout.
// To a token with rules on reading only what a ref of its own reaches exists, so it
// is never told of pins. Errors: ErrProofTimeout.
func (r *Repo) Retention(ctx context.Context, c Caller, commits ...refpolicy.OID) (Retention, error) {
	least := Retention{Held: true}
	if c.Policy.RestrictsReads() {
		return least, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.store.limits.ProofTimeout, ErrProofTimeout)
	defer cancel()
	for n, oid := range commits {
		if oid.IsZero() || slices.Contains(commits[:n], oid) {
			continue
		}
		t, err := r.retention(ctx, oid)
		if err != nil && errors.Is(context.Cause(ctx), ErrProofTimeout) {
			return Retention{}, ErrProofTimeout
		}
		if err != nil {
			return Retention{}, fmt.Errorf("find what holds %s: %w", oid, r.orGone(err))
		}
		least = slices.MinFunc([]Retention{least, t}, Retention.compare)
	}
	return least, nil
}

func (r *Repo) retention(ctx context.Context, commit refpolicy.OID) (Retention, error) {
	held, err := r.heldByRefs(ctx, commit)
	if err != nil {
		return Retention{}, err
	}
	v, err := r.ledger.Read(ctx, r.space) // waits until what was read of refs is durable
	if err != nil {
		return Retention{}, err
	}
	defer v.Close()
	if held {
		return Retention{Held: true}, nil
	}
	pins, err := r.livePins(ctx, v)
	if err != nil {
		return Retention{}, err
	}
	s := approach{g: graph{r, noFresh}, target: commit}
	for _, p := range pins {
		reached, err := s.from(ctx, []refpolicy.OID{p.OID})
		switch {
		case errors.Is(err, ErrObjectNotFound):
			return Retention{}, nil // what it builds on has been pruned, so no pin holds it
		case err != nil:
			return Retention{}, err
		case reached:
			return Retention{Held: true, Until: p.ExpiresAt}, nil
		}
	}
	return Retention{}, nil
}

// heldByRefs reports whether any ref reaches a stored commit, those of sessions last.
func (r *Repo) heldByRefs(ctx context.Context, commit refpolicy.OID) (held bool, err error) {
	if held, err = r.reachedByRefs(ctx, commit); held || err != nil {
		return held, err
	}
	s := approach{g: graph{r, noFresh}, target: commit}
	_, err = r.tipsOf(ctx, hiddenNames, func(t tipSet) (bool, error) {
		held, err = s.from(ctx, t.commits)
		return held, err
	})
	if errors.Is(err, ErrObjectNotFound) {
		return false, nil // what it builds on has been pruned, so nothing reaches it
	}
	return held, err
}

// livePins are the pins that hold now, those that hold longest first.
func (r *Repo) livePins(ctx context.Context, v ledger.View) ([]Pin, error) {
	items, err := scanAll(ctx, v, pinKeys)
	if err != nil || len(items) == 0 {
		return nil, err
	}
	pins, err := pinsOf(items)
	if err != nil {
		return nil, err
	}
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return nil, err
	}
	pins = slices.DeleteFunc(pins, func(p Pin) bool { return !p.ExpiresAt.IsZero() && !now.Before(p.ExpiresAt) })
	slices.SortFunc(pins, func(a, b Pin) int {
		return Retention{true, b.ExpiresAt}.compare(Retention{true, a.ExpiresAt})
	})
	return pins, nil
}
