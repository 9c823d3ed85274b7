package gitstore

import "github.com/headgate/headgate/refpolicy"

// A Caller is who asks and what its token lets it do with refs. Scopes are
// checked before a call comes here.
type Caller struct {
	Actor  Actor
	Policy *refpolicy.Policy // nil restricts nothing
}

// An Actor is who is written into the log as the author of a change.
type Actor struct {
	Org     string  `json:"org"`
	Subject string  `json:"sub,omitempty"`
	KeyID   string  `json:"kid,omitempty"`
	TokenID string  `json:"jti,omitempty"`
	Session string  `json:"sid,omitempty"`
	Epoch   *uint64 `json:"epoch,omitempty"`
}
