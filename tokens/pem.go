package tokens

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

// maxPEMBytes is the size of the largest key file that is read.
const maxPEMBytes = 64 << 10

// GenerateKey makes a new EC P-256 key, which signs ES256.
func GenerateKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// ParsePublicKey reads one PEM block: PKIX, PKCS#1 or a certificate. A private
// key is ErrPrivateKey, a key of a kind that verifies no token ErrUnsupportedKey,
// anything else ErrBadPEM.
func ParsePublicKey(text []byte) (crypto.PublicKey, error) {
	block, err := onePEM(text)
	if err != nil {
		return nil, err
	}
	var pub crypto.PublicKey
	switch block.Type {
	case "PUBLIC KEY":
		pub, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		pub, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var cert *x509.Certificate
		if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
			pub = cert.PublicKey
		}
	case "PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "OPENSSH PRIVATE KEY":
		return nil, ErrPrivateKey
	default:
		return nil, ErrBadPEM
	}
	if err != nil {
		return nil, ErrBadPEM
	}
	_, err = methodFor(pub)
	return pub, err
}

// ParsePrivateKey reads one PEM block: PKCS#8, SEC1 or PKCS#1, not encrypted. A
// key of a kind that signs no token is ErrUnsupportedKey, anything else ErrBadPEM.
func ParsePrivateKey(text []byte) (crypto.Signer, error) {
	block, err := onePEM(text)
	if err != nil {
		return nil, err
	}
	var key any
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, ErrBadPEM
	}
	if err != nil {
		return nil, ErrBadPEM // what x509 says could hold a piece of the key
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, ErrUnsupportedKey
	}
	if _, err := methodFor(signer.Public()); err != nil {
		return nil, err
	}
	return signer, nil
}

// ReadPublicKey is ParsePublicKey of a file.
func ReadPublicKey(path string) (crypto.PublicKey, error) {
	return readKey(path, "read public key", ParsePublicKey)
}

// ReadPrivateKey is ParsePrivateKey of a file.
func ReadPrivateKey(path string) (crypto.Signer, error) {
	return readKey(path, "read private key", ParsePrivateKey)
}

// WritePrivateKey writes key as PKCS#8 to a new file that only its owner may
// read (0600). A file that is there already is fs.ErrExist and stays as it is.
func WritePrivateKey(path string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("write private key: %w", ErrUnsupportedKey)
	}
	return writePEM(path, &pem.Block{Type: "PRIVATE KEY", Bytes: der}, 0o600)
}

// WritePublicKey writes pub as PKIX to a new file (0644). A file that is there
// already is fs.ErrExist and stays as it is.
func WritePublicKey(path string, pub crypto.PublicKey) error {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return fmt.Errorf("write public key: %w", ErrUnsupportedKey)
	}
	return writePEM(path, &pem.Block{Type: "PUBLIC KEY", Bytes: der}, 0o644)
}

// onePEM gives the only block of text; the curve's name, which openssl writes
// before a SEC1 key, does not count.
func onePEM(text []byte) (*pem.Block, error) {
	if len(text) > maxPEMBytes {
		return nil, ErrBadPEM
	}
	block, rest := pem.Decode(text)
	if block != nil && block.Type == "EC PARAMETERS" {
		block, rest = pem.Decode(rest)
	}
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, ErrBadPEM
	}
	return block, nil
}

func readKey[K any](path, verb string, parse func([]byte) (K, error)) (key K, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		key, err = parse(text)
	}
	if err != nil {
		return key, fmt.Errorf("%s %s: %w", verb, path, err)
	}
	return key, nil
}

func writePEM(path string, block *pem.Block, mode os.FileMode) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			os.Remove(path)
		}
	}()
	if err := pem.Encode(f, block); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return f.Sync()
}
