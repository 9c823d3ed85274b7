package sessions

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

const (
	defaultPage = 20
	maxPage     = 1_000
	// listReads bounds how many sessions one page looks at. A page that has found
	// too few by then has a cursor that goes on.
	listReads = 2_000
	maxChunk  = 512 // read at once
)

// List gives one page of the sessions that the caller may see and the filter lets
// through, newest first; ended ones too, for as long as they are remembered. A page
// may have fewer than limit, or none, and still a cursor that goes on. What is
// created meanwhile moves nothing. Errors: ErrInvalid, ErrBadCursor.
func (k *Keeper) List(ctx context.Context, repo Repo, door Door, f Filter, cursor string, limit int) (Page, error) {
	if limit <= 0 {
		limit = defaultPage
	}
	if err := f.validate(); err != nil {
		return Page{}, err
	}
	l := &listing{door: door, filter: f, prefix: f.prefix(), limit: min(limit, maxPage), reads: listReads}
	var err error
	if l.after, err = parseCursor(cursor, repo, f); err != nil {
		return Page{}, err
	}
	if l.now, err = k.Ledger.Now(ctx); err != nil {
		return Page{}, fmt.Errorf("read the ledger's clock: %w", err)
	}
	v, err := k.Ledger.Read(ctx, ledger.RepoSpace(repo.ID))
	if err != nil {
		return Page{}, fmt.Errorf("list sessions: %w", err)
	}
	defer v.Close()
	more, err := l.collect(ctx, v)
	if err != nil {
		return Page{}, fmt.Errorf("list sessions: %w", err)
	}
	page := Page{}
	if more {
		page.Next = makeCursor(l.after, repo, f)
	}
	page.Sessions, err = l.tell(ctx, repo, v)
	return page, err
}

func (f Filter) validate() error {
	switch f.State {
	case "", Active, Stopping, Stopped, Paused, Leaving, ViewOnly, Ended:
	default:
		return invalidf("a session knows no state %q", f.State)
	}
	if f.LabelKey != "" || f.LabelVal != "" {
		if err := validLabels(map[string]string{f.LabelKey: f.LabelVal}); err != nil {
			return err
		}
	}
	if f.Holder != "" {
		if err := validHolder(f.Holder); err != nil {
			return err
		}
	}
	if f.ParentID != "" {
		return validID(f.ParentID)
	}
	return nil
}

// prefix is the list that a filter leaves the fewest of.
func (f Filter) prefix() string {
	switch {
	case f.ParentID != "":
		return byParent(f.ParentID)
	case f.Holder != "":
		return byHolder(f.Holder)
	case f.LabelKey != "":
		return byLabel(f.LabelKey, f.LabelVal)
	case f.State != "":
		return byState(f.State)
	}
	return byAll()
}

func (f Filter) lets(r record, base epochBase, now time.Time) bool {
	if f.State != "" && r.State != f.State || f.ParentID != "" && r.Parent != f.ParentID {
		return false
	}
	if f.LabelKey != "" {
		if val, ok := r.Labels[f.LabelKey]; !ok || val != f.LabelVal {
			return false
		}
	}
	if f.Holder == "" {
		return true
	}
	lease := r.leaseAt(now, base)
	return lease != nil && lease.Holder == f.Holder
}

// A listing is one page in the making.
type listing struct {
	door   Door
	filter Filter
	prefix string
	limit  int
	reads  int // how many sessions it looks at
	now    time.Time
	after  string // place of the last session that was looked at
	found  []reading
}

