package sessions

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// An intent is what a call of this package moves refs for. The door hands it to
// Guard, which lets it read what stands and say what is written with the refs. Fill
// may be asked several times, for each batch that is tried; the last one counts, so
// it leaves its result in the intent anew each time.
type intent interface {
	fill(ctx context.Context, g *guarding) error
}

// GuardRequest, GuardAnswer: gitstore's in plain words; cmd joins the two.
type GuardRequest struct {
	Repo    Repo
	Changes []Change
	Actor   Actor
	Now     time.Time
	Intent  any
	Known   ledger.Known // what Wants named, as far as it was read; a refusal is not told from it
}

// A GuardAnswer is what must hold and is written with the changes.
type GuardAnswer struct {
	ledger.Rider
	Type     string // of the log entry; empty: ref.updated
	Session  string
	Data     json.RawMessage
	Sessions []string // by place of the change
}

// guarding is one answer of the guard in the making.
type guarding struct {
	k      *Keeper
	q      GuardRequest
	by     reader
	base   epochBase
	fences [][]byte // as read, by place of the change; nil for a ref without
	branch []string // whose fence that is, by place: the ref itself, or of a snapshot ref its session's
	w      *writing
	a      GuardAnswer
	cause  Cause
}

// Guard is asked about every change of refs, whatever road it comes by. It fences
// off who may not write, ends the sessions whose branches are deleted, and takes
// along what a call of this package moves the refs for.
//
// What may not be durable yet can only let a change pass, since the batch checks it:
// a refusal is read anew before it is told.
func (k *Keeper) Guard(ctx context.Context, q GuardRequest) (a GuardAnswer, err error) {
	for _, by := range []reader{k.peeksAfter(q), k.reads(q.Repo)} {
		if a, err = k.guard(ctx, q, by); err == nil {
			return a, nil
		}
	}
	return GuardAnswer{}, err
}

func (k *Keeper) guard(ctx context.Context, q GuardRequest, by reader) (GuardAnswer, error) {
	g := &guarding{k: k, q: q, by: by, a: GuardAnswer{Sessions: make([]string, len(q.Changes))}}
	if err := g.read(ctx); err != nil {
		return GuardAnswer{}, err
	}
	g.w = k.writing(q.Now, g.base)
	in, planned := q.Intent.(intent)
	for i := range q.Changes {
		if err := g.pass(ctx, i, planned); err != nil {
			return GuardAnswer{}, err
		}
	}
	if planned {
		if err := in.fill(ctx, g); err != nil {
			return GuardAnswer{}, err
		}
	} else if err := g.endDeleted(ctx); err != nil {
		return GuardAnswer{}, err
	}
	if err := g.finish(ctx); err != nil {
		return GuardAnswer{}, err
	}
	return g.a, nil
}

// read reads the fences of the refs, and whether the token was revoked.
func (g *guarding) read(ctx context.Context) error {
	g.fences, g.branch = make([][]byte, len(g.q.Changes)), make([]string, len(g.q.Changes))
	n := len(g.fences)
	if _, fork := g.q.Intent.(*forkIntent); fork {
		n = 0 // the names are made for it: nobody has a fence there
	}
	keys := make([]string, 0, n+2)
	for i, c := range g.q.Changes {
		g.branch[i] = c.Ref
		if i < n {
			keys = append(keys, fenceOf(c.Ref))
		}
	}
	family, revocable := g.q.Actor.family()
	keys = append(keys, baseKey)
	if revocable {
		keys = append(keys, family)
	}
	got, err := g.by.get(ctx, keys...)
	if err != nil {
		return err
	}
	copy(g.fences, got[:n])
	if err := g.throughSnapshots(n); err != nil {
		return err
	}
	if g.base, err = decodeBase(got[n]); err != nil {
		return err
	}
	if !revocable {
		return nil
	}
	if got[n+1] != nil {
		return ErrTokenDead
	}
	g.check(ledger.Absent(family))
	return nil
}

