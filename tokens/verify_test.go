package tokens

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

func TestPI9_EveryAlgorithmVerifies(t *testing.T) {
	for name, key := range map[string]crypto.Signer{"ES256": ecOne(), "RS256": rsaOne(), "EdDSA": edOne()} {
		v, _, _ := acme(t, key)
		raw := sign(t, key, goodClaims())
		p, err := v.Verify(t.Context(), raw)
		if err != nil {
			t.Errorf("%s: Verify = %v, want a principal", name, err)
			continue
		}
		want := &Principal{
			Org: "acme", Subject: "builder", Repo: "team-red/site",
			Scopes:   ScopesOf(GitRead, GitWrite),
			IssuedAt: testNow, ExpiresAt: testNow.Add(time.Hour),
			KeyID: "k0", TokenHash: ShortHash(raw),
			notBefore: testNow, tokenBytes: len(raw), twin: p.twin, // see TestDeniedWithItsTwin
		}
		if !reflect.DeepEqual(p, want) {
			t.Errorf("%s: Verify = %+v, want %+v", name, p, want)
		}
	}
}

func TestVerifyCarriesPolicyAndSession(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	epoch := uint64(7)
	c := goodClaims()
	c.Refs = []refpolicy.Rule{{Pattern: "main", Ops: []refpolicy.Op{refpolicy.NoPush}}, {Pattern: "agents/*"}}
	c.Ops = []refpolicy.Op{refpolicy.NoForcePush}
	c.ID, c.Session, c.Epoch = "j-1", "s-1", &epoch
	p, err := v.Verify(t.Context(), sign(t, ecOne(), c))
	if err != nil {
		t.Fatalf("Verify = %v", err)
	}
	if p.TokenID != "j-1" || p.Session != "s-1" || p.Epoch == nil || *p.Epoch != 7 {
		t.Errorf("jti, sid, epoch = %q, %q, %v, want j-1, s-1, 7", p.TokenID, p.Session, p.Epoch)
	}
	want := []refpolicy.Rule{
		{Pattern: "refs/heads/main", Ops: []refpolicy.Op{refpolicy.NoPush}},
		{Pattern: "refs/heads/agents/*", Ops: []refpolicy.Op{}},
		{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoForcePush}},
	}
	got := p.Policy.Rules()
	for i := range got {
		got[i].Ops = append([]refpolicy.Op{}, got[i].Ops...)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Policy.Rules() = %v, want %v", got, want)
	}
}

