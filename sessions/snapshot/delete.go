package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// deleteTries is how often a deletion is made anew while the session's snapshots change.
const deleteTries = 64

// pinnedHolder stands among holders for pins that are not ours.
const pinnedHolder = "pin"

var (
	// errRaced: what a change was made from has changed meanwhile.
	errRaced = errors.New("snapshots have changed meanwhile")
	// errNotDue: what was to be let go of is used again, or gone.
	errNotDue = errors.New("snapshot does not end now")
)

// Delete deletes a snapshot that nobody uses, and tells what that frees. Who created it,
// or its session, may do that, and an admin. One that was its session's last makes the
// newest usable one before it the last. Errors: ErrNotFound, ErrBase, *StateError,
// ErrNotCreator, *InUseError, *ledger.RepeatedError, sessions' and the Move's.
func (k *Keeper) Delete(ctx context.Context, repo Repo, commit OID, dryRun, admin bool, once *ledger.Once[Deletion]) (Deletion, error) {
	by := k.reads(repo.ID())
	if err := by.known(ctx, once.StoreKey()); err != nil {
		return Deletion{}, err
	}
	got, err := k.seen(ctx, by, repo, commit)
	switch {
	case err != nil:
		return Deletion{}, err
	case got.Base != "":
		return Deletion{}, ErrBase
	}
	if err := k.mayDelete(ctx, repo, got, admin); err != nil {
		return Deletion{}, err
	}
	return k.letGo(ctx, repo, &deleteIntent{commit: commit, dryRun: dryRun, once: once})
}

// mayDelete is nil for whoever created the snapshot, or its session, and an admin.
func (k *Keeper) mayDelete(ctx context.Context, repo Repo, got stored, admin bool) error {
	owner, ok, err := k.Users.Session(ctx, repo, got.Session)
	if err != nil {
		return err
	}
	by := repo.Actor()
	if by.Session != "" {
		if !ok {
			return ErrNotCreator
		}
		if owner.Fenced != nil {
			return owner.Fenced
		}
	}
	if admin {
		return nil
	}
	if !got.created(by) && (!ok || !owner.Mine) {
		return ErrNotCreator
	}
	return repo.MayWrite(got.ref())
}

// created reports whether by is who created the snapshot: the same subject with the same
// key, or the same token.
func (r *record) created(by Actor) bool {
	c := r.CreatedBy
	if c.Org != by.Org {
		return false
	}
	if by.TokenID != "" && c.TokenID == by.TokenID {
		return true
	}
	return (by.Subject != "" || by.KeyID != "") && c.Subject == by.Subject && c.KeyID == by.KeyID
}

// letGo deletes a snapshot. First it is deleting, in one batch with its ref; then its pin
// goes; then it is deleted. The reaper ends what a crash has left half done.
func (k *Keeper) letGo(ctx context.Context, repo Repo, in *deleteIntent) (Deletion, error) {
	for range deleteTries {
		err := k.letGoOnce(ctx, repo, in)
		if err == nil {
			return k.finished(ctx, repo, in), nil
		}
		if again := k.reads(repo.ID()).known(ctx, in.once.StoreKey()); again != nil {
			return Deletion{}, again
		}
		if !errors.Is(err, errRaced) && !in.moved(ctx, repo) {
			return Deletion{}, err
		}
	}
	return Deletion{}, fmt.Errorf("delete snapshot %s: %w: its session's snapshots keep changing", in.commit, ledger.ErrUnavailable)
}

// finished ends the deletion, or leaves that to the reaper: it cannot be taken back.
func (k *Keeper) finished(ctx context.Context, repo Repo, in *deleteIntent) Deletion {
	if in.dryRun {
		return in.done
	}
	if err := k.finish(ctx, repo, in.commit); err != nil {
		in.done.Snapshot.State = Deleting
		k.trouble(ctx, "end the deletion of a snapshot", err)
	}
	return in.done
}

func (k *Keeper) letGoOnce(ctx context.Context, repo Repo, in *deleteIntent) error {
	by := k.reads(repo.ID())
	got, err := by.record(ctx, in.commit.String())
	if err != nil {
		return err
	}
	if !got.exists() {
		return ErrNotFound
	}
	if !got.kept() {
		return &StateError{Commit: in.commit, State: got.State}
	}
	if err := k.inUse(ctx, repo, in.commit); err != nil {
		return err
	}
	if in.freed, err = k.freed(ctx, repo, got); err != nil {
		return err
	}
	owner, _, err := k.Users.Session(ctx, repo, got.Session)
	if err != nil {
		return err
	}
	in.live, in.ended, in.ref = owner.Live, owner.EndedAt, got.ref()
	if in.dryRun {
		in.done = Deletion{Snapshot: got.told(repo.ID(), life{}), Freed: in.freed}
		return nil
	}
	head, err := repo.Head(ctx, in.ref)
	if err != nil {
		return err
	}
	if in.moves = head.Commit == in.commit; !in.moves {
		return k.change(ctx, repo.ID(), repo.Actor(), in)
	}
	next, err := by.newest(ctx, got.Session, in.commit)
	if err != nil {
		return err
	}
	in.next = next.Commit
	return repo.Move(ctx, Move{Changes: []Change{{Ref: in.ref, Old: in.commit, New: in.next, Force: true}}, Intent: in})
}

