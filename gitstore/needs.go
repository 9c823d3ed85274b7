package gitstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/refpolicy"
)

// settleNeeds looks for what the steps did not prove: first in the whole trees of
// the commits that were built on, then in their history, then in everything the
// caller may read.
func (p *proof) settleNeeds(ctx context.Context) error {
	if len(p.need) == 0 {
		return nil
	}
	if !p.c.Policy.RestrictsReads() { // it may be told at once what does not exist
		for oid := range p.need {
			ok, err := p.r.exists(ctx, oid)
			if err != nil {
				return err
			}
			if !ok {
				return ErrUnreachable
			}
		}
	}
	s := newSearch(p)
	for _, q := range p.parents {
		if err := s.commitTree(ctx, q); err != nil || len(p.need) == 0 {
			return err
		}
	}
	// What a revert brings back is mostly in the history that it goes on.
	if done, err := s.everything(ctx, tipSet{commits: p.parents}); done || err != nil {
		return err
	}
	err := p.r.eachTips(ctx, p.c, func(t tipSet) (bool, error) { return s.everything(ctx, t) })
	if err == nil && len(p.need) > 0 {
		err = ErrUnreachable
	}
	return err
}

// search walks stored trees and takes what it meets off the proof's needs.
type search struct {
	p    *proof
	seen map[refpolicy.OID]bool // trees, and states, whose trees are not walked
	walk walk                   // of commits; goes on with each set of tips
}

func newSearch(p *proof) *search {
	return &search{p: p, seen: map[refpolicy.OID]bool{}, walk: walk{g: p.g, paint: map[refpolicy.OID]uint8{}}}
}

func (s *search) found(oid refpolicy.OID, t ObjectType) {
	if want, ok := s.p.need[oid]; ok && (want == 0 || want == t) {
		delete(s.p.need, oid)
	}
}

// everything walks all that the tips reach, newest commits first, and is done when
// nothing is needed any more.
func (s *search) everything(ctx context.Context, tips tipSet) (done bool, err error) {
	for _, oid := range tips.others {
		if err := s.other(ctx, oid); err != nil || len(s.p.need) == 0 {
			return true, err
		}
	}
	for _, oid := range tips.states {
		s.seen[oid] = true
	}
	w := &s.walk
	for _, oid := range tips.commits {
		if err := w.add(ctx, oid, paintTip); err != nil {
			return false, err
		}
	}
	for w.live > 0 && len(s.p.need) > 0 {
		c, _ := w.pop()
		s.found(c.oid, CommitObject)
		if !s.seen[c.oid] {
			if err := s.tree(ctx, c.tree); err != nil {
				return false, err
			}
		}
		for _, q := range c.parents {
			if err := w.add(ctx, q, paintTip); err != nil {
				return false, err
			}
		}
	}
	return len(s.p.need) == 0, nil
}

// other walks a tip that is no commit: a tag and what it points at, a tree, a blob.
func (s *search) other(ctx context.Context, oid refpolicy.OID) error {
	typ, _, err := s.p.r.header(ctx, oid)
	if err != nil {
		return err
	}
	s.found(oid, typ)
	switch typ {
	case TreeObject:
		return s.tree(ctx, oid)
	case TagObject:
		data, err := s.p.r.typed(ctx, oid, TagObject)
		if err != nil {
			return err
		}
		t, err := parseTag(data)
		if err != nil || t.typ == CommitObject {
			return err
		}
		return s.other(ctx, t.object)
	}
	return nil
}

func (s *search) commitTree(ctx context.Context, oid refpolicy.OID) error {
	s.found(oid, CommitObject)
	h, err := s.p.g.commit(ctx, oid)
	if err != nil {
		return err
	}
	return s.tree(ctx, h.tree)
}

// tree walks a stored tree. Each push may set more folders on top of one that is
// stored already, so it keeps a stack of its own.
func (s *search) tree(ctx context.Context, root refpolicy.OID) error {
	stack := []refpolicy.OID{root}
	for len(stack) > 0 && len(s.p.need) > 0 {
		oid := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if s.seen[oid] {
			continue
		}
		s.seen[oid] = true
		if err := ctx.Err(); err != nil {
			return err
		}
		s.found(oid, TreeObject)
		data, err := s.p.r.typed(ctx, oid, TreeObject)
		if err != nil {
			return err
		}
		entries, err := parseTree(data)
		if err != nil {
			return err
		}
		for _, e := range entries {
			switch {
			case e.mode == ModeSubmodule:
			case e.isTree():
				stack = append(stack, e.oid)
			default:
				s.found(e.oid, BlobObject)
			}
		}
	}
	return nil
}

// readableObject reports whether the caller may fetch an object of any kind that
// it names by id. Without rules on reading existence is enough (rest.md 4).
func (r *Repo) readableObject(ctx context.Context, c Caller, oid refpolicy.OID) (bool, error) {
	if !c.Policy.RestrictsReads() {
		return r.exists(ctx, oid)
	}
	ok, err := r.nearReachable(ctx, c, oid)
	if ok || (err != nil && !errors.Is(err, ErrObjectNotFound)) {
		return ok, err
	}
	switch err := r.prove(ctx, c, noFresh, nil, []refpolicy.OID{oid}); {
	case errors.Is(err, ErrUnreachable):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("prove %s readable: %w", oid, err)
	}
	return true, nil
}
