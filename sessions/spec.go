package sessions

import (
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// CreateSpec asks for a session.
type CreateSpec struct {
	ID            string // empty: one is made
	Branch        string // short ephemeral name; empty: sessions/<id>
	BaseRef       string // branch, tag or full id; empty: HEAD of the repo, or the state of FromSession
	BaseEphemeral bool
	FromSession   string // another session's present state; it becomes the parent
	FromSnapshot  *SnapshotState
	Labels        map[string]string
	Holder        string // empty: the session begins without a lease
	LeaseTTL      time.Duration
	TTL           time.Duration // 0: its time is never up
	IdleTimeout   *time.Duration
	TTLUnused     time.Duration
	CaptureKey    string
	Once          *ledger.Once[Session]
}

// A SnapshotState is a snapshot that sessions are made from: they begin at the commit of
// the workspace that it belongs to, and its session becomes their parent.
type SnapshotState struct {
	SHA       string
	Workspace string // full id
	Session   string // whose snapshot it is; it may have ended
	// Ready must hold, in the repo's space, when the batch is applied: the snapshot is
	// not being deleted.
	Ready ledger.Check
}

// A Filter narrows a list; empty fields let everything through.
type Filter struct {
	State    State
	LabelKey string // with LabelValue
	LabelVal string
	Holder   string
	ParentID string
}

// A Page is one page of a list, newest first.
type Page struct {
	Sessions []Session
	Next     string // cursor of the next page; empty on the last
}

// A Patch changes what is not nil.
type Patch struct {
	Labels      map[string]*string // nil value: the label goes
	TTL         *time.Duration     // from now; 0: never up
	IdleTimeout *time.Duration
	TTLUnused   *time.Duration
	Once        *ledger.Once[Session]
}

// EndSpec asks for a session's end.
type EndSpec struct {
	DryRun bool
	Holder string // whose lease does not count as use
	Admin  bool   // the caller may end what others created
	Once   *ledger.Once[Ending]
}

// An Ending is what the end of a session frees, or would free.
type Ending struct {
	Session    Session
	BytesFreed int64
}

// LeaseAction is what to do with a lease.
type LeaseAction string

// The actions there are.
const (
	Acquire  LeaseAction = "acquire"  // a lease nobody holds; the epoch grows
	Renew    LeaseAction = "renew"    // one's own that is live; the epoch stays
	Release  LeaseAction = "release"  // one's own that is live
	Takeover LeaseAction = "takeover" // whoever holds it; the epoch grows
)

// LeaseSpec asks for a change of a lease.
type LeaseSpec struct {
	Action LeaseAction
	Holder string
	TTL    time.Duration // 0: the default
	Wait   time.Duration // how long an acquire waits for the lease to become free
	Epoch  *uint64       // of the caller's token or body; renew and release demand that it is the session's
	Once   *ledger.Once[Lease]
}

// TokenSpec asks for a token.
type TokenSpec struct {
	TTL     time.Duration // 0: the default; longer than the maximum is cut to it
	Scopes  []string      // empty: git:read and git:write
	Read    []string
	Within  [][]Rule
	Subject string
	Once    *ledger.Once[Token]
}

// ForkSpec asks for children of a session's present state.
type ForkSpec struct {
	N         int
	KeepState bool
	Labels    map[string]string
	Token     *TokenSpec // nil: children without tokens
	TTL       time.Duration
	Idle      *time.Duration
	TTLUnused time.Duration
	StateIdle *time.Duration // how long a kept state stays with no child made of it; nil: the default, 0: for ever
	Wait      time.Duration  // how long to wait for what runners report of the children
	Strict    bool           // a child that failed by then makes the fork a *ChildrenFailedError
	// FromSnapshot is a snapshot of the session that the children are made from, not its
	// present state; nil: that.
	FromSnapshot *SnapshotState
	Once         *ledger.Once[Fork]
}

// A Fork is a group with its children: as it was made, or as it is now.
type Fork struct {
	Group    Group
	Children []Session
	Tokens   []Token        // by place of the child; empty when none were asked for
	Failed   []ChildFailure // children that a runner reported failed, in order of the children
}

// A ChildFailure is what a runner reported of a child that did not come up.
type ChildFailure struct {
	ID     string // of the child's session
	Reason string // in the runner's own words
}

// A Closing tells what closing a group did.
type Closing struct {
	Ended     int // children that were ended now
	Gone      int // those that had ended before
	StateGone bool
}
