package pebbledb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger"
)

var _ ledger.Bulk = (*DB)(nil)

// loadingName is a file that stands beside the ledger's own while it is being loaded.
const loadingName = "LOADING"

// beginLoad refuses to open a ledger whose loading was not finished, and with
// Options.Loading one that is not new.
func (db *DB) beginLoad() error {
	names, err := db.opt.FS.List(db.dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", db.dir, err)
	}
	old := false
	for _, name := range names {
		if name == loadingName {
			return fmt.Errorf("%w: delete the folder %s, then begin again", ledger.ErrUnfinished, db.dir)
		}
		old = old || name != "LOCK"
	}
	if !db.opt.Loading {
		return nil
	}
	if old {
		return fmt.Errorf("%w: %s", ledger.ErrNotEmpty, db.dir)
	}
	f, err := db.opt.FS.Create(db.disk.path(loadingName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("begin loading: %w", err)
	}
	return errors.Join(f.Sync(), f.Close(), db.syncDir())
}

func (db *DB) syncDir() error {
	dir, err := db.opt.FS.OpenDir(db.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// FinishLoad implements ledger.Bulk.
func (db *DB) FinishLoad(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e, err := db.enter()
	if err != nil {
		return err
	}
	defer db.mu.RUnlock()
	if err := e.refusal(); err != nil {
		return err
	}
	if err := db.opt.FS.Remove(db.disk.path(loadingName)); err != nil {
		return fmt.Errorf("finish loading: %w", err)
	}
	return db.syncDir()
}

// Spaces implements ledger.Bulk; they come in byte order.
func (db *DB) Spaces(ctx context.Context, fn func(ledger.Space) error) error {
	for from := metaKey(""); ; {
		page, err := db.spacePage(ctx, from)
		if err != nil {
			return err
		}
		for _, s := range page {
			if err := fn(s); err != nil {
				return err
			}
		}
		if len(page) < ledger.ChunkCount {
			return nil
		}
		from = append(metaKey(page[len(page)-1]), 0)
	}
}

// spacePage lists spaces whose meta key is at or after from.
func (db *DB) spacePage(ctx context.Context, from []byte) ([]ledger.Space, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := db.enter()
	if err != nil {
		return nil, err
	}
	defer db.mu.RUnlock()
	it, err := e.pdb.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: []byte{metaPrefix + 1}})
	if err != nil {
		return nil, fmt.Errorf("%w: list spaces: %w", ledger.ErrUnavailable, err)
	}
	var page []ledger.Space
	for ok := it.First(); ok && len(page) < ledger.ChunkCount; ok = it.Next() {
		page = append(page, ledger.Space(it.Key()[1:]))
	}
	if err := it.Close(); err != nil {
		return nil, fmt.Errorf("%w: list spaces: %w", ledger.ErrUnavailable, err)
	}
	return page, nil
}

// Dump implements ledger.Bulk.
func (db *DB) Dump(ctx context.Context, s ledger.Space) (ledger.Dump, error) {
	v, f, err := db.view(ctx, s)
	if err != nil {
		return nil, err
	}
	d := &dump{v: v}
	err = f.wait(ctx)
	if err == nil {
		err = d.begin(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return d, nil
}

// dump is a view with what a view does not tell.
type dump struct {
	v    *view
	meta meta
}

var _ ledger.Dump = (*dump)(nil)

func (d *dump) begin(ctx context.Context) error {
	if err := d.v.enter(ctx); err != nil {
		return err
	}
	defer d.v.db.mu.RUnlock()
	value, err := get(d.v.snap, metaKey(d.v.name))
	if err != nil {
		return err
	}
	if value == nil {
		return fmt.Errorf("space %s: %w", d.v.name, ledger.ErrNotFound)
	}
	d.meta, err = parseMeta(value)
	return err
}

func (d *dump) State() ledger.State {
	return ledger.State{LastSeq: d.meta.last, Trimmed: d.meta.trimmed, At: timeOf(d.meta.at)}
}

// errEnough ends an iteration when a chunk is full.
var errEnough = errors.New("chunk is full")

func (d *dump) Items(ctx context.Context, start string) (items []ledger.Item, next string, err error) {
	if err := d.v.enter(ctx); err != nil {
		return nil, "", err
	}
	defer d.v.db.mu.RUnlock()
	lower, upper := appendKey(nil, d.v.base, start), after(appendKey(nil, d.v.base, ""))
	size := 0
	err = d.v.iterate(lower, upper, ledger.ChunkCount, func(key, value []byte) error {
		items = append(items, ledger.Item{Key: string(key[len(d.v.base)+1:]), Value: append([]byte{}, value...)})
		if size += len(key) + len(value); size >= ledger.ChunkBytes {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, "", err
	}
	if n := len(items); n == ledger.ChunkCount || err != nil {
		next = items[n-1].Key + "\x00"
	}
	return items, next, nil
}

func (d *dump) Log(ctx context.Context, after uint64) (entries []ledger.Entry, err error) {
	if err := d.v.enter(ctx); err != nil {
		return nil, err
	}
	defer d.v.db.mu.RUnlock()
	if after < d.meta.trimmed {
		return nil, ledger.ErrLogTrimmed
	}
	if after >= d.meta.last {
		return nil, nil
	}
	size := 0
	lower, upper := appendLogKey(nil, d.v.base, after+1), appendLogKey(nil, d.v.base, d.meta.last+1)
	err = d.v.iterate(lower, upper, ledger.ChunkCount, func(key, value []byte) error {
		en, err := parseEntry(key, value)
		if err != nil {
			return err
		}
		entries = append(entries, en)
		if size += len(value); size >= ledger.ChunkBytes {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return entries, nil
}

func (d *dump) Close() error { return d.v.Close() }

// Load implements ledger.Bulk.
func (db *DB) Load(ctx context.Context, s ledger.Space, c ledger.Chunk) error {
	return db.cut(ctx, s, func(e *engine, s *space) (*flight, error) {
		if err := db.disk.refusal(); err != nil {
			return nil, err
		}
		if s.meta != (meta{}) {
			return nil, fmt.Errorf("%w: space %s", ledger.ErrNotEmpty, s.name)
		}
		return e.loadChunk(s, c)
	})
}

func (e *engine) loadChunk(s *space, c ledger.Chunk) (*flight, error) {
	pb := e.pdb.NewBatch()
	var err error
	for i := range c.Items {
		s.key = appendKey(s.key[:0], s.base, c.Items[i].Key)
		err = errors.Join(err, pb.Set(s.key, c.Items[i].Value, nil))
		e.recent.forget(s.key)
	}
	var value []byte
	for i := range c.Log {
		s.key = appendLogKey(s.key[:0], s.base, c.Log[i].Seq)
		value = binary.BigEndian.AppendUint64(value[:0], uint64(c.Log[i].At.UnixMicro()))
		err = errors.Join(err, pb.Set(s.key, append(value, c.Log[i].Data...), nil))
	}
	if c.State == nil {
		if err != nil {
			return nil, fmt.Errorf("build batch: %w", err)
		}
		return e.launchBare(s, pb, meta{}, false)
	}
	m := meta{last: c.State.LastSeq, trimmed: c.State.Trimmed, at: c.State.At.UnixMicro()}
	e.db.clock.notBefore(m.at)
	err = errors.Join(err, pb.Set(clockKey, clockValue(e.db.clock.last.Load()), nil))
	if err != nil {
		return nil, fmt.Errorf("build batch: %w", err)
	}
	return e.launch(s, pb, m, false)
}
