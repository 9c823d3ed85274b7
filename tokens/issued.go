package tokens

import (
	"crypto/ed25519"
	"encoding/json"

	"github.com/headgate/headgate/refpolicy"
)

// issued is who asks with a token that names a server key: this server's keys alone
// are asked, and of them the named one alone. A key that is not known yet is looked
// for; the state by has changed then if it was found.
func (v *Verifier) issued(by believed, t *unverified) (*Principal, error) {
	if by.server == nil {
		return nil, ErrReservedKeyID
	}
	key := by.server.keys[t.header.kid]
	if key == nil {
		v.server.lookFor(t.header.kid, by.server)
		return nil, ErrReservedKeyID
	}
	if t.header.alg != "EdDSA" {
		return nil, ErrBadAlgorithm
	}
	if !ed25519.Verify(key.public, []byte(t.signed), t.sig) {
		return nil, ErrBadSignature
	}
	if err := t.claims.complete(); err != nil {
		return nil, err
	}
	p := principalOf(&t.claims, key.id)
	p.Issued = true
	return p, by.checkOrg(p)
}

// complete refuses an issued token without one of the claims that bind it to its
// session: what is checked of a session would then not be checked.
func (c *claims) complete() error {
	for _, claim := range []struct {
		name  string
		there bool
	}{
		{"jti", c.jti != ""}, {"sid", c.sid != ""}, {"epoch", c.epoch != nil},
		{"iat", !c.iat.IsZero()}, {"refs", len(c.refs) > 0},
	} {
		if !claim.there {
			return &ClaimError{claim.name, "missing"}
		}
	}
	return nil
}

// withinOf reads the within claim: an array of refs claims.
func withinOf(raw json.RawMessage) ([]*refpolicy.Policy, error) {
	list, ok := asArray(raw)
	if !ok {
		return nil, &ClaimError{"within", "not " + claimTypes["within"]}
	}
	policies := make([]*refpolicy.Policy, len(list))
	for i, one := range list {
		rules, err := refpolicy.ParseRules(one)
		if err != nil {
			return nil, &ClaimError{"within", "not " + claimTypes["within"]}
		}
		if policies[i], err = refpolicy.New(rules, nil); err != nil {
			return nil, badPattern("within", err)
		}
	}
	return policies, nil
}
