package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

const (
	endTries   = 16  // how often a session's end is tried while its branch moves
	maxHolders = 100 // of an InUseError
)

// errEndedMeanwhile: somebody else ended the session.
var errEndedMeanwhile = errors.New("session has ended")

// End ends a session and deletes its branch in one batch; its record is remembered
// for a while. Of one that has ended it tells so and frees nothing. Errors:
// ErrNotFound, ErrNotCreator, *InUseError, ErrForeignSession, *StaleEpochError, the door's.
func (k *Keeper) End(ctx context.Context, repo Repo, door Door, by Actor, id string, spec EndSpec) (Ending, error) {
	storeKey := spec.Once.StoreKey()
	for range endTries {
		e, err := k.endOnce(ctx, repo, door, by, id, spec, storeKey)
		if !errors.Is(err, errEndedMeanwhile) {
			return e, err
		}
	}
	return Ending{}, fmt.Errorf("end session %s: %w: its branch keeps moving", id, ledger.ErrUnavailable)
}

func (k *Keeper) endOnce(ctx context.Context, repo Repo, door Door, by Actor, id string, spec EndSpec, storeKey string) (Ending, error) {
	got, err := k.reads(repo).visible(ctx, door, id, storeKeys(storeKey)...)
	if again := got.repeated(); again != nil {
		return Ending{}, again
	}
	if err != nil {
		return Ending{}, err
	}
	if err := got.mine(by); err != nil {
		return Ending{}, err
	}
	if !spec.Admin && !got.created(by) {
		return Ending{}, ErrNotCreator
	}
	now, err := k.Ledger.Now(ctx)
	if err != nil {
		return Ending{}, fmt.Errorf("read the ledger's clock: %w", err)
	}
	e := Ending{}
	if e.Session, err = k.tell(ctx, repo, door, got, now); err != nil || !got.live() {
		return e, err
	}
	if err := k.reads(repo).inUse(ctx, got, spec.Holder, now); err != nil {
		return Ending{}, err
	}
	if e.Session.HeadSHA == "" {
		return k.endLost(ctx, repo, door, by, id, spec)
	}
	if e.BytesFreed, err = door.Frees(ctx, got.ref()); err != nil {
		return Ending{}, unlessMoved(ctx, door, e.Session, err)
	}
	if spec.DryRun {
		return e, nil
	}
	return k.endMove(ctx, repo, door, e, spec, storeKey)
}

// endMove deletes the branch, and the session with it.
func (k *Keeper) endMove(ctx context.Context, repo Repo, door Door, e Ending, spec EndSpec, storeKey string) (Ending, error) {
	in := &endIntent{id: e.Session.ID, freed: e.BytesFreed, spec: spec}
	m := Move{Changes: []Change{{Ref: e.Session.Ref, Old: e.Session.HeadSHA}}, Intent: in}
	err := k.move(ctx, repo, door, m, storeKey)
	if err == nil {
		return in.ending, nil
	}
	return Ending{}, unlessMoved(ctx, door, e.Session, err)
}

// unlessMoved is err, unless the session's branch is not where it was: then it has
// ended meanwhile, or moved, and has to be looked at again.
func unlessMoved(ctx context.Context, door Door, s Session, err error) error {
	if ctx.Err() != nil {
		return err
	}
	heads, herr := door.Heads(ctx, s.Ref)
	if herr == nil && heads[0].SHA != s.HeadSHA {
		return errEndedMeanwhile
	}
	return err
}

// inUse refuses to let go of a session that somebody uses; the lease of holder does
// not count.
func (r reader) inUse(ctx context.Context, got reading, holder string, now time.Time) error {
	var holders []UseHolder
	if l := got.leaseAt(now, got.base); l != nil && l.Holder != holder {
		holders = append(holders, UseHolder{Kind: "lease", ID: l.Holder})
	}
	children, err := r.children(ctx, got.record, maxHolders)
	if err != nil {
		return err
	}
	for _, id := range children {
		holders = append(holders, UseHolder{Kind: "child", ID: id})
	}
	if len(holders) > 0 {
		return &InUseError{ID: got.ID, Holders: holders}
	}
	return nil
}

// endIntent ends one session whose branch is deleted.
type endIntent struct {
	id     string
	freed  int64
	spec   EndSpec
	ending Ending
}

func (in *endIntent) fill(ctx context.Context, g *guarding) error {
	got, err := g.load(ctx, in.id, storeKeys(in.spec.Once.StoreKey())...)
	if err := got.repeated(); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	if !got.live() {
		return errEndedMeanwhile
	}
	if err := g.by.inUse(ctx, got, in.spec.Holder, g.q.Now); err != nil {
		return err
	}
	g.check(ledger.AbsentPrefix(childPrefix(in.id)))
	r := g.end(got, g.q.Changes[0].Old, Deleted)
	in.ending = Ending{Session: r.told(g.q.Repo, g.base, Head{}, g.q.Now), BytesFreed: in.freed}
	return ride(g, in.spec.Once, in.ending)
}

// endLost ends a session whose branch is gone: a ledger that has lost writes may
// leave one behind.
func (k *Keeper) endLost(ctx context.Context, repo Repo, door Door, by Actor, id string, spec EndSpec) (e Ending, err error) {
	err = k.change(ctx, repo, door, id, spec.Once.StoreKey(), func(c *change) error {
		if !c.live() {
			return errEndedMeanwhile
		}
		heads, err := door.Heads(ctx, c.ref())
		if err != nil {
			return err
		}
		if heads[0].SHA != "" {
			return errEndedMeanwhile // it is there after all: look again
		}
		r := c.clone()
		r.State, r.Lease, r.EndedAt, r.Cause = Ended, nil, c.now, Deleted
		r = c.w.put(c.stored, r)
		e = Ending{Session: r.told(repo, c.base, Head{}, c.now)}
		if spec.DryRun {
			return errDryRun
		}
		c.log.Type, c.log.Session, c.log.Data = endedEvent(c.w.ended, Deleted)
		c.log.Actor = by
		return carry(c, spec.Once, e)
	})
	if errors.Is(err, errDryRun) {
		err = nil
	}
	return e, err
}

// errDryRun: it would have been done.
var errDryRun = errors.New("dry run")
