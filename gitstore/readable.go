package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	tips, err := r.readableTips(ctx, c)
	if err != nil {
		return err
	}
	g := graph{r, noFresh}
	if len(commits) > 0 {
		err := g.meet(ctx, tips.commits, func(oid refpolicy.OID) bool {
			if _, wanted := commits[oid]; wanted {
				readable[oid] = true
				delete(commits, oid)
			}
			return len(commits) > 0
		})
		if err != nil {
			return fmt.Errorf("walk readable history: %w", err)
		}
	}
	if len(others) == 0 {
		return nil
	}
	for oid := range others {
		readable[oid] = true
	}
	s := &search{p: &proof{r: r, c: c, g: g, need: others}, seen: map[refpolicy.OID]bool{}}
	if err := s.everything(ctx, tips); err != nil {
		return fmt.Errorf("walk readable objects: %w", err)
	}
	for oid := range others { // what is left was not met
		readable[oid] = false
	}
	return nil
}

// meet calls visit with every commit that the tips reach, newest first, until it says false.
func (g graph) meet(ctx context.Context, tips []refpolicy.OID, visit func(refpolicy.OID) bool) error {
	w := walk{g: g, paint: map[refpolicy.OID]uint8{}}
	for _, oid := range tips {
		if err := w.add(ctx, oid, paintTip); err != nil {
			return err
		}
	}
	for w.live > 0 {
		c, _ := w.pop()
		if !visit(c.oid) {
			return nil
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

// readScopes gives prefixes of stored names beyond which a token reads nothing, so
// that a session's token does not cost a walk over all sessions' refs. limited is
// false if there are none. Names below them are still to be asked for one by one.
func readScopes(p *refpolicy.Policy) (prefixes []string, limited bool) {
	for _, rule := range p.Rules() {
		pattern := refpolicy.Pattern(rule.Pattern)
		closed := slices.Contains(rule.Ops, refpolicy.NoRead)
		if pattern == refpolicy.Any {
			return prefixes, closed
		}
		if !closed {
			prefixes = append(prefixes, strings.TrimSuffix(rule.Pattern, "*"))
		}
	}
	return nil, false
}

// narrowed gives the prefixes of what begins with one of both lists: sorted, and
// none begins another.
func narrowed(a, b []string) []string {
	var both []string
	for _, p := range a {
		for _, q := range b {
			switch {
			case strings.HasPrefix(q, p):
				both = append(both, q)
			case strings.HasPrefix(p, q):
				both = append(both, p)
			}
		}
	}
	slices.Sort(both)
	kept := both[:0]
	for _, p := range both {
		if len(kept) == 0 || !strings.HasPrefix(p, kept[len(kept)-1]) {
			kept = append(kept, p)
		}
	}
	return kept
}
