package sessions

import (
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Options are what a Keeper is made of.
type Options struct {
	Ledger ledger.Ledger
	Limits Limits       // zero fields take their defaults
	Logger *slog.Logger // nil: slog.Default
	// Doors opens a repo for the Keeper's own work (the reaper); the caller may do
	// everything. It is asked only after New has returned.
	Doors func(repo Repo, by Actor) (Door, error)
}

// Limits are the settings of this room, with their defaults.
type Limits struct {
	LeaseDefault time.Duration // 60 s: a lease whose holder names no time
	LeaseMax     time.Duration // 24 h
	LeaseWaitMax time.Duration // 60 s: how long an acquire may wait
	TokenDefault time.Duration // 15 min
	TokenMax     time.Duration // 24 h
	IdleTimeout  time.Duration // 0: a session that names none has none
	MaxForkN     int           // 8
	MaxLive      int           // live sessions of one repo; 2,000,000
	LoserTTL     time.Duration // 10 min: what children have left when another was picked
	StateIdle    time.Duration // 1,800 s: a fork's kept state with no child made of it
	ReapEvery    time.Duration // 5 s
	EndedMemory  time.Duration // 30 days: how long records of ended sessions stay
}

// A Keeper keeps sessions. It is safe for concurrent use, by several processes on
// one ledger as well.
type Keeper struct {
	Options
	looks  *looks
	marked sync.Map // repos that this process knows to be marked as having sessions, by id
}

// New makes a Keeper.
func New(o Options) *Keeper {
	o.Limits = o.Limits.withDefaults()
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Keeper{Options: o, looks: newLooks()}
}
