package main

import (
	"errors"
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
	sealing atomic.Pointer[sealKeys]          // nil: not opened
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

// openServerKeys opens the server's own keys, which are in folder, those that sign and
// those that seal, and makes the first of each if there is none.
func (a *authority) openServerKeys(folder string, log *slog.Logger) (*tokens.ServerKeys, error) {
	keys, err := tokens.OpenServerKeys(folder, tokens.ServerKeyOptions{Logger: log})
	if err != nil {
		return nil, err
	}
	sealing, err := openSealKeys(folder, log)
	if err != nil {
		return nil, err
	}
	a.server.Store(keys)
	a.sealing.Store(sealing)
	return keys, nil
}

// rereadServerKeys reads the folder again, if it was opened: new keys sign and seal from
// now on, and what a removed one has signed or sealed is refused.
func (a *authority) rereadServerKeys() error {
	var errs []error
	if keys := a.server.Load(); keys != nil {
		errs = append(errs, keys.Reload())
	}
	if keys := a.sealing.Load(); keys != nil {
		errs = append(errs, keys.reload())
	}
	return errors.Join(errs...)
}

// VerifyCommit is nil if the raw commit is signed by a signing key of org, else
// one of sigcheck's errors.
func (a *authority) VerifyCommit(org string, raw []byte) error {
	return (*a.signers.Load())[org].VerifyCommit(raw)
}
