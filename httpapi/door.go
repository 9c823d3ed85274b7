package httpapi

import (
	"context"
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
	// kept is a snapshot that the caller may read: what its workspace commit leads to is
	// the caller's to begin from, whatever refs reach it. Empty: there is none.
	kept string
}

var _ sessions.Door = door{}

// NewDoor is repo as c may see and move it.
func NewDoor(repo *gitstore.Repo, c gitstore.Caller) sessions.Door { return door{repo: repo, c: c} }

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
	if d.kept != "" {
		id, err := refpolicy.ParseOID(d.kept)
		if err != nil {
			return fmt.Errorf("snapshot %s: %w", d.kept, err)
		}
		u.Proved, u.Leans = true, []refpolicy.OID{id}
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

func oidOrNone(id refpolicy.OID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}
