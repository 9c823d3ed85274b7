package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

const (
	reapPage  = 256 // looks that are taken at once
	reapPages = 64  // of one round
	// usePatience is when a snapshot whose time is up, and that is in use, is looked at
	// again at the latest.
	usePatience = time.Minute
)

// Causes of a deletion that nobody asked for.
const (
	causeExpired = "its time was up"
	causeKept    = "the session keeps newer ones"
)

// Reap does one round over one repo: it deletes the snapshots whose time is up, ends
// deletions that a crash left half done, gives up uploads to which nothing was sent,
// removes stages that no upload is for, forgets what ended long ago, and tells when
// the next look is due; zero: never. Every
// batch checks what it was made from, so that any number of nodes may reap at once.
func (k *Keeper) Reap(ctx context.Context, repo RepoID) (next time.Time, err error) {
	now, err := k.now(ctx)
	if err != nil {
		return next, err
	}
	r := &reaping{k: k, id: repo, by: k.reads(repo), now: now}
	for range reapPages {
		full, err := r.page(ctx)
		if err != nil {
			return next, fmt.Errorf("reap snapshots of repo %s: %w", repo.ID, err)
		}
		if !full {
			break
		}
	}
	if err := r.strays(ctx); err != nil {
		return next, fmt.Errorf("remove stages of repo %s: %w", repo.ID, err)
	}
	return r.next(ctx)
}

// reaping is one round over one repo.
type reaping struct {
	k     *Keeper
	id    RepoID
	by    reader
	now   time.Time
	repo  Repo   // opened when it is needed
	after string // key of the last look taken
	left  bool   // something could not be done now
}

// next is when the next look is due. What could not be done now waits a little.
func (r *reaping) next(ctx context.Context) (time.Time, error) {
	items, err := r.by.scan(ctx, dueKeys, "", 1)
	if err != nil || len(items) == 0 {
		return time.Time{}, err
	}
	at, _, ok := parseWhen(strings.TrimPrefix(items[0].Key, dueKeys))
	if !ok {
		return time.Time{}, fmt.Errorf("decode look %q", items[0].Key)
	}
	if r.left {
		at = latest(at, r.now.Add(r.k.Limits.ReapEvery))
	}
	return at, nil
}

// page takes up to reapPage looks, and reports whether there may be more.
func (r *reaping) page(ctx context.Context) (full bool, err error) {
	start := ""
	if r.after != "" {
		start = r.after + "\x00"
	}
	items, err := r.by.scan(ctx, dueKeys, start, reapPage)
	if err != nil || len(items) == 0 {
		return false, err
	}
	if err := r.open(); err != nil {
		return false, err
	}
	for _, it := range items {
		at, id, ok := parseWhen(strings.TrimPrefix(it.Key, dueKeys))
		if !ok {
			return false, fmt.Errorf("decode look %q", it.Key)
		}
		if at.After(r.now) {
			return false, nil
		}
		r.after = it.Key
		if err := r.failed(ctx, id, r.look(ctx, it.Key, id)); err != nil {
			return false, err
		}
	}
	return len(items) == reapPage, nil
}

// open opens the repo when it is first needed.
func (r *reaping) open() (err error) {
	if r.repo == nil {
		r.repo, err = r.k.Repos(r.id, headgate(r.id))
	}
	return err
}

// failed notes that something could not be done now. Only what concerns all is an error
// of the round.
func (r *reaping) failed(ctx context.Context, id string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil || errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, ledger.ErrClosed) || errors.Is(err, ledger.ErrNoSpace) {
		return err
	}
	r.left = true
	r.k.Logger.WarnContext(ctx, "reap snapshot", "repo", r.id.ID, "id", id, "err", err)
	return nil
}

