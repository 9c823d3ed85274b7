package refpolicy

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

func TestParseRules(t *testing.T) {
	for _, tc := range []struct {
		raw  string
		want []Rule // nil: ErrBadClaim
	}{
		{`[]`, []Rule{}},
		{`[["main",[]],["*",["no-push","x"]]]`, []Rule{{"main", []Op{}}, {"*", []Op{NoPush, "x"}}}},
		{` [ [ "main" , [ ] ] ] `, []Rule{{"main", []Op{}}}},
		{`null`, nil}, // would be no restriction at all
		{``, nil},
		{`{}`, nil},
		{`"main"`, nil},
		{`[null]`, nil},
		{`["main"]`, nil},
		{`[["main"]]`, nil}, // ops left out is not ops empty
		{`[["main",null]]`, nil},
		{`[["main",[null]]]`, nil},
		{`[["main",[1]]]`, nil},
		{`[["main","no-push"]]`, nil},
		{`[[null,[]]]`, nil},
		{`[[["main"],[]]]`, nil},
		{`[["main",[],[]]]`, nil},
		{`[{"pattern":"main","ops":[]}]`, nil},
		{`[["main",[]]]x`, nil},
		{"[[\"ma\xffin\",[\"no-push\"]]]", nil}, // would be read as another name
	} {
		got, err := ParseRules([]byte(tc.raw))
		if !reflect.DeepEqual(got, tc.want) || (tc.want == nil) != errors.Is(err, ErrBadClaim) {
			t.Errorf("ParseRules(%s) = %v, %v; want %v", tc.raw, got, err, tc.want)
		}
	}
}

func TestParseOps(t *testing.T) {
	if got, err := ParseOps([]byte(`["no-push"]`)); err != nil || !reflect.DeepEqual(got, []Op{NoPush}) {
		t.Errorf(`ParseOps(["no-push"]) = %v, %v`, got, err)
	}
	for _, raw := range []string{`null`, `"no-push"`, `[null]`, `[["no-push"]]`, `{}`, ``} {
		if got, err := ParseOps([]byte(raw)); !errors.Is(err, ErrBadClaim) {
			t.Errorf("ParseOps(%s) = %v, %v; want ErrBadClaim", raw, got, err)
		}
	}
}

func TestRuleAsJSON(t *testing.T) {
	raw, err := json.Marshal([]Rule{{"main", nil}, {"*", []Op{NoRead}}})
	if want := `[["main",[]],["*",["no-read"]]]`; err != nil || string(raw) != want {
		t.Errorf("Marshal = %s, %v; want %s", raw, err, want)
	}
	var rules []Rule
	if err := json.Unmarshal([]byte(`[["main"]]`), &rules); !errors.Is(err, ErrBadClaim) {
		t.Errorf("Unmarshal of a rule without ops = %v, want ErrBadClaim", err)
	}
}

func FuzzParseRules(f *testing.F) {
	for _, raw := range []string{`[]`, `[["main",["no-push"]]]`, `[["*",["no-read","x"]],["a/*",[]]]`, `null`, `[["a*",[]]]`, `[[]]`} {
		f.Add([]byte(raw), []byte(`["no-force-push"]`), "refs/heads/main")
	}
	f.Fuzz(func(t *testing.T, refs, ops []byte, ref string) {
		rules, err := ParseRules(refs)
		if err != nil && !errors.Is(err, ErrBadClaim) {
			t.Fatalf("ParseRules(%q) = %v, want ErrBadClaim", refs, err)
		}
		legacy, opsErr := ParseOps(ops)
		if opsErr != nil && !errors.Is(opsErr, ErrBadClaim) {
			t.Fatalf("ParseOps(%q) = %v, want ErrBadClaim", ops, opsErr)
		}
		if err != nil || opsErr != nil {
			return
		}
		raw, err := json.Marshal(rules)
		if err != nil {
			t.Fatalf("Marshal(%v) = %v", rules, err)
		}
		if again, err := ParseRules(raw); err != nil || !reflect.DeepEqual(again, rules) {
			t.Fatalf("%v as JSON and back is %v, %v", rules, again, err)
		}
		p, err := New(rules, legacy)
		var bad *PatternError
		if err != nil {
			if !errors.As(err, &bad) {
				t.Fatalf("New(%v) = %v, want a *PatternError", rules, err)
			}
			return
		}
		name, err := ParseRefName(ref)
		if err != nil {
			return
		}
		for _, k := range []Kind{Create, FastForward, Rewind, Delete} {
			if err := p.Check(name, k); (err == nil) != naiveAllows(naiveOps(rules, legacy, name), k) {
				t.Fatalf("New(%v, %v).Check(%s, %s) = %v", rules, legacy, name, k, err)
			}
		}
	})
}
