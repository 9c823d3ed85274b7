package refpolicy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func rulesOf(t *testing.T, rules ...Rule) *Policy {
	t.Helper()
	p, err := New(rules, nil)
	if err != nil {
		t.Fatalf("New(%v) = %v", rules, err)
	}
	return p
}

// What an issued token of a restricted backend looks like, rule by rule.
func TestWithinShowsWhatHolds(t *testing.T) {
	sandbox := rulesOf(t, Rule{string(session), []Op{NoForcePush}}, Rule{"docs/*", []Op{NoPush}}, Rule{"*", []Op{NoRead}})
	backend := rulesOf(t, Rule{"docs/secret", []Op{NoRead}}, Rule{"refs/tags/*", nil}, Rule{"*", []Op{VerifySig}})
	p := sandbox.Within(nil, backend)
	want := []Rule{
		{string(session), []Op{NoForcePush, VerifySig}},
		{"refs/heads/docs/secret", []Op{NoPush, NoRead}},
		{"refs/heads/docs/*", []Op{NoPush, VerifySig}},
		{"refs/tags/*", []Op{NoRead}},
		{"*", []Op{NoRead, VerifySig}},
	}
	if got := p.Rules(); !slices.EqualFunc(got, want, func(a, b Rule) bool { return a.Pattern == b.Pattern && slices.Equal(a.Ops, b.Ops) }) {
		t.Errorf("Rules() = %v, want %v", got, want)
	}
	if p.Own() != sandbox {
		t.Errorf("Own() has rules %v, want the sandbox's", p.Own().Rules())
	}
	if branch, ok := p.ConfinedTo(); !ok || branch != session {
		t.Errorf("ConfinedTo() = %q, %v, want %q as without Within", branch, ok, session)
	}
	if p.Key() == sandbox.Key() || p.Key() == rulesOf(t, want...).Key() {
		t.Errorf("Key() is that of another policy")
	}
	if got := sandbox.Within(nil); got != sandbox {
		t.Errorf("Within of no policy is another policy")
	}
	var open *Policy
	if got := open.Within(); got != nil {
		t.Errorf("nothing within nothing = %v, want nil", got.Rules())
	}
	if got := open.Within(backend); got.CanRead("refs/heads/docs/secret") || got.Own().Rules() != nil && len(got.Own().Rules()) > 0 {
		t.Errorf("nothing within a policy: reads what that hides, or has own rules %v", got.Own().Rules())
	}
}

// A policy within others allows what all of them allow, asked one by one.
func TestPropertyWithinIsWhatAllAllow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := make([]*Policy, rapid.IntRange(1, 4).Draw(t, "policies"))
		for i := range all {
			var err error
			if all[i], err = New(someRules.Draw(t, "rules"), nil); err != nil {
				t.Fatalf("New = %v", err)
			}
		}
		p, ref := all[0].Within(all[1:]...), someRefs.Draw(t, "ref")
		reads, verifies, restricts, longest := true, false, false, 1
		for _, o := range all {
			reads = reads && o.CanRead(ref)
			verifies = verifies || o.MustVerify(ref)
			restricts = restricts || o.RestrictsReads()
			longest += len(o.Rules())
		}
		for _, k := range []Kind{Create, FastForward, Rewind, Delete} {
			allowed := !slices.ContainsFunc(all, func(o *Policy) bool { return o.Check(ref, k) != nil })
			if err := p.Check(ref, k); (err == nil) != allowed {
				t.Fatalf("Check(%s, %s) = %v, want allowed %v; rules %v", ref, k, err, allowed, p.Rules())
			}
		}
		if p.CanRead(ref) != reads || p.MustVerify(ref) != verifies {
			t.Fatalf("%s: CanRead %v, MustVerify %v, want %v, %v; rules %v", ref, p.CanRead(ref), p.MustVerify(ref), reads, verifies, p.Rules())
		}
		if !reads && !p.RestrictsReads() || p.RestrictsReads() && !restricts {
			t.Fatalf("RestrictsReads() = %v, of the policies %v; rules %v", p.RestrictsReads(), restricts, p.Rules())
		}
		if got := len(p.Rules()); got > longest {
			t.Fatalf("%d rules made of %d", got, longest-1)
		}
		if again := all[0].Within(all[1:]...); again.Key() != p.Key() {
			t.Fatalf("made twice, the policy has two keys")
		}
		branch, ok := p.ConfinedTo()
		if wantBranch, want := all[0].ConfinedTo(); ok != want || branch != wantBranch {
			t.Fatalf("ConfinedTo() = %s, %v, of its own rules %s, %v", branch, ok, wantBranch, want)
		}
		if p.Own().Key() != all[0].Key() {
			t.Fatalf("Own() has key %q, want %q", p.Own().Key(), all[0].Key())
		}
	})
}

