package gitstore

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// A save takes chunks over from a base without writing them again, and may have looked
// at them long before its batch. Why none of them can be gone by then: the door finds
// the base held by a ref or a pin after it has read the prune generation, which the
// batch checks. A prune that has begun before that reading finds the base among its
// roots; one that begins after it makes the batch fail, and the door looks again. A
// base that was let go and pruned away in between is not held any more, and cannot be
// held again without all it leads to having been written anew.

// heldAll is nil if all that the update leans on is held.
func (d *door) heldAll(ctx context.Context) error {
	if len(d.u.Leans) == 0 {
		return nil
	}
	v, err := d.r.ledger.Peek(ctx, d.r.space)
	if err != nil {
		return fmt.Errorf("read what holds a commit: %w", err)
	}
	defer v.Close()
	for _, oid := range d.u.Leans {
		held, err := d.r.held(ctx, v, oid)
		if err != nil {
			return fmt.Errorf("read what holds a commit: %w", err)
		}
		if !held {
			return fmt.Errorf("%w: nothing holds %s", ErrUnreachable, oid)
		}
	}
	return nil
}

// held reports whether a ref is at a commit or a live pin holds it.
func (r *Repo) held(ctx context.Context, v ledger.View, oid refpolicy.OID) (bool, error) {
	tips, err := v.Scan(ctx, tipPrefix(oid), tipPrefix(oid), 1)
	if err != nil || len(tips) > 0 {
		return err == nil, err
	}
	return r.pinned(ctx, v, oid)
}

// prove proves what tips lead to, as far as nobody vouches for it.
func (d *door) prove(ctx context.Context, tips, bases []refpolicy.OID) error {
	p := newProof(d.r, d.u.Caller, d.g.fresh)
	p.vouched = d.u.Vouched
	return p.inTime(ctx, tips, bases)
}
