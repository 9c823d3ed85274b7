package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// commitTries bounds how often a commit without a guard is built anew because its
// target moved (OQ-K5).
const commitTries = 5

// maxLink is the longest target of a symbolic link, in bytes: PATH_MAX less its NUL.
const maxLink = 4095

// Commit makes the commit and moves the target. Without a guard it builds again
// on a target that moved, a few times. Errors besides NewCommit's: ErrInvalid for
// contents not ended, *RefMovedError, ErrRefNotFound for a missing base or target,
// ErrNoChanges, *NameClashError.
func (w *CommitWriter) Commit(ctx context.Context) (CommitResult, error) {
	defer w.spool.close()
	ctx, end, err := w.r.store.work(ctx)
	if err != nil {
		return CommitResult{}, err
	}
	defer end()
	blobs, err := w.blobs(ctx)
	if err != nil {
		return CommitResult{}, w.r.orGone(w.r.orRepeated(ctx, w.spec.Once.StoreKey(), err))
	}
	var failed error
	defer func() { blobs.discard(ctx, failed) }()
	for try, raised := 1, 0; ; {
		res, err := w.attempt(ctx, blobs)
		failed = err
		if genMoved(err) && raised < doorTries {
			raised++ // a prune began: nobody has moved the target
			continue
		}
		var moved *RefMovedError
		var check *ledger.CheckError
		again := errors.As(err, &check) || errors.As(err, &moved) && !w.guarded
		if !again || try == commitTries {
			return res, w.r.orGone(w.r.orRepeated(ctx, w.spec.Once.StoreKey(), hideClash(w.c, err)))
		}
		try++
	}
}

// commitBlobs are a commit's blobs: small ones in memory, otherwise in a pack of
// their own that is registered together with the commit.
type commitBlobs struct {
	w       *CommitWriter
	ids     map[string]refpolicy.OID // by content id
	objects []NewObject
	pack    *packs.Info
	bytes   int64
	count   int
	used    bool
}

// discard removes a pack that no update has taken over; failed is what the last
// one was answered.
func (b *commitBlobs) discard(ctx context.Context, failed error) {
	if b.pack != nil && !b.used {
		b.w.r.dropPack(ctx, b.pack.Name, failed)
	}
}

func (w *CommitWriter) blobs(ctx context.Context) (*commitBlobs, error) {
	b := &commitBlobs{w: w, ids: map[string]refpolicy.OID{}}
	for _, f := range w.spec.Files {
		if f.Delete {
			continue
		}
		c := w.spool.contents[f.ContentID]
		if !c.ended {
			return nil, invalidf("%s: content_id %q did not end", f.Path, f.ContentID)
		}
		if err := w.checkContent(f, c); err != nil {
			return nil, err
		}
	}
	if w.spool.total > w.r.store.limits.HotPackBytes || len(w.spool.contents) > w.r.store.limits.HotPackObjects {
		return b, b.packed(ctx)
	}
	return b, b.small()
}

// checkContent holds links and submodules to what git can store in them, and the
// files that git itself reads to what a push of them is held to.
func (w *CommitWriter) checkContent(f FileChange, c *content) error {
	switch f.Mode {
	case ModeSymlink:
		if c.size > maxLink {
			return invalidf("%s: link target of %d bytes, at most %d", f.Path, c.size, maxLink)
		}
		target, err := c.whole()
		if err == nil && strings.ContainsRune(string(target), 0) {
			return invalidf("%s: link target holds a NUL", f.Path)
		}
		return err
	case ModeSubmodule:
		_, err := gitlinkOID(f, c)
		return err
	}
	kind := specialOf(f.Path[strings.LastIndexByte(f.Path, '/')+1:])
	if kind == plainFile {
		return nil
	}
	if c.size > maxSpecial {
		return invalidf("%s: over %d bytes", f.Path, maxSpecial)
	}
	data, err := c.whole()
	if err != nil {
		return err
	}
	if err := checkSpecialContent(kind, data); err != nil {
		return invalidf("%s: %v", f.Path, err)
	}
	return nil
}

