package pebbledb

import (
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

func (db *DB) newGuard() *guard { return newGuard(db.opt.FS, db.onFailure, db.onNoSpace) }

// onFailure and onNoSpace are called by the guard from Pebble's goroutines.
func (db *DB) onFailure(err error) {
	db.opt.Logger.Error("ledger: the disk failed; no batch is applied until it is opened anew", "dir", db.dir, "error", err.Error())
	db.wakeKeeper()
}

func (db *DB) onNoSpace() {
	db.disk.full.Store(true)
	db.wakeKeeper()
}

func (db *DB) wakeKeeper() {
	select {
	case db.kick <- struct{}{}:
	default:
	}
}

// keep looks after the disk until stop: it measures the free space, gives up the
// reserve and makes it again, and opens the engine anew after a failure.
func (db *DB) keep() {
	ticker := time.NewTicker(db.opt.checkEvery)
	defer ticker.Stop()
	for {
		select {
		case <-db.stop:
			return
		case <-ticker.C:
		case <-db.kick:
		}
		db.disk.look()
		if db.needsReopen() {
			db.reopen()
		}
	}
}

func (db *DB) needsReopen() bool {
	db.mu.RLock()
	defer db.mu.RUnlock()
	return !db.closed && (db.engine == nil || db.engine.guard.failure() != nil)
}

// reopen exchanges the failed engine for a new one, if the disk can be written.
// Until then the old one serves reads. When the new one does not open, the keeper
// comes back at its next round.
func (db *DB) reopen() {
	if err := db.disk.makeRoom(); err != nil {
		db.opt.Logger.Warn("ledger: the disk cannot be written yet", "dir", db.dir, "error", err.Error())
		return
	}
	db.mu.Lock()
	old := db.engine
	db.serve(nil)
	db.mu.Unlock()
	if old != nil {
		db.abandon(old)
		db.lost = append(db.lost, old.losses()...)
	}
	e, err := db.openOrStop()
	if err != nil {
		db.opt.Logger.Warn("ledger: opening anew", "dir", db.dir, "error", err.Error())
		return
	}
	db.disk.look()
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		if err := e.close(); err != nil {
			db.opt.Logger.Warn("ledger: close", "dir", db.dir, "error", err.Error())
		}
		return
	}
	e.judge(db.lost)
	db.lost = nil
	db.serve(e)
	db.mu.Unlock()
	db.reopens.Add(1)
	db.opt.Logger.Info("ledger: opened anew", "dir", db.dir)
	// A batch that answered ErrUnavailable may have turned out to be in the log.
	db.watchers.wakeAll()
}

// openOrStop opens an engine unless the ledger is closed meanwhile. An opening that
// cannot end by itself is then left behind, fenced.
func (db *DB) openOrStop() (*engine, error) {
	g := db.newGuard()
	var e *engine
	var err error
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		e, err = openEngine(db, g)
	}()
	select {
	case <-opened:
		return e, err
	case <-db.stop:
	}
	g.fence()
	timer := time.NewTimer(abandonAfter)
	defer timer.Stop()
	select {
	case <-opened:
		if e != nil {
			db.abandon(e)
		}
	case <-timer.C:
	}
	return nil, ledger.ErrClosed
}

// abandonAfter bounds how long a failed opening may take to close. One that hangs
// is left behind fenced: it keeps its memory, and can do no other harm.
const abandonAfter = 5 * time.Second

func (db *DB) abandon(e *engine) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		defer func() {
			if r := recover(); r != nil {
				db.opt.Logger.Warn("ledger: close after failure", "dir", db.dir, "panic", r)
			}
		}()
		if err := e.close(); err != nil {
			db.opt.Logger.Debug("ledger: close after failure", "dir", db.dir, "error", err.Error())
		}
	}()
	timer := time.NewTimer(abandonAfter)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
		db.opt.Logger.Warn("ledger: a failed opening does not close; it is left behind", "dir", db.dir)
	}
	e.guard.fence()
}
