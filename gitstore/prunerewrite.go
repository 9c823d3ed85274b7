package gitstore

import (
	"context"
	"io"

	"github.com/headgate/headgate/refpolicy"
)

// replacePacks writes what is needed of the packs that hold dead objects into new
// ones and swaps them.
func (p *pruning) replacePacks(ctx context.Context) (err error) {
	rewrite, s := p.choose()
	if len(rewrite) == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			s.drop(ctx, p.r, err)
		}
	}()
	for _, kind := range kindsOf(s.old) {
		if err := p.rewriteKind(ctx, s, kind, rewrite); err != nil {
			return err
		}
	}
	if err := s.apply(ctx, p.r); err != nil {
		return err
	}
	p.swapped = true
	p.report.Condemned, p.report.Written = len(s.old), len(s.new)
	for _, pack := range rewrite {
		p.report.Bytes += pack.Size()
	}
	return p.forgetDead(ctx, rewrite)
}

// rewriteKind writes what is needed of the packs of one kind, large blobs into a pack
// of their own.
func (p *pruning) rewriteKind(ctx context.Context, s *swap, kind string, rewrite []*markedPack) error {
	large := map[refpolicy.OID]bool{}
	for _, pack := range rewrite {
		if pack.rec.Kind != kind || kind == kindBlobs || kind == kindSnapshot {
			continue
		}
		ids, err := pack.LargeBlobs(bigBlob)
		if err != nil {
			return err
		}
		for _, oid := range ids {
			large[oid] = true
		}
	}
	for _, part := range []struct {
		kind  string
		large bool
	}{{kindBlobs, true}, {kind, false}} {
		if part.large && len(large) == 0 {
			continue
		}
		pick := func(oid refpolicy.OID) bool { return large[oid] == part.large }
		made, ok, err := p.r.gitPack(ctx, packJob{kind: part.kind, feed: func(w io.Writer) error { return p.survivors(w, kind, rewrite, pick) }})
		if err != nil {
			return err
		}
		if ok {
			s.new = append(s.new, made)
			p.report.Bytes -= made.Size
		}
	}
	return nil
}

// choose finds the packs worth rewriting: candidates with dead objects, without all
// at least one in deadShare.
func (p *pruning) choose() (rewrite []*markedPack, s *swap) {
	s = &swap{gen: p.gen}
	for _, pack := range p.marks.packs {
		dead := 0
		if pack.old {
			for i := range pack.Count() {
				if !p.marks.marked(pack.OID(i)) {
					dead++
				}
			}
		}
		l := livePack{pack.Name(), pack.rec, pack.raw}
		if dead > 0 && (p.all || dead*deadShare >= pack.Count()) {
			rewrite, s.old = append(rewrite, pack), append(s.old, l)
			p.report.Dead += dead
			continue
		}
		s.lean = append(s.lean, l)
	}
	return rewrite, s
}

// deadShare is the part of a pack's objects, one in so many, that must be dead before
// it is rewritten without being asked to.
const deadShare = 8

func kindsOf(list []livePack) []string {
	var kinds []string
	seen := map[string]bool{}
	for _, p := range list {
		if !seen[p.rec.Kind] {
			seen[p.rec.Kind] = true
			kinds = append(kinds, p.rec.Kind)
		}
	}
	return kinds
}

// survivors names the needed objects of the packs of one kind that are rewritten and
// that pick takes, each once, but for those that a pack which stays holds too.
func (p *pruning) survivors(w io.Writer, kind string, rewrite []*markedPack, pick func(refpolicy.OID) bool) error {
	goes := map[*markedPack]bool{}
	for _, pack := range rewrite {
		goes[pack] = true
	}
	line := make([]byte, 0, 41)
	for _, pack := range rewrite {
		if pack.rec.Kind != kind {
			continue
		}
		for i := range pack.Count() {
			oid := pack.OID(i)
			if !pick(oid) || !p.marks.marked(oid) || !p.movesFrom(pack, oid, goes) {
				continue
			}
			line = append(append(line[:0], oid.String()...), '\n')
			if _, err := w.Write(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// movesFrom reports whether a needed object is to be copied out of pack: none of the
// packs that stay holds it, and pack is the first of those that go.
func (p *pruning) movesFrom(pack *markedPack, oid refpolicy.OID, goes map[*markedPack]bool) bool {
	first, moves := true, true
	p.marks.holders(oid, func(other *markedPack) bool {
		if other == pack {
			first = false
		} else if (first || !goes[other]) && other.Has(oid) {
			moves = false
		}
		return moves
	})
	return moves
}
