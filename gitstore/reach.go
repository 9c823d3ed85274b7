package gitstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/refpolicy"
)

// reachable reports whether the caller may build on a commit it names by id:
// whether a ref it may read reaches the commit. What does not exist is not reachable.
func (r *Repo) reachable(ctx context.Context, c Caller, commit refpolicy.OID) (bool, error) {
	near, err := r.nearReachable(ctx, c, commit)
	if near || err != nil {
		return near, err
	}
	return r.reachedByTips(ctx, graph{r, noFresh}, c, commit)
}

// proof shows that everything a write's new objects refer to is new as well, or
// reachable from a ref its caller may read. Existence proves nothing: a tree that
// merely names another session's blob must not make it readable.
type proof struct {
	r    *Repo
	c    Caller
	g    graph
	seen map[refpolicy.OID]bool // new commits, trees and tags that were looked into
	// need holds what is still to be shown, with the kind it must be; 0 is any.
	need    map[refpolicy.OID]ObjectType
	known   map[refpolicy.OID]ObjectType // stored objects that were proved readable
	parents []refpolicy.OID              // the commits among them
	depth   int                          // of the tree being walked
	vouched bool                         // trees are not looked into
}

// link is an object that a tip, tag or commit names, and as what; 0 is any kind.
type link struct {
	oid refpolicy.OID
	as  ObjectType
}

// maxTreeDepth bounds how deep folders may nest, as git's core.maxTreeDepth does.
const maxTreeDepth = 2048

// prove proves all new objects that the tips reach, and bases: stored objects that
// the pack's deltas were made against.
func (r *Repo) prove(ctx context.Context, c Caller, fresh freshObjects, tips, bases []refpolicy.OID) error {
	return newProof(r, c, fresh).inTime(ctx, tips, bases)
}

func newProof(r *Repo, c Caller, fresh freshObjects) *proof {
	return &proof{
		r: r, c: c, g: graph{r, fresh}, seen: map[refpolicy.OID]bool{},
		need: map[refpolicy.OID]ObjectType{}, known: map[refpolicy.OID]ObjectType{},
	}
}

// inTime is run, for as long as a proof may take.
func (p *proof) inTime(ctx context.Context, tips, bases []refpolicy.OID) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.r.store.limits.ProofTimeout, ErrProofTimeout)
	defer cancel()
	err := p.run(ctx, tips, bases)
	if err != nil && errors.Is(context.Cause(ctx), ErrProofTimeout) {
		return ErrProofTimeout
	}
	return err
}

func (p *proof) run(ctx context.Context, tips, bases []refpolicy.OID) error {
	for _, b := range bases {
		p.need[b] = 0
	}
	commits, err := p.walkTips(ctx, tips)
	if err != nil {
		return err
	}
	// Oldest first, so that a new parent's own entries are proved before its child leans on them.
	for i := len(commits) - 1; i >= 0 && !p.vouched; i-- {
		if err := p.stepCommit(ctx, commits[i]); err != nil {
			return err
		}
	}
	return p.settleNeeds(ctx)
}

// walkTips follows tags and new commits and proves the stored commits they build
// on. It returns the new commits, children before parents.
func (p *proof) walkTips(ctx context.Context, tips []refpolicy.OID) ([]refpolicy.OID, error) {
	var order []refpolicy.OID
	stack := make([]link, len(tips))
	for n, oid := range tips {
		stack[n].oid = oid
	}
	for len(stack) > 0 {
		l := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		typ, ok, err := p.g.fresh.typeOf(l.oid)
		if err != nil {
			return nil, err
		}
		if !ok {
			if err := p.stored(ctx, l); err != nil {
				return nil, err
			}
			continue
		}
		if l.as != 0 && l.as != typ {
			return nil, wrongKind(l, typ)
		}
		if p.seen[l.oid] {
			continue
		}
		next, err := p.linksOf(ctx, l.oid, typ)
		if err != nil {
			return nil, err
		}
		if typ == CommitObject {
			order = append(order, l.oid)
		}
		stack = append(stack, next...)
	}
	return topological(order, p), nil
}

func wrongKind(l link, typ ObjectType) error {
	return fmt.Errorf("%w: %s is a %s where a %s is named", ErrBadObject, l.oid, typ, l.as)
}

// linksOf is what a new tip, tag or commit leads to besides its trees.
func (p *proof) linksOf(ctx context.Context, oid refpolicy.OID, typ ObjectType) ([]link, error) {
	switch typ {
	case TreeObject:
		return nil, p.stepTree(ctx, oid, nil)
	case BlobObject:
		return nil, nil
	}
	p.seen[oid] = true
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o, _, err := p.g.fresh.lookup(oid)
	if err != nil {
		return nil, err
	}
	if typ == TagObject {
		t, err := parseTag(o.data)
		return []link{{t.object, t.typ}}, err
	}
	h, _, err := parseCommitHeader(o.data)
	links := make([]link, len(h.parents))
	for n, q := range h.parents {
		links[n] = link{q, CommitObject}
	}
	return links, err
}