// gitlinkOID reads the content of a submodule entry: the commit's id (OQ-K9).
func gitlinkOID(f FileChange, c *content) (refpolicy.OID, error) {
	if c.size > 256 {
		return refpolicy.OID{}, invalidf("%s: a submodule's content is 40 hex digits", f.Path)
	}
	text, err := c.whole()
	if err != nil {
		return refpolicy.OID{}, err
	}
	oid, err := refpolicy.ParseOID(strings.TrimSpace(string(text)))
	if err != nil || oid.IsZero() {
		return refpolicy.OID{}, invalidf("%s: a submodule's content is 40 hex digits", f.Path)
	}
	return oid, nil
}

// each calls fn for every content that becomes a blob.
func (b *commitBlobs) each(fn func(id string, c *content) error) error {
	for _, f := range b.w.spec.Files {
		if f.Delete {
			continue
		}
		c := b.w.spool.contents[f.ContentID]
		if f.Mode == ModeSubmodule {
			oid, err := gitlinkOID(f, c)
			if err != nil {
				return err
			}
			b.ids[f.ContentID] = oid
			continue
		}
		if err := fn(f.ContentID, c); err != nil {
			return err
		}
		b.count++
	}
	return nil
}

func (b *commitBlobs) small() error {
	return b.each(func(id string, c *content) error {
		data, err := c.whole()
		if err != nil {
			return err
		}
		o := newObject(BlobObject, data)
		b.ids[id] = o.OID
		b.objects = append(b.objects, o)
		b.bytes += int64(len(data))
		return nil
	})
}

func (b *commitBlobs) packed(ctx context.Context) error {
	pw, err := b.w.r.dir.NewWriter(ctx)
	if err != nil {
		return fmt.Errorf("write blobs: %w", err)
	}
	defer pw.Abort()
	err = b.each(func(id string, c *content) error {
		oid, _, err := pw.AddStream(packs.Type(BlobObject), c.size, c.reader())
		b.ids[id] = oid
		return err
	})
	if err != nil {
		return fmt.Errorf("write blobs: %w", err)
	}
	if b.count == 0 {
		return nil // nothing but submodules
	}
	info, err := pw.Finish()
	if err != nil {
		return fmt.Errorf("write blobs: %w", err)
	}
	b.pack, b.bytes = &info, info.Size
	return nil
}

// start is where one attempt begins: the target's value and the parent.
type start struct {
	old, parent refpolicy.OID
	checks      []ledger.Check
	gen         []byte // prune generation
	now         time.Time
	known       ledger.Known // all that was read, the door's and the guard's keys too
}

func (w *CommitWriter) attempt(ctx context.Context, blobs *commitBlobs) (CommitResult, error) {
	st, tree, objects, err := w.plan(ctx, blobs)
	if err != nil {
		return CommitResult{}, err
	}
	author, committer := w.spec.Author, w.spec.Committer
	if author.When.IsZero() {
		author.When = st.now
	}
	if committer.When.IsZero() {
		committer.When = st.now
	}
	var parents []refpolicy.OID
	if !st.parent.IsZero() {
		parents = append(parents, st.parent)
	}
	commit := newObject(CommitObject, encodeCommit(tree, parents, author, committer, w.spec.Message))
	res := CommitResult{Commit: commit.OID, Tree: tree, Old: st.old, PackBytes: blobs.bytes + int64(len(commit.Data)), BlobCount: blobs.count}
	for _, o := range objects {
		res.PackBytes += int64(len(o.Data))
	}
	u := Update{
		Caller:  w.c,
		Changes: []Change{{Ref: w.spec.Target, Old: st.old, New: commit.OID, NoForce: true}},
		Objects: append(append(blobs.objects[:len(blobs.objects):len(blobs.objects)], objects...), commit),
		Proved:  true,
		proofIn: st.gen,
		Checks:  st.checks,
		Once:    onceOf(w.spec.Once, func(UpdateResult) CommitResult { return res }),
	}
	if !st.old.IsZero() {
		u.foresee(st, commit.OID)
	}
	if blobs.pack != nil {
		u.Pack = &IncomingPack{Info: *blobs.pack, Kind: "blobs", Kept: true}
	}
	if err := w.update(ctx, u); err != nil {
		return CommitResult{}, err
	}
	blobs.used = true
	return res, nil
}

