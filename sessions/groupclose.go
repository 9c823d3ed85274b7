package sessions

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/gitstore/ledger"
)

// closeMove is how many branches go in one batch when a group is closed.
const closeMove = 64

// CloseSpec asks for a group's end.
type CloseSpec struct {
	Admin bool // the caller may close what others created
	Once  *ledger.Once[Closing]
}

// Close ends all children of a group that are live, whoever holds them, with their
// branches, and lets go of the state unless it is kept. It goes on where an earlier
// one was cut short. Nothing ends while a child has live children of its own. Errors:
// ErrGroupNotFound, ErrNotCreator, *InUseError, *ledger.RepeatedError, the door's.
func (k *Keeper) Close(ctx context.Context, repo Repo, door Door, by Actor, group string, spec CloseSpec) (Closing, error) {
	from := k.reads(repo)
	if err := from.known(ctx, spec.Once.StoreKey()); err != nil {
		return Closing{}, err
	}
	g, _, err := from.group(ctx, door, group)
	switch {
	case err != nil:
		return Closing{}, err
	case by.Session != "":
		return Closing{}, ErrForeignSession
	case !spec.Admin && !g.created(by):
		return Closing{}, ErrNotCreator
	}
	c := &closing{k: k, repo: repo, door: door, by: by, group: g.groupRecord}
	if err := c.endAll(ctx); err != nil {
		return Closing{}, err
	}
	return c.finish(ctx, spec.Once)
}

// closing is the end of a group.
type closing struct {
	k     *Keeper
	repo  Repo
	door  Door
	by    Actor
	group groupRecord
	ended int
}

// endAll ends the live children, a batch of them at a time, until there is none.
func (c *closing) endAll(ctx context.Context) error {
	stuck := 0
	for {
		live, err := c.live(ctx)
		if err != nil || len(live) == 0 {
			return err
		}
		heads, err := headsOf(ctx, c.door, live)
		if err != nil {
			return err
		}
		for len(live) > 0 {
			n := min(len(live), closeMove)
			if err := c.endSome(ctx, live[:n], heads[:n]); err == nil {
				stuck = 0
			} else if stuck++; stuck > forkTries || !errors.Is(err, errEndedMeanwhile) {
				return err
			}
			live, heads = live[n:], heads[n:]
		}
	}
}

// live are the children that have not ended, none of which has a live child.
func (c *closing) live(ctx context.Context) (live []reading, err error) {
	all, err := c.k.reads(c.repo).many(ctx, c.group.Children)
	if err != nil {
		return nil, err
	}
	for _, got := range all {
		if !got.exists() || !got.live() {
			continue
		}
		if err := childless(ctx, c.k.reads(c.repo), got); err != nil {
			return nil, err
		}
		live = append(live, got)
	}
	return live, nil
}

// childless refuses to end a session with live children.
func childless(ctx context.Context, from reader, got reading) error {
	children, err := from.children(ctx, got.record, maxHolders)
	if err != nil || len(children) == 0 {
		return err
	}
	inUse := &InUseError{ID: got.ID}
	for _, id := range children {
		inUse.Holders = append(inUse.Holders, UseHolder{Kind: "child", ID: id})
	}
	return inUse
}

// endSome ends children with their branches in one batch. errEndedMeanwhile says that
// one of them has ended or its branch has moved: look again.
func (c *closing) endSome(ctx context.Context, live []reading, heads []Head) error {
	in := &closeIntent{}
	m := Move{Intent: in}
	for i, got := range live {
		if heads[i].SHA == "" {
			if err := c.endLost(ctx, got.ID); err != nil {
				return err
			}
			continue
		}
		in.ids = append(in.ids, got.ID)
		m.Changes = append(m.Changes, Change{Ref: got.ref(), Old: heads[i].SHA})
	}
	if len(m.Changes) == 0 {
		return nil
	}
	if err := c.door.Move(ctx, m); err != nil {
		if ctx.Err() == nil && c.changed(ctx, m) {
			return errEndedMeanwhile
		}
		return err
	}
	c.ended += len(m.Changes)
	return nil
}

// changed reports whether a branch is not where a move expected it.
func (c *closing) changed(ctx context.Context, m Move) bool {
	refs := make([]string, len(m.Changes))
	for i, change := range m.Changes {
		refs[i] = change.Ref
	}
	heads, err := c.door.Heads(ctx, refs...)
	if err != nil {
		return false
	}
	for i, head := range heads {
		if head.SHA != m.Changes[i].Old {
			return true
		}
	}
	return false
}

func (c *closing) endLost(ctx context.Context, id string) error {
	_, err := c.k.endLost(ctx, c.repo, c.door, c.by, id, EndSpec{})
	if err == nil {
		c.ended++
	}
	return err
}

// finish lets go of a state that is not kept, and writes down that the group is closed.
func (c *closing) finish(ctx context.Context, once *ledger.Once[Closing]) (Closing, error) {
	for range changeTries {
		now, err := c.k.Ledger.Now(ctx)
		if err != nil {
			return Closing{}, fmt.Errorf("read the ledger's clock: %w", err)
		}
		if _, err := c.k.groupDue(ctx, c.repo, c.door, c.group.ID, now); err != nil {
			return Closing{}, err
		}
		g, err := c.k.readGroup(ctx, c.repo, c.group.ID)
		if err != nil {
			return Closing{}, err
		}
		did := Closing{Ended: c.ended, Gone: len(g.Children) - c.ended, StateGone: g.Pin == ""}
		answer, err := once.Rider(did, now)
		if err != nil {
			return Closing{}, err
		}
		b := ledger.Batch{Space: ledger.RepoSpace(c.repo.ID), Checks: []ledger.Check{ledger.Equal(groupKey(g.ID), g.raw)}}
		if g.ClosedAt.IsZero() {
			g.ClosedAt = now
			b.Sets = []ledger.Set{{Key: groupKey(g.ID), Value: g.encode()}}
		}
		b.Carry(answer)
		_, err = c.k.Ledger.Apply(ctx, b)
		var moved *ledger.CheckError
		switch {
		case err == nil:
			return did, nil
		case !errors.As(err, &moved):
			return Closing{}, fmt.Errorf("close fork %s: %w", g.ID, err)
		}
		if err := c.k.reads(c.repo).known(ctx, once.StoreKey()); err != nil {
			return Closing{}, err
		}
	}
	return Closing{}, fmt.Errorf("close fork %s: %w: it keeps changing", c.group.ID, ledger.ErrUnavailable)
}

// closeIntent ends children of a group, by place of the change.
type closeIntent struct{ ids []string }

func (in *closeIntent) fill(ctx context.Context, g *guarding) error {
	all, err := g.by.many(ctx, in.ids)
	if err != nil {
		return err
	}
	for i, got := range all {
		if !got.exists() || !got.live() || got.ref() != g.q.Changes[i].Ref {
			return errEndedMeanwhile
		}
		if err := childless(ctx, g.by, got); err != nil {
			return err
		}
		g.check(ledger.AbsentPrefix(childPrefix(got.ID)))
		g.end(got, g.q.Changes[i].Old, Closed)
	}
	return nil
}
