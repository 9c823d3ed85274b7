package tokens

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/refpolicy"
)

const sandboxRef = "refs/namespaces/ephemeral/refs/heads/sessions/s-1"

// goodGrant is what a token of session s-1 says; it is good at testNow.
func goodGrant() Grant {
	return Grant{
		Org: "acme", Repo: "team-red/site", Subject: "sandbox", ID: "fam.1", Session: "s-1", Epoch: 3,
		Ref: sandboxRef, Read: []string{"main"}, Scopes: ScopesOf(GitRead, GitWrite),
		IssuedAt: testNow, ExpiresAt: testNow.Add(15 * time.Minute),
	}
}

// serverKeys opens a new folder of server keys.
func serverKeys(t testing.TB) (*ServerKeys, string) {
	t.Helper()
	dir := t.TempDir()
	return openKeys(t, dir, nil), dir
}

func openKeys(t testing.TB, dir string, c *clock) *ServerKeys {
	t.Helper()
	o := ServerKeyOptions{}
	if c != nil {
		o.Now = c.now
	}
	keys, err := OpenServerKeys(dir, o)
	if err != nil {
		t.Fatalf("OpenServerKeys = %v", err)
	}
	return keys
}

func mint(t testing.TB, keys *ServerKeys, g Grant) string {
	t.Helper()
	raw, err := NewIssuer(keys).Mint(g)
	if err != nil {
		t.Fatalf("Mint(%+v) = %v", g, err)
	}
	return raw
}

// issuing is a verifier of the org acme that knows new server keys.
func issuing(t testing.TB) (*Verifier, *ServerKeys, *Keyring, *clock) {
	t.Helper()
	_, ring, c := acme(t, ecOne(), edOne())
	keys := openKeys(t, t.TempDir(), c)
	return NewVerifier(ring, c.now, WithServerKeys(keys)), keys, ring, c
}

// parts gives header and payload of a token as text.
func parts(t testing.TB, raw string) (header, payload string) {
	t.Helper()
	p := strings.Split(raw, ".")
	return string(must(base64.RawURLEncoding.DecodeString(p[0]))), string(must(base64.RawURLEncoding.DecodeString(p[1])))
}

// The claims are those of the contract, section 6, and the same grant gives the same token.
func TestMintedClaims(t *testing.T) {
	_, keys, _, _ := issuing(t)
	g := goodGrant()
	g.Within = [][]refpolicy.Rule{nil, {{Pattern: "main", Ops: []refpolicy.Op{refpolicy.NoPush}}, {Pattern: "*"}}, {{Pattern: "refs/tags/*", Ops: []refpolicy.Op{"odd\n\"op\""}}}}
	raw := mint(t, keys, g)
	header, payload := parts(t, raw)
	if want := `{"alg":"EdDSA","kid":"` + keys.List()[0].ID + `","typ":"JWT"}`; header != want {
		t.Errorf("header %s, want %s", header, want)
	}
	want := `{"iss":"acme","sub":"sandbox","repo":"team-red/site","scopes":["git:read","git:write"],"iat":1790000000,"exp":1790000900,` +
		`"jti":"fam.1","sid":"s-1","epoch":3,"refs":[["` + sandboxRef + `",["no-force-push"]],` +
		`["refs/namespaces/state/refs/snapshots/s-1",["no-force-push"]],["refs/heads/main",["no-push"]],["*",["no-read"]]],` +
		`"within":[[["refs/heads/main",["no-push"]],["*",[]]],[["refs/tags/*",["odd\n\"op\""]]]]}`
	if payload != want {
		t.Errorf("payload %s\nwant    %s", payload, want)
	}
	if again := mint(t, keys, g); again != raw {
		t.Errorf("the same grant gave another token")
	}
	g.ExpiresAt = g.ExpiresAt.Add(999 * time.Millisecond)
	if again := mint(t, keys, g); again != raw {
		t.Errorf("a part of a second made another token")
	}
}

