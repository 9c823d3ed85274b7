package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/refpolicy"
)

// mergeBase is a remembered answer.
type mergeBase struct {
	oid refpolicy.OID
	ok  bool
}

// MergeBase is the best common ancestor of two commits; ok is false without one.
// Of several equally good ones it is the one that git merge-base prints.
func (r *Repo) MergeBase(ctx context.Context, a, b refpolicy.OID) (base refpolicy.OID, ok bool, err error) {
	key := [2]refpolicy.OID{a, b}
	if m, ok := r.store.readers.bases.get(key); ok {
		return m.oid, m.ok, nil
	}
	candidates, err := r.commonAncestors(ctx, a, b)
	if err != nil {
		return base, false, fmt.Errorf("find merge base: %w", err)
	}
	m := mergeBase{ok: len(candidates) > 0}
	switch {
	case len(candidates) == 1:
		m.oid = candidates[0]
	case len(candidates) > 1:
		if m.oid, m.ok, err = r.gitMergeBase(ctx, a, b); err != nil {
			return base, false, err
		}
	}
	r.store.readers.bases.put(key, m, 128)
	return m.oid, m.ok, nil
}

// commonAncestors lists common ancestors that are not known to be ancestors of
// others listed: all merge bases, and after skewed clocks perhaps more. A single one is the answer.
func (r *Repo) commonAncestors(ctx context.Context, a, b refpolicy.OID) ([]refpolicy.OID, error) {
	w := walk{g: graph{r, noFresh}, paint: map[refpolicy.OID]uint8{}}
	if err := w.add(ctx, a, paintTip); err != nil {
		return nil, err
	}
	if err := w.add(ctx, b, paintTarget); err != nil {
		return nil, err
	}
	var met []refpolicy.OID
	seen := map[refpolicy.OID]bool{}
	for w.live > 0 {
		c, flags := w.pop()
		if flags == paintTip|paintTarget {
			if !seen[c.oid] {
				seen[c.oid] = true
				met = append(met, c.oid)
			}
			flags |= paintStale
		}
		for _, p := range c.parents {
			if err := w.add(ctx, p, flags); err != nil {
				return nil, err
			}
		}
	}
	var best []refpolicy.OID
	for _, oid := range met {
		if w.paint[oid]&paintStale == 0 {
			best = append(best, oid)
		}
	}
	return best, nil
}

func (r *Repo) gitMergeBase(ctx context.Context, a, b refpolicy.OID) (base refpolicy.OID, ok bool, err error) {
	var out bytes.Buffer // one line
	err = r.runGit(ctx, gitcmd.Cmd{Args: []string{"merge-base", a.String(), b.String()}, Stdout: &out})
	var exit *gitcmd.ExitError
	if errors.As(err, &exit) && exit.Code == 1 {
		return base, false, nil
	}
	if err != nil {
		return base, false, fmt.Errorf("find merge base: %w", err)
	}
	base, err = refpolicy.ParseOID(string(bytes.TrimSpace(out.Bytes())))
	return base, err == nil, err
}
