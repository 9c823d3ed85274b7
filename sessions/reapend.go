package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// apply applies a batch of the reaper's; what has changed since it was read is left
// to the next round.
func (r *reaping) apply(ctx context.Context, id string, b ledger.Batch) error {
	b.Space = ledger.RepoSpace(r.repo.ID)
	_, err := r.k.Ledger.Apply(ctx, b)
	var check *ledger.CheckError
	if errors.As(err, &check) {
		r.left = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("reap session %s: %w", id, err)
	}
	return nil
}

// forgetLook takes a look away that nothing is to be done about.
func (r *reaping) forgetLook(ctx context.Context, l dueLook) error {
	if l.exists() && l.Due.Equal(l.at) {
		return nil // it was the record's own: whoever moved that moved it
	}
	b := ledger.Batch{Deletes: []string{l.key}}
	if !l.exists() {
		b.Checks = []ledger.Check{ledger.Absent(sessionKey(l.id))}
		b.Deletes = append(b.Deletes, freedKey(l.id))
	}
	return r.apply(ctx, l.id, b)
}

// postpone moves the look at a session.
func (r *reaping) postpone(ctx context.Context, l dueLook, at time.Time) error {
	rec := l.clone()
	rec.Due = at
	rider := indexRider(l.stored, &rec)
	if l.stray {
		rider.Deletes = append(rider.Deletes, l.key)
	}
	var b ledger.Batch
	b.Carry(rider)
	b.Checks = append(b.Checks, ledger.Equal(sessionKey(l.id), l.raw))
	b.Sets = append(b.Sets, ledger.Set{Key: sessionKey(l.id), Value: rec.encode()})
	return r.apply(ctx, l.id, b)
}

// forget takes away what is left of a session that ended long ago: first what its
// tokens have left, then the record.
func (r *reaping) forget(ctx context.Context, l dueLook) error {
	v, err := r.k.Ledger.Read(ctx, ledger.RepoSpace(r.repo.ID))
	if err != nil {
		return fmt.Errorf("read session %s: %w", l.id, err)
	}
	defer v.Close()
	tokens, err := r.k.tokenKeys(ctx, v, l.id, ledger.BulkKeys/2)
	if err != nil {
		return err
	}
	b := ledger.Batch{Checks: []ledger.Check{ledger.Equal(sessionKey(l.id), l.raw)}, Deletes: tokens}
	if len(tokens) >= ledger.BulkKeys/2 {
		r.left = true // the rest goes with the next round
		return r.apply(ctx, l.id, b)
	}
	b.Carry(indexRider(l.stored, nil))
	b.Deletes = append(b.Deletes, sessionKey(l.id), freedKey(l.id))
	if l.stray {
		b.Deletes = append(b.Deletes, l.key)
	}
	return r.apply(ctx, l.id, b)
}

// endLost ends a session whose branch is gone without it.
func (r *reaping) endLost(ctx context.Context, l dueLook) error {
	c := &change{reading: l.reading, now: r.now, w: r.k.writing(r.now, l.base)}
	rec := l.clone()
	rec.State, rec.Lease, rec.EndedAt, rec.Cause = Ended, nil, r.now, Expired
	c.w.put(l.stored, rec)
	c.log.Type, c.log.Session, c.log.Data = endedEvent(c.w.ended, Expired)
	c.log.Actor = r.actor()
	b := ledger.Batch{Log: c.log.encode()}
	b.Carry(c.w.done(r.k.Limits.MaxLive))
	return r.apply(ctx, l.id, b)
}

// end ends sessions with their branches, all in one batch; if that is refused, each
// in its own.
func (r *reaping) end(ctx context.Context, looks []dueLook) error {
	in := &reapIntent{door: r.door}
	m := Move{Intent: in}
	for _, l := range looks {
		in.ids = append(in.ids, l.id)
		m.Changes = append(m.Changes, Change{Ref: l.ref(), Old: l.head.SHA})
		if l.stray {
			in.strays = append(in.strays, l.key)
		}
	}
	err := r.door.Move(ctx, m)
	if err == nil {
		return nil
	}
	still, herr := r.standing(ctx, looks)
	if herr != nil {
		return herr
	}
	if len(still) < len(looks) {
		r.left = true // another node has ended them, or they were written to
		if len(still) == 0 {
			return nil
		}
		return r.end(ctx, still)
	}
	if len(looks) == 1 {
		return r.failed(ctx, "session", looks[0].id, err)
	}
	for i := range looks {
		if err := r.end(ctx, looks[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// standing are those whose branches are where they were.
func (r *reaping) standing(ctx context.Context, looks []dueLook) (still []dueLook, err error) {
	refs := make([]string, len(looks))
	for i, l := range looks {
		refs[i] = l.ref()
	}
	heads, err := r.door.Heads(ctx, refs...)
	if err != nil {
		return nil, err
	}
	for i, l := range looks {
		if heads[i].SHA == l.head.SHA {
			still = append(still, l)
		}
	}
	return still, nil
}

// reapIntent ends the sessions whose time is up, by place of the change.
type reapIntent struct {
	door   Door
	ids    []string
	strays []string
}

// fill judges each session anew by what stands now, when its branch was written to
// last as well: the batch checks the branch, the record, and that there is no child.
func (in *reapIntent) fill(ctx context.Context, g *guarding) error {
	refs := make([]string, len(g.q.Changes))
	for i, c := range g.q.Changes {
		refs[i] = c.Ref
	}
	heads, err := in.door.Heads(ctx, refs...)
	if err != nil {
		return err
	}
	for i, id := range in.ids {
		got, err := g.by.read(ctx, id)
		if err != nil {
			return err
		}
		if !got.exists() || !got.live() || got.ref() != refs[i] {
			return errNotDue
		}
		if ends := got.endsAt(g.base, latest(heads[i].At, got.CreatedAt), got.freed); ends.IsZero() || g.q.Now.Before(ends) {
			return errNotDue
		}
		if err := in.childless(ctx, g, got); err != nil {
			return err
		}
		g.end(got, g.q.Changes[i].Old, got.causeOfExpiry())
	}
	g.w.rider.Deletes = append(g.w.rider.Deletes, in.strays...)
	return nil
}

func (in *reapIntent) childless(ctx context.Context, g *guarding, got reading) error {
	children, err := g.by.children(ctx, got.record, 1)
	if err != nil {
		return err
	}
	if len(children) > 0 {
		return errNotDue
	}
	g.check(ledger.AbsentPrefix(childPrefix(got.ID)))
	return nil
}
