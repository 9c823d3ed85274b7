package refpolicy

// Within is the policy that allows what p and every one of outer allow: a read, a
// push or a force push that one of them refuses is refused, and a signature that
// one of them demands is demanded. p is still its Own.
func (p *Policy) Within(outer ...*Policy) *Policy {
	in := p
	for _, o := range outer {
		if o == nil {
			continue
		}
		both := &Policy{rules: both(in.ruleList(), o.rules), own: p.Own()}
		if both.own == nil {
			both.own = &Policy{} // no rules, as nil
		}
		in = both
	}
	if in != p {
		in.key = keyOf(in.rules) + "\n" + in.own.Key()
	}
	return in
}

// Own is what p was before Within restricted it.
func (p *Policy) Own() *Policy {
	if p == nil || p.own == nil {
		return p
	}
	return p.own
}

// CanReadAll reports whether every ref that q matches can be read.
func (p *Policy) CanReadAll(q Pattern) bool {
	var seen []Pattern
	for _, r := range p.ruleList() {
		part, overlap := meet(r.pattern, q)
		if !overlap {
			continue
		}
		// Refs without number are below a prefix, so no list of narrower patterns
		// covers it: an earlier rule that decides all of part does so alone.
		if r.has(NoRead) && !coveredByOne(seen, part) {
			return false
		}
		if part == q {
			return true
		}
		seen = append(seen, r.pattern)
	}
	return true
}

func (p *Policy) ruleList() []rule {
	if p == nil {
		return nil
	}
	return p.rules
}

func coveredByOne(patterns []Pattern, part Pattern) bool {
	for _, p := range patterns {
		if Covers(p, part) {
			return true
		}
	}
	return false
}

// both is the list whose deciding rule for a ref has the ops of the rules that
// decide it in a and in b: each rule of a in order, for each the rules of b in
// order, for what both match. A pattern that stands in the list already would
// decide nothing, so the list is no longer than a and b together, and one.
func both(a, b []rule) []rule {
	list := make([]rule, 0, len(a)+len(b))
	seen := make(map[Pattern]bool, len(a)+len(b))
	for _, x := range closed(a) {
		for _, y := range closed(b) {
			pattern, overlap := meet(x.pattern, y.pattern)
			if !overlap || seen[pattern] {
				continue
			}
			seen[pattern] = true
			ops := union(union(nil, x.ops), y.ops)
			if pattern != Any {
				list = append(list, rule{pattern, ops})
				continue
			}
			if len(ops) > 0 { // else it says no more than the end of a list
				list = append(list, rule{pattern, ops})
			}
			return list
		}
	}
	return list
}

// closed says aloud that what no rule matches is allowed.
func closed(rules []rule) []rule {
	return append(rules[:len(rules):len(rules)], rule{pattern: Any})
}
