package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// RepoInfo is what is known of a repo besides its refs.
type RepoInfo struct {
	ID            string // opaque, URL-safe, stable
	Org           string
	Name          string
	DefaultBranch string // short name; HEAD points at it, also when unborn
	CreatedAt     time.Time
}

// Repo is one repository.
type Repo struct {
	store  *Store
	ledger ledger.Ledger
	id     string
	space  ledger.Space
	dir    *packs.Dir

	meta atomic.Pointer[repoMeta]

	packsMu  sync.Mutex               // held while the list is read or extended
	linked   map[string]bool          // packs that git sees; guarded by packsMu
	lost     map[string]bool          // packs that could not be linked, which has been told; guarded by packsMu
	examined atomic.Int32             // how many look at what is damaged: nothing is brought back meanwhile
	packList atomic.Pointer[[]string] // names of live packs, likely ones first
	oldPacks atomic.Pointer[[]string] // names of condemned packs that are not removed yet

	catalogs catalogs // of many packs

	heat heat
	hots hotPacks

	upkeep sync.Mutex   // held while packs are merged, pruned or removed
	looked atomic.Int64 // unix seconds: when it was last asked how long ago the last prune was
	// indexSeen is the pack list as of which upkeep last asked whether an index is
	// wanted; indexLater says that time alone will make it wanted.
	indexSeen  atomic.Pointer[[]string]
	indexLater atomic.Bool
	deferred   atomic.Int32 // rounds of upkeep that were put off while requests ran
	prunedRefs atomic.Int64 // how many refs the last prune saw, as far as this process knows
	waste      atomic.Int64 // refs deleted or rewound since the last prune, as far as this process knows

	usedAt atomic.Int64 // unix nanoseconds, for closing what has been idle
	gone   atomic.Bool  // deleted by this process
}

