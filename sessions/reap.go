package sessions

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
	reapMove  = 32  // branches that go in one batch
	reapPages = 64  // of one round
	// childPatience is when a session with live children is looked at again at the
	// latest; the end of a child asks for it earlier.
	childPatience = time.Hour
	// pinPatience is when a session whose head is pinned is looked at again.
	pinPatience = time.Minute
)

// errNotDue: what was to be reaped is used again, or gone.
var errNotDue = errors.New("session does not end now")

// Reap does one round over one repo: it ends the sessions whose time is up, forgets
// those that ended long ago, lets go of what groups keep, and tells when the next
// look is due; zero: never. What is held, has live children or a pinned head stays.
// Every batch checks the record it was made from, so that any number of nodes may
// reap at once.
func (k *Keeper) Reap(ctx context.Context, repo Repo) (next time.Time, err error) {
	now, err := k.Ledger.Now(ctx)
	if err != nil {
		return next, fmt.Errorf("read the ledger's clock: %w", err)
	}
	r := &reaping{k: k, repo: repo, now: now}
	for range reapPages {
		full, err := r.page(ctx)
		if err != nil {
			return next, fmt.Errorf("reap sessions of repo %s: %w", repo.ID, err)
		}
		if !full {
			break
		}
	}
	tokens, err := k.sweepTokens(ctx, repo, now)
	if err != nil {
		return next, err
	}
	next, err = r.next(ctx)
	return earliest(next, tokens), err
}

// reaping is one round over one repo.
type reaping struct {
	k     *Keeper
	repo  Repo
	now   time.Time
	door  Door   // opened when it is needed
	after string // key of the last look taken
	left  bool   // something could not be done now
}

func (r *reaping) actor() Actor { return Actor{Org: r.repo.Org, Subject: "headgate"} }

// until is the first key of looks that are not due.
func (r *reaping) until() string { return dueKeys + whenBytes(r.now.Add(time.Microsecond)) }

