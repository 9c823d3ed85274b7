package pebbledb

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Drop implements ledger.Ledger. It goes on when there is little space, since it
// makes some.
func (db *DB) Drop(ctx context.Context, name ledger.Space) error {
	return db.cut(ctx, name, (*engine).drop)
}

// TrimLog implements ledger.Ledger. It goes on when there is little space.
func (db *DB) TrimLog(ctx context.Context, name ledger.Space, before uint64) error {
	return db.cut(ctx, name, func(e *engine, s *space) (*flight, error) { return e.trim(s, before) })
}

// cut does f under the lock of a space and waits for what it did.
func (db *DB) cut(ctx context.Context, name ledger.Space, f func(*engine, *space) (*flight, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := name.Validate(); err != nil {
		return err
	}
	fl, err := db.cutStep(name, f)
	if err != nil {
		return err
	}
	return fl.wait(ctx)
}

func (db *DB) cutStep(name ledger.Space, f func(*engine, *space) (*flight, error)) (*flight, error) {
	e, err := db.enter()
	if err != nil {
		return nil, err
	}
	defer db.mu.RUnlock()
	if err := e.refusal(); err != nil {
		return nil, err
	}
	s := e.spaces.acquire(name)
	defer e.spaces.release(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := e.load(s); err != nil {
		return nil, err
	}
	return f(e, s)
}

// drop removes all of a space. The clock is kept beside it, since the space's own
// last time goes.
func (e *engine) drop(s *space) (*flight, error) {
	pb := e.pdb.NewBatch()
	now := e.db.clock.now()
	slot := slotOf(now)
	ranges := [][]byte{s.base}
	for _, sl := range [2]uint32{slot, slot - 1} {
		ranges = append(ranges, appendSpace(appendSlot(nil, sl), s.name))
	}
	for _, prefix := range ranges {
		if err := pb.DeleteRange(prefix, after(prefix), nil); err != nil {
			return nil, fmt.Errorf("build batch: %w", err)
		}
	}
	if err := pb.Delete(metaKey(s.name), nil); err != nil {
		return nil, fmt.Errorf("build batch: %w", err)
	}
	if err := pb.Set(clockKey, clockValue(now), nil); err != nil {
		return nil, fmt.Errorf("build batch: %w", err)
	}
	e.recent.forgetAll(s.base)
	return e.launchBare(s, pb, meta{}, true)
}

func (e *engine) trim(s *space, before uint64) (*flight, error) {
	if before > s.meta.last {
		before = s.meta.last + 1
	}
	if before <= s.meta.trimmed+1 {
		return s.pending, nil
	}
	pb := e.pdb.NewBatch()
	from, to := appendLogKey(nil, s.base, s.meta.trimmed+1), appendLogKey(nil, s.base, before)
	if err := pb.DeleteRange(from, to, nil); err != nil {
		return nil, fmt.Errorf("build batch: %w", err)
	}
	m := s.meta
	m.trimmed = before - 1
	return e.launch(s, pb, m, false)
}
