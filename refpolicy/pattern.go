package refpolicy

import "strings"

// A Pattern is a normalised pattern of a policy's rule. Values made by
// ParsePattern are valid. The forms, and no others:
//
//	pattern = "*"            every ref
//	        | "HEAD"         that word; no ref that can be written has this name
//	        | exact          a full ref name
//	        | prefix "/*"    every ref below prefix, at any depth
type Pattern string

// Any matches every ref.
const Any Pattern = "*"

const headPattern Pattern = "HEAD"

// ParsePattern normalises a pattern as written: what does not begin with refs/
// and is not * or HEAD is meant below refs/heads/. What is none of the forms
// is a *PatternError, for a restriction that is skipped would widen the token.
func ParsePattern(s string) (Pattern, error) {
	if s == string(Any) || s == string(headPattern) {
		return Pattern(s), nil
	}
	if s == "" {
		return "", &PatternError{Pattern: s, Rule: "it is empty"}
	}
	full := s
	if !strings.HasPrefix(s, RefsPrefix) {
		full = BranchPrefix + s
	}
	// A prefix is right when the refs below it can have right names.
	probe, below := full, strings.HasSuffix(full, "/*")
	if below {
		probe = full[:len(full)-1] + "x"
	}
	if strings.Contains(probe, "*") {
		return "", &PatternError{Pattern: s, Rule: `"*" stands alone or last, directly after a slash`}
	}
	if rule := brokenRule(probe); rule != "" {
		return "", &PatternError{Pattern: s, Rule: rule}
	}
	return Pattern(full), nil
}

// Match reports whether the rule of p speaks of ref. Case counts, and * crosses slashes.
func (p Pattern) Match(ref RefName) bool {
	if p == Any {
		return true
	}
	if below, ok := strings.CutSuffix(string(p), "*"); ok {
		return strings.HasPrefix(string(ref), below)
	}
	return string(p) == string(ref)
}

// Exact gives the one ref that p matches; false for the forms with * and for HEAD.
func (p Pattern) Exact() (RefName, bool) {
	if p == headPattern || strings.HasSuffix(string(p), "*") {
		return "", false
	}
	return RefName(p), true
}

// Covers reports whether outer matches every ref that inner matches. HEAD, which
// matches none, is covered by itself and by * alone.
func Covers(outer, inner Pattern) bool {
	if outer == Any || outer == inner {
		return true
	}
	below, wide := strings.CutSuffix(string(outer), "*")
	if !wide || inner == headPattern {
		return false
	}
	from, _ := strings.CutSuffix(string(inner), "*")
	if inner == Any {
		from = RefsPrefix
	}
	return strings.HasPrefix(from, below)
}

// meet is the pattern of what both match, which of any two is one of them; false
// when no ref is matched by both.
func meet(a, b Pattern) (Pattern, bool) {
	switch {
	case Covers(a, b):
		return b, true
	case Covers(b, a):
		return a, true
	}
	return "", false
}
