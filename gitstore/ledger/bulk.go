package ledger

import (
	"context"
	"time"
)

// Limits of one chunk of a dump: about ChunkBytes of keys, values and log data (one
// large value may go beyond), and at most ChunkCount of them.
const (
	ChunkBytes = 4 << 20
	ChunkCount = 1_000
)

// A Bulk also reads and writes spaces whole, for backups and for moving from one
// engine to the other. Both engines are one. The ids of batches (Batch.ID) are no
// part of a space: a batch that is sent again to what was loaded is a new one.
type Bulk interface {
	Ledger

	// Spaces calls fn with every space that was written to and not dropped, each
	// once, in no order. Those that come or go meanwhile may be left out. An error
	// of fn ends it and is returned.
	Spaces(ctx context.Context, fn func(Space) error) error

	// Dump opens a dump of one moment of a space, however long reading it takes and
	// whatever is written meanwhile. It shows what is durable and published, as Read
	// does. Errors: ErrNotFound when there is no such space.
	Dump(ctx context.Context, s Space) (Dump, error)

	// Load writes a chunk of a space that does not exist yet; the last chunk has a
	// State, and with it the space exists. Chunks come in the order of a dump, and
	// nobody else uses the space. It is for a ledger that was opened to be loaded.
	// A chunk is durable when Load returns; a space that exists is ErrNotEmpty.
	Load(ctx context.Context, s Space, c Chunk) error

	// FinishLoad ends the loading: before it nobody else can open the ledger.
	FinishLoad(ctx context.Context) error
}

// A Dump reads one space as it was when the dump was opened. Close it; it is not safe
// for concurrent use. An error that is ErrUnavailable may mean that the moment is
// lost (the engine was opened anew, a Redis was not asked for too long): whoever
// reads begins again with a new dump.
type Dump interface {
	// State is that of the space.
	State() State

	// Items gives the next items at or after start, in byte order, and where to go
	// on: an empty next is the end. There may be none although it is not the end.
	Items(ctx context.Context, start string) (items []Item, next string, err error)

	// Log gives the next entries numbered above after; none is the end.
	Log(ctx context.Context, after uint64) ([]Entry, error)

	Close() error
}

// A State is what a space has besides its keys and its log.
type State struct {
	LastSeq uint64    // number of the newest log entry, 0 for none
	Trimmed uint64    // number of the newest entry that was dropped: those above it, up to LastSeq, are kept
	At      time.Time // of the newest batch
}

// A Chunk is a part of a space: items in byte order, then entries without gaps, and
// at the end the State.
type Chunk struct {
	Items []Item
	Log   []Entry
	State *State // nil: there is more to come
}
