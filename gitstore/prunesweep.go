package gitstore

import (
	"context"
	"errors"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// forgetDead takes out of the caches what has gone, and from the ledger by which ref
// dead commits came in. That is a hint only: where a push brings such a commit again
// in this very moment, its proof walks instead.
func (p *pruning) forgetDead(ctx context.Context, gone []*markedPack) error {
	var dead []refpolicy.OID
	for _, pack := range gone {
		for i := range pack.Count() {
			if oid := pack.OID(i); !p.marks.marked(oid) && p.named(pack, oid) {
				dead = append(dead, oid)
			}
			if len(dead) == ledger.BulkKeys/4 || i == pack.Count()-1 {
				if err := p.forget(ctx, dead); err != nil {
					return err
				}
				dead = dead[:0]
			}
		}
	}
	return nil
}

// named reports whether the ledger or a cache may know of a dead object by name. Of the
// many in packs of chunks only commits are worth asking the ledger for.
func (p *pruning) named(pack *markedPack, oid refpolicy.OID) bool {
	if pack.rec.Kind != kindSnapshot {
		return true
	}
	t, _, err := pack.Header(oid)
	if err != nil || t == packs.Commit || t == packs.Tag {
		return true
	}
	p.r.store.cache.drop(objectID{p.r.id, oid})
	return false
}

func (p *pruning) forget(ctx context.Context, dead []refpolicy.OID) error {
	keys := make([]string, len(dead))
	for n, oid := range dead {
		p.r.store.cache.drop(objectID{p.r.id, oid})
		p.r.store.commits.drop(objectID{p.r.id, oid})
		keys[n] = bornKey(oid)
	}
	if len(dead) == 0 {
		return nil
	}
	v, err := p.r.ledger.Peek(ctx, p.r.space)
	if err != nil {
		return err
	}
	defer v.Close()
	values, err := v.GetMany(ctx, keys...)
	if err != nil {
		return err
	}
	b := ledger.Batch{Space: p.r.space, Checks: []ledger.Check{ledger.Equal(genKey, p.gen)}}
	for n, value := range values {
		if value != nil {
			b.Deletes = append(b.Deletes, keys[n])
		}
	}
	if len(b.Deletes) == 0 {
		return nil
	}
	_, err = p.r.ledger.Apply(ctx, b)
	return err
}

// sweepHot deletes the hot objects that were written before the raise and are not
// needed, each only while it has the value that was read: one that is written again
// has the new generation in it. They need not go in one batch with the packs, since
// nothing leans on what is dead, and one that was written again must not hold up the
// rest.
func (p *pruning) sweepHot(ctx context.Context) error {
	return p.r.eachPage(ctx, hotKeys, func(items []ledger.Item) error {
		var dead []ledger.Item
		var ids []refpolicy.OID
		size := 0
		for _, it := range items {
			h, err := decodeHot(it.Value)
			if err != nil {
				return err
			}
			if oid := hotOID(it.Key); h.gen < p.number && !p.marks.marked(oid) {
				dead, ids, size = append(dead, it), append(ids, oid), size+len(it.Value)
			}
		}
		if len(dead) == 0 {
			return nil
		}
		if err := p.r.coolDown(ctx, dead); err != nil {
			return err
		}
		p.r.heat.objects.Add(-int64(len(dead)))
		p.r.heat.bytes.Add(-int64(size))
		p.r.hots.drop()
		p.report.Dead += len(dead)
		return p.forget(ctx, ids)
	})
}

// sweepPins deletes the records of pins that held nothing at the raise.
func (p *pruning) sweepPins(ctx context.Context) error {
	return p.r.eachPage(ctx, pinKeys, func(items []ledger.Item) error {
		for _, it := range items {
			rec, err := decodePin(it.Value)
			if err != nil {
				return err
			}
			if !p.ended(rec) {
				continue
			}
			_, err = p.r.ledger.Apply(ctx, ledger.Batch{
				Space:   p.r.space,
				Checks:  []ledger.Check{ledger.Equal(it.Key, it.Value)},
				Deletes: []string{it.Key, pinnedKey(rec.OID, strings.TrimPrefix(it.Key, pinKeys))},
			})
			var check *ledger.CheckError
			if err != nil && !errors.As(err, &check) {
				return err
			}
		}
		return nil
	})
}
