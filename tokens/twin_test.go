package tokens

import (
	"crypto"
	"crypto/elliptic"
	"encoding/base64"
	"errors"
	"math/big"
	"strings"
	"testing"
)

// twinOf is the other token that whoever holds an ES256 token can make of it.
func twinOf(t testing.TB, raw string) string {
	t.Helper()
	signed, sig, _ := cutLast(raw)
	b, err := base64.RawURLEncoding.DecodeString(sig)
	if err != nil || len(b) != 64 {
		t.Fatalf("signature %q = %d bytes, %v", sig, len(b), err)
	}
	s := new(big.Int).SetBytes(b[32:])
	s.Sub(elliptic.P256().Params().N, s).FillBytes(b[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(b)
}

// A token was denied by its hash, and the thief changed its signature into the other
// one that is good for the same content: another hash. Both are refused, whichever of
// them leaked.
func TestDeniedWithItsTwin(t *testing.T) {
	c := &clock{at: testNow}
	v, list := aNode(t, memLedger(t, c.now), c)
	raw := sign(t, ecOne(), goodClaims())
	twin := twinOf(t, raw)
	if twin == raw || twinOf(t, twin) != raw {
		t.Fatal("the twin of the twin is not the token")
	}
	other := goodClaims()
	other.ID = "another"
	unharmed := sign(t, ecOne(), other)
	for _, leaked := range []string{raw, twin} {
		for _, used := range []string{raw, twin} {
			if _, err := v.Verify(t.Context(), used); err != nil {
				t.Fatalf("before: Verify = %v", err)
			}
		}
		made := deny(t, list, Denial{TokenSHA256: TokenSHA256(leaked)})
		for _, used := range []string{raw, twin} {
			if _, err := v.Verify(t.Context(), used); !errors.Is(err, ErrDenied) {
				t.Errorf("Verify = %v, want ErrDenied", err)
			}
		}
		if _, err := v.Verify(t.Context(), unharmed); err != nil {
			t.Errorf("another token: Verify = %v", err)
		}
		if err := list.Allow(t.Context(), "acme", made.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// Nobody but the key's owner makes another good signature of the other algorithms: not
// by another spelling, not by adding the group's order.
func TestOneSpellingOfAToken(t *testing.T) {
	v, _, _ := acme(t, ecOne(), rsaOne(), edOne())
	for name, key := range map[string]crypto.Signer{"ES256": ecOne(), "RS256": rsaOne(), "EdDSA": edOne()} {
		raw := sign(t, key, goodClaims())
		if _, err := v.Verify(t.Context(), raw); err != nil {
			t.Fatalf("%s: Verify = %v", name, err)
		}
		signed, sig, _ := cutLast(raw)
		b, err := base64.RawURLEncoding.DecodeString(sig)
		if err != nil {
			t.Fatal(err)
		}
		spellings := []string{raw + "=", raw + "==", raw + "\n", " " + raw, raw + ".", strings.ReplaceAll(raw, ".", ".\r\n"),
			signed + "." + base64.RawURLEncoding.EncodeToString(append(b[:len(b):len(b)], 0)),
			signed + "." + base64.RawURLEncoding.EncodeToString(append([]byte{0}, b...))}
		if name == "EdDSA" {
			spellings = append(spellings, signed+"."+base64.RawURLEncoding.EncodeToString(plusOrder(b)))
		}
		for _, last := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
			if changed := raw[:len(raw)-1] + string(last); changed != raw {
				spellings = append(spellings, changed)
			}
		}
		for _, s := range spellings {
			if _, err := v.Verify(t.Context(), s); !errors.Is(err, ErrUnauthorized) {
				t.Errorf("%s: Verify of another spelling ...%q = %v, want it refused", name, s[len(s)-8:], err)
			}
		}
	}
}

// plusOrder adds the order of Ed25519's group to the number s of a signature.
func plusOrder(sig []byte) []byte {
	order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	out := append([]byte(nil), sig...)
	s := new(big.Int)
	for i := 31; i >= 0; i-- { // little-endian
		s.Lsh(s, 8).Or(s, big.NewInt(int64(sig[32+i])))
	}
	s.Add(s, order)
	for i := range 32 {
		out[32+i] = byte(new(big.Int).Rsh(s, uint(8*i)).Uint64())
	}
	return out
}
