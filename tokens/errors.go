package tokens

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnauthorized is wrapped by every refusal that leaves open who asks (401).
var ErrUnauthorized = errors.New("token refused")

// Refusals of a token as a whole. Each wraps ErrUnauthorized.
var (
	// ErrMalformed: not a JWT in compact form, over MaxTokenBytes, or not strict JSON inside.
	ErrMalformed = fmt.Errorf("%w: malformed", ErrUnauthorized)
	// ErrBadHeader: a header member is missing, doubled, of the wrong type, or is crit.
	ErrBadHeader = fmt.Errorf("%w: bad header", ErrUnauthorized)
	// ErrBadAlgorithm: alg is none of ES256, RS256 and EdDSA.
	ErrBadAlgorithm = fmt.Errorf("%w: algorithm is not ES256, RS256 or EdDSA", ErrUnauthorized)
	// ErrReservedKeyID: kid names a server's own key, and this server has no such key.
	ErrReservedKeyID = fmt.Errorf("%w: no such server key", ErrUnauthorized)
	// ErrUnknownOrg: no key is registered for the org that iss names.
	ErrUnknownOrg = fmt.Errorf("%w: unknown org", ErrUnauthorized)
	// ErrBadSignature: no active key of the org, of the type that alg asks for, made the signature.
	ErrBadSignature = fmt.Errorf("%w: bad signature", ErrUnauthorized)
	// ErrExpired: exp is past by the leeway or more.
	ErrExpired = fmt.Errorf("%w: expired", ErrUnauthorized)
	// ErrNotYetValid: nbf or iat is in the future by more than the leeway.
	ErrNotYetValid = fmt.Errorf("%w: not yet valid", ErrUnauthorized)
	// ErrDenied: the org has denied the token, its jti, or its subject's tokens of that time.
	ErrDenied = fmt.Errorf("%w: denied", ErrUnauthorized)
	// ErrBadClaim: a claim is missing, doubled or malformed; a *ClaimError names it.
	ErrBadClaim = fmt.Errorf("%w: bad claim", ErrUnauthorized)
)

// ErrNoRepoClaim: the token is good, and its repo claim is missing or empty (403).
var ErrNoRepoClaim = errors.New("token has no repo claim")

// A ClaimError names the claim for which a token is refused. It is an ErrBadClaim.
type ClaimError struct {
	Claim  string // such as exp
	Reason string // such as "not an integer"; never a piece of the token
}

func (e *ClaimError) Error() string {
	return fmt.Sprintf("%v %q: %s", ErrBadClaim, e.Claim, e.Reason)
}

// Unwrap gives ErrBadClaim.
func (e *ClaimError) Unwrap() error { return ErrBadClaim }

// ErrMoreAsked: a token was to be renewed for more than it has (403).
var ErrMoreAsked = errors.New("more is asked for than the token has")

// ErrGrantTooLarge: the token of a grant would be longer than MaxTokenBytes; its
// patterns, or the policies it is within, are too many.
var ErrGrantTooLarge = errors.New("token would be too long")

// Errors of denials.
var (
	// ErrBadDenial: it does not say which tokens are denied, or not in the form that is asked for.
	ErrBadDenial = errors.New("not a denial")
	// ErrDenialNotFound: nothing is denied under this id.
	ErrDenialNotFound = errors.New("denial not found")
)

// A ScopeError says which scopes a good token lacks for what was asked (403).
type ScopeError struct {
	Missing []Scope
}

func (e *ScopeError) Error() string {
	names := make([]string, len(e.Missing))
	for i, s := range e.Missing {
		names[i] = string(s)
	}
	return "token lacks scope " + strings.Join(names, ", ")
}

// Errors of keys and of signing. None of them holds any of a key's text.
var (
	// ErrUnsupportedKey: not an EC P-256, RSA (2048 bits or more) or Ed25519 key.
	ErrUnsupportedKey = errors.New("key is not EC P-256, RSA of 2048 bits or more, or Ed25519")
	// ErrBadPEM: not exactly one PEM block of a key in a form that is read here.
	ErrBadPEM = errors.New("not one PEM block holding a key")
	// ErrPrivateKey: a private key stands where a public one is wanted.
	ErrPrivateKey = errors.New("this is a private key where the public key is wanted")
	// ErrBadKeyID: a key's id is reserved for the server (it begins with hg-), or is not 1 to 128 printable ASCII characters.
	ErrBadKeyID = errors.New("key id is reserved or not 1 to 128 printable characters")
	// ErrUnknownScope: the text names no scope.
	ErrUnknownScope = errors.New("unknown scope")
)