func TestMintRefuses(t *testing.T) {
	_, keys, _, _ := issuing(t)
	for name, change := range map[string]func(*Grant){
		"no org":        func(g *Grant) { g.Org = "" },
		"no repo":       func(g *Grant) { g.Repo = "" },
		"no jti":        func(g *Grant) { g.ID = "" },
		"no session":    func(g *Grant) { g.Session = "" },
		"no ref":        func(g *Grant) { g.Ref = "" },
		"no scope":      func(g *Grant) { g.Scopes = 0 },
		"too wide":      func(g *Grant) { g.Scopes |= ScopesOf(RepoWrite) },
		"already over":  func(g *Grant) { g.ExpiresAt = g.IssuedAt },
		"bad read":      func(g *Grant) { g.Read = []string{"a*"} },
		"bad within":    func(g *Grant) { g.Within = [][]refpolicy.Rule{{{Pattern: "a*b"}}} },
		"session is no": func(g *Grant) { g.Session = "a..b" },
	} {
		g := goodGrant()
		change(&g)
		if raw, err := NewIssuer(keys).Mint(g); err == nil {
			t.Errorf("%s: Mint gave a token of %d bytes", name, len(raw))
		}
	}
	g := goodGrant()
	for range 2000 {
		g.Read = append(g.Read, "a-branch-with-a-name-of-some-length")
	}
	if _, err := NewIssuer(keys).Mint(g); !errors.Is(err, ErrGrantTooLarge) {
		t.Errorf("Mint of 2000 patterns = %v, want ErrGrantTooLarge", err)
	}
}

// an issued token may fast-forward its branch and nothing else, and read what it was given.
func TestA11_IssuedTokenIsConfined(t *testing.T) {
	v, keys, _, _ := issuing(t)
	raw := mint(t, keys, goodGrant())
	for range 2 { // the second time from memory
		p, err := v.Verify(t.Context(), raw)
		if err != nil {
			t.Fatalf("Verify = %v", err)
		}
		if !p.Issued || p.Org != "acme" || p.Repo != "team-red/site" || p.Subject != "sandbox" || p.TokenID != "fam.1" ||
			p.Session != "s-1" || p.Epoch == nil || *p.Epoch != 3 || p.KeyID != keys.List()[0].ID || p.TokenHash != ShortHash(raw) {
			t.Errorf("Verify = %+v, want what was granted", p)
		}
		if !p.Scopes.Has(GitRead) || !p.Scopes.Has(GitWrite) || p.Scopes.Has(RepoWrite) {
			t.Errorf("scopes %v, want git:read and git:write", p.Scopes.List())
		}
		for _, tc := range []struct {
			ref        refpolicy.RefName
			read, push bool
		}{
			{sandboxRef, true, true},
			{"refs/namespaces/state/refs/snapshots/s-1", true, true},
			{"refs/namespaces/state/refs/snapshots/s-2", false, false},
			{"refs/heads/main", true, false},
			{"refs/heads/other", false, false},
			{"refs/namespaces/ephemeral/refs/heads/sessions/s-2", false, false},
		} {
			if read, push := p.Policy.CanRead(tc.ref), p.Policy.MayPush(tc.ref); read != tc.read || push != tc.push {
				t.Errorf("%s: read %v, push %v, want %v, %v", tc.ref, read, push, tc.read, tc.push)
			}
		}
		if p.Policy.Check(sandboxRef, refpolicy.Rewind) == nil || p.Policy.Check(sandboxRef, refpolicy.Delete) == nil {
			t.Errorf("its branch may be rewound or deleted")
		}
		if branch, ok := p.Policy.ConfinedTo(); !ok || branch != sandboxRef {
			t.Errorf("ConfinedTo = %q, %v, want its branch", branch, ok)
		}
	}
}

// What whoever asked for the token could not do, the token cannot do.
func TestIssuedWithinItsMakersPolicy(t *testing.T) {
	v, keys, _, _ := issuing(t)
	g := goodGrant()
	g.Read = []string{"*"}
	g.Within = [][]refpolicy.Rule{
		{{Pattern: "secret/*", Ops: []refpolicy.Op{refpolicy.NoRead}}},
		{{Pattern: sandboxRef, Ops: []refpolicy.Op{refpolicy.VerifySig}}},
	}
	p, err := v.Verify(t.Context(), mint(t, keys, g))
	if err != nil {
		t.Fatalf("Verify = %v", err)
	}
	if p.Policy.CanRead("refs/heads/secret/a") || !p.Policy.CanRead("refs/heads/main") || !p.Policy.MustVerify(sandboxRef) {
		t.Errorf("policy %v does not hold what both others demand", p.Policy.Rules())
	}
	if len(p.Within) != 2 || p.Policy.Own().Rules()[0].Pattern != sandboxRef || len(p.Policy.Own().Rules()) != 4 {
		t.Errorf("Within %v, own %v, want two and its four rules", p.Within, p.Policy.Own().Rules())
	}
}

