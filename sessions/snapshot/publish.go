package snapshot

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// A made snapshot is one whose objects are all there, in a pack that is finished and
// that nobody knows of yet.
type made struct {
	Commit   OID
	Manifest Manifest
	Pack     Pack
	New      int64 // bytes that this save adds to what is stored
}

// publishTries is how often a save is published anew because the ref moved, if it does
// not mind where that is.
const publishTries = 16

// pinID names the pin that keeps a snapshot.
func pinID(commit OID) string { return "pin_snapshot" + commit.String() }

// overCap is the *OverCapError of a snapshot of so many stored bytes, or nil. To be asked
// while the bytes come in.
func (k *Keeper) overCap(stored int64) error {
	if k.Limits.Cap > 0 && stored > k.Limits.Cap {
		return &OverCapError{Cap: k.Limits.Cap, Size: stored}
	}
	return nil
}

// publish makes a snapshot ready: refs, pin, record, counters, event and stored answer in
// one batch. The pack is the Move's; who made it aborts it if this fails. Errors:
// *MovedError, *OverCapError, *FullError, ErrUploadNotFound, *StateError,
// *ledger.RepeatedError, those of sessions' guard and of the Move.
func (k *Keeper) publish(ctx context.Context, repo Repo, p *planned, m made) (Snapshot, error) {
	if err := k.overCap(m.Manifest.Stored); err != nil {
		return Snapshot{}, err
	}
	if err := k.mark(ctx, repo.ID()); err != nil {
		return Snapshot{}, err
	}
	in := &publishIntent{p: p, m: m}
	for range publishTries {
		err := repo.Move(ctx, p.move(in))
		if err == nil {
			k.prune(ctx, repo.ID(), p.spec.Session)
			return in.told, nil
		}
		if again := k.reads(repo.ID()).known(ctx, p.spec.Once.StoreKey()); again != nil {
			return Snapshot{}, again
		}
		moved, err := k.whyRefused(ctx, repo, p, err)
		if !moved {
			return Snapshot{}, err
		}
	}
	return Snapshot{}, fmt.Errorf("save snapshot of session %s: %w: its ref keeps moving", p.spec.Session, ledger.ErrUnavailable)
}

// move is what the door is asked for.
func (p *planned) move(in *publishIntent) Move {
	m := Move{
		Changes: []Change{{Ref: p.ref, Old: p.head, New: in.m.Commit, Force: true}},
		Pack:    in.m.Pack, Intent: in,
		Pins: []NewPin{{ID: pinID(in.m.Commit), Holder: PinPrefix + in.m.Commit.String(), Commit: in.m.Commit}},
	}
	if p.base != nil {
		m.Leans = []OID{p.base.Commit}
	}
	if p.spec.MoveWorkspace && p.workspace != p.owner.Head {
		m.Changes = append(m.Changes, Change{Ref: p.owner.Ref, Old: p.owner.Head, New: p.workspace})
	}
	return m
}

// whyRefused tells of a move that was refused whether it can be tried anew, because the
// snapshot ref is elsewhere and the save does not mind; else why it was.
func (k *Keeper) whyRefused(ctx context.Context, repo Repo, p *planned, err error) (again bool, why error) {
	if ctx.Err() != nil {
		return false, err
	}
	head, herr := repo.Head(ctx, p.ref)
	if herr != nil {
		return false, err
	}
	if head.Commit != p.head {
		if p.spec.ExpectedHead != nil {
			return false, &MovedError{Ref: p.ref, Expected: p.head, Actual: head.Commit}
		}
		p.head = head.Commit
		return true, err
	}
	if !p.spec.MoveWorkspace {
		return false, err
	}
	if head, herr = repo.Head(ctx, p.owner.Ref); herr == nil && head.Commit != p.owner.Head {
		return false, &MovedError{Ref: p.owner.Ref, Expected: p.owner.Head, Actual: head.Commit}
	}
	return false, err
}

// publishIntent makes a record of a snapshot whose ref moves to it.
type publishIntent struct {
	p    *planned
	m    made
	told Snapshot
}

