package gitstore

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// PushLimits bound what it costs to unpack one push. A push over one of them is
// refused with an unpack error that names it. A small push that is over the bounds of
// what is held in memory is not refused but goes the way of large ones.
type PushLimits struct {
	PackObjects  int           // entries of a pack; 20,000,000
	PackInflated int64         // all entries inflated and all deltas resolved, together; 1 TiB
	DeltaDepth   int           // deltas on top of each other; 4,095, as many as git itself makes
	PushTimeout  time.Duration // to unpack a push once all of it has come; 30 min
}

func (l PushLimits) withDefaults() PushLimits {
	if l.PackObjects == 0 {
		l.PackObjects = 20_000_000
	}
	if l.PackInflated == 0 {
		l.PackInflated = 1 << 40
	}
	if l.DeltaDepth == 0 {
		l.DeltaDepth = 4095
	}
	if l.PushTimeout == 0 {
		l.PushTimeout = 30 * time.Minute
	}
	return l
}

// tooDeep is what a pack is told whose deltas are over the limit. It is a fault like
// others: of deltas against what the caller may not read it is not told.
func tooDeep(limit int) error {
	return packFault("deltas stand on each other over the limit of %d", limit)
}

// errPushTimeout ends the work on a push.
var errPushTimeout = errors.New("push took too long to unpack")

// pushTimer is a context that ends some time after begin was called.
func pushTimer(ctx context.Context, limit time.Duration) (_ context.Context, begin, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	begin = func() {
		if timer == nil {
			timer = time.AfterFunc(limit, func() { cancel(errPushTimeout) })
		}
	}
	stop = func() {
		if timer != nil {
			timer.Stop()
		}
		cancel(nil)
	}
	return ctx, begin, stop
}

// timedOut puts the end of a push's time into words for the client.
func timedOut(ctx context.Context, err error, limit time.Duration) error {
	if err != nil && errors.Is(context.Cause(ctx), errPushTimeout) {
		return &unpackError{fmt.Sprintf("unpacking takes longer than the limit of %s", limit)}
	}
	return err
}
