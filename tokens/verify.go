package tokens

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// A Verifier turns tokens into principals by the keys of a Keyring, and by the
// server's own keys where it is told of them. It may be used by many at once.
type Verifier struct {
	keys   *Keyring
	server *ServerKeys // nil: no issued token is good
	denied *DenyList   // nil: nothing is denied
	now    func() time.Time
}

// A VerifierOption is something a Verifier may have besides customers' keys.
type VerifierOption func(*Verifier)

// WithServerKeys lets tokens in that this server, or one with the same keys, issued.
func WithServerKeys(keys *ServerKeys) VerifierOption { return func(v *Verifier) { v.server = keys } }

// WithDenyList refuses what orgs have denied.
func WithDenyList(list *DenyList) VerifierOption { return func(v *Verifier) { v.denied = list } }

// NewVerifier gives a Verifier over keys, which may be replaced at any time. A
// nil now is time.Now.
func NewVerifier(keys *Keyring, now func() time.Time, options ...VerifierOption) *Verifier {
	if now == nil {
		now = time.Now
	}
	v := &Verifier{keys: keys, now: now}
	for _, set := range options {
		set(v)
	}
	return v
}

// believed is one state of all keys.
type believed struct {
	orgs   *keyset
	server *serverKeyset // nil: none
}

func (v *Verifier) believed() believed {
	b := believed{orgs: v.keys.set.Load()}
	if v.server != nil {
		b.server = v.server.set.Load()
	}
	return b
}

// Verify says who asks with the token raw. It fails with an error that wraps
// ErrUnauthorized, with ErrNoRepoClaim for a good token that names no repo, with
// ctx's error, or with the ledger's when it could not be asked yet what the org
// denies. Times and denials are checked at every call; a signature that was found
// good is remembered for as long as the keys stay as they are.
func (v *Verifier) Verify(ctx context.Context, raw string) (*Principal, error) {
	if len(raw) > MaxTokenBytes {
		return nil, ErrMalformed
	}
	sum := tokenSum(sha256.Sum256([]byte(raw)))
	for {
		by := v.believed()
		p, err := v.verifyBy(ctx, by, sum, raw)
		if by != v.believed() {
			continue // keys were replaced meanwhile: the answer is old
		}
		if err == nil && v.denied != nil {
			err = v.denied.check(ctx, p, sum)
		}
		if err != nil {
			return nil, err
		}
		return p, nil
	}
}

func (v *Verifier) verifyBy(ctx context.Context, by believed, sum tokenSum, raw string) (*Principal, error) {
	if p := by.remembered(sum); p != nil {
		if err := by.checkOrg(p); err != nil {
			return nil, err
		}
		if err := p.checkTime(v.now()); err != nil {
			return nil, err
		}
		return p, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := v.verifyAnew(by, raw)
	if err != nil {
		return nil, err
	}
	p.TokenHash, p.tokenBytes = sum.short(), len(raw)
	by.remember(sum, p)
	return p, nil
}

func (b believed) remembered(sum tokenSum) *Principal {
	if p := b.orgs.verified.get(sum); p != nil || b.server == nil {
		return p
	}
	return b.server.verified.get(sum)
}

func (b believed) remember(sum tokenSum, p *Principal) {
	if p.Issued {
		b.server.verified.add(sum, p)
		return
	}
	b.orgs.verified.add(sum, p)
}

// checkOrg refuses an issued token of an org that is known no more: the server's
// keys know nothing of orgs.
func (b believed) checkOrg(p *Principal) error {
	if _, known := b.orgs.orgs[p.Org]; !known {
		return ErrUnknownOrg
	}
	return nil
}

// verifyAnew goes the whole way: form, signature, time, claims.
func (v *Verifier) verifyAnew(by believed, raw string) (*Principal, error) {
	t, err := decode(raw)
	if err != nil {
		return nil, err
	}
	switch t.header.alg {
	case "ES256", "RS256", "EdDSA":
	default:
		return nil, ErrBadAlgorithm
	}
	var p *Principal
	if strings.HasPrefix(t.header.kid, reservedKeyIDPrefix) {
		p, err = v.issued(by, t)
	} else {
		p, err = customers(by.orgs, t)
	}
	if err != nil {
		return nil, err
	}
	if err := p.checkTime(v.now()); err != nil {
		return nil, err
	}
	if err := p.takePolicies(&t.claims); err != nil {
		return nil, err
	}
	if p.Repo == "" {
		return nil, ErrNoRepoClaim
	}
	return p, nil
}

// customers is who asks with a token that a customer has signed.
func customers(keys *keyset, t *unverified) (*Principal, error) {
	key, err := keys.signer(t.claims.iss, t.header.kid, t.header.alg, t.signed, t.sig)
	if err != nil {
		return nil, err
	}
	p := principalOf(&t.claims, key.ID)
	p.twin = twinSum(t)
	if key.Limit != 0 {
		p.Scopes = p.Scopes.Within(key.Limit)
	}
	return p, nil
}

// takePolicies makes the policy of refs and ops, and of within in an issued token.
func (p *Principal) takePolicies(c *claims) (err error) {
	if p.Policy, err = refpolicy.New(c.refs, c.ops); err != nil {
		return badPattern("refs", err)
	}
	if !p.Issued || c.within == nil {
		return nil
	}
	if p.Within, err = withinOf(c.within); err != nil {
		return err
	}
	p.Policy = p.Policy.Within(p.Within...)
	return nil
}

// badPattern names the claim and the rule that a pattern breaks, not the pattern.
func badPattern(claim string, err error) error {
	var bad *refpolicy.PatternError
	if errors.As(err, &bad) {
		return &ClaimError{claim, "a pattern is malformed: " + bad.Rule}
	}
	return &ClaimError{claim, "malformed"}
}

func principalOf(c *claims, keyID string) *Principal {
	p := &Principal{
		Org: c.iss, Subject: c.sub, Repo: c.repo,
		Scopes:   ScopesOf(c.scopes...),
		IssuedAt: c.iat, ExpiresAt: c.exp,
		KeyID: keyID, TokenID: c.jti,
		Session: c.sid, Epoch: c.epoch,
		notBefore: c.nbf,
	}
	if c.iat.After(p.notBefore) {
		p.notBefore = c.iat
	}
	return p
}

// ShortHash gives 16 hex digits by which logs may call a token, good or bad.
func ShortHash(raw string) string {
	return tokenSum(sha256.Sum256([]byte(raw))).short()
}

func (s tokenSum) short() string { return hex.EncodeToString(s[:8]) }
