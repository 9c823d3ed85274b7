package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"slices"

	"github.com/headgate/headgate/gitstore/ledger"
)

const (
	defaultPage = 20
	maxPage     = 1_000
	maxLineage  = 1_000
)

// visible reports whether the caller may see a snapshot: its session's ref, or the base's.
func visible(repo Repo, r *record) bool {
	return repo.CanRead(r.ref()) || r.Base != "" && repo.CanRead(BasePrefix+r.Base)
}

// seen reads a snapshot that the caller may see: ErrNotFound.
func (k *Keeper) seen(ctx context.Context, by reader, repo Repo, commit OID) (stored, error) {
	got, err := by.record(ctx, commit.String())
	switch {
	case err != nil:
		return got, err
	case !got.exists():
		return got, ErrNotFound
	case visible(repo, &got.record):
		return got, nil
	}
	own, err := k.beginning(ctx, repo, commit)
	if err == nil && !own {
		err = ErrNotFound
	}
	return got, err
}

// beginning reports whether the caller is the sandbox of a live session that was made
// from the snapshot: it has that state, whoever's ref it is on.
func (k *Keeper) beginning(ctx context.Context, repo Repo, commit OID) (bool, error) {
	session := repo.Actor().Session
	if session == "" || !repo.CanRead(RefPrefix+session) {
		return false, nil
	}
	owner, ok, err := k.Users.Session(ctx, repo, session)
	return ok && owner.Live && owner.Fenced == nil && owner.From == commit, err
}

// Get tells a snapshot, deleted ones too for as long as they are remembered: ErrNotFound.
func (k *Keeper) Get(ctx context.Context, repo Repo, commit OID) (Snapshot, error) {
	got, err := k.seen(ctx, k.reads(repo.ID()), repo, commit)
	if err != nil {
		return Snapshot{}, err
	}
	all, err := k.tell(ctx, repo, []stored{got})
	if err != nil {
		return Snapshot{}, err
	}
	return all[0], nil
}

// ready gives a snapshot that the caller may restore or start from: ErrNotFound,
// *DamagedError for one that is known to be broken, *StateError.
func (k *Keeper) ready(ctx context.Context, repo Repo, commit OID) (Snapshot, error) {
	s, err := k.Get(ctx, repo, commit)
	switch {
	case err != nil:
		return s, err
	case s.State == Failed:
		return s, &DamagedError{Commit: commit, What: s.Reason, Err: ErrDamaged}
	case s.State != Ready:
		return s, &StateError{Commit: commit, State: s.State}
	}
	return s, nil
}

// List tells the snapshots of a session, newest first, with saves under way and those
// that failed. Whoever may not read the session's snapshot ref is told of none. Errors:
// ErrInvalid for a cursor of another list.
func (k *Keeper) List(ctx context.Context, repo Repo, session string, limit int, cursor string) ([]Snapshot, string, error) {
	if session == "" || !repo.CanRead(RefPrefix+session) {
		return nil, "", nil
	}
	return k.page(ctx, repo, ofPrefix(session), limit, cursor, func(*record) bool { return true })
}

// Launchable lists bases and ready states that the caller may make a session from, newest
// first; arch narrows it to those that say so, or say nothing. A page may have fewer than
// limit, or none, and still a cursor. Errors: ErrInvalid for a cursor of another list.
func (k *Keeper) Launchable(ctx context.Context, repo Repo, arch string, limit int, cursor string) ([]Snapshot, string, error) {
	return k.page(ctx, repo, launchKeys, limit, cursor, func(r *record) bool {
		have := r.Machine["arch"]
		return visible(repo, r) && (arch == "" || have == "" || have == arch)
	})
}

// page tells up to limit of the snapshots in a list that lets lets through. It looks at
// up to maxPage at once.
func (k *Keeper) page(ctx context.Context, repo Repo, prefix string, limit int, cursor string, lets func(*record) bool) ([]Snapshot, string, error) {
	if limit <= 0 {
		limit = defaultPage
	}
	limit = min(limit, maxPage)
	after, err := parseCursor(cursor, prefix)
	if err != nil {
		return nil, "", err
	}
	start := ""
	if after != "" {
		start = prefix + after + "\x00"
	}
	by := k.reads(repo.ID())
	items, err := by.scan(ctx, prefix, start, maxPage)
	if err != nil {
		return nil, "", err
	}
	found, looked, err := by.pick(ctx, prefix, items, limit, lets)
	if err != nil {
		return nil, "", err
	}
	next := ""
	if looked < len(items) || len(items) == maxPage {
		next = makeCursor(items[looked-1].Key[len(prefix):], prefix)
	}
	told, err := k.tell(ctx, repo, found)
	return told, next, err
}

