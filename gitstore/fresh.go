package gitstore

import (
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// freshObjects are the objects that one write brings, before they are in the store.
type freshObjects interface {
	has(oid refpolicy.OID) bool
	// typeOf tells an object's type; ok is false if it is not among them.
	typeOf(oid refpolicy.OID) (t ObjectType, ok bool, err error)
	// lookup reads an object whole.
	lookup(oid refpolicy.OID) (o object, ok bool, err error)
}

var noFresh freshObjects = freshMap{}

// freshMap are the objects of a small write, in memory.
type freshMap map[refpolicy.OID]NewObject

func newFreshMap(objects []NewObject) freshMap {
	m := make(freshMap, len(objects))
	for _, o := range objects {
		m[o.OID] = o
	}
	return m
}

func (m freshMap) has(oid refpolicy.OID) bool { _, ok := m[oid]; return ok }

func (m freshMap) typeOf(oid refpolicy.OID) (ObjectType, bool, error) {
	o, ok := m[oid]
	return o.Type, ok, nil
}

func (m freshMap) lookup(oid refpolicy.OID) (object, bool, error) {
	o, ok := m[oid]
	return object{o.Type, o.Data}, ok, nil
}

// freshPack are the objects of a streamed pack that is not registered yet,
// together with small ones beside it. Appended ones are in the file but not new.
type freshPack struct {
	pack     *packs.Pack
	small    freshMap
	appended map[refpolicy.OID]bool
}

func (p freshPack) has(oid refpolicy.OID) bool { return p.small.has(oid) || p.packed(oid) }

func (p freshPack) packed(oid refpolicy.OID) bool { return !p.appended[oid] && p.pack.Has(oid) }

func (p freshPack) typeOf(oid refpolicy.OID) (ObjectType, bool, error) {
	if t, ok, err := p.small.typeOf(oid); ok || err != nil {
		return t, ok, err
	}
	if !p.packed(oid) {
		return 0, false, nil
	}
	t, _, err := p.pack.Header(oid)
	return ObjectType(t), true, err
}

func (p freshPack) lookup(oid refpolicy.OID) (object, bool, error) {
	if o, ok, err := p.small.lookup(oid); ok || err != nil {
		return o, ok, err
	}
	if !p.packed(oid) {
		return object{}, false, nil
	}
	t, data, err := p.pack.Object(oid, maxWhole)
	return object{ObjectType(t), data}, true, err
}

func oidSet(ids []refpolicy.OID) map[refpolicy.OID]bool {
	m := make(map[refpolicy.OID]bool, len(ids))
	for _, id := range ids {
		m[id] = true
	}
	return m
}
