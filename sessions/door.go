package sessions

import (
	"context"
	"time"
)

// A Door is one repo as one caller may see and move it: what the caller's token does
// not let it do, its methods refuse with errors of their own, which pass through
// this package as they are.
type Door interface {
	// Resolve gives the full id of the commit that a branch, tag or commit names; an
	// ephemeral branch if ephemeral is set. It must be readable by the caller. A branch
	// may not be durable there yet: a Move that starts from it is.
	Resolve(ctx context.Context, rev string, ephemeral bool) (sha string, err error)
	// Heads tells where refs are, in their order; the zero Head for what is not there.
	// It is not asked whether the caller may read them.
	Heads(ctx context.Context, refs ...string) ([]Head, error)
	// MayWrite is nil if the caller may create and fast-forward ref.
	MayWrite(ref string) error
	// CanRead reports whether ref exists for the caller.
	CanRead(ref string) bool
	// Move changes refs, all or none, in one batch with what the Guard makes of
	// intent. It returns the first refusal.
	Move(ctx context.Context, m Move) error
	// Pinned reports whether a live pin that is none of a fork's state names the commit.
	Pinned(ctx context.Context, sha string) (bool, error)
	// Unpin lets go of a pin; one that is gone already is no error.
	Unpin(ctx context.Context, id string) error
	// Frees tells how many bytes only ref keeps.
	Frees(ctx context.Context, ref string) (int64, error)
}

// A Head is where a ref is.
type Head struct {
	SHA    string // empty: there is no such ref
	At     time.Time
	Writer string // subject of the token that moved it last
}

// A Change asks for ref to go from Old to New; empty stands for absent. Where neither
// is, New must descend from Old: a session's branch is never rewound.
type Change struct {
	Ref, Old, New string
}

// A Move is what goes through a Door.
type Move struct {
	Changes []Change
	// Intent is handed to the Guard with the changes.
	Intent any
	// Pins are made in the same batch, of what a change leads to.
	Pins []NewPin
}

// A NewPin is a pin that a Move makes.
type NewPin struct {
	ID, SHA, Holder string
}
