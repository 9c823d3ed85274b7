package pebbledb

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Read implements ledger.Ledger.
func (db *DB) Read(ctx context.Context, s ledger.Space) (ledger.View, error) {
	for {
		v, f, err := db.view(ctx, s)
		if err != nil {
			return nil, err
		}
		again, err := db.landSoon(ctx, f)
		if err == nil && !again {
			return v, nil
		}
		if err = errors.Join(err, v.Close()); err != nil {
			return nil, err
		}
	}
}

// Peek implements ledger.Ledger.
func (db *DB) Peek(ctx context.Context, s ledger.Space) (ledger.View, error) {
	v, _, err := db.view(ctx, s)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// ReadKeys implements ledger.Ledger.
func (db *DB) ReadKeys(ctx context.Context, s ledger.Space, keys ...string) ([][]byte, error) {
	for {
		values, f, err := db.values(ctx, s, keys)
		if err != nil {
			return nil, err
		}
		again, err := db.landSoon(ctx, f)
		if err != nil {
			return nil, err
		}
		if !again {
			return values, nil
		}
	}
}

// PeekKeys implements ledger.Ledger.
func (db *DB) PeekKeys(ctx context.Context, s ledger.Space, keys ...string) ([][]byte, error) {
	values, _, err := db.values(ctx, s, keys)
	return values, err
}

// values reads keys of everything applied to s. They are published when the
// returned flight is durable. Under the space's lock no batch comes in between, so
// that this needs no snapshot, whose closing costs more than reading a few keys.
func (db *DB) values(ctx context.Context, name ledger.Space, keys []string) ([][]byte, *flight, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err := name.Validate(); err != nil {
		return nil, nil, err
	}
	e, err := db.enterSoon(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer db.mu.RUnlock()
	s := e.spaces.acquire(name)
	defer e.spaces.release(s)
	values := make([][]byte, len(keys))
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(keys) >= manyKeys {
		return values, s.pending, e.find(s, keys, values)
	}
	for i, key := range keys {
		if values[i], err = e.value(s, key); err != nil {
			return nil, nil, err
		}
	}
	return values, s.pending, nil
}

// find reads many keys.
func (e *engine) find(s *space, keys []string, values [][]byte) error {
	f, err := newFinder(e.pdb, s.base)
	if err != nil {
		return err
	}
	for i, key := range keys {
		if values[i], err = f.value(key); err != nil {
			return errors.Join(err, f.close())
		}
	}
	return f.close()
}

// view opens a view of everything applied to s. What it shows is published when
// the returned flight is durable.
func (db *DB) view(ctx context.Context, name ledger.Space) (*view, *flight, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err := name.Validate(); err != nil {
		return nil, nil, err
	}
	e, err := db.enterSoon(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer db.mu.RUnlock()
	s := e.spaces.acquire(name)
	defer e.spaces.release(s)
	v := &view{db: db, engine: e, name: name, base: s.base}
	s.mu.Lock()
	v.snap = e.pdb.NewSnapshot()
	f := s.pending
	s.mu.Unlock()
	e.viewsMu.Lock()
	e.views[v] = struct{}{}
	e.viewsMu.Unlock()
	return v, f, nil
}

// view is a snapshot of one space.
type view struct {
	db     *DB
	engine *engine
	name   ledger.Space
	base   []byte
	snap   *pebble.Snapshot
	closed bool
}

var _ ledger.View = (*view)(nil)

var errViewClosed = errors.New("view closed")

// enter lets a call in while the view's opening of Pebble lasts; the caller calls
// v.db.mu.RUnlock.
func (v *view) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if v.closed {
		return errViewClosed
	}
	e, err := v.db.enter()
	if err != nil {
		return err
	}
	if e != v.engine {
		v.db.mu.RUnlock()
		return fmt.Errorf("%w: the ledger was opened anew under the view", ledger.ErrUnavailable)
	}
	return nil
}

func (v *view) Get(ctx context.Context, key string) ([]byte, error) {
	if err := v.enter(ctx); err != nil {
		return nil, err
	}
	defer v.db.mu.RUnlock()
	value, err := get(v.snap, appendKey(nil, v.base, key))
	if err == nil && value == nil {
		err = ledger.ErrNotFound
	}
	return value, err
}

func (v *view) GetMany(ctx context.Context, keys ...string) ([][]byte, error) {
	if err := v.enter(ctx); err != nil {
		return nil, err
	}
	defer v.db.mu.RUnlock()
	values := make([][]byte, len(keys))
	var buf []byte
	for i, key := range keys {
		var err error
		buf = appendKey(buf[:0], v.base, key)
		if values[i], err = get(v.snap, buf); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (v *view) Scan(ctx context.Context, prefix, start string, limit int) ([]ledger.Item, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("scan with limit %d, want at least 1", limit)
	}
	if err := v.enter(ctx); err != nil {
		return nil, err
	}
	defer v.db.mu.RUnlock()
	lower := appendKey(nil, v.base, prefix)
	upper := after(lower)
	if start > prefix {
		lower = appendKey(lower[:0], v.base, start)
	}
	return v.items(lower, upper, limit)
}

func (v *view) Range(ctx context.Context, from, to string, limit int) ([]ledger.Item, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("read range with limit %d, want at least 1", limit)
	}
	if err := v.enter(ctx); err != nil {
		return nil, err
	}
	defer v.db.mu.RUnlock()
	return v.items(appendKey(nil, v.base, from), appendKey(nil, v.base, to), limit)
}

func (v *view) items(lower, upper []byte, limit int) ([]ledger.Item, error) {
	var items []ledger.Item
	err := v.iterate(lower, upper, limit, func(key, value []byte) error {
		items = append(items, ledger.Item{Key: string(key[len(v.base)+1:]), Value: append([]byte{}, value...)})
		return nil
	})
	return items, err
}

// iterate calls f for up to limit keys of [lower, upper) in their order.
func (v *view) iterate(lower, upper []byte, limit int, f func(key, value []byte) error) error {
	if string(lower) >= string(upper) {
		return nil
	}
	it, err := v.snap.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return fmt.Errorf("%w: read keys: %w", ledger.ErrUnavailable, err)
	}
	var failed error
	given, end := 0, upper
	for ok := it.First(); ok && failed == nil; ok = it.Next() {
		failed = f(it.Key(), it.Value())
		if given++; given == limit {
			end = append([]byte(nil), it.Key()...)
			break
		}
	}
	v.engine.dead.met(it.Stats().ForwardStepCount[pebble.InternalIterCall]-given, v.engine.pdb, lower, end)
	if err := it.Close(); err != nil {
		return fmt.Errorf("%w: read keys: %w", ledger.ErrUnavailable, err)
	}
	return failed
}

func (v *view) Log(ctx context.Context, after uint64, limit int) ([]ledger.Entry, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("read log with limit %d, want at least 1", limit)
	}
	if err := v.enter(ctx); err != nil {
		return nil, err
	}
	defer v.db.mu.RUnlock()
	m, err := v.meta()
	if err != nil {
		return nil, err
	}
	if after < m.trimmed {
		return nil, ledger.ErrLogTrimmed
	}
	if after >= m.last {
		return nil, nil
	}
	var entries []ledger.Entry
	err = v.iterate(appendLogKey(nil, v.base, after+1), appendLogKey(nil, v.base, m.last+1), limit, func(key, value []byte) error {
		en, err := parseEntry(key, value)
		entries = append(entries, en)
		return err
	})
	return entries, err
}

func (v *view) LastSeq(ctx context.Context) (uint64, error) {
	if err := v.enter(ctx); err != nil {
		return 0, err
	}
	defer v.db.mu.RUnlock()
	m, err := v.meta()
	return m.last, err
}

func (v *view) meta() (meta, error) {
	value, err := get(v.snap, metaKey(v.name))
	if err != nil || value == nil {
		return meta{}, err
	}
	return parseMeta(value)
}

// Close may be called at any time, also after the ledger's Close.
func (v *view) Close() error {
	if v.closed {
		return nil
	}
	v.closed = true
	v.db.mu.RLock()
	defer v.db.mu.RUnlock()
	if v.db.engine != v.engine {
		return nil // closed with its opening
	}
	v.engine.viewsMu.Lock()
	delete(v.engine.views, v)
	v.engine.viewsMu.Unlock()
	return v.snap.Close()
}
