package tokens

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type equalKey interface{ Equal(crypto.PublicKey) bool }

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func TestKeyFilesComeBack(t *testing.T) {
	for name, key := range map[string]crypto.Signer{"EC": ecOne(), "RSA": rsaOne(), "Ed25519": edOne()} {
		dir := t.TempDir()
		private, public := filepath.Join(dir, "a.key.pem"), filepath.Join(dir, "a.pub.pem")
		if err := errors.Join(WritePrivateKey(private, key), WritePublicKey(public, key.Public())); err != nil {
			t.Fatalf("%s: write = %v", name, err)
		}
		for path, want := range map[string]fs.FileMode{private: 0o600, public: 0o644} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm()&^0o644 != 0 || info.Mode().Perm() > want {
				t.Errorf("%s: mode of %s = %v, %v, want at most %v", name, filepath.Base(path), info.Mode(), err, want)
			}
		}
		signer, err := ReadPrivateKey(private)
		if err != nil || !key.Public().(equalKey).Equal(signer.Public()) {
			t.Errorf("%s: ReadPrivateKey = %v, want the key that was written", name, err)
		}
		pub, err := ReadPublicKey(public)
		if err != nil || !key.Public().(equalKey).Equal(pub) {
			t.Errorf("%s: ReadPublicKey = %v, want the key that was written", name, err)
		}
		if _, err := ReadPublicKey(private); !errors.Is(err, ErrPrivateKey) {
			t.Errorf("%s: ReadPublicKey of the private key = %v, want %v", name, err, ErrPrivateKey)
		}
	}
}

func TestKeyFilesAreNeverOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"WritePrivateKey": WritePrivateKey(path, ecOne()),
		"WritePublicKey":  WritePublicKey(path, ecOne().Public()),
	} {
		if !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s over a file = %v, want %v", name, err, fs.ErrExist)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "precious" {
		t.Errorf("the file now holds %q, %v", got, err)
	}
}

func TestPrivateKeyForms(t *testing.T) {
	sec1 := pemOf("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(ecOne().(*ecdsa.PrivateKey))))
	pkcs1 := pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaOne().(*rsa.PrivateKey)))
	pkcs8 := pemOf("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(edOne())))
	curve := pemOf("EC PARAMETERS", []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7})
	p384 := pemOf("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(ecP384())))
	weak := pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaWeak().(*rsa.PrivateKey)))
	for name, tc := range map[string]struct {
		text []byte
		want error
	}{
		"SEC1":                 {sec1, nil},
		"SEC1 after its curve": {append(curve, sec1...), nil},
		"PKCS#1":               {pkcs1, nil},
		"PKCS#8":               {pkcs8, nil},
		"space after":          {append(bytes.Clone(sec1), "\n\n"...), nil},
		"P-384":                {p384, ErrUnsupportedKey},
		"RSA 1024":             {weak, ErrUnsupportedKey},
		"two keys":             {append(bytes.Clone(sec1), pkcs8...), ErrBadPEM},
		"only the curve":       {curve, ErrBadPEM},
		"public":               {pemOf("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(ecOne().Public()))), ErrBadPEM},
		"encrypted":            {pemOf("ENCRYPTED PRIVATE KEY", []byte("x")), ErrBadPEM},
		"garbage in the block": {pemOf("PRIVATE KEY", []byte("garbage")), ErrBadPEM},
		"empty":                {nil, ErrBadPEM},
		"not PEM":              {[]byte("secret"), ErrBadPEM},
		"larger than a key is": {append(sec1, strings.Repeat("\n", maxPEMBytes)...), ErrBadPEM},
	} {
		if key, err := ParsePrivateKey(tc.text); !errors.Is(err, tc.want) || (key != nil) != (tc.want == nil) {
			t.Errorf("%s: ParsePrivateKey = %T, %v, want %v", name, key, err, tc.want)
		}
	}
}

func TestPublicKeyForms(t *testing.T) {
	cert := func(key crypto.Signer) []byte {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
		return pemOf("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)))
	}
	pkix := func(pub crypto.PublicKey) []byte { return pemOf("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(pub))) }
	for name, tc := range map[string]struct {
		text []byte
		want error
	}{
		"PKIX EC":          {pkix(ecOne().Public()), nil},
		"PKIX RSA":         {pkix(rsaOne().Public()), nil},
		"PKIX Ed25519":     {pkix(edOne().Public()), nil},
		"PKCS#1":           {pemOf("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(rsaOne().Public().(*rsa.PublicKey))), nil},
		"certificate EC":   {cert(ecOne()), nil},
		"certificate RSA":  {cert(rsaOne()), nil},
		"PKIX P-384":       {pkix(ecP384().Public()), ErrUnsupportedKey},
		"PKIX RSA 1024":    {pkix(rsaWeak().Public()), ErrUnsupportedKey},
		"certificate P384": {cert(ecP384()), ErrUnsupportedKey},
		"SEC1 private":     {pemOf("EC PRIVATE KEY", []byte("x")), ErrPrivateKey},
		"two keys":         {append(pkix(ecOne().Public()), pkix(ecTwo().Public())...), ErrBadPEM},
		"request":          {pemOf("CERTIFICATE REQUEST", []byte("x")), ErrBadPEM},
		"garbage":          {pemOf("PUBLIC KEY", []byte("x")), ErrBadPEM},
		"empty":            {nil, ErrBadPEM},
	} {
		if _, err := ParsePublicKey(tc.text); !errors.Is(err, tc.want) {
			t.Errorf("%s: ParsePublicKey = %v, want %v", name, err, tc.want)
		}
	}
}

func TestSignRefusesOtherKeys(t *testing.T) {
	for name, key := range map[string]crypto.Signer{"P-384": ecP384(), "RSA 1024": rsaWeak()} {
		if raw, err := Sign(key, goodClaims()); !errors.Is(err, ErrUnsupportedKey) {
			t.Errorf("Sign with %s = %q, %v, want %v", name, raw, err, ErrUnsupportedKey)
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add(pemOf("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(ecOne().Public()))))
	f.Add(pemOf("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(edOne()))))
	f.Add(pemOf("EC PARAMETERS", []byte{6, 8, 42}))
	f.Add(pemOf("CERTIFICATE", []byte{48, 0}))
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if pub, err := ParsePublicKey(text); err == nil {
			if _, err := NewKey("", pub); err != nil {
				t.Errorf("ParsePublicKey took a key that NewKey refuses: %v", err)
			}
		}
		if key, err := ParsePrivateKey(text); err == nil {
			if _, err := Sign(key, goodClaims()); err != nil {
				t.Errorf("ParsePrivateKey took a key that Sign refuses: %v", err)
			}
		}
	})
}
