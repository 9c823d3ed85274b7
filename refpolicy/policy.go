package refpolicy

import (
	"slices"
	"strconv"
	"strings"
)

// Op is one restriction of a rule. Unknown ops are kept: they refuse every write
// to the refs they match.
type Op string

// The ops headgate knows.
const (
	NoPush      Op = "no-push"
	NoForcePush Op = "no-force-push"
	VerifySig   Op = "verify-sig"
	NoRead      Op = "no-read"
)

// Known reports whether o is an op that headgate can honour. Case counts.
func (o Op) Known() bool {
	return o == NoPush || o == NoForcePush || o == VerifySig || o == NoRead
}

// refusesAll reports whether o stops every write. An unknown op does: its minter
// asked for a restriction that cannot be honoured otherwise.
func (o Op) refusesAll() bool { return o != NoForcePush && o != VerifySig }

// A Rule is one entry of a token's refs claim, its pattern as written or
// normalised. No Ops is an explicit allow.
type Rule struct {
	Pattern string
	Ops     []Op
}

// A Policy is an ordered rule list; the first rule that matches a ref decides.
// A nil Policy restricts nothing. A Policy does not change and may be shared.
type Policy struct {
	rules []rule // what holds
	key   string
	own   *Policy // what it was before Within; nil: it is its own
}

type rule struct {
	pattern Pattern
	ops     []Op
}

func (r rule) has(op Op) bool { return slices.Contains(r.ops, op) }

// New normalises rules, folds the legacy repo-wide ops into them and gives the
// policy: legacy ops join the first * rule, or become one at the end. An op that
// stands twice in a rule is kept once. A malformed pattern is a *PatternError:
// the whole token is then refused. No rules and no ops give a nil Policy.
func New(rules []Rule, legacy []Op) (*Policy, error) {
	if len(rules) == 0 && len(legacy) == 0 {
		return nil, nil
	}
	p := &Policy{rules: make([]rule, 0, len(rules)+1)}
	for _, r := range rules {
		pattern, err := ParsePattern(r.Pattern)
		if err != nil {
			return nil, err
		}
		p.rules = append(p.rules, rule{pattern, union(nil, r.Ops)})
	}
	p.fold(legacy)
	p.key = keyOf(p.rules)
	return p, nil
}

func (p *Policy) fold(legacy []Op) {
	if len(legacy) == 0 {
		return
	}
	if i := p.anyRule(); i >= 0 {
		p.rules[i].ops = union(p.rules[i].ops, legacy)
		return
	}
	p.rules = append(p.rules, rule{Any, union(nil, legacy)})
}

// anyRule is the index of the first * rule, or -1. A later one never decides.
func (p *Policy) anyRule() int {
	return slices.IndexFunc(p.rules, func(r rule) bool { return r.pattern == Any })
}

func union(ops, more []Op) []Op {
	for _, op := range more {
		if !slices.Contains(ops, op) {
			ops = append(ops, op)
		}
	}
	return ops
}

// Rules are the normalised rules that hold, in order, the folded legacy ops and
// what Within took over included. The caller owns them; Ops is never nil.
func (p *Policy) Rules() []Rule {
	if p == nil {
		return nil
	}
	rules := make([]Rule, len(p.rules))
	for i, r := range p.rules {
		rules[i] = Rule{string(r.pattern), append([]Op{}, r.ops...)}
	}
	return rules
}

// Key is a stable text of the normalised rules: equal for policies with the same
// rules (and own rules) in the same order, and for no others. It is for cache keys,
// not for people.
func (p *Policy) Key() string {
	if p == nil {
		return ""
	}
	return p.key
}

func keyOf(rules []rule) string {
	var b strings.Builder
	for _, r := range rules {
		b.WriteString(string(r.pattern)) // a valid pattern holds no space
		for _, op := range r.ops {
			b.WriteByte(' ')
			b.WriteString(strconv.Quote(string(op)))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// deciding is the first rule that matches ref; the zero rule, which allows
// everything, when none does.
func (p *Policy) deciding(ref RefName) rule {
	if p == nil {
		return rule{}
	}
	for _, r := range p.rules {
		if r.pattern.Match(ref) {
			return r
		}
	}
	return rule{}
}

// Check says whether a change of kind k to ref is allowed: nil or a *DeniedError.
// It does not look at signatures; see MustVerify.
func (p *Policy) Check(ref RefName, k Kind) error {
	r := p.deciding(ref)
	if i := slices.IndexFunc(r.ops, Op.refusesAll); i >= 0 {
		return r.denied(ref, r.ops[i], "")
	}
	// Deleting and creating again would be a force push by another road.
	if r.has(NoForcePush) && k != Create && k != FastForward {
		return r.denied(ref, NoForcePush, "")
	}
	return nil
}

// MayPush reports whether some change of ref could be allowed; it is what is asked
// before any object is there. It is Check(ref, FastForward) == nil.
func (p *Policy) MayPush(ref RefName) bool { return p.Check(ref, FastForward) == nil }

// MustVerify reports whether every commit that a change introduces to ref has to
// carry a valid signature.
func (p *Policy) MustVerify(ref RefName) bool { return p.deciding(ref).has(VerifySig) }

// CanRead reports whether ref exists for this token.
func (p *Policy) CanRead(ref RefName) bool { return !p.deciding(ref).has(NoRead) }

// RestrictsReads reports whether any rule holds no-read, so that reads by object
// id have to be proved by reach.
func (p *Policy) RestrictsReads() bool {
	return p != nil && slices.ContainsFunc(p.rules, func(r rule) bool { return r.has(NoRead) })
}

// ConfinedTo names the one ephemeral branch this token can push: exactly one rule
// without * lets an ephemeral branch be pushed, and the * rule holds no-push or
// no-read. It decides HEAD of the ephemeral remote. Its own rules alone are asked:
// what Within takes away does not change which branch a token is for.
func (p *Policy) ConfinedTo() (RefName, bool) {
	if p = p.Own(); p == nil {
		return "", false
	}
	i := p.anyRule()
	if i < 0 || !p.rules[i].has(NoPush) && !p.rules[i].has(NoRead) {
		return "", false
	}
	var branches []RefName
	for _, r := range p.rules {
		ref, exact := r.pattern.Exact()
		// MayPush asks the list and not r: a rule that stands behind another one
		// that matches lets nothing be pushed.
		if exact && ref.IsEphemeralBranch() && p.deciding(ref).pattern == r.pattern &&
			p.MayPush(ref) && !slices.Contains(branches, ref) {
			branches = append(branches, ref)
		}
	}
	if len(branches) != 1 {
		return "", false
	}
	return branches[0], true
}

// Denied is the refusal of a change of ref because op stands in its rule, for
// rules that need facts from outside (an unsigned commit); detail may be empty.
func (p *Policy) Denied(ref RefName, op Op, detail string) *DeniedError {
	return p.deciding(ref).denied(ref, op, detail)
}

func (r rule) denied(ref RefName, op Op, detail string) *DeniedError {
	return &DeniedError{
		Ref: ref, Op: op, Pattern: string(r.pattern), Force: op == NoForcePush, Detail: detail,
	}
}