func (in *publishIntent) fill(ctx context.Context, g *guarding) error {
	p, id := in.p, in.m.Commit.String()
	got, err := g.by.get(ctx, recordKey(p.id), recordKey(id), standingKey(p.spec.Session))
	if err != nil {
		return err
	}
	if err := g.by.known(ctx, p.spec.Once.StoreKey()); err != nil {
		return err
	}
	if err := g.endCapture(p, got[0]); err != nil {
		return err
	}
	before, err := decodeRecord(got[1])
	if err != nil {
		return err
	}
	if before.exists() && before.State != Deleted {
		return &StateError{Commit: in.m.Commit, State: before.State}
	}
	st, err := decodeStanding(p.spec.Session, got[2])
	if err != nil {
		return err
	}
	if err := g.k.room(ctx, g.by, in.m.New); err != nil {
		return err
	}
	g.demandRoom()
	r := in.record(g, st)
	r = g.put(before, r, r.timeUp(Use{}, time.Time{}))
	in.stand(g, st, r)
	g.event(eventReady, r.Session, r.data())
	in.told = r.told(g.q.Repo, life{last: true})
	return ride(g, p.spec.Once, in.told)
}

// endCapture takes the record of a save away that comes to its end. An upload must be
// under way; a save may have been given up meanwhile, and is there all the same.
func (g *guarding) endCapture(p *planned, raw []byte) error {
	got, err := decodeRecord(raw)
	switch {
	case err != nil:
		return err
	case !got.exists() || got.State != Capturing:
		if p.upload {
			return ErrUploadNotFound
		}
		if !got.exists() {
			return nil
		}
	}
	g.a.Rider.Join(remove(got))
	return nil
}

// demandRoom holds the counters to their limits.
func (g *guarding) demandRoom() {
	g.a.Checks = append(g.a.Checks, ledger.AtMost(countKey, int64(g.k.Limits.MaxCount)))
	if g.k.Limits.Quota > 0 {
		g.a.Checks = append(g.a.Checks, ledger.AtMost(bytesKey, g.k.Limits.Quota))
	}
}

// record is what is written of the snapshot.
func (in *publishIntent) record(g *guarding, st storedStanding) record {
	p, m := in.p, &in.m.Manifest
	at := latest(g.q.Now, st.LastAt.Add(time.Microsecond)) // no two at once
	r := record{
		ID: in.m.Commit.String(), Commit: in.m.Commit, Save: p.id, Session: p.spec.Session, Workspace: p.workspace, Parent: p.parent,
		Name: m.Name, State: Ready, Size: m.Size, Stored: m.Stored, New: in.m.New, Zero: m.Zero, Charged: in.m.New,
		Sealed: m.Envelope != nil, Excluded: m.Excluded, Boundary: m.Boundary, Machine: m.Machine,
		CreatedAt: p.at, CreatedBy: g.q.Actor, VerifiedAt: at, UsedAt: at, Idle: *p.spec.IdleTimeout, Unused: p.spec.TTLUnused,
	}
	if len(m.Parts) > 0 {
		r.Kind, r.ChunkBytes = m.Parts[0].Kind, m.Parts[0].ChunkBytes
	}
	r.Root, _ = ParseHash(m.Root) // a manifest that was encoded has a good one
	return r
}

// stand tells the session of its new last snapshot, and lets older ones go if it keeps few.
func (in *publishIntent) stand(g *guarding, st storedStanding, r record) {
	to := st.standing
	to.Last, to.LastAt, to.Broken = r.Commit, r.VerifiedAt, false
	to.Stale, to.Cap, to.Bytes, to.At = false, 0, 0, g.q.Now
	g.keep(r.Session, &to, in.p.spec.KeepLast)
	g.a.Rider.Join(st.put(to))
}

// keep writes down how many snapshots a session keeps, and asks for a look if some may
// go: whoever saved sees to it at once, unless it dies.
func (g *guarding) keep(session string, to *standing, last *int) {
	if last != nil {
		n := *last
		to.Keep = &n
	}
	if g.k.keepLast(*to) == 0 {
		return
	}
	at := g.q.Now.Add(g.k.Limits.ReapEvery)
	g.a.Sets = append(g.a.Sets, ledger.Set{Key: dueKey(at, keepDueID(session))})
	g.due = earliest(g.due, at)
}

// keepLast is how many snapshots a session keeps; 0: all.
func (k *Keeper) keepLast(s standing) int {
	if s.Keep == nil {
		return max(0, k.Limits.KeepLast)
	}
	return *s.Keep
}
