package gitstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/refpolicy"
)

// checkPins holds the update's pins to what can be asked of them before anything is read.
func (d *door) checkPins() error {
	u := d.u
	if len(u.Pins) > 0 && len(u.Changes) > 1 && !u.Atomic {
		return invalidf("pins need an atomic update")
	}
	ids := make(map[string]bool, len(u.Pins))
	for _, p := range u.Pins {
		if err := checkPin(p.Holder, p.TTL); err != nil {
			return err
		}
		id, ok := strings.CutPrefix(p.ID, pinIDs)
		odd := strings.ContainsFunc(id, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') })
		if !ok || id == "" || len(p.ID) > maxPinID || odd || ids[p.ID] {
			return invalidf("%q is no id for a new pin", p.ID)
		}
		ids[p.ID] = true
		leads := slices.ContainsFunc(u.Changes, func(c Change) bool { return c.New == p.OID })
		if p.OID.IsZero() || !leads {
			return invalidf("pin of %s, which no change leads to", p.OID)
		}
	}
	return nil
}

// fillPins makes the update's pins. What they keep has been proved with the changes.
func (d *door) fillPins(ctx context.Context, p *prepared) error {
	for _, pin := range d.u.Pins {
		commit, err := d.isCommit(ctx, pin.OID)
		if err != nil {
			return fmt.Errorf("pin %s: %w", pin.OID, err)
		}
		if !commit {
			return invalidf("pin of %s, which is no commit", pin.OID)
		}
		rider := newPinRecord(d.u.Caller, pin.OID, pin.Holder, pin.TTL, p.now).rider(pin.ID)
		for _, c := range rider.Checks {
			p.foreign[checkOf(c)] = true
		}
		p.batch.Carry(rider)
	}
	return nil
}

func (d *door) isCommit(ctx context.Context, oid refpolicy.OID) (bool, error) {
	typ, ok, err := d.g.fresh.typeOf(oid)
	if err == nil && !ok {
		typ, _, err = d.r.header(ctx, oid)
	}
	return typ == CommitObject, err
}
