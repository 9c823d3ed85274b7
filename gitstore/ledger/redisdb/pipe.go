package redisdb

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pipeLanes is how many bundles of one kind are on their way at once: while Redis
	// works on one, the next gathers.
	pipeLanes = 2
	// pipeMost bounds a bundle, pipeBytes a call that may be in one: a larger one goes
	// by itself, for what follows it in its bundle would wait.
	pipeMost  = 128
	pipeBytes = 64 << 10
)

// A pipe sends what many callers ask at the same time in bundles, which costs both sides
// less than a call each. A caller alone is sent at once.
type pipe struct {
	client  redis.UniversalClient
	limit   time.Duration // of one bundle
	bundles bool          // false: each call goes by itself

	work sync.WaitGroup

	mu      sync.Mutex // guards what follows
	queue   []*queued
	running int // lanes
	closed  bool
}

// queued is a call in a pipe.
type queued struct {
	cmd  redis.Cmder
	done chan struct{}

	// Guarded by the pipe's mu.
	sent, ended, left bool   // it is in a bundle; it is over; its caller does not wait for it any more
	late              func() // called at the end of one that was left on its way
}

// newPipe makes a pipe to one server. A cluster is asked call by call: one of its
// servers that is away must not hold up what is for another.
func newPipe(client redis.UniversalClient, limit time.Duration) *pipe {
	_, cluster := client.(*redis.ClusterClient)
	return &pipe{client: client, limit: limit, bundles: !cluster}
}

// do sends cmd, whose arguments are about size bytes and nobody else's, and waits for
// its answer. When ctx ends first, cmd may still be on its way: then it belongs to the
// pipe, and late is called once it is not.
func (p *pipe) do(ctx context.Context, cmd redis.Cmder, size int, late func()) (onItsWay bool, err error) {
	if !p.bundles || size > pipeBytes {
		return false, p.client.Process(ctx, cmd)
	}
	q := &queued{cmd: cmd, done: make(chan struct{}), late: late}
	if !p.put(q) {
		return false, redis.ErrClosed
	}
	return p.await(ctx, q)
}

// await waits for what was put into the pipe.
func (p *pipe) await(ctx context.Context, q *queued) (onItsWay bool, err error) {
	select {
	case <-q.done:
	case <-ctx.Done():
		return p.leave(q), ctx.Err()
	}
	err = q.cmd.Err()
	var replied redis.Error
	if errors.As(err, &replied) && isUnavailable(err) {
		return false, p.client.Process(ctx, q.cmd) // the library tries these again, but not in a bundle
	}
	return false, err
}

// ask is do for what changes nothing.
func (p *pipe) ask(ctx context.Context, cmd redis.Cmder, size int) error {
	_, err := p.do(ctx, cmd, size, func() {})
	return err
}

// A call is what was begun and changes nothing.
type call struct {
	p   *pipe
	q   *queued // nil: it is over
	err error
}

// begin is ask without waiting: the caller waits for all that it has begun.
func (p *pipe) begin(ctx context.Context, cmd redis.Cmder, size int) call {
	if !p.bundles || size > pipeBytes {
		return call{err: p.client.Process(ctx, cmd)}
	}
	q := &queued{cmd: cmd, done: make(chan struct{}), late: func() {}}
	if !p.put(q) {
		return call{err: redis.ErrClosed}
	}
	return call{p: p, q: q}
}

func (c call) wait(ctx context.Context) error {
	if c.q == nil {
		return c.err
	}
	_, err := c.p.await(ctx, c.q)
	return err
}

func (p *pipe) put(q *queued) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.queue = append(p.queue, q)
	if p.running < pipeLanes {
		p.running++
		p.work.Go(p.run)
	}
	return true
}

func (p *pipe) leave(q *queued) (onItsWay bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q.left = true
	return q.sent && !q.ended
}

// close waits for what is on its way; the client is closed by then.
func (p *pipe) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.work.Wait()
}

// run sends bundles until nothing waits.
func (p *pipe) run() {
	bundle := make([]*queued, 0, pipeMost)
	for {
		if bundle = p.take(bundle[:0]); len(bundle) == 0 {
			return
		}
		p.send(bundle)
		p.end(bundle)
	}
}

// take moves what waits into bundle; it ends the lane when nothing does.
func (p *pipe) take(bundle []*queued) []*queued {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for ; n < len(p.queue) && len(bundle) < pipeMost; n++ {
		if q := p.queue[n]; !q.left {
			q.sent = true
			bundle = append(bundle, q)
		}
	}
	rest := copy(p.queue, p.queue[n:])
	clear(p.queue[rest:])
	p.queue = p.queue[:rest]
	if len(bundle) == 0 {
		p.running--
	}
	return bundle
}

func (p *pipe) end(bundle []*queued) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range bundle {
		q.ended = true
		if q.left {
			q.late()
		}
		close(q.done)
	}
}

// send sends a bundle; each call has its own error.
func (p *pipe) send(bundle []*queued) {
	ctx, cancel := context.WithTimeout(context.Background(), p.limit) // of several callers
	defer cancel()
	if len(bundle) == 1 {
		_ = p.client.Process(ctx, bundle[0].cmd)
		return
	}
	pl := p.client.Pipeline()
	for _, q := range bundle {
		_ = pl.Process(ctx, q.cmd)
	}
	_, _ = pl.Exec(ctx)
}
