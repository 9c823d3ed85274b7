package tokens

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// withClaim is goodPayload with one claim (a JSON member) added or put in place
// of the one with the same name.
func withClaim(name, value string) string {
	var kept []string
	for _, m := range []string{`"iss":"acme"`, `"repo":"r"`, `"scopes":["git:read"]`, `"exp":1790003600`} {
		if !strings.HasPrefix(m, `"`+name+`":`) {
			kept = append(kept, m)
		}
	}
	if value != "" {
		kept = append(kept, `"`+name+`":`+value)
	}
	return "{" + strings.Join(kept, ",") + "}"
}

// OQ-S9 and OQ-P5: what is not understood is refused, and the text names the claim.
func TestBadClaimsAreNamed(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	for claim, values := range map[string][]string{
		"exp": {"", `"soon"`, `"1790003600"`, `1790003600.5`, `null`, `true`, `[1790003600]`, `{}`},
		"iat": {`"now"`, `1790000000.25`, `null`, `[]`},
		"nbf": {`"now"`, `1790000000.25`, `null`},
		"iss": {`1`, `null`, `["acme"]`},
		"sub": {`1`, `null`, `["x"]`},
		"repo": {
			`1`, `null`, `["r"]`, `{"name":"r"}`,
		},
		"scopes": {`"git:read"`, `null`, `["git:read",1]`, `[["git:read"]]`, `{"git:read":true}`, `[null]`},
		"ops":    {`"no-push"`, `null`, `[1]`, `[["no-push"]]`},
		"refs": {
			`null`, `"main"`, `{}`, `["main"]`, `[["main"]]`, `[["main","no-push"]]`, `[["main",null]]`,
			`[["main",["no-push"],1]]`, `[[1,["no-push"]]]`, `[["main",[1]]]`, `[[]]`, `[null]`,
			`[["",[]]]`, `[["a*b",[]]]`, `[["feature*",[]]]`, `[["**",[]]]`, `[["refs/*/main",[]]]`, `[["a/**",[]]]`,
			`[["main",[]],["a*b",["no-push"]]]`,
		},
		"sid":   {`1`, `null`},
		"epoch": {`-1`, `1.5`, `"1"`, `null`},
	} {
		for _, value := range values {
			_, err := v.Verify(t.Context(), craft(t, ecOne(), es256Header, withClaim(claim, value)))
			var bad *ClaimError
			if !errors.As(err, &bad) || bad.Claim != claim || !errors.Is(err, ErrUnauthorized) || !errors.Is(err, ErrBadClaim) {
				t.Errorf("%s = %s: Verify = %v, want a *ClaimError that names it", claim, value, err)
			} else if !strings.Contains(err.Error(), `"`+claim+`"`) {
				t.Errorf("%s = %s: text %q does not name the claim", claim, value, err)
			}
		}
	}
}

func TestDoubledClaims(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	for _, claim := range []string{"iss", "sub", "repo", "scopes", "refs", "ops", "iat", "exp", "nbf", "sid", "epoch", "jti"} {
		value := map[string]string{
			"scopes": `["git:read"]`, "refs": `[["main",[]]]`, "ops": `["no-push"]`,
			"iat": "1790000000", "exp": "1790003600", "nbf": "1790000000", "epoch": "1", "iss": `"acme"`,
		}[claim]
		if value == "" {
			value = `"r"`
		}
		escaped := `"\u00` + hexOf(claim[0]) + claim[1:] + `":` + value
		for _, second := range []string{`"` + claim + `":` + value, escaped} {
			payload := strings.TrimSuffix(withClaim(claim, value), "}") + "," + second + "}"
			_, err := v.Verify(t.Context(), craft(t, ecOne(), es256Header, payload))
			var bad *ClaimError
			if !errors.As(err, &bad) || bad.Claim != claim {
				t.Errorf("payload %s: Verify = %v, want a *ClaimError for %s", payload, err, claim)
			}
		}
	}
}

func hexOf(b byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[b>>4], digits[b&15]})
}

// A name in another case is another name, and no name of ours.
func TestClaimNamesAreCaseSensitive(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	payload := strings.TrimSuffix(goodPayload, "}") +
		`,"Repo":"victim","REPO":1,"Scopes":["repo:write"],"ISS":"other","Exp":"never","Refs":"x","ſub":"x"}`
	p, err := v.Verify(t.Context(), craft(t, ecOne(), es256Header, payload))
	if err != nil {
		t.Fatalf("Verify = %v", err)
	}
	if p.Repo != "r" || p.Org != "acme" || p.Subject != "builder" || p.Scopes != ScopesOf(GitRead) || p.Policy != nil {
		t.Errorf("Verify = %+v, want the lower-case claims only", p)
	}
	if _, err := v.Verify(t.Context(), craft(t, ecOne(), es256Header, `{"iss":"acme","repo":"r","EXP":1790003600}`)); !errors.Is(err, ErrBadClaim) {
		t.Errorf("EXP in place of exp: Verify = %v, want %v", err, ErrBadClaim)
	}
}

