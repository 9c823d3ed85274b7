package gitstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// marks find everything that roots lead to. They take one bit for each packed
// object, so that the largest repo fits into memory; what is hot is in a map.
type marks struct {
	r     *Repo
	packs []*markedPack // an object belongs to the first of them that holds it
	// known is of the first of many packs, as many as listed.
	known  *packs.Catalog
	listed int
	loose  map[refpolicy.OID]bool
	// missing is called for an object that is in neither tier; an error ends the walk.
	missing func(l link) error
	// met, if there is one, is called for each object that a walk meets first.
	met func(oid refpolicy.OID)
	// broken is called for one that cannot be read or is not what it is named as.
	broken func(l link, err error) error
	// lenient goes on with what is known when the pack list or a hot value cannot be read.
	lenient bool
}

// markedPack is a registered pack with a bit for each of its objects.
type markedPack struct {
	*packs.Pack
	rec  packRecord
	raw  []byte // rec as it stands in the ledger
	bits []uint64
	// old packs were listed when the marks were begun, younger ones found on the way.
	old bool
}

func (p *markedPack) has(i int) bool { return p.bits[i/64]&(1<<(i%64)) != 0 }

func (p *markedPack) set(i int) { p.bits[i/64] |= 1 << (i % 64) }

// newMarks opens the packs of a list of live records. close must be called.
func (r *Repo) newMarks(list []livePack) (*marks, error) {
	m := &marks{r: r, loose: map[refpolicy.OID]bool{}}
	m.missing = func(l link) error { return fmt.Errorf("%w: %s", ErrObjectNotFound, l.oid) }
	m.broken = func(l link, err error) error { return fmt.Errorf("walk %s: %w", l.oid, err) }
	for _, p := range list {
		if err := m.add(p, true); err != nil {
			m.close()
			return nil, err
		}
	}
	if len(m.packs) > catalogFrom {
		open := make([]*packs.Pack, len(m.packs))
		for n, p := range m.packs {
			open[n] = p.Pack
		}
		m.known, m.listed = packs.NewCatalog(open), len(open)
	}
	return m, nil
}

// holders calls fn with each pack that may hold an object until it says false, in order.
func (m *marks) holders(oid refpolicy.OID, fn func(p *markedPack) bool) {
	more := true
	if m.known != nil {
		m.known.Each(oid, func(n int) bool {
			more = fn(m.packs[n])
			return more
		})
	}
	for n := m.listed; more && n < len(m.packs); n++ {
		more = fn(m.packs[n])
	}
}

func (m *marks) add(l livePack, old bool) error {
	p, err := m.r.dir.Pack(l.name)
	if err != nil {
		return fmt.Errorf("open pack: %w", err)
	}
	m.packs = append(m.packs, &markedPack{Pack: p, rec: l.rec, raw: l.raw, bits: make([]uint64, (p.Count()+63)/64), old: old})
	return nil
}

func (m *marks) close() {
	for _, p := range m.packs {
		p.Release()
	}
}

// home is the pack an object belongs to and its place there; nil if it is in none.
func (m *marks) home(oid refpolicy.OID) (*markedPack, int) {
	var home *markedPack
	at := 0
	m.holders(oid, func(p *markedPack) bool {
		i, ok := p.Position(oid)
		if ok {
			home, at = p, i
		}
		return !ok
	})
	return home, at
}

// marked reports whether a walk has met an object.
func (m *marks) marked(oid refpolicy.OID) bool {
	if p, i := m.home(oid); p != nil && p.has(i) {
		return true
	}
	return m.loose[oid]
}

// found is an object that a walk meets for the first time; pack is nil if it is hot.
type found struct {
	pack *markedPack
	hot  hotObject
}

// mark notes an object. first is false if it was marked before or is not there.
func (m *marks) mark(ctx context.Context, l link) (f found, first bool, err error) {
	for try := 0; ; try++ {
		if p, i := m.home(l.oid); p != nil {
			if p.has(i) {
				return f, false, nil
			}
			p.set(i)
			m.meet(l.oid)
			return found{pack: p}, true, nil
		}
		if m.loose[l.oid] {
			return f, false, nil
		}
		h, err := m.r.hot(ctx, l.oid)
		if err == nil {
			m.loose[l.oid] = true
			m.meet(l.oid)
			return found{hot: h}, true, nil
		}
		if !errors.Is(err, ledger.ErrNotFound) {
			if m.lenient && ctx.Err() == nil {
				m.loose[l.oid] = true
				err = m.broken(l, err)
			}
			return f, false, err
		}
		if l.oid == emptyTree {
			return f, false, nil // git knows it without storing it
		}
		if try > 0 {
			return f, false, m.missing(l)
		}
		// It may have been settled, or have come in with a pack, since the list was read.
		if err := m.extend(ctx); err != nil {
			return f, false, err
		}
	}
}

