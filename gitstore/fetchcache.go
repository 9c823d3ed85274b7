package gitstore

import (
	"container/list"
	"context"
	"crypto/sha256"
	"log/slog"
	"math"
	"os"
	"sync"
	"syscall"
	"time"
)

// fetchKey is a hash of all that an answer to a fetch depends on.
type fetchKey [sha256.Size]byte

// fetchCache lets equal fetches share one running git process, and keeps what it
// answered on disk for a while. Whoever joins has been found to have a right to
// everything that the key holds.
type fetchCache struct {
	dir    string
	limits Limits
	log    *slog.Logger
	create func() (spoolFile, error)
	space  func(dir string) int64 // free bytes on the disk

	closing sync.WaitGroup // files that are being removed, which takes its time for large ones

	mu      sync.Mutex // guards all below and what answers say; taken before a spool's
	stats   FetchStats
	answers map[fetchKey]*fetchAnswer
	idle    *list.List // of complete *fetchAnswer that nobody reads; front: read last
	looked  time.Time  // when the disk's free space was looked at
	unseen  int64      // bytes kept since then
	scarce  bool       // it was too little
}

// A fetchAnswer is what git says to one fetch, or said.
type fetchAnswer struct {
	f      *fetchCache
	key    fetchKey
	spool  *fetchSpool
	ctx    context.Context // of the process; ends when nobody is left who reads
	cancel context.CancelCauseFunc

	// Guarded by f.mu.
	readers int
	listed  bool // can be joined
	ended   bool // the process did
	bytes   int64
	place   *list.Element // in idle
	expiry  *time.Timer   // while in idle
}

// fetchAnswersMost bounds how many answers, each of which is an open file, are kept.
const fetchAnswersMost = 1024

func newFetchCache(dir string, l Limits, log *slog.Logger) (*fetchCache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &fetchCache{
		dir: dir, limits: l, log: log, create: func() (spoolFile, error) { return nameless(dir) }, space: freeSpace,
		answers: map[fetchKey]*fetchAnswer{}, idle: list.New(),
	}, nil
}

// freeSpace is what is free on dir's disk; a disk that does not tell has enough.
func freeSpace(dir string) int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return math.MaxInt64
	}
	return int64(st.Bavail) * st.Bsize
}

// join gives the answer to a fetch, for the caller to read and then to leave. If begun
// is true nobody makes it yet and the caller has to see to it; ctx gives a.ctx its values.
func (f *fetchCache) join(ctx context.Context, key fetchKey) (a *fetchAnswer, r *spoolReader, begun bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a = f.answers[key]
	switch {
	case a == nil:
		begun = true
		f.stats.Started++
		a = f.add(ctx, key)
	case a.ended:
		f.stats.Served++
		f.unrest(a)
	default:
		f.stats.Joined++
	}
	a.readers++
	return a, a.spool.newReader(), begun
}

func (f *fetchCache) add(ctx context.Context, key fetchKey) *fetchAnswer {
	for len(f.answers) >= fetchAnswersMost && f.evict() {
	}
	a := &fetchAnswer{f: f, key: key, listed: true}
	a.ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	a.spool = newFetchSpool(f.create, a.room, a.direct)
	f.answers[key] = a
	return a
}

// room takes n bytes more on disk.
func (a *fetchAnswer) room(n int64) bool {
	f := a.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.bytes+n > f.limits.FetchAnswerBytes {
		return false
	}
	for f.stats.Bytes+n > f.limits.FetchCacheBytes || f.isScarce(n) {
		if !f.evict() {
			return false
		}
	}
	f.stats.Bytes += n
	a.bytes += n
	return true
}

// How old, and of how many bytes ago, what is known of the disk's free space may be.
const (
	spaceFor   = time.Second
	spaceBytes = 64 << 20
)

