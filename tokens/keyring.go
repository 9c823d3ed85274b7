package tokens

import (
	"maps"
	"slices"
	"sync/atomic"
)

// A Keyring holds the public keys of every org. It may be used by many at once.
type Keyring struct {
	set atomic.Pointer[keyset]
}

// A keyset is one state of a Keyring. The cache of what these keys have verified
// belongs to it, so a state that is replaced takes its cache with it.
type keyset struct {
	orgs     map[string][]Key // active keys only
	verified *cache
}

// NewKeyring gives an empty Keyring, which verifies nothing.
func NewKeyring() *Keyring {
	r := &Keyring{}
	r.Replace(nil)
	return r
}

// Replace makes keys (by org) the whole of what is trusted, in one step. A
// Verify that returns after Replace has returned answers by the new keys, even
// when it began before; nothing that the old keys verified is remembered.
func (r *Keyring) Replace(keys map[string][]Key) {
	orgs := make(map[string][]Key, len(keys))
	for org, list := range keys {
		orgs[org] = slices.DeleteFunc(slices.Clone(list), func(k Key) bool {
			return k.Inactive || k.method == nil
		})
	}
	r.set.Store(&keyset{orgs: orgs, verified: newCache(cacheBytes)})
}

// Orgs lists the orgs that have a key, sorted.
func (r *Keyring) Orgs() []string {
	return slices.Sorted(maps.Keys(r.set.Load().orgs))
}

// HasOrg reports whether org is known, with or without an active key.
func (r *Keyring) HasOrg(org string) bool {
	_, known := r.set.Load().orgs[org]
	return known
}

// signer finds the key of org that made sig over signed. The key that kid names
// is asked first; kid decides nothing else.
func (s *keyset) signer(org, kid, alg, signed string, sig []byte) (*Key, error) {
	keys, known := s.orgs[org]
	if !known {
		return nil, ErrUnknownOrg
	}
	for _, named := range []bool{true, false} {
		for i := range keys {
			if (keys[i].ID == kid) == named && keys[i].verifies(alg, signed, sig) {
				return &keys[i], nil
			}
		}
	}
	return nil, ErrBadSignature
}
