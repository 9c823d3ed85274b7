package refpolicy

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrBadOID: the text is not 40 lower-case hex digits.
var ErrBadOID = errors.New("not an object id")

// ErrBadClaim: a refs or ops claim does not have the shape the contract gives
// it. The whole token is then refused, as for a *PatternError.
var ErrBadClaim = errors.New("malformed policy claim")

// A RefNameError says which of git's rules a ref name breaks.
type RefNameError struct {
	Name string // as it was given, also when it was a short name
	Rule string // in plain words, such as `a component may not end with ".lock"`
}

func (e *RefNameError) Error() string {
	return fmt.Sprintf("bad ref name %s: %s", quoteShort(e.Name), e.Rule)
}

// A PatternError says why a policy's pattern is none of the legal forms.
type PatternError struct {
	Pattern string // as written
	Rule    string // in plain words
}

func (e *PatternError) Error() string {
	return fmt.Sprintf("bad ref pattern %s: %s", quoteShort(e.Pattern), e.Rule)
}

// A DeniedError says which rule refuses a change. Its text names the ref and
// contains "denied by policy"; it is one line of printable text.
type DeniedError struct {
	Ref     RefName
	Op      Op     // the op that refused
	Pattern string // the rule's normalised pattern; empty when no rule matches
	Force   bool   // a force push or delete was refused where a fast-forward would pass
	Detail  string // such as the unsigned commit's id; may be empty
}

func (e *DeniedError) Error() string {
	text := e.what() + " denied by policy"
	if e.Pattern != "" {
		text += ": rule " + e.Pattern + " has " + e.Op.printable()
	}
	return text
}

func (e *DeniedError) what() string {
	switch {
	case e.Op == VerifySig && e.Detail == "":
		return "unsigned commit on " + string(e.Ref)
	case e.Op == VerifySig:
		return "unsigned commit " + e.Detail + " on " + string(e.Ref)
	case e.Force:
		return "force push to " + string(e.Ref)
	}
	return "push to " + string(e.Ref)
}

// An op headgate does not know is any text a token's minter liked; it ends in
// report lines, so it is quoted and cut.
func (o Op) printable() string {
	if o.Known() {
		return string(o)
	}
	return "unknown op " + quoteShort(string(o))
}

// quoteShort keeps what a client sent from filling an answer or breaking its lines.
func quoteShort(s string) string {
	const limit = 80
	if len(s) > limit {
		return strconv.QuoteToASCII(s[:limit]) + "..."
	}
	return strconv.QuoteToASCII(s)
}
