package refpolicy

// Op is one restriction of a rule. Unknown ops are kept: they refuse every write
// to the refs they match (contract/auth.md 4.5, OQ-P4).
type Op string

// The ops headgate knows.
const (
	NoPush      Op = "no-push"
	NoForcePush Op = "no-force-push"
	VerifySig   Op = "verify-sig"
	NoRead      Op = "no-read"
)

// A Rule is one entry of a token's refs claim, its pattern as written or normalised.
type Rule struct {
	Pattern string
	Ops     []Op
}

// A Policy is an ordered rule list; the first rule that matches a ref decides.
// A nil Policy restricts nothing. A Policy does not change and may be shared.
type Policy struct {
	rules []Rule
}

// New normalises rules, folds the legacy repo-wide ops into them and gives the
// policy. A malformed pattern is a *PatternError: the whole token is then refused.
// No rules and no ops give a nil Policy.
func New(rules []Rule, legacy []Op) (*Policy, error) { panic("refpolicy.New: being written") }

// Rules are the normalised rules in order, the folded legacy ops included.
func (p *Policy) Rules() []Rule { panic("being written") }

// Check says whether a change of kind k to ref is allowed: nil or a *DeniedError.
// It does not look at signatures; see MustVerify.
func (p *Policy) Check(ref RefName, k Kind) error { panic("being written") }

// MayPush reports whether some change of ref could be allowed; it is what is asked
// before any object is there. It is Check(ref, FastForward) == nil.
func (p *Policy) MayPush(ref RefName) bool { panic("being written") }

// MustVerify reports whether every commit that a change introduces to ref has to
// carry a valid signature.
func (p *Policy) MustVerify(ref RefName) bool { panic("being written") }

// CanRead reports whether ref exists for this token.
func (p *Policy) CanRead(ref RefName) bool { panic("being written") }

// RestrictsReads reports whether any rule holds no-read, so that reads by object
// id have to be proved by reach.
func (p *Policy) RestrictsReads() bool { panic("being written") }

// ConfinedTo names the one ephemeral branch this token can push: exactly one rule
// without * lets an ephemeral branch be pushed, and the * rule holds no-push or
// no-read (contract/headgate.md 6). It decides HEAD of the ephemeral remote.
func (p *Policy) ConfinedTo() (RefName, bool) { panic("being written") }

// Denied is the refusal of a change of ref because op stands in its rule, for
// rules that need facts from outside (an unsigned commit); detail may be empty.
func (p *Policy) Denied(ref RefName, op Op, detail string) *DeniedError { panic("being written") }

// A DeniedError says which rule refuses a change. Its text names the ref and
// contains "denied by policy".
type DeniedError struct {
	Ref     RefName
	Op      Op     // the op that refused
	Pattern string // the rule's normalised pattern
	Force   bool   // a force push or delete was refused where a fast-forward would pass
	Detail  string // such as the unsigned commit's id; may be empty
}

func (e *DeniedError) Error() string { panic("being written") }
