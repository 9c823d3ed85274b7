package sessions

import "time"

// A State is where a session is in its life.
type State string

// The states there are.
const (
	Active   State = "active"
	Stopping State = "stopping"
	Stopped  State = "stopped"
	Paused   State = "paused"
	Leaving  State = "leaving"
	ViewOnly State = "view_only"
	Ended    State = "ended"
)

// A Cause is why a session ended.
type Cause string

// The causes there are.
const (
	Deleted Cause = "deleted" // its branch was deleted, by whatever road
	Expired Cause = "expired" // it was idle for too long, or its time was up
	Closed  Cause = "closed"  // its group was closed, or another child was picked
)

// Repo is the repo whose sessions are meant.
type Repo struct {
	ID, Org, Name string
}

// An Actor is who does something, as the log has it.
type Actor struct {
	Org     string  `json:"org"`
	Subject string  `json:"sub,omitempty"`
	KeyID   string  `json:"kid,omitempty"`
	TokenID string  `json:"jti,omitempty"`
	Session string  `json:"sid,omitempty"`
	Epoch   *uint64 `json:"epoch,omitempty"`
}

// A Session is a session as it is told: the record, with the head of its branch.
type Session struct {
	ID     string
	Repo   Repo
	Branch string // short name of the ephemeral branch
	Ref    string // full name

	BaseSHA string // where the branch began
	HeadSHA string // where it is; of an ended session: where it was last
	Epoch   uint64
	State   State

	Holder   string // of the lease; empty when nobody holds one that is live
	Lease    *Lease // nil when there is no live one
	Labels   map[string]string
	ParentID string // session whose state it was made from
	// FromSnapshot is the snapshot it was made from, a full id; empty: it was made of none.
	FromSnapshot string
	GroupID      string // fork it came from

	CreatedAt time.Time
	CreatedBy Actor
	UsedAt    time.Time // last write, lease action, token or child

	ExpiresAt   time.Time     // when its time is up; zero: never
	IdleTimeout time.Duration // 0: none
	TTLUnused   time.Duration // how long it stays once nothing uses it; 0: for ever
	EndsAt      time.Time     // when it ends if nothing happens until then; zero: never

	EndedAt    time.Time
	EndCause   Cause
	CaptureKey string // the customer's public key for sealed saves, PEM; kept as given
}

// A Lease is the right to write, until it expires.
type Lease struct {
	Holder    string
	Epoch     uint64
	ExpiresAt time.Time
}

// A Rule is one rule of a token's refs claim: a pattern and its ops.
type Rule struct {
	Pattern string   `json:"pattern"`
	Ops     []string `json:"ops"`
}

// A Token is the record of an issued token. The token itself is signed of it, and
// signed of the same record it is the same token.
type Token struct {
	ID        string // jti: <family>, or <family>.<more> of a renewed one
	SessionID string
	Ref       string // the one it may write
	Epoch     uint64
	Subject   string
	Scopes    []string // of git:read, git:write
	Read      []string // patterns it may read besides its own history
	Within    [][]Rule // policies it must also keep: of whoever asked for it
	IssuedAt  time.Time
	ExpiresAt time.Time
	IssuedBy  Actor
	RevokedAt time.Time // zero: it is not
}

// A Group is what one fork made.
type Group struct {
	ID        string
	ParentID  string
	StateSHA  string // the parent's head that the children came from
	KeepState bool   // the state stays when the last child has closed
	PinID     string // what keeps the state; empty once it is let go
	CreatedAt time.Time
	CreatedBy Actor
	Winner    string   // session that was picked; empty: none yet
	Children  []string // session ids, in order
	ClosedAt  time.Time
}
