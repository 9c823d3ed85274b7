package gitstore

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// oldestSegment is the oldest segment if it is too old.
func (r *Repo) oldestSegment(ctx context.Context, v ledger.View, now time.Time) (it ledger.Item, ok bool, err error) {
	items, err := v.Scan(ctx, segmentKeys, "", 1)
	if err != nil || len(items) == 0 {
		return it, false, err
	}
	rec, err := decodeSegmentRecord(items[0].Value)
	return items[0], err == nil && now.Sub(rec.At) > r.store.limits.LogArchiveAge, err
}

// removeSegments removes the segments that are too old: first their records, so that
// nobody looks for a file that is gone.
func (r *Repo) removeSegments(ctx context.Context) error {
	for {
		it, ok, err := r.tooOld(ctx)
		if err != nil || !ok {
			return err
		}
		_, err = r.ledger.Apply(ctx, ledger.Batch{
			Space: r.space, Checks: []ledger.Check{ledger.Equal(it.Key, it.Value)}, Deletes: []string{it.Key},
		})
		var check *ledger.CheckError
		if errors.As(err, &check) {
			continue // another process came first
		}
		if err != nil {
			return err
		}
		rec, err := decodeSegmentRecord(it.Value)
		if err != nil {
			return err
		}
		if err := r.store.fs.Remove(r.store.segmentPath(r.id, rec.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

func (r *Repo) tooOld(ctx context.Context) (it ledger.Item, ok bool, err error) {
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return it, false, err
	}
	defer v.Close()
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return it, false, err
	}
	return r.oldestSegment(ctx, v, now)
}

// segmentFiles are the files in a repo's folder of old log, whole or not.
func (s *Store) segmentFiles(id string) ([]fs.DirEntry, error) {
	files, err := s.fs.ReadDir(s.segmentDir(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return files, err
}

// segmentRecords reads what is registered, by name.
func segmentRecords(ctx context.Context, v ledger.View) (map[string]bool, error) {
	items, err := scanAll(ctx, v, segmentKeys)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, it := range items {
		rec, err := decodeSegmentRecord(it.Value)
		if err != nil {
			return nil, err
		}
		names[rec.Name] = true
	}
	return names, nil
}

// sweepSegments removes files that are not registered and that nobody has touched for
// longer than grace: they will not be. On a shared folder grace is longer than
// registerWithin.
func (r *Repo) sweepSegments(ctx context.Context, grace time.Duration) error {
	files, err := r.store.segmentFiles(r.id)
	if err != nil || len(files) == 0 {
		return err
	}
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return err
	}
	defer v.Close()
	known, err := segmentRecords(ctx, v)
	if err != nil {
		return err
	}
	limit := time.Now().Add(-grace)
	for _, f := range files {
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.ModTime().After(limit) {
			continue
		}
		if err == nil && !known[strings.TrimSuffix(f.Name(), segmentEnding)] {
			err = r.store.fs.Remove(r.store.segmentFile(r.id, f.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