// isScarce reports whether the disk has too little room for n bytes more. Called with mu held.
func (f *fetchCache) isScarce(n int64) bool {
	f.unseen += n
	if f.scarce || f.unseen > spaceBytes || time.Since(f.looked) > spaceFor {
		f.looked, f.unseen = time.Now(), n
		f.scarce = f.space(f.dir)-n < f.limits.FetchSpareBytes
	}
	return f.scarce
}

// direct lets nobody join any more: a late reader could not be given the start.
func (a *fetchAnswer) direct(err error) {
	if err != nil {
		a.f.log.Warn("fetch is answered without being kept", "error", err)
	}
	a.f.mu.Lock()
	defer a.f.mu.Unlock()
	a.unlist()
	a.f.stats.Dropped++
}

// finish notes that the process has ended. Only a whole answer is kept.
func (a *fetchAnswer) finish(err error) {
	a.cancel(nil)
	a.f.mu.Lock()
	defer a.f.mu.Unlock()
	a.ended = true
	if err != nil {
		a.unlist()
	}
	a.spool.end(err)
	a.settle()
}

// leave counts a reader out. The last one ends the process.
func (a *fetchAnswer) leave(r *spoolReader) {
	r.leave()
	a.f.mu.Lock()
	defer a.f.mu.Unlock()
	if a.readers--; a.readers == 0 && !a.ended {
		a.unlist()
		a.cancel(errNoReaders)
	}
	a.settle()
}

// settle decides what becomes of an answer that nobody reads. Called with f.mu held.
func (a *fetchAnswer) settle() {
	switch {
	case a.readers > 0 || !a.ended:
	case a.listed:
		a.f.rest(a)
	default:
		a.discard()
	}
}

// rest keeps an answer until it is evicted or expires. Called with mu held.
func (f *fetchCache) rest(a *fetchAnswer) {
	a.place = f.idle.PushFront(a)
	place := a.place
	a.expiry = time.AfterFunc(f.limits.FetchCacheFor, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if a.place == place {
			f.forget(a)
		}
	})
}

// unrest is for an answer that is read again. Called with mu held.
func (f *fetchCache) unrest(a *fetchAnswer) {
	if a.place == nil {
		return
	}
	a.expiry.Stop()
	f.idle.Remove(a.place)
	a.place = nil
}

// forget removes an answer that nobody reads. Called with mu held.
func (f *fetchCache) forget(a *fetchAnswer) {
	f.unrest(a)
	a.unlist()
	a.discard()
}

// evict removes the answer that was read longest ago; false if all are being read.
// Called with mu held.
func (f *fetchCache) evict() bool {
	oldest := f.idle.Back()
	if oldest == nil {
		return false
	}
	f.forget(oldest.Value.(*fetchAnswer))
	f.looked = time.Time{} // there may be enough now
	return true
}

// unlist lets nobody join any more. Called with f.mu held.
func (a *fetchAnswer) unlist() {
	if a.listed {
		a.listed = false
		delete(a.f.answers, a.key)
	}
}

// discard gives up the bytes on disk. Called with f.mu held.
func (a *fetchAnswer) discard() {
	a.f.closing.Go(a.spool.close)
	a.f.stats.Bytes -= a.bytes
	a.bytes = 0
}

// close gives up all that is kept. Nobody may join any more.
func (f *fetchCache) close() {
	f.mu.Lock()
	for f.evict() {
	}
	f.mu.Unlock()
	f.closing.Wait()
}

// FetchStats tell how fetches that end in a pack were answered.
type FetchStats struct {
	Started uint64 // by a git process of their own
	Joined  uint64 // by one that ran for an equal fetch
	Served  uint64 // from disk, with what an equal fetch was answered
	Dropped uint64 // of those started: answers that were too large to keep, or for which there was no room
	Bytes   int64  // on disk now
}

// FetchStats tells of all fetches since the store was opened.
func (s *Store) FetchStats() FetchStats {
	s.fetches.mu.Lock()
	defer s.fetches.mu.Unlock()
	return s.fetches.stats
}