func (m *marks) meet(oid refpolicy.OID) {
	if m.met != nil {
		m.met(oid)
	}
}

// extend adds the packs that were registered since.
func (m *marks) extend(ctx context.Context) error {
	_, list, err := m.r.livePacks(ctx)
	if err != nil && m.lenient && ctx.Err() == nil {
		return nil
	}
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, p := range m.packs {
		known[p.Name()] = true
	}
	for _, l := range list {
		if known[l.name] {
			continue
		}
		if err := m.add(l, false); err != nil && !m.lenient && !errors.Is(err, packs.ErrPackMissing) {
			return err
		}
	}
	return nil
}

// walk marks a root and all it leads to. Blobs are not read.
func (m *marks) walk(ctx context.Context, root refpolicy.OID) error {
	stack := []link{{oid: root}}
	for len(stack) > 0 {
		l := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		f, first, err := m.mark(ctx, l)
		if err != nil {
			return err
		}
		if !first || l.as == BlobObject {
			continue
		}
		if stack, err = m.follow(ctx, stack, l, f); err != nil {
			return err
		}
	}
	return nil
}

// follow puts what an object leads to on the stack; a tree's files are marked at once.
func (m *marks) follow(ctx context.Context, stack []link, l link, f found) ([]link, error) {
	o, err := f.read(l.oid)
	if err == nil && l.as != 0 && o.typ != l.as {
		err = wrongKind(l, o.typ)
	}
	if err != nil {
		return stack, m.broken(l, err)
	}
	switch o.typ {
	case CommitObject:
		h, _, err := parseCommitHeader(o.data)
		if err != nil {
			return stack, m.broken(l, err)
		}
		for _, q := range h.parents {
			stack = append(stack, link{q, CommitObject})
		}
		return append(stack, link{h.tree, TreeObject}), nil
	case TagObject:
		t, err := parseTag(o.data)
		if err != nil {
			return stack, m.broken(l, err)
		}
		return append(stack, link{t.object, t.typ}), nil
	case TreeObject:
		entries, err := parseTree(o.data)
		if err != nil {
			return stack, m.broken(l, err)
		}
		for _, e := range entries {
			switch {
			case e.mode == ModeSubmodule:
			case e.isTree():
				stack = append(stack, link{e.oid, TreeObject})
			default:
				if _, _, err := m.mark(ctx, link{e.oid, BlobObject}); err != nil {
					return stack, err
				}
			}
		}
	}
	return stack, nil
}

// read reads an object past the caches: a walk over everything would throw out what
// requests need. Of a blob only the type is told.
func (f found) read(oid refpolicy.OID) (object, error) {
	if f.pack == nil {
		data, err := f.hot.inflate()
		return object{f.hot.typ, data}, err
	}
	t, _, err := f.pack.Header(oid)
	if err != nil || t == packs.Blob {
		return object{typ: ObjectType(t)}, err
	}
	t, data, err := f.pack.Object(oid, maxWhole)
	return object{ObjectType(t), data}, err
}

// livePack is a registered pack as the ledger lists it.
type livePack struct {
	name string
	rec  packRecord
	raw  []byte
}

// livePacks reads the prune generation and, after it, the list of live packs.
func (r *Repo) livePacks(ctx context.Context) (gen []byte, list []livePack, err error) {
	gen, all, err := r.packRecords(ctx)
	for _, p := range all {
		if p.rec.State == packLive {
			list = append(list, p)
		}
	}
	return gen, list, err
}

// packRecords reads the prune generation and, after it, the records of all packs.
func (r *Repo) packRecords(ctx context.Context) (gen []byte, list []livePack, err error) {
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return nil, nil, fmt.Errorf("read pack list: %w", err)
	}
	defer v.Close()
	gen, err = v.Get(ctx, genKey)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, nil, ErrRepoNotFound
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read pack list: %w", err)
	}
	items, err := scanAll(ctx, v, packKeys)
	if err != nil {
		return nil, nil, fmt.Errorf("read pack list: %w", err)
	}
	for _, it := range items {
		rec, err := decodePackRecord(it.Value)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, livePack{strings.TrimPrefix(it.Key, packKeys), rec, it.Value})
	}
	return gen, list, nil
}
