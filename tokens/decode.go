package tokens

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// MaxTokenBytes is the length of the longest token that is looked at.
const MaxTokenBytes = 64 << 10

// Times are kept within the years 1 to 9999, which every format can write.
const (
	minUnix = -62135596800
	maxUnix = 253402300799
)

// An unverified is a token taken apart. Nothing in it can be believed until the
// signature is found good.
type unverified struct {
	signed string // what the signature is over
	sig    []byte
	header header
	claims claims
}

type header struct {
	alg string
	kid string
}

// claims are the members of the payload that mean something here.
type claims struct {
	iss, sub, repo, jti, sid string

	scopes []Scope
	refs   []refpolicy.Rule
	ops    []refpolicy.Op

	hasExp        bool
	exp, iat, nbf time.Time // iat, nbf: zero when absent
	epoch         *uint64

	within json.RawMessage // of issued tokens; looked at only there
}

// decode takes a token apart.
//
//	token   = header "." payload "." signature    ; each base64url without padding
//	header  = one JSON object with alg, perhaps kid, never crit
//	payload = one JSON object of claims
func decode(raw string) (*unverified, error) {
	if len(raw) > MaxTokenBytes {
		return nil, ErrMalformed
	}
	signed, sig, _ := cutLast(raw)
	head, payload, ok := strings.Cut(signed, ".")
	if !ok || strings.Contains(payload, ".") {
		return nil, ErrMalformed
	}
	var parts [3][]byte
	for i, part := range []string{head, payload, sig} {
		var err error
		if parts[i], err = decodeSegment(part); err != nil {
			return nil, err
		}
	}
	t := &unverified{signed: signed, sig: parts[2]}
	var err error
	if t.header, err = decodeHeader(parts[0]); err != nil {
		return nil, err
	}
	if t.claims, err = decodeClaims(parts[1]); err != nil {
		return nil, err
	}
	return t, nil
}

func cutLast(raw string) (before, after string, ok bool) {
	i := strings.LastIndexByte(raw, '.')
	if i < 0 {
		return "", "", false
	}
	return raw[:i], raw[i+1:], true
}

func decodeSegment(s string) ([]byte, error) {
	// The decoder skips line ends, and one token would have many spellings.
	if strings.ContainsAny(s, "\r\n") {
		return nil, ErrMalformed
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, ErrMalformed
	}
	return b, nil
}

func decodeHeader(data []byte) (h header, err error) {
	doubled := func(string) error { return ErrBadHeader }
	err = members(data, doubled, func(name string, value json.RawMessage) error {
		ok := true
		switch name {
		case "alg":
			h.alg, ok = asString(value)
		case "kid":
			h.kid, ok = asString(value)
		case "crit":
			// It says "refuse me unless you know these": we know none.
			ok = false
		}
		if !ok {
			return ErrBadHeader
		}
		return nil
	})
	return h, err
}

func decodeClaims(data []byte) (c claims, err error) {
	doubled := func(name string) error {
		if _, known := claimTypes[name]; !known {
			return ErrMalformed // a name from outside is not repeated in an error
		}
		return &ClaimError{name, "given twice"}
	}
	err = members(data, doubled, func(name string, value json.RawMessage) error {
		if !c.set(name, value) {
			return &ClaimError{name, "not " + claimTypes[name]}
		}
		return nil
	})
	if err == nil && !c.hasExp {
		err = &ClaimError{"exp", "missing"}
	}
	return c, err
}

// claimTypes says what each claim that is read has to be.
var claimTypes = map[string]string{
	"iss": "a string", "sub": "a string", "repo": "a string", "jti": "a string", "sid": "a string",
	"scopes": "an array of strings", "ops": "an array of strings",
	"refs": "an array of [pattern, [op, ...]] pairs", "within": "an array of refs claims",
	"exp": "an integer", "iat": "an integer", "nbf": "an integer", "epoch": "an integer from 0",
}

// set takes one claim over; it is false when the claim has the wrong type. What
// is not known is passed over.
func (c *claims) set(name string, value json.RawMessage) (ok bool) {
	switch name {
	case "iss":
		c.iss, ok = asString(value)
	case "sub":
		c.sub, ok = asString(value)
	case "repo":
		c.repo, ok = asString(value)
	case "sid":
		c.sid, ok = asString(value)
	case "jti":
		c.jti, _ = asString(value)
		ok = true // decides nothing in a customer's token, so no form of it is refused
	case "scopes":
		c.scopes, ok = asScopes(value)
	case "ops":
		c.ops, ok = orNot(refpolicy.ParseOps(value))
	case "refs":
		c.refs, ok = orNot(refpolicy.ParseRules(value))
	case "exp":
		c.exp, ok = asTime(value)
		c.hasExp = ok
	case "iat":
		c.iat, ok = asTime(value)
	case "nbf":
		c.nbf, ok = asTime(value)
	case "epoch":
		c.epoch, ok = asEpoch(value)
	case "within":
		c.within, ok = value, true // in a customer's token it means nothing
	default:
		ok = true
	}
	return ok
}

// asScopes reads an array of strings; strings that are no scope stay in the list.
func asScopes(value json.RawMessage) ([]Scope, bool) {
	list, ok := asArray(value)
	if !ok {
		return nil, false
	}
	scopes := make([]Scope, len(list))
	for i, element := range list {
		s, ok := asString(element)
		if !ok {
			return nil, false
		}
		scopes[i] = Scope(s)
	}
	return scopes, true
}

// orNot drops what err says: the claim's name and type are all that is told.
func orNot[T any](v T, err error) (T, bool) { return v, err == nil }

func asTime(value json.RawMessage) (time.Time, bool) {
	n, ok := asInteger(value)
	return time.Unix(min(max(n, minUnix), maxUnix), 0).UTC(), ok
}

func asEpoch(value json.RawMessage) (*uint64, bool) {
	n, ok := asInteger(value)
	epoch := uint64(n)
	return &epoch, ok && n >= 0
}
