package gitstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// Signature is who made something and when, as git records it.
type Signature struct {
	Name, Email string
	When        time.Time // whole seconds, with the recorded zone
}

// CommitInfo is a commit with its message.
type CommitInfo struct {
	OID, Tree         refpolicy.OID
	Parents           []refpolicy.OID
	Author, Committer Signature
	Message           string // as stored
	Raw               []byte // the whole commit object
}

// Commit reads one commit that the caller has resolved. Errors: ErrObjectNotFound.
func (r *Repo) Commit(ctx context.Context, oid refpolicy.OID) (CommitInfo, error) {
	raw, err := r.typed(ctx, oid, CommitObject)
	if err != nil {
		return CommitInfo{}, err
	}
	c, err := parseCommit(raw)
	if err != nil {
		return CommitInfo{}, fmt.Errorf("read commit %s: %w", oid, err)
	}
	c.OID = oid
	return c, nil
}

// LogPage is one page of history.
type LogPage struct {
	From    refpolicy.OID // the commit whose history it is
	Commits []CommitInfo
	Next    string // cursor; it holds the starting commit, so that paging stays on the history it began with
}

// Log lists history from a commit, newest first as git log does, simplified to
// path if that is not empty; limit <= 0 is all of it. With a cursor, from is
// ignored and the cursor's own starting commit must still be readable by the
// caller. Errors: ErrBadCursor (also one of another path), ErrBadPath, ErrObjectNotFound.
func (r *Repo) Log(ctx context.Context, c Caller, from refpolicy.OID, path, cursor string, limit int) (LogPage, error) {
	p, err := parsePathOrRoot(path)
	if err != nil {
		return LogPage{}, err
	}
	w, err := r.walkFor(ctx, c, from, p, cursor)
	if err != nil {
		return LogPage{}, err
	}
	page := LogPage{From: w.start}
	for limit <= 0 || len(page.Commits) < limit {
		oid, ok, err := w.next(ctx)
		if err != nil {
			return LogPage{}, fmt.Errorf("walk history: %w", err)
		}
		if !ok {
			return page, nil
		}
		info, err := r.Commit(ctx, oid)
		if err != nil {
			return LogPage{}, err
		}
		page.Commits = append(page.Commits, info)
	}
	if more, err := w.more(ctx); err != nil || !more {
		return page, err
	}
	page.Next = w.cursor().encode()
	r.store.readers.pauses.put(w.pauseKey(), w, w.cost())
	return page, nil
}

// walkFor gives a walk that stands where the page begins: one that paused there,
// or a new one that goes there again.
func (r *Repo) walkFor(ctx context.Context, c Caller, from refpolicy.OID, p treePath, cursor string) (*historyWalk, error) {
	cur := logCursor{start: from, path: pathSum(p)}
	if cursor != "" {
		var err error
		if cur, err = decodeLogCursor(cursor); err != nil {
			return nil, err
		}
		if cur.path != pathSum(p) {
			return nil, fmt.Errorf("%w: it belongs to another path", ErrBadCursor)
		}
		if cur.start, err = r.resolveCommitOID(ctx, c, cur.start); err != nil {
			return nil, err
		}
		if w, ok := r.store.readers.pauses.take(pauseKey{r.id, p, cur}); ok {
			return w, nil
		}
	}
	w := &historyWalk{r: r, start: cur.start, path: p, seen: map[refpolicy.OID]struct{}{}}
	if err := w.add(ctx, cur.start); err != nil {
		return nil, err
	}
	for range cur.shown {
		if _, ok, err := w.next(ctx); err != nil || !ok {
			return w, err
		}
	}
	return w, nil
}

// A logCursor says where a page of history begins: after the first shown commits
// of the history of start, simplified to a path. The same question always walks
// in the same order, so a number says it all.
type logCursor struct {
	start refpolicy.OID
	path  uint64 // pathSum
	shown uint64
}

const (
	historyCursor = "h1:"
	// maxShown bounds what a made-up cursor can make a server walk in vain.
	maxShown = 1 << 32
)

func (c logCursor) encode() string {
	key := append([]byte(nil), c.start[:]...)
	key = binary.BigEndian.AppendUint64(key, c.path)
	return encodeCursor(historyCursor, string(binary.AppendUvarint(key, c.shown)))
}

func decodeLogCursor(s string) (c logCursor, err error) {
	key, err := decodeCursor(s, historyCursor)
	if err != nil {
		return c, err
	}
	if len(key) < len(c.start)+8+1 {
		return c, fmt.Errorf("%w: too short", ErrBadCursor)
	}
	copy(c.start[:], key)
	rest := []byte(key[len(c.start):])
	c.path = binary.BigEndian.Uint64(rest)
	shown, n := binary.Uvarint(rest[8:])
	if n <= 0 || n != len(rest)-8 || shown > maxShown {
		return c, fmt.Errorf("%w: malformed", ErrBadCursor)
	}
	c.shown = shown
	return c, nil
}

func pathSum(p treePath) uint64 {
	h := fnv.New64a()
	h.Write([]byte(p.name))
	if p.dir {
		h.Write([]byte("/"))
	}
	return h.Sum64()
}

type pathKey struct {
	commit refpolicy.OID
	path   treePath
}

// LastChange is the newest commit reachable from commit that changed path, as git
// log -1 -- path tells it. Errors: ErrBadPath, ErrPathNotFound if no commit ever did.
func (r *Repo) LastChange(ctx context.Context, commit refpolicy.OID, path string) (CommitInfo, error) {
	p, err := parsePathOrRoot(path)
	if err != nil {
		return CommitInfo{}, err
	}
	cache := r.store.readers.changes
	// Every commit on the way follows one parent or is the answer, so an answer
	// known for any of them is the answer.
	for at := commit; ; {
		if info, ok := cache.get(pathKey{at, p}); ok {
			if at != commit {
				cache.put(pathKey{commit, p}, info, changeCost(info, p))
			}
			return info, nil
		}
		parents, shown, err := r.simplify(ctx, at, p)
		if err != nil {
			return CommitInfo{}, fmt.Errorf("find last change: %w", err)
		}
		if shown {
			info, err := r.Commit(ctx, at)
			if err == nil {
				cache.put(pathKey{commit, p}, info, changeCost(info, p))
			}
			return info, err
		}
		if len(parents) == 0 {
			return CommitInfo{}, fmt.Errorf("%w: %s was never there", ErrPathNotFound, path)
		}
		at = parents[0]
	}
}

func changeCost(c CommitInfo, p treePath) int64 {
	return int64(400 + len(c.Raw) + len(c.Message) + 20*len(c.Parents) + len(p.name))
}

// resolveCommitOID is resolveOID for an id that must be a commit's itself.
func (r *Repo) resolveCommitOID(ctx context.Context, c Caller, oid refpolicy.OID) (refpolicy.OID, error) {
	commit, err := r.resolveOID(ctx, c, oid)
	if err == nil && commit != oid {
		err = fmt.Errorf("%w: %s", ErrObjectNotFound, oid)
	}
	return commit, err
}
