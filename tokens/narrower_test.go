package tokens

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// From the attacker's side: a token is renewed to the same or less, never to more.
func TestA12_RenewToMoreIsRefused(t *testing.T) {
	v, keys, _, _ := issuing(t)
	g := goodGrant()
	g.Read = []string{"docs/*", "main"}
	// Its maker could not read docs/a: the renewed token will not either, and asking
	// for the same as before is not asking for more.
	g.Within = [][]refpolicy.Rule{{{Pattern: "docs/a", Ops: []refpolicy.Op{refpolicy.NoRead}}}}
	full, err := v.Verify(t.Context(), mint(t, keys, g))
	if err != nil {
		t.Fatalf("Verify = %v", err)
	}
	g.Scopes = ScopesOf(GitRead)
	reader, err := v.Verify(t.Context(), mint(t, keys, g))
	if err != nil {
		t.Fatalf("Verify = %v", err)
	}
	for _, tc := range []struct {
		name string
		old  *Principal
		ask  Ask
		more bool
	}{
		{"the same", full, Ask{}, false},
		{"the same, said aloud", full, Ask{Scopes: []Scope{GitRead, GitWrite}, Read: patternsOf(t, "docs/*", "main")}, false},
		{"nothing to read", full, Ask{Read: []refpolicy.Pattern{}}, false},
		{"reading alone", full, Ask{Scopes: []Scope{GitRead}}, false},
		{"narrower patterns", full, Ask{Read: patternsOf(t, "docs/a", "docs/b/*")}, false},
		{"its own branch", full, Ask{Read: patternsOf(t, sandboxRef)}, false},
		{"writing by a reader", reader, Ask{Scopes: []Scope{GitRead, GitWrite}}, true},
		{"the repo", full, Ask{Scopes: []Scope{RepoWrite}}, true},
		{"a scope that is none", full, Ask{Scopes: []Scope{"git:admin"}}, true},
		{"everything", full, Ask{Read: patternsOf(t, "*")}, true},
		{"all branches", full, Ask{Read: patternsOf(t, "refs/heads/*")}, true},
		{"another branch", full, Ask{Read: patternsOf(t, "main", "other")}, true},
		{"beside the folder", full, Ask{Read: patternsOf(t, "docs")}, true},
		{"another's branch", full, Ask{Read: patternsOf(t, "refs/namespaces/ephemeral/refs/heads/sessions/s-2")}, true},
		{"all sessions", full, Ask{Read: patternsOf(t, "refs/namespaces/ephemeral/refs/heads/sessions/*")}, true},
	} {
		err := Narrower(tc.old, tc.ask)
		if more := errors.Is(err, ErrMoreAsked); more != tc.more || err != nil && !more {
			t.Errorf("%s: Narrower = %v, want more: %v", tc.name, err, tc.more)
		}
	}
}

func patternsOf(t *testing.T, written ...string) []refpolicy.Pattern {
	t.Helper()
	list := make([]refpolicy.Pattern, len(written))
	for i, s := range written {
		var err error
		if list[i], err = refpolicy.ParsePattern(s); err != nil {
			t.Fatalf("ParsePattern(%q) = %v", s, err)
		}
	}
	return list
}
