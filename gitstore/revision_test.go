package gitstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// revisionSource has main (1 - 2 - merge 4 of 3), a tag and a branch called v1, an
// annotated tag, and one ephemeral branch.
func revisionSource(t *testing.T) (*gitSource, map[int]refpolicy.OID) {
	g := newGitSource(t)
	var h history
	h.commit("refs/heads/main", 100, nil, map[string]*blob{"a": text("1")})
	h.commit("refs/heads/main", 200, []int{1}, map[string]*blob{"a": text("2")})
	h.commit("refs/heads/side", 300, []int{1}, map[string]*blob{"b": text("3")})
	h.commit("refs/heads/main", 400, []int{2, 3}, map[string]*blob{"b": text("3")})
	h.commit("refs/namespaces/ephemeral/refs/heads/s/1", 500, []int{4}, map[string]*blob{"e": text("5")})
	h.commit("refs/namespaces/ephemeral/refs/heads/s/2", 600, []int{4}, map[string]*blob{"e": text("6")})
	commits := g.put(&h)
	g.git("update-ref", "refs/heads/v1", commits[1].String())
	g.git("update-ref", "refs/tags/v1", commits[2].String())
	g.git("update-ref", "refs/tags/light", commits[2].String())
	g.git("tag", "-a", "-m", "x", "heavy", commits[3].String())
	g.git("tag", "-a", "-m", "x", "heavier", "heavy")
	g.git("tag", "-a", "-m", "x", "blob", g.git("rev-parse", "main:a"))
	return g, commits
}

