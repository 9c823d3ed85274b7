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

// A Verifier turns tokens into principals by the keys of a Keyring. It may be
// used by many at once.
type Verifier struct {
	keys *Keyring
	now  func() time.Time
}

// NewVerifier gives a Verifier over keys, which may be replaced at any time. A
// nil now is time.Now.
func NewVerifier(keys *Keyring, now func() time.Time) *Verifier {
	if now == nil {
		now = time.Now
	}
	return &Verifier{keys: keys, now: now}
}

// Verify says who asks with the token raw. It fails with an error that wraps
// ErrUnauthorized, with ErrNoRepoClaim for a good token that names no repo, or
// with ctx's error. Times are checked at every call; a signature that was found
// good is remembered for as long as the keys stay as they are.
func (v *Verifier) Verify(ctx context.Context, raw string) (*Principal, error) {
	if len(raw) > MaxTokenBytes {
		return nil, ErrMalformed
	}
	sum := tokenSum(sha256.Sum256([]byte(raw)))
	for {
		set := v.keys.set.Load()
		p, err := v.verifyBy(ctx, set, sum, raw)
		// The keys may have been replaced meanwhile; then the answer is old.
		if set == v.keys.set.Load() {
			return p, err
		}
	}
}

func (v *Verifier) verifyBy(ctx context.Context, set *keyset, sum tokenSum, raw string) (*Principal, error) {
	if p := set.verified.get(sum); p != nil {
		if err := p.checkTime(v.now()); err != nil {
			return nil, err
		}
		return p, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := v.verifyAnew(set, raw)
	if err != nil {
		return nil, err
	}
	p.TokenHash, p.tokenBytes = sum.short(), len(raw)
	set.verified.add(sum, p)
	return p, nil
}

// verifyAnew goes the whole way: form, signature, time, claims.
func (v *Verifier) verifyAnew(set *keyset, raw string) (*Principal, error) {
	t, err := decode(raw)
	if err != nil {
		return nil, err
	}
	switch t.header.alg {
	case "ES256", "RS256", "EdDSA":
	default:
		return nil, ErrBadAlgorithm
	}
	if strings.HasPrefix(t.header.kid, reservedKeyIDPrefix) {
		return nil, ErrReservedKeyID
	}
	key, err := set.signer(t.claims.iss, t.header.kid, t.header.alg, t.signed, t.sig)
	if err != nil {
		return nil, err
	}
	p := principalOf(&t.claims, key)
	if err := p.checkTime(v.now()); err != nil {
		return nil, err
	}
	if p.Policy, err = refpolicy.New(t.claims.refs, t.claims.ops); err != nil {
		return nil, badPattern(err)
	}
	if p.Repo == "" {
		return nil, ErrNoRepoClaim
	}
	return p, nil
}

// badPattern names the claim and the rule that a pattern breaks, not the pattern.
func badPattern(err error) error {
	var bad *refpolicy.PatternError
	if errors.As(err, &bad) {
		return &ClaimError{"refs", "a pattern is malformed: " + bad.Rule}
	}
	return &ClaimError{"refs", "malformed"}
}

func principalOf(c *claims, key *Key) *Principal {
	p := &Principal{
		Org: c.iss, Subject: c.sub, Repo: c.repo,
		Scopes:   ScopesOf(c.scopes...),
		IssuedAt: c.iat, ExpiresAt: c.exp,
		KeyID: key.ID, TokenID: c.jti,
		Session: c.sid, Epoch: c.epoch,
		notBefore: c.nbf,
	}
	if c.iat.After(p.notBefore) {
		p.notBefore = c.iat
	}
	if key.Limit != 0 {
		p.Scopes = p.Scopes.Within(key.Limit)
	}
	return p
}

// ShortHash gives 16 hex digits by which logs may call a token, good or bad.
func ShortHash(raw string) string {
	return tokenSum(sha256.Sum256([]byte(raw))).short()
}

func (s tokenSum) short() string { return hex.EncodeToString(s[:8]) }
