package tokens

import (
	"errors"
	"reflect"
	"testing"
)

func TestScopesSatisfy(t *testing.T) {
	yes := map[Scope][]Scope{
		GitRead:   {GitRead},
		GitWrite:  {GitWrite, GitRead}, // OQ-A1: write includes read
		RepoWrite: {RepoWrite},
		OrgRead:   {OrgRead},
	}
	for held, satisfied := range yes {
		for _, needed := range append(allScopes[:], "deployment:write", "") {
			want := false
			for _, s := range satisfied {
				want = want || s == needed
			}
			if got := ScopesOf(held).Has(needed); got != want {
				t.Errorf("ScopesOf(%s).Has(%q) = %v, want %v", held, needed, got, want)
			}
		}
	}
	if Scopes(0).Has(GitRead) || Scopes(0).Has("") {
		t.Error("the empty set satisfies something")
	}
}

func TestScopesListIsWhatWasPutIn(t *testing.T) {
	if got := ScopesOf(OrgRead, GitWrite, "x").List(); !reflect.DeepEqual(got, []Scope{GitWrite, OrgRead}) {
		t.Errorf("List = %v, want git:write and org:read", got)
	}
	if got := Scopes(0).List(); got == nil || len(got) != 0 {
		t.Errorf("List of nothing = %#v, want an empty list", got)
	}
}

// OQ-A8: a restricted key grants the intersection, whatever its tokens ask for.
func TestKeyLimits(t *testing.T) {
	for _, tc := range []struct{ limit, asked, want []Scope }{
		{nil, []Scope{GitWrite, RepoWrite}, []Scope{GitWrite, RepoWrite}},
		{[]Scope{GitRead}, []Scope{GitRead}, []Scope{GitRead}},
		{[]Scope{GitRead}, []Scope{GitWrite, RepoWrite}, []Scope{GitRead}}, // write includes read
		{[]Scope{GitWrite}, []Scope{GitRead}, []Scope{GitRead}},
		{[]Scope{OrgRead}, []Scope{GitWrite}, nil},
	} {
		v, ring, _ := acme(t)
		k := keyOf(t, "k", ecOne())
		k.Limit = ScopesOf(tc.limit...)
		ring.Replace(map[string][]Key{"acme": {k}})
		c := goodClaims()
		c.Scopes = tc.asked
		p, err := v.Verify(t.Context(), sign(t, ecOne(), c))
		if err != nil || p.Scopes != ScopesOf(tc.want...) {
			t.Errorf("limit %v, token %v: Verify = %+v, %v, want %v", tc.limit, tc.asked, p, err, tc.want)
		}
	}
}

func TestRequireNamesWhatIsMissing(t *testing.T) {
	p := &Principal{Scopes: ScopesOf(GitRead)}
	if err := p.Require(GitRead); err != nil {
		t.Errorf("Require(git:read) = %v, want nil", err)
	}
	err := p.Require(GitRead, GitWrite, RepoWrite)
	var se *ScopeError
	if !errors.As(err, &se) || !reflect.DeepEqual(se.Missing, []Scope{GitWrite, RepoWrite}) || errors.Is(err, ErrUnauthorized) {
		t.Fatalf("Require = %v, want a *ScopeError for git:write and repo:write, and no 401", err)
	}
	if want := "token lacks scope git:write, repo:write"; err.Error() != want {
		t.Errorf("text = %q, want %q", err, want)
	}
}

func TestParseScope(t *testing.T) {
	for _, s := range allScopes {
		if got, err := ParseScope(string(s)); got != s || err != nil {
			t.Errorf("ParseScope(%q) = %q, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "git", "git:Read", "git:read "} {
		if got, err := ParseScope(s); !errors.Is(err, ErrUnknownScope) {
			t.Errorf("ParseScope(%q) = %q, %v, want %v", s, got, err, ErrUnknownScope)
		}
	}
}