// orGone says that the repo is not there, or the store closed, instead of what went
// wrong because its files and records were being removed or its time was up.
func (r *Repo) orGone(err error) error {
	switch {
	case err == nil:
		return nil
	case r.gone.Load():
		return ErrRepoNotFound
	case r.store.life.Err() != nil && errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// repoMeta is a repo's record with the bytes it was read from.
type repoMeta struct {
	raw  []byte
	info RepoInfo
}

// Info tells the repo's record, as of when it was opened or last changed here.
func (r *Repo) Info() RepoInfo { return r.meta.Load().info }

// head is the ref HEAD points at.
func (r *Repo) head() refpolicy.RefName {
	return refpolicy.RefName(refpolicy.BranchPrefix + r.Info().DefaultBranch)
}

// Repo opens a repo by name: ErrRepoNotFound if there is none. Repos are shared
// and cached; there is nothing to close.
func (s *Store) Repo(ctx context.Context, org, name string) (*Repo, error) {
	if r, err := s.foundAtOnce(ctx, org, name); r != nil || err != nil {
		return r, err
	}
	id, err := readKey(ctx, s.ledger.ReadKeys, ledger.OrgSpace(org), nameKey(name))
	if err != nil {
		return nil, fmt.Errorf("find repo: %w", err)
	}
	if id == nil {
		return nil, ErrRepoNotFound
	}
	r, err := s.opened(ctx, string(id))
	if err != nil {
		return nil, err
	}
	r.usedAt.Store(time.Now().UnixNano())
	if err := r.refresh(ctx); err != nil {
		if errors.Is(err, ErrRepoNotFound) {
			s.forget(r)
		}
		return nil, err
	}
	s.named.Store(repoName{org, name}, r.id)
	return r, nil
}

// forget lets go of a repo that has been deleted. What still works on it is told so.
func (s *Store) forget(r *Repo) {
	r.gone.Store(true)
	s.mu.Lock()
	if s.repos[r.id] == r {
		delete(s.repos, r.id)
	}
	s.mu.Unlock()
	s.tidied.Delete(r.id)
	s.unname(r)
	s.indexes.forget(r.id)
	r.hots.close()
	r.dir.Close()
}

// opened gives the shared Repo of an id, opening its folder at the first call.
func (s *Store) opened(ctx context.Context, id string) (*Repo, error) {
	if r, err := s.cached(id); r != nil || err != nil {
		return r, err
	}
	// One opens for all who ask meanwhile; its own context ending must not fail them.
	ctx = context.WithoutCancel(ctx)
	r, err, _ := s.opening.Do(id, func() (any, error) { return s.openRepo(ctx, id) })
	if err != nil {
		return nil, err
	}
	return r.(*Repo), nil
}

func (s *Store) openRepo(ctx context.Context, id string) (*Repo, error) {
	if r, err := s.cached(id); r != nil || err != nil {
		return r, err
	}
	dir, err := s.openDir(id)
	if errors.Is(err, fs.ErrNotExist) && s.dropped(ctx, id) {
		return nil, ErrRepoNotFound // deleted since its name was read
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.mendFolder(id); err == nil {
			dir, err = s.openDir(id)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open repo: %w", err)
	}
	r := &Repo{store: s, ledger: s.ledger, id: id, space: ledger.RepoSpace(id), dir: dir}
	// What the ledger does not know is not touched: this may not be its ledger.
	if s.dropped(ctx, id) {
		err = ErrRepoNotFound
	} else {
		err = r.loadPacks(ctx)
	}
	if err == nil && !s.looking {
		err = r.tidyOnce(ctx)
	}
	if err == nil {
		err = r.measureHeat(ctx)
	}
	if err != nil {
		dir.Close()
		if s.dropped(ctx, id) {
			return nil, ErrRepoNotFound
		}
		return nil, err
	}
	r.usedAt.Store(time.Now().UnixNano())
	runtime.AddCleanup(r, func(d *packs.Dir) { d.Close() }, dir)
	idle, err := s.keep(r)
	for _, old := range idle {
		old.hots.close()
	}
	return r, err
}

// keep shares r with all who ask for it. It gives the repos that are not kept any
// more since too many are open: those that were not asked for for longest. One that
// a request still works on stays usable; its files are closed when nothing refers
// to it any more.
func (s *Store) keep(r *Repo) (idle []*Repo, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return nil, ErrClosed
	}
	s.repos[r.id] = r
	for len(s.repos) > s.limits.OpenRepos {
		var oldest *Repo
		for _, o := range s.repos {
			if oldest == nil || o.usedAt.Load() < oldest.usedAt.Load() {
				oldest = o
			}
		}
		delete(s.repos, oldest.id)
		s.unname(oldest)
		idle = append(idle, oldest)
	}
	return idle, nil
}

func (s *Store) cached(id string) (*Repo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return nil, ErrClosed
	}
	return s.repos[id], nil
}

// dropped reports whether the space of a repo has been dropped.
func (s *Store) dropped(ctx context.Context, id string) bool {
	raw, err := readKey(ctx, s.ledger.ReadKeys, ledger.RepoSpace(id), metaKey)
	return err == nil && raw == nil
}

// keyReader is Ledger.PeekKeys or Ledger.ReadKeys.
type keyReader func(context.Context, ledger.Space, ...string) ([][]byte, error)

// readKey reads one key; nil if it is absent.
func readKey(ctx context.Context, read keyReader, space ledger.Space, key string) ([]byte, error) {
	got, err := read(ctx, space, key)
	if err != nil {
		return nil, err
	}
	return got[0], nil
}

// refresh reads the repo's record; another node may have changed it. A record that
// is the one known already was published when it became known: to see that, nobody
// waits for the commits that are being synced.
func (r *Repo) refresh(ctx context.Context) error {
	if m := r.meta.Load(); m != nil {
		raw, err := readKey(ctx, r.ledger.PeekKeys, r.space, metaKey)
		if err == nil && bytes.Equal(m.raw, raw) {
			return nil
		}
	}
	raw, err := readKey(ctx, r.ledger.ReadKeys, r.space, metaKey)
	if err != nil {
		return fmt.Errorf("read repo record: %w", err)
	}
	if raw == nil {
		return ErrRepoNotFound // being deleted
	}
	rec, err := decodeRepoRecord(raw)
	if err != nil {
		return err
	}
	r.meta.Store(&repoMeta{raw, rec.info()})
	return nil
}

// infoOf decodes a repo's record, which nearly always is the one known already.
func (r *Repo) infoOf(raw []byte) (RepoInfo, error) {
	if m := r.meta.Load(); m != nil && bytes.Equal(m.raw, raw) {
		return m.info, nil
	}
	rec, err := decodeRepoRecord(raw)
	return rec.info(), err
}

// SetDefaultBranch points HEAD at another branch, which must exist unless the
// repo has no branch at all. The change is in the log; to the branch that it is at
// already there is none. once may be nil. Errors: ErrRefNotFound, also for a branch the
// caller may not read.
func (r *Repo) SetDefaultBranch(ctx context.Context, c Caller, branch string, once *ledger.Once[RepoInfo]) (RepoInfo, error) {
	name, err := refpolicy.Branch(branch)
	if err != nil {
		return RepoInfo{}, err
	}
	if !c.Policy.CanRead(name) {
		return RepoInfo{}, fmt.Errorf("%w: %s", ErrRefNotFound, name.Short())
	}
	for {
		info, err := r.setDefaultBranch(ctx, c, name, once)
		if err = r.orRepeated(ctx, once.StoreKey(), err); isCheck(err) && ctx.Err() == nil {
			continue // somebody changed the record or the branch in between
		}
		return info, err
	}
}

func (r *Repo) setDefaultBranch(ctx context.Context, c Caller, name refpolicy.RefName, once *ledger.Once[RepoInfo]) (RepoInfo, error) {
	if err := r.refresh(ctx); err != nil {
		return RepoInfo{}, err
	}
	old := r.meta.Load()
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return RepoInfo{}, fmt.Errorf("read branch: %w", err)
	}
	defer v.Close()
	exists := ledger.AbsentPrefix(refKeys + refpolicy.BranchPrefix)
	branches, err := v.Scan(ctx, exists.Key, exists.Key, 1)
	if err != nil {
		return RepoInfo{}, fmt.Errorf("read branch: %w", err)
	}
	if len(branches) > 0 {
		raw, err := v.Get(ctx, refKey(name))
		if errors.Is(err, ledger.ErrNotFound) {
			return RepoInfo{}, fmt.Errorf("%w: %s", ErrRefNotFound, name.Short())
		}
		if err != nil {
			return RepoInfo{}, fmt.Errorf("read branch: %w", err)
		}
		exists = ledger.Equal(refKey(name), raw)
	}
	b := ledger.Batch{Space: r.space, Checks: []ledger.Check{ledger.Equal(metaKey, old.raw), exists}}
	rec := repoRecord(old.info)
	if rec.DefaultBranch = name.Short(); rec.DefaultBranch != old.info.DefaultBranch {
		b.Sets = []ledger.Set{{Key: metaKey, Value: rec.encode()}}
		b.Log = mustJSON(LogEntry{
			Type: entryRepo, Actor: c.Actor, Changes: []LogChange{},
			Data: mustJSON(RepoChange{OldDefaultBranch: old.info.DefaultBranch, DefaultBranch: rec.DefaultBranch}),
		})
	} else if once == nil {
		return old.info, nil
	}
	if err := r.keep(ctx, &b, once, rec.info()); err != nil {
		return RepoInfo{}, fmt.Errorf("set default branch: %w", err)
	}
	return rec.info(), r.refresh(ctx)
}

