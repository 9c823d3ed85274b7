package gitstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
)

// Signatures checks the signatures of commits for rules with verify-sig. cmd gives it.
type Signatures interface {
	// VerifyCommit is nil if the raw commit carries a valid signature by a signing
	// key registered with org.
	VerifyCommit(org string, raw []byte) error
}

// Options are what a Store is made of.
type Options struct {
	Dir        string                              // data folder; repos live below Dir/repos
	Ledger     ledger.Ledger                       // closed by whoever opened it, after the store
	Git        *gitcmd.Runner                      // nil: one is made with its defaults
	Shared     bool                                // other processes use the same data folder
	Looking    bool                                // to look only: nothing is tidied, settled, or removed besides scratch files
	Guard      Guard                               // nil: nothing is guarded
	Signatures Signatures                          // nil: verify-sig refuses every commit
	Logger     *slog.Logger                        // nil: slog.Default
	Limits     Limits                              // zero fields take their defaults
	FS         packs.FS                            // files of packs; nil: the operating system's
	Observe    func(op string, took time.Duration) // metrics hook: "update", "settle", ...; may be nil
}

// Store holds the repos of one data folder. It is safe for concurrent use.
type Store struct {
	dir        string
	ledger     ledger.Ledger
	git        *gitcmd.Runner
	shared     bool
	looking    bool
	guard      Guard
	signatures Signatures
	log        *slog.Logger
	limits     Limits
	fs         packs.FS
	observe    func(op string, took time.Duration)

	bases   *packs.BaseCache
	cache   *lru[objectID, object]
	commits *lru[objectID, commitHeader]
	readers readers
	scratch *scratch
	fetches *fetchCache
	gitRuns gitRuns
	indexes indexes
	// segments are parts of old logs, by name; logLooks is what keepLog remembers, by repo.
	segments       *lru[string, []ledger.Entry]
	logLooks       *lru[string, logLook]
	stages         stages
	segmentEntries int           // of one segment
	low            chan struct{} // held by the one process of low priority that may run
	moves          atomic.Int64  // batches of the door so far

	life   context.Context // ends when Close gives up waiting
	stop   context.CancelFunc
	works  sync.WaitGroup // what Close waits for; begun under mu while not closed
	closed chan struct{}

	opening singleflight.Group // by repo id
	tidied  sync.Map           // ids of repos that were opened once
	named   sync.Map           // repoName -> id of the open repo that had it last

	mu    sync.Mutex // guards all below
	shut  bool
	repos map[string]*Repo // by id
}

// Open opens the store in o.Dir, making the folder if need be, and finishes what
// a crash left half done. Errors: *ForeignLedgerError when the ledger is not the one
// of this folder.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{
		dir: o.Dir, ledger: o.Ledger, git: o.Git, shared: o.Shared, looking: o.Looking, guard: o.Guard, signatures: o.Signatures,
		log: o.Logger, limits: o.Limits.withDefaults(), fs: o.FS, observe: o.Observe,
		repos: map[string]*Repo{}, closed: make(chan struct{}), low: make(chan struct{}, 1),
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.observe == nil {
		s.observe = func(string, time.Duration) {}
	}
	s.bases = packs.NewBaseCache(s.limits.CacheBytes / 4)
	s.cache = newLRU[objectID, object](s.limits.CacheBytes)
	s.commits = newLRU[objectID, commitHeader](s.limits.CacheBytes / 4)
	s.segments = newLRU[string, []ledger.Entry](segmentCacheBytes)
	s.segmentEntries = segmentEntries
	s.logLooks = newLRU[string, logLook](int64(max(4*s.limits.OpenRepos, 1_000)))
	s.life, s.stop = context.WithCancel(context.Background())
	if s.fs == nil {
		s.fs = packs.OS{}
	}
	if err := makeDurable(packs.OS{}, o.Dir); err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	if err := s.claim(ctx); err != nil {
		return nil, err
	}
	if err := makeDurable(s.fs, s.reposDir()); err != nil {
		return nil, fmt.Errorf("make repos folder: %w", err)
	}
	if s.git == nil {
		git, err := gitcmd.New(gitcmd.Options{Home: filepath.Join(o.Dir, "git-home"), Logger: s.log})
		if err != nil {
			return nil, fmt.Errorf("find git: %w", err)
		}
		s.git = git
	}
	var err error
	if s.scratch, err = openScratch(filepath.Join(o.Dir, "scratch")); err != nil {
		return nil, err
	}
	if err := s.openReaders(); err != nil {
		return nil, err
	}
	if s.fetches, err = newFetchCache(filepath.Join(s.scratch.path, "fetches"), s.limits, s.log); err != nil {
		return nil, fmt.Errorf("open fetch cache: %w", err)
	}
	if s.looking {
		return s, nil
	}
	if err := s.finishIntents(ctx); err != nil {
		return nil, fmt.Errorf("finish what a crash left: %w", err)
	}
	if s.shared {
		s.works.Go(func() { s.sweepIntents(intentPatience) })
	}
	s.works.Go(func() { s.sweepOrphans(s.scratch.dead) })
	if s.shared {
		s.works.Go(func() { s.watchOthers(othersEvery) })
	}
	if every := s.limits.UpkeepEvery; every > 0 {
		s.works.Go(func() { s.keepUp(every) })
	}
	return s, nil
}

// Close waits for running work until ctx ends, settles what is hot, and lets go
// of all files. Later calls get ErrClosed.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.shut {
		s.mu.Unlock()
		return nil
	}
	s.shut = true
	repos := make([]*Repo, 0, len(s.repos))
	for _, r := range s.repos {
		repos = append(repos, r)
	}
	s.mu.Unlock()
	close(s.closed)
	done := make(chan struct{})
	go func() { s.works.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		s.stop()
		<-done
	}
	var errs []error
	for _, r := range repos {
		if s.looking {
			r.dir.Close()
			continue
		}
		if err := r.settleOnClose(ctx); err != nil && ctx.Err() == nil {
			errs = append(errs, err)
		}
		r.dir.Close()
	}
	s.stages.close()
	s.stop()
	s.closeReaders()
	s.fetches.close()
	s.scratch.close()
	return errors.Join(errs...)
}

// begin counts a piece of work that Close waits for; the work calls end.
func (s *Store) begin() (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return nil, ErrClosed
	}
	s.works.Add(1)
	return s.works.Done, nil
}

// work is begin for a request. Its context also ends when Close gives up waiting.
func (s *Store) work(ctx context.Context) (context.Context, func(), error) {
	end, err := s.begin()
	if err != nil {
		return ctx, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(nil); end() }, nil
}

func (s *Store) reposDir() string { return filepath.Join(s.dir, "repos") }

func (s *Store) repoDir(id string) string {
	return filepath.Join(s.reposDir(), id[len(id)-2:], id)
}