// pass holds one change against the fence of its ref. What a call of this package
// wants it judges by the session's state itself.
func (g *guarding) pass(ctx context.Context, i int, planned bool) error {
	c, actor := g.q.Changes[i], g.q.Actor
	if c.Old == c.New {
		return nil // it only demands its value
	}
	raw := g.fences[i]
	if raw == nil {
		if actor.Session != "" && !planned {
			return g.foreign(ctx, g.branch[i])
		}
		return nil
	}
	f, err := decodeFence(raw)
	if err != nil {
		return err
	}
	g.a.Sessions[i] = f.id
	g.check(ledger.Equal(fenceKey(g.branch[i]), raw))
	if actor.Session != "" && actor.Session != f.id {
		return ErrForeignSession
	}
	if actor.Epoch != nil {
		if now := g.base.told(f.epoch); *actor.Epoch != now {
			return &StaleEpochError{Ref: c.Ref, Have: *actor.Epoch, Session: now}
		}
		g.check(g.base.check())
	}
	if f.state != Active && !planned && !g.anyState() {
		return &StateError{ID: f.id, State: f.state}
	}
	return nil
}

// foreign is why a token that is bound to a session may not change a ref without a
// fence: its session has ended, or the ref never was its.
func (g *guarding) foreign(ctx context.Context, ref string) error {
	own, err := g.by.read(ctx, g.q.Actor.Session)
	if err != nil {
		return err
	}
	if own.exists() && !own.live() && own.ref() == ref {
		return ErrTokenDead
	}
	return ErrForeignSession
}

// endDeleted ends the sessions whose branches are deleted.
func (g *guarding) endDeleted(ctx context.Context) error {
	for i, c := range g.q.Changes {
		if c.New != "" || c.Old == c.New || g.fences[i] == nil || g.branch[i] != c.Ref {
			continue
		}
		got, err := g.load(ctx, g.a.Sessions[i])
		if err != nil {
			return err
		}
		g.end(got, c.Old, Deleted)
	}
	return nil
}

// load reads a session that must be there.
func (g *guarding) load(ctx context.Context, id string, extra ...string) (reading, error) {
	got, err := g.by.read(ctx, id, extra...)
	if err == nil && !got.exists() {
		err = ErrNotFound
	}
	return got, err
}

// end writes a session's end; its branch, which was at head, goes in the same batch.
func (g *guarding) end(got reading, head string, cause Cause) record {
	r := got.clone()
	r.State, r.Lease = Ended, nil
	r.Last, r.EndedAt, r.Cause = head, g.q.Now, cause
	if !got.freed.IsZero() {
		g.w.rider.Deletes = append(g.w.rider.Deletes, freedKey(r.ID))
	}
	g.cause = cause
	return g.w.put(got.stored, r)
}

// check demands c, once.
func (g *guarding) check(c ledger.Check) {
	same := func(o ledger.Check) bool { return o.Kind == c.Kind && o.Key == c.Key }
	if !slices.ContainsFunc(g.a.Checks, same) {
		g.a.Checks = append(g.a.Checks, c)
	}
}

// finish refuses what is over the limit, names the event, and joins it all.
func (g *guarding) finish(ctx context.Context) error {
	if g.w.live > 0 {
		if err := g.k.room(ctx, g.by, g.w.live); err != nil {
			return err
		}
	}
	g.a.Rider.Join(g.w.done(g.k.Limits.MaxLive))
	g.k.looks.noteAhead(g.q.Repo, g.w.due, g.q.Now)
	if g.a.Type != "" {
		return nil
	}
	if len(g.w.ended) > 0 {
		g.a.Type, g.a.Session, g.a.Data = endedEvent(g.w.ended, g.cause)
	} else {
		g.a.Session = onlyOne(g.a.Sessions)
	}
	return nil
}

func endedEvent(ids []string, cause Cause) (event, session string, data json.RawMessage) {
	d := endedData{Cause: cause}
	if len(ids) == 1 {
		session = ids[0]
	} else {
		d.Ended = ids
	}
	return eventEnded, session, mustJSON(d)
}

// onlyOne is the session that all of several refs are, or "".
func onlyOne(ids []string) string {
	for _, id := range ids {
		if id != ids[0] {
			return ""
		}
	}
	return strings.Join(ids[:min(1, len(ids))], "")
}