// keep applies a batch that also keeps the answer of the call.
func (r *Repo) keep(ctx context.Context, b *ledger.Batch, once *ledger.Once[RepoInfo], answer RepoInfo) error {
	if once != nil {
		now, err := r.ledger.Now(ctx)
		if err != nil {
			return err
		}
		rider, err := once.Rider(answer, now)
		if err != nil {
			return err
		}
		b.Carry(rider)
	}
	_, err := r.ledger.Apply(ctx, *b)
	return err
}

// RepoPage is one page of a list of repos, newest first.
type RepoPage struct {
	Repos []RepoInfo
	Next  string // cursor of the next page; empty on the last
}

// ListRepos lists an org's repos whose name contains query (any case; empty: all),
// at most limit (at least 1), after cursor. Errors: ErrBadCursor.
func (s *Store) ListRepos(ctx context.Context, org, query, cursor string, limit int) (RepoPage, error) {
	start := recentKeys
	if cursor != "" {
		after, err := decodeCursor(cursor, repoCursor)
		if err != nil {
			return RepoPage{}, err
		}
		start = recentKeys + after + "\x00"
	}
	v, err := s.ledger.Read(ctx, ledger.OrgSpace(org))
	if err != nil {
		return RepoPage{}, fmt.Errorf("list repos: %w", err)
	}
	defer v.Close()
	query = strings.ToLower(query)
	var page RepoPage
	var last string
	for {
		items, err := v.Scan(ctx, recentKeys, start, limit+1)
		if err != nil {
			return RepoPage{}, fmt.Errorf("list repos: %w", err)
		}
		for _, it := range items {
			rec, err := decodeRepoRecord(it.Value)
			if err != nil {
				return RepoPage{}, err
			}
			if !strings.Contains(strings.ToLower(rec.Name), query) {
				continue
			}
			if len(page.Repos) == limit {
				page.Next = encodeCursor(repoCursor, strings.TrimPrefix(last, recentKeys))
				return page, nil
			}
			info, err := s.currentInfo(ctx, rec)
			if errors.Is(err, ledger.ErrNotFound) {
				continue
			}
			if err != nil {
				return RepoPage{}, err
			}
			page.Repos = append(page.Repos, info)
			last = it.Key
		}
		if len(items) <= limit {
			return page, nil
		}
		start = items[len(items)-1].Key + "\x00"
	}
}

// currentInfo reads a listed repo's own record: the default branch may have changed since it was listed.
func (s *Store) currentInfo(ctx context.Context, listed repoRecord) (RepoInfo, error) {
	v, err := s.ledger.Read(ctx, ledger.RepoSpace(listed.ID))
	if err != nil {
		return RepoInfo{}, fmt.Errorf("list repos: %w", err)
	}
	defer v.Close()
	raw, err := v.Get(ctx, metaKey)
	if err != nil {
		return RepoInfo{}, err
	}
	rec, err := decodeRepoRecord(raw)
	return rec.info(), err
}
