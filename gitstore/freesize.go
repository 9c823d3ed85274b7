package gitstore

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// size adds up the commits that are the ref's alone, with what they brought.
func (f *freeing) size(ctx context.Context, tags []link) (int64, error) {
	s := brought{r: f.r, kept: map[refpolicy.OID]bool{}, own: map[refpolicy.OID]bool{}}
	var own []commitHeader
	for _, oid := range f.own {
		if f.w.paint[oid]&paintTarget != 0 || s.own[oid] {
			continue
		}
		h, err := f.w.g.commit(ctx, oid)
		if err != nil {
			return 0, err
		}
		s.own[oid], own = true, append(own, h)
	}
	if len(own) == 0 {
		return 0, nil
	}
	edge, err := f.edge(ctx, own, s.own)
	if err != nil {
		return 0, err
	}
	for _, t := range edge {
		if err := s.keep(ctx, t); err != nil {
			return 0, err
		}
	}
	for _, h := range own {
		parents, err := f.trees(ctx, h, func(p refpolicy.OID) bool { return s.own[p] })
		if err == nil {
			err = s.bring(ctx, h.tree, append(parents, edge...), 0)
		}
		if err != nil {
			return 0, err
		}
	}
	for _, t := range tags {
		s.own[t.oid] = true
	}
	return s.size(ctx)
}

// edge are the trees of the commits that stay and that the ref's own build on.
func (f *freeing) edge(ctx context.Context, own []commitHeader, isOwn map[refpolicy.OID]bool) (trees []refpolicy.OID, err error) {
	seen := map[refpolicy.OID]bool{}
	for _, h := range own {
		more, err := f.trees(ctx, h, func(p refpolicy.OID) bool {
			first := !isOwn[p] && !seen[p]
			seen[p] = true
			return first
		})
		if err != nil {
			return nil, err
		}
		trees = append(trees, more...)
	}
	return trees, nil
}

// trees are those of the wanted ones of a commit's parents.
func (f *freeing) trees(ctx context.Context, h commitHeader, wanted func(refpolicy.OID) bool) (trees []refpolicy.OID, err error) {
	for _, p := range h.parents {
		if !wanted(p) {
			continue
		}
		ph, err := f.w.g.commit(ctx, p)
		if err != nil {
			return nil, err
		}
		trees = append(trees, ph.tree)
	}
	return trees, nil
}

// maxKept bounds how many objects of the states that stay are remembered. Beyond it
// what moved to another path counts as brought.
const maxKept = 20_000

// brought gathers objects that commits brought.
type brought struct {
	r    *Repo
	kept map[refpolicy.OID]bool // what the states that stay consist of
	own  map[refpolicy.OID]bool
}

// keep remembers what a tree consists of.
func (b *brought) keep(ctx context.Context, tree refpolicy.OID) error {
	for stack := []refpolicy.OID{tree}; len(stack) > 0; {
		tree, stack = stack[len(stack)-1], stack[:len(stack)-1]
		if b.kept[tree] || len(b.kept) >= maxKept {
			continue
		}
		b.kept[tree] = true
		entries, err := b.r.treeEntries(ctx, tree)
		if err != nil {
			return err
		}
		for _, e := range entries {
			switch {
			case e.mode == ModeSubmodule:
			case e.isTree():
				stack = append(stack, e.oid)
			case len(b.kept) < maxKept:
				b.kept[e.oid] = true
			}
		}
	}
	return nil
}

// bring adds what a tree has and none of the trees beside it has at the same place.
func (b *brought) bring(ctx context.Context, tree refpolicy.OID, beside []refpolicy.OID, depth int) error {
	if b.kept[tree] || b.own[tree] || tree == emptyTree {
		return nil
	}
	for _, t := range beside {
		if t == tree {
			return nil
		}
	}
	if depth > maxTreeDepth {
		return fmt.Errorf("%w: trees nested over %d deep", ErrBadObject, maxTreeDepth)
	}
	b.own[tree] = true
	entries, err := b.r.treeEntries(ctx, tree)
	if err != nil {
		return err
	}
	p := proof{g: graph{b.r, noFresh}}
	old, err := p.entriesOf(ctx, beside)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.mode == ModeSubmodule || b.kept[e.oid] {
			continue
		}
		var below []refpolicy.OID
		same := false
		for _, o := range old[e.name] {
			same = same || o.oid == e.oid
			if o.isTree() {
				below = append(below, o.oid)
			}
		}
		switch {
		case same:
		case e.isTree():
			err = b.bring(ctx, e.oid, below, depth+1)
		default:
			b.own[e.oid] = true
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// size adds up the entries of what was brought, in packs or hot.
func (b *brought) size(ctx context.Context) (sum int64, err error) {
	for oid := range b.own {
		n, err := b.r.storedSize(ctx, oid)
		if err != nil {
			return 0, fmt.Errorf("size of %s: %w", oid, err)
		}
		sum += n
	}
	return sum, nil
}

// storedSize is how many bytes an object takes as an entry of a pack, or hot.
func (r *Repo) storedSize(ctx context.Context, oid refpolicy.OID) (size int64, err error) {
	err = r.locate(ctx, oid, func(p *packs.Pack, h hotObject) (err error) {
		if p == nil {
			size = int64(len(packs.AppendHead(nil, packs.Type(h.typ), h.size)) + len(h.zdata))
			return nil
		}
		size, err = p.StoredSize(oid)
		return err
	})
	return size, err
}
