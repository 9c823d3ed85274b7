package tokens

import (
	"crypto"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/refpolicy"
)

// Claims is what a token to be signed says. Org, Repo, Scopes and ExpiresAt are
// always written; of the others, what is empty is left out.
type Claims struct {
	Org     string // iss
	Subject string // sub
	Repo    string
	Scopes  []Scope

	IssuedAt, NotBefore, ExpiresAt time.Time

	Refs []refpolicy.Rule // in order
	Ops  []refpolicy.Op   // the legacy repo-wide ops

	ID      string // jti
	Session string // sid
	Epoch   *uint64

	KeyID string // the kid header
}

// Sign gives the token that says c, signed by key: ES256, RS256 or EdDSA after
// the key's type. A key of another kind is ErrUnsupportedKey.
func Sign(key crypto.Signer, c Claims) (string, error) {
	method, err := methodFor(key.Public())
	if err != nil {
		return "", err
	}
	t := jwt.NewWithClaims(method, c.wire())
	if c.KeyID != "" {
		t.Header["kid"] = c.KeyID
	}
	raw, err := t.SignedString(key)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return raw, nil
}

func (c *Claims) wire() jwt.MapClaims {
	m := jwt.MapClaims{"iss": c.Org, "repo": c.Repo, "exp": c.ExpiresAt.Unix(), "scopes": c.Scopes}
	if c.Scopes == nil {
		m["scopes"] = []Scope{}
	}
	for name, s := range map[string]string{"sub": c.Subject, "jti": c.ID, "sid": c.Session} {
		if s != "" {
			m[name] = s
		}
	}
	for name, at := range map[string]time.Time{"iat": c.IssuedAt, "nbf": c.NotBefore} {
		if !at.IsZero() {
			m[name] = at.Unix()
		}
	}
	if c.Epoch != nil {
		m["epoch"] = *c.Epoch
	}
	if len(c.Refs) > 0 {
		m["refs"] = c.Refs
	}
	if len(c.Ops) > 0 {
		m["ops"] = c.Ops
	}
	return m
}
