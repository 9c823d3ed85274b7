package gitstore

import (
	"fmt"
	"path/filepath"

	"github.com/headgate/headgate/refpolicy"
)

// readers is what reading keeps between requests. All of it follows from the ids
// of objects alone, so it is shared by all repos and never grows stale; whoever
// asks has resolved the commit it asks about.
type readers struct {
	blobs   *blobCache
	diffs   *lru[diffKey, *Diff]
	diffing flights[diffKey, *Diff]
	changes *lru[pathKey, CommitInfo]
	bases   *lru[[2]refpolicy.OID, mergeBase]
	pauses  *lru[pauseKey, *historyWalk]
}

// What the caches without a limit of their own may take.
const (
	mergeBaseCacheBytes = 1 << 20
	pausedWalksBytes    = 64 << 20
)

// openReaders makes the caches; large blobs left by an earlier process are removed.
func (s *Store) openReaders() error {
	blobs, err := openBlobCache(filepath.Join(s.scratch.path, "blobs"), s.limits.BlobCacheBytes)
	if err != nil {
		return fmt.Errorf("open blob cache: %w", err)
	}
	s.readers.blobs = blobs
	s.readers.diffs = newLRU[diffKey, *Diff](s.limits.CacheBytes / 2)
	s.readers.changes = newLRU[pathKey, CommitInfo](s.limits.CacheBytes / 4)
	s.readers.bases = newLRU[[2]refpolicy.OID, mergeBase](mergeBaseCacheBytes)
	s.readers.pauses = newLRU[pauseKey, *historyWalk](pausedWalksBytes)
	return nil
}

// closeReaders waits for shared work that its callers have left.
func (s *Store) closeReaders() {
	s.readers.diffing.wait()
	s.readers.blobs.close()
}
