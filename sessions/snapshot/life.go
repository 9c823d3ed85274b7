package snapshot

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// A life is what a snapshot's end depends on besides its record.
type life struct {
	use   Use
	last  bool      // of a session that is live
	ended time.Time // when the session ended whose last it is
}

// timeUp is when the snapshot's time is up, whoever uses it then; zero: never. It may be
// idle (since it was saved, or a session was made from it), or unused (since, besides,
// the last session made from it ended). Being the last of its session is use.
func (r *record) timeUp(use Use, ended time.Time) (at time.Time) {
	if !r.kept() || r.Base != "" {
		return at
	}
	used := latest(r.UsedAt, use.Started, ended)
	if r.Idle > 0 {
		at = earliest(at, used.Add(r.Idle))
	}
	if r.Unused > 0 {
		at = earliest(at, latest(used, use.Freed).Add(r.Unused))
	}
	return at
}

// endsAt is when it ends if nothing happens until then; zero: never. Whoever is in use,
// a base, or the last of a live session, stays.
func (r *record) endsAt(l life) time.Time {
	if l.last || len(l.use.Sessions) > 0 {
		return time.Time{}
	}
	return r.timeUp(l.use, l.ended)
}

// told is the snapshot as it is told.
func (r *record) told(repo RepoID, l life) Snapshot {
	s := Snapshot{
		Commit: r.Commit, Upload: r.Save, Repo: repo, Session: r.Session, Workspace: r.Workspace, Name: r.Name, Kind: r.Kind,
		State: r.State, Reason: r.Reason, Size: r.Size, Stored: r.Stored, New: r.New, Zero: r.Zero, ChunkBytes: r.ChunkBytes,
		Root: r.Root, VerifiedAt: r.VerifiedAt, Usable: r.State == Ready, Sealed: r.Sealed, Excluded: slices.Clone(r.Excluded),
		Boundary: r.Boundary, Machine: r.Machine, Parent: r.Parent, Children: slices.Clone(l.use.Sessions),
		CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy, UsedAt: latest(r.UsedAt, l.use.Started),
		IdleTimeout: r.Idle, TTLUnused: r.Unused, EndsAt: r.endsAt(l), Base: r.Base,
	}
	if r.State == Capturing {
		s.EndsAt = r.Until
	}
	return s
}

// tell tells snapshots, with how they are used.
func (k *Keeper) tell(ctx context.Context, repo Repo, all []stored) ([]Snapshot, error) {
	lives, err := k.lives(ctx, repo, all)
	if err != nil {
		return nil, err
	}
	told := make([]Snapshot, len(all))
	for i := range all {
		told[i] = all[i].told(repo.ID(), lives[i])
	}
	return told, nil
}

// lives tells what the ends of snapshots depend on, by place.
func (k *Keeper) lives(ctx context.Context, repo Repo, all []stored) ([]life, error) {
	lives := make([]life, len(all))
	var kept []int
	var ids []string
	for i := range all {
		if all[i].kept() {
			kept, ids = append(kept, i), append(ids, all[i].ID)
		}
	}
	if len(kept) == 0 {
		return lives, nil
	}
	uses, err := k.Users.UsesOf(ctx, repo.ID(), ids...)
	if err != nil {
		return nil, err
	}
	lasts, err := k.lasts(ctx, repo, all, kept)
	if err != nil {
		return nil, err
	}
	for n, i := range kept {
		lives[i].use = uses[n]
		if owner, ok := lasts[all[i].Commit]; ok {
			lives[i].last, lives[i].ended = owner.Live, owner.EndedAt
		}
	}
	return lives, nil
}

// lasts gives the sessions of those snapshots that are the last of theirs, by commit.
func (k *Keeper) lasts(ctx context.Context, repo Repo, all []stored, kept []int) (map[OID]Owner, error) {
	var sessions, keys []string
	for _, i := range kept {
		if s := all[i].Session; !slices.Contains(sessions, s) {
			sessions, keys = append(sessions, s), append(keys, standingKey(s))
		}
	}
	got, err := k.reads(repo.ID()).get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	lasts := map[OID]Owner{}
	for i, session := range sessions {
		st, err := decodeStanding(session, got[i])
		if err != nil {
			return nil, err
		}
		if st.Last.IsZero() || !slices.ContainsFunc(kept, func(n int) bool { return all[n].Commit == st.Last }) {
			continue
		}
		owner, ok, err := k.Users.Session(ctx, repo, session)
		if err != nil {
			return nil, err
		}
		if ok {
			lasts[st.Last] = owner
		}
	}
	return lasts, nil
}

// Standing tells how sessions stand with their saves, in their order.
func (k *Keeper) Standing(ctx context.Context, repo RepoID, sessions ...string) ([]Standing, error) {
	all := make([]Standing, len(sessions))
	keys := make([]string, len(sessions))
	for i, id := range sessions {
		keys[i] = standingKey(id)
	}
	if len(keys) == 0 {
		return all, nil
	}
	got, err := k.reads(repo).get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	for i, id := range sessions {
		st, err := decodeStanding(id, got[i])
		if err != nil {
			return nil, err
		}
		all[i] = Standing{Last: st.Last, Usable: !st.Broken, Stale: st.Stale, Cap: st.Cap, Bytes: st.Bytes, At: st.At}
	}
	return all, nil
}

// HotOrder keeps which chunks a restore touched first, by number in the part; an empty name is the first
// one's. Errors: ErrInvalid, *FieldError, ErrNotFound, *StateError.
func (k *Keeper) HotOrder(ctx context.Context, repo Repo, commit OID, part string, chunks []int) error {
	if part != "" && !goodName(part) {
		return invalidf("part %q", part)
	}
	order, err := encodeHot(chunks)
	if err != nil {
		return err
	}
	if _, err := k.ready(ctx, repo, commit); err != nil {
		return err
	}
	m, _, err := manifestOf(ctx, repo, commit)
	if err != nil {
		return err
	}
	if part, err = hotPart(m, part, chunks); err != nil {
		return err
	}
	b := ledger.Batch{
		Space:  ledger.RepoSpace(repo.ID().ID),
		Checks: []ledger.Check{ledger.Equal(readyKey(commit.String()), readyValue)},
		Sets:   []ledger.Set{{Key: hotPrefix(commit.String()) + part, Value: order}},
	}
	if _, err = k.Ledger.Apply(ctx, b); isCheck(err) {
		_, err = k.ready(ctx, repo, commit)
	}
	return err
}

// hotOrder gives the chunks that a restore touched first, by number in the part; nil: not known.
func (k *Keeper) hotOrder(ctx context.Context, repo RepoID, commit OID, part string) ([]int, error) {
	got, err := k.reads(repo).get(ctx, hotPrefix(commit.String())+part)
	if err != nil || got[0] == nil {
		return nil, err
	}
	return decodeHot(got[0])
}
