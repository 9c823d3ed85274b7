package tokens

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"sync"
	"testing"
	"time"
)

// testNow is the present of every test's verifier unless it moves its clock.
var testNow = time.Unix(1790000000, 0).UTC()

var (
	ecOne = sync.OnceValue(func() crypto.Signer { return must(GenerateKey()) })
	ecTwo = sync.OnceValue(func() crypto.Signer { return must(GenerateKey()) })

	rsaOne  = sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	edOne   = sync.OnceValue(func() crypto.Signer { _, k, err := ed25519.GenerateKey(rand.Reader); return must(k, err) })
	ecP384  = sync.OnceValue(func() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)) })
	rsaWeak = sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 1024)) })
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func keyOf(t testing.TB, id string, s crypto.Signer) Key {
	t.Helper()
	k, err := NewKey(id, s.Public())
	if err != nil {
		t.Fatalf("NewKey(%q) = %v", id, err)
	}
	return k
}

// A clock is a time that a test sets.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.at }

func (c *clock) set(at time.Time) { c.mu.Lock(); c.at = at; c.mu.Unlock() }

// acme gives a verifier at testNow for the org acme with the given keys, named
// k0, k1 and so on.
func acme(t testing.TB, signers ...crypto.Signer) (*Verifier, *Keyring, *clock) {
	t.Helper()
	keys := make([]Key, len(signers))
	for i, s := range signers {
		keys[i] = keyOf(t, fmt.Sprintf("k%d", i), s)
	}
	ring := NewKeyring()
	ring.Replace(map[string][]Key{"acme": keys})
	c := &clock{at: testNow}
	return NewVerifier(ring, c.now), ring, c
}

// goodClaims is a token that verifies at testNow.
func goodClaims() Claims {
	return Claims{
		Org: "acme", Subject: "builder", Repo: "team-red/site",
		Scopes:   []Scope{GitWrite, GitRead},
		IssuedAt: testNow, ExpiresAt: testNow.Add(time.Hour),
	}
}

func sign(t testing.TB, key crypto.Signer, c Claims) string {
	t.Helper()
	raw, err := Sign(key, c)
	if err != nil {
		t.Fatalf("Sign(%+v) = %v", c, err)
	}
	return raw
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// craft signs a header and payload that are written by hand; the algorithm is the
// one that key's type asks for, whatever the header says.
func craft(t testing.TB, key crypto.Signer, header, payload string) string {
	t.Helper()
	signed := b64(header) + "." + b64(payload)
	method := must(methodFor(key.Public()))
	sig, err := method.Sign(signed, key)
	if err != nil {
		t.Fatalf("sign by hand: %v", err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// craftHMAC is a token whose signature is HMAC-SHA256 with secret.
func craftHMAC(secret []byte, header, payload string) string {
	signed := b64(header) + "." + b64(payload)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(signed))
	return signed + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

const (
	es256Header = `{"alg":"ES256","typ":"JWT"}`
	goodPayload = `{"iss":"acme","sub":"builder","repo":"r","scopes":["git:read"],"iat":1790000000,"exp":1790003600}`
)
