package sessions

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// groupDue lets go of what is up in a group when its look is due (dueKey with the id
// groupDueID gives): of a state that is not kept once no child is live, of a kept one
// once it was not used for its idle time, and of the group's record when it was
// remembered for long enough. Next is when to look again, zero: never; the end of a
// child asks for a look of its own.
func (k *Keeper) groupDue(ctx context.Context, repo Repo, door Door, group string, now time.Time) (next time.Time, err error) {
	for range changeTries {
		next, err = k.settleGroup(ctx, repo, door, group, now)
		var moved *ledger.CheckError
		if !errors.As(err, &moved) {
			return next, err
		}
	}
	return next, fmt.Errorf("look at fork %s: %w: it keeps changing", group, ledger.ErrUnavailable)
}

// groupReading is a group with what says how it is used.
type groupReading struct {
	storedGroup
	live []byte // number of live children
	used []byte // when its state was used last; nil: not since it was made
}

func (k *Keeper) readGroup(ctx context.Context, repo Repo, id string) (g groupReading, err error) {
	got, err := k.reads(repo).get(ctx, groupKey(id), groupLiveKey(id), groupUsedKey(id))
	if err != nil {
		return g, err
	}
	g.live, g.used = got[1], got[2]
	g.storedGroup, err = decodeGroup(got[0])
	return g, err
}

func (g groupReading) usedAt() time.Time {
	if at, _, ok := parseWhen(string(g.used)); ok {
		return at
	}
	return g.At
}

// unused holds while nobody has used the group's state since it was read.
func (g groupReading) unused() []ledger.Check {
	used := ledger.Absent(groupUsedKey(g.ID))
	if g.used != nil {
		used = ledger.Equal(groupUsedKey(g.ID), g.used)
	}
	return []ledger.Check{ledger.Equal(groupKey(g.ID), g.raw), used}
}

func (k *Keeper) settleGroup(ctx context.Context, repo Repo, door Door, id string, now time.Time) (next time.Time, err error) {
	g, err := k.readGroup(ctx, repo, id)
	if errors.Is(err, ErrGroupNotFound) {
		return next, nil
	}
	if err != nil {
		return next, err
	}
	live, err := strconv.ParseInt(string(g.live), 10, 64)
	if err != nil {
		return next, fmt.Errorf("decode number of live children of fork %s: %w", id, err)
	}
	if live > 0 && !g.Going {
		return next, nil
	}
	if g.Pin == "" {
		return k.forgetGroup(ctx, repo, g, now)
	}
	if g.Keep && !g.Going {
		if g.Idle == 0 {
			return next, nil
		}
		if at := g.usedAt().Add(g.Idle); now.Before(at) {
			return at, nil
		}
	}
	if err := k.letGo(ctx, repo, door, g, now); err != nil {
		return next, err
	}
	return now.Add(k.Limits.EndedMemory), nil
}

// letGo lets go of a group's state. The record says first that it goes, so that no
// one who uses it by then is overlooked, and whoever finds it half done goes on.
func (k *Keeper) letGo(ctx context.Context, repo Repo, door Door, g groupReading, now time.Time) error {
	rec := g.groupRecord
	if !rec.Going {
		rec.Going = true
		b := ledger.Batch{Space: ledger.RepoSpace(repo.ID), Checks: g.unused(), Sets: []ledger.Set{{Key: groupKey(g.ID), Value: rec.encode()}}}
		if _, err := k.Ledger.Apply(ctx, b); err != nil {
			return fmt.Errorf("let go of the state of fork %s: %w", g.ID, err)
		}
		g.raw = b.Sets[0].Value
	}
	if err := door.Unpin(ctx, g.Pin); err != nil {
		return fmt.Errorf("let go of the state of fork %s: %w", g.ID, err)
	}
	rec.Pin, rec.GoneAt = "", now
	_, err := k.Ledger.Apply(ctx, ledger.Batch{
		Space:   ledger.RepoSpace(repo.ID),
		Checks:  []ledger.Check{ledger.Equal(groupKey(g.ID), g.raw)},
		Sets:    []ledger.Set{{Key: groupKey(g.ID), Value: rec.encode()}},
		Deletes: []string{statePrefix(g.State) + g.ID},
	})
	if err != nil {
		return fmt.Errorf("let go of the state of fork %s: %w", g.ID, err)
	}
	return nil
}

// forgetGroup takes the records of a group away, of which nothing is left, when it
// was remembered for long enough.
func (k *Keeper) forgetGroup(ctx context.Context, repo Repo, g groupReading, now time.Time) (next time.Time, err error) {
	if at := latest(g.usedAt(), g.GoneAt).Add(k.Limits.EndedMemory); now.Before(at) {
		return at, nil
	}
	b := ledger.Batch{
		Space:   ledger.RepoSpace(repo.ID),
		Checks:  []ledger.Check{ledger.Equal(groupKey(g.ID), g.raw)},
		Deletes: []string{groupKey(g.ID), groupLiveKey(g.ID), groupUsedKey(g.ID)},
	}
	for _, child := range g.Children {
		b.Deletes = append(b.Deletes, reportKey(g.ID, child))
	}
	if _, err := k.Ledger.Apply(ctx, b); err != nil {
		return next, fmt.Errorf("forget fork %s: %w", g.ID, err)
	}
	return next, nil
}

// startFrom restarts the clocks of the kept states that a session is made of, which
// begins at the commit sha.
func (g *guarding) startFrom(ctx context.Context, sha string) error {
	items, err := g.by.scan(ctx, statePrefix(sha), ledger.BulkKeys)
	if err != nil {
		return err
	}
	for _, it := range items {
		g.w.set(groupUsedKey(it.Key[len(statePrefix(sha)):]), []byte(whenBytes(g.q.Now)))
	}
	return nil
}
