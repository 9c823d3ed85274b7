package tokens

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A Denial says which tokens of an org are refused, although their signature and
// times are good. It names exactly one of TokenSHA256, TokenID and Subject; none of
// them is a secret.
type Denial struct {
	// TokenSHA256 is the SHA-256 of one token as it travels, in hex; see TokenSHA256.
	TokenSHA256 string
	// TokenID is the jti of one token.
	TokenID string
	// Subject is the sub of tokens that were issued (iat) before IssuedBefore. Those
	// without iat are refused too. A zero IssuedBefore is the time of the denial.
	Subject      string
	IssuedBefore time.Time

	Until  time.Time // when it ends; zero: when it is taken back
	Reason string    // free text, for whoever reads the list
	By     string    // who asked for it

	// ID is how the denial is called, and At when it was made. Deny sets both.
	ID string
	At time.Time
}

// The keys of denials in the org's space, which are their ids. They lie together,
// between denialsFrom and denialsTo.
const (
	denyTokenKeys   = "deny/"     // deny/<SHA-256 of the token, hex>
	denyIDKeys      = "deny-jti/" // deny-jti/<jti>
	denySubjectKeys = "deny-sub/" // deny-sub/<sub>

	denialsFrom, denialsTo = "deny-", "deny0"

	// denialsKey counts the changes of the list: who knows the count knows the list.
	denialsKey = "denials"

	maxDeniedName  = 2 << 10 // bytes of a jti or sub, to fit a key
	maxDenialNotes = 1 << 10 // bytes of Reason, and of By
)

// TokenSHA256 is how a Denial names the token raw.
func TokenSHA256(raw string) string {
	sum := sha256.Sum256([]byte(raw))
	return hex.EncodeToString(sum[:])
}

// named checks d and gives it its ID.
func (d Denial) named() (Denial, error) {
	d.TokenSHA256 = strings.ToLower(d.TokenSHA256)
	d.ID = ""
	names := 0
	for _, n := range []struct{ keys, name string }{
		{denyTokenKeys, d.TokenSHA256}, {denyIDKeys, d.TokenID}, {denySubjectKeys, d.Subject},
	} {
		if n.name != "" {
			names++
			d.ID = n.keys + n.name
		}
	}
	switch {
	case names != 1:
		return d, fmt.Errorf("%w: it names one of a token's SHA-256, a jti and a subject", ErrBadDenial)
	case d.TokenSHA256 != "" && !isSum(d.TokenSHA256):
		return d, fmt.Errorf("%w: a token is named by the 64 hex digits of its SHA-256", ErrBadDenial)
	case d.Subject == "" && !d.IssuedBefore.IsZero():
		return d, fmt.Errorf("%w: a time of issue goes with a subject", ErrBadDenial)
	case len(d.TokenID) > maxDeniedName, len(d.Subject) > maxDeniedName, !utf8.ValidString(d.ID):
		return d, fmt.Errorf("%w: the name is not text of at most %d bytes; deny the token by its SHA-256", ErrBadDenial, maxDeniedName)
	case len(d.Reason) > maxDenialNotes, len(d.By) > maxDenialNotes, !utf8.ValidString(d.Reason), !utf8.ValidString(d.By):
		return d, fmt.Errorf("%w: the reason is not text of at most %d bytes", ErrBadDenial, maxDenialNotes)
	}
	return d, nil
}

func isSum(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

// isDenialID reports whether id could be the ID of a Denial.
func isDenialID(id string) bool {
	for _, keys := range []string{denyTokenKeys, denyIDKeys, denySubjectKeys} {
		if strings.HasPrefix(id, keys) && len(id) > len(keys) && len(id) <= len(keys)+maxDeniedName {
			return true
		}
	}
	return false
}

// storedDenial is the value under a denial's key.
type storedDenial struct {
	At           time.Time `json:"at"`
	IssuedBefore time.Time `json:"issued_before,omitzero"`
	Until        time.Time `json:"until,omitzero"`
	Reason       string    `json:"reason,omitempty"`
	By           string    `json:"by,omitempty"`
}

func (d Denial) encode() ([]byte, error) {
	return json.Marshal(storedDenial{At: d.At, IssuedBefore: d.IssuedBefore, Until: d.Until, Reason: d.Reason, By: d.By})
}

// decodeDenial reads what stands under the key id. Of a value that cannot be read the
// key still says what is denied: then it holds for good, for a subject's tokens of any time.
func decodeDenial(id string, value []byte) Denial {
	var s storedDenial
	if err := json.Unmarshal(value, &s); err != nil {
		s = storedDenial{IssuedBefore: time.Unix(maxUnix, 0).UTC(), Reason: "record is damaged"}
	}
	d := Denial{ID: id, At: s.At, Until: s.Until, Reason: s.Reason, By: s.By}
	switch {
	case strings.HasPrefix(id, denyTokenKeys):
		d.TokenSHA256 = id[len(denyTokenKeys):]
	case strings.HasPrefix(id, denyIDKeys):
		d.TokenID = id[len(denyIDKeys):]
	default:
		d.Subject, d.IssuedBefore = strings.TrimPrefix(id, denySubjectKeys), s.IssuedBefore
	}
	return d
}