// Case 3.1: only ES256, RS256 and EdDSA with a registered key of that type are taken.
func TestCase3_1_HostileHeadersAndSignatures(t *testing.T) {
	v, _, _ := acme(t, ecOne(), rsaOne())
	good := craft(t, ecOne(), es256Header, goodPayload)
	body, sig, _ := cutLast(good)
	head, payload, _ := strings.Cut(body, ".")
	der := must(x509.MarshalPKIXPublicKey(ecOne().Public()))
	pemText := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	unsigned := func(header string) string { return b64(header) + "." + payload + "." }
	resigned := func(header string) string { return craft(t, ecOne(), header, goodPayload) }

	for _, tc := range []struct {
		name, raw string
		want      error
	}{
		{"alg none", unsigned(`{"alg":"none"}`), ErrBadAlgorithm},
		{"alg None", unsigned(`{"alg":"None"}`), ErrBadAlgorithm},
		{"alg empty", unsigned(`{"alg":""}`), ErrBadAlgorithm},
		{"none over a good signature", resigned(`{"alg":"none"}`), ErrBadAlgorithm},
		{"HS256, secret is the public PEM", craftHMAC(pemText, `{"alg":"HS256"}`, goodPayload), ErrBadAlgorithm},
		{"HMAC of the PEM said to be ES256", craftHMAC(pemText, es256Header, goodPayload), ErrBadSignature},
		{"HS512", resigned(`{"alg":"HS512"}`), ErrBadAlgorithm},
		{"RS256 with the EC key's signature", resigned(`{"alg":"RS256"}`), ErrBadSignature},
		{"ES256 with the RSA key's signature", craft(t, rsaOne(), es256Header, goodPayload), ErrBadSignature},
		{"EdDSA, and no such key", craft(t, edOne(), `{"alg":"EdDSA"}`, goodPayload), ErrBadSignature},
		{"ES512", resigned(`{"alg":"ES512"}`), ErrBadAlgorithm},
		{"ES384", resigned(`{"alg":"ES384"}`), ErrBadAlgorithm},
		{"PS256", craft(t, rsaOne(), `{"alg":"PS256"}`, goodPayload), ErrBadAlgorithm},
		{"es256", resigned(`{"alg":"es256"}`), ErrBadAlgorithm},
		{"no alg", resigned(`{"typ":"JWT"}`), ErrBadAlgorithm},
		{"Alg", resigned(`{"Alg":"ES256"}`), ErrBadAlgorithm},
		{"alg a number", resigned(`{"alg":256}`), ErrBadHeader},
		{"alg a list", resigned(`{"alg":["ES256"]}`), ErrBadHeader},
		{"alg twice", resigned(`{"alg":"none","alg":"ES256"}`), ErrBadHeader},
		{"alg twice, one escaped", resigned(`{"alg":"ES256","\u0061lg":"ES256"}`), ErrBadHeader},
		{"kid a number", resigned(`{"alg":"ES256","kid":0}`), ErrBadHeader},
		{"kid of a server key", resigned(`{"alg":"ES256","kid":"hg-1"}`), ErrReservedKeyID},
		{"kid that is just the prefix", resigned(`{"alg":"ES256","kid":"hg-"}`), ErrReservedKeyID},
		{"crit", resigned(`{"alg":"ES256","crit":["exp"]}`), ErrBadHeader},
		{"crit null", resigned(`{"alg":"ES256","crit":null}`), ErrBadHeader},
		{"b64 false with crit", resigned(`{"alg":"ES256","b64":false,"crit":["b64"]}`), ErrBadHeader},
		{"another key", craft(t, ecTwo(), es256Header, goodPayload), ErrBadSignature},
		{"another key, kid of ours", craft(t, ecTwo(), `{"alg":"ES256","kid":"k0"}`, goodPayload), ErrBadSignature},
		{"signature empty", body + ".", ErrBadSignature},
		{"signature garbage", body + "." + b64("garbage"), ErrBadSignature},
		{"signature zero", body + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 64)), ErrBadSignature},
		{"signature cut", body + "." + sig[:84], ErrBadSignature},
		{"signature of another payload", head + "." + b64(strings.Replace(goodPayload, "git:read", "git:writ", 1)) + "." + sig, ErrBadSignature},
		{"signature as DER", body + "." + derSignature(t, body), ErrBadSignature},
	} {
		p, err := v.Verify(t.Context(), tc.raw)
		if p != nil || !errors.Is(err, tc.want) || !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s: Verify = %v, %v, want nil, %v", tc.name, p, err, tc.want)
		}
	}
	if _, err := v.Verify(t.Context(), good); err != nil {
		t.Errorf("Verify of the good token these were made of = %v", err)
	}
}

