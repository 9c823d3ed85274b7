package tokens

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// SnapshotRefPrefix stands before a session's id in the ref of its snapshots.
const SnapshotRefPrefix = refpolicy.StatePrefix + "refs/snapshots/"

var errBadGrant = errors.New("grant is incomplete")

// A Grant is what an issued token lets a session's sandbox do: fast-forward Ref and
// the session's snapshot ref, and read what Read names, as far as Within allows.
type Grant struct {
	Org, Repo, Subject string

	ID      string // jti
	Session string // its id
	Epoch   uint64

	Ref    refpolicy.RefName
	Read   []string           // patterns; none: its own history alone
	Within [][]refpolicy.Rule // policies that must allow it too: whoever asked for the token has them

	Scopes Scopes // of GitRead and GitWrite, at least one

	IssuedAt, ExpiresAt time.Time // cut to whole seconds, as a token holds no others
}

// An Issuer signs tokens with the server's newest key. It may be used by many at once.
type Issuer struct {
	keys *ServerKeys
}

// NewIssuer gives an Issuer over keys.
func NewIssuer(keys *ServerKeys) *Issuer { return &Issuer{keys: keys} }

// Mint signs the token that says g. As long as the same key signs, the same grant
// gives the same token. A token that would be longer than servers take is an
// ErrGrantTooLarge, a malformed pattern a *refpolicy.PatternError.
func (i *Issuer) Mint(g Grant) (string, error) {
	if err := g.check(); err != nil {
		return "", fmt.Errorf("mint token: %w", err)
	}
	key := i.keys.set.Load().newest
	payload, err := g.payload()
	if err != nil {
		return "", fmt.Errorf("mint token: %w", err)
	}
	encoded := base64.RawURLEncoding
	size := len(key.header) + 1 + encoded.EncodedLen(len(payload)) + 1 + encoded.EncodedLen(ed25519.SignatureSize)
	if size > MaxTokenBytes {
		return "", fmt.Errorf("mint token of %d bytes: %w", size, ErrGrantTooLarge)
	}
	raw := append(make([]byte, 0, size), key.header...)
	raw = encoded.AppendEncode(append(raw, '.'), payload)
	sig := ed25519.Sign(key.private, raw)
	return string(encoded.AppendEncode(append(raw, '.'), sig)), nil
}

func (g *Grant) check() error {
	for _, s := range []string{g.Org, g.Repo, g.ID, g.Session, string(g.Ref)} {
		if s == "" {
			return errBadGrant
		}
	}
	if g.Scopes == 0 || g.Scopes != g.Scopes&ScopesOf(GitRead, GitWrite) || !g.ExpiresAt.After(g.IssuedAt) {
		return errBadGrant
	}
	return nil
}

// payload writes the claims by hand: encoding/json would take as long as signing.
func (g *Grant) payload() ([]byte, error) {
	w := &claimWriter{b: make([]byte, 0, 1024)}
	w.text(`{"iss":`).string(g.Org)
	w.text(`,"sub":`).string(g.Subject)
	w.text(`,"repo":`).string(g.Repo)
	w.text(`,"scopes":`).scopes(g.Scopes)
	w.text(`,"iat":`).time(g.IssuedAt)
	w.text(`,"exp":`).time(g.ExpiresAt)
	w.text(`,"jti":`).string(g.ID)
	w.text(`,"sid":`).string(g.Session)
	w.text(`,"epoch":`).uint(g.Epoch)
	w.text(`,"refs":[`)
	w.rule(refpolicy.Pattern(g.Ref), refpolicy.NoForcePush)
	w.text(",").written(SnapshotRefPrefix+g.Session, refpolicy.NoForcePush)
	for _, pattern := range g.Read {
		w.text(",").written(pattern, refpolicy.NoPush)
	}
	w.text(",").rule(refpolicy.Any, refpolicy.NoRead)
	w.text("]")
	w.within(g.Within)
	w.text("}")
	return w.b, w.err
}
