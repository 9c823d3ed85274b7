package refpolicy

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The naive model: rules as written, judged by the sentences of the contract.

func naiveMatch(written string, ref RefName) bool {
	if written == "*" {
		return true
	}
	if !strings.HasPrefix(written, "refs/") && written != "HEAD" {
		written = "refs/heads/" + written
	}
	if strings.HasSuffix(written, "*") {
		return strings.HasPrefix(string(ref), strings.TrimSuffix(written, "*"))
	}
	return written == string(ref)
}

// naiveOps are the ops that hold for ref: those of the first match, and the legacy
// ops when the first match is a star or nothing matches.
func naiveOps(rules []Rule, legacy []Op, ref RefName) []Op {
	firstStar := slices.IndexFunc(rules, func(r Rule) bool { return r.Pattern == "*" })
	for i, r := range rules {
		if !naiveMatch(r.Pattern, ref) {
			continue
		}
		if i == firstStar {
			return append(slices.Clone(r.Ops), legacy...)
		}
		return r.Ops
	}
	return legacy
}

func naiveAllows(ops []Op, k Kind) bool {
	for _, op := range ops {
		switch op {
		case VerifySig:
		case NoForcePush:
			if k == Rewind || k == Delete {
				return false
			}
		default:
			return false
		}
	}
	return true
}

var (
	somePatterns = rapid.SampledFrom([]string{
		"*", "HEAD", "main", "refs/heads/main", "a/*", "refs/heads/*", "refs/tags/*", "refs/*", "a/b", "a/b/*",
		string(session), "refs/namespaces/ephemeral/refs/heads/*", "refs/namespaces/*",
	})
	someOps  = rapid.SliceOfN(rapid.SampledFrom([]Op{NoPush, NoForcePush, VerifySig, NoRead, "odd", ""}), 0, 3)
	someRefs = rapid.SampledFrom([]RefName{
		main, "refs/heads/a", "refs/heads/a/b", "refs/heads/a/b/c", "refs/tags/main", "refs/notes/commits", session, ephemeral,
		"refs/namespaces/state/refs/snapshots/1", "refs/heads/HEAD",
	})
	someRules = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Rule {
		return Rule{somePatterns.Draw(t, "pattern"), someOps.Draw(t, "ops")}
	}), 0, 5)
)

func TestPropertyFirstMatchAndFolding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, legacy, ref := someRules.Draw(t, "rules"), someOps.Draw(t, "legacy"), someRefs.Draw(t, "ref")
		p, err := New(rules, legacy)
		if err != nil {
			t.Fatalf("New = %v", err)
		}
		ops := naiveOps(rules, legacy, ref)
		for _, k := range []Kind{Create, FastForward, Rewind, Delete} {
			if err := p.Check(ref, k); (err == nil) != naiveAllows(ops, k) {
				t.Fatalf("Check(%s, %s) = %v; the ops that hold are %q", ref, k, err, ops)
			}
		}
		if got := p.MustVerify(ref); got != slices.Contains(ops, VerifySig) {
			t.Fatalf("MustVerify(%s) = %v; the ops that hold are %q", ref, got, ops)
		}
		if got := p.CanRead(ref); got == slices.Contains(ops, NoRead) {
			t.Fatalf("CanRead(%s) = %v; the ops that hold are %q", ref, got, ops)
		}
		if !p.CanRead(ref) && (p.MayPush(ref) || !p.RestrictsReads()) {
			t.Fatalf("%s cannot be read, yet MayPush %v, RestrictsReads %v", ref, p.MayPush(ref), p.RestrictsReads())
		}
		if branch, ok := p.ConfinedTo(); ok && (!p.MayPush(branch) || !branch.IsEphemeralBranch()) {
			t.Fatalf("ConfinedTo() = %s, which cannot be pushed", branch)
		}
	})
}

func TestPropertyNormalRulesStandStill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := New(someRules.Draw(t, "rules"), someOps.Draw(t, "legacy"))
		if err != nil {
			t.Fatalf("New = %v", err)
		}
		again, err := New(p.Rules(), nil)
		if err != nil || again.Key() != p.Key() {
			t.Fatalf("New of its own rules has key %q (%v), want %q", again.Key(), err, p.Key())
		}
	})
}

func TestPropertyKeysTellPoliciesApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ops := rapid.SliceOfN(rapid.SampledFrom([]Op{NoPush, "a", "b", `a" "b`, "a\nb", "", " "}), 0, 3)
		rules := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Rule {
			return Rule{somePatterns.Draw(t, "pattern"), ops.Draw(t, "ops")}
		}), 0, 2)
		a, errA := New(rules.Draw(t, "a"), nil)
		b, errB := New(rules.Draw(t, "b"), nil)
		if errA != nil || errB != nil {
			t.Fatalf("New = %v, %v", errA, errB)
		}
		same := slices.EqualFunc(a.Rules(), b.Rules(), func(x, y Rule) bool {
			return x.Pattern == y.Pattern && slices.Equal(x.Ops, y.Ops)
		})
		if same != (a.Key() == b.Key()) {
			t.Fatalf("rules %v and %v: keys %q and %q", a.Rules(), b.Rules(), a.Key(), b.Key())
		}
	})
}
