package refpolicy

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParsePattern(t *testing.T) {
	for _, tc := range []struct {
		written string
		want    Pattern // empty: a *PatternError
	}{
		{"main", "refs/heads/main"},
		{"agents/*", "refs/heads/agents/*"},
		{"refs/heads/*", "refs/heads/*"},
		{"refs/tags/*", "refs/tags/*"},
		{"refs/notes/*", "refs/notes/*"},
		{"refs/namespaces/ephemeral/refs/heads/*", "refs/namespaces/ephemeral/refs/heads/*"},
		{"*", "*"},
		{"HEAD", "HEAD"},
		{"HEAD/x", "refs/heads/HEAD/x"}, // only the bare word is special
		{"head", "refs/heads/head"},
		{"heads/main", "refs/heads/heads/main"}, // not git's short form
		{"refs", "refs/heads/refs"},
		{"refs/*", "refs/*"}, // every ref, said at length
		{"refs/main", "refs/main"},
		{"tags/v1", "refs/heads/tags/v1"},
		{"@", "refs/heads/@"},
		{"", ""},
		{"a*b", ""},
		{"feature*", ""},
		{"**", ""},
		{"*/", ""},
		{"/*", ""},
		{"*/*", ""},
		{"refs/*/main", ""},
		{"refs/heads/**", ""},
		{"refs/", ""},
		{"refs/heads/", ""},
		{"refs/heads//*", ""},
		{"HEAD*", ""},
		{"!main", "refs/heads/!main"}, // there is no negation: a branch of that name
		{"ma?n", ""},
		{"[ab]", ""},
		{"a..b", ""},
		{"a.lock/*", ""},
		{"main ", ""},
		{" *", ""},
		{"main\n", ""},
		{strings.Repeat("a", 1001), ""},
	} {
		got, err := ParsePattern(tc.written)
		var bad *PatternError
		if got != tc.want || (tc.want == "") != errors.As(err, &bad) {
			t.Errorf("ParsePattern(%q) = %q, %v; want %q", tc.written, got, err, tc.want)
		}
		if bad != nil && (bad.Pattern != tc.written || bad.Rule == "") {
			t.Errorf("ParsePattern(%q): error %#v has no pattern or rule", tc.written, bad)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		written string
		ref     RefName
		want    bool
	}{
		{"main", "refs/heads/main", true},
		{"main", "refs/heads/main/x", false},
		{"main", "refs/heads/Main", false}, // case counts
		{"main", "refs/tags/main", false},
		{"main", "refs/namespaces/ephemeral/refs/heads/main", false}, // a namespace of its own
		{"agents/*", "refs/heads/agents/a", true},
		{"agents/*", "refs/heads/agents/a/b", true}, // a star crosses slashes
		{"agents/*", "refs/heads/agents", false},
		{"agents/*", "refs/heads/agentsx/a", false},
		{"refs/heads/*", "refs/heads/x", true},
		{"refs/heads/*", "refs/tags/x", false},
		{"refs/heads/*", "refs/namespaces/ephemeral/refs/heads/x", false},
		{"refs/tags/*", "refs/tags/v/1", true},
		{"refs/*", "refs/namespaces/ephemeral/refs/heads/x", true},
		{"refs/namespaces/ephemeral/refs/heads/*", "refs/namespaces/ephemeral/refs/heads/x", true},
		{"refs/namespaces/ephemeral/refs/heads/*", "refs/heads/x", false},
		{"*", "refs/heads/x", true},
		{"*", "refs/namespaces/state/refs/snapshots/1", true},
		{"HEAD", "refs/heads/main", false},
		{"HEAD", "refs/heads/HEAD", false}, // the word is not a branch
	} {
		p, err := ParsePattern(tc.written)
		if err != nil {
			t.Errorf("ParsePattern(%q) = %v", tc.written, err)
			continue
		}
		if got := p.Match(tc.ref); got != tc.want {
			t.Errorf("Pattern(%q).Match(%q) = %v, want %v", p, tc.ref, got, tc.want)
		}
	}
}

func TestPropertyNormalisationIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		written := rapid.StringMatching(`(refs/)?(heads/|tags/)?[a-cHEAD./*@-]{0,6}(/\*)?`).Draw(t, "written")
		once, err := ParsePattern(written)
		if err != nil {
			return
		}
		if twice, err := ParsePattern(string(once)); err != nil || twice != once {
			t.Fatalf("ParsePattern(%q) = %q, again %q, %v", written, once, twice, err)
		}
	})
}

func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"*", "HEAD", "main", "a/*", "refs/heads/*", "refs/*/x", "**", "a*", "refs/", ""} {
		f.Add(s, "refs/heads/main")
	}
	f.Fuzz(func(t *testing.T, s, ref string) {
		p, err := ParsePattern(s)
		if err != nil {
			var bad *PatternError
			if !errors.As(err, &bad) {
				t.Fatalf("ParsePattern(%q) = %v, want a *PatternError", s, err)
			}
			return
		}
		if again, err := ParsePattern(string(p)); err != nil || again != p {
			t.Fatalf("ParsePattern(%q) = %q, again %q, %v", s, p, again, err)
		}
		if exact, ok := p.Exact(); ok {
			if _, err := ParseRefName(string(exact)); err != nil || !p.Match(exact) {
				t.Fatalf("Pattern(%q) is exact, but %v", p, err)
			}
		}
		name, err := ParseRefName(ref)
		if err != nil {
			return
		}
		want := p == "*" || string(p) == ref ||
			strings.HasSuffix(string(p), "/*") && strings.HasPrefix(ref, string(p[:len(p)-1]))
		if got := p.Match(name); got != want {
			t.Fatalf("Pattern(%q).Match(%q) = %v, want %v", p, ref, got, want)
		}
	})
}
