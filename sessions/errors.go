package sessions

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrInvalid: what was asked for is malformed; the text says how.
	ErrInvalid = errors.New("invalid request")
	// ErrNotFound: no such session, or the caller may not read its branch.
	ErrNotFound = errors.New("session not found")
	// ErrGroupNotFound: no such fork, or the caller may not read its parent's branch.
	ErrGroupNotFound = errors.New("fork not found")
	// ErrTokenNotFound: the session has issued no such token.
	ErrTokenNotFound = errors.New("token not found")
	// ErrExists: there is a session with this id, or its branch exists.
	ErrExists = errors.New("session exists already")
	// ErrLeaseLost: the lease has expired, was released, or is another's.
	ErrLeaseLost = errors.New("lease is lost")
	// ErrNotCreator: neither the creator of the session nor an admin asks.
	ErrNotCreator = errors.New("only the session's creator or an admin may do this")
	// ErrTokenDead: the token was revoked, or its session has ended.
	ErrTokenDead = errors.New("token is revoked or its session has ended")
	// ErrForeignSession: a token that is bound to a session was used on another's branch, or on none's.
	ErrForeignSession = errors.New("token is bound to another session")
	// ErrBadCursor: a cursor is none that this list gave.
	ErrBadCursor = errors.New("malformed cursor")
	// ErrSnapshotGone: the snapshot that a session was to be made from is being deleted.
	ErrSnapshotGone = errors.New("snapshot is being deleted")
	// ErrPicked: another child has been picked, or the group is closed.
	ErrPicked = errors.New("fork has its winner or is closed")
)

// A StaleEpochError fences off a writer whose epoch is not the session's.
type StaleEpochError struct {
	Ref           string
	Have, Session uint64
}

func (e *StaleEpochError) Error() string {
	return fmt.Sprintf("stale epoch %d, session is at %d", e.Have, e.Session)
}

// A StateError refuses what a session's state does not let happen.
type StateError struct {
	ID    string
	State State
}

func (e *StateError) Error() string {
	return fmt.Sprintf("session %s is %s", e.ID, strings.ReplaceAll(string(e.State), "_", " "))
}

// A LeaseHeldError says that somebody else holds the lease.
type LeaseHeldError struct {
	Lease Lease
}

func (e *LeaseHeldError) Error() string {
	return fmt.Sprintf("lease is held by %s until %s", e.Lease.Holder, e.Lease.ExpiresAt.Format("2006-01-02T15:04:05.000Z07:00"))
}

// A UseHolder is somebody for whom a session must stay.
type UseHolder struct {
	Kind string // lease, child
	ID   string // holder's name, child's session id
}

// An InUseError says who uses a session that was to be deleted.
type InUseError struct {
	ID      string
	Holders []UseHolder
}

func (e *InUseError) Error() string {
	const shown = 3
	var text strings.Builder
	for i, h := range e.Holders[:min(shown, len(e.Holders))] {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(h.Kind + " " + h.ID)
	}
	if more := len(e.Holders) - shown; more > 0 {
		fmt.Fprintf(&text, " and %d more", more)
	}
	return fmt.Sprintf("session %s is in use: %s", e.ID, &text)
}

// The limits there are.
const (
	LimitForkN = "max_fork_n"                           // children of one fork
	LimitBatch = "the children that fit into one batch" // the ledger's
	LimitLive  = "max_live"                             // live sessions of a repo; there is room again when others end
)

// A LimitError says which limit a request is over.
type LimitError struct {
	What      string // one of the limits above
	Max, Want int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%d is over %s, which is %d", e.Want, e.What, e.Max)
}

// A ChildrenFailedError says which children of a strict fork a runner reported failed
// in time. All of them are there: those in Good are as usable as any.
type ChildrenFailedError struct {
	Fork Fork // as it was made, with Failed
	Good []string
}

func (e *ChildrenFailedError) Error() string {
	return fmt.Sprintf("%d of %d children of fork %s failed", len(e.Fork.Failed), len(e.Fork.Children), e.Fork.Group.ID)
}

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
