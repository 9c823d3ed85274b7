package refpolicy

import "strings"

// Where refs of each kind are stored.
const (
	RefsPrefix   = "refs/"
	BranchPrefix = "refs/heads/"
	TagPrefix    = "refs/tags/"
	NotesPrefix  = "refs/notes/"
	// NamespacePrefix covers everything that the main remote never shows.
	NamespacePrefix = "refs/namespaces/"
	// EphemeralPrefix is cut off the stored name to give what the ephemeral remote shows.
	EphemeralPrefix = "refs/namespaces/ephemeral/"
	// EphemeralBranchPrefix is where ephemeral branches are stored.
	EphemeralBranchPrefix = EphemeralPrefix + BranchPrefix
	// StatePrefix holds headgate's own refs; no remote shows or takes them.
	StatePrefix = "refs/namespaces/state/"
)

// DefaultNotes is the notes ref that is meant when none is named.
const DefaultNotes RefName = "refs/notes/commits"

// MaxRefName is the longest stored ref name, in bytes, prefix included. git has
// no limit of its own; a name has to fit a ledger key and a line of a report.
const MaxRefName = 1000

// A RefName is a full, stored ref name such as refs/heads/main. Values made by
// ParseRefName, Branch, EphemeralBranch, Tag, Notes and FromEphemeral are valid.
type RefName string

// ParseRefName takes a full name that begins with refs/ and passes git
// check-ref-format, of at most MaxRefName bytes. Else it is a *RefNameError.
func ParseRefName(s string) (RefName, error) {
	rule := ""
	if !strings.HasPrefix(s, RefsPrefix) {
		rule = "a full ref name begins with refs/"
	} else {
		rule = brokenRule(s)
	}
	if rule != "" {
		return "", &RefNameError{Name: s, Rule: rule}
	}
	return RefName(s), nil
}

// Branch is the stored name of an ordinary branch named as git check-ref-format
// --branch allows. One leading refs/heads/ is taken off first; any other refs/
// prefix, HEAD and a leading "-" are a *RefNameError.
func Branch(short string) (RefName, error) {
	return named(BranchPrefix, short, strings.TrimPrefix(short, BranchPrefix))
}

// StrictBranch is Branch for calls that take short names only: any leading
// refs/ is a *RefNameError.
func StrictBranch(short string) (RefName, error) {
	return named(BranchPrefix, short, short)
}

// EphemeralBranch is Branch for the ephemeral namespace: x and refs/heads/x give
// refs/namespaces/ephemeral/refs/heads/x.
func EphemeralBranch(short string) (RefName, error) {
	return named(EphemeralBranchPrefix, short, strings.TrimPrefix(short, BranchPrefix))
}

// StrictEphemeralBranch is EphemeralBranch without the taking off of refs/heads/.
func StrictEphemeralBranch(short string) (RefName, error) {
	return named(EphemeralBranchPrefix, short, short)
}

// Tag is the stored name of a tag. A leading refs/ is a *RefNameError, as are
// HEAD (newer gits refuse it, and it could be mixed up) and a leading "-".
func Tag(short string) (RefName, error) {
	return named(TagPrefix, short, short)
}

// Notes is the stored name of a notes ref: x, notes/x and refs/notes/x all mean
// refs/notes/x, and the empty name means DefaultNotes. Any other refs/ prefix is a
// *RefNameError.
func Notes(name string) (RefName, error) {
	if name == "" {
		return DefaultNotes, nil
	}
	rest, full := strings.CutPrefix(name, NotesPrefix)
	if !full {
		rest = strings.TrimPrefix(name, "notes/")
	}
	return named(NotesPrefix, name, rest)
}

// FromEphemeral is the stored name of a ref as the ephemeral remote shows it:
// refs/heads/x gives refs/namespaces/ephemeral/refs/heads/x. The name shown must be
// a ref name by itself; else it is a *RefNameError.
func FromEphemeral(shown string) (RefName, error) {
	if _, err := ParseRefName(shown); err != nil {
		return "", err
	}
	return ParseRefName(EphemeralPrefix + shown)
}

