package ledger

import "errors"

// Errors of reading.
var (
	// ErrNotFound: the key does not exist.
	ErrNotFound = errors.New("key not found")
	// ErrLogTrimmed: the asked log entries have been dropped; begin anew from the present state.
	ErrLogTrimmed = errors.New("log entries no longer kept")
)

// Errors of applying. Nothing was written unless the text says otherwise.
var (
	// ErrInvalidBatch: the batch is malformed (unknown check, key named twice, bad space, empty or long key).
	ErrInvalidBatch = errors.New("invalid batch")
	// ErrTooLarge: the batch has more bytes or keys than a batch may.
	ErrTooLarge = errors.New("batch too large")
	// ErrNoSpace: the disk or memory under the ledger is full. Try again when there is space; reads go on.
	ErrNoSpace = errors.New("no space left for the ledger")
)

// Errors of the engine as a whole.
var (
	// ErrUnavailable: the engine cannot answer now. A batch may or may not have been applied; the same ID may be sent again.
	ErrUnavailable = errors.New("ledger unavailable")
	// ErrClosed: the ledger has been closed.
	ErrClosed = errors.New("ledger closed")
)

// Errors of reading and writing spaces whole.
var (
	// ErrBadDump: a dump of a space is damaged, cut, or not a dump.
	ErrBadDump = errors.New("bad dump of a space")
	// ErrNotEmpty: the ledger, or the space, that is to be loaded holds something.
	ErrNotEmpty = errors.New("ledger is not empty")
	// ErrUnfinished: the ledger was being loaded, and that was never finished. It is of
	// no use: empty it and load it again.
	ErrUnfinished = errors.New("ledger holds the beginning of a copy that was not finished")
)
