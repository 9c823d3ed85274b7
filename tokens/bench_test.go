package tokens

import (
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"
)

// BenchmarkVerify: a token that was seen before, one at a time and from all
// processors, and one that was not.
func BenchmarkVerify(b *testing.B) {
	v, ring, _ := acme(b, ecOne())
	raw := sign(b, ecOne(), goodClaims())
	b.Run("cached", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := v.Verify(b.Context(), raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cached/parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := v.Verify(b.Context(), raw); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	for name, key := range map[string]Key{"ES256": keyOf(b, "k", ecOne()), "RS256": keyOf(b, "k", rsaOne()), "EdDSA": keyOf(b, "k", edOne())} {
		ring.Replace(map[string][]Key{"acme": {key}})
		signer := map[string]func() string{
			"ES256": func() string { return sign(b, ecOne(), goodClaims()) },
			"RS256": func() string { return sign(b, rsaOne(), goodClaims()) },
			"EdDSA": func() string { return sign(b, edOne(), goodClaims()) },
		}[name]
		raw := signer()
		b.Run(fmt.Sprintf("first/%s", name), func(b *testing.B) {
			b.ReportAllocs()
			by := v.believed()
			for b.Loop() {
				if _, err := v.verifyAnew(by, raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMint: a token made, and what it is measured against: one bare signature
// over as many bytes.
func BenchmarkMint(b *testing.B) {
	keys, _ := serverKeys(b)
	grant, issuer := goodGrant(), NewIssuer(keys)
	raw, err := issuer.Mint(grant)
	if err != nil {
		b.Fatal(err)
	}
	signed := []byte(raw[:strings.LastIndexByte(raw, '.')])
	private := keys.set.Load().newest.private
	b.Run("signature", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ed25519.Sign(private, signed)
		}
	})
	b.Run("mint", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := issuer.Mint(grant); err != nil {
				b.Fatal(err)
			}
		}
	})
}
