package redisdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Options are what a caller may choose. The zero value is good.
type Options struct {
	// Logger gets warnings about a server that may lose data; nil is slog.Default.
	Logger *slog.Logger
	// RequireDurable makes Open fail with ErrNotDurable instead of warning.
	RequireDurable bool
	// Timeout bounds one call, retries included; large batches and long scans get
	// more in proportion. 0 is 1.5 s: an unreachable Redis is told within 2 s.
	Timeout time.Duration
	// PoolSize is the number of connections to a server; 0 is 128. Writers beyond
	// it wait, and fewer of them share one sync of the append file.
	PoolSize int
	// Recheck is how often watched spaces are looked at besides the messages, for
	// messages that a cluster lost between its nodes. 0 is 5 s.
	Recheck time.Duration
	// Hold is how long a space stays held for a dump whose process has died: the next
	// dump waits so long. 0 is a minute.
	Hold time.Duration
	// Loading opens a Redis to be loaded: it must hold no space (else
	// ledger.ErrNotEmpty), and until FinishLoad nobody else can open it.
	Loading bool
}

func (o *Options) fill() {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Timeout <= 0 {
		o.Timeout = 1500 * time.Millisecond
	}
	if o.PoolSize <= 0 {
		o.PoolSize = 128
	}
	if o.Recheck <= 0 {
		o.Recheck = 5 * time.Second
	}
	if o.Hold <= 0 {
		o.Hold = time.Minute
	}
}

// DB is a ledger on one Redis or a Redis Cluster. It is safe for concurrent use.
type DB struct {
	client  redis.UniversalClient
	opt     Options
	known   *known
	watches *watches
	clock   atomic.Int64 // the newest time told by Now or a batch, microseconds
	closed  atomic.Bool
}

var _ ledger.Ledger = (*DB)(nil)

// Open connects to url (see parseURL for its forms) and looks at the server's
// settings. Errors: ErrBadURL, ErrNotDurable, ledger.ErrUnavailable, ledger.ErrUnfinished,
// with Options.Loading ledger.ErrNotEmpty, the context's.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	t, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	o.fill()
	tameLibrary()
	d := &DB{client: connect(t, o), opt: o, known: newKnown()}
	d.watches = newWatches(d)
	err = d.checkDurable(ctx)
	if err == nil {
		err = d.beginLoad(ctx)
	}
	if err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return d, nil
}

// connect makes the client; nothing is dialed yet. A call's context bounds it, so
// the read time-out is only for what has none.
func connect(t target, o Options) redis.UniversalClient {
	const dial, retries, backoff, backoffMax = 700 * time.Millisecond, 3, 20 * time.Millisecond, 250 * time.Millisecond
	if t.cluster {
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: t.addrs, Username: t.username, Password: t.password, TLSConfig: t.tls,
			Protocol: 2, DisableIdentity: true,
			DialTimeout: dial, DialerRetries: 1, MaxRetries: retries, MinRetryBackoff: backoff, MaxRetryBackoff: backoffMax,
			ReadTimeout: time.Minute, WriteTimeout: time.Minute, ContextTimeoutEnabled: true,
			PoolSize: o.PoolSize, PoolTimeout: o.Timeout,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
	}
	return redis.NewClient(&redis.Options{
		Addr: t.addrs[0], DB: t.db, Username: t.username, Password: t.password, TLSConfig: t.tls,
		Protocol: 2, DisableIdentity: true,
		DialTimeout: dial, DialerRetries: 1, MaxRetries: retries, MinRetryBackoff: backoff, MaxRetryBackoff: backoffMax,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute, ContextTimeoutEnabled: true,
		PoolSize: o.PoolSize, PoolTimeout: o.Timeout,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// limited gives a call its time: Options.Timeout, and for large ones half a second
// per MiB and a millisecond per key.
func (d *DB) limited(ctx context.Context, bytes, keys int) (context.Context, context.CancelFunc) {
	more := time.Duration(bytes>>20)*500*time.Millisecond + time.Duration(min(keys, 60_000))*time.Millisecond
	return context.WithTimeout(ctx, d.opt.Timeout+more)
}

// Drop forgets s. See ledger.Ledger.
func (d *DB) Drop(ctx context.Context, s ledger.Space) error {
	k := keysOf(s)
	_, err := d.run(ctx, dropScript, "drop space", s, []string{k.values, k.order, k.log, k.meta, k.dropped, k.before, k.beforeOrder}, int(dropMemory/time.Second))
	if err == nil {
		d.known.forget(s)
	}
	return err
}

// TrimLog drops log entries. See ledger.Ledger.
func (d *DB) TrimLog(ctx context.Context, s ledger.Space, before uint64) error {
	if _, err := d.known.get(s); err != nil {
		return err
	}
	k := keysOf(s)
	_, err := d.run(ctx, trimScript, "trim log of", s, []string{k.log, k.meta}, min(before, maxSeq))
	return err
}

// Now is the clock of a server, never before a time that this node was told.
// Nodes of a cluster have clocks of their own; each space keeps to its newest time.
func (d *DB) Now(ctx context.Context) (time.Time, error) {
	if d.closed.Load() {
		return time.Time{}, ledger.ErrClosed
	}
	limited, cancel := d.limited(ctx, 0, 0)
	defer cancel()
	t, err := d.client.Time(limited).Result()
	if err != nil {
		return time.Time{}, d.fail(ctx, "read clock of", "redis", err)
	}
	return fromMicros(d.told(t.UnixMicro())), nil
}

func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }

// told moves the clock on to micros if that is later and returns it.
func (d *DB) told(micros int64) int64 {
	for {
		have := d.clock.Load()
		if have >= micros {
			return have
		}
		if d.clock.CompareAndSwap(have, micros) {
			return micros
		}
	}
}

// Close ends the ledger and its watches.
func (d *DB) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.watches.close()
	if err := d.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("close ledger: %w", err)
	}
	return nil
}