// topological puts children before parents; order holds each new commit once.
func topological(order []refpolicy.OID, p *proof) []refpolicy.OID {
	parents := map[refpolicy.OID][]refpolicy.OID{}
	children := map[refpolicy.OID]int{}
	for _, oid := range order {
		o, _, _ := p.g.fresh.lookup(oid)
		h, _, _ := parseCommitHeader(o.data)
		parents[oid] = h.parents
		for _, q := range h.parents {
			children[q]++
		}
	}
	var ready, out []refpolicy.OID
	for _, oid := range order {
		if children[oid] == 0 {
			ready = append(ready, oid)
		}
	}
	for len(ready) > 0 {
		oid := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		out = append(out, oid)
		for _, q := range parents[oid] {
			if children[q]--; children[q] == 0 && parents[q] != nil {
				ready = append(ready, q)
			}
		}
	}
	return out
}

// stored proves an object of the store that a tip, tag or new commit names, or
// leaves it to settleNeeds. Nothing it does before an object is proved depends on
// whether and as what the object exists, but the time it takes.
func (p *proof) stored(ctx context.Context, l link) error {
	typ, ok := p.known[l.oid]
	if _, needed := p.need[l.oid]; !ok && !needed {
		var err error
		if typ, ok, err = p.near(ctx, l.oid); err != nil {
			return err
		}
	}
	switch {
	case !ok:
		return p.require(l.oid, l.as)
	case l.as != 0 && l.as != typ:
		return wrongKind(l, typ)
	case p.known[l.oid] == 0 && typ == CommitObject:
		p.parents = append(p.parents, l.oid)
	}
	p.known[l.oid] = typ
	return nil
}

// near proves tips, and commits by history alone.
func (p *proof) near(ctx context.Context, oid refpolicy.OID) (ObjectType, bool, error) {
	typ, _, err := p.r.header(ctx, oid)
	if errors.Is(err, ErrObjectNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	ok, err := p.r.nearReachable(ctx, p.c, oid)
	if ok || err != nil || typ != CommitObject {
		return typ, ok, err
	}
	ok, err = p.r.reachedByTips(ctx, p.g, p.c, oid)
	return typ, ok, err
}

// stepCommit walks a new commit's tree in step with its parents' trees.
func (p *proof) stepCommit(ctx context.Context, oid refpolicy.OID) error {
	h, err := p.g.commit(ctx, oid)
	if err != nil {
		return err
	}
	var beside []refpolicy.OID
	for _, q := range h.parents {
		if _, needed := p.need[q]; needed {
			continue // not proved yet, so nothing may lean on it
		}
		ph, err := p.g.commit(ctx, q)
		if err != nil {
			return err
		}
		beside = append(beside, ph.tree)
	}
	return p.stepTree(ctx, h.tree, beside)
}

// stepTree proves a tree's entries: unchanged at its place in a parent, new, or
// left to settleNeeds.
func (p *proof) stepTree(ctx context.Context, tree refpolicy.OID, beside []refpolicy.OID) error {
	for _, b := range beside {
		if b == tree {
			return nil
		}
	}
	o, ok, err := p.g.fresh.lookup(tree)
	if err != nil {
		return err
	}
	if !ok {
		if tree != emptyTree {
			return p.require(tree, TreeObject)
		}
		return nil
	}
	if o.typ != TreeObject {
		return fmt.Errorf("%w: %s is a %s where a tree is named", ErrBadObject, tree, o.typ)
	}
	if p.seen[tree] {
		return nil
	}
	p.seen[tree] = true
	if p.depth++; p.depth > maxTreeDepth {
		return fmt.Errorf("%w: trees nested over %d deep", ErrBadObject, maxTreeDepth)
	}
	defer func() { p.depth-- }()
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := parseTree(o.data)
	if err != nil {
		return err
	}
	old, err := p.entriesOf(ctx, beside)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := p.stepEntry(ctx, e, old[e.name]); err != nil {
			return err
		}
	}
	return nil
}

func (p *proof) stepEntry(ctx context.Context, e treeEntry, old []treeEntry) error {
	if e.mode == ModeSubmodule {
		return nil
	}
	var below []refpolicy.OID
	for _, o := range old {
		if o.oid == e.oid && o.isTree() == e.isTree() && o.mode != ModeSubmodule {
			return nil
		}
		if o.isTree() {
			below = append(below, o.oid)
		}
	}
	if e.isTree() {
		return p.stepTree(ctx, e.oid, below)
	}
	typ, ok, err := p.g.fresh.typeOf(e.oid)
	if err != nil {
		return err
	}
	if !ok {
		return p.require(e.oid, BlobObject)
	}
	if typ != BlobObject {
		return fmt.Errorf("%w: %s is a %s where a blob is named", ErrBadObject, e.oid, typ)
	}
	return nil
}

// entriesOf reads the parents' trees at one place, by name.
func (p *proof) entriesOf(ctx context.Context, trees []refpolicy.OID) (map[string][]treeEntry, error) {
	m := map[string][]treeEntry{}
	for _, t := range trees {
		o, err := p.g.object(ctx, t)
		if err != nil {
			return nil, err
		}
		entries, err := parseTree(o.data)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			m[e.name] = append(m[e.name], e)
		}
	}
	return m, nil
}

func (p *proof) require(oid refpolicy.OID, t ObjectType) error {
	old := p.need[oid]
	if old != 0 && t != 0 && old != t {
		return fmt.Errorf("%w: %s is named as a %s and as a %s", ErrBadObject, oid, old, t)
	}
	p.need[oid] = max(old, t)
	return nil
}
