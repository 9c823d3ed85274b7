package sessions

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"
)

// A tokenID is the id (jti) of an issued token: its family's first id, and for a
// renewed one a second of the same make, behind a dot. Each says when the token was
// issued and when it expires, so that the id alone leads to the token's keys, and
// so that byte order is newest first.
type tokenID struct {
	family string
	own    string // the last part; the family itself for a token that was not renewed
}

// A part is 6 bytes of issue time, counted down; 6 of expiry; 8 of chance. Times are
// in milliseconds.
const (
	partBytes  = 20
	partLength = 32 // in base32
	partTime   = 1<<48 - 1

	maxTokenID = 2*partLength + 1
)

// tokenAlphabet keeps byte order.
var tokenAlphabet = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// newTokenID makes the id of a token of family; empty begins one.
func newTokenID(family string, issued, expires time.Time) tokenID {
	var b [partBytes]byte
	putMillis(b[0:6], partTime-issued.UnixMilli())
	putMillis(b[6:12], expires.UnixMilli())
	_, _ = rand.Read(b[12:]) // never fails
	own := tokenAlphabet.EncodeToString(b[:])
	if family == "" {
		family = own
	}
	return tokenID{family: family, own: own}
}

// parseTokenID takes the id of a token apart; ok is false for what is none of ours.
func parseTokenID(jti string) (id tokenID, ok bool) {
	family, own, renewed := strings.Cut(jti, ".")
	if !renewed {
		own = family
	} else if own == family {
		return tokenID{}, false
	}
	if !validPart(family) || !validPart(own) {
		return tokenID{}, false
	}
	return tokenID{family: family, own: own}, true
}

func validPart(s string) bool {
	for i := range len(s) {
		if c := s[i]; !('0' <= c && c <= '9' || 'a' <= c && c <= 'v') {
			return false
		}
	}
	return len(s) == partLength
}

func (t tokenID) String() string {
	if t.own == t.family {
		return t.family
	}
	return t.family + "." + t.own
}

func (t tokenID) issuedAt() time.Time {
	b, _ := tokenAlphabet.DecodeString(t.own)
	return time.UnixMilli(partTime - millis(b[0:6])).UTC()
}

func (t tokenID) expiresAt() time.Time {
	b, _ := tokenAlphabet.DecodeString(t.own)
	return time.UnixMilli(millis(b[6:12])).UTC()
}

func putMillis(b []byte, ms int64) {
	var full [8]byte
	binary.BigEndian.PutUint64(full[:], uint64(ms))
	copy(b, full[2:])
}

func millis(b []byte) int64 {
	var full [8]byte
	copy(full[2:], b)
	return int64(binary.BigEndian.Uint64(full[:]))
}