// collect looks at sessions behind after until the page is full or enough were
// looked at, and reports whether there are more.
func (l *listing) collect(ctx context.Context, v ledger.View) (more bool, err error) {
	chunk := l.limit + 1
	for looked := 0; looked < l.reads; {
		chunk = min(chunk, maxChunk)
		start := ""
		if l.after != "" {
			start = l.prefix + l.after + "\x00"
		}
		items, err := v.Scan(ctx, l.prefix, start, chunk)
		if err != nil || len(items) == 0 {
			return false, err
		}
		all, err := readAll(ctx, v, l.prefix, items)
		if err != nil {
			return false, err
		}
		for i, got := range all {
			if len(l.found) == l.limit {
				return true, nil
			}
			l.after = items[i].Key[len(l.prefix):]
			if got.exists() && l.filter.lets(got.record, got.base, l.now) && l.door.CanRead(got.ref()) {
				l.found = append(l.found, got)
			}
		}
		if len(items) < chunk {
			return false, nil
		}
		looked += len(items)
		chunk *= 2
	}
	return true, nil
}

// readAll reads the sessions that places in a list name.
func readAll(ctx context.Context, v ledger.View, prefix string, items []ledger.Item) ([]reading, error) {
	ids := make([]string, len(items))
	for i, it := range items {
		_, id, ok := parseWhen(it.Key[len(prefix):])
		if !ok {
			return nil, fmt.Errorf("decode place %q in a list", it.Key)
		}
		ids[i] = id
	}
	return readMany(ctx, v, ids)
}

// readMany reads sessions with what belongs to them. They are of one moment; when the
// last child of one ended may be of a later one.
func readMany(ctx context.Context, v ledger.View, ids []string) ([]reading, error) {
	keys := append(make([]string, 0, 1+len(ids)), baseKey)
	for _, id := range ids {
		keys = append(keys, sessionKey(id))
	}
	got, err := v.GetMany(ctx, keys...)
	if err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	base, err := decodeBase(got[0])
	if err != nil {
		return nil, err
	}
	all := make([]reading, len(ids))
	for i := range all {
		if all[i], err = decodeReading(base, got[1+i], nil); err != nil {
			return nil, err
		}
	}
	return all, readFreed(ctx, v, all)
}

// readFreed reads when the last children ended of those sessions that had any: most have
// none, and to find nothing costs as much as to find something.
func readFreed(ctx context.Context, v ledger.View, all []reading) error {
	var keys []string
	var of []*reading
	for i := range all {
		if all[i].Bore {
			keys, of = append(keys, freedKey(all[i].ID)), append(of, &all[i])
		}
	}
	if len(keys) == 0 {
		return nil
	}
	got, err := v.GetMany(ctx, keys...)
	if err != nil {
		return fmt.Errorf("read sessions: %w", err)
	}
	for i, raw := range got {
		if of[i].freed, err = decodeFreed(of[i].ID, raw); err != nil {
			return err
		}
	}
	return nil
}

// tell tells the sessions of a page.
func (l *listing) tell(ctx context.Context, repo Repo, v ledger.View) ([]Session, error) {
	heads, err := headsOf(ctx, l.door, l.found)
	if err != nil {
		return nil, err
	}
	told := make([]Session, len(l.found))
	for i, got := range l.found {
		told[i] = got.told(repo, got.base, heads[i], l.now)
		if !got.live() {
			continue
		}
		if got.Bore {
			children, err := v.Scan(ctx, childPrefix(got.ID), "", 1)
			if err != nil {
				return nil, fmt.Errorf("list sessions: %w", err)
			}
			if len(children) > 0 {
				continue
			}
		}
		told[i].EndsAt = got.endsAt(got.base, heads[i].At, got.freed)
	}
	return told, nil
}

// headsOf gives the heads of sessions by their places; zero of those that have ended.
func headsOf(ctx context.Context, door Door, all []reading) ([]Head, error) {
	var refs []string
	for _, got := range all {
		if got.exists() && got.live() {
			refs = append(refs, got.ref())
		}
	}
	heads := make([]Head, len(all))
	if len(refs) == 0 {
		return heads, nil
	}
	got, err := door.Heads(ctx, refs...)
	if err != nil {
		return nil, err
	}
	n := 0
	for i := range all {
		if all[i].exists() && all[i].live() {
			heads[i] = got[n]
			n++
		}
	}
	return heads, nil
}