// look does what is due about what stands under one key.
func (r *reaping) look(ctx context.Context, key, id string) error {
	if session, ok := strings.CutPrefix(id, keepDuePrefix); ok {
		return r.lookAtSession(ctx, key, session)
	}
	got, err := r.by.record(ctx, id)
	if err != nil {
		return err
	}
	if !got.exists() || dueKey(got.Due, id) != key {
		return r.k.change(ctx, r.id, headgate(r.id), &strayIntent{key, id})
	}
	switch got.State {
	case Capturing:
		return r.k.change(ctx, r.id, headgate(r.id), &giveUpIntent{id})
	case Deleting:
		return r.k.finish(ctx, r.repo, got.Commit)
	case Deleted:
		return r.forget(ctx, got)
	}
	if got.kept() {
		return r.lookAtKept(ctx, got)
	}
	return r.lookAtFailed(ctx, got)
}

// strayIntent takes a look away that no record knows of.
type strayIntent struct{ key, id string }

func (in *strayIntent) fill(ctx context.Context, g *guarding) error {
	got, err := g.by.record(ctx, in.id)
	if err != nil || got.exists() && dueKey(got.Due, in.id) == in.key {
		return err
	}
	check := ledger.Absent(recordKey(in.id))
	if got.exists() {
		check = ledger.Equal(recordKey(in.id), got.raw)
	}
	g.a.Checks = append(g.a.Checks, check)
	g.a.Deletes = append(g.a.Deletes, in.key)
	return nil
}

// lookAtSession lets those go that a session does not keep. What is in use stays a while.
func (r *reaping) lookAtSession(ctx context.Context, key, session string) error {
	left, err := r.k.pruneIn(ctx, r.repo, session)
	if err != nil {
		return err
	}
	b := ledger.Batch{Space: ledger.RepoSpace(r.id.ID), Deletes: []string{key}}
	if left {
		b.Sets = []ledger.Set{{Key: dueKey(r.now.Add(usePatience), keepDueID(session))}}
	}
	_, err = r.k.Ledger.Apply(ctx, b)
	return err
}

// giveUpIntent fails a save to which nothing was sent for too long.
type giveUpIntent struct{ id string }

func (in *giveUpIntent) fill(ctx context.Context, g *guarding) error {
	got, err := g.by.record(ctx, in.id)
	if err != nil || !got.exists() || got.State != Capturing || g.q.Now.Before(got.Until) {
		return err
	}
	was := got.Upload
	r := got.record
	r.State, r.Reason, r.EndedAt, r.Spec, r.Upload, r.Until = Failed, "nothing was sent for too long", g.q.Now, nil, false, time.Time{}
	due := g.q.Now.Add(g.k.Limits.Memory)
	if r.Stage = was; was {
		due = g.q.Now // its stage goes next
	}
	g.put(got, r, due)
	g.event(eventFailed, r.Session, r.data())
	return nil
}

// lookAtFailed removes the stage of an upload that was given up, and forgets it later.
func (r *reaping) lookAtFailed(ctx context.Context, got stored) error {
	if !got.Stage {
		return r.forget(ctx, got)
	}
	if err := r.repo.RemoveStage(ctx, got.ID); err != nil {
		return err
	}
	return r.k.change(ctx, r.id, headgate(r.id), &rewriteIntent{got, func(rec *record) time.Time {
		rec.Stage = false
		return rec.EndedAt.Add(r.k.Limits.Memory)
	}})
}

// rewriteIntent changes a record that is as it was read, or leaves it alone.
type rewriteIntent struct {
	got  stored
	make func(*record) (due time.Time)
}

func (in *rewriteIntent) fill(ctx context.Context, g *guarding) error {
	now, err := g.by.record(ctx, in.got.ID)
	if err != nil || string(now.raw) != string(in.got.raw) {
		return err
	}
	r := in.got.record
	due := in.make(&r)
	g.put(in.got, r, due)
	return nil
}

// lookAtKept deletes a snapshot whose time is up and that nobody uses.
func (r *reaping) lookAtKept(ctx context.Context, got stored) error {
	lives, err := r.k.lives(ctx, r.repo, []stored{got})
	if err != nil {
		return err
	}
	if got.Broken {
		if err := r.k.retell(ctx, r.id, got.Session); err != nil {
			return err
		}
	}
	l := lives[0]
	up := got.timeUp(l.use, l.ended)
	if up.IsZero() || r.now.Before(up) {
		return r.postpone(ctx, got, up)
	}
	in := &deleteIntent{commit: got.Commit, expire: true, cause: causeExpired}
	if !l.last && len(l.use.Sessions) == 0 {
		_, err := r.k.letGo(ctx, r.repo, in)
		if !stays(err) {
			return err
		}
	}
	return r.postpone(ctx, got, r.now.Add(r.patience(&got.record)))
}

