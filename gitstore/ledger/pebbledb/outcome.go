package pebbledb

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// doing is what Apply has done when it waits for a flight.
type doing uint8

const (
	wroteNothing doing = iota // it tells what the flight shows
	knewAnswer                // the flight may be the batch itself, sent before
	wrote                     // the flight is the batch
)

// fate is what became of a flight whose sync failed, as the next opening finds it.
type fate uint8

const (
	unknown fate = iota
	written      // it is in the log, and durable by now
	lost         // it is not
)

func (e *engine) lose(f *flight) {
	e.lostMu.Lock()
	defer e.lostMu.Unlock()
	e.lost = append(e.lost, f)
}

func (e *engine) losses() []*flight {
	e.lostMu.Lock()
	defer e.lostMu.Unlock()
	return e.lost
}

// outcome is what Apply answers when the flight it waited for has failed with err.
// If that was for want of space, the next opening tells whether the batch was written.
func (db *DB) outcome(ctx context.Context, f *flight, did doing, err error) error {
	if !isNoSpace(err) || did == knewAnswer {
		return err
	}
	nothing := fmt.Errorf("%w: nothing was written", ledger.ErrNoSpace)
	if did == wroteNothing {
		return nothing
	}
	if db.awaitNext(ctx, f.engine) != nil {
		return err
	}
	db.mu.RLock()
	defer db.mu.RUnlock()
	switch f.fate {
	case written:
		return nil
	case lost:
		return nothing
	}
	return err
}

// judge finds out which of the flights that failed are in the log, as e has read it.
// Nothing else was applied to e yet. The log holds what was applied up to some batch
// and nothing after it: a space's meta tells which of its batches that is.
func (e *engine) judge(flights []*flight) {
	dropped := map[ledger.Space]bool{} // then its meta tells nothing
	for _, f := range flights {
		if f.meta == (meta{}) {
			dropped[f.space.name] = true
		}
	}
	for _, f := range flights {
		if dropped[f.space.name] {
			continue
		}
		var m meta
		value, err := get(e.pdb, metaKey(f.space.name))
		if err == nil && value != nil {
			m, err = parseMeta(value)
		}
		if err == nil {
			f.fate = fateOf(f, m)
		}
	}
}

// fateOf compares a flight with the meta its space has now. Two batches in one
// microsecond that write no log have the same: then it cannot be told.
func fateOf(f *flight, m meta) fate {
	switch {
	case m.isBefore(f.meta):
		return lost
	case f.meta.isBefore(m) || f.before != f.meta:
		return written
	}
	return unknown
}

// isBefore reports whether a space had m at an earlier time than other.
func (m meta) isBefore(other meta) bool {
	switch {
	case m.last != other.last:
		return m.last < other.last
	case m.at != other.at:
		return m.at < other.at
	}
	return m.trimmed < other.trimmed
}

// awaitNext waits until another opening than old serves. Errors: ErrUnavailable when
// that takes too long, ErrClosed, those of ctx.
func (db *DB) awaitNext(ctx context.Context, old *engine) error {
	timer := time.NewTimer(db.opt.patience)
	defer timer.Stop()
	for {
		db.mu.RLock()
		e, closed, changed := db.engine, db.closed, db.changed
		db.mu.RUnlock()
		switch {
		case closed:
			return ledger.ErrClosed
		case e != nil && e != old:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return fmt.Errorf("%w: it is being opened anew", ledger.ErrUnavailable)
		}
	}
}

// enterSoon is enter that waits a little for a ledger that is being opened anew.
func (db *DB) enterSoon(ctx context.Context) (*engine, error) {
	for {
		db.mu.RLock()
		if db.engine != nil || db.closed {
			break
		}
		db.mu.RUnlock()
		if err := db.awaitNext(ctx, nil); err != nil {
			return nil, err
		}
	}
	if db.closed {
		db.mu.RUnlock()
		return nil, ledger.ErrClosed
	}
	return db.engine, nil
}

// landSoon waits until f is durable. again: it failed for want of space, and the
// ledger has been opened anew since, so that what was read is to be read again.
func (db *DB) landSoon(ctx context.Context, f *flight) (again bool, err error) {
	err = f.wait(ctx)
	if err == nil || !isNoSpace(err) {
		return false, err
	}
	if db.awaitNext(ctx, f.engine) != nil {
		return false, err
	}
	return true, nil
}
