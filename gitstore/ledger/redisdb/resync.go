package redisdb

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/gitstore/ledger"
)

// mendTries bounds how often a resync is made anew because the space was found
// otherwise by the time it came; the next write begins again.
const mendTries = 10

// sweepChunk is how many spaces are looked at in one go.
const sweepChunk = 500

// mends are the resyncs under way and what sets them off besides writes.
type mends struct {
	work sync.WaitGroup

	mu       sync.Mutex // guards what follows
	closed   bool
	running  map[ledger.Space]bool
	servers  map[string]bool // run ids of the servers that were connected to
	sweeping bool
	again    bool // a further server was met while sweeping
}

// begin reports whether f was started; it is not when done is true already.
func (m *mends) begin(done func() bool, f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || done() {
		return
	}
	m.work.Go(f)
}

// wait ends everything; the client is closed by then.
func (m *mends) wait() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.work.Wait()
}

// notice compares what a reader was told with what this node knew before it asked.
// A space that is not there is left to who writes to it: mostly it was dropped.
func (d *DB) notice(s ledger.Space, had, got state) {
	if had.inc != 0 && got.inc != 0 && (got.inc != had.inc || got.ver < had.ver || got.ver == had.ver && got.at != had.at) {
		d.mend(s)
	}
}

// mend resyncs s if it is behind, once at a time and in the background: whoever
// met it is answered at once.
func (d *DB) mend(s ledger.Space) {
	if d.opt.Resync == nil {
		return
	}
	running := func() bool {
		was := d.mends.running[s]
		d.mends.running[s] = true
		return was
	}
	d.mends.begin(running, func() {
		if err := d.resync(context.Background(), s); err != nil && !d.closed.Load() { // for all writers, not for one
			d.opt.Logger.Error("resync space that lost acknowledged writes", "space", s, "err", err)
		}
		d.mends.mu.Lock()
		delete(d.mends.running, s)
		d.mends.mu.Unlock()
	})
}

// resync begins a new incarnation of s if it is behind what this node was told, or
// takes over the one that another node has begun.
func (d *DB) resync(ctx context.Context, s ledger.Space) error {
	had := d.known.told(s)
	lost := &LostWritesError{Space: s, Known: had.mark()}
	found, done, err := d.renew(ctx, &ledger.Batch{Space: s}, had, Mark{Incarnation: nowhere})
	for range mendTries {
		if err != nil || done {
			return err
		}
		lost.Found = found
		if found.Incarnation == 0 && !d.inUse(ctx) {
			return fmt.Errorf("%w: and so is everything else, restore a backup", lost)
		}
		b, ok := d.opt.Resync(lost)
		if !ok {
			return lost
		}
		b.ID, b.Space, b.Checks = "", s, nil
		if err := b.Validate(); err != nil {
			return err
		}
		found, done, err = d.renew(ctx, &b, had, found)
	}
	return lost
}

// nowhere is an incarnation that is never found.
const nowhere = -1

// renew sends b with which the space begins a new incarnation, if it is still what was
// found; otherwise done is false, and now tells what is there. It is also done when the
// space is not, or no longer, behind.
func (d *DB) renew(ctx context.Context, b *ledger.Batch, had state, found Mark) (now Mark, done bool, err error) {
	k := keysOf(b.Space)
	args, size := applyArgs(b, k.channel, had, place{})
	args[2] = "S"
	args = append(args, found.Incarnation, found.Resyncs, had.syncs)
	limited, cancel := d.limited(ctx, size, len(args)/2)
	defer cancel()
	got, err := d.runIn(ctx, limited, applyScript, "resync", b.Space, k.ofBatch("resync"), args...)
	if err != nil {
		return now, false, err
	}
	r := readReply(got)
	switch kind := r.string(); kind {
	case "A":
		st := state{seq: uint64(r.int()), at: r.int(), inc: r.int(), ver: r.int(), syncs: r.int()}
		if st.logAt = st.at; b.Log == nil {
			st.seq, st.logAt = 0, 0
		}
		if r.err == nil {
			d.told(st.at)
			d.known.renew(b.Space, st)
			d.opt.Logger.Warn("redis lost acknowledged writes: the space begins a new incarnation",
				"space", b.Space, "known", had.mark(), "found", found, "incarnation", st.inc)
		}
		return now, true, r.err
	case "O":
		st := state{at: r.int(), inc: r.int(), ver: r.int(), syncs: r.int()}
		if r.err == nil {
			d.known.renew(b.Space, st)
		}
		return now, true, r.err
	case "L":
		now = readMark(r)
		return now, false, r.err
	case "N":
		return now, false, fmt.Errorf("resync %s: %w: counter %q", b.Space, ledger.ErrInvalidBatch, r.string())
	default:
		return now, false, fmt.Errorf("resync %s: script answered %q: %w", b.Space, kind, r.err)
	}
}

// inUse reports whether the ledger holds anything but what a loss has left: without
// the server's space it is not the one it was, and must not be filled anew.
func (d *DB) inUse(ctx context.Context) bool {
	limited, cancel := d.limited(ctx, 0, 0)
	defer cancel()
	n, err := d.client.Exists(limited, keysOf(ledger.ServerSpace).meta).Result()
	return err == nil && n > 0
}

// connected is told of each new connection. A server that was not met before may
// have taken another's place: every space that this node knows is looked at, so that a
// loss is noticed before anybody writes.
func (d *DB) connected(ctx context.Context, c *redis.Conn) error {
	id := runID(c.Info(ctx, "server").Val())
	m := &d.mends
	m.mu.Lock()
	fresh := id != "" && !m.servers[id]
	first := len(m.servers) == 0
	if fresh {
		m.servers[id] = true
	}
	m.mu.Unlock()
	if !fresh || first || d.opt.Resync == nil {
		return nil
	}
	sweeping := func() bool {
		m.again = m.sweeping
		m.sweeping = true
		return m.again
	}
	m.begin(sweeping, d.sweep)
	return nil
}

func runID(info string) string {
	_, rest, _ := strings.Cut(info, "run_id:")
	id, _, _ := strings.Cut(rest, "\r")
	return id
}

// sweep looks at all spaces that this node knows and at the servers' settings.
func (d *DB) sweep() {
	for again := true; again; {
		ctx := context.Background() // its calls have their own limits
		if err := d.checkDurable(ctx); err != nil && !d.closed.Load() {
			d.opt.Logger.Error("look at a redis that took over", "err", err)
		}
		for all := d.known.spaces(); len(all) > 0; {
			n := min(len(all), sweepChunk)
			d.look(ctx, all[:n])
			all = all[n:]
		}
		d.mends.mu.Lock()
		again = d.mends.again && !d.mends.closed
		d.mends.again, d.mends.sweeping = false, again
		d.mends.mu.Unlock()
	}
}

// look compares some spaces with what is known of them. What cannot be read now is
// noticed by the next write to it.
func (d *DB) look(ctx context.Context, spaces []ledger.Space) {
	limited, cancel := d.limited(ctx, 0, len(spaces))
	defer cancel()
	had := make([]state, len(spaces))
	read := make([]*redis.SliceCmd, len(spaces))
	pipe := d.client.Pipeline()
	for i, s := range spaces {
		had[i] = d.known.told(s)
		read[i] = pipe.HMGet(limited, keysOf(s).meta, metaFields...)
	}
	_, _ = pipe.Exec(limited) // each command has its own error
	for i, s := range spaces {
		got, err := read[i].Result()
		if err != nil {
			continue
		}
		if st, err := readMeta(got); err == nil {
			d.notice(s, had[i], st)
		}
	}
}
