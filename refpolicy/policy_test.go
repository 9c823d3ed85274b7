package refpolicy

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

const (
	main      RefName = "refs/heads/main"
	other     RefName = "refs/heads/other"
	ephemeral RefName = "refs/namespaces/ephemeral/refs/heads/main"
	session   RefName = "refs/namespaces/ephemeral/refs/heads/sessions/1"
)

func mustNew(t *testing.T, rules []Rule, legacy ...Op) *Policy {
	t.Helper()
	p, err := New(rules, legacy)
	if err != nil {
		t.Fatalf("New(%v, %v) = %v", rules, legacy, err)
	}
	return p
}

// allowed lists the kinds of change that Check lets through, as c, f, r, d.
func allowed(p *Policy, ref RefName) string {
	out := ""
	for _, k := range []Kind{Create, FastForward, Rewind, Delete} {
		if p.Check(ref, k) == nil {
			out += map[Kind]string{Create: "c", FastForward: "f", Rewind: "r", Delete: "d"}[k]
		}
	}
	return out
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		why    string
		rules  []Rule
		legacy []Op
		ref    RefName
		want   string
	}{
		{"4.1: no claims", nil, nil, main, "cfrd"},
		{"4.1: nothing matches", []Rule{{"main", []Op{NoPush}}}, nil, other, "cfrd"},
		{"4.1: the first match decides", []Rule{{"main", []Op{NoForcePush}}, {"main", []Op{NoPush}}}, nil, main, "cf"},
		{"4.1: an empty list is an explicit allow", []Rule{{"main", nil}, {"*", []Op{NoPush}}}, nil, main, "cfrd"},
		{"4.1: a closing star denies the rest", []Rule{{"main", nil}, {"*", []Op{NoPush}}}, nil, other, ""},
		{"4.1: a star in front hides the rest", []Rule{{"*", nil}, {"main", []Op{NoPush}}}, nil, main, "cfrd"},
		{"4.2: written long or short", []Rule{{"refs/heads/main", []Op{NoPush}}}, nil, main, ""},
		{"4.2: HEAD is no branch", []Rule{{"HEAD", []Op{NoPush}}}, nil, main, "cfrd"},
		{"4.3: main is not ephemeral main", []Rule{{"main", []Op{NoPush}}}, nil, ephemeral, "cfrd"},
		{"4.3: nor are all branches", []Rule{{"refs/heads/*", []Op{NoPush}}}, nil, ephemeral, "cfrd"},
		{"4.3: but * is", []Rule{{"*", []Op{NoPush}}}, nil, ephemeral, ""},
		{"4.3: the stored name", []Rule{{string(ephemeral), []Op{NoPush}}}, nil, ephemeral, ""},
		{"4.4: appended", []Rule{{"main", nil}}, []Op{NoForcePush}, other, "cf"},
		{"4.4: does not reach an earlier rule", []Rule{{"main", nil}}, []Op{NoForcePush}, main, "cfrd"},
		{"4.4: alone", nil, []Op{NoPush}, main, ""},
		{"4.4: joins the star", []Rule{{"*", []Op{VerifySig}}}, []Op{NoForcePush}, main, "cf"},
		{"4.4: also a star that allowed", []Rule{{"*", nil}, {"main", nil}}, []Op{NoPush}, main, ""},
		{"4.4: refs/* is not the star", []Rule{{"refs/*", nil}}, []Op{NoPush}, main, "cfrd"},
		{"4.5: deletion is a force push by another road", []Rule{{"*", []Op{NoForcePush}}}, nil, main, "cf"},
		{"4.5: verify-sig needs the commits", []Rule{{"*", []Op{VerifySig}}}, nil, main, "cfrd"},
		{"4.5: no-read implies no-push", []Rule{{"*", []Op{NoRead}}}, nil, main, ""},
		{"4.5: unknown", []Rule{{"*", []Op{"no-merge"}}}, nil, main, ""},
		{"4.5: known in another case is unknown", []Rule{{"*", []Op{"No-Force-Push"}}}, nil, main, ""},
		{"4.5: the empty op is unknown", []Rule{{"*", []Op{""}}}, nil, main, ""},
		{"4.5: unknown elsewhere", []Rule{{"main", []Op{"no-merge"}}}, nil, other, "cfrd"},
		{"4.5: all are enforced", []Rule{{"*", []Op{NoForcePush, VerifySig, NoPush}}}, nil, main, ""},
		{"4.6: tags too", []Rule{{"refs/tags/*", []Op{NoForcePush}}}, nil, "refs/tags/v1", "cf"},
		{"4.6: notes too", []Rule{{"refs/notes/*", []Op{NoPush}}}, nil, "refs/notes/commits", ""},
	} {
		p := mustNew(t, tc.rules, tc.legacy...)
		if got := allowed(p, tc.ref); got != tc.want {
			t.Errorf("%s: New(%v, %v) lets %q of %s pass, want %q", tc.why, tc.rules, tc.legacy, got, tc.ref, tc.want)
		}
		if got, want := p.MayPush(tc.ref), strings.Contains(tc.want, "f"); got != want {
			t.Errorf("%s: MayPush(%s) = %v, want %v", tc.why, tc.ref, got, want)
		}
	}
}

