package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/gitstore/ledger"
)

// eventMoved is the type of a log entry that only tells of refs.
const eventMoved = "ref.updated"

// errPickedAlready: the very child that is asked for has been picked.
var errPickedAlready = errors.New("child is the winner already")

// Pick makes a child of a group its winner: the parent's branch is fast-forwarded to
// the child's head, its epoch stays, and the other children's time is up after
// LoserTTL, all in one batch. Picking the same child again changes nothing. Errors:
// ErrGroupNotFound, ErrNotFound (no child of the group, or the parent is forgotten),
// ErrPicked, *StateError, ErrForeignSession, *ledger.RepeatedError, and the door's,
// also when the child's head does not descend from the parent's.
func (k *Keeper) Pick(ctx context.Context, repo Repo, door Door, by Actor, group, winner string, once *ledger.Once[Session]) (Session, error) {
	for range forkTries {
		in := &pickIntent{group: group, winner: winner, once: once}
		moved, err := k.pickOnce(ctx, repo, door, by, in)
		switch {
		case err == nil:
			return in.parent, nil
		case errors.Is(err, errPickedAlready):
			return k.parentOf(ctx, repo, door, group)
		case !moved:
			return Session{}, err
		}
	}
	return Session{}, fmt.Errorf("pick %s: %w: branches keep moving", winner, ledger.ErrUnavailable)
}

func (k *Keeper) parentOf(ctx context.Context, repo Repo, door Door, group string) (Session, error) {
	g, _, err := k.reads(repo).group(ctx, door, group)
	if err != nil {
		return Session{}, err
	}
	return k.Get(ctx, repo, door, g.Parent)
}

func (k *Keeper) pickOnce(ctx context.Context, repo Repo, door Door, by Actor, in *pickIntent) (moved bool, err error) {
	storeKey := in.once.StoreKey()
	from := k.reads(repo)
	if err := from.known(ctx, storeKey); err != nil {
		return false, err
	}
	g, _, err := from.group(ctx, door, in.group)
	if err != nil {
		return false, err
	}
	if by.Session != "" && by.Session != g.Parent {
		return false, ErrForeignSession
	}
	all, err := in.contenders(ctx, from, &g.groupRecord)
	if err != nil {
		return false, err
	}
	heads, err := headsOf(ctx, door, all)
	if err != nil {
		return false, err
	}
	parent, winner := heads[0].SHA, heads[1].SHA
	if parent == "" || winner == "" {
		return false, ErrNotFound // it ended just now
	}
	m := Move{Intent: in, Changes: []Change{{Ref: all[0].ref(), Old: parent, New: winner}, {Ref: all[1].ref(), Old: winner, New: winner}}}
	if err := k.move(ctx, repo, door, m, storeKey); err != nil {
		return k.hasMoved(ctx, door, m.Changes...), err
	}
	return false, nil
}

// pickIntent picks a child. The first change of its move is the parent's branch, the
// second the winner's, which stays.
type pickIntent struct {
	group, winner string
	once          *ledger.Once[Session]
	parent        Session
}

// contenders are the parent and the winner, both of which can take part.
func (in *pickIntent) contenders(ctx context.Context, from reader, g *groupRecord) ([]reading, error) {
	switch {
	case g.Winner == in.winner && g.Winner != "":
		return nil, errPickedAlready
	case g.Winner != "" || !g.ClosedAt.IsZero():
		return nil, ErrPicked
	case !slices.Contains(g.Children, in.winner):
		return nil, ErrNotFound
	}
	all, err := from.many(ctx, []string{g.Parent, in.winner})
	if err != nil {
		return nil, err
	}
	parent, winner := all[0], all[1]
	switch {
	case !parent.exists() || !winner.exists():
		return nil, ErrNotFound
	case parent.State != Active:
		return nil, &StateError{ID: parent.ID, State: parent.State}
	case !winner.live():
		return nil, &StateError{ID: winner.ID, State: winner.State}
	}
	return all, nil
}

// pickData is what the event of a pick tells besides the change.
type pickData struct {
	GroupID string   `json:"group_id"`
	Winner  string   `json:"winner"`
	Losers  []string `json:"losers"` // those that are live
}

func (in *pickIntent) fill(ctx context.Context, g *guarding) error {
	got, err := g.by.get(ctx, append([]string{groupKey(in.group)}, storeKeys(in.once.StoreKey())...)...)
	if err != nil {
		return err
	}
	if len(got) > 1 && got[1] != nil {
		return ledger.Repeated(got[1])
	}
	group, err := decodeGroup(got[0])
	if err != nil {
		return err
	}
	all, err := in.contenders(ctx, g.by, &group.groupRecord)
	if err != nil {
		return err
	}
	losers, err := in.losers(ctx, g, &group.groupRecord)
	if err != nil {
		return err
	}
	g.check(ledger.Equal(groupKey(in.group), group.raw))
	g.check(ledger.Equal(fenceKey(all[1].ref()), all[1].fence().encode()))
	group.Winner = in.winner
	g.w.set(groupKey(in.group), group.encode())
	in.crown(g, all[0])
	g.a.Type, g.a.Session = eventMoved, group.Parent
	g.a.Data = mustJSON(pickData{in.group, in.winner, losers})
	return ride(g, in.once, in.parent)
}

// crown counts the pick as a use of the parent, and tells it as it is then.
func (in *pickIntent) crown(g *guarding, parent reading) {
	r := parent.clone()
	r.UsedAt = latest(r.UsedAt, g.q.Now)
	r = g.w.put(parent.stored, r)
	in.parent = r.told(g.q.Repo, g.base, Head{SHA: g.q.Changes[0].New, At: g.q.Now, Writer: g.q.Actor.Subject}, g.q.Now)
}

// losers gives the other children that are live what time they have left.
func (in *pickIntent) losers(ctx context.Context, g *guarding, group *groupRecord) ([]string, error) {
	all, err := g.by.many(ctx, group.Children)
	if err != nil {
		return nil, err
	}
	until := g.q.Now.Add(g.k.Limits.LoserTTL)
	losers := []string{}
	for _, got := range all {
		if got.ID == in.winner || !got.exists() || !got.live() {
			continue
		}
		losers = append(losers, got.ID)
		r := got.clone()
		r.ExpiresAt, r.Lost = earliest(r.ExpiresAt, until), true
		g.w.put(got.stored, r)
	}
	return losers, nil
}

// causeOfExpiry is why a session ends when its time is up.
func (r *record) causeOfExpiry() Cause {
	if r.Lost {
		return Closed
	}
	return Expired
}
