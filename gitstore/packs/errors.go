package packs

import (
	"errors"
	"fmt"

	"github.com/headgate/headgate/refpolicy"
)

// When a pack or an object is looked up.
var (
	// ErrPackMissing: there is no file of that name.
	ErrPackMissing = errors.New("pack is not there")
	// ErrPackBroken is what every *BrokenError is.
	ErrPackBroken = errors.New("pack is broken")
	// ErrNotFound: the pack holds no such object.
	ErrNotFound = errors.New("object is not in the pack")
	// ErrTooLarge is what every *TooLargeError is.
	ErrTooLarge = errors.New("object is too large to be held in memory")
	// ErrIndexBroken: a file of an index folder is not what it was written as, or is missing.
	ErrIndexBroken = errors.New("index over packs is broken")
	// ErrBadName: not pack-<40 hex digits>, or index-<40 hex digits> where that is wanted.
	ErrBadName = errors.New("not the name of a pack")
	// ErrClosed: the Dir is closed.
	ErrClosed = errors.New("pack folder is closed")
)

// When a pack is written.
var (
	// ErrBadType: not a commit, tree, blob or tag.
	ErrBadType = errors.New("not the type of an object")
	// ErrSizeMismatch: a stream was shorter or longer than its size said.
	ErrSizeMismatch = errors.New("stream does not have the size it was given with")
	// ErrEmptyPack: a pack without an object is never written.
	ErrEmptyPack = errors.New("pack has no objects")
	// ErrWriterDone: the Writer was finished or aborted, or an earlier call on it failed.
	ErrWriterDone = errors.New("pack writer is done")
)

// A BrokenError names the pack that cannot be read as it should.
type BrokenError struct {
	Name string
	Err  error
}

func (e *BrokenError) Error() string { return fmt.Sprintf("pack %s is broken: %v", e.Name, e.Err) }

// Unwrap gives ErrPackBroken and the cause.
func (e *BrokenError) Unwrap() []error { return []error{ErrPackBroken, e.Err} }

// A TooLargeError says how large an object is that was over a limit. Size is
// that of the object, or of the delta base it needs.
type TooLargeError struct {
	OID  refpolicy.OID
	Size int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("object %s is too large to be held in memory: %d bytes", e.OID, e.Size)
}

// Unwrap gives ErrTooLarge.
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }
