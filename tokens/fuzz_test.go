package tokens

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// Nobody but the holder of the key makes a token: whatever is sent, it is refused
// with an error that wraps ErrUnauthorized.
func FuzzRawToken(f *testing.F) {
	v, keys, ring, _ := issuing(f)
	ring.Replace(map[string][]Key{"acme": {keyOf(f, "k0", ecOne())}})
	good := craft(f, ecOne(), es256Header, goodPayload)
	issued := mint(f, keys, goodGrant())
	f.Add(issued[:len(issued)-1])
	f.Add(b64(`{"alg":"EdDSA","kid":"`+keys.List()[0].ID+`"}`) + "." + b64(goodPayload) + "." + b64(strings.Repeat("x", 64)))
	f.Add("")
	f.Add("..")
	f.Add(good[:len(good)-1])
	f.Add(strings.ReplaceAll(good, ".", ".."))
	f.Add(b64(`{"alg":"none"}`) + "." + b64(goodPayload) + ".")
	f.Add(b64(`{"alg":"ES256","kid":"k0"}`) + "." + b64(goodPayload) + "." + b64(strings.Repeat("x", 64)))
	f.Add(craft(f, ecTwo(), es256Header, goodPayload))
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := v.Verify(t.Context(), raw)
		if p != nil || !errors.Is(err, ErrUnauthorized) {
			t.Errorf("Verify(%q) = %+v, %v, want a 401", raw, p, err)
		}
	})
}

// Whatever a customer signs: no panic; what is taken says what encoding/json
// would find under the exact names, and has come from valid JSON.
func FuzzClaims(f *testing.F) {
	v, _, _ := acme(f, edOne())
	f.Add(goodPayload)
	for _, payload := range []string{
		`{}`, `null`, `[]`, `{"exp":1e999}`, `{"exp":1790003600.0,"iss":"acme","repo":"a/b"}`,
		withClaim("refs", `[["main",["no-push"]],["*",[]]]`), withClaim("ops", `["no-force-push"]`),
		withClaim("epoch", "18446744073709551615"), withClaim("scopes", `["git:write"]`), withClaim("Repo", `"x"`),
		withClaim("\\u0072epo", `"x"`), withClaim("exp", "-0"), withClaim("nbf", "1e-400"),
	} {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		raw := craft(t, edOne(), `{"alg":"EdDSA"}`, payload)
		p, err := v.Verify(t.Context(), raw)
		if err != nil {
			if p != nil || !errors.Is(err, ErrUnauthorized) && !errors.Is(err, ErrNoRepoClaim) {
				t.Errorf("Verify(%s) = %+v, %v, want no principal and a known kind", payload, p, err)
			}
			return
		}
		var plain map[string]any
		if err := json.Unmarshal([]byte(payload), &plain); err != nil {
			t.Fatalf("Verify took %q, which is not JSON: %v", payload, err)
		}
		if p.Org != plain["iss"] || p.Repo != plain["repo"] || p.Repo == "" || p.Org != "acme" {
			t.Errorf("Verify(%s) = org %q, repo %q", payload, p.Org, p.Repo)
		}
		if list, _ := plain["scopes"].([]any); len(p.Scopes.List()) > len(list) {
			t.Errorf("Verify(%s) granted %v", payload, p.Scopes.List())
		}
	})
}

// Whatever stands in a token that this server's key has signed: no panic, and what is
// taken is bound to a session and restricts what its own rules and those within do.
func FuzzIssuedClaims(f *testing.F) {
	v, keys, _, _ := issuing(f)
	key := keys.set.Load().newest
	grant := goodGrant()
	grant.Within = [][]refpolicy.Rule{{{Pattern: "secret/*", Ops: []refpolicy.Op{refpolicy.NoRead}}}}
	_, payload := parts(f, mint(f, keys, grant))
	f.Add(payload)
	f.Add(goodPayload)
	for _, within := range []string{`[]`, `[[]]`, `null`, `[null]`, `[[["*"]]]`, `[[["a*",[]]]]`, `[[["*",["odd"]]],[["HEAD",[]]]]`} {
		f.Add(payload[:strings.Index(payload, `,"within"`)] + `,"within":` + within + "}")
	}
	f.Fuzz(func(t *testing.T, payload string) {
		raw := craft(t, key.private, `{"alg":"EdDSA","kid":"`+key.id+`"}`, payload)
		p, err := v.Verify(t.Context(), raw)
		if err != nil {
			if p != nil || !errors.Is(err, ErrUnauthorized) && !errors.Is(err, ErrNoRepoClaim) {
				t.Errorf("Verify(%s) = %+v, %v, want no principal and a known kind", payload, p, err)
			}
			return
		}
		if !p.Issued || p.Org != "acme" || p.Session == "" || p.TokenID == "" || p.Epoch == nil || p.Policy == nil {
			t.Errorf("Verify(%s) = %+v, which is bound to no session", payload, p)
		}
		for _, outer := range append(p.Within, p.Policy.Own()) {
			for _, ref := range []refpolicy.RefName{sandboxRef, "refs/heads/main", "refs/heads/secret/a"} {
				if p.Policy.CanRead(ref) && !outer.CanRead(ref) || p.Policy.MayPush(ref) && !outer.MayPush(ref) {
					t.Errorf("Verify(%s): %s is allowed, and one of its policies refuses it", payload, ref)
				}
			}
		}
	})
}