// stays reports whether err says that a snapshot is used by somebody.
func stays(err error) bool {
	var used *InUseError
	return errors.As(err, &used) || errors.Is(err, errNotDue) || errors.Is(err, ErrBase)
}

// patience is when a snapshot in use is looked at again: short times are kept closely.
func (r *reaping) patience(rec *record) time.Duration {
	short := rec.Idle
	if short == 0 || rec.Unused > 0 && rec.Unused < short {
		short = rec.Unused
	}
	return min(usePatience, max(r.k.Limits.ReapEvery, short))
}

func (r *reaping) postpone(ctx context.Context, got stored, to time.Time) error {
	return r.k.change(ctx, r.id, headgate(r.id), &rewriteIntent{got, func(*record) time.Time { return to }})
}

// forget takes away what is left of a snapshot that ended long ago.
func (r *reaping) forget(ctx context.Context, got stored) error {
	if at := got.EndedAt.Add(r.k.Limits.Memory); r.now.Before(at) {
		return r.postpone(ctx, got, at)
	}
	return r.k.change(ctx, r.id, headgate(r.id), &forgetIntent{got})
}

// forgetIntent takes a record away with all that belongs to it.
type forgetIntent struct{ got stored }

func (in *forgetIntent) fill(ctx context.Context, g *guarding) error {
	now, err := g.by.record(ctx, in.got.ID)
	if err != nil || string(now.raw) != string(in.got.raw) {
		return err
	}
	g.a.Rider.Join(remove(in.got))
	if in.got.Commit.IsZero() {
		return nil
	}
	hot, err := g.by.scan(ctx, hotPrefix(in.got.ID), "", MaxParts)
	if err != nil {
		return err
	}
	for _, it := range hot {
		g.a.Deletes = append(g.a.Deletes, it.Key)
	}
	uses, err := g.k.Users.UsesOf(ctx, g.q.Repo, in.got.ID)
	if err != nil {
		return err
	}
	g.a.Deletes = append(g.a.Deletes, uses[0].Keys...)
	return nil
}

// prune lets those snapshots of a session go that it does not keep. What cannot be done
// now the reaper does.
func (k *Keeper) prune(ctx context.Context, repo RepoID, session string) {
	st, err := k.reads(repo).standing(ctx, session)
	if err == nil && k.keepLast(st.standing) == 0 {
		return
	}
	var all Repo
	if err == nil {
		all, err = k.Repos(repo, headgate(repo))
	}
	if err == nil {
		_, err = k.pruneIn(ctx, all, session)
	}
	if err != nil && ctx.Err() == nil {
		k.Logger.WarnContext(ctx, "let older snapshots go", "repo", repo.ID, "session", session, "err", err)
	}
}

// pruneIn lets those snapshots of a session go that it does not keep; left says that some
// are in use.
func (k *Keeper) pruneIn(ctx context.Context, repo Repo, session string) (left bool, err error) {
	by := k.reads(repo.ID())
	st, err := by.standing(ctx, session)
	keep := k.keepLast(st.standing)
	if err != nil || keep == 0 {
		return false, err
	}
	var over []OID
	err = by.kept(ctx, session, func(s stored) (bool, error) {
		if keep == 0 && s.Base == "" {
			over = append(over, s.Commit)
		}
		if keep > 0 && s.State == Ready && s.Base == "" {
			keep--
		}
		return false, nil
	})
	for _, commit := range over {
		if err != nil {
			break
		}
		_, err = k.letGo(ctx, repo, &deleteIntent{commit: commit, cause: causeKept})
		var gone *StateError
		switch {
		case stays(err):
			left, err = true, nil
		case errors.Is(err, ErrNotFound) || errors.As(err, &gone):
			err = nil // another node was there before
		}
	}
	return left, err
}
