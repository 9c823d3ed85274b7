package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/headgate/headgate/refpolicy"
)

// incoming is what the pack of a push brings.
type incoming struct {
	objects []NewObject
	bases   []refpolicy.OID // stored objects that deltas were made against
	pack    *IncomingPack
}

// unproved is what a pack brings whose deltas are against something that does not
// exist for the caller: nothing, and a base that nobody can read. The door then
// says of its refs what it says of those that refer to a missing object.
func unproved() incoming { return incoming{bases: []refpolicy.OID{refpolicy.ZeroOID}} }

// An unpackError says why a pack cannot be taken; its text is for the client.
type unpackError struct{ text string }

func (e *unpackError) Error() string { return "unpack: " + e.text }

// A lostError says that the client's request could not be read to its end.
type lostError struct{ err error }

func (e *lostError) Error() string { return "read pack: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// receivePack reads the pack of a push to the end of in. A small one is parsed
// here, a large one by git. taken is called when all of it has been read. Errors:
// *unpackError, *lostError, failures of the store.
func (r *Repo) receivePack(ctx context.Context, c Caller, in io.Reader, taken func()) (incoming, error) {
	limit := r.store.limits.PushTimeout
	ctx, begin, stop := pushTimer(ctx, limit)
	defer stop()
	got, err := r.unpack(ctx, c, in, func() { begin(); taken() })
	return got, timedOut(ctx, err, limit)
}

func (r *Repo) unpack(ctx context.Context, c Caller, in io.Reader, taken func()) (incoming, error) {
	var head bytes.Buffer
	if _, err := io.Copy(&head, io.LimitReader(in, r.store.limits.HotPackBytes+1)); err != nil {
		return incoming{}, &lostError{err}
	}
	if int64(head.Len()) <= r.store.limits.HotPackBytes {
		taken()
		small, err := r.receiveSmall(ctx, c, head.Bytes())
		if !errors.Is(err, errHandOver) {
			return small, err
		}
	}
	return r.receiveLarge(ctx, c, head.Bytes(), in, taken)
}

// receiveSmall takes a pack that is whole in memory. What is wrong with objects
// that a delta made out of a base the caller may not read is not told: it would
// speak of the base.
func (r *Repo) receiveSmall(ctx context.Context, c Caller, data []byte) (incoming, error) {
	bases := map[refpolicy.OID]bool{}
	l := r.store.limits
	most := packBounds{min(l.HotPackObjects, l.PackObjects), l.FileBytes, l.DeltaDepth}
	p, err := parsePack(ctx, data, most, func(ctx context.Context, oid refpolicy.OID) (object, error) {
		bases[oid] = true
		return r.object(ctx, oid)
	})
	if err == nil && len(p.missing) > 0 {
		return unproved(), nil
	}
	if err == nil {
		err = checkObjects(p.objects, r.specialsFor(ctx, c))
	}
	switch {
	case err == nil:
		return incoming{objects: p.objects, bases: p.bases}, nil
	case errors.Is(err, ErrBadObject):
		return r.badPack(ctx, c, err, bases)
	}
	return incoming{}, err
}

// checkObjects holds new objects to git's format.
func checkObjects(objects []NewObject, from specialSource) error {
	specials := map[refpolicy.OID]specialFile{}
	for _, o := range objects {
		if err := checkObject(o.Type, o.Data, specials); err != nil {
			return fmt.Errorf("object %s: %w", o.OID, err)
		}
	}
	from.pushed = func(oid refpolicy.OID) ([]byte, error) {
		for _, o := range objects {
			if o.OID == oid {
				return o.Data, nil
			}
		}
		return nil, ErrObjectNotFound
	}
	return checkSpecials(specials, from)
}

// specialsFor finds special files in the store.
func (r *Repo) specialsFor(ctx context.Context, c Caller) specialSource {
	return specialSource{
		stored: func(oid refpolicy.OID) ([]byte, error) {
			o, err := r.object(ctx, oid)
			return o.data, err
		},
		readable: func(oid refpolicy.OID) (bool, error) {
			return r.allReadable(ctx, c, map[refpolicy.OID]bool{oid: true})
		},
	}
}

// badPack is the answer to a pack that breaks git's format.
func (r *Repo) badPack(ctx context.Context, c Caller, fault error, bases map[refpolicy.OID]bool) (incoming, error) {
	ok, err := r.allReadable(ctx, c, bases)
	if err != nil {
		return incoming{}, err
	}
	if !ok {
		return unproved(), nil
	}
	return incoming{}, &unpackError{fault.Error()}
}

// allReadable reports whether all of the objects exist for the caller.
func (r *Repo) allReadable(ctx context.Context, c Caller, ids map[refpolicy.OID]bool) (bool, error) {
	if !c.Policy.RestrictsReads() || len(ids) == 0 {
		return true, nil
	}
	list := make([]refpolicy.OID, 0, len(ids))
	for oid := range ids {
		list = append(list, oid)
	}
	_, ok, err := r.firstUnreadable(ctx, c, list)
	return ok, err
}