// pick takes up to limit of the snapshots that places name and lets lets through, and
// tells how many it looked at.
func (r reader) pick(ctx context.Context, prefix string, items []ledger.Item, limit int, lets func(*record) bool) (found []stored, looked int, err error) {
	for looked < len(items) {
		block := items[looked:min(len(items), looked+keptPage)]
		all, err := r.records(ctx, idsOf(prefix, block))
		if err != nil {
			return nil, 0, err
		}
		for i := range all {
			if len(found) == limit {
				return found, looked, nil
			}
			looked++
			if all[i].exists() && lets(&all[i].record) {
				found = append(found, all[i])
			}
		}
	}
	return found, looked, nil
}

// Lineage gives the snapshots that one came from, nearest first, and those that came of
// it, nearest first as well: 1,000 of each at most, of those that the caller may see and
// that are remembered. ErrNotFound.
func (k *Keeper) Lineage(ctx context.Context, repo Repo, commit OID) (before, after []Snapshot, err error) {
	by := k.reads(repo.ID())
	got, err := k.seen(ctx, by, repo, commit)
	if err != nil {
		return nil, nil, err
	}
	older, err := k.ancestors(ctx, by, repo, got)
	if err != nil {
		return nil, nil, err
	}
	younger, err := k.descendants(ctx, by, repo, got)
	if err != nil {
		return nil, nil, err
	}
	if before, err = k.tell(ctx, repo, older); err != nil {
		return nil, nil, err
	}
	after, err = k.tell(ctx, repo, younger)
	return before, after, err
}

func (k *Keeper) ancestors(ctx context.Context, by reader, repo Repo, of stored) (all []stored, err error) {
	seen := map[OID]bool{of.Commit: true}
	for at := of; !at.Parent.IsZero() && !seen[at.Parent] && len(all) < maxLineage; {
		seen[at.Parent] = true
		if at, err = by.record(ctx, at.Parent.String()); err != nil || !at.exists() {
			return all, err
		}
		if visible(repo, &at.record) {
			all = append(all, at)
		}
	}
	return all, nil
}

func (k *Keeper) descendants(ctx context.Context, by reader, repo Repo, of stored) (all []stored, err error) {
	seen := map[string]bool{of.ID: true}
	for todo := []string{of.ID}; len(todo) > 0 && len(all) < maxLineage; todo = todo[1:] {
		prefix := childPrefix(todo[0])
		items, err := by.scan(ctx, prefix, "", maxLineage)
		if err != nil {
			return nil, err
		}
		ids := slices.DeleteFunc(idsOf(prefix, items), func(id string) bool { return seen[id] })
		found, err := by.records(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			if !s.exists() {
				continue
			}
			seen[s.ID] = true
			todo = append(todo, s.ID)
			if visible(repo, &s.record) && len(all) < maxLineage {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// A cursor is where a page ended, and of which list:
//
//	cursor = base64url( %x01 list place )
//	list   = 8 bytes of SHA-256 of the list's prefix
//	place  = when (8 bytes, newest first) id
const (
	cursorVersion = 1
	cursorList    = 8
	maxCursor     = 512
)

func makeCursor(place, prefix string) string {
	sum := sha256.Sum256([]byte(prefix))
	b := append([]byte{cursorVersion}, sum[:cursorList]...)
	return base64.RawURLEncoding.EncodeToString(append(b, place...))
}

// parseCursor gives the place that a cursor of this list names; "" for none.
func parseCursor(cursor, prefix string) (place string, err error) {
	if cursor == "" {
		return "", nil
	}
	sum := sha256.Sum256([]byte(prefix))
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(cursor) > maxCursor || len(b) <= 1+cursorList+8 || b[0] != cursorVersion || string(b[1:1+cursorList]) != string(sum[:cursorList]) {
		return "", invalidf("cursor is not of this list")
	}
	return string(b[1+cursorList:]), nil
}
