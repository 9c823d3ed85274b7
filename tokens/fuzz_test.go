package tokens

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// Nobody but the holder of the key makes a token: whatever is sent, it is refused
// with an error that wraps ErrUnauthorized.
func FuzzRawToken(f *testing.F) {
	v, _, _ := acme(f, ecOne())
	good := craft(f, ecOne(), es256Header, goodPayload)
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
