package seal

import "maps"

// A Ring is the server's sealing keys: the newest is what clients wrap to, each opens
// what was wrapped to it. It does not change.
type Ring struct {
	keys   map[string]PrivateKey
	newest PublicKey
}

// NewRing makes a ring of keys, the newest last. There must be one.
func NewRing(keys ...PrivateKey) *Ring {
	r := &Ring{keys: make(map[string]PrivateKey, len(keys)), newest: keys[len(keys)-1].Public()}
	for _, k := range keys {
		r.keys[k.Public().ID()] = k
	}
	return r
}

// Newest is the key that clients wrap to.
func (r *Ring) Newest() PublicKey { return r.newest }

// Has reports whether the ring opens what was wrapped to the key of that id.
func (r *Ring) Has(id string) bool { _, ok := r.keys[id]; return ok }

// TakeOff takes the server's layer off an envelope. Errors: those of Envelope.TakeOff.
func (r *Ring) TakeOff(e Envelope) ([]byte, error) {
	k, ok := r.keys[e.ServerKeyID]
	if !ok {
		return nil, ErrUnknownKey
	}
	return e.TakeOff(k)
}

// Equal reports whether both rings hold the same keys.
func (r *Ring) Equal(o *Ring) bool {
	same := func(a, b PrivateKey) bool { return a.key.Equal(b.key) }
	return maps.EqualFunc(r.keys, o.keys, same) && r.newest.ID() == o.newest.ID()
}