// Case 3.7: unknown scopes are ignored, a missing claim gives no right.
func TestCase3_7_ScopesClaim(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	for value, want := range map[string]Scopes{
		"":                             0,
		`[]`:                           0,
		`["deployment:write","admin"]`: 0,
		`["GIT:READ"," git:read"]`:     0,
		`["git:read","x","git:read"]`:  ScopesOf(GitRead),
		`["repo:write","org:read"]`:    ScopesOf(RepoWrite, OrgRead),
	} {
		p, err := v.Verify(t.Context(), craft(t, ecOne(), es256Header, withClaim("scopes", value)))
		if err != nil || p.Scopes != want {
			t.Errorf("scopes %s: Verify = %+v, %v, want scopes %v", value, p, err, want.List())
		}
	}
}

// aud and jti decide nothing, and neither does what is not known.
func TestIgnoredClaims(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	for claim, values := range map[string][]string{
		"aud":   {`"somebody"`, `["a","b"]`, `1`, `null`},
		"jti":   {`"x"`, `1`, `null`},
		"admin": {`true`, `{"deep":{"exp":1,"exp":2}}`},
		"refs":  {`[]`},
		"ops":   {`[]`},
	} {
		for _, value := range values {
			if _, err := v.Verify(t.Context(), craft(t, ecOne(), es256Header, withClaim(claim, value))); err != nil {
				t.Errorf("%s = %s: Verify = %v, want it ignored", claim, value, err)
			}
		}
	}
}

// Cases 3.2 and 3.3, and the edges of the leeway.
func TestCase3_2_And_3_3_Times(t *testing.T) {
	for _, tc := range []struct {
		claim, value string
		want         error
	}{
		{"exp", "0", ErrExpired},
		{"exp", "-5", ErrExpired},
		{"exp", "-99999999999999999999", ErrExpired},
		{"exp", "1789999880", ErrExpired},              // -120 s
		{"exp", "1789999940", ErrExpired},              // -60 s: the leeway is over
		{"exp", "1789999941", nil},                     // -59 s
		{"exp", "1789999999", nil},                     // -1 s
		{"exp", "1790003600.0", nil},                   // integral floats are integers
		{"exp", "1.7900036e9", nil},                    //
		{"exp", "1821536000", nil},                     // a year
		{"exp", "253402300800", nil},                   // beyond the year 9999
		{"exp", "9223372036854775807", nil},            //
		{"exp", "99999999999999999999999999", nil},     // beyond int64
		{"exp", "1e300", nil},                          //
		{"exp", "1e400", nil},                          // beyond float64
		{"iat", "1790000020", nil},                     // +20 s
		{"iat", "1790000060", nil},                     // +60 s
		{"iat", "1790000061", ErrNotYetValid},          //
		{"iat", "1e300", ErrNotYetValid},               //
		{"iat", "1789913600", nil},                     // a day ago
		{"iat", "-1e300", nil},                         //
		{"nbf", "1790000020", nil},                     // +20 s
		{"nbf", "1790000060", nil},                     // +60 s
		{"nbf", "1790000061", ErrNotYetValid},          //
		{"nbf", "1790003600", ErrNotYetValid},          // +1 h
		{"nbf", "9223372036854775807", ErrNotYetValid}, //
		{"nbf", "1", nil},                              //
	} {
		v, _, _ := acme(t, ecOne())
		raw := craft(t, ecOne(), es256Header, withClaim(tc.claim, tc.value))
		for _, call := range []string{"first", "second"} {
			if p, err := v.Verify(t.Context(), raw); !errors.Is(err, tc.want) || (p != nil) != (tc.want == nil) {
				t.Errorf("%s = %s, %s call: Verify = %v, %v, want %v", tc.claim, tc.value, call, p, err, tc.want)
			}
		}
	}
}

func TestFarTimesCanBeWritten(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	payload := `{"iss":"acme","repo":"r","exp":1e300,"iat":-1e300}`
	p, err := v.Verify(t.Context(), craft(t, ecOne(), es256Header, payload))
	if err != nil {
		t.Fatalf("Verify = %v", err)
	}
	for _, at := range []time.Time{p.ExpiresAt, p.IssuedAt} {
		if _, err := at.MarshalJSON(); err != nil {
			t.Errorf("time of %s cannot be written: %v", payload, err)
		}
	}
}

// A-12, the 401 half: a token expires also when its signature is remembered.
func TestA12_ExpiryIsCheckedOnEveryCall(t *testing.T) {
	v, _, clk := acme(t, ecOne())
	raw := sign(t, ecOne(), goodClaims())
	for _, step := range []struct {
		after time.Duration
		want  error
	}{
		{0, nil},
		{time.Hour, nil},
		{time.Hour + Leeway - time.Nanosecond, nil},
		{time.Hour + Leeway, ErrExpired},
		{48 * time.Hour, ErrExpired},
		{-Leeway, nil}, // the clock was set back
		{-Leeway - time.Nanosecond, ErrNotYetValid},
	} {
		clk.set(testNow.Add(step.after))
		if _, err := v.Verify(t.Context(), raw); !errors.Is(err, step.want) {
			t.Errorf("Verify %v after signing = %v, want %v", step.after, err, step.want)
		}
	}
}
