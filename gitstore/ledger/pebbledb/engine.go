package pebbledb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/headgate/headgate/gitstore/ledger"
)

// engine is one opening of Pebble with what is known of its spaces. It is used
// under DB.mu and thrown away as a whole when the disk has failed under it.
type engine struct {
	pdb   *pebble.DB
	guard *guard
	db    *DB

	spaces spaceTable
	// flights takes applied batches in the order of their application to the syncer.
	flights chan *flight
	syncer  sync.WaitGroup

	recent *recent
	dead   *deadKeys

	ids   *idFilter
	swept atomic.Uint32 // the newest slot for which old batch ids were dropped

	viewsMu sync.Mutex // guards views
	views   map[*view]struct{}

	lostMu sync.Mutex // guards lost
	lost   []*flight  // those whose sync failed, in order
}

// maxFlights is more than Pebble lets be unsynced at once, so that sending to
// flights never waits.
const maxFlights = 8 << 10

// flight is a batch between its application and the end of its sync.
type flight struct {
	batch        *pebble.Batch
	engine       *engine
	space        *space
	logged       bool
	before, meta meta          // of the space, without and with the batch
	done         chan struct{} // closed when err is final
	err          error         // nil: the batch is durable
	fate         fate          // once another opening serves; guarded by DB.mu
}

// landed reports without waiting whether f is durable, or that it never will be.
func (f *flight) landed() (over bool, err error) {
	if f == nil {
		return true, nil
	}
	select {
	case <-f.done:
		return true, f.err
	default:
		return false, nil
	}
}

// openEngine opens Pebble on db's folder, over g. What the log holds beyond the
// last sync is written to tables and synced before it returns, so that everything
// that can be read then is durable. It takes as long as there is no space for them.
func openEngine(db *DB, g *guard) (e *engine, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, err = nil, fmt.Errorf("open pebble: %v", r)
		}
		if err != nil {
			g.fence()
		}
	}()
	pdb, err := pebble.Open(db.dir, pebbleOptions(g, db.cache, db.opt.Logger))
	if err != nil {
		return nil, fmt.Errorf("open pebble: %w", err)
	}
	if err := g.failure(); err != nil {
		g.fence()
		return nil, errors.Join(fmt.Errorf("open pebble: %w", err), pdb.Close())
	}
	e = &engine{
		pdb: pdb, guard: g, db: db,
		flights: make(chan *flight, maxFlights), views: map[*view]struct{}{},
		recent: newRecent(), dead: newDeadKeys(),
	}
	e.spaces.states = map[ledger.Space]*space{}
	e.syncer.Go(e.sync)
	if err := e.restore(); err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger: %w", err), e.close())
	}
	return e, nil
}

// restore takes up the clock and the batch ids where the ledger has left them.
func (e *engine) restore() error {
	last, err := e.lastTime()
	if err != nil {
		return err
	}
	e.db.clock.notBefore(last)
	return e.loadIDs(slotOf(e.db.clock.now()))
}

// lastTime is the newest time that a batch or an orderly end has left behind.
func (e *engine) lastTime() (int64, error) {
	var last int64
	v, err := get(e.pdb, clockKey)
	if err != nil {
		return 0, err
	}
	if len(v) == 8 {
		last = int64(binary.BigEndian.Uint64(v))
	}
	it, err := e.pdb.NewIter(&pebble.IterOptions{LowerBound: []byte{metaPrefix}, UpperBound: []byte{metaPrefix + 1}})
	if err != nil {
		return 0, fmt.Errorf("read spaces: %w", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		m, err := parseMeta(it.Value())
		if err != nil {
			return 0, errors.Join(err, it.Close())
		}
		last = max(last, m.at)
	}
	return last, it.Close()
}

// sync ends flights one after the other. Pebble syncs its log in order, so one
// sync ends many.
func (e *engine) sync() {
	for f := range e.flights {
		err := f.batch.SyncWait()
		if failed := e.guard.failure(); failed != nil {
			err = failed
		}
		if err != nil {
			// The space stays in the table for good: it is how Read knows.
			f.err = fmt.Errorf("%w: batch not synced: %w", ledger.ErrUnavailable, err)
			e.lose(f)
			close(f.done)
			continue
		}
		_ = f.batch.Close() // gives its memory back, has nothing else to tell
		f.batch = nil
		close(f.done)
		if f.logged {
			e.db.watchers.wake(f.space.name)
		}
		e.spaces.release(f.space)
	}
}

// refusal is why nothing can be written now, nil if it can.
func (e *engine) refusal() error {
	err := e.guard.failure()
	if err == nil {
		return nil
	}
	if isNoSpace(err) {
		return fmt.Errorf("%w: %w", ledger.ErrNoSpace, err)
	}
	return fmt.Errorf("%w: %w", ledger.ErrUnavailable, err)
}

// close ends e. Nobody is inside it any more: DB.mu was write-locked since e was
// taken out of the DB.
func (e *engine) close() error {
	close(e.flights)
	e.syncer.Wait()
	e.dead.close()
	for v := range e.views {
		_ = v.snap.Close()
	}
	if err := e.pdb.Close(); err != nil {
		return fmt.Errorf("close pebble: %w", err)
	}
	return nil
}

// value returns what stands under key of s, nil for nothing. The space's lock is held.
func (e *engine) value(s *space, key string) ([]byte, error) {
	s.key = appendKey(s.key[:0], s.base, key)
	if v, known := e.recent.value(s.key); known {
		return v, nil
	}
	v, err := get(e.pdb, s.key)
	if v != nil {
		e.recent.keep(s.key, v)
	}
	return v, err
}

// get returns what stands under key among everything applied; nil for nothing.
func get(r pebble.Reader, key []byte) ([]byte, error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read key: %w", ledger.ErrUnavailable, err)
	}
	out := append(make([]byte, 0, len(v)), v...)
	return out, closer.Close()
}