// derSignature is a right ECDSA signature in the encoding that JWS does not use.
func derSignature(t *testing.T, signed string) string {
	t.Helper()
	h := crypto.SHA256.New()
	h.Write([]byte(signed))
	sig, err := ecOne().Sign(rand.Reader, h.Sum(nil), crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(sig)
}

// A key that the token brings along is nobody's key.
func TestEmbeddedKeysAreNotLookedAt(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	for _, member := range []string{
		`"jwk":{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}`,
		`"jku":"https://127.0.0.1/keys"`,
		`"x5u":"https://127.0.0.1/cert"`,
		`"x5c":["AAAA"]`,
	} {
		header := `{"alg":"ES256",` + member + `}`
		if p, err := v.Verify(t.Context(), craft(t, ecTwo(), header, goodPayload)); p != nil || !errors.Is(err, ErrBadSignature) {
			t.Errorf("foreign key, header %s: Verify = %v, %v, want nil, %v", header, p, err, ErrBadSignature)
		}
		if _, err := v.Verify(t.Context(), craft(t, ecOne(), header, goodPayload)); err != nil {
			t.Errorf("own key, header %s: Verify = %v, want it ignored", header, err)
		}
	}
}

func TestMalformedTokens(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	good := craft(t, ecOne(), es256Header, goodPayload)
	parts := strings.Split(good, ".")
	spelled := func(i int, s string) string {
		p := append([]string{}, parts...)
		p[i] = s
		return strings.Join(p, ".")
	}
	for name, raw := range map[string]string{
		"empty": "", "dots": "..", "one part": parts[0], "two parts": parts[0] + "." + parts[1],
		"four parts": good + ".x", "five parts": good + ".x.y",
		"space before": " " + good, "space after": good + " ", "newline after": good + "\n",
		"newline inside":     spelled(1, parts[1][:8]+"\n"+parts[1][8:]),
		"return inside":      spelled(2, parts[2][:8]+"\r"+parts[2][8:]),
		"padded":             spelled(0, parts[0]+"="),
		"standard alphabet":  spelled(2, "+/+/"),
		"NUL":                spelled(1, "\x00"),
		"header not JSON":    spelled(0, b64("alg=ES256")),
		"header a list":      spelled(0, b64(`["ES256"]`)),
		"header null":        spelled(0, b64(`null`)),
		"two headers":        spelled(0, b64(es256Header+es256Header)),
		"payload cut":        spelled(1, b64(goodPayload[:30])),
		"payload a string":   spelled(1, b64(`"x"`)),
		"payload two":        spelled(1, b64(goodPayload+` {}`)),
		"payload not UTF-8":  spelled(1, b64("{\"iss\":\"\xff\"}")),
		"payload deep":       spelled(1, b64(`{"x":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`}`)),
		"comma at the end":   spelled(1, b64(`{"iss":"acme",}`)),
		"no comma":           spelled(1, b64(`{"iss":"acme" "sub":"x"}`)),
		"name not a string":  spelled(1, b64(`{iss:"acme"}`)),
		"unknown name twice": spelled(1, b64(`{"x":1,"x":2,"exp":1790003600}`)),
		"over 64 KiB":        good + strings.Repeat("A", MaxTokenBytes),
	} {
		p, err := v.Verify(t.Context(), raw)
		if p != nil || !errors.Is(err, ErrMalformed) || !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s: Verify = %v, %v, want nil, %v", name, p, err, ErrMalformed)
		}
	}
}

func TestLastSignatureCharacterHasOneSpelling(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	good := craft(t, ecOne(), es256Header, goodPayload)
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for _, c := range alphabet {
		raw := good[:len(good)-1] + string(c)
		if _, err := v.Verify(t.Context(), raw); raw != good && err == nil {
			t.Errorf("Verify took a second spelling that ends in %q where the token ends in %q", c, good[len(good)-1])
		}
	}
}

func TestTokensUpTo64KiB(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	c := goodClaims()
	for len(c.Refs) < 800 {
		c.Refs = append(c.Refs, refpolicy.Rule{Pattern: "refs/heads/agents/a-branch-with-a-name/*", Ops: []refpolicy.Op{refpolicy.NoPush}})
	}
	c.Session = strings.Repeat("s", 1000)
	raw := sign(t, ecOne(), c)
	if len(raw) < 50<<10 || len(raw) > MaxTokenBytes {
		t.Fatalf("token of %d bytes tests nothing", len(raw))
	}
	if _, err := v.Verify(t.Context(), raw); err != nil {
		t.Errorf("Verify of %d bytes = %v", len(raw), err)
	}
}

func TestOrgsDoNotShareKeys(t *testing.T) {
	v, ring, _ := acme(t, ecOne())
	ring.Replace(map[string][]Key{"acme": {keyOf(t, "k", ecOne())}, "other": {keyOf(t, "k", ecTwo())}})
	claims := func(org string) Claims { c := goodClaims(); c.Org = org; return c }
	for _, tc := range []struct {
		name string
		key  crypto.Signer
		org  string
		kid  string
		want error
	}{
		{"own", ecOne(), "acme", "", nil},
		{"own, other org", ecTwo(), "other", "", nil},
		{"other org's key", ecTwo(), "acme", "", ErrBadSignature},
		{"other org's key by its kid", ecTwo(), "acme", "k", ErrBadSignature},
		{"no such org", ecOne(), "nobody", "", ErrUnknownOrg},
		{"org in another case", ecOne(), "Acme", "", ErrUnknownOrg},
		{"empty org", ecOne(), "", "", ErrUnknownOrg},
	} {
		c := claims(tc.org)
		c.KeyID = tc.kid
		if p, err := v.Verify(t.Context(), sign(t, tc.key, c)); !errors.Is(err, tc.want) || (p != nil) != (tc.want == nil) {
			t.Errorf("%s: Verify = %v, %v, want %v", tc.name, p, err, tc.want)
		}
	}
}

// OQ-A2: kid is a hint. A wrong, unknown or inactive one changes nothing.
func TestKidIsOnlyAHint(t *testing.T) {
	v, ring, _ := acme(t)
	spare := keyOf(t, "spare", edOne())
	spare.Inactive = true
	ring.Replace(map[string][]Key{"acme": {keyOf(t, "a", ecOne()), keyOf(t, "b", ecTwo()), spare}})
	for _, kid := range []string{"", "a", "b", "spare", "unknown", "../../etc/passwd", "' OR 1=1"} {
		for want, key := range map[string]crypto.Signer{"a": ecOne(), "b": ecTwo()} {
			c := goodClaims()
			c.KeyID = kid
			p, err := v.Verify(t.Context(), sign(t, key, c))
			if err != nil || p.KeyID != want {
				t.Errorf("key %s, kid %q: Verify = %+v, %v, want it by key %s", want, kid, p, err, want)
			}
		}
	}
	c := goodClaims()
	c.KeyID = "spare"
	if p, err := v.Verify(t.Context(), sign(t, edOne(), c)); p != nil || !errors.Is(err, ErrBadSignature) {
		t.Errorf("inactive key: Verify = %v, %v, want nil, %v", p, err, ErrBadSignature)
	}
}

func TestRepoClaim(t *testing.T) {
	v, _, clk := acme(t, ecOne())
	noRepo := strings.Replace(goodPayload, `"repo":"r",`, "", 1)
	empty := strings.Replace(goodPayload, `"repo":"r"`, `"repo":""`, 1)
	for _, payload := range []string{noRepo, empty} {
		p, err := v.Verify(t.Context(), craft(t, ecOne(), es256Header, payload))
		if p != nil || !errors.Is(err, ErrNoRepoClaim) || errors.Is(err, ErrUnauthorized) {
			t.Errorf("payload %s: Verify = %v, %v, want nil, %v and no 401", payload, p, err, ErrNoRepoClaim)
		}
		// Who cannot prove who they are learns nothing else.
		if _, err := v.Verify(t.Context(), craft(t, ecTwo(), es256Header, payload)); !errors.Is(err, ErrBadSignature) {
			t.Errorf("payload %s by a foreign key: Verify = %v, want %v", payload, err, ErrBadSignature)
		}
	}
	clk.set(testNow.Add(24 * time.Hour))
	if _, err := v.Verify(t.Context(), craft(t, ecOne(), es256Header, noRepo)); !errors.Is(err, ErrExpired) {
		t.Errorf("expired and without repo: Verify = %v, want %v", err, ErrExpired)
	}
}

func TestVerifyGivesUpWithItsContext(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if p, err := v.Verify(ctx, sign(t, ecOne(), goodClaims())); p != nil || !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnauthorized) {
		t.Errorf("Verify with an ended context = %v, %v, want nil, %v", p, err, context.Canceled)
	}
}
