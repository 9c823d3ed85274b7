package pebbledb

import (
	"sync/atomic"
	"time"
)

// clock is the ledger's clock: the source's time in whole microseconds, never
// running back.
type clock struct {
	source func() time.Time
	last   atomic.Int64 // the newest time told, in microseconds
}

func (c *clock) now() int64 {
	micros := c.source().UnixMicro()
	for {
		last := c.last.Load()
		if micros <= last {
			return last
		}
		if c.last.CompareAndSwap(last, micros) {
			return micros
		}
	}
}

// notBefore keeps the clock from telling a time before micros.
func (c *clock) notBefore(micros int64) {
	for {
		last := c.last.Load()
		if micros <= last || c.last.CompareAndSwap(last, micros) {
			return
		}
	}
}
