package redisdb

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/gitstore/ledger"
)

// watches wakes those who wait for a space's log to grow. One connection carries
// the messages of all spaces. A message that comes while it is cut is made up for:
// every subscription that is confirmed, the first and after each reconnect, wakes
// its watchers; and every Options.Recheck the log numbers are read besides, since
// a cluster may lose messages between its nodes.
type watches struct {
	d    *DB
	done chan struct{}
	work sync.WaitGroup

	// sub is set once, by the first watch.
	sub     *redis.PubSub
	changed chan struct{} // the set of channels is no longer what is subscribed

	mu     sync.Mutex // guards what follows
	spaces map[string]*watched
	closed bool
}

// watched is one space with those who watch it; by is keyed by channel name.
type watched struct {
	key     keys
	seq     string // the last log number that was told, empty at first
	waiters map[chan struct{}]struct{}
}

func newWatches(d *DB) *watches {
	return &watches{d: d, done: make(chan struct{}), changed: make(chan struct{}, 1), spaces: map[string]*watched{}}
}

// Watch wakes its caller when the log of s has grown. See ledger.Ledger. It works
// while Redis is away: what was missed wakes when it is back.
func (d *DB) Watch(ctx context.Context, s ledger.Space) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("watch %s: %w", s, err)
	}
	ch, err := d.watches.add(keysOf(s))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { d.watches.remove(keysOf(s).channel, ch) })
	return ch, nil
}

func (w *watches) add(k keys) (chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, ledger.ErrClosed
	}
	if w.sub == nil {
		w.sub = w.d.client.Subscribe(context.Background())
		w.work.Add(2)
		go w.receive()
		go w.maintain()
	}
	sp := w.spaces[k.channel]
	if sp == nil {
		sp = &watched{key: k, waiters: map[chan struct{}]struct{}{}}
		w.spaces[k.channel] = sp
		signal(w.changed)
	}
	ch := make(chan struct{}, 1)
	sp.waiters[ch] = struct{}{}
	return ch, nil
}

func (w *watches) remove(channel string, ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sp := w.spaces[channel]
	if sp == nil {
		return
	}
	if _, ok := sp.waiters[ch]; !ok {
		return
	}
	delete(sp.waiters, ch)
	close(ch)
	if len(sp.waiters) == 0 {
		delete(w.spaces, channel)
		signal(w.changed)
	}
}

// wake tells the watchers of channel; seq is the log number seen, empty if unknown.
func (w *watches) wake(channel, seq string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sp := w.spaces[channel]
	if sp == nil {
		return
	}
	if seq != "" {
		sp.seq = seq
	}
	for ch := range sp.waiters {
		signal(ch)
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// receive passes messages on until the subscription is closed; the client
// reconnects by itself.
func (w *watches) receive() {
	defer w.work.Done()
	for m := range w.sub.ChannelWithSubscriptions(redis.WithChannelSize(1024), redis.WithChannelHealthCheckInterval(w.d.opt.Recheck)) {
		switch m := m.(type) {
		case *redis.Message:
			w.wake(m.Channel, m.Payload)
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				w.wake(m.Channel, "")
			}
		}
	}
}

// maintain subscribes to what is watched and looks at the log numbers now and then.
func (w *watches) maintain() {
	defer w.work.Done()
	subscribed := map[string]bool{}
	tick := time.NewTicker(w.d.opt.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-w.changed:
			w.subscribe(subscribed)
		case <-tick.C:
			w.recheck()
		}
	}
}

// subscribe makes the subscriptions those that are wanted. A failure needs nothing:
// the client has noted the channels and subscribes to them when it reconnects.
func (w *watches) subscribe(have map[string]bool) {
	var more, less []string
	w.mu.Lock()
	for channel := range w.spaces {
		if !have[channel] {
			more = append(more, channel)
			have[channel] = true
		}
	}
	for channel := range have {
		if w.spaces[channel] == nil {
			less = append(less, channel)
			delete(have, channel)
		}
	}
	w.mu.Unlock()
	ctx, cancel := w.d.limited(context.Background(), 0, 0)
	defer cancel()
	if len(less) > 0 {
		_ = w.sub.Unsubscribe(ctx, less...)
	}
	if len(more) > 0 {
		_ = w.sub.Subscribe(ctx, more...)
	}
}

// recheck wakes the watchers of every space whose last log number is not the one
// that was told. What cannot be read now is read the next time.
func (w *watches) recheck() {
	ctx, cancel := w.d.limited(context.Background(), 0, 0)
	defer cancel()
	pipe := w.d.client.Pipeline()
	reads := map[string]*redis.StringCmd{}
	w.mu.Lock()
	for channel, sp := range w.spaces {
		reads[channel] = pipe.HGet(ctx, sp.key.meta, "seq")
	}
	w.mu.Unlock()
	if len(reads) == 0 {
		return
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for channel, read := range reads {
		seq, err := read.Result()
		if err == nil && w.told(channel) != seq {
			w.wake(channel, seq)
		}
	}
}

func (w *watches) told(channel string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sp := w.spaces[channel]; sp != nil {
		return sp.seq
	}
	return ""
}

// close closes every watcher's channel and waits for the goroutines.
func (w *watches) close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed = true
	for channel, sp := range w.spaces {
		for ch := range sp.waiters {
			close(ch)
		}
		delete(w.spaces, channel)
	}
	close(w.done)
	sub := w.sub
	w.mu.Unlock()
	if sub != nil {
		_ = sub.Close()
	}
	w.work.Wait()
}
