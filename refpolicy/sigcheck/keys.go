package sigcheck

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
)

// Keys are the signing keys of one org. They do not change and may be shared. No
// keys, or nil, trust nobody.
type Keys struct {
	pgp openpgp.EntityList
	ssh []signer
	now func() time.Time
}

// New takes armored OpenPGP public keys (a text may hold several) and the text of
// an allowed_signers file as ssh-keygen(1) describes it, where a validity time
// without Z is UTC. What it cannot take is ErrBadKey, with the number of the key or
// line: a private key, a cert-authority line, a weak key, a malformed option.
func New(openPGPKeys [][]byte, allowedSigners []byte) (*Keys, error) {
	k := &Keys{now: time.Now}
	for i, armored := range openPGPKeys {
		entities, err := readPublicKeys(armored)
		if err != nil {
			return nil, fmt.Errorf("%w: OpenPGP key %d: %w", ErrBadKey, i+1, err)
		}
		k.pgp = append(k.pgp, entities...)
	}
	signers, err := parseAllowedSigners(allowedSigners)
	if err != nil {
		return nil, fmt.Errorf("%w: allowed_signers: %w", ErrBadKey, err)
	}
	k.ssh = signers
	return k, nil
}

// VerifyCommit checks the signature in raw, the content of a commit object without
// its "commit <size>" header. It is nil, or wraps ErrUnsigned, ErrUntrusted or
// ErrBadSignature. As with git, an OpenPGP key counts as it stands now, and an ssh
// key's validity times are compared with the committer's date.
func (k *Keys) VerifyCommit(raw []byte) error {
	payload, signature, signed := SplitSignature(raw)
	if !signed {
		return ErrUnsigned
	}
	if k == nil {
		return fmt.Errorf("%w: no keys are registered", ErrUntrusted)
	}
	switch {
	case bytes.HasPrefix(signature, []byte(pgpBegin)):
		return k.verifyOpenPGP(payload, signature)
	case bytes.HasPrefix(signature, []byte(sshBegin)):
		return k.verifySSH(payload, signature)
	}
	return fmt.Errorf("%w: neither an OpenPGP nor an SSH signature", ErrBadSignature)
}

// oneBlock checks that an armored text ends with the first end line in it: what
// follows could be a second signature, and tools do not agree on which one counts.
func oneBlock(text []byte, end string) error {
	_, after, found := bytes.Cut(text, []byte(end))
	if !found {
		return fmt.Errorf("%w: no %s line", ErrBadSignature, end)
	}
	if len(bytes.TrimSpace(after)) > 0 {
		return fmt.Errorf("%w: more follows the signature", ErrBadSignature)
	}
	return nil
}
