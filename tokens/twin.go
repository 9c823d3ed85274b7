package tokens

import (
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"math/big"
)

// es256Half is the length of each of the two numbers in an ES256 signature.
const es256Half = 32

// twinSum is the sum of the one other token that has the same content and a good
// signature too, which anybody can make who has the token: of an ES256 signature (r, s)
// that is (r, n-s). The other algorithms let only the key's owner make another one;
// for them it is the zero sum.
func twinSum(t *unverified) tokenSum {
	if t.header.alg != "ES256" || len(t.sig) != 2*es256Half {
		return tokenSum{}
	}
	s := new(big.Int).SetBytes(t.sig[es256Half:])
	twin := append(make([]byte, 0, 2*es256Half), t.sig[:es256Half]...)
	twin = append(twin, s.Sub(elliptic.P256().Params().N, s).FillBytes(make([]byte, es256Half))...)
	return sha256.Sum256([]byte(t.signed + "." + base64.RawURLEncoding.EncodeToString(twin)))
}
