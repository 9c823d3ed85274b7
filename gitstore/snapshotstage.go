package gitstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// A SnapshotStage is what was staged for an upload: chunks and notes. It is safe for
// concurrent use, outlives the process, and promises nothing: a chunk that did not reach
// the disk whole is not there afterwards. Stages are in no backup and in no export.
type SnapshotStage struct {
	r *Repo
	s *packs.Stage
}

// A StageKey names a chunk by the hash and the length of its content.
type StageKey = packs.StageKey

// stages are those that are open in a store, by repo and upload.
type stages struct {
	mu   sync.Mutex
	open map[stageID]*SnapshotStage
}

type stageID struct{ repo, upload string }

// OpenSnapshotStage opens what was staged for an upload, by this process or another,
// and makes it if there is nothing yet. All who ask in this process get the same one,
// until RemoveSnapshotStage.
func (r *Repo) OpenSnapshotStage(ctx context.Context, upload string) (*SnapshotStage, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	all := &r.store.stages
	all.mu.Lock()
	defer all.mu.Unlock()
	id := stageID{r.id, upload}
	if s := all.open[id]; s != nil {
		return s, nil
	}
	s, err := r.dir.OpenStage(upload)
	if err != nil {
		return nil, r.orGone(fmt.Errorf("open upload: %w", err))
	}
	if all.open == nil {
		all.open = map[stageID]*SnapshotStage{}
	}
	all.open[id] = &SnapshotStage{r, s}
	return all.open[id], nil
}

// RemoveSnapshotStage takes a stage away; one that is not there is no error.
func (r *Repo) RemoveSnapshotStage(ctx context.Context, upload string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	all := &r.store.stages
	all.mu.Lock()
	defer all.mu.Unlock()
	id := stageID{r.id, upload}
	if s := all.open[id]; s != nil {
		_ = s.s.Close() // it goes
		delete(all.open, id)
	}
	return r.orGone(r.dir.RemoveStage(upload))
}

// A StageInfo is a stage that is on disk, and how long ago it was last written to.
type StageInfo struct {
	Upload string
	Age    time.Duration
}

// SnapshotStages lists the stages of all uploads, whether there is a record of them or
// not: for whoever removes those that nobody goes on with.
func (r *Repo) SnapshotStages(ctx context.Context) ([]StageInfo, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	found, err := r.dir.Stages()
	if err != nil {
		return nil, r.orGone(err)
	}
	list := make([]StageInfo, len(found))
	for n, s := range found {
		list[n] = StageInfo{s.Name, time.Since(s.Touched)}
	}
	return list, nil
}

// close lets go of all stages. What they hold is on disk.
func (all *stages) close() {
	all.mu.Lock()
	defer all.mu.Unlock()
	for id, s := range all.open {
		_ = s.s.Close() // nothing of it is promised
		delete(all.open, id)
	}
}

// Add stages a chunk's blob under the hash of its content, which has length bytes. One
// that is there is not written again.
func (s *SnapshotStage) Add(k StageKey, blob []byte) (refpolicy.OID, error) {
	return s.s.Add(k.Hash, k.Length, blob)
}

// Has tells which chunks are staged, by place; the zero OID for those that are not.
func (s *SnapshotStage) Has(keys []StageKey) []refpolicy.OID { return s.s.Has(keys) }

// Sizes tells how many bytes the blobs of chunks have, by place; 0 for those that are not
// staged.
func (s *SnapshotStage) Sizes(keys []StageKey) []int { return s.s.Sizes(keys) }

// Note keeps small data beside the chunks, the newest for each name; Notes gives all in
// byte order of the names.
func (s *SnapshotStage) Note(name string, data []byte) error { return s.s.Note(name, data) }

// Notes calls each for the newest note of every name.
func (s *SnapshotStage) Notes(ctx context.Context, each func(name string, data []byte) error) error {
	return s.s.Notes(ctx, each)
}

// Bytes is how much is staged, as it is stored.
func (s *SnapshotStage) Bytes() int64 { return s.s.Bytes() }

// Pack turns what is staged into a pack that nobody knows of, with all chunks in it:
// more can be added before it is finished. The stage stays as it is, whatever becomes
// of the pack, and takes more chunks.
func (s *SnapshotStage) Pack(ctx context.Context) (*SnapshotPack, error) {
	w, err := s.s.Pack(ctx)
	if err != nil {
		return nil, s.r.orGone(err)
	}
	return &SnapshotPack{r: s.r, w: w}, nil
}
