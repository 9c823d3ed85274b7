package gitstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// BranchSpec asks for a branch to be made, or moved with Force.
type BranchSpec struct {
	Target        refpolicy.RefName // a branch or an ephemeral branch
	Base          string            // revision (rest.md 4)
	BaseEphemeral bool
	Force         bool // move an existing target, also backwards; the policy is asked as for an update
	Once          *ledger.Once[Ref]
}

// branchTries bounds how often a forced move starts again because its target moved.
const branchTries = 5

// CreateBranch makes a branch at a base the caller can reach. Errors: those of
// Resolve, ErrRefExists, *NameClashError, *refpolicy.DeniedError.
func (r *Repo) CreateBranch(ctx context.Context, c Caller, b BranchSpec) (Ref, error) {
	ref, err := r.createBranch(ctx, c, b)
	if err != nil {
		return Ref{}, r.orRepeated(ctx, b.Once.StoreKey(), err)
	}
	return ref, nil
}

func (r *Repo) createBranch(ctx context.Context, c Caller, b BranchSpec) (Ref, error) {
	// Asked before anything else, so that who may not create is not told what exists.
	if err := c.Policy.Check(b.Target, refpolicy.Create); err != nil {
		return Ref{}, err
	}
	base, err := r.Base(ctx, c, b.Base, b.BaseEphemeral)
	if err != nil {
		return Ref{}, err
	}
	made := func(res UpdateResult) Ref { return res.Refs[0].State }
	var old refpolicy.OID
	for range branchTries {
		res, err := r.Update(ctx, Update{Caller: c, Changes: []Change{{Ref: b.Target, Old: old, New: base}}, Once: onceOf(b.Once, made)})
		if err != nil {
			return Ref{}, err
		}
		var moved *RefMovedError
		switch err := res.Refs[0].Err; {
		case err == nil:
			return made(res), nil
		case errors.Is(err, ErrUnreachable):
			return Ref{}, fmt.Errorf("%w: %s", ErrObjectNotFound, base)
		case !errors.As(err, &moved):
			return Ref{}, hideClash(c, err)
		case !b.Force:
			return Ref{}, fmt.Errorf("%w: %s", ErrRefExists, b.Target)
		}
		if old = moved.Present; old == base && b.Once == nil {
			return r.movedRef(ctx, c, Ref{Name: b.Target, OID: base, Writer: c.Actor.Subject})
		}
	}
	return Ref{}, &RefMovedError{Ref: b.Target, Present: old}
}

// Base finds where a new branch starts: at the commit that a revision (rest.md 4)
// names, with ephemeral set an ephemeral branch. A branch by its plain name is read as
// it stands, synced or not, so the commit may be told only together with the change
// that follows: its batch comes later in the same log. Errors: those of Resolve.
func (r *Repo) Base(ctx context.Context, c Caller, rev string, ephemeral bool) (refpolicy.OID, error) {
	name, err := refpolicy.StrictBranch(rev)
	if ephemeral {
		name, err = refpolicy.StrictEphemeralBranch(rev)
	}
	_, notOID := refpolicy.ParseOID(strings.ToLower(rev))
	special := rev == "HEAD" || notOID == nil
	if err == nil && !special && c.Policy.CanRead(name) {
		raw, err := readKey(ctx, r.ledger.PeekKeys, r.space, refKey(name))
		if err != nil {
			return refpolicy.OID{}, fmt.Errorf("read base %s: %w", name, err)
		}
		if raw != nil {
			rec, err := decodeRefRecord(raw)
			return rec.oid, err
		}
	}
	base, err := r.Resolve(ctx, c, rev, ephemeral)
	return base.Commit, err
}

// movedRef adds to a ref that existed before when it was created and last written.
// It may be elsewhere again by now, or gone: then it is told as it was.
func (r *Repo) movedRef(ctx context.Context, c Caller, ref Ref) (Ref, error) {
	now, err := r.Ref(ctx, c, ref.Name)
	if errors.Is(err, ErrRefNotFound) || err == nil && now.OID != ref.OID {
		return ref, nil
	}
	return now, err
}

// hideClash takes the name of a ref that the caller may not read out of an answer.
func hideClash(c Caller, err error) error {
	var clash *NameClashError
	if errors.As(err, &clash) && !c.Policy.CanRead(clash.Existing) {
		return &NameClashError{Ref: clash.Ref}
	}
	return err
}

// DeleteBranch removes a branch whatever it points at. once, which may be nil, is told
// the branch as it was. Errors: ErrRefNotFound, ErrDefaultBranch, *refpolicy.DeniedError.
func (r *Repo) DeleteBranch(ctx context.Context, c Caller, name refpolicy.RefName, once *ledger.Once[Ref]) error {
	return r.orRepeated(ctx, once.StoreKey(), r.deleteBranch(ctx, c, name, once))
}

func (r *Repo) deleteBranch(ctx context.Context, c Caller, name refpolicy.RefName, once *ledger.Once[Ref]) error {
	if err := c.Policy.Check(name, refpolicy.Delete); err != nil {
		return err
	}
	for {
		ref, err := r.Ref(ctx, c, name)
		if err != nil {
			return err
		}
		gone := func(UpdateResult) Ref { return ref }
		res, err := r.Update(ctx, Update{Caller: c, Changes: []Change{{Ref: name, Old: ref.OID}}, Once: onceOf(once, gone)})
		if err != nil {
			return err
		}
		var moved *RefMovedError
		if err := res.Refs[0].Err; !errors.As(err, &moved) {
			return err
		}
	}
}