// foresee lets the door prepare its first try from what the commit was begun with. That
// nobody has made the very same commit before need not be read: the batch checks it.
func (u *Update) foresee(st start, commit refpolicy.OID) {
	u.known = st.known
	u.known[bornKey(commit)] = nil
	u.unborn = commit
}

// update goes through the door. Trees that are too many or too large for one batch
// go there in a pack.
func (w *CommitWriter) update(ctx context.Context, u Update) (err error) {
	size := 0
	for _, o := range u.Objects {
		size += len(o.Data)
	}
	if len(u.Objects) > w.r.store.limits.HotPackObjects || size > ledger.MaxBatchBytes/2 {
		info, perr := w.r.packObjects(ctx, u.Objects)
		if perr != nil {
			return fmt.Errorf("write trees: %w", perr)
		}
		u.objectsIn = &info
		defer func() {
			if err != nil {
				w.r.dropPack(ctx, info.Name, err)
			}
		}()
	}
	res, err := w.r.Update(ctx, u)
	if err != nil {
		return err
	}
	return res.Refs[0].Err
}

// packObjects writes objects into a pack that nobody knows yet.
func (r *Repo) packObjects(ctx context.Context, objects []NewObject) (packs.Info, error) {
	w, err := r.dir.NewWriter(ctx)
	if err != nil {
		return packs.Info{}, err
	}
	defer w.Abort()
	for _, o := range objects {
		if _, _, err := w.AddStream(packs.Type(o.Type), int64(len(o.Data)), bytes.NewReader(o.Data)); err != nil {
			return packs.Info{}, err
		}
	}
	return w.Finish()
}

// plan finds out where the commit begins and what its tree becomes. What is
// refused by something that is not durable yet is planned again on what is: nobody
// is told of a change that a failing disk could still take back.
func (w *CommitWriter) plan(ctx context.Context, blobs *commitBlobs) (st start, tree refpolicy.OID, objects []NewObject, err error) {
	for _, by := range w.r.readings() {
		if st, err = w.start(ctx, by); err != nil {
			continue
		}
		if tree, objects, err = w.build(ctx, st, blobs); err == nil {
			break
		}
	}
	return st, tree, objects, err
}

// start finds parent and guard as rest.md 11.4 has it.
func (w *CommitWriter) start(ctx context.Context, by reading) (start, error) {
	now, err := w.r.ledger.Now(ctx)
	if err != nil {
		return start{}, fmt.Errorf("read target: %w", err)
	}
	keys := w.startKeys()
	got, err := by.keys(ctx, w.r.space, keys...)
	if err != nil {
		return start{}, fmt.Errorf("read target: %w", err)
	}
	if got[0] == nil {
		return start{}, ErrRepoNotFound
	}
	st := start{now: now, gen: got[0], known: make(ledger.Known, len(keys)+1)}
	for i, key := range keys {
		st.known[key] = got[i]
	}
	target, err := recordOf(got[1])
	if err != nil {
		return st, err
	}
	if target != nil {
		st.old, st.parent = target.oid, target.oid
		return st, w.compare(*target)
	}
	if w.spec.Base != "" {
		return w.startAtBase(got[2], st)
	}
	if w.guarded && !w.expected.IsZero() {
		return st, w.compare(refRecord{})
	}
	return w.startFirst(ctx, by, st)
}

