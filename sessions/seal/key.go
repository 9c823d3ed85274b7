package seal

import (
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
)

// A PublicKey is the half of a key that seals.
type PublicKey struct{ key *ecdh.PublicKey }

// A PrivateKey is the half that opens.
type PrivateKey struct{ key *ecdh.PrivateKey }

// GenerateKey makes a key pair.
func GenerateKey() (PrivateKey, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return PrivateKey{}, fmt.Errorf("make key: %w", err)
	}
	return PrivateKey{key}, nil
}

// Public is the half that may be given away.
func (k PrivateKey) Public() PublicKey { return PublicKey{k.key.PublicKey()} }

// ID names the key: the first 16 hex digits of the SHA-256 of its 32 bytes. It tells
// nothing that the key does not.
func (k PublicKey) ID() string {
	sum := sha256.Sum256(k.key.Bytes())
	return hex.EncodeToString(sum[:8])
}

// PEM is the key as SubjectPublicKeyInfo (RFC 8410).
func (k PublicKey) PEM() ([]byte, error) {
	return encodePEM("PUBLIC KEY", x509.MarshalPKIXPublicKey, k.key)
}

// PEM is the key as PKCS#8 (RFC 8410).
func (k PrivateKey) PEM() ([]byte, error) {
	return encodePEM("PRIVATE KEY", x509.MarshalPKCS8PrivateKey, k.key)
}

func encodePEM(kind string, marshal func(any) ([]byte, error), key any) ([]byte, error) {
	der, err := marshal(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), nil
}

// ParsePublicKey reads what PublicKey.PEM writes: ErrBadKey.
func ParsePublicKey(text []byte) (PublicKey, error) {
	key, err := parsePEM[*ecdh.PublicKey]("PUBLIC KEY", x509.ParsePKIXPublicKey, text)
	if err != nil || key.Curve() != ecdh.X25519() {
		return PublicKey{}, ErrBadKey
	}
	return PublicKey{key}, nil
}

// ParsePrivateKey reads what PrivateKey.PEM writes: ErrBadKey.
func ParsePrivateKey(text []byte) (PrivateKey, error) {
	key, err := parsePEM[*ecdh.PrivateKey]("PRIVATE KEY", x509.ParsePKCS8PrivateKey, text)
	if err != nil || key.Curve() != ecdh.X25519() {
		return PrivateKey{}, ErrBadKey
	}
	return PrivateKey{key}, nil
}

func parsePEM[K any](kind string, parse func([]byte) (any, error), text []byte) (key K, err error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != kind {
		return key, ErrBadKey
	}
	any, err := parse(block.Bytes)
	if err != nil {
		return key, ErrBadKey
	}
	key, ok := any.(K)
	if !ok {
		return key, ErrBadKey
	}
	return key, nil
}

// wrap and unwrap are one layer of an envelope; info says which.
func (k PublicKey) wrap(info string, secret []byte) ([]byte, error) {
	public, err := hpke.NewDHKEMPublicKey(k.key)
	if err != nil {
		return nil, fmt.Errorf("wrap key: %w", err)
	}
	sealed, err := hpke.Seal(public, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte(info), secret)
	if err != nil {
		return nil, fmt.Errorf("wrap key: %w", err)
	}
	return sealed, nil
}

func (k PrivateKey) unwrap(info string, sealed []byte) ([]byte, error) {
	private, err := hpke.NewDHKEMPrivateKey(k.key)
	if err != nil {
		return nil, fmt.Errorf("unwrap key: %w", err)
	}
	secret, err := hpke.Open(private, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte(info), sealed)
	if err != nil {
		return nil, ErrWrongKey
	}
	return secret, nil
}
