package gitstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/headgate/headgate/refpolicy"
)

const (
	// MaxComparedPaths is how many paths a comparison of tips tells of.
	MaxComparedPaths = 10_000
	// maxCompared bounds paths times tips, so that many tips have fewer paths.
	maxCompared = 1 << 20
)

// A TipComparison tells what several tips made of one base.
type TipComparison struct {
	Paths     []PathComparison // in byte order of the paths
	Truncated bool             // there are more paths than were told
}

// A PathComparison is a file's, link's or submodule's path that at least one tip
// changed, with what the base and each tip have there.
type PathComparison struct {
	Path string
	Base PathState
	Tips []PathState // in the order of the tips
}

// PathState is what a commit has at a path; the zero PathState is nothing, or a folder.
type PathState struct {
	OID  refpolicy.OID
	Mode Mode
}

// CompareTips tells which paths the tips changed against base, and to what: commits
// that the caller may read. A path that no tip changed is left out; of those that are
// too many the first ones are told. Errors: ErrObjectNotFound.
func (r *Repo) CompareTips(ctx context.Context, c Caller, base refpolicy.OID, tips []refpolicy.OID) (TipComparison, error) {
	missing, ok, err := r.firstUnreadable(ctx, c, append([]refpolicy.OID{base}, tips...))
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s", ErrObjectNotFound, missing)
	}
	if err != nil {
		return TipComparison{}, fmt.Errorf("compare tips: %w", err)
	}
	found, err := r.compareTips(ctx, base, tips, min(MaxComparedPaths, maxCompared/max(len(tips), 1)))
	if err != nil {
		return TipComparison{}, fmt.Errorf("compare tips: %w", err)
	}
	return found, nil
}

func (r *Repo) compareTips(ctx context.Context, base refpolicy.OID, tips []refpolicy.OID, limit int) (TipComparison, error) {
	g := graph{r, noFresh}
	b, err := g.commit(ctx, base)
	if err != nil {
		return TipComparison{}, err
	}
	t := tipMatrix{limit: limit, rows: map[string]*tipRow{}}
	for n, tip := range tips {
		h, err := g.commit(ctx, tip)
		if err != nil {
			return TipComparison{}, err
		}
		err = r.stepTrees(ctx, "", b.tree, h.tree, 0, t.adder(n))
		if err != nil && !errors.Is(err, errEnough) {
			return TipComparison{}, err
		}
		t.cut()
	}
	return t.told(len(tips)), nil
}

// tipMatrix gathers changes tip by tip, so that memory holds two trees and the paths
// to be told, however many tips there are.
type tipMatrix struct {
	limit     int
	rows      map[string]*tipRow
	truncated bool
	last      string // of what is told, once it is truncated
}

type tipRow struct {
	base    PathState
	changed map[int]PathState // by tip
}

// errEnough: what follows in a walk in order of the paths will not be told.
var errEnough = errors.New("enough paths")

// adder takes what tip n changed, in order of the paths.
func (t *tipMatrix) adder(n int) func(path string, before, after treeEntry) error {
	taken := 0
	return func(path string, before, after treeEntry) error {
		if t.truncated && path > t.last {
			return errEnough
		}
		row := t.rows[path]
		if row == nil {
			row = &tipRow{base: PathState{before.oid, before.mode}, changed: map[int]PathState{}}
			t.rows[path] = row
		}
		row.changed[n] = PathState{after.oid, after.mode}
		if taken++; taken > t.limit {
			return errEnough
		}
		return nil
	}
}

// cut lets go of the paths that are too many: no earlier one can come to be told no more.
func (t *tipMatrix) cut() {
	if len(t.rows) <= t.limit {
		return
	}
	paths := slices.Sorted(maps.Keys(t.rows))
	for _, p := range paths[t.limit:] {
		delete(t.rows, p)
	}
	t.truncated, t.last = true, ""
	if t.limit > 0 {
		t.last = paths[t.limit-1]
	}
}

func (t *tipMatrix) told(tips int) TipComparison {
	found := TipComparison{Truncated: t.truncated, Paths: make([]PathComparison, 0, len(t.rows))}
	for _, path := range slices.Sorted(maps.Keys(t.rows)) {
		row := t.rows[path]
		p := PathComparison{Path: path, Base: row.base, Tips: make([]PathState, tips)}
		for n := range p.Tips {
			p.Tips[n] = row.base
			if state, ok := row.changed[n]; ok {
				p.Tips[n] = state
			}
		}
		found.Paths = append(found.Paths, p)
	}
	return found
}

// stepTrees calls differs, in byte order of the paths, with what stands at each path
// of two trees where it is not the same: the zero entry for nothing. Either tree may
// be the zero id, for none. Equal trees are not read. An error of differs ends it.
func (r *Repo) stepTrees(ctx context.Context, prefix string, before, after refpolicy.OID, depth int, differs func(path string, before, after treeEntry) error) error {
	if before == after {
		return nil
	}
	if depth > maxTreeDepth {
		return fmt.Errorf("%w: trees nested over %d deep", ErrBadObject, maxTreeDepth)
	}
	old, err := r.treeEntries(ctx, before)
	if err != nil {
		return err
	}
	now, err := r.treeEntries(ctx, after)
	if err != nil {
		return err
	}
	for len(old) > 0 || len(now) > 0 {
		var a, b treeEntry
		order := 0
		switch {
		case len(old) == 0:
			order = 1
		case len(now) == 0:
			order = -1
		default:
			order = compareEntries(old[0], now[0])
		}
		if order <= 0 {
			a, old = old[0], old[1:]
		}
		if order >= 0 {
			b, now = now[0], now[1:]
		}
		switch {
		case a == b:
		case a.isTree() || b.isTree(): // in git's order a folder only ever meets a folder
			err = r.stepTrees(ctx, prefix+max(a.name, b.name)+"/", a.oid, b.oid, depth+1, differs)
		default:
			err = differs(prefix+max(a.name, b.name), a, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
