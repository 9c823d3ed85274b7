package httpapi

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/sessions/snapshot"
)

// snapshotUsers joins two rooms: they are sessions as those who use snapshots.
type snapshotUsers struct{ keeper *sessions.Keeper }

var _ snapshot.Users = snapshotUsers{}

// NewSnapshotUsers are the sessions of keeper as users of snapshots.
func NewSnapshotUsers(keeper *sessions.Keeper) snapshot.Users { return snapshotUsers{keeper} }

// UsesOf implements snapshot.Users.
func (u snapshotUsers) UsesOf(ctx context.Context, repo snapshot.RepoID, commits ...string) ([]snapshot.Use, error) {
	got, err := u.keeper.SnapshotUses(ctx, sessions.Repo(repo), commits...)
	if err != nil {
		return nil, err
	}
	uses := make([]snapshot.Use, len(got))
	for i, one := range got {
		uses[i] = snapshot.Use(one)
	}
	return uses, nil
}

// Session implements snapshot.Users.
func (u snapshotUsers) Session(ctx context.Context, repo snapshot.Repo, id string) (o snapshot.Owner, ok bool, err error) {
	d, joined := repo.(snapshotRepo)
	if !joined {
		return o, false, fmt.Errorf("session %s: a repo of another store", id)
	}
	by := sessions.Actor(repo.Actor())
	got, ok, err := u.keeper.SnapshotOwner(ctx, sessions.Repo(repo.ID()), NewDoor(d.repo, d.c), by, id)
	if err != nil || !ok {
		return o, false, err
	}
	o = snapshot.Owner{
		ID: got.ID, Ref: got.Ref, Live: got.State != sessions.Ended, EndedAt: got.EndedAt, Labels: got.Labels,
		CaptureKey: got.CaptureKey, Mine: got.Mine, Fenced: got.Fenced, Closed: got.Closed,
	}
	for _, id := range []struct {
		text string
		into *snapshot.OID
	}{{got.HeadSHA, &o.Head}, {got.FromSnapshot, &o.From}} {
		if id.text == "" {
			continue
		}
		if *id.into, err = snapshot.ParseOID(id.text); err != nil {
			return o, false, fmt.Errorf("session %s: %w", got.ID, err)
		}
	}
	return o, true, nil
}

// SetUsable implements snapshot.Users.
func (u snapshotUsers) SetUsable(ctx context.Context, repo snapshot.RepoID, session string, usable bool, why string) error {
	return u.keeper.SetUsable(ctx, sessions.Repo(repo), session, usable, why)
}
