package sessions

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Get tells a session. Errors: ErrNotFound.
func (k *Keeper) Get(ctx context.Context, repo Repo, door Door, id string) (Session, error) {
	got, err := k.reads(repo).visible(ctx, door, id)
	if err != nil {
		return Session{}, err
	}
	now, err := k.Ledger.Now(ctx)
	if err != nil {
		return Session{}, fmt.Errorf("read the ledger's clock: %w", err)
	}
	return k.tell(ctx, repo, door, got, now)
}

// tell is a session as it is told, with the head of its branch and its end.
func (k *Keeper) tell(ctx context.Context, repo Repo, door Door, got reading, now time.Time) (Session, error) {
	if !got.live() {
		return got.told(repo, got.base, Head{}, now), nil
	}
	heads, err := door.Heads(ctx, got.ref())
	if err != nil {
		return Session{}, err
	}
	s := got.told(repo, got.base, heads[0], now)
	children, err := k.reads(repo).children(ctx, got.record, 1)
	if err != nil {
		return Session{}, err
	}
	if len(children) == 0 {
		s.EndsAt = got.endsAt(got.base, heads[0].At, got.freed)
	}
	return s, nil
}

// children are live children of a session, at most limit.
func (r reader) children(ctx context.Context, of record, limit int) ([]string, error) {
	if !of.Bore {
		return nil, nil
	}
	items, err := r.scan(ctx, childPrefix(of.ID), limit)
	return childIDs(of.ID, items), err
}

func childIDs(parent string, items []ledger.Item) []string {
	ids := make([]string, len(items))
	for i, it := range items {
		ids[i] = it.Key[len(childPrefix(parent)):]
	}
	return ids
}