// A kind nobody has named yet must not slip past no-force-push.
func TestCheckOfAnUnknownKind(t *testing.T) {
	if err := mustNew(t, nil, NoForcePush).Check(main, Kind(0)); err == nil {
		t.Error("Check(main, Kind(0)) under no-force-push = nil, want a denial")
	}
}

func TestReadsAndSignatures(t *testing.T) {
	p := mustNew(t, []Rule{{"main", []Op{VerifySig, NoForcePush}}, {"docs/*", []Op{NoPush}}, {"odd", []Op{"what"}}}, NoRead)
	for _, tc := range []struct {
		ref            RefName
		read, mustSign bool
	}{
		{main, true, true},
		{"refs/heads/docs/a", true, false},
		{"refs/heads/odd", true, false}, // an unknown op stops writes, not reads
		{other, false, false},
		{ephemeral, false, false},
	} {
		if got := p.CanRead(tc.ref); got != tc.read {
			t.Errorf("CanRead(%s) = %v, want %v", tc.ref, got, tc.read)
		}
		if got := p.MustVerify(tc.ref); got != tc.mustSign {
			t.Errorf("MustVerify(%s) = %v, want %v", tc.ref, got, tc.mustSign)
		}
	}
	if !p.RestrictsReads() {
		t.Error("RestrictsReads() = false with a no-read rule")
	}
	if mustNew(t, nil, NoPush, "what").RestrictsReads() {
		t.Error("RestrictsReads() = true without a no-read rule")
	}
}

func TestNilPolicyRestrictsNothing(t *testing.T) {
	p := mustNew(t, []Rule{})
	if p != nil {
		t.Fatalf("New of nothing = %v, want nil", p)
	}
	if got := allowed(p, main); got != "cfrd" || !p.MayPush(main) || !p.CanRead(main) {
		t.Errorf("a nil policy lets %q pass, MayPush %v, CanRead %v", got, p.MayPush(main), p.CanRead(main))
	}
	ref, confined := p.ConfinedTo()
	if p.MustVerify(main) || p.RestrictsReads() || confined || ref != "" || p.Rules() != nil || p.Key() != "" {
		t.Errorf("a nil policy restricts: %v %v %v %v %q", p.MustVerify(main), p.RestrictsReads(), ref, p.Rules(), p.Key())
	}
	if got, want := p.Denied(main, NoPush, "").Error(), "push to refs/heads/main denied by policy"; got != want {
		t.Errorf("Denied on a nil policy = %q, want %q", got, want)
	}
}

func TestMalformedPatternRefusesTheToken(t *testing.T) {
	for _, written := range []string{"a*b", "feature*", "**", "refs/*/main", ""} {
		p, err := New([]Rule{{"main", nil}, {written, []Op{NoPush}}}, nil)
		var bad *PatternError
		if p != nil || !errors.As(err, &bad) || bad.Pattern != written {
			t.Errorf("New with pattern %q = %v, %v; want a *PatternError", written, p, err)
		}
	}
}

func TestRules(t *testing.T) {
	ops := []Op{NoPush, NoPush, "x"}
	in := []Rule{{"main", nil}, {"*", ops}, {"*", []Op{NoRead}}}
	p := mustNew(t, in, NoForcePush, NoPush)
	want := []Rule{{"refs/heads/main", []Op{}}, {"*", []Op{NoPush, "x", NoForcePush}}, {"*", []Op{NoRead}}}
	if got := p.Rules(); !reflect.DeepEqual(got, want) {
		t.Errorf("Rules() = %v, want %v", got, want)
	}
	// Neither what went in nor what came out is shared.
	ops[0] = VerifySig
	p.Rules()[1].Ops[0] = VerifySig
	if got := p.Rules(); !reflect.DeepEqual(got, want) {
		t.Errorf("after changes outside, Rules() = %v, want %v", got, want)
	}
}

