package redisdb

import (
	"context"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// anchorAge is for how long the server's clock is reckoned from what it told last.
const anchorAge = 500 * time.Millisecond

// An anchor is a time that the server told, with when it was there at the latest.
type anchor struct {
	told  time.Time
	heard time.Time // by this process' monotonic clock
}

// reckon is the server's clock now. It is never ahead: the time was told before it was
// heard, and a thousandth is taken off for clocks that do not go alike.
func (a *anchor) reckon(now time.Time) (t time.Time, ok bool) {
	gone := now.Sub(a.heard)
	return a.told.Add(gone - gone/1000), gone < anchorAge
}

// Now is the clock of a server, never before a time that this node was told. It is asked
// twice a second at most, and reckoned in between. Nodes of a cluster have clocks of
// their own; each space keeps to its newest time.
func (d *DB) Now(ctx context.Context) (time.Time, error) {
	if d.closed.Load() {
		return time.Time{}, ledger.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return time.Time{}, d.fail(ctx, "read clock of", "redis", err)
	}
	if a := d.anchor.Load(); a != nil {
		if t, ok := a.reckon(time.Now()); ok {
			return fromMicros(d.told(t.UnixMicro())), nil
		}
	}
	limited, cancel := d.limited(ctx, 0, 0)
	defer cancel()
	t, err := d.client.Time(limited).Result()
	if err != nil {
		return time.Time{}, d.fail(ctx, "read clock of", "redis", err)
	}
	d.anchor.Store(&anchor{told: t, heard: time.Now()})
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
