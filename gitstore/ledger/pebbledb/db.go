package pebbledb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/headgate/headgate/gitstore/ledger"
)

// ErrInUse: another DB, mostly of another process, has the folder open.
var ErrInUse = errors.New("ledger folder is in use")

// DB is a ledger in one folder, which it locks against other processes.
type DB struct {
	dir      string
	opt      Options
	cache    *pebble.Cache
	lock     io.Closer
	clock    clock
	watchers watchers
	disk     disk

	// mu is read-locked by every call that is inside the engine and write-locked to
	// exchange or end it. It is taken before every other lock and never twice.
	mu      sync.RWMutex
	engine  *engine // nil while it is being opened anew, and after Close
	closed  bool
	changed chan struct{} // closed, and another made, when engine or closed change
	lost    []*flight     // those that failed in openings that have ended; the keeper's

	batches atomic.Uint64
	reopens atomic.Uint64

	kick       chan struct{} // wakes the keeper: the disk is full or has failed
	stop       chan struct{} // ends the keeper
	keeperDone sync.WaitGroup
}

var _ ledger.Ledger = (*DB)(nil)

// Open opens the ledger in dir, which it makes if need be. A disk too full for it
// is ErrNoSpace, even when the reserve has been given up.
func Open(dir string, o Options) (*DB, error) {
	o = o.withDefaults()
	db := &DB{dir: dir, opt: o, kick: make(chan struct{}, 1), stop: make(chan struct{}), changed: make(chan struct{})}
	db.clock.source = o.Clock
	db.disk.init(dir, o)
	if err := o.FS.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder %s: %w", dir, noSpace(err))
	}
	lock, err := o.FS.Lock(o.FS.PathJoin(dir, "LOCK"))
	if err != nil {
		var path *fs.PathError // anything else was told by the lock itself
		if !errors.As(err, &path) {
			err = fmt.Errorf("%w: %w", ErrInUse, err)
		}
		return nil, fmt.Errorf("lock folder %s: %w", dir, noSpace(err))
	}
	db.lock = lock
	// Pebble takes its memory tables out of the cache's account.
	db.cache = pebble.NewCache(o.CacheBytes + 2*memTableBytes)
	if err := db.start(); err != nil {
		db.cache.Unref()
		return nil, errors.Join(err, lock.Close())
	}
	return db, nil
}

func (db *DB) start() error {
	if err := db.beginLoad(); err != nil {
		return noSpace(err)
	}
	if err := db.disk.makeRoom(); err != nil {
		return noSpace(err)
	}
	e, err := openEngine(db, db.newGuard())
	if err != nil {
		return noSpace(err)
	}
	db.engine = e
	db.disk.look()
	db.keeperDone.Go(db.keep)
	return nil
}

// enter lets a call into the engine; the caller calls db.mu.RUnlock at its end.
func (db *DB) enter() (*engine, error) {
	db.mu.RLock()
	if db.closed {
		db.mu.RUnlock()
		return nil, ledger.ErrClosed
	}
	if db.engine == nil {
		db.mu.RUnlock()
		return nil, fmt.Errorf("%w: it is being opened anew", ledger.ErrUnavailable)
	}
	return db.engine, nil
}

// serve lets calls into another opening, or none; db.mu is write-locked.
func (db *DB) serve(e *engine) {
	db.engine = e
	close(db.changed)
	db.changed = make(chan struct{})
}

// writable says why a batch cannot be applied now, nil if it can.
func (db *DB) writable(e *engine) error {
	if err := e.refusal(); err != nil {
		return err
	}
	return db.disk.refusal()
}

// Now implements ledger.Ledger.
func (db *DB) Now(ctx context.Context) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.closed {
		return time.Time{}, ledger.ErrClosed
	}
	return timeOf(db.clock.now()), nil
}

// Close ends the ledger. Batches in flight are waited for.
func (db *DB) Close() error {
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		return ledger.ErrClosed
	}
	db.closed = true
	e := db.engine
	db.serve(nil)
	db.mu.Unlock()
	close(db.stop)
	db.keeperDone.Wait()
	db.watchers.close()
	var err error
	if e != nil {
		err = db.closeEngine(e)
	}
	db.cache.Unref()
	return errors.Join(err, db.lock.Close())
}

// closeEngine closes e after noting the clock, so that times told without a batch
// are not told again.
func (db *DB) closeEngine(e *engine) error {
	if failed := e.guard.failure(); failed != nil {
		db.abandon(e)
		return nil // what could not be written has been answered so
	}
	err := e.pdb.Set(clockKey, clockValue(db.clock.last.Load()), pebble.Sync)
	return errors.Join(err, e.close())
}

func clockValue(micros int64) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(micros))
}
