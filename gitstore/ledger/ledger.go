package ledger

import (
	"context"
	"time"
)

// Limits of one batch. Bulk work stays far below: at most BulkKeys keys.
const (
	MaxBatchBytes = 8 << 20 // keys, values and the log entry together
	MaxBatchKeys  = 20_000  // checks, sets, adds and deletes together
	BulkKeys      = 1_000   // what bulk work (settling, sweeping) puts into one batch
	MaxKeyBytes   = 4 << 10
	MaxSpaceBytes = 4 << 10
	BatchIDMemory = 10 * time.Minute // how long a batch id answers instead of repeating
)

// A Space names one independent set of keys with its own log: ServerSpace,
// OrgSpace(org) or RepoSpace(id).
type Space string

// ServerSpace holds what belongs to no org.
const ServerSpace Space = "server"

// OrgSpace is the space of one org: its repo index and quotas.
func OrgSpace(org string) Space { return Space("org/" + org) }

// RepoSpace is the space of one repo: refs, log, packs, recent objects, records.
func RepoSpace(id string) Space { return Space("repo/" + id) }

// A Batch is one atomic, conditional, durable change of one space.
type Batch struct {
	// ID makes the batch repeatable: a batch whose non-empty ID was applied to
	// this space within BatchIDMemory is answered with the first Result and not
	// applied again; at most MaxKeyBytes. An engine that re-sends by itself makes an ID where none is given.
	ID    string
	Space Space

	// Checks must all hold, in the state before the batch (AtMost: after Adds; its
	// key may be in no Deletes or Sets). The first that does not hold is told.
	Checks []Check
	// Deletes are done first, then Sets, then Adds; a key named in two of them
	// is an ErrInvalidBatch.
	Deletes []string
	Sets    []Set
	Adds    []Add

	// Log is appended to the space's log if it is not nil.
	Log []byte
}

// A Set writes Value under Key.
type Set struct {
	Key   string
	Value []byte
}

// An Add adds Delta to the decimal integer stored under Key; absent counts as 0.
// Counters are stored as decimal text, so Get shows them and Equal can check them.
// A value that is no such text, or a sum beyond 64 bits, makes the batch an ErrInvalidBatch.
type Add struct {
	Key   string
	Delta int64
}

// Result tells what an applied batch was given.
type Result struct {
	Seq uint64    // number of its log entry; without a Log the space's last number
	At  time.Time // the ledger's clock at the atomic step, UTC, whole microseconds
}

// Item is one key with its value.
type Item struct {
	Key   string
	Value []byte
}

// Entry is one entry of a space's log. Numbers begin at 1 and have no gaps, with one
// exception: where a space goes on whose engine has lost acknowledged writes, they go
// on far above all that were told (package redisdb).
type Entry struct {
	Seq  uint64
	At   time.Time
	Data []byte
}

// Ledger is what both engines implement. It is safe for concurrent use.
//
// Errors besides the context's own: ErrClosed, ErrUnavailable (try again later),
// ErrNoSpace (the disk or memory is full; reads go on), ErrTooLarge and
// ErrInvalidBatch (the batch breaks a limit or is malformed; nothing was done).
type Ledger interface {
	// Apply applies b and returns when it is durable. A check that does not hold
	// is a *CheckError and nothing is written. After ErrUnavailable or a context
	// error the batch may or may not have been applied; sending it again with the
	// same ID tells.
	Apply(ctx context.Context, b Batch) (Result, error)

	// Read opens a view of what is durable and published now. It waits once for
	// what was applied but is not yet durable; the view's methods never do.
	Read(ctx context.Context, s Space) (View, error)

	// Peek opens a view that does not wait: it may show a batch that is still
	// being synced. It is for reading objects by oid (an oid is first told by a
	// durable batch) and for preparing a batch, which follows in the same log.
	// Nothing read from it may be told to anybody by another road.
	Peek(ctx context.Context, s Space) (View, error)

	// ReadKeys is GetMany of a view that Read would open, without opening one: the
	// cheapest way to a few keys.
	ReadKeys(ctx context.Context, s Space, keys ...string) ([][]byte, error)

	// PeekKeys is GetMany of a view that Peek would open, as ReadKeys is of Read's.
	PeekKeys(ctx context.Context, s Space, keys ...string) ([][]byte, error)

	// Watch returns a channel that gets a value after the space's published log
	// has grown; wake-ups are merged, and the log itself is then read through a
	// view. A spurious wake-up is allowed, a lost one is not. The channel is closed
	// when ctx ends or the ledger is closed.
	Watch(ctx context.Context, s Space) (<-chan struct{}, error)

	// Drop forgets a space with all its keys and its log. It is durable when it
	// returns and repeatable; the caller makes sure that nobody writes any more.
	Drop(ctx context.Context, s Space) error

	// TrimLog drops log entries of s numbered below before. Numbers go on.
	TrimLog(ctx context.Context, s Space, before uint64) error

	// Now is the ledger's clock, which stamps log entries and answers Before. It
	// never runs backwards.
	Now(ctx context.Context) (time.Time, error)

	// Close ends the ledger; calls in flight and later ones get ErrClosed.
	Close() error
}

// View reads one space. Pebble's is a snapshot of one moment. Redis's is read
// afresh by each call, each call atomic in itself; whoever needs two calls to
// agree puts what was read into a batch's checks. Close it; it is not safe for
// concurrent use. Returned slices belong to the caller.
type View interface {
	// Get returns the value of key, or ErrNotFound.
	Get(ctx context.Context, key string) ([]byte, error)

	// GetMany returns the values of keys in their order, nil for an absent key (an
	// empty value is empty and not nil), all from one moment.
	GetMany(ctx context.Context, keys ...string) ([][]byte, error)

	// Scan returns up to limit items whose key begins with prefix and is at or
	// after start, in byte order, all from one moment. limit <= 0 is an error.
	Scan(ctx context.Context, prefix, start string, limit int) ([]Item, error)

	// Range returns up to limit items whose keys are at or after from and before to,
	// in byte order, all from one moment; none if to is not after from. limit <= 0 is
	// an error.
	Range(ctx context.Context, from, to string, limit int) ([]Item, error)

	// Log returns up to limit entries numbered above after, oldest first. It is
	// ErrLogTrimmed when entry after+1 was there once and has been dropped. limit
	// <= 0 is an error.
	Log(ctx context.Context, after uint64, limit int) ([]Entry, error)

	// LastSeq is the number of the newest log entry, 0 for none.
	LastSeq(ctx context.Context) (uint64, error)

	Close() error
}
