package snapshot

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalid: what was asked for is malformed; the text says how.
	ErrInvalid = errors.New("invalid request")
	// ErrNotFound: no such snapshot, or the caller may not read its ref.
	ErrNotFound = errors.New("snapshot not found")
	// ErrUploadNotFound: no such upload of this session, or it has ended.
	ErrUploadNotFound = errors.New("upload not found")
	// ErrNoSession: the session there is none of, or it has ended.
	ErrNoSession = errors.New("session not found")
	// ErrNoObject: an object is not in the store.
	ErrNoObject = errors.New("object not found")
	// ErrDamaged is what every *DamagedError is: what is stored is not what it should be.
	ErrDamaged = errors.New("stored bytes are damaged")
	// ErrNotQuiet: processes started or ended while the state was captured.
	ErrNotQuiet = errors.New("the sandbox was not quiescent while it was captured")
	// ErrMissing: an upload was sealed and not everything had been sent.
	ErrMissing = errors.New("chunks are missing")
	// ErrMismatch: what was sent does not hash to what it was announced as.
	ErrMismatch = errors.New("content does not have the hash it was sent under")
	// ErrSealed: the image is sealed, and only who holds its key can read it.
	ErrSealed = errors.New("snapshot is sealed, key needed")
	// ErrSealNeeded: the session demands sealed saves, and this one is not, or to another key.
	ErrSealNeeded = errors.New("session demands sealed saves")
	// ErrBase: a base image is the operator's alone.
	ErrBase = errors.New("base images belong to the operator")
	// ErrByHand: a snapshot ref is moved by saving and deleting snapshots alone.
	ErrByHand = errors.New("snapshot refs are moved by saves alone")
	// ErrBusy: another save of the session is being made ready.
	ErrBusy = errors.New("another save of the session is ending")
	// ErrRange: no byte of the image is in the range.
	ErrRange = errors.New("range is outside of the image")
	// ErrNotCreator: neither the creator of the snapshot nor an admin asks.
	ErrNotCreator = errors.New("only the snapshot's creator or an admin may do this")
)

// A FieldError refuses a manifest or a request for one field.
type FieldError struct {
	Field string
	Text  string
	// Conflict says that the field does not fit what is stored; else this version
	// cannot take it.
	Conflict bool
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Text }

// A MovedError says that the snapshot ref is not where the save expected it.
type MovedError struct {
	Ref              string
	Expected, Actual OID
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("%s is at %s, expected %s", e.Ref, orAbsent(e.Actual), orAbsent(e.Expected))
}

func orAbsent(id OID) string {
	if id.IsZero() {
		return "nothing"
	}
	return id.String()
}

// An OverCapError says that a save is larger than a branch may have. The last valid
// state stays.
type OverCapError struct {
	Cap, Size int64 // bytes
}

func (e *OverCapError) Error() string {
	return fmt.Sprintf("snapshot of %d bytes is over the cap of %d", e.Size, e.Cap)
}

// A FullError says that the repo's quota of memory bytes, or of snapshots, is used up.
type FullError struct {
	What       string // the limit's name
	Slots      bool   // it is one on a number, not on bytes
	Quota, Use int64
}

func (e *FullError) Error() string {
	return fmt.Sprintf("%s is %d, %d would be used", e.What, e.Quota, e.Use)
}

// A DamagedError names what cannot be read as it was saved.
type DamagedError struct {
	Commit OID
	What   string // the chunk, list or object
	Err    error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("snapshot %s: %s: %v", e.Commit, e.What, e.Err)
}

func (e *DamagedError) Unwrap() []error { return []error{ErrDamaged, e.Err} }

// A StateError refuses what a snapshot's state does not let happen.
type StateError struct {
	Commit OID
	State  State
}

func (e *StateError) Error() string { return fmt.Sprintf("snapshot %s is %s", e.Commit, e.State) }

// An InUseError says who uses a snapshot that was to be deleted.
type InUseError struct {
	Commit  OID
	Holders []string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("snapshot %s is in use by %d", e.Commit, len(e.Holders))
}

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
