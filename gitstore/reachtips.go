package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// tipSet are objects that refs and pins point at.
type tipSet struct {
	commits []refpolicy.OID
	others  []refpolicy.OID // tag objects and whatever else a ref may point at
	// states are those of the commits that are headgate's own, such as snapshots. What is
	// in their trees alone is there for nobody who builds on files, and may be millions.
	states []refpolicy.OID
}

// eachTips calls fn with the roots of what a caller may read, some at a time, until
// it is done: first the default branch, then the other refs that the main remote
// shows, then, for a caller without rules on reading, pins, and last what may be a
// million: the branches of sessions. Mostly one of the first reaches what is asked
// for, and then the number of the last makes no difference. A root may come twice.
func (r *Repo) eachTips(ctx context.Context, c Caller, fn func(tipSet) (done bool, err error)) error {
	readable := readableNames(c.Policy)
	head := nameRanges{nameItself(string(r.head()))}
	if done, err := r.tipsOf(ctx, readable.and(head), fn); done || err != nil {
		return err
	}
	if done, err := r.tipsOf(ctx, readable.without(head).without(hiddenNames), fn); done || err != nil {
		return err
	}
	if !c.Policy.RestrictsReads() {
		pins, err := r.pinsNow(ctx)
		if err != nil {
			return err
		}
		var t tipSet
		for _, p := range pins {
			if t.commits = append(t.commits, p.OID); strings.HasPrefix(p.Holder, snapshotHolder) {
				t.states = append(t.states, p.OID)
			}
		}
		if done, err := fn(t); done || err != nil {
			return err
		}
	}
	_, err := r.tipsOf(ctx, readable.and(hiddenNames), fn)
	return err
}

// tipsOf calls fn with what refs point at, page by page. No view is held meanwhile.
func (r *Repo) tipsOf(ctx context.Context, names nameRanges, fn func(tipSet) (done bool, err error)) (done bool, err error) {
	for len(names) > 0 && !done {
		items, left, err := r.peekItems(ctx, names)
		if err != nil {
			return false, fmt.Errorf("read tips: %w", err)
		}
		t, err := r.tipsIn(ctx, items)
		if err != nil {
			return false, err
		}
		if done, err = fn(t); err != nil {
			return false, err
		}
		names = left
	}
	return done, nil
}

// peekItems reads a page of refs that may still be on their way to the disk.
func (r *Repo) peekItems(ctx context.Context, names nameRanges) ([]ledger.Item, nameRanges, error) {
	v, err := r.ledger.Peek(ctx, r.space)
	if err != nil {
		return nil, nil, err
	}
	defer v.Close()
	return nextItems(ctx, v, refKeys, names, ledger.BulkKeys)
}

// tipsIn sorts out what refs point at. A branch is at a commit: the door sees to it.
func (r *Repo) tipsIn(ctx context.Context, items []ledger.Item) (t tipSet, err error) {
	seen := map[refpolicy.OID]bool{}
	for _, it := range items {
		ref, err := decodeRef(refpolicy.RefName(it.Key[len(refKeys):]), it.Value)
		if err != nil {
			return tipSet{}, err
		}
		if seen[ref.OID] {
			continue
		}
		seen[ref.OID] = true
		typ := CommitObject
		if !ref.Name.IsBranch() && !ref.Name.IsEphemeralBranch() {
			if typ, _, err = r.header(ctx, ref.OID); err != nil {
				return tipSet{}, fmt.Errorf("read tip of %s: %w", ref.Name, err)
			}
		}
		if typ == CommitObject {
			if t.commits = append(t.commits, ref.OID); ref.Name.IsState() {
				t.states = append(t.states, ref.OID)
			}
			continue
		}
		t.others = append(t.others, ref.OID)
		if typ == TagObject && !ref.Peeled.IsZero() && !seen[ref.Peeled] {
			if pt, _, err := r.header(ctx, ref.Peeled); err == nil && pt == CommitObject {
				seen[ref.Peeled] = true
				t.commits = append(t.commits, ref.Peeled)
			}
		}
	}
	return t, nil
}

// nearReachable asks the cheap questions: is the commit a tip or pinned, is it an
// ancestor of the ref it came in by.
func (r *Repo) nearReachable(ctx context.Context, c Caller, commit refpolicy.OID) (bool, error) {
	v, err := r.ledger.Peek(ctx, r.space)
	if err != nil {
		return false, err
	}
	defer v.Close()
	if ok, err := isTip(ctx, v, readableNames(c.Policy), commit); ok || err != nil {
		return ok, err
	}
	if !c.Policy.RestrictsReads() { // a pin says nothing of which refs reached what it holds
		if ok, err := r.pinned(ctx, v, commit); ok || err != nil {
			return ok, err
		}
	}
	return r.onBirthRef(ctx, v, c, commit)
}

// isTip reports whether one of the named refs is at an object.
func isTip(ctx context.Context, v ledger.View, names nameRanges, oid refpolicy.OID) (bool, error) {
	for _, err := range namedItems(ctx, v, tipPrefix(oid), names, 1) {
		return err == nil, err
	}
	return false, nil
}

// onBirthRef reports whether the ref by which a commit came in is the caller's to read
// and still reaches it.
func (r *Repo) onBirthRef(ctx context.Context, v ledger.View, c Caller, commit refpolicy.OID) (bool, error) {
	got, err := v.GetMany(ctx, bornKey(commit))
	if err != nil || got[0] == nil {
		return false, err
	}
	name := refpolicy.RefName(got[0])
	if !c.Policy.CanRead(name) {
		return false, nil
	}
	got, err = v.GetMany(ctx, refKey(name))
	if err != nil || got[0] == nil {
		return false, err
	}
	rec, err := decodeRefRecord(got[0])
	if err != nil {
		return false, err
	}
	ok, err := graph{r, noFresh}.reaches(ctx, []refpolicy.OID{rec.oid}, commit)
	if errors.Is(err, ErrObjectNotFound) {
		return false, nil // what the commit builds on has been pruned, so nothing readable reaches it
	}
	return ok, err
}

// reachedByTips walks from everything the caller may read until it meets the commit.
func (r *Repo) reachedByTips(ctx context.Context, g graph, c Caller, commit refpolicy.OID) (reached bool, err error) {
	s := approach{g: g, target: commit}
	err = r.eachTips(ctx, c, func(t tipSet) (bool, error) {
		reached, err = s.from(ctx, t.commits)
		return reached, err
	})
	if errors.Is(err, ErrObjectNotFound) {
		return false, nil // what the commit builds on has been pruned, so nothing readable reaches it
	}
	return reached, err
}

// reachedByRefs reports whether any ref at all reaches a stored commit. A pin does not count.
func (r *Repo) reachedByRefs(ctx context.Context, commit refpolicy.OID) (bool, error) {
	v, err := r.ledger.Peek(ctx, r.space)
	if err != nil {
		return false, err
	}
	defer v.Close()
	if ok, err := isTip(ctx, v, allNames, commit); ok || err != nil {
		return ok, err
	}
	if ok, err := r.onBirthRef(ctx, v, Caller{}, commit); ok || err != nil {
		return ok, err
	}
	s, reached := approach{g: graph{r, noFresh}, target: commit}, false
	_, err = r.tipsOf(ctx, allNames.without(hiddenNames), func(t tipSet) (bool, error) {
		reached, err = s.from(ctx, t.commits)
		return reached, err
	})
	if errors.Is(err, ErrObjectNotFound) {
		return false, nil
	}
	return reached, err
}

// storedAmong are those of the objects that the repo has. The hot tier is read first:
// an object leaves it only after its pack was registered.
func (r *Repo) storedAmong(ctx context.Context, ids []refpolicy.OID) (stored []refpolicy.OID, err error) {
	var cold []refpolicy.OID
	for chunk := range slices.Chunk(ids, ledger.BulkKeys) {
		keys := make([]string, len(chunk))
		for n, oid := range chunk {
			keys[n] = hotKey(oid)
		}
		values, err := r.ledger.PeekKeys(ctx, r.space, keys...)
		if err != nil {
			return nil, err
		}
		for n, value := range values {
			if value != nil {
				stored = append(stored, chunk[n])
			} else {
				cold = append(cold, chunk[n])
			}
		}
	}
	if len(cold) == 0 {
		return stored, nil
	}
	if err := r.loadPacks(ctx); err != nil {
		return nil, err
	}
	for _, oid := range cold {
		p, err := r.packWith(oid)
		for try := 1; errors.Is(err, packs.ErrPackMissing) && try < listTries; try++ { // replaced meanwhile
			if err := r.loadPacks(ctx); err != nil {
				return nil, err
			}
			p, err = r.packWith(oid)
		}
		if err != nil {
			return nil, err
		}
		if p != nil {
			p.Release()
			stored = append(stored, oid)
		}
	}
	return stored, nil
}

// refTips are the commits that all refs are at.
func (r *Repo) refTips(ctx context.Context) (commits []refpolicy.OID, err error) {
	_, err = r.tipsOf(ctx, allNames, func(t tipSet) (bool, error) {
		commits = append(commits, t.commits...)
		return false, nil
	})
	return commits, err
}