func TestResolve(t *testing.T) {
	g, at := revisionSource(t)
	r := g.store()
	const eph = "refs/namespaces/ephemeral/refs/heads/"
	for _, tc := range []struct {
		rev       string
		ephemeral bool
		want      int // mark
		echo      string
	}{
		{"", false, 4, "main"},
		{"HEAD", false, 4, "HEAD"},
		{"HEAD~1", false, 2, "HEAD~1"},
		{"main", false, 4, "main"},
		{"main^2", false, 3, "main^2"},
		{"main^0", false, 4, "main^0"},
		{"main~0^^", false, 1, "main~0^^"},
		{"main~2", false, 1, "main~2"},
		{"refs/heads/main~", false, 2, "refs/heads/main~"},
		{"v1", false, 1, "v1"}, // a branch before a tag
		{"refs/tags/v1", false, 2, "refs/tags/v1"},
		{"light", false, 2, "light"},
		{"heavy", false, 3, "heavy"}, // peeled
		{"heavier~1", false, 1, "heavier~1"},
		{at[1].String(), false, 1, at[1].String()},
		{strings.ToUpper(at[1].String()), false, 1, strings.ToUpper(at[1].String())},
		{at[4].String() + "^2", false, 3, at[4].String() + "^2"},
		{at[3].String()[:12], false, 3, at[3].String()[:12]},
		{g.git("rev-parse", "heavier"), false, 3, g.git("rev-parse", "heavier")},
		{"s/1", true, 5, eph + "s/1"},
		{"s/1~1", true, 4, eph + "s/1~1"},
		{"refs/heads/s/1", true, 5, eph + "s/1"},
		{eph + "s/1", true, 5, eph + "s/1"},
		{at[2].String(), true, 2, at[2].String()},
	} {
		got, err := r.Resolve(t.Context(), Caller{}, tc.rev, tc.ephemeral)
		if err != nil || got.Commit != at[tc.want] || got.Echo != tc.echo {
			t.Errorf("Resolve(%q, %v) = %s %q, %v; want %s %q", tc.rev, tc.ephemeral, got.Commit, got.Echo, err, at[tc.want], tc.echo)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	g, _ := revisionSource(t)
	r := g.store()
	for _, tc := range []struct {
		rev       string
		ephemeral bool
		want      error
	}{
		{"~1", false, ErrBadRevision},
		{"^main", false, ErrBadRevision},
		{"main..side", false, ErrBadRevision},
		{"main:a", false, ErrBadRevision},
		{"main@{1}", false, ErrBadRevision},
		{"main^{/x}", false, ErrBadRevision},
		{"main^{commit}", false, ErrBadRevision},
		{"main~1x", false, ErrBadRevision},
		{"main ", false, ErrBadRevision},
		{" main", false, ErrBadRevision},
		{"refs/", false, ErrBadRevision},
		{"a//b", false, ErrBadRevision},
		{"main" + strings.Repeat("^", maxRevision), false, ErrBadRevision},
		{"nowhere", false, ErrRefNotFound},
		{"s/1", false, ErrRefNotFound},
		{"refs/namespaces/ephemeral/refs/heads/s/1", false, ErrRefNotFound},
		{"refs/heads/nowhere", false, ErrRefNotFound},
		{"main", true, ErrRefNotFound},
		{"", true, ErrRefNotFound},
		{"refs/tags/v1", true, ErrRefNotFound},
		{"refs/namespaces/state/refs/snapshots/x", true, ErrRefNotFound},
		{"abc", false, ErrRefNotFound}, // too short for an abbreviation
		{"0123456789", false, ErrRefNotFound},
		{"main~3", false, ErrObjectNotFound},
		{"main~99999999999999999999", false, ErrObjectNotFound},
		{"main^3", false, ErrObjectNotFound},
		{strings.Repeat("0", 40), false, ErrObjectNotFound},
		{g.git("rev-parse", "main:a"), false, ErrObjectNotFound},
		{g.git("rev-parse", "main^{tree}"), false, ErrObjectNotFound},
		{"blob", false, ErrObjectNotFound},
		{g.git("rev-parse", "main^{tree}")[:10], false, ErrRefNotFound}, // not a commit
	} {
		got, err := r.Resolve(t.Context(), Caller{}, tc.rev, tc.ephemeral)
		if !errors.Is(err, tc.want) {
			t.Errorf("Resolve(%.60q, %v) = %v, %v; want %v", tc.rev, tc.ephemeral, got, err, tc.want)
		}
	}

}

func TestResolveInEmptyRepo(t *testing.T) {
	r := emptyRepo(t, Limits{})
	for _, rev := range []string{"", "HEAD", "main", "refs/heads/main", "HEAD~1"} {
		if _, err := r.Resolve(t.Context(), Caller{}, rev, false); !errors.Is(err, ErrEmptyRepo) {
			t.Errorf("Resolve(%q) in an empty repo = %v, want ErrEmptyRepo", rev, err)
		}
	}
	if _, err := r.Resolve(t.Context(), Caller{}, "other", false); !errors.Is(err, ErrRefNotFound) {
		t.Errorf("Resolve(other) in an empty repo = %v, want ErrRefNotFound", err)
	}
}

// A token that may not read a branch must get, for everything only that branch
// reaches, the very answer it would get if that did not exist.
func TestA13_ResolveHidesWhatACallerMayNotRead(t *testing.T) {
	g, at := revisionSource(t)
	r := g.store()
	policy, err := refpolicy.New([]refpolicy.Rule{
		{Pattern: "refs/namespaces/ephemeral/refs/heads/s/1", Ops: nil},
		{Pattern: "refs/heads/side", Ops: nil},
		{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := Caller{Policy: policy}
	for _, rev := range []string{at[5].String(), at[4].String(), at[1].String(), at[5].String()[:10], at[4].String()[:10], "side~1"} {
		if _, err := r.Resolve(t.Context(), c, rev, false); err != nil {
			t.Errorf("Resolve(%q) below a readable branch: %v", rev, err)
		}
	}
	missing := func(rev, other string, ephemeral bool) {
		t.Helper()
		_, got := r.Resolve(t.Context(), c, rev, ephemeral)
		_, want := r.Resolve(t.Context(), c, other, ephemeral)
		if got == nil || want == nil || strings.ReplaceAll(got.Error(), rev, "X") != strings.ReplaceAll(want.Error(), other, "X") {
			t.Errorf("Resolve(%q) = %v, but for what does not exist (%q) it is %v", rev, got, other, want)
		}
	}
	for _, hidden := range []string{at[6].String(), g.git("rev-parse", "heavy")} {
		missing(hidden, strings.Repeat("1", 40), false)
		missing(hidden[:12], "111111111111", false)
	}
	missing("main", "nope", false)
	missing("heavy", "nope1", false)
	missing("s/2", "s/9", true)
	missing("refs/tags/v1", "refs/tags/v9", false)
}

func TestResolveAbbreviations(t *testing.T) {
	g := newGitSource(t)
	var h history
	for i := range 600 { // two of 600 ids share 4 digits, almost surely
		h.commit("refs/heads/main", 1000+i, nil, map[string]*blob{"a": text(fmt.Sprint(i))})
		fmt.Fprintf(&h, "reset refs/heads/x%d\nfrom :%d\n\n", i, h.marks)
	}
	at := g.put(&h)
	byPrefix := map[string][]refpolicy.OID{}
	for _, oid := range at {
		byPrefix[oid.String()[:4]] = append(byPrefix[oid.String()[:4]], oid)
	}
	ambiguous := 0
	check := func(t *testing.T, r *Repo) {
		for prefix, oids := range byPrefix {
			got, err := r.Resolve(t.Context(), Caller{}, prefix, false)
			if len(oids) > 1 {
				ambiguous++
				if !errors.Is(err, ErrBadRevision) {
					t.Errorf("Resolve(%q) of %d commits = %v, want ErrBadRevision", prefix, len(oids), err)
				}
				got, err = r.Resolve(t.Context(), Caller{}, oids[0].String()[:15], false)
			}
			if err != nil || got.Commit != oids[0] {
				t.Errorf("Resolve(%q) = %v, %v; want %s", prefix, got, err, oids[0])
			}
		}
	}
	t.Run("cold", func(t *testing.T) { check(t, g.store()) })
	t.Run("hot", func(t *testing.T) { check(t, g.hotInto(emptyRepo(t, Limits{SettleObjects: 1 << 20}))) })
	if ambiguous == 0 {
		t.Error("no two commits share four digits: nothing ambiguous was tried")
	}
}

func TestResolveAgreesWithRevParse(t *testing.T) {
	g, _ := randomHistory(t, 7, 60)
	r := g.store()
	rng := rand.New(rand.NewPCG(7, 1))
	for range 120 {
		rev := []string{"HEAD", "main", "refs/heads/main"}[rng.IntN(3)]
		for range rng.IntN(6) {
			rev += []string{"~", "^", "^2", "~2", "~3", "^0", "^1", "~0"}[rng.IntN(8)]
		}
		want := ""
		if out, err := g.command("rev-parse", "-q", "--verify", rev).Output(); err == nil {
			want = strings.TrimSpace(string(out))
		}
		got, err := r.Resolve(t.Context(), Caller{}, rev, false)
		if err != nil && !errors.Is(err, ErrObjectNotFound) {
			t.Fatalf("Resolve(%q): %v", rev, err)
		}
		if have := got.Commit.String(); (err == nil) != (want != "") || (err == nil && have != want) {
			t.Errorf("Resolve(%q) = %s, %v; git says %q", rev, have, err, want)
		}
	}
}

func FuzzParseRevision(f *testing.F) {
	for _, s := range []string{"", "main", "HEAD~1^2~", "refs/heads/a^0", "~", "a..b", "x@{1}", "a^{tree}", "main~99999999999999", "\x00", "a b~1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseRevision(s)
		if err != nil {
			if !errors.Is(err, ErrBadRevision) {
				t.Fatalf("parseRevision(%q) = %v, want ErrBadRevision", s, err)
			}
			return
		}
		if p.base+p.suffix != s {
			t.Fatalf("parseRevision(%q) = %q + %q", s, p.base, p.suffix)
		}
		if strings.ContainsAny(p.base, "~^: \x00") || (s != "" && p.base == "") {
			t.Fatalf("parseRevision(%q) takes %q for a name", s, p.base)
		}
		for _, step := range p.steps {
			if step.n < 0 {
				t.Fatalf("parseRevision(%q) steps %d", s, step.n)
			}
		}
	})
}
