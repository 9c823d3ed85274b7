package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/sessions"
)

// A door joins the two rooms: it is a repo of the store as sessions see and move it.
type door struct {
	repo *gitstore.Repo
	c    gitstore.Caller
}

var _ sessions.Door = door{}

// NewDoor is repo as c may see and move it.
func NewDoor(repo *gitstore.Repo, c gitstore.Caller) sessions.Door { return door{repo, c} }

// Resolve implements sessions.Door.
func (d door) Resolve(ctx context.Context, rev string, ephemeral bool) (string, error) {
	base, err := d.repo.Base(ctx, d.c, rev, ephemeral)
	if err != nil {
		return "", err
	}
	return base.String(), nil
}

// Heads implements sessions.Door.
func (d door) Heads(ctx context.Context, refs ...string) ([]sessions.Head, error) {
	names := make([]refpolicy.RefName, len(refs))
	for i, name := range refs {
		names[i] = refpolicy.RefName(name)
	}
	got, err := d.repo.Heads(ctx, names...)
	if err != nil {
		return nil, err
	}
	heads := make([]sessions.Head, len(got))
	for i, ref := range got {
		heads[i] = sessions.Head{SHA: oidOrNone(ref.OID), At: ref.UpdatedAt, Writer: ref.Writer}
	}
	return heads, nil
}

// MayWrite implements sessions.Door.
func (d door) MayWrite(ref string) error {
	name, err := refpolicy.ParseRefName(ref)
	if err != nil {
		return err
	}
	return d.c.Policy.Check(name, refpolicy.FastForward)
}

// CanRead implements sessions.Door.
func (d door) CanRead(ref string) bool { return d.c.Policy.CanRead(refpolicy.RefName(ref)) }

// Move implements sessions.Door.
func (d door) Move(ctx context.Context, m sessions.Move) error {
	u := gitstore.Update{Caller: d.c, Atomic: true, Intent: m.Intent}
	for _, c := range m.Changes {
		change := gitstore.Change{Ref: refpolicy.RefName(c.Ref), NoForce: true}
		if err := parseOIDs(c, &change); err != nil {
			return err
		}
		u.Changes = append(u.Changes, change)
	}
	for _, p := range m.Pins {
		oid, err := refpolicy.ParseOID(p.SHA)
		if err != nil {
			return fmt.Errorf("pin %s: %w", p.ID, err)
		}
		u.Pins = append(u.Pins, gitstore.NewPin{ID: p.ID, OID: oid, Holder: p.Holder})
	}
	res, err := d.repo.Update(ctx, u)
	if err != nil {
		return err
	}
	return d.refusal(res)
}

// parseOIDs reads a change's old and new value, of which empty is the zero id.
func parseOIDs(c sessions.Change, to *gitstore.Change) (err error) {
	if c.Old != "" {
		if to.Old, err = refpolicy.ParseOID(c.Old); err != nil {
			return fmt.Errorf("move %s: %w", c.Ref, err)
		}
	}
	if c.New != "" {
		if to.New, err = refpolicy.ParseOID(c.New); err != nil {
			return fmt.Errorf("move %s: %w", c.Ref, err)
		}
	}
	return nil
}

// refusal is the first refusal that has a reason of its own.
func (d door) refusal(res gitstore.UpdateResult) error {
	var first error
	for _, r := range res.Refs {
		if r.Err == nil || first != nil && errors.Is(r.Err, gitstore.ErrAtomic) {
			continue
		}
		if first == nil || errors.Is(first, gitstore.ErrAtomic) {
			first = d.told(r)
		}
	}
	return first
}

// told puts the refusal of one change into the words of whoever asked for a session.
func (d door) told(r gitstore.RefResult) error {
	var moved *gitstore.RefMovedError
	var clash *gitstore.NameClashError
	switch {
	case errors.As(r.Err, &moved) && moved.Expected.IsZero() && !moved.Present.IsZero():
		return fmt.Errorf("%w: branch %s", sessions.ErrExists, r.Ref.Short())
	case errors.As(r.Err, &clash) && !d.c.Policy.CanRead(clash.Existing):
		return &gitstore.NameClashError{Ref: clash.Ref}
	case errors.Is(r.Err, gitstore.ErrUnreachable):
		return fmt.Errorf("%w: %s", gitstore.ErrObjectNotFound, r.New)
	}
	return r.Err
}

// Pinned implements sessions.Door.
func (d door) Pinned(ctx context.Context, sha string) (bool, error) {
	oid, err := refpolicy.ParseOID(sha)
	if err != nil {
		return false, err
	}
	return d.repo.Pinned(ctx, oid, sessions.StatePinPrefix)
}

// Unpin implements sessions.Door.
func (d door) Unpin(ctx context.Context, id string) error {
	err := d.repo.Unpin(ctx, gitstore.Caller{}, id, nil)
	if errors.Is(err, gitstore.ErrPinNotFound) {
		return nil
	}
	return err
}

// Frees implements sessions.Door.
func (d door) Frees(ctx context.Context, ref string) (int64, error) {
	return d.repo.Frees(ctx, refpolicy.RefName(ref))
}

// A guard lets a Keeper be asked about every change of refs.
type guard struct{ keeper *sessions.Keeper }

var _ gitstore.Guard = guard{}

// NewGuard is keeper as the guard of a store.
func NewGuard(keeper *sessions.Keeper) gitstore.Guard { return guard{keeper} }

// Guard implements gitstore.Guard.
func (g guard) Guard(ctx context.Context, q gitstore.GuardRequest) (gitstore.GuardAnswer, error) {
	changes := make([]sessions.Change, len(q.Changes))
	for i, c := range q.Changes {
		changes[i] = sessions.Change{Ref: string(c.Ref), Old: oidOrNone(c.Old), New: oidOrNone(c.New)}
	}
	answer, err := g.keeper.Guard(ctx, sessions.GuardRequest{
		Repo:    sessions.Repo{ID: q.Repo.ID, Org: q.Repo.Org, Name: q.Repo.Name},
		Changes: changes, Actor: sessions.Actor(q.Actor), Now: q.Now, Intent: q.Intent,
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

func oidOrNone(id refpolicy.OID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}