// next is when the next look is due. What could not be done now waits a little.
func (r *reaping) next(ctx context.Context) (time.Time, error) {
	v, err := r.k.Ledger.Read(ctx, ledger.RepoSpace(r.repo.ID))
	if err != nil {
		return time.Time{}, fmt.Errorf("read looks: %w", err)
	}
	defer v.Close()
	items, err := v.Scan(ctx, dueKeys, dueKeys, 1)
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

// A dueLook is one key among the looks, with what it is about.
type dueLook struct {
	key string
	at  time.Time
	id  string
	reading
	head  Head
	stray bool // it is not the one that the record knows
}

// page takes up to reapPage looks, and reports whether there may be more.
func (r *reaping) page(ctx context.Context) (full bool, err error) {
	v, err := r.k.Ledger.Read(ctx, ledger.RepoSpace(r.repo.ID))
	if err != nil {
		return false, fmt.Errorf("read looks: %w", err)
	}
	defer v.Close()
	items, err := v.Range(ctx, max(dueKeys, r.after+"\x00"), r.until(), reapPage)
	if err != nil || len(items) == 0 {
		return false, err
	}
	r.after = items[len(items)-1].Key
	if r.door == nil {
		if r.door, err = r.k.Doors(r.repo, r.actor()); err != nil {
			return false, err
		}
	}
	looks, groups, err := r.sort(ctx, v, items)
	if err != nil {
		return false, err
	}
	for _, l := range groups {
		if err := r.group(ctx, l); err != nil {
			return false, err
		}
	}
	return len(items) == reapPage, r.sessions(ctx, looks)
}

// sort takes looks apart into those at sessions, read, and those at groups.
func (r *reaping) sort(ctx context.Context, v ledger.View, items []ledger.Item) (looks, groups []dueLook, err error) {
	var ids []string
	for _, it := range items {
		at, id, ok := parseWhen(strings.TrimPrefix(it.Key, dueKeys))
		if !ok {
			return nil, nil, fmt.Errorf("decode look %q", it.Key)
		}
		l := dueLook{key: it.Key, at: at, id: id}
		if group, ok := strings.CutPrefix(id, groupDuePrefix); ok {
			l.id = group
			groups = append(groups, l)
			continue
		}
		looks, ids = append(looks, l), append(ids, id)
	}
	all, err := readMany(ctx, v, ids)
	if err != nil {
		return nil, nil, err
	}
	heads, err := headsOf(ctx, r.door, all)
	if err != nil {
		return nil, nil, err
	}
	for i := range looks {
		looks[i].reading, looks[i].head = all[i], heads[i]
		looks[i].stray = !all[i].exists() || !all[i].Due.Equal(looks[i].at)
	}
	return looks, groups, nil
}

// group lets the group see to what is due, and puts the next look in place.
func (r *reaping) group(ctx context.Context, l dueLook) error {
	next, err := r.k.groupDue(ctx, r.repo, r.door, l.id, r.now)
	if err != nil {
		return r.failed(ctx, "group", l.id, err)
	}
	b := ledger.Batch{Space: ledger.RepoSpace(r.repo.ID), Deletes: []string{l.key}}
	if key := dueKey(next, groupDueID(l.id)); !next.IsZero() && key != l.key {
		b.Sets = []ledger.Set{{Key: key}}
	}
	if _, err := r.k.Ledger.Apply(ctx, b); err != nil {
		return fmt.Errorf("move look at group %s: %w", l.id, err)
	}
	return nil
}

// sessions judges sessions and does what each needs.
func (r *reaping) sessions(ctx context.Context, looks []dueLook) error {
	var ends []dueLook
	seen := map[string]bool{}
	for _, l := range looks {
		if seen[l.id] {
			l.stray = true // another look at it is in this page, and sees the same
		}
		var err error
		switch at, due, jerr := r.judge(ctx, l); {
		case jerr != nil:
			return jerr
		case !l.exists() || seen[l.id]:
			err = r.forgetLook(ctx, l)
		case !due:
			err = r.postpone(ctx, l, at)
		case !l.live():
			err = r.forget(ctx, l)
		case l.head.SHA == "":
			err = r.endLost(ctx, l)
		default:
			ends = append(ends, l)
		}
		seen[l.id] = true
		if err != nil {
			return err
		}
	}
	for len(ends) > 0 {
		n := min(len(ends), reapMove)
		if err := r.end(ctx, ends[:n]); err != nil {
			return err
		}
		ends = ends[n:]
	}
	return nil
}

// judge tells whether a session's time has come, or when to look again; zero: never.
func (r *reaping) judge(ctx context.Context, l dueLook) (at time.Time, due bool, err error) {
	switch {
	case !l.exists():
		return at, false, nil
	case !l.live():
		at = l.EndedAt.Add(r.k.Limits.EndedMemory)
		return at, !r.now.Before(at), nil
	}
	at = l.endsAt(l.base, l.head.At, l.freed)
	if at.IsZero() || r.now.Before(at) {
		return at, false, nil
	}
	children, err := r.k.reads(r.repo).children(ctx, l.record, 1)
	if err != nil {
		return at, false, err
	}
	if len(children) > 0 {
		return r.now.Add(childPatience), false, nil
	}
	if l.head.SHA == "" {
		return at, true, nil
	}
	pinned, err := r.door.Pinned(ctx, l.head.SHA)
	if pinned {
		return r.now.Add(pinPatience), false, err
	}
	return at, true, err
}

// failed notes that something could not be done now. Only what concerns all is an
// error of the round.
func (r *reaping) failed(ctx context.Context, what, id string, err error) error {
	if ctx.Err() != nil || errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, ledger.ErrClosed) || errors.Is(err, ledger.ErrNoSpace) {
		return err
	}
	r.left = true
	if !errors.Is(err, errNotDue) {
		r.k.Logger.WarnContext(ctx, "reap "+what, "repo", r.repo.ID, "id", id, "err", err)
	}
	return nil
}
