package gitstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/refpolicy"
)

// judge asks one question of each open change; a refusal becomes its verdict.
func (d *door) judge(todo []int, question func(*RefResult) error) error {
	for _, i := range todo {
		res := &d.results[i]
		if res.Err != nil {
			continue
		}
		err := question(res)
		if err != nil && !isVerdict(err) {
			return err
		}
		res.Err = err
	}
	return nil
}

// isVerdict tells refusals of a ref from failures of the store.
func isVerdict(err error) bool {
	var moved *RefMovedError
	var clash *NameClashError
	var denied *refpolicy.DeniedError
	if errors.As(err, &moved) || errors.As(err, &clash) || errors.As(err, &denied) {
		return true
	}
	for _, v := range []error{ErrDefaultBranch, ErrNotFastForward, ErrBadObject, ErrUnreachable, ErrInvalid} {
		if errors.Is(err, v) {
			return true
		}
	}
	return false
}

// judgeRef asks what the ref's record tells: expected value, clashes, git's own
// rule for the default branch. Nothing is asked of objects before they
// are proved readable: the answer would tell of what does not exist for the caller.
func (d *door) judgeRef(st *state, n int, res *RefResult) error {
	if rec := st.recs[n]; rec.oid != res.Old {
		return &RefMovedError{Ref: res.Ref, Expected: res.Old, Present: rec.oid, Writer: rec.writer, At: rec.updated}
	}
	if clash := st.clash[n]; clash != nil {
		return clash
	}
	if res.Kind == refpolicy.Delete && string(res.Ref) == refpolicy.BranchPrefix+st.info.DefaultBranch {
		return ErrDefaultBranch
	}
	return nil
}

// judgeTip asks what the new value tells: its type, whether it descends from the
// old one, its signatures.
func (d *door) judgeTip(ctx context.Context, res *RefResult) error {
	if res.Kind == refpolicy.Delete {
		return nil
	}
	if err := d.checkTip(ctx, res); err != nil {
		return err
	}
	if res.Kind == refpolicy.FastForward && res.Old != res.New {
		if err := d.checkForward(ctx, res); err != nil {
			return err
		}
	}
	if d.u.Caller.Policy.MustVerify(res.Ref) {
		return d.verifySignatures(ctx, res)
	}
	return nil
}

// kindBefore is the kind as far as the ids alone tell; an update may turn out to be a rewind.
func kindBefore(c Change) refpolicy.Kind {
	switch {
	case c.New.IsZero():
		return refpolicy.Delete
	case c.Old.IsZero():
		return refpolicy.Create
	}
	return refpolicy.FastForward
}

// checkTip demands that a branch's new value is a commit.
func (d *door) checkTip(ctx context.Context, res *RefResult) error {
	typ, ok, err := d.g.fresh.typeOf(res.New)
	if err == nil && !ok {
		typ, _, err = d.r.header(ctx, res.New)
	}
	if err != nil {
		return orUnreachable(err)
	}
	if typ != CommitObject && (res.Ref.IsBranch() || res.Ref.IsEphemeralBranch()) {
		return invalidf("cannot update ref %s: trying to write non-commit object to branch", res.Ref)
	}
	_, _, err = d.g.peel(ctx, res.New)
	return orUnreachable(err)
}

// checkForward finds out whether an update is a rewind and asks again if it is.
func (d *door) checkForward(ctx context.Context, res *RefResult) error {
	forward, err := d.descends(ctx, res.Old, res.New)
	if err != nil || forward {
		return err
	}
	res.Kind = refpolicy.Rewind
	if err := d.u.Caller.Policy.Check(res.Ref, refpolicy.Rewind); err != nil {
		return err
	}
	if res.NoForce {
		return fmt.Errorf("%w: %s", ErrNotFastForward, res.Ref)
	}
	return nil
}

// descends looks through annotated tags, so that moving a tag is judged by what it
// points at (OQ-P8). What is no commit descends from nothing.
func (d *door) descends(ctx context.Context, older, newer refpolicy.OID) (bool, error) {
	a, at, err := d.g.peel(ctx, older)
	if err != nil {
		return false, err
	}
	b, bt, err := d.g.peel(ctx, newer)
	if err != nil {
		return false, orUnreachable(err)
	}
	if at != CommitObject || bt != CommitObject {
		return false, nil
	}
	ok, err := d.g.reaches(ctx, []refpolicy.OID{b}, a)
	return ok, orUnreachable(err)
}

// orUnreachable turns a hole in what a client sent into the answer for it.
func orUnreachable(err error) error {
	if errors.Is(err, ErrObjectNotFound) {
		return ErrUnreachable
	}
	return err
}

// verifySignatures demands a valid signature on every commit a change introduces:
// measured against the ref's own old value, for a new ref against all refs (OQ-P6).
func (d *door) verifySignatures(ctx context.Context, res *RefResult) error {
	tip, typ, err := d.g.peel(ctx, res.New)
	if err != nil {
		return orUnreachable(err)
	}
	if typ != CommitObject {
		return nil
	}
	known, err := d.knownBefore(ctx, res, tip)
	if err != nil {
		return err
	}
	return orUnreachable(d.g.introduced(ctx, tip, known, func(oid refpolicy.OID) error {
		o, err := d.g.object(ctx, oid)
		if err != nil {
			return err
		}
		if s := d.r.store.signatures; s != nil && s.VerifyCommit(d.u.Caller.Actor.Org, o.data) == nil {
			return nil
		}
		return d.u.Caller.Policy.Denied(res.Ref, refpolicy.VerifySig, oid.String())
	}))
}

// knownBefore are commits whose history a change does not introduce.
func (d *door) knownBefore(ctx context.Context, res *RefResult, tip refpolicy.OID) ([]refpolicy.OID, error) {
	if !res.Old.IsZero() {
		old, typ, err := d.g.peel(ctx, res.Old)
		if err != nil || typ != CommitObject {
			return nil, err
		}
		return []refpolicy.OID{old}, nil
	}
	return d.knownToRefs(ctx, tip)
}

// knownToRefs finds where the history of a new ref's tip meets what refs reach. It
// walks down from the tip, so that it costs what is new and not what there is, unless
// it meets a stored commit that no ref seems to reach: then all refs are told.
func (d *door) knownToRefs(ctx context.Context, tip refpolicy.OID) ([]refpolicy.OID, error) {
	brought, met, err := d.g.brought(ctx, tip)
	if err != nil {
		return nil, orUnreachable(err)
	}
	stored, err := d.r.storedAmong(ctx, brought) // what a client sends may be there already
	if err != nil {
		return nil, err
	}
	known := append(met, stored...)
	for _, oid := range known {
		reached, err := d.r.reachedByRefs(ctx, oid)
		if err != nil {
			return nil, err
		}
		if !reached {
			return d.r.refTips(ctx)
		}
	}
	return known, nil
}
