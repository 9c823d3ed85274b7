package snapshot

import (
	"encoding/json"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// RefPrefix stands before a session's id in its snapshot ref, BasePrefix before a
// base's name in the operator's.
const (
	RefPrefix  = "refs/namespaces/state/refs/snapshots/"
	BasePrefix = "refs/namespaces/state/refs/bases/"
)

// PinPrefix begins the holder of every pin that keeps a snapshot.
const PinPrefix = "snapshot:"

// A State is where a snapshot is in its life.
type State string

// The states there are.
const (
	Capturing State = "capturing" // an upload or a save that has not ended; it has no commit
	Ready     State = "ready"
	Failed    State = "failed" // it was never made, or cannot be restored any more: see Reason
	Deleting  State = "deleting"
	Deleted   State = "deleted" // the record stays for a while
)

// A Snapshot is a snapshot as it is told.
type Snapshot struct {
	Commit     OID    // zero while it is captured, and if that failed
	Upload     string // id of the upload or save it comes from
	Repo       RepoID
	Session    string
	Workspace  OID
	Name, Kind string // Kind: of its first part
	State      State
	Reason     string // why it failed

	Size, Stored, New, Zero int64 // bytes; New: what this save added to what was stored
	ChunkBytes              int
	Root                    Hash
	VerifiedAt              time.Time
	Usable                  bool
	Sealed                  bool
	Excluded                []Excluded
	Boundary                string
	Machine                 map[string]string
	Parent                  OID      // the snapshot it was saved after, or that its session was made from
	Children                []string // live sessions made from it
	CreatedAt               time.Time
	CreatedBy               Actor
	UsedAt                  time.Time     // when it was saved, or a session was made from it last
	IdleTimeout             time.Duration // 0: none
	TTLUnused               time.Duration // 0: for ever
	EndsAt                  time.Time     // when it is deleted if nothing happens until then; zero: never
	Base                    string        // its name among the bases; empty: a saved state
	Skipped                 bool          // answer to a save: nothing had changed, this is the snapshot before
}

// A SaveSpec says what is to be saved.
type SaveSpec struct {
	Session      string
	Format       int // of what the client sends; 0: this one
	Requires     []string
	Name         string
	Parts        []PartSpec // one, for a save of one stream
	ExpectedHead *OID       // the snapshot ref must be there (zero: absent); nil: wherever it is
	Workspace    OID        // commit it belongs to; zero: the session's head
	// MoveWorkspace moves the session's branch from its head to Workspace in the same batch.
	MoveWorkspace bool
	Base          OID // snapshot whose chunks are re-used; zero: the session's last, or what it was made from
	Machine       map[string]string
	Boundary      string
	Excluded      []Excluded
	Quiet         *Quiet
	Envelope      json.RawMessage `json:",omitempty"` // of a sealed save
	IdleTimeout   *time.Duration
	TTLUnused     time.Duration
	KeepLast      *int // how many snapshots of the session stay from now on; 0: all; nil: as before
	DryRun        bool
	Extra         map[string]json.RawMessage // unknown optional fields, kept in the manifest

	imported bool // what is saved comes with a manifest of its own
	Once     *ledger.Once[Snapshot]
}

// A PartSpec is a part as a client announces it.
type PartSpec struct {
	Name       string // empty: the kind
	Kind       string // empty: memory
	Layout     Layout // empty: what goes with the kind
	ChunkBytes int    // 0: the default
	Size       int64  // -1: not known yet
	Regions    []Region
}

// An Upload is a resumable save under way.
type Upload struct {
	ID        string
	Session   string
	Parts     []PartSpec
	Base      OID // whose chunks need not be sent
	Staged    int64
	CreatedAt time.Time
	ExpiresAt time.Time // when it is let go of, unless something is sent until then
}

// A SealSpec says that all of an upload has been sent.
type SealSpec struct {
	Roots    map[string]Hash  // by part; what the parts' images hash to
	Sizes    map[string]int64 // of parts whose size was not known
	Quiet    *Quiet
	Excluded []Excluded
	Envelope json.RawMessage // in the place of the one it was begun with; nil: that one
	Once     *ledger.Once[Snapshot]
}

// A Deletion tells what deleting a snapshot frees, or would free.
type Deletion struct {
	Snapshot Snapshot
	Freed    int64
}

// Standing is how a session stands with its saves.
type Standing struct {
	Last       OID  // its last ready snapshot
	Usable     bool // there is none, or it can be restored
	Stale      bool // the last save was over the cap: an older state is what would be restored
	Cap, Bytes int64
	At         time.Time
}
