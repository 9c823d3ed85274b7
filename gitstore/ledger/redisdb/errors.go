package redisdb

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/gitstore/ledger"
)

// ErrNotDurable: the server may lose what it has acknowledged (its settings say so,
// or do not say otherwise). Only Open with Options.RequireDurable returns it.
var ErrNotDurable = errors.New("redis does not keep what it acknowledges")

// ErrBadURL: the ledger's URL cannot be used. The text does not repeat it, since it
// may hold a password.
var ErrBadURL = errors.New("bad redis url")

// LostWritesError says that Redis no longer has what it had acknowledged to this
// node: writes to the space have stopped, until it is resynced (Options.Resync). It is
// an ErrUnavailable.
type LostWritesError struct {
	Space ledger.Space
	// Known is what this node was told, Found what Redis has now.
	Known, Found Mark
}

// Mark tells states of a space apart. Version grows with every batch, Seq with
// every log entry; both are comparable within one Incarnation only.
type Mark struct {
	Incarnation int64 // when the space began, microseconds since 1970; 0: it does not exist
	Version     int64
	Seq         uint64
	Resyncs     int64 // how often the space began a new incarnation because writes were lost
}

func (e *LostWritesError) Error() string {
	return fmt.Sprintf("space %s lost acknowledged writes: had version %d (log %d) of incarnation %d, has version %d (log %d) of %d",
		e.Space, e.Known.Version, e.Known.Seq, e.Known.Incarnation, e.Found.Version, e.Found.Seq, e.Found.Incarnation)
}

// Unwrap makes it an ErrUnavailable for callers that only retry.
func (e *LostWritesError) Unwrap() error { return ledger.ErrUnavailable }

// fail turns an error of go-redis into the ledger's. ctx is the caller's, without
// the engine's own time limit.
func (d *DB) fail(ctx context.Context, what string, s ledger.Space, err error) error {
	switch {
	case err == nil:
		return nil
	case d.closed.Load():
		return ledger.ErrClosed
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s: %w", what, s, ctx.Err())
	case isNoSpace(err):
		return fmt.Errorf("%s %s: %w: %w", what, s, ledger.ErrNoSpace, err)
	case isUnavailable(err):
		return fmt.Errorf("%s %s: %w: %w", what, s, ledger.ErrUnavailable, err)
	}
	return fmt.Errorf("%s %s: %w", what, s, err)
}

// isNoSpace: OOM is full memory, MISCONF a snapshot or append file that could not
// be written.
func isNoSpace(err error) bool {
	return redis.HasErrorPrefix(err, "OOM") || redis.HasErrorPrefix(err, "MISCONF")
}

// isUnavailable: everything that did not come from the server (dialing, time-outs,
// cut connections, an exhausted pool), and what a server says that cannot serve now.
func isUnavailable(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return true
	}
	for _, code := range []string{
		"LOADING", "CLUSTERDOWN", "READONLY", "TRYAGAIN", "MASTERDOWN", "NOREPLICAS", "BUSY", "UNKILLABLE",
		"MOVED", "ASK", "NOAUTH", "WRONGPASS", "NOPERM", "max number of clients",
	} {
		if redis.HasErrorPrefix(err, code) {
			return true
		}
	}
	return false
}