// named puts prefix before rest under git's rules for short names; given is what
// the error shows.
func named(prefix, given, rest string) (RefName, error) {
	rule := ""
	switch {
	case rest == "":
		rule = "it is empty"
	case rest == "HEAD":
		rule = `it may not be called "HEAD"`
	case rest[0] == '-':
		rule = `it may not begin with "-"`
	case strings.HasPrefix(rest, RefsPrefix):
		rule = "a short name may not begin with refs/"
	default:
		rule = brokenRule(prefix + rest)
	}
	if rule != "" {
		return "", &RefNameError{Name: given, Rule: rule}
	}
	return RefName(prefix + rest), nil
}

// brokenRule is git's check-ref-format for a name of two components or more:
// empty when s passes, else the rule that it breaks.
func brokenRule(s string) string {
	if len(s) > MaxRefName {
		return "it may not be longer than 1000 bytes"
	}
	if !strings.Contains(s, "/") {
		return "it needs a slash"
	}
	for component := range strings.SplitSeq(s, "/") {
		if rule := brokenComponentRule(component); rule != "" {
			return rule
		}
	}
	if strings.HasSuffix(s, ".") {
		return `it may not end with "."`
	}
	return ""
}

func brokenComponentRule(c string) string {
	switch {
	case c == "":
		return "it may not begin or end with a slash or hold two in a row"
	case c[0] == '.':
		return `a component may not begin with "."`
	case strings.HasSuffix(c, ".lock"):
		return `a component may not end with ".lock"`
	case strings.Contains(c, ".."):
		return `it may not hold ".."`
	case strings.Contains(c, "@{"):
		return `it may not hold "@{"`
	}
	for i := range len(c) {
		if c[i] < ' ' || c[i] == 0x7f {
			return "it may not hold control characters"
		}
		if strings.IndexByte(" ~^:?*[\\", c[i]) >= 0 {
			return `it may not hold a space or any of ~ ^ : ? * [ \`
		}
	}
	return ""
}

func (r RefName) String() string { return string(r) }

// Short is the name without refs/heads/, refs/tags/, refs/notes/ or the ephemeral
// branch prefix; a ref of no such kind is given whole.
func (r RefName) Short() string {
	for _, prefix := range []string{BranchPrefix, TagPrefix, NotesPrefix, EphemeralBranchPrefix} {
		if short, ok := strings.CutPrefix(string(r), prefix); ok {
			return short
		}
	}
	return string(r)
}

// IsBranch reports whether r is an ordinary branch; an ephemeral one is not.
func (r RefName) IsBranch() bool { return strings.HasPrefix(string(r), BranchPrefix) }

// IsTag reports whether r is a tag.
func (r RefName) IsTag() bool { return strings.HasPrefix(string(r), TagPrefix) }

// IsNotes reports whether r is a notes ref.
func (r RefName) IsNotes() bool { return strings.HasPrefix(string(r), NotesPrefix) }

// IsEphemeral reports whether r is stored in the ephemeral namespace.
func (r RefName) IsEphemeral() bool { return strings.HasPrefix(string(r), EphemeralPrefix) }

// IsEphemeralBranch reports whether r is an ephemeral branch.
func (r RefName) IsEphemeralBranch() bool {
	return strings.HasPrefix(string(r), EphemeralBranchPrefix)
}

// IsState reports whether r is one of headgate's own refs.
func (r RefName) IsState() bool { return strings.HasPrefix(string(r), StatePrefix) }

// Hidden reports whether the main remote neither shows r nor takes a push to it.
func (r RefName) Hidden() bool { return strings.HasPrefix(string(r), NamespacePrefix) }

// OneLevel reports whether nothing but one component follows refs/, as in
// refs/foo. git's receive-pack calls such a name funny and refuses it.
func (r RefName) OneLevel() bool { return strings.Count(string(r), "/") < 2 }

// Shown is what the ephemeral remote calls r; false when it does not show r.
func (r RefName) Shown() (string, bool) {
	return strings.CutPrefix(string(r), EphemeralPrefix)
}
