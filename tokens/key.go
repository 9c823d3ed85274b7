package tokens

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// reservedKeyIDPrefix begins the ids of the server's own keys. No customer's
	// key may have such an id, so that nobody can answer for the server.
	reservedKeyIDPrefix = "hg-"

	minRSABits    = 2048
	maxKeyIDBytes = 128
)

// A Key is a public key that may sign tokens for one org. Make it with NewKey.
type Key struct {
	// ID is how logs and a token's kid header call the key.
	ID string
	// Inactive keys verify nothing; they stay listed.
	Inactive bool
	// Limit is the most that a token signed by this key is granted; the zero
	// value is no limit.
	Limit Scopes

	method jwt.SigningMethod // the one algorithm that fits the key's type
	public crypto.PublicKey
	print  string
}

// Fingerprint is the same for equal public keys only, whatever their ids.
func (k Key) Fingerprint() string { return k.print }

// NewKey makes an active, unlimited Key of pub: EC P-256, RSA of at least 2048
// bits, or Ed25519, else ErrUnsupportedKey. An empty id stands for the key's
// fingerprint (its first 16 hex digits); an id of a bad form is ErrBadKeyID.
func NewKey(id string, pub crypto.PublicKey) (Key, error) {
	method, err := methodFor(pub)
	if err != nil {
		return Key{}, err
	}
	print, err := fingerprint(pub)
	if err != nil {
		return Key{}, err
	}
	if id == "" {
		id = print[:16]
	}
	if !validKeyID(id) {
		return Key{}, fmt.Errorf("%w: %q", ErrBadKeyID, id)
	}
	return Key{ID: id, method: method, public: pub, print: print}, nil
}

// verifies reports whether k made sig over signed under the algorithm alg.
func (k *Key) verifies(alg, signed string, sig []byte) bool {
	return k.method.Alg() == alg && k.method.Verify(signed, sig, k.public) == nil
}

// methodFor binds a key's type to the one algorithm it may be used with.
func methodFor(pub crypto.PublicKey) (jwt.SigningMethod, error) {
	switch pub := pub.(type) {
	case *ecdsa.PublicKey:
		if pub.Curve == elliptic.P256() {
			return jwt.SigningMethodES256, nil
		}
	case *rsa.PublicKey:
		if pub.N != nil && pub.N.BitLen() >= minRSABits {
			return jwt.SigningMethodRS256, nil
		}
	case ed25519.PublicKey:
		if len(pub) == ed25519.PublicKeySize {
			return jwt.SigningMethodEdDSA, nil
		}
	}
	return nil, ErrUnsupportedKey
}

func fingerprint(pub crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return "", ErrUnsupportedKey
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), nil
}

func validKeyID(id string) bool {
	if id == "" || len(id) > maxKeyIDBytes || strings.HasPrefix(id, reservedKeyIDPrefix) {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}
