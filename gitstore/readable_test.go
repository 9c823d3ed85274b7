package gitstore

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/refpolicy"
)

// No readable ref lies outside of the scopes of its policy.
func TestPropertyReadScopesHoldAllThatIsReadable(t *testing.T) {
	patterns := rapid.SampledFrom([]string{"*", "HEAD", "main", "a/*", "a/b", "refs/*", "refs/heads/*", "refs/tags/*", "refs/namespaces/ephemeral/refs/heads/s/*"})
	ops := rapid.SliceOfN(rapid.SampledFrom([]refpolicy.Op{refpolicy.NoRead, refpolicy.NoPush}), 0, 2)
	names := []refpolicy.RefName{
		"refs/heads/main", "refs/heads/mainx", "refs/heads/a", "refs/heads/a/b", "refs/heads/a/b/c", "refs/tags/v", "refs/x/y",
		"refs/namespaces/ephemeral/refs/heads/s/1",
	}
	rapid.Check(t, func(t *rapid.T) {
		var rules []refpolicy.Rule
		for range rapid.IntRange(0, 4).Draw(t, "rules") {
			rules = append(rules, refpolicy.Rule{Pattern: patterns.Draw(t, "pattern"), Ops: ops.Draw(t, "ops")})
		}
		p, err := refpolicy.New(rules, nil)
		if err != nil {
			t.Fatalf("refpolicy.New: %v", err)
		}
		scopes, limited := readScopes(p)
		if !limited {
			return
		}
		shown := []string{"refs/"}
		for _, name := range names {
			inside := slices.ContainsFunc(narrowed(shown, scopes), func(s string) bool { return strings.HasPrefix(string(name), s) })
			if p.CanRead(name) && !inside {
				t.Fatalf("%s is readable under %v and lies outside of %q", name, rules, scopes)
			}
		}
	})
}

func TestNarrowed(t *testing.T) {
	for _, tc := range []struct{ a, b, want string }{
		{"refs/", "refs/heads/a refs/heads/a/b refs/tags/", "refs/heads/a refs/tags/"},
		{"refs/heads/ refs/tags/v", "refs/heads/a refs/tags/", "refs/heads/a refs/tags/v"},
		{"refs/heads/", "refs/tags/", ""},
		{"", "refs/tags/", ""},
		{"refs/heads/", "", ""},
	} {
		if got := strings.Join(narrowed(strings.Fields(tc.a), strings.Fields(tc.b)), " "); got != tc.want {
			t.Errorf("narrowed(%q, %q) = %q, want %q", tc.a, tc.b, got, tc.want)
		}
	}
}

// One walk tells of each object what asking for it alone tells.
func TestPropertyReadableAmongIsReadableOneByOne(t *testing.T) {
	x := newA13(t, Limits{})
	var ids []refpolicy.OID
	for _, s := range x.secrets {
		ids = append(ids, mustOID(t, s.id))
	}
	ids = append(ids, mustOID(t, x.a), mustOID(t, x.tree), hashObject(BlobObject, []byte(strings.Repeat("shared\n", 50))), mustOID(t, strings.Repeat("ab", 20)))
	for _, c := range []Caller{x.c, someone, confined(t, branchB13)} {
		got, err := x.r.readableAmong(t.Context(), c, ids)
		if err != nil {
			t.Fatalf("readableAmong: %v", err)
		}
		for _, id := range ids {
			want, err := x.r.readableObject(t.Context(), c, id)
			if err != nil || got[id] != want {
				t.Errorf("readableAmong says of %s %v, readableObject %v, %v", id, got[id], want, err)
			}
		}
	}
}
