package gitstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/packs"
)

// indexes are the indexes that git processes of this store use, by repo id. A Repo
// may be opened anew while a process still works for the one before.
type indexes struct {
	mu    sync.Mutex // guards repos, not what they hold
	repos map[string]*repoIndexes
}

// repoIndexes is what this process knows of the indexes of one repo.
type repoIndexes struct {
	mu      sync.Mutex // guards all below; held while an index is looked up and verified
	current *openIndex
	users   map[string]int // by name: processes that have it as an alternate

	doubt doubt
}

// openIndex is an index that was found sound, as long as its stamp stays.
type openIndex struct {
	name  string
	rec   indexRecord
	stamp packs.IndexStamp
}

func (x *indexes) of(repo string) *repoIndexes {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.repos == nil {
		x.repos = map[string]*repoIndexes{}
	}
	if x.repos[repo] == nil {
		x.repos[repo] = &repoIndexes{users: map[string]int{}}
	}
	return x.repos[repo]
}

// known is of for a repo of which something is known; nil for others.
func (x *indexes) known(repo string) *repoIndexes {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.repos[repo]
}

// forget drops what is known of a repo that is gone.
func (x *indexes) forget(repo string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.repos, repo)
}

// used reports whether a process of this store has an index as an alternate.
func (x *indexes) used(repo, name string) bool {
	ri := x.known(repo)
	if ri == nil {
		return false
	}
	ri.mu.Lock()
	defer ri.mu.Unlock()
	return ri.users[name] > 0
}

// useIndex gives the object directory of the index in use, "" if there is none that
// is sound. release must be called when the process that reads in it has ended. An
// index only saves work: whatever is wrong with it is told in the log and healed, and
// keeps nobody from being answered.
func (r *Repo) useIndex(ctx context.Context) (path string, release func()) {
	ri := r.store.indexes.known(r.id)
	if ri == nil { // most repos are small and never have one: nothing is kept of them
		if pointer, err := readKey(ctx, r.ledger.PeekKeys, r.space, indexPointer); err != nil || pointer == nil {
			return "", func() {}
		}
		ri = r.store.indexes.of(r.id)
	}
	// The pointer is read under the lock: an index is removed only when it is not the
	// one in use, which is known before its users are counted.
	ri.mu.Lock()
	defer ri.mu.Unlock()
	x, err := r.soundIndex(ctx, ri)
	if err != nil && ctx.Err() == nil {
		r.store.log.Warn("use index", "repo", r.id, "err", err)
	}
	if x == nil {
		return "", func() {}
	}
	ri.users[x.name]++
	return r.dir.IndexPath(x.name), func() {
		ri.mu.Lock()
		defer ri.mu.Unlock()
		if ri.users[x.name]--; ri.users[x.name] == 0 {
			delete(ri.users, x.name)
		}
	}
}

// soundIndex looks up the index in use and verifies it when this process sees it for
// the first time, when its files look otherwise than before, and when a process has
// failed on it. One that is broken is retired. Called with ri.mu held.
func (r *Repo) soundIndex(ctx context.Context, ri *repoIndexes) (*openIndex, error) {
	pointer, err := readKey(ctx, r.ledger.PeekKeys, r.space, indexPointer)
	if err != nil {
		return nil, err
	}
	if pointer == nil {
		ri.current = nil
		return nil, nil
	}
	x := ri.current
	if x == nil || x.name != string(pointer) {
		if x, err = r.openIndex(ctx, string(pointer)); err != nil {
			return nil, err
		}
		ri.current = x
	}
	stamp, err := r.dir.StampIndex(x.name, x.rec.Files)
	if err == nil && (stamp != x.stamp || ri.doubt.verify.Swap(false)) {
		err = r.dir.VerifyIndex(x.name, x.rec.Packs, x.rec.Files)
	}
	if err == nil {
		x.stamp = stamp
		return x, nil
	}
	ri.current = nil
	if errors.Is(err, packs.ErrIndexBroken) || errors.Is(err, packs.ErrBadName) {
		ri.doubt.rewrite.Store(true)
		err = errors.Join(err, r.retireIndex(ctx, string(pointer)))
	}
	return nil, err
}

// openIndex reads the record of an index. One that cannot be read is a broken index.
func (r *Repo) openIndex(ctx context.Context, name string) (*openIndex, error) {
	raw, err := readKey(ctx, r.ledger.PeekKeys, r.space, indexKey(name))
	if err != nil {
		return nil, err
	}
	rec, err := decodeIndexRecord(raw)
	if err != nil || rec.State != packLive {
		rec = indexRecord{Files: []packs.IndexFile{{Name: "record"}}} // which is not there
	}
	return &openIndex{name: name, rec: rec}, nil
}

// doubtEvery bounds how often an index is read whole because a git process failed:
// most fail for reasons of their own.
const doubtEvery = time.Minute

// doubtIndex notes that a git process which may have read in an index ended with err.
// The next one has the index verified, and upkeep lets git itself check it.
func (r *Repo) doubtIndex(err error) {
	var exit *gitcmd.ExitError
	if !errors.As(err, &exit) || exit.Code == 1 {
		return // 1 is an answer: a difference, a conflict, nothing found
	}
	if ri := r.store.indexes.known(r.id); ri != nil {
		ri.doubt.raise()
	}
}
