package main

import (
	"sync/atomic"

	"github.com/headgate/headgate/refpolicy/sigcheck"
	"github.com/headgate/headgate/tokens"
)

// An authority is whom the server believes at present: the keys that sign tokens
// and the keys that sign commits, by org. It may be used by many at once.
type authority struct {
	keys    *tokens.Keyring
	signers atomic.Pointer[map[string]*sigcheck.Keys]
}

// newAuthority gives one that believes nobody.
func newAuthority() *authority {
	a := &authority{keys: tokens.NewKeyring()}
	a.signers.Store(&map[string]*sigcheck.Keys{})
	return a
}

// apply makes the orgs of config the whole of what is believed. A token whose key
// is no longer there is refused from now on.
func (a *authority) apply(config Config) {
	signers := make(map[string]*sigcheck.Keys, len(config.Orgs))
	for name, org := range config.Orgs {
		signers[name] = org.Signers
	}
	a.signers.Store(&signers)
	a.keys.Replace(config.Keys())
}

// VerifyCommit is nil if the raw commit is signed by a signing key of org, else
// one of sigcheck's errors.
func (a *authority) VerifyCommit(org string, raw []byte) error {
	return (*a.signers.Load())[org].VerifyCommit(raw)
}