// In a customer's token the claim means nothing, as every claim that is not known.
func TestWithinOfACustomerMeansNothing(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	for _, claim := range []string{`[[["*",["no-read"]]]]`, `"x"`, `null`} {
		p, err := v.Verify(t.Context(), craft(t, ecOne(), es256Header, withClaim("within", claim)))
		if err != nil || p.Policy != nil || p.Within != nil {
			t.Errorf("within %s: Verify = %+v, %v, want a principal without policy", claim, p, err)
		}
	}
}

// No leeway: good from a second before iat, as a token holds whole seconds, and
// refused from exp on, from memory too.
func TestA12_IssuedTimesAreExact(t *testing.T) {
	v, keys, _, c := issuing(t)
	raw := mint(t, keys, goodGrant())
	exp := testNow.Add(15 * time.Minute)
	for _, tc := range []struct {
		at   time.Time
		want error
	}{
		{testNow.Add(-time.Second - time.Nanosecond), ErrNotYetValid},
		{testNow.Add(-time.Second), nil},
		{exp.Add(-time.Nanosecond), nil},
		{exp, ErrExpired},
		{exp.Add(time.Hour), ErrExpired},
		{testNow.Add(-time.Hour), ErrNotYetValid},
	} {
		c.set(tc.at)
		if _, err := v.Verify(t.Context(), raw); !errors.Is(err, tc.want) {
			t.Errorf("at %v: Verify = %v, want %v", tc.at.Sub(testNow), err, tc.want)
		}
	}
}

// The story: somebody who holds a customer's key, or a server's from elsewhere, says
// that headgate has issued their token. A kid that begins with hg- is looked up among
// this server's keys alone, and no key answers for another's name.
func TestCase3_1_ForgedServerKeyIDs(t *testing.T) {
	v, keys, ring, _ := issuing(t)
	_, dir := serverKeys(t)
	stranger := openKeys(t, dir, nil).set.Load().newest
	own := keys.set.Load().newest
	raw := mint(t, keys, goodGrant())
	_, payload := parts(t, raw)
	header := func(alg, kid string) string { return `{"alg":"` + alg + `","kid":"` + kid + `","typ":"JWT"}` }
	kid := own.id
	for name, tc := range map[string]struct {
		raw  string
		want error
	}{
		"customer's EdDSA key, the server's kid":    {craft(t, edOne(), header("EdDSA", kid), payload), ErrBadSignature},
		"customer's ES256 key, the server's kid":    {craft(t, ecOne(), header("ES256", kid), payload), ErrBadAlgorithm},
		"customer's key said EdDSA":                 {craft(t, ecOne(), header("EdDSA", kid), payload), ErrBadSignature},
		"customer's key, an unknown kid":            {craft(t, edOne(), header("EdDSA", stranger.id), payload), ErrReservedKeyID},
		"another server's key under its own kid":    {craft(t, stranger.private, header("EdDSA", stranger.id), payload), ErrReservedKeyID},
		"another server's key under ours":           {craft(t, stranger.private, header("EdDSA", kid), payload), ErrBadSignature},
		"our key without kid":                       {craft(t, own.private, `{"alg":"EdDSA"}`, payload), ErrBadSignature},
		"our key under a customer's kid":            {craft(t, own.private, header("EdDSA", "k1"), payload), ErrBadSignature},
		"our key under an unknown kid of ours":      {craft(t, own.private, header("EdDSA", "hg-"+strings.Repeat("0", 20)), payload), ErrReservedKeyID},
		"kid with a path":                           {craft(t, own.private, header("EdDSA", "hg-../"+kid), payload), ErrReservedKeyID},
		"kid in capitals":                           {craft(t, own.private, header("EdDSA", "HG-"+kid[3:]), payload), ErrBadSignature},
		"signature cut":                             {raw[:len(raw)-2], ErrBadSignature},
		"no signature":                              {raw[:strings.LastIndexByte(raw, '.')+1], ErrBadSignature},
		"claims of another session, its signature":  {swapPayload(raw, strings.Replace(payload, `"s-1"`, `"s-2"`, 1)), ErrBadSignature},
		"an org that is not known":                  {craft(t, own.private, header("EdDSA", kid), strings.Replace(payload, "acme", "evil", 1)), ErrUnknownOrg},
		"ours without jti":                          {craft(t, own.private, header("EdDSA", kid), without(t, payload, "jti")), ErrBadClaim},
		"ours without sid":                          {craft(t, own.private, header("EdDSA", kid), without(t, payload, "sid")), ErrBadClaim},
		"ours without epoch":                        {craft(t, own.private, header("EdDSA", kid), without(t, payload, "epoch")), ErrBadClaim},
		"ours without refs":                         {craft(t, own.private, header("EdDSA", kid), without(t, payload, "refs")), ErrBadClaim},
		"ours without iat":                          {craft(t, own.private, header("EdDSA", kid), without(t, payload, "iat")), ErrBadClaim},
		"ours with a within that cannot be read":    {craft(t, own.private, header("EdDSA", kid), payload[:len(payload)-1]+`,"within":{}}`), ErrBadClaim},
		"ours with a within of malformed patterns":  {craft(t, own.private, header("EdDSA", kid), payload[:len(payload)-1]+`,"within":[[["a*b",[]]]]}`), ErrBadClaim},
		"ours with a within that is no refs claims": {craft(t, own.private, header("EdDSA", kid), payload[:len(payload)-1]+`,"within":["*"]}`), ErrBadClaim},
	} {
		if p, err := v.Verify(t.Context(), tc.raw); !errors.Is(err, tc.want) || !errors.Is(err, ErrUnauthorized) || p != nil {
			t.Errorf("%s: Verify = %+v, %v, want %v", name, p, err, tc.want)
		}
	}
	if _, err := v.Verify(t.Context(), raw); err != nil {
		t.Errorf("the token as it was issued: Verify = %v", err)
	}
	if _, err := NewVerifier(ring, v.now).Verify(t.Context(), raw); !errors.Is(err, ErrReservedKeyID) {
		t.Errorf("Verify without server keys = %v, want ErrReservedKeyID", err)
	}
	ring.Replace(map[string][]Key{"other": {keyOf(t, "k", ecOne())}})
	if _, err := v.Verify(t.Context(), raw); !errors.Is(err, ErrUnknownOrg) {
		t.Errorf("Verify of a known token after its org has gone = %v, want ErrUnknownOrg", err)
	}
}

