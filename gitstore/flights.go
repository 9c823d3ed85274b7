package gitstore

import (
	"context"
	"sync"
)

// flights lets callers that want the same work at the same time share one run of
// it. The zero value is ready for use.
type flights[K comparable, V any] struct {
	mu      sync.Mutex // guards running and the waiters of its flights
	running map[K]*flight[V]
	work    sync.WaitGroup
}

type flight[V any] struct {
	waiters int
	cancel  context.CancelFunc
	done    chan struct{} // closed when v and err are there
	v       V
	err     error
}

// do gives what run gives for k. The run has a context of its own, which ends
// only when every caller has left: one who goes away does not fail the others.
func (f *flights[K, V]) do(ctx context.Context, k K, run func(context.Context) (V, error)) (v V, err error) {
	if err := ctx.Err(); err != nil {
		return v, context.Cause(ctx)
	}
	fl := f.join(ctx, k, run)
	select {
	case <-fl.done:
		return fl.v, fl.err
	case <-ctx.Done():
		f.leave(k, fl)
		return v, context.Cause(ctx)
	}
}

func (f *flights[K, V]) join(ctx context.Context, k K, run func(context.Context) (V, error)) *flight[V] {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl, ok := f.running[k]; ok {
		fl.waiters++
		return fl
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	fl := &flight[V]{waiters: 1, cancel: cancel, done: make(chan struct{})}
	if f.running == nil {
		f.running = map[K]*flight[V]{}
	}
	f.running[k] = fl
	f.work.Go(func() {
		defer cancel()
		fl.v, fl.err = run(ctx)
		f.mu.Lock()
		f.forget(k, fl)
		f.mu.Unlock()
		close(fl.done)
	})
	return fl
}

// leave counts a caller out. The last one cancels the run, and a new caller does not join it.
func (f *flights[K, V]) leave(k K, fl *flight[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl.waiters--; fl.waiters == 0 {
		fl.cancel()
		f.forget(k, fl)
	}
}

func (f *flights[K, V]) forget(k K, fl *flight[V]) {
	if f.running[k] == fl {
		delete(f.running, k)
	}
}

// wait waits for the runs that are still ending. No new one may begin.
func (f *flights[K, V]) wait() { f.work.Wait() }
