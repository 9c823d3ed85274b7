package gitstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// Errors about repos.
var (
	// ErrRepoNotFound: no live repo of that name in the org.
	ErrRepoNotFound = errors.New("repository not found")
	// ErrRepoExists: the name is in use.
	ErrRepoExists = errors.New("repository already exists")
	// ErrRepoDeleted: the name belongs to a repo whose removal has not finished.
	ErrRepoDeleted = errors.New("repository was deleted")
	// ErrBadRepoName: the name breaks the rules of ParseRepoName.
	ErrBadRepoName = errors.New("bad repository name")
)

// Errors about revisions, paths and objects. What a caller may not read is not found.
var (
	// ErrRefNotFound: no such ref, or not for this caller.
	ErrRefNotFound = errors.New("ref not found")
	// ErrObjectNotFound: no such object, or not for this caller.
	ErrObjectNotFound = errors.New("object not found")
	// ErrPathNotFound: the tree has nothing under that path.
	ErrPathNotFound = errors.New("path not found")
	// ErrNotAFile: the path is a directory or a submodule, so there are no bytes to serve.
	ErrNotAFile = errors.New("path is not a file")
	// ErrBadRevision: the text is not a revision headgate resolves (rest.md 4), or an ambiguous one.
	ErrBadRevision = errors.New("bad revision")
	// ErrBadPath: the path is empty or has parts no tree may hold.
	ErrBadPath = errors.New("bad path")
	// ErrBadCursor: the cursor was not made by this call.
	ErrBadCursor = errors.New("bad cursor")
	// ErrPinNotFound: no such pin, or not for this caller.
	ErrPinNotFound = errors.New("pin not found")
	// ErrEmptyRepo: the repo has no commit yet.
	ErrEmptyRepo = errors.New("repository is empty")
)

// Errors of changing refs. Nothing was changed.
var (
	// ErrRefExists: a ref that was to be created exists.
	ErrRefExists = errors.New("ref already exists")
	// ErrDefaultBranch: the default branch may not be deleted.
	ErrDefaultBranch = errors.New("deletion of the current branch prohibited")
	// ErrHiddenRef: the ref is not one that this road may change.
	ErrHiddenRef = errors.New("deny updating a hidden ref")
	// ErrNoChanges: the new tree equals the parent's.
	ErrNoChanges = errors.New("no changes to commit")
	// ErrAtomic: another ref of an atomic change was refused.
	ErrAtomic = errors.New("atomic transaction failed")
	// ErrUnreachable: new objects refer to something that is neither new nor
	// reachable from a ref the caller may read.
	ErrUnreachable = errors.New("missing necessary objects")
	// ErrProofTimeout: reach could not be proved in the time allowed. Try again.
	ErrProofTimeout = errors.New("reach proof timed out")
	// ErrNotFastForward: the update would drop commits and was not asked to.
	ErrNotFastForward = errors.New("not a fast-forward")
)

// Errors of what a client sent.
var (
	// ErrInvalid: the request is malformed; the text says how.
	ErrInvalid = errors.New("invalid request")
	// ErrTooLarge: the request is over a limit; the text names it.
	ErrTooLarge = errors.New("too large")
	// ErrBadObject: an object or pack breaks git's format.
	ErrBadObject = errors.New("bad object")
)

// ErrClosed: the store is shutting down.
var ErrClosed = errors.New("store closed")

// A RefMovedError says that a ref is not at the value the caller expected.
type RefMovedError struct {
	Ref      refpolicy.RefName
	Expected refpolicy.OID
	Present  refpolicy.OID // zero: the ref does not exist
	Writer   string        // subject of the token that wrote the present value
	At       time.Time     // when it was written
}

func (e *RefMovedError) Error() string {
	return fmt.Sprintf("ref %s moved: expected %s, it is at %s", e.Ref, e.Expected, e.Present)
}

// A NameClashError says that a ref cannot be created because one name is the
// folder of the other, as refs/heads/a and refs/heads/a/b.
type NameClashError struct {
	Ref      refpolicy.RefName
	Existing refpolicy.RefName // "" if the caller may not know it
}

func (e *NameClashError) Error() string {
	if e.Existing == "" {
		return fmt.Sprintf("cannot lock ref %s: the name is taken; cannot create", e.Ref)
	}
	return fmt.Sprintf("cannot lock ref %s: %s exists; cannot create", e.Ref, e.Existing)
}

// A ForeignLedgerError says that a data folder and a ledger do not belong together.
// Nothing was done in either.
type ForeignLedgerError struct {
	Dir    string // the data folder
	Folder string // its store's id, "" if it has none
	Ledger string // the id of the store that the ledger is of, "" if it is of none
	Repo   string // where the folder has no id: a repo that one of them has and the other does not
	Empty  bool   // the folder is the one that does not have it
}

func (e *ForeignLedgerError) Error() string {
	folder, with := "is of store "+e.Folder, "is of store "+e.Ledger
	if e.Ledger == "" {
		with = "is of no store yet"
	}
	switch {
	case e.Folder != "":
	case e.Empty:
		folder, with = "has no repos", with+" and has "+e.Repo
	default:
		folder, with = "has "+e.Repo, with+" and does not know it"
	}
	return fmt.Sprintf("data folder %s %s, but this ledger %s: they do not belong together", e.Dir, folder, with)
}

// A RepoError says which repo could not be looked at or after.
type RepoError struct {
	ID        string
	Org, Name string // "" if its record cannot be read either
	Err       error
}

func (e *RepoError) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("repo %s: %v", e.ID, e.Err)
	}
	return fmt.Sprintf("repo %s/%s (%s): %v", e.Org, e.Name, e.ID, e.Err)
}

// Unwrap gives the reason.
func (e *RepoError) Unwrap() error { return e.Err }

// A BackupError says what of a backup cannot be used. File is below the folder of backups.
type BackupError struct {
	File string
	Err  error
}

func (e *BackupError) Error() string { return fmt.Sprintf("backup: %s: %v", e.File, e.Err) }

// Unwrap gives the reason.
func (e *BackupError) Unwrap() error { return e.Err }

// invalidf is ErrInvalid with a reason.
func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
