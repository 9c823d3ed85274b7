package pebbledb

import (
	"context"
	"sync"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Watch implements ledger.Ledger.
func (db *DB) Watch(ctx context.Context, s ledger.Space) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return db.watchers.add(ctx, s)
}

// watchers are the channels to wake by space.
type watchers struct {
	mu      sync.Mutex
	bySpace map[ledger.Space]map[*watcher]struct{}
	closed  bool
}

// watcher's channel holds one wake-up at most: one that waits says all that more
// would say.
type watcher struct {
	ch   chan struct{}
	stop func() bool // ends the waiting for the context
}

func (w *watchers) add(ctx context.Context, s ledger.Space) (<-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, ledger.ErrClosed
	}
	one := &watcher{ch: make(chan struct{}, 1)}
	if w.bySpace == nil {
		w.bySpace = map[ledger.Space]map[*watcher]struct{}{}
	}
	if w.bySpace[s] == nil {
		w.bySpace[s] = map[*watcher]struct{}{}
	}
	w.bySpace[s][one] = struct{}{}
	one.stop = context.AfterFunc(ctx, func() { w.remove(s, one) })
	return one.ch, nil
}

func (w *watchers) remove(s ledger.Space, one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.bySpace[s][one]; !there {
		return
	}
	delete(w.bySpace[s], one)
	if len(w.bySpace[s]) == 0 {
		delete(w.bySpace, s)
	}
	close(one.ch)
}

func (w *watchers) wake(s ledger.Space) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.bySpace[s] {
		one.wake()
	}
}

// wakeAll is for when it is not known whose log has grown.
func (w *watchers) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, all := range w.bySpace {
		for one := range all {
			one.wake()
		}
	}
}

func (one *watcher) wake() {
	select {
	case one.ch <- struct{}{}:
	default:
	}
}

func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, all := range w.bySpace {
		for one := range all {
			one.stop()
			close(one.ch)
		}
	}
	w.bySpace = nil
}