func swapPayload(raw, payload string) string {
	p := strings.Split(raw, ".")
	return p[0] + "." + b64(payload) + "." + p[2]
}

func without(t *testing.T, payload, claim string) string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(payload), &m); err != nil {
		t.Fatal(err)
	}
	delete(m, claim)
	return string(must(json.Marshal(m)))
}

// Whatever is granted comes back as it was said.
func TestPropertyMintThenVerify(t *testing.T) {
	v, keys, _, _ := issuing(t)
	patterns := rapid.SampledFrom([]string{"*", "main", "a/*", "refs/tags/*", "HEAD", "é/ü", `q"uote`})
	rules := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) refpolicy.Rule {
		ops := rapid.SliceOfNDistinct(rapid.SampledFrom([]refpolicy.Op{refpolicy.NoPush, refpolicy.NoRead, refpolicy.VerifySig, "é\x01"}), 0, 3, rapid.ID)
		return refpolicy.Rule{Pattern: patterns.Draw(t, "pattern"), Ops: ops.Draw(t, "ops")}
	}), 0, 3)
	rapid.Check(t, func(rt *rapid.T) {
		g := goodGrant()
		g.Subject, g.Repo = rapid.String().Draw(rt, "sub"), "r"+rapid.String().Draw(rt, "repo")
		g.ID, g.Epoch = "j"+rapid.String().Draw(rt, "jti"), rapid.Uint64Max(1<<62).Draw(rt, "epoch")
		g.Read = rapid.SliceOfN(patterns, 0, 3).Draw(rt, "read")
		g.Within = rapid.SliceOfN(rules, 0, 3).Draw(rt, "within")
		raw, err := NewIssuer(keys).Mint(g)
		if err != nil {
			rt.Fatalf("Mint = %v", err)
		}
		p, err := v.Verify(t.Context(), raw)
		if err != nil {
			rt.Fatalf("Verify = %v", err)
		}
		if p.Subject != g.Subject || p.Repo != g.Repo || p.TokenID != g.ID || *p.Epoch != g.Epoch ||
			!p.ExpiresAt.Equal(g.ExpiresAt) || !p.IssuedAt.Equal(g.IssuedAt) {
			rt.Fatalf("Verify = %+v of %+v", p, g)
		}
		said := slices.DeleteFunc(slices.Clone(g.Within), func(r []refpolicy.Rule) bool { return len(r) == 0 })
		if len(p.Within) != len(said) {
			rt.Fatalf("%d policies within, want %d", len(p.Within), len(said))
		}
		for i, rules := range said {
			want := must(refpolicy.New(rules, nil))
			if !reflect.DeepEqual(p.Within[i], want) {
				rt.Fatalf("within %d has rules %v, want %v", i, p.Within[i].Rules(), want.Rules())
			}
		}
	})
}
