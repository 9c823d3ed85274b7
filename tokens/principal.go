package tokens

import (
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// Leeway is how far a customer's clock may be off from ours, for exp, nbf and iat.
const Leeway = 60 * time.Second

// issuedEarly is how long before its iat an issued token is good: a token holds whole
// seconds, and the nodes' clocks differ by less. Its exp is exact: from then on, by
// the clock of the node that is asked, it is refused.
const issuedEarly = time.Second

// A Principal is who asks and what the token lets them do. It is shared by all
// requests that carry the same token and must not be changed.
type Principal struct {
	Org     string // iss; never empty
	Subject string // sub, free text for the audit log; may be empty
	Repo    string // the repo claim, raw; never empty; "org" in org-wide tokens

	// Scopes is what the token holds, cut down to its key's limit.
	Scopes Scopes
	// Policy is made of refs and ops, and of within; nil restricts nothing. Its Own
	// is what refs and ops say.
	Policy *refpolicy.Policy
	// Within are the policies of an issued token's within claim: of whoever asked for it.
	Within []*refpolicy.Policy

	IssuedAt  time.Time // zero when the token has no iat
	ExpiresAt time.Time // exp; the last second of the year 9999 stands for anything later

	Issued    bool   // this server signed the token, with a key of its own
	KeyID     string // the key that made the signature
	TokenID   string // jti; may be empty
	TokenHash string // ShortHash of the token

	// Session and Epoch are the claims sid and epoch. In a customer's token they
	// only restrict, and Epoch is nil when the token has none. An issued token has
	// both, and a TokenID.
	Session string
	Epoch   *uint64

	notBefore  time.Time // the later of nbf and iat; may be zero
	twin       tokenSum  // of the token that can be made of this one, if there is such
	tokenBytes int
}

// Require gives a *ScopeError with those of scopes that p has not, or nil.
func (p *Principal) Require(scopes ...Scope) error {
	var missing []Scope
	for _, s := range scopes {
		if !p.Scopes.Has(s) {
			missing = append(missing, s)
		}
	}
	if missing != nil {
		return &ScopeError{Missing: missing}
	}
	return nil
}

// checkTime is nil, ErrExpired or ErrNotYetValid.
func (p *Principal) checkTime(now time.Time) error {
	late, early := Leeway, Leeway
	if p.Issued {
		late, early = 0, issuedEarly
	}
	if !now.Before(p.ExpiresAt.Add(late)) {
		return ErrExpired
	}
	if now.Before(p.notBefore.Add(-early)) {
		return ErrNotYetValid
	}
	return nil
}
