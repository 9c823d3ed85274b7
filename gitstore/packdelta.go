package gitstore

import (
	"context"
	"errors"

	"github.com/headgate/headgate/refpolicy"
)

// deltaResolver makes objects out of the entries of a small pack. A base may stand
// anywhere in the pack, or, in a thin pack, in the store alone.
type deltaResolver struct {
	p       *packParser
	objects []NewObject // by entry; of type 0 until it is made
	known   map[refpolicy.OID]bool
	from    map[refpolicy.OID]refpolicy.OID // what is made -> the stored object at the bottom of its deltas, zero without one
	byPlace map[int][]int                   // entry -> the ofsDeltas against it
	byOID   map[refpolicy.OID][]int         // oid -> the refDeltas against it that wait
	order   []refpolicy.OID                 // the oids of byOID as they were met
	ready   []int                           // entries that are made and may be bases
	most    int                             // how deep deltas may stand on each other
	depth   []int                           // by entry, once it is made
	loaded  int                             // bytes of bases read from the store
}

func newDeltaResolver(p *packParser, most int) *deltaResolver {
	return &deltaResolver{
		p: p, objects: make([]NewObject, len(p.entries)), known: make(map[refpolicy.OID]bool, len(p.entries)),
		from:    make(map[refpolicy.OID]refpolicy.OID, len(p.entries)),
		byPlace: map[int][]int{}, byOID: map[refpolicy.OID][]int{}, most: most, depth: make([]int, len(p.entries)),
	}
}

func (d *deltaResolver) resolve(ctx context.Context, read func(context.Context, refpolicy.OID) (object, error)) (parsedPack, error) {
	if err := d.sort(); err != nil {
		return parsedPack{}, err
	}
	if err := d.spread(); err != nil {
		return parsedPack{}, err
	}
	var out parsedPack
	loaded, err := d.loadBases(ctx, read)
	if err != nil {
		return parsedPack{}, err
	}
	for _, oid := range loaded {
		if !d.own(oid) {
			out.bases = append(out.bases, oid)
		}
	}
	for _, oid := range d.order {
		if len(d.byOID[oid]) > 0 {
			out.missing = append(out.missing, oid)
		}
	}
	if len(out.missing) == 0 {
		out.objects = d.objects
	}
	return out, nil
}

// own reports whether the pack makes oid, a stored object that was loaded, without
// it: then it is the client's own and need not be readable. What deltas make of a
// stored object out of that object itself, by whatever detour, is no proof that the
// client has it.
func (d *deltaResolver) own(oid refpolicy.OID) bool {
	for seen := map[refpolicy.OID]bool{}; d.known[oid] && !seen[oid]; oid = d.from[oid] {
		seen[oid] = true
		if from := d.from[oid]; from.IsZero() || !d.known[from] { // a base that is not made here is proved itself
			return true
		}
	}
	return false
}

