package snapshot

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// RepoID is the repo whose snapshots are meant.
type RepoID struct {
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

// A Repo is one repo as one caller may see and move it.
type Repo interface {
	ID() RepoID
	Actor() Actor

	// Object reads a commit, a tree, a manifest or a list whole: at most 64 MiB.
	// ErrNoObject: it is not there. ErrDamaged: it is not what its id says.
	Object(ctx context.Context, id OID) (typ string, data []byte, err error)
	// Chunk appends a chunk's blob to buf, as it stands on disk now, held to the checksum
	// it was stored with: whoever hashes it knows what a restore would read. Errors as of
	// Object.
	Chunk(ctx context.Context, id OID, buf []byte) ([]byte, error)

	// NewPack begins a pack that nobody knows of.
	NewPack(ctx context.Context) (Pack, error)
	// OpenStage opens what was staged for an upload, by this process or one before, and
	// makes it if there is nothing yet. The same Stage is given to all who ask in this
	// process. RemoveStage takes it away; one that is not there is no error.
	OpenStage(ctx context.Context, upload string) (Stage, error)
	RemoveStage(ctx context.Context, upload string) error
	// Stages are the uploads of which there is a stage on disk, whoever made it.
	Stages(ctx context.Context) (uploads []string, err error)

	// Head tells where a ref is; the zero Head if it is not there. It is not asked
	// whether the caller may read it.
	Head(ctx context.Context, ref string) (Head, error)
	// MayWrite is nil if the caller may create and fast-forward ref; CanRead reports
	// whether it exists for the caller.
	MayWrite(ref string) error
	CanRead(ref string) bool
	// Readable is nil if the caller may read a commit; else the error for one that does not exist.
	Readable(ctx context.Context, commit OID) error
	// Move changes refs in one batch with what the Keeper's Guard makes of Intent. A
	// pack of the move is registered in that batch, and removed if it is refused.
	Move(ctx context.Context, m Move) error
	// Unpin lets go of a pin, and one that is gone is no error. Pinned reports whether a
	// live pin that is none of a snapshot's own names the commit.
	Unpin(ctx context.Context, id string) error
	Pinned(ctx context.Context, commit OID) (bool, error)

	// WriteBundle writes a git bundle of a snapshot and all it leads to; ReadBundle takes
	// one into a pack that nobody knows of, checked as a push is, and gives its only tip.
	WriteBundle(ctx context.Context, w io.Writer, tip OID, ref string) error
	ReadBundle(ctx context.Context, r io.Reader) (tip OID, pack Pack, err error)
}

// A Head is where a ref is.
type Head struct {
	Commit OID
	At     time.Time
}

// A Move is what goes through the door of a Repo: all of it or nothing.
type Move struct {
	Changes []Change
	Pack    Pack // finished; may be nil
	Pins    []NewPin
	// Leans are snapshots whose chunks the pack's trees name without holding them: they
	// must be kept by a ref or a pin when the batch is applied.
	Leans  []OID
	Intent any
}

// A Change asks for ref to go from Old to New; the zero OID stands for absent. Force
// lets New be no descendant of Old: a snapshot ref has no line to keep.
type Change struct {
	Ref      string
	Old, New OID
	Force    bool
}

// A NewPin is a pin that a Move makes of what a change leads to.
type NewPin struct {
	ID, Holder string
	Commit     OID
}

// A Pack takes new objects. It is for one goroutine at a time; once it is finished, Chunk
// and Has are for any number. End it by Abort, which does nothing once the pack was
// registered.
type Pack interface {
	// AddChunk adds a blob as it is, without deflating it; AddObject adds a commit, tree
	// or small blob. What was added before is not written again.
	AddChunk(content []byte) (OID, error)
	AddObject(typ string, data []byte) (OID, error)
	// Chunk appends what was added before to buf, read back from the file.
	Chunk(id OID, buf []byte) ([]byte, error)
	Has(id OID) bool
	Bytes() int64
	// Finish makes the pack durable and reads all of it again from the file: a byte that is
	// not as it was when its object's id was made is ErrDamaged.
	Finish(ctx context.Context) error
	Abort()
}

// A Stage is what was staged for an upload. It is safe for concurrent use, outlives the
// process, and promises nothing: a chunk that did not reach the disk whole is not there
// afterwards.
type Stage interface {
	// Add stages a chunk's blob under the hash of its content. One that is there is not
	// written again.
	Add(c Chunk, blob []byte) (OID, error)
	// Has tells which of chunks are staged, by place; the zero OID for those that are not.
	Has(chunks []Chunk) []OID
	// Sizes tells how many bytes the blobs of chunks have, by place; 0 for those that are not staged.
	Sizes(chunks []Chunk) []int
	// Note keeps small data beside the chunks, the newest for each name; Notes gives all.
	Note(name string, data []byte) error
	Notes(ctx context.Context, each func(name string, data []byte) error) error
	Bytes() int64
	// Pack turns what is staged into a pack that nobody knows of, with all chunks in it:
	// more objects can be added before it is finished. The stage stays usable for reading
	// until RemoveStage; when the pack is aborted, it is as it was before.
	Pack(ctx context.Context) (Pack, error)
}

// Users are those who use a snapshot: live sessions that were made from it.
type Users interface {
	// UsesOf tells how snapshots are used, in their order.
	UsesOf(ctx context.Context, repo RepoID, commits ...string) ([]Use, error)
	// Session tells of the session a snapshot is saved for or was saved for, as the
	// repo's caller stands to it; ok is false if there is none of that id.
	Session(ctx context.Context, repo Repo, id string) (s Owner, ok bool, err error)
	// SetUsable tells a session that its last state can be restored, or cannot, and why: one that
	// cannot makes it view-only. A session that is no more is no error.
	SetUsable(ctx context.Context, repo RepoID, session string, usable bool, why string) error
}

// A Use is how a snapshot is used.
type Use struct {
	Sessions []string  // live ones that were made from it
	Started  time.Time // when one was made from it last; zero: never
	Freed    time.Time // when one that was made from it ended last
	// Nobody fails in the repo's space when another session has been made since.
	Nobody []ledger.Check
	// Keys are what is kept of this in the repo's space: of no use when the snapshot is gone.
	Keys []string
}

// An Owner is the session of a snapshot.
type Owner struct {
	ID, Ref    string // Ref: of its workspace
	Head       OID
	Live       bool // it has not ended
	EndedAt    time.Time
	Labels     map[string]string
	CaptureKey string // PEM; a sealed save must be wrapped to it
	From       OID    // the snapshot it was made from; zero: none
	Mine       bool   // the caller created it
	// Fenced is why the caller's token is none of this session's, or an old one; nil: it
	// may be, or is bound to no session. Closed is why nothing is saved in its state.
	Fenced, Closed error
}

// GuardRequest and GuardAnswer are those of the store's one door, in plain words.
type GuardRequest struct {
	Repo    RepoID
	Changes []Change
	Actor   Actor
	Now     time.Time
	Intent  any
}

// A GuardAnswer is what must hold and is written with the changes.
type GuardAnswer struct {
	ledger.Rider
	Type    string // of the log entry; empty: nothing to say
	Session string
	Data    json.RawMessage
}
