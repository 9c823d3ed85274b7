package httpapi

import (
	"context"
	"encoding/json"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/sessions/snapshot"
)

// A guard lets both Keepers be asked about every change of refs. What both demand must
// hold, and what both write is written. Sessions are asked first: who may not write at
// all learns nothing of snapshots.
type guard struct {
	keeper    *sessions.Keeper
	snapshots *snapshot.Keeper // may be nil
}

var (
	_ gitstore.Guard      = guard{}
	_ gitstore.Foreteller = guard{}
)

// NewGuard joins the keepers as the guard of a store; without snapshots nobody keeps any.
func NewGuard(keeper *sessions.Keeper, snapshots *snapshot.Keeper) gitstore.Guard {
	return guard{keeper, snapshots}
}

// Guard implements gitstore.Guard.
func (g guard) Guard(ctx context.Context, q gitstore.GuardRequest) (gitstore.GuardAnswer, error) {
	answer, err := g.ofSessions(ctx, q)
	if err != nil || g.snapshots == nil {
		return answer, err
	}
	more, err := g.ofSnapshots(ctx, q)
	if err != nil {
		return gitstore.GuardAnswer{}, err
	}
	answer.Rider.Join(more.Rider)
	if more.Type != "" {
		answer.Event = gitstore.Event{Type: more.Type, Session: more.Session, Data: more.Data}
	}
	return answer, nil
}

// Wants implements gitstore.Foreteller.
func (g guard) Wants(ref refpolicy.RefName, actor gitstore.Actor) []string {
	return g.keeper.Wants(string(ref), sessions.Actor(actor))
}

func (g guard) ofSessions(ctx context.Context, q gitstore.GuardRequest) (gitstore.GuardAnswer, error) {
	changes := make([]sessions.Change, len(q.Changes))
	for i, c := range q.Changes {
		changes[i] = sessions.Change{Ref: string(c.Ref), Old: oidOrNone(c.Old), New: oidOrNone(c.New)}
	}
	answer, err := g.keeper.Guard(ctx, sessions.GuardRequest{
		Repo:    sessions.Repo{ID: q.Repo.ID, Org: q.Repo.Org, Name: q.Repo.Name},
		Changes: changes, Actor: sessions.Actor(q.Actor), Now: q.Now, Intent: q.Intent, Known: q.Known,
	})
	if err != nil {
		return gitstore.GuardAnswer{}, err
	}
	return gitstore.GuardAnswer{
		Rider:    answer.Rider,
		Event:    gitstore.Event{Type: answer.Type, Session: answer.Session, Data: json.RawMessage(answer.Data)},
		Sessions: answer.Sessions,
	}, nil
}

func (g guard) ofSnapshots(ctx context.Context, q gitstore.GuardRequest) (snapshot.GuardAnswer, error) {
	changes := make([]snapshot.Change, len(q.Changes))
	for i, c := range q.Changes {
		changes[i] = snapshot.Change{Ref: string(c.Ref), Old: snapshot.OID(c.Old), New: snapshot.OID(c.New)}
	}
	return g.snapshots.Guard(ctx, snapshot.GuardRequest{
		Repo:    snapshot.RepoID{ID: q.Repo.ID, Org: q.Repo.Org, Name: q.Repo.Name},
		Changes: changes, Actor: snapshot.Actor(q.Actor), Now: q.Now, Intent: q.Intent,
	})
}
