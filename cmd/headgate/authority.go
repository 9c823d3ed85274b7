package main

import (
	"log/slog"
	"sync/atomic"

	"github.com/headgate/headgate/refpolicy/sigcheck"
	"github.com/headgate/headgate/tokens"
)

// An authority is whom the server believes at present: the keys that sign tokens
// and the keys that sign commits, by org, and the server's own keys. It may be used
// by many at once.
type authority struct {
	keys    *tokens.Keyring
	signers atomic.Pointer[map[string]*sigcheck.Keys]
	server  atomic.Pointer[tokens.ServerKeys] // nil: not opened
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

// openServerKeys opens the server's own keys, which are in folder, and makes the
// first one if there is none.
func (a *authority) openServerKeys(folder string, log *slog.Logger) (*tokens.ServerKeys, error) {
	keys, err := tokens.OpenServerKeys(folder, tokens.ServerKeyOptions{Logger: log})
	if err != nil {
		return nil, err
	}
	a.server.Store(keys)
	return keys, nil
}

// rereadServerKeys reads the folder again, if it was opened: a new key signs from now
// on, and what a removed one has signed is refused.
func (a *authority) rereadServerKeys() error {
	if keys := a.server.Load(); keys != nil {
		return keys.Reload()
	}
	return nil
}

// VerifyCommit is nil if the raw commit is signed by a signing key of org, else
// one of sigcheck's errors.
func (a *authority) VerifyCommit(org string, raw []byte) error {
	return (*a.signers.Load())[org].VerifyCommit(raw)
}
