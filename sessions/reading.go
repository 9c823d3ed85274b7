package sessions

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// A reader is one of the two ways to read a repo's space: what may not be durable
// yet, for preparing a batch that follows it, and what is.
type reader struct {
	space ledger.Space
	keys  func(ctx context.Context, s ledger.Space, keys ...string) ([][]byte, error)
	open  func(ctx context.Context, s ledger.Space) (ledger.View, error)
}

func (k *Keeper) peeks(repo Repo) reader {
	return reader{ledger.RepoSpace(repo.ID), k.Ledger.PeekKeys, k.Ledger.Peek}
}

func (k *Keeper) reads(repo Repo) reader {
	return reader{ledger.RepoSpace(repo.ID), k.Ledger.ReadKeys, k.Ledger.Read}
}

func (r reader) get(ctx context.Context, keys ...string) ([][]byte, error) {
	got, err := r.keys(ctx, r.space, keys...)
	if err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	return got, nil
}

// scan gives up to limit items below prefix.
func (r reader) scan(ctx context.Context, prefix string, limit int) ([]ledger.Item, error) {
	v, err := r.open(ctx, r.space)
	if err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	defer v.Close()
	items, err := v.Scan(ctx, prefix, "", limit)
	if err != nil {
		return nil, fmt.Errorf("scan sessions: %w", err)
	}
	return items, nil
}

// A reading is a session as it stands, with what belongs to it.
type reading struct {
	stored
	base  epochBase
	freed time.Time // when its last child ended; zero: none did
	extra [][]byte  // what else was read, in order
}

// read reads a session and, in the same moment, other keys. A session that is not
// there is no error: the reading does not exist.
func (r reader) read(ctx context.Context, id string, extra ...string) (reading, error) {
	got, err := r.get(ctx, append([]string{sessionKey(id), baseKey, freedKey(id)}, extra...)...)
	if err != nil {
		return reading{}, err
	}
	base, err := decodeBase(got[1])
	if err != nil {
		return reading{}, err
	}
	out, err := decodeReading(base, got[0], got[2])
	out.extra = got[3:]
	return out, err
}

func decodeReading(base epochBase, raw, freed []byte) (r reading, err error) {
	r.base = base
	if r.stored, err = decodeRecord(raw); err != nil {
		return r, err
	}
	r.freed, err = decodeFreed(r.ID, freed)
	return r, err
}

// decodeFreed reads when the last child of a session ended; the zero time for nil.
func decodeFreed(id string, raw []byte) (at time.Time, err error) {
	if raw == nil {
		return at, nil
	}
	at, _, ok := parseWhen(string(raw))
	if !ok {
		return at, fmt.Errorf("decode when the last child of session %s ended", id)
	}
	return at, nil
}

// visible reads a session that the caller may see: ErrNotFound for another.
func (r reader) visible(ctx context.Context, door Door, id string, extra ...string) (reading, error) {
	if validID(id) != nil {
		return reading{}, ErrNotFound
	}
	got, err := r.read(ctx, id, extra...)
	if err != nil {
		return got, err
	}
	if !got.exists() || !door.CanRead(got.ref()) {
		return got, ErrNotFound
	}
	return got, nil
}

// leaseAt is the lease that is live at a time, nil for none.
func (r *record) leaseAt(now time.Time, base epochBase) *Lease {
	l := r.Lease
	if l == nil || l.Base != base.n || !now.Before(l.Until) {
		return nil
	}
	return &Lease{Holder: l.Holder, Epoch: base.told(r.Epoch), ExpiresAt: l.Until}
}

// told is the session as it is told, but for EndsAt, which depends on who uses it.
func (r *record) told(repo Repo, base epochBase, head Head, now time.Time) Session {
	s := Session{
		ID: r.ID, Repo: repo, Branch: r.Branch, Ref: r.ref(), BaseSHA: r.Base, HeadSHA: head.SHA,
		Epoch: base.told(r.Epoch), State: r.State, Lease: r.leaseAt(now, base),
		Labels: r.clone().Labels, ParentID: r.Parent, FromSnapshot: r.From, GroupID: r.Group,
		CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy, UsedAt: latest(r.UsedAt, head.At),
		ExpiresAt: r.ExpiresAt, IdleTimeout: r.Idle, TTLUnused: r.Unused,
		EndedAt: r.EndedAt, EndCause: r.Cause, CaptureKey: r.CaptureKey,
	}
	if !r.live() {
		s.HeadSHA = r.Last
	}
	if s.Lease != nil {
		s.Holder = s.Lease.Holder
	}
	return s
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
