package tokens

import (
	"fmt"

	"github.com/headgate/headgate/refpolicy"
)

// An Ask is what a token is to be renewed for. What is nil stays as it is.
type Ask struct {
	Scopes []Scope
	Read   []refpolicy.Pattern
}

// Narrower is nil if the principal of a token has all that is asked for, else an
// ErrMoreAsked that says what it has not. Only what the token itself says is looked
// at: the policies it is within hold for the new one as they do for it.
func Narrower(old *Principal, ask Ask) error {
	for _, s := range ask.Scopes {
		if !old.Scopes.Has(s) {
			return fmt.Errorf("%w: scope %q", ErrMoreAsked, string(s))
		}
	}
	own := old.Policy.Own()
	for _, pattern := range ask.Read {
		if !own.CanReadAll(pattern) {
			return fmt.Errorf("%w: reading %q", ErrMoreAsked, string(pattern))
		}
	}
	return nil
}
