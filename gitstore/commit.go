package gitstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// CommitSpec is what a commit over the API is made of, besides its files' bytes.
type CommitSpec struct {
	Target    refpolicy.RefName // a branch or an ephemeral branch
	Base      refpolicy.RefName // where a new target starts; "" for none
	Expected  string            // guard as sent: 40 hex, or a revision; "" for none
	Message   string            // not empty; stored with one LF at its end
	Author    Signature         // a zero When is the ledger's time
	Committer Signature         // zero: the author
	Files     []FileChange      // applied in order
	Once      *ledger.Once[CommitResult]
}

// FileChange is one path's change. Path has no leading slash.
type FileChange struct {
	Path      string
	Delete    bool
	Mode      Mode   // 0 on an upsert keeps the mode of an existing executable, else ModeFile
	ContentID string // names the bytes of an upsert in the stream
}

// CommitResult tells what a commit became.
type CommitResult struct {
	Commit, Tree refpolicy.OID
	Old          refpolicy.OID // the target's value before; zero for a new one
	PackBytes    int64         // bytes written for this commit, before compression those of its trees
	BlobCount    int           // blobs written
}

// CommitWriter takes the bytes of a commit's files with bounded memory: small ones
// stay in memory, others are spooled to disk. It is not safe for concurrent use.
type CommitWriter struct {
	r        *Repo
	c        Caller
	spec     CommitSpec
	expected refpolicy.OID
	guarded  bool // expected was given and is to be compared
	spool    *spool
}

// NewCommit begins a commit whose bytes arrive in chunks. It checks the spec at
// once (ErrInvalid, ErrBadPath, ErrTooLarge, *refpolicy.DeniedError for a target
// the caller may not push), so that a stream need not be read in vain. Nothing is
// visible before Commit. Abort must be called in the end; after Commit it does nothing.
func (r *Repo) NewCommit(ctx context.Context, c Caller, s CommitSpec) (*CommitWriter, error) {
	w := &CommitWriter{r: r, c: c, spec: s, spool: newSpool(r.store.scratch.path, r.store.limits.HotPackBytes)}
	if err := w.begin(ctx); err != nil {
		return nil, r.orRepeated(ctx, s.Once.StoreKey(), err)
	}
	return w, nil
}

func (w *CommitWriter) begin(ctx context.Context) error {
	if err := w.checkSpec(); err != nil {
		return err
	}
	if err := w.c.Policy.Check(w.spec.Target, refpolicy.FastForward); err != nil {
		return err
	}
	return w.resolveGuard(ctx)
}

func (w *CommitWriter) checkSpec() error {
	s := &w.spec
	switch {
	case strings.TrimSpace(s.Message) == "":
		return invalidf("commit message is empty")
	case strings.ContainsRune(s.Message, 0):
		return invalidf("commit message holds a NUL")
	case len(s.Files) > w.r.store.limits.CommitFiles:
		return fmt.Errorf("%w: %d files, at most %d", ErrTooLarge, len(s.Files), w.r.store.limits.CommitFiles)
	}
	if s.Committer.Name == "" && s.Committer.Email == "" {
		s.Committer = s.Author
	}
	for _, sig := range []Signature{s.Author, s.Committer} {
		if cleanIdentity(sig.Name) == "" || cleanIdentity(sig.Email) == "" {
			return invalidf("author and committer need a name and an email")
		}
	}
	for i := range s.Files {
		if err := w.checkFile(&s.Files[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *CommitWriter) checkFile(f *FileChange) error {
	if err := checkPath(f.Path); err != nil {
		return err
	}
	if f.Delete {
		return nil
	}
	switch f.Mode {
	case 0, ModeFile, ModeExecutable, ModeSymlink, ModeSubmodule:
	default:
		return invalidf("%s: mode %o is not 100644, 100755, 120000 or 160000", f.Path, f.Mode)
	}
	mode := f.Mode
	if mode == 0 {
		mode = ModeFile
	}
	if err := checkSpecialPath(f.Path, mode); err != nil {
		return invalidf("%s: %v", f.Path, err)
	}
	if f.ContentID == "" {
		return invalidf("%s: no content_id", f.Path)
	}
	if !w.spool.add(f.ContentID) {
		return invalidf("content_id %q names two files", f.ContentID)
	}
	return nil
}

// resolveGuard turns the guard into a commit: a full id stands for itself, other
// text is a revision (OQ-K8). Forty zeros stand for "does not exist".
func (w *CommitWriter) resolveGuard(ctx context.Context) error {
	text := w.spec.Expected
	if text == "" {
		return nil
	}
	w.guarded = true
	var err error
	if w.expected, err = refpolicy.ParseOID(text); err == nil {
		return nil
	}
	if len(text) == 40 && strings.Trim(strings.ToLower(text), "0123456789abcdef") == "" {
		return invalidf("expected head %q is not lower-case hex", text)
	}
	rev, err := w.r.Resolve(ctx, w.c, text, false)
	if err != nil {
		return fmt.Errorf("%w: expected head: %w", ErrInvalid, err)
	}
	w.expected = rev.Commit
	return nil
}

// Write adds data to the content named id; last ends it. Errors: ErrInvalid for an
// unknown or ended id, ErrTooLarge.
func (w *CommitWriter) Write(id string, data []byte, last bool) error {
	c := w.spool.contents[id]
	limits := w.r.store.limits
	switch {
	case c == nil && len(data) == 0 && w.deletes(id):
		return nil // both documented forms of a delete work (OQ-K6)
	case c == nil:
		return invalidf("content_id %q is not in the metadata", id)
	case c.ended:
		return invalidf("content_id %q has ended", id)
	case c.size+int64(len(data)) > limits.FileBytes:
		return fmt.Errorf("%w: a file of over %d bytes", ErrTooLarge, limits.FileBytes)
	case w.spool.total+int64(len(data)) > limits.CommitBytes:
		return fmt.Errorf("%w: files of over %d bytes together", ErrTooLarge, limits.CommitBytes)
	}
	c.ended = last
	return w.spool.write(c, data)
}

func (w *CommitWriter) deletes(id string) bool {
	for _, f := range w.spec.Files {
		if f.Delete && f.ContentID == id {
			return true
		}
	}
	return false
}

// Abort lets go of what was spooled.
func (w *CommitWriter) Abort() { w.spool.close() }
