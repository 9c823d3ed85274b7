package redisdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

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
	// Resync lets a space go on that Redis gives with writes missing that were
	// acknowledged (a failover to a replica, an older copy of the data). What it
	// answers is applied, while writes of this node to the space wait with
	// ErrUnavailable, together with a new incarnation of the space: by exactly one of
	// the nodes that notice, in one step, checked against what was found. It may
	// have Sets, Adds, Deletes and a Log, no ID and no Checks; false leaves the space
	// stopped. It may be asked again. nil: such a space stays stopped for good.
	Resync func(*LostWritesError) (ledger.Batch, bool)
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
	mends   mends
	places  *places
	reads   *pipe
	writes  *pipe
	clock   atomic.Int64 // the newest time told by Now or a batch, microseconds
	anchor  atomic.Pointer[anchor]
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
	d := &DB{opt: o, known: newKnown(), places: newPlaces(), mends: mends{running: map[ledger.Space]bool{}, servers: map[string]bool{}}}
	d.client = connect(t, o, d.connected)
	d.watches = newWatches(d)
	d.reads, d.writes = newPipe(d.client, o.Timeout), newPipe(d.client, o.Timeout)
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

// Close ends the ledger and its watches.
func (d *DB) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.watches.close()
	defer d.mends.wait()
	defer d.reads.close()
	defer d.writes.close()
	if err := d.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("close ledger: %w", err)
	}
	return nil
}