// sort makes the entries that are whole and notes what the others wait for.
func (d *deltaResolver) sort() error {
	places := make(map[int]int, len(d.p.entries))
	for i, e := range d.p.entries {
		places[e.at] = i
		switch e.typ {
		case ofsDelta:
			base, ok := places[e.back]
			if !ok {
				return packFault("base of a delta is no entry")
			}
			d.byPlace[base] = append(d.byPlace[base], i)
		case refDelta:
			if _, met := d.byOID[e.base]; !met {
				d.order = append(d.order, e.base)
			}
			d.byOID[e.base] = append(d.byOID[e.base], i)
		default:
			if err := d.made(i, e.typ, e.data, refpolicy.ZeroOID); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *deltaResolver) made(i int, t ObjectType, data []byte, from refpolicy.OID) error {
	o := newObject(t, data)
	if d.known[o.OID] {
		return packFault("object %s comes twice", o.OID)
	}
	d.known[o.OID], d.from[o.OID] = true, from
	d.objects[i] = o
	d.ready = append(d.ready, i)
	return nil
}

// spread makes all that waits for entries that are made, and so on.
func (d *deltaResolver) spread() error {
	for len(d.ready) > 0 {
		i := d.ready[len(d.ready)-1]
		d.ready = d.ready[:len(d.ready)-1]
		o := d.objects[i]
		from := d.from[o.OID]
		on := deltaBase{o.Type, o.Data, from, d.depth[i]}
		if err := d.apply(on, d.byPlace[i]); err != nil {
			return err
		}
		if err := d.applyWaiting(o.OID, on); err != nil {
			return err
		}
	}
	return nil
}

// deltaBase is what deltas are applied to.
type deltaBase struct {
	typ   ObjectType
	data  []byte
	from  refpolicy.OID // the stored object at the bottom
	depth int           // deltas below it
}

func (d *deltaResolver) applyWaiting(oid refpolicy.OID, on deltaBase) error {
	waiting := d.byOID[oid]
	if waiting == nil {
		return nil
	}
	d.byOID[oid] = nil
	return d.apply(on, waiting)
}

func (d *deltaResolver) apply(on deltaBase, deltas []int) error {
	if len(deltas) > 0 && on.depth >= d.most {
		return tooDeep(d.most)
	}
	for _, i := range deltas {
		delta := d.p.entries[i].data
		_, size, _, err := deltaSizes(delta)
		if err != nil {
			return err
		}
		if size > uint64(d.p.left) || size > uint64(d.p.file) {
			return errHandOver
		}
		d.p.left -= int(size)
		data, err := applyDelta(on.data, delta)
		if err != nil {
			return err
		}
		d.depth[i] = on.depth + 1
		if err := d.made(i, on.typ, data, on.from); err != nil {
			return err
		}
	}
	return nil
}

// maxLoaded bounds the stored bases that are read for a pack that is parsed in memory.
const maxLoaded = 64 << 20

// loadBases reads the bases that are not in the pack from the store, and makes
// what waits for them.
func (d *deltaResolver) loadBases(ctx context.Context, read func(context.Context, refpolicy.OID) (object, error)) (loaded []refpolicy.OID, err error) {
	for _, oid := range d.order {
		if len(d.byOID[oid]) == 0 {
			continue
		}
		base, err := read(ctx, oid)
		switch {
		case errors.Is(err, ErrObjectNotFound):
			continue
		case errors.Is(err, ErrTooLarge):
			return nil, errHandOver
		case err != nil:
			return nil, err
		}
		if d.loaded += len(base.data); d.loaded > maxLoaded {
			return nil, errHandOver
		}
		loaded = append(loaded, oid)
		if err := d.applyWaiting(oid, deltaBase{base.typ, base.data, oid, 0}); err != nil {
			return nil, err
		}
		if err := d.spread(); err != nil {
			return nil, err
		}
	}
	return loaded, nil
}

// deltaSizes reads the head of a delta: the size of its base and of what it makes.
//
//	delta = base-size result-size *instruction
//	size  = 7 bits a byte, lowest first, while the top bit is set
func deltaSizes(delta []byte) (base, result uint64, rest []byte, err error) {
	if base, delta, err = deltaSize(delta); err != nil {
		return 0, 0, nil, err
	}
	result, rest, err = deltaSize(delta)
	return base, result, rest, err
}

func deltaSize(b []byte) (size uint64, rest []byte, err error) {
	for shift := 0; shift < 57; shift += 7 {
		if len(b) == 0 {
			break
		}
		c := b[0]
		b = b[1:]
		size |= uint64(c&0x7f) << shift
		if c&0x80 == 0 {
			return size, b, nil
		}
	}
	return 0, nil, packFault("delta with a malformed size")
}

// applyDelta makes an object out of its base:
//
//	instruction = copy / insert
//	copy        = %b1xxxxxxx *4offset-byte *3size-byte  ; a bit for each byte that follows, lowest first
//	insert      = %b0nnnnnnn n*n byte                   ; n is not 0
//
// A copy of size 0 copies 64 KiB.
func applyDelta(base, delta []byte) ([]byte, error) {
	baseSize, size, delta, err := deltaSizes(delta)
	if err != nil {
		return nil, err
	}
	if baseSize != uint64(len(base)) {
		return nil, packFault("delta against a base of another size")
	}
	out := make([]byte, 0, size)
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		var piece []byte
		if op&0x80 == 0 {
			if op == 0 || int(op) > len(delta) {
				return nil, packFault("malformed delta")
			}
			piece, delta = delta[:op], delta[op:]
		} else if piece, delta, err = copied(base, op, delta); err != nil {
			return nil, err
		}
		if uint64(len(out)+len(piece)) > size {
			return nil, packFault("delta makes more than it says")
		}
		out = append(out, piece...)
	}
	if uint64(len(out)) != size {
		return nil, packFault("delta makes less than it says")
	}
	return out, nil
}

// copied is the part of base that a copy instruction names.
func copied(base []byte, op byte, delta []byte) (piece, rest []byte, err error) {
	var v [7]int
	for i := range v {
		if op>>i&1 == 0 {
			continue
		}
		if len(delta) == 0 {
			return nil, nil, packFault("malformed delta")
		}
		v[i], delta = int(delta[0]), delta[1:]
	}
	offset := v[0] | v[1]<<8 | v[2]<<16 | v[3]<<24
	size := v[4] | v[5]<<8 | v[6]<<16
	if size == 0 {
		size = 1 << 16
	}
	if offset+size > len(base) {
		return nil, nil, packFault("delta copies from outside its base")
	}
	return base[offset : offset+size], delta, nil
}