func TestDenialTexts(t *testing.T) {
	p := mustNew(t, []Rule{
		{"main", []Op{NoForcePush, NoPush}}, {"ff", []Op{NoForcePush}}, {"sig", []Op{VerifySig}},
		{"secret", []Op{NoRead}}, {"odd", []Op{Op("x\n\x1b[31m" + strings.Repeat("y", 500))}},
	})
	oid := strings.Repeat("ab", 20)
	for _, tc := range []struct {
		err   error
		want  string
		force bool
	}{
		// no-push makes the others moot.
		{p.Check(main, Rewind), "push to refs/heads/main denied by policy: rule refs/heads/main has no-push", false},
		{p.Check("refs/heads/ff", Rewind), "force push to refs/heads/ff denied by policy: rule refs/heads/ff has no-force-push", true},
		{p.Check("refs/heads/ff", Delete), "force push to refs/heads/ff denied by policy: rule refs/heads/ff has no-force-push", true},
		{p.Check("refs/heads/secret", Create), "push to refs/heads/secret denied by policy: rule refs/heads/secret has no-read", false},
		{p.Denied("refs/heads/sig", VerifySig, oid), "unsigned commit " + oid + " on refs/heads/sig denied by policy: rule refs/heads/sig has verify-sig", false},
		{p.Denied("refs/heads/sig", VerifySig, ""), "unsigned commit on refs/heads/sig denied by policy: rule refs/heads/sig has verify-sig", false},
		// What a minter wrote cannot break a report line or fill it.
		{p.Check("refs/heads/odd", Create), `push to refs/heads/odd denied by policy: rule refs/heads/odd has unknown op "x\n\x1b[31m` + strings.Repeat("y", 73) + `"...`, false},
	} {
		var denied *DeniedError
		if !errors.As(tc.err, &denied) || denied.Error() != tc.want || denied.Force != tc.force {
			t.Errorf("denial %#v:\n got %v\nwant %s", denied, tc.err, tc.want)
		}
	}
}

func TestConfinedTo(t *testing.T) {
	one := Rule{string(session), []Op{NoForcePush}}
	two := Rule{"refs/namespaces/ephemeral/refs/heads/sessions/2", []Op{NoForcePush}}
	closed := Rule{"*", []Op{NoRead}}
	for _, tc := range []struct {
		why   string
		rules []Rule
		want  RefName
	}{
		{"an issued token", []Rule{one, {"refs/namespaces/state/refs/snapshots/1", []Op{NoForcePush}}, {"refs/heads/*", []Op{NoPush}}, closed}, session},
		{"no-push for the rest", []Rule{one, {"*", []Op{NoPush}}}, session},
		{"an explicit allow", []Rule{{string(session), nil}, closed}, session},
		{"two branches", []Rule{one, two, closed}, ""},
		{"one of two can be pushed", []Rule{one, {two.Pattern, []Op{NoPush}}, closed}, session},
		{"the same twice is one", []Rule{one, one, closed}, session},
		{"an ordinary branch does not count", []Rule{{"main", nil}, one, closed}, session},
		{"only an ordinary branch", []Rule{{"main", nil}, closed}, ""},
		{"no star", []Rule{one}, ""},
		{"a star that only refuses force", []Rule{one, {"*", []Op{NoForcePush}}}, ""},
		{"hidden behind a star", []Rule{closed, one}, ""},
		{"behind a prefix that allows: that rule decides", []Rule{{"refs/namespaces/ephemeral/refs/heads/*", nil}, one, closed}, ""},
		{"read only", []Rule{{string(session), []Op{NoPush}}, closed}, ""},
	} {
		got, ok := mustNew(t, tc.rules).ConfinedTo()
		if got != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: ConfinedTo() = %q, %v; want %q", tc.why, got, ok, tc.want)
		}
	}
}

func TestKindText(t *testing.T) {
	for k, want := range map[Kind]string{Create: "create", FastForward: "update", Rewind: "rewind", Delete: "delete", 0: "unknown"} {
		if k.String() != want {
			t.Errorf("Kind(%d) = %q, want %q", k, k, want)
		}
	}
}

func TestParseOID(t *testing.T) {
	good := "0123456789abcdef0123456789abcdef01234567"
	id, err := ParseOID(good)
	if err != nil || id.String() != good || id.IsZero() {
		t.Errorf("ParseOID(%q) = %v, %v", good, id, err)
	}
	var again OID
	if text, err := id.MarshalText(); err != nil || again.UnmarshalText(text) != nil || again != id {
		t.Errorf("%v as text and back is %v (%v)", id, again, err)
	}
	for _, bad := range []string{"", good[:7], good + "0", strings.ToUpper(good), strings.Repeat("g", 40), " " + good[:39]} {
		if id, err := ParseOID(bad); !errors.Is(err, ErrBadOID) {
			t.Errorf("ParseOID(%q) = %v, %v; want ErrBadOID", bad, id, err)
		}
	}
	if !ZeroOID.IsZero() {
		t.Error("ZeroOID is not zero")
	}
}
