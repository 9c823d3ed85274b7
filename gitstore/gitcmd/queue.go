package gitcmd

import (
	"context"
	"slices"
	"sync"
	"time"
)

// ShareOf is a context whose processes count as those of name, an org mostly. What
// has no share has one together.
func ShareOf(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, shareKey{}, name)
}

type shareKey struct{}

func shareIn(ctx context.Context) string {
	name, _ := ctx.Value(shareKey{}).(string)
	return name
}

// A queue gives out process slots. One that comes free goes to the share that has
// the fewest; among equals to the one whose turn is longest ago. So however many
// wait of one share, another's waits for one slot to come free and no longer.
type queue struct {
	mu     sync.Mutex // guards what follows
	free   int
	served uint64
	shares map[string]*share // those that have slots or wait for some
}

type share struct {
	running int
	served  uint64          // when it was last given a slot, or came
	waiting []chan struct{} // each is closed with the slot given
}

func newQueue(slots int) *queue { return &queue{free: slots, shares: map[string]*share{}} }

// take takes a slot for a share if one is free and gives nil; else what is closed
// once there is one.
func (q *queue) take(name string) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shares[name]
	if s == nil {
		q.served++
		s = &share{served: q.served}
		q.shares[name] = s
	}
	if q.free > 0 {
		q.give(s)
		return nil
	}
	granted := make(chan struct{})
	s.waiting = append(s.waiting, granted)
	return granted
}

func (q *queue) give(s *share) {
	q.free--
	q.served++
	s.running++
	s.served = q.served
}

// leave ends the wait for a slot; false: it has been given meanwhile.
func (q *queue) leave(name string, granted <-chan struct{}) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shares[name]
	i := slices.IndexFunc(s.waiting, func(c chan struct{}) bool { return c == granted })
	if i < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	q.forget(name, s)
	return true
}

// put gives a slot back and passes it on.
func (q *queue) put(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shares[name]
	s.running--
	q.free++
	q.forget(name, s)
	if next := q.next(); next != nil {
		granted := next.waiting[0]
		next.waiting = slices.Delete(next.waiting, 0, 1)
		q.give(next)
		close(granted)
	}
}

func (q *queue) forget(name string, s *share) {
	if s.running == 0 && len(s.waiting) == 0 {
		delete(q.shares, name)
	}
}

// next is the share whose turn it is; nil if nobody waits.
func (q *queue) next() *share {
	var next *share
	for _, s := range q.shares {
		if len(s.waiting) == 0 {
			continue
		}
		if next == nil || s.running < next.running || s.running == next.running && s.served < next.served {
			next = s
		}
	}
	return next
}

// acquire takes a process slot, waiting at most Options.MaxWait; release gives it back.
func (r *Runner) acquire(ctx context.Context) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	name := shareIn(ctx)
	release = func() { r.slots.put(name) }
	granted := r.slots.take(name)
	if granted == nil {
		return release, nil
	}
	begin := time.Now()
	timer := time.NewTimer(r.opts.MaxWait)
	defer timer.Stop()
	select {
	case <-granted:
		if r.opts.OnWait != nil {
			r.opts.OnWait(time.Since(begin))
		}
		return release, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = ErrBusy
	}
	if !r.slots.leave(name, granted) {
		release()
	}
	return nil, err
}