// What a policy says aloud, Rules, decides as the policy does: whoever walks the
// rules alone (which names to read at all) must come to the same refs.
func TestPropertyRulesWithinDecideAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, errA := New(someRules.Draw(t, "a"), someOps.Draw(t, "a ops"))
		b, errB := New(someRules.Draw(t, "b"), someOps.Draw(t, "b ops"))
		if errA != nil || errB != nil {
			t.Fatalf("New = %v, %v", errA, errB)
		}
		p, ref := a.Within(b), someRefs.Draw(t, "ref")
		told, err := New(p.Rules(), nil)
		if err != nil {
			t.Fatalf("New of its own rules = %v", err)
		}
		if told.CanRead(ref) != p.CanRead(ref) || told.MayPush(ref) != p.MayPush(ref) {
			t.Fatalf("%s: rules %v decide otherwise than their policy", ref, p.Rules())
		}
	})
}

func FuzzCovers(f *testing.F) {
	f.Add("*", "main", "refs/heads/main")
	f.Add("refs/*", "*", "refs/tags/v1")
	f.Add("a/*", "a/b/*", "refs/heads/a/b/c")
	f.Add("a/*", "a", "refs/heads/a")
	f.Add("HEAD", "HEAD", "refs/heads/HEAD")
	f.Fuzz(func(t *testing.T, outer, inner, name string) {
		o, errO := ParsePattern(outer)
		i, errI := ParsePattern(inner)
		ref, errR := ParseRefName(name)
		if errO != nil || errI != nil || errR != nil {
			return
		}
		if Covers(o, i) && i.Match(ref) && !o.Match(ref) {
			t.Errorf("Covers(%q, %q), yet %q is matched by the second alone", o, i, ref)
		}
	})
}

// Covers says yes only when that is true, and no only when a ref shows it.
func TestPropertyCovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, errO := ParsePattern(somePatterns.Draw(t, "outer"))
		i, errI := ParsePattern(somePatterns.Draw(t, "inner"))
		if errO != nil || errI != nil {
			t.Fatalf("ParsePattern = %v, %v", errO, errI)
		}
		if ref := someRefs.Draw(t, "ref"); Covers(o, i) && i.Match(ref) && !o.Match(ref) {
			t.Fatalf("Covers(%q, %q), yet %q is matched by the second alone", o, i, ref)
		}
		if witness, some := witnessOf(i); some && !Covers(o, i) && o.Match(witness) {
			t.Fatalf("Covers(%q, %q) = false, yet even %q is matched by both", o, i, witness)
		}
	})
}

// witnessOf is a ref that p matches and that no pattern of the tests matches unless
// it covers p.
func witnessOf(p Pattern) (RefName, bool) {
	if ref, exact := p.Exact(); exact {
		return ref, true
	}
	switch p {
	case headPattern:
		return "", false
	case Any:
		return "refs/zzz", true
	}
	return RefName(p[:len(p)-1] + "zzz"), true
}

func TestPropertyCanReadAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := New(someRules.Draw(t, "rules"), someOps.Draw(t, "ops"))
		if err != nil {
			t.Fatalf("New = %v", err)
		}
		q, err := ParsePattern(somePatterns.Draw(t, "pattern"))
		if err != nil {
			t.Fatalf("ParsePattern = %v", err)
		}
		// Refs that show every way in which the tests' rules can decide below q.
		refs := []RefName{"refs/zzz"}
		for _, r := range p.Rules() {
			if w, ok := witnessOf(Pattern(r.Pattern)); ok {
				refs = append(refs, w)
			}
		}
		if w, ok := witnessOf(q); ok {
			refs = append(refs, w)
		}
		all := true
		for _, ref := range refs {
			all = all && (!q.Match(ref) || p.CanRead(ref))
		}
		if q == headPattern {
			return // no ref shows anything
		}
		// What a rule for HEAD takes away no ref shows either.
		onHead := slices.ContainsFunc(p.Rules(), func(r Rule) bool { return Pattern(r.Pattern) == headPattern })
		if got := p.CanReadAll(q); got != all && (got || !onHead) {
			t.Fatalf("CanReadAll(%q) = %v, asked ref by ref %v; rules %v", q, got, all, p.Rules())
		}
	})
}
