package tokens

import "fmt"

// A Scope is one right that a token can hold, as it stands in the scopes claim.
type Scope string

// The scopes there are. What is not listed here is ignored in a token.
const (
	GitRead   Scope = "git:read"   // every read of a repo
	GitWrite  Scope = "git:write"  // every change of a ref; includes GitRead
	RepoWrite Scope = "repo:write" // create, change and delete a repo
	OrgRead   Scope = "org:read"   // list the org's repos
)

// allScopes gives each scope its bit, by position.
var allScopes = [...]Scope{GitRead, GitWrite, RepoWrite, OrgRead}

// ParseScope gives the scope that s names, or ErrUnknownScope.
func ParseScope(s string) (Scope, error) {
	if Scope(s).bit() == 0 {
		return "", fmt.Errorf("%w: %q", ErrUnknownScope, s)
	}
	return Scope(s), nil
}

func (s Scope) bit() Scopes {
	for i, known := range allScopes {
		if s == known {
			return 1 << i
		}
	}
	return 0
}

// Scopes is a set of scopes. The zero value grants nothing.
type Scopes uint8

// ScopesOf is the set of the given scopes; unknown ones are left out.
func ScopesOf(scopes ...Scope) Scopes {
	var set Scopes
	for _, s := range scopes {
		set |= s.bit()
	}
	return set
}

// Has reports whether the set satisfies s. A set with GitWrite has GitRead.
func (set Scopes) Has(s Scope) bool {
	bit := s.bit()
	return bit != 0 && set.full()&bit == bit
}

// List gives the scopes of the set as they were put in, in a fixed order; it is
// never nil.
func (set Scopes) List() []Scope {
	list := make([]Scope, 0, len(allScopes))
	for i, s := range allScopes {
		if set&(1<<i) != 0 {
			list = append(list, s)
		}
	}
	return list
}

// Within is what of the set limit lets through: no scope that limit has not.
func (set Scopes) Within(limit Scopes) Scopes { return set.full() & limit.full() }

// full is the set with everything its scopes include.
func (set Scopes) full() Scopes {
	if set&GitWrite.bit() != 0 {
		set |= GitRead.bit()
	}
	return set
}
