package sessions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// snapshotPrefix stands before a session's id in the ref of its snapshots. Who may not
// write the session's branch may not write that either.
const snapshotPrefix = "refs/namespaces/state/refs/snapshots/"

// fenceOf is the key that tells of the fence of a ref: of a snapshot ref the record of its
// session, whose branch may have any name.
func fenceOf(ref string) string {
	if id, ok := strings.CutPrefix(ref, snapshotPrefix); ok {
		return sessionKey(id)
	}
	return fenceKey(ref)
}

// throughSnapshots puts the fences of sessions in the place of their records, for the
// snapshot refs among the first n changes.
func (g *guarding) throughSnapshots(n int) error {
	for i, c := range g.q.Changes[:n] {
		if !strings.HasPrefix(c.Ref, snapshotPrefix) || g.fences[i] == nil {
			continue
		}
		own, err := decodeRecord(g.fences[i])
		if err != nil {
			return err
		}
		g.fences[i], g.branch[i] = nil, own.ref()
		if own.live() {
			g.fences[i] = own.fence().encode()
		}
	}
	return nil
}

// An errand is an intent of another room for which a session's state does not count: it
// only takes something away.
type errand interface{ AnyState() bool }

func (g *guarding) anyState() bool {
	e, ok := g.q.Intent.(errand)
	return ok && e.AnyState()
}

// startFromSnapshot restarts the clock of a snapshot that a session is made from, which
// must not be on its way out.
func (g *guarding) startFromSnapshot(ctx context.Context, from *SnapshotState) error {
	got, err := g.by.get(ctx, from.Ready.Key)
	if err != nil {
		return err
	}
	if got[0] == nil || string(got[0]) != string(from.Ready.Value) {
		return ErrSnapshotGone
	}
	g.check(from.Ready)
	g.w.set(startedKey(from.SHA), []byte(whenBytes(g.q.Now)))
	return nil
}

// A SnapshotUse is how a snapshot is used.
type SnapshotUse struct {
	Sessions []string  // live ones that were made from it
	Started  time.Time // when one was made from it last; zero: never
	Freed    time.Time // when one of them ended last
	// Nobody fails when another session has been made since; Keys are what is kept of
	// this, of no use when the snapshot is gone.
	Nobody []ledger.Check
	Keys   []string
}

// maxUsers is how many sessions of one snapshot are told.
const maxUsers = 100

// SnapshotUses tells how snapshots are used, in their order.
func (k *Keeper) SnapshotUses(ctx context.Context, repo Repo, shas ...string) ([]SnapshotUse, error) {
	v, err := k.Ledger.Read(ctx, ledger.RepoSpace(repo.ID))
	if err != nil {
		return nil, fmt.Errorf("read uses of snapshots: %w", err)
	}
	defer v.Close()
	uses := make([]SnapshotUse, len(shas))
	for i, sha := range shas {
		if err := uses[i].read(ctx, v, sha); err != nil {
			return nil, fmt.Errorf("read uses of snapshot %s: %w", sha, err)
		}
	}
	return uses, nil
}

func (u *SnapshotUse) read(ctx context.Context, v ledger.View, sha string) error {
	prefix := fromPrefix(sha)
	items, err := v.Scan(ctx, prefix, "", maxUsers)
	if err != nil {
		return err
	}
	for _, it := range items {
		u.Sessions = append(u.Sessions, it.Key[len(prefix):])
	}
	u.Keys = []string{startedKey(sha), unusedKey(sha)}
	got, err := v.GetMany(ctx, u.Keys...)
	if err != nil {
		return err
	}
	// One that is made and ended in between has started the clocks anew.
	for i, into := range []*time.Time{&u.Started, &u.Freed} {
		check := ledger.Absent(u.Keys[i])
		if got[i] != nil {
			check = ledger.Equal(u.Keys[i], got[i])
			*into, _, _ = parseWhen(string(got[i]))
		}
		u.Nobody = append(u.Nobody, check)
	}
	u.Nobody = append(u.Nobody, ledger.AbsentPrefix(prefix))
	return nil
}

// A SnapshotOwner is a session as one who saves or deletes its snapshots stands to it.
type SnapshotOwner struct {
	Session
	Mine bool // the caller created it
	// Fenced is why the caller's token is none of this session's, or an old one; nil: it
	// may write, or is bound to no session. Closed is why nothing is saved in its state.
	Fenced, Closed error
}

// SnapshotOwner tells of a session, also one that the caller may not see; ok is false for
// one that there is none of.
func (k *Keeper) SnapshotOwner(ctx context.Context, repo Repo, door Door, by Actor, id string) (o SnapshotOwner, ok bool, err error) {
	if validID(id) != nil {
		return o, false, nil
	}
	revoked := revokedKey(familyOf(by.TokenID))
	if len(by.TokenID) > maxTokenID {
		revoked = revokedKey("") // nobody's
	}
	got, err := k.reads(repo).read(ctx, id, revoked)
	if err != nil || !got.exists() {
		return o, false, err
	}
	now, err := k.Ledger.Now(ctx)
	if err != nil {
		return o, false, fmt.Errorf("read the ledger's clock: %w", err)
	}
	if o.Session, err = k.tell(ctx, repo, door, got, now); err != nil {
		return o, false, err
	}
	o.Mine, o.Fenced = got.created(by), got.mine(by)
	if by.Session != "" && (got.extra[0] != nil || o.Fenced == nil && !got.live()) {
		o.Fenced = ErrTokenDead
	}
	if got.State != Active {
		o.Closed = &StateError{ID: id, State: got.State}
	}
	return o, true, nil
}

// SetUsable makes a session view-only whose last snapshot cannot be restored, and what it
// was before when it can. A session that is no more, or has ended, is left alone.
func (k *Keeper) SetUsable(ctx context.Context, repo Repo, id string, usable bool, why string) error {
	by := Actor{Org: repo.Org, Subject: "headgate"}
	door, err := k.Doors(repo, by)
	if err != nil {
		return err
	}
	got, err := k.reads(repo).read(ctx, id)
	if err != nil || !got.exists() || !got.restates(usable) {
		return err
	}
	err = k.change(ctx, repo, door, id, "", func(c *change) error {
		if !c.restates(usable) {
			return errRestated
		}
		r := c.clone()
		if usable {
			r.State, r.Was = r.Was, ""
		} else {
			r.State, r.Was = ViewOnly, r.State
		}
		r = c.w.put(c.stored, r)
		data := r.data(c.base, c.now)
		data.Reason = why
		c.log = logEntry{Type: eventChanged, Actor: by, Session: id, Data: mustJSON(data)}
		return nil
	})
	if errors.Is(err, errRestated) {
		return nil
	}
	return err
}

// errRestated: the session's state is what it was to become, or does not matter any more.
var errRestated = errors.New("session is in that state already")

// restates reports whether being usable, or not, changes the session's state.
func (r *record) restates(usable bool) bool {
	if usable {
		return r.State == ViewOnly && r.Was != ""
	}
	return r.live() && r.State != ViewOnly
}