// inUse is an *InUseError for a snapshot that somebody uses.
func (k *Keeper) inUse(ctx context.Context, repo Repo, commit OID) error {
	uses, err := k.Users.UsesOf(ctx, repo.ID(), commit.String())
	if err != nil {
		return err
	}
	holders := append([]string(nil), uses[0].Sessions...)
	pinned, err := repo.Pinned(ctx, commit)
	if err != nil {
		return err
	}
	if pinned {
		holders = append(holders, pinnedHolder)
	}
	if len(holders) > 0 {
		return &InUseError{Commit: commit, Holders: holders}
	}
	return nil
}

// deleteIntent makes a snapshot deleting, with its ref if that is where it is.
type deleteIntent struct {
	commit OID
	dryRun bool
	expire bool   // only if its time is up
	cause  string // empty: it was asked for
	once   *ledger.Once[Deletion]

	ref   string
	moves bool // the ref goes from commit to next
	next  OID
	live  bool      // its session
	ended time.Time // when that did
	freed int64
	done  Deletion
}

// AnyState lets it pass whatever the session's state is: it takes something away.
func (in *deleteIntent) AnyState() bool { return true }

// moved reports whether the ref is not any more where it was.
func (in *deleteIntent) moved(ctx context.Context, repo Repo) bool {
	if ctx.Err() != nil || in.ref == "" || in.dryRun {
		return false
	}
	head, err := repo.Head(ctx, in.ref)
	return err == nil && (head.Commit == in.commit) != in.moves
}

func (in *deleteIntent) fill(ctx context.Context, g *guarding) error {
	if err := g.by.known(ctx, in.once.StoreKey()); err != nil {
		return err
	}
	got, err := g.by.record(ctx, in.commit.String())
	switch {
	case err != nil:
		return err
	case !got.kept():
		return &StateError{Commit: in.commit, State: got.State}
	case got.Base != "":
		return ErrBase
	}
	st, err := g.by.standing(ctx, got.Session)
	if err != nil {
		return err
	}
	if (st.Last == in.commit) != in.moves {
		return errRaced
	}
	if err := in.unused(ctx, g, got); err != nil {
		return err
	}
	if err := in.stand(ctx, g, st, got); err != nil {
		return err
	}
	r := got.record
	r.State, r.EndedAt, r.Charged = Deleting, g.q.Now, 0
	if r.Reason == "" {
		r.Reason = in.cause
	}
	g.put(got, r, g.q.Now.Add(g.k.Limits.ReapEvery))
	data := r.data()
	data.Freed = in.freed
	g.event(eventDeleted, r.Session, data)
	in.done = Deletion{Snapshot: r.told(g.q.Repo, life{}), Freed: in.freed}
	in.done.Snapshot.State = Deleted // when it is told
	return ride(g, in.once, in.done)
}

// unused demands that nobody uses the snapshot by now, and of one that expires that its
// time is up.
func (in *deleteIntent) unused(ctx context.Context, g *guarding, got stored) error {
	uses, err := g.k.Users.UsesOf(ctx, g.q.Repo, in.commit.String())
	if err != nil {
		return err
	}
	if use := uses[0]; len(use.Sessions) > 0 {
		return &InUseError{Commit: in.commit, Holders: use.Sessions}
	}
	g.a.Checks = append(g.a.Checks, uses[0].Nobody...)
	if !in.expire {
		return nil
	}
	if in.moves && in.live {
		return errNotDue
	}
	var ended time.Time
	if in.moves {
		ended = in.ended
	}
	if at := got.timeUp(uses[0], ended); at.IsZero() || g.q.Now.Before(at) {
		return errNotDue
	}
	return nil
}

// stand gives the session its new last snapshot, and what others of it share with this
// one to the newest of them.
func (in *deleteIntent) stand(ctx context.Context, g *guarding, st storedStanding, got stored) error {
	heir, err := g.by.newest(ctx, got.Session, in.commit)
	if err != nil {
		return err
	}
	if in.moves {
		if heir.Commit != in.next {
			return errRaced
		}
		to := st.standing
		to.Last, to.Broken = in.next, false
		if to.Last.IsZero() && !in.live {
			g.a.Checks = append(g.a.Checks, st.check())
			g.a.Deletes = append(g.a.Deletes, standingKey(got.Session))
		} else {
			g.a.Rider.Join(st.put(to))
		}
	} else {
		g.a.Checks = append(g.a.Checks, st.check())
	}
	if !heir.exists() {
		return nil
	}
	shared := max(0, got.Charged-in.freed)
	if shared == 0 {
		g.a.Checks = append(g.a.Checks, ledger.Equal(recordKey(heir.ID), heir.raw))
		return nil
	}
	r := heir.record
	r.Charged += shared
	g.put(heir, r, r.Due)
	return nil
}

// finish ends a deletion: the pin goes, the session is told, the record says so.
func (k *Keeper) finish(ctx context.Context, repo Repo, commit OID) error {
	got, err := k.reads(repo.ID()).record(ctx, commit.String())
	if err != nil || got.State != Deleting {
		return err
	}
	if err := repo.Unpin(ctx, pinID(commit)); err != nil {
		return fmt.Errorf("let go of snapshot %s: %w", commit, err)
	}
	if got.Broken {
		if err := k.retell(ctx, repo.ID(), got.Session); err != nil {
			return err
		}
	}
	return k.change(ctx, repo.ID(), headgate(repo.ID()), &finishIntent{commit})
}

// finishIntent makes a snapshot deleted that is deleting.
type finishIntent struct{ commit OID }

func (in *finishIntent) fill(ctx context.Context, g *guarding) error {
	got, err := g.by.record(ctx, in.commit.String())
	if err != nil || got.State != Deleting {
		return err
	}
	r := got.record
	r.State = Deleted
	g.put(got, r, r.EndedAt.Add(g.k.Limits.Memory))
	return nil
}