// startKeys are the keys that tell where the commit begins, and with them what will be
// asked for next: with a ledger that is far away, asking is what takes long.
func (w *CommitWriter) startKeys() []string {
	keys := append(make([]string, 0, 8), genKey, refKey(w.spec.Target))
	if w.spec.Base != "" {
		keys = append(keys, refKey(w.spec.Base))
	}
	keys = append(keys, metaKey)
	if w.spec.Once != nil {
		keys = append(keys, w.spec.Once.StoreKey())
	}
	if g, ok := w.r.store.guard.(Foreteller); ok {
		keys = append(keys, g.Wants(w.spec.Target, w.c.Actor)...)
	}
	return keys
}

// startFirst begins the first commit of a repo, which may make any branch.
func (w *CommitWriter) startFirst(ctx context.Context, by reading, st start) (start, error) {
	v, err := by.open(ctx, w.r.space)
	if err != nil {
		return st, fmt.Errorf("read refs: %w", err)
	}
	defer v.Close()
	any, err := v.Scan(ctx, refKeys, "", 1)
	if err != nil {
		return st, fmt.Errorf("read refs: %w", err)
	}
	if len(any) > 0 {
		return st, fmt.Errorf("%w: %s", ErrRefNotFound, w.spec.Target.Short())
	}
	// Of two first ones, one is first.
	st.checks = []ledger.Check{ledger.AbsentPrefix(refKeys)}
	return st, nil
}

func (w *CommitWriter) startAtBase(raw []byte, st start) (start, error) {
	base, err := recordOf(raw)
	if err != nil {
		return st, err
	}
	if base == nil || !w.c.Policy.CanRead(w.spec.Base) {
		return st, fmt.Errorf("%w: %s", ErrRefNotFound, w.spec.Base.Short())
	}
	st.parent = base.oid
	return st, w.compare(*base)
}

func (w *CommitWriter) compare(present refRecord) error {
	if !w.guarded || w.expected == present.oid {
		return nil
	}
	return &RefMovedError{
		Ref: w.spec.Target, Expected: w.expected,
		Present: present.oid, Writer: present.writer, At: present.updated,
	}
}

// recordOf decodes a ref's record; nil if there is none.
func recordOf(raw []byte) (*refRecord, error) {
	if raw == nil {
		return nil, nil
	}
	rec, err := decodeRefRecord(raw)
	return &rec, err
}

// build applies the changes to the parent's tree and gives the new tree objects.
func (w *CommitWriter) build(ctx context.Context, st start, blobs *commitBlobs) (refpolicy.OID, []NewObject, error) {
	before := emptyTree
	if !st.parent.IsZero() {
		h, err := graph{w.r, noFresh}.commit(ctx, st.parent)
		if err != nil {
			return before, nil, fmt.Errorf("read parent: %w", err)
		}
		before = h.tree
	}
	root, err := newTreeNode(before, func(oid refpolicy.OID) ([]treeEntry, error) {
		data, err := w.r.typed(ctx, oid, TreeObject)
		if err != nil {
			return nil, err
		}
		return parseTree(data)
	})
	if err != nil {
		return before, nil, fmt.Errorf("read parent: %w", err)
	}
	for _, f := range w.spec.Files {
		if f.Delete {
			err = root.remove(f.Path)
		} else {
			err = root.upsert(f.Path, f.Mode, blobs.ids[f.ContentID])
		}
		if errors.Is(err, errFileInTheWay) || errors.Is(err, errFolderInTheWay) {
			return before, nil, invalidf("%s: %v", f.Path, err)
		}
		if err != nil {
			return before, nil, fmt.Errorf("change %s: %w", f.Path, err)
		}
	}
	var objects []NewObject
	tree := root.write(func(o NewObject) { objects = append(objects, o) })
	if tree == before {
		return before, nil, ErrNoChanges
	}
	return tree, objects, nil
}
