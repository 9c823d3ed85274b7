package sessions

import "time"

// endsAt is when a session ends if nothing happens until then; zero: never. Whoever
// has live children, or a pinned head, stays longer.
//
// Its time may be up (ExpiresAt), it may be idle (since it was last used or written
// to), or unused (since, besides, nobody held a lease on it and it had no child).
// While it is held it does not end.
func (r *record) endsAt(base epochBase, written, freed time.Time) time.Time {
	used := latest(r.UsedAt, written)
	var held time.Time
	if r.Lease != nil && r.Lease.Base == base.n {
		held = r.Lease.Until
	}
	ends := r.ExpiresAt
	if r.Idle > 0 {
		ends = earliest(ends, used.Add(r.Idle))
	}
	if r.Unused > 0 {
		ends = earliest(ends, latest(used, held, freed).Add(r.Unused))
	}
	if ends.IsZero() {
		return ends
	}
	return latest(ends, held)
}

// earliest is the earlier of two times of which zero is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
