package refpolicy

import (
	"encoding/hex"
	"fmt"
)

// An OID is a SHA-1 object id. The zero OID means "absent" in a change.
type OID [20]byte

// ZeroOID stands for "does not exist" in a change.
var ZeroOID OID

// ParseOID reads 40 lower-case hex digits; anything else is ErrBadOID.
func ParseOID(s string) (OID, error) {
	var id OID
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("%w: %d characters, want 40", ErrBadOID, len(s))
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return id, fmt.Errorf("%w: character %q", ErrBadOID, c)
		}
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return id, fmt.Errorf("%w: %w", ErrBadOID, err)
	}
	return id, nil
}

// IsZero reports whether id is the zero OID.
func (id OID) IsZero() bool { return id == ZeroOID }

func (id OID) String() string {
	var digits [2 * len(id)]byte
	hex.Encode(digits[:], id[:])
	return string(digits[:])
}

// MarshalText gives the 40 hex digits.
func (id OID) MarshalText() ([]byte, error) {
	return hex.AppendEncode(make([]byte, 0, 2*len(id)), id[:]), nil
}

// UnmarshalText is ParseOID.
func (id *OID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseOID(string(b))
	return err
}
