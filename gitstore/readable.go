package gitstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/refpolicy"
)

// readableAmong tells which of the objects exist for the caller: all it has, if
// nothing restricts what it reads, else what a ref it may read reaches. It walks
// history once for all of them.
func (r *Repo) readableAmong(ctx context.Context, c Caller, ids []refpolicy.OID) (map[refpolicy.OID]bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.store.limits.ProofTimeout, ErrProofTimeout)
	defer cancel()
	readable, err := r.findReadable(ctx, c, ids)
	if err != nil && errors.Is(context.Cause(ctx), ErrProofTimeout) {
		return nil, ErrProofTimeout
	}
	return readable, err
}

func (r *Repo) findReadable(ctx context.Context, c Caller, ids []refpolicy.OID) (map[refpolicy.OID]bool, error) {
	readable := make(map[refpolicy.OID]bool, len(ids))
	commits, others := map[refpolicy.OID]ObjectType{}, map[refpolicy.OID]ObjectType{}
	for _, oid := range ids {
		if _, done := readable[oid]; done {
			continue
		}
		typ, _, err := r.header(ctx, oid)
		if errors.Is(err, ErrObjectNotFound) {
			readable[oid] = false
			continue
		}
		if err != nil {
			return nil, err
		}
		ok := !c.Policy.RestrictsReads()
		if !ok {
			if ok, err = r.nearReachable(ctx, c, oid); err != nil && !errors.Is(err, ErrObjectNotFound) {
				return nil, err
			}
		}
		readable[oid] = ok
		switch {
		case ok:
		case typ == CommitObject:
			commits[oid] = typ
		default:
			others[oid] = typ
		}
	}
	if len(commits)+len(others) == 0 {
		return readable, nil
	}
	return readable, r.searchReadable(ctx, c, commits, others, readable)
}

// searchReadable walks everything the caller may read until all is found. What is
// no commit needs the trees to be walked too.
func (r *Repo) searchReadable(ctx context.Context, c Caller, commits, others map[refpolicy.OID]ObjectType, readable map[refpolicy.OID]bool) error {
	g := graph{r, noFresh}
	met := walk{g: g, paint: map[refpolicy.OID]uint8{}}
	for oid := range others {
		readable[oid] = true
	}
	s := newSearch(&proof{r: r, c: c, g: g, need: others})
	err := r.eachTips(ctx, c, func(t tipSet) (bool, error) {
		err := met.meet(ctx, t.commits, commits, readable)
		if err != nil || len(others) == 0 {
			return len(commits) == 0, err
		}
		done, err := s.everything(ctx, t)
		return done && len(commits) == 0, err
	})
	if err != nil {
		return fmt.Errorf("walk what is readable: %w", err)
	}
	for oid := range others { // what is left was not met
		readable[oid] = false
	}
	return nil
}

// meet walks from tips, newest first, and moves the wanted commits that it meets to
// readable, until none is left. It may be called again with other tips.
func (w *walk) meet(ctx context.Context, tips []refpolicy.OID, wanted map[refpolicy.OID]ObjectType, readable map[refpolicy.OID]bool) error {
	for _, oid := range tips {
		if err := w.add(ctx, oid, paintTip); err != nil {
			return err
		}
	}
	for w.live > 0 && len(wanted) > 0 {
		c, _ := w.pop()
		if _, ok := wanted[c.oid]; ok {
			readable[c.oid] = true
			delete(wanted, c.oid)
		}
		for _, p := range c.parents {
			if err := w.add(ctx, p, paintTip); err != nil {
				return err
			}
		}
	}
	return nil
}

// firstUnreadable is the first of the objects that does not exist for the caller;
// ok is true if there is none.
func (r *Repo) firstUnreadable(ctx context.Context, c Caller, ids []refpolicy.OID) (oid refpolicy.OID, ok bool, err error) {
	readable, err := r.readableAmong(ctx, c, ids)
	if err != nil {
		return oid, false, err
	}
	for _, oid := range ids {
		if !readable[oid] {
			return oid, false, nil
		}
	}
	return oid, true, nil
}
