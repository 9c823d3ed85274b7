package main

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/sessions"
)

// SessionLimits are the [sessions] part of the configuration: how long sessions,
// leases and tokens last, and how many there may be. They are read at the start.
type SessionLimits struct {
	LeaseTTL     Duration `toml:"lease_ttl"`      // a lease whose holder names no time; 1 min
	LeaseMaxTTL  Duration `toml:"lease_max_ttl"`  // the longest; 24 h
	LeaseMaxWait Duration `toml:"lease_max_wait"` // how long an acquire may wait for a lease; 1 min
	TokenTTL     Duration `toml:"token_ttl"`      // an issued token; 15 min
	TokenMaxTTL  Duration `toml:"token_max_ttl"`  // the longest; 24 h
	IdleTimeout  Duration `toml:"idle_timeout"`   // of sessions that name none; 0: none
	MaxForkN     int      `toml:"max_fork_n"`     // children of one fork; 8
	MaxLive      int      `toml:"max_live"`       // live sessions of one repo; 2,000,000
	LoserTTL     Duration `toml:"loser_ttl"`      // what children have left when another was picked; 10 min
	StateIdle    Duration `toml:"state_idle"`     // a fork's kept state without a live child; 30 min
	ReapEvery    Duration `toml:"reap_every"`     // how often is looked for sessions whose time is up; 5 s
	EndedFor     Duration `toml:"ended_for"`      // how long the record of an ended session stays; 30 days
}

const day = 24 * time.Hour

func defaultSessionLimits() SessionLimits {
	return SessionLimits{
		LeaseTTL: Duration{time.Minute}, LeaseMaxTTL: Duration{day}, LeaseMaxWait: Duration{time.Minute},
		TokenTTL: Duration{15 * time.Minute}, TokenMaxTTL: Duration{day},
		MaxForkN: 8, MaxLive: 2_000_000,
		LoserTTL: Duration{10 * time.Minute}, StateIdle: Duration{30 * time.Minute},
		ReapEvery: Duration{5 * time.Second}, EndedFor: Duration{30 * day},
	}
}

// check refuses what cannot be meant; the error begins with the key's name.
func (l SessionLimits) check() error {
	for _, v := range []struct {
		key        string
		got        Duration
		least, max time.Duration
	}{
		{"lease_ttl", l.LeaseTTL, time.Second, l.LeaseMaxTTL.Duration},
		{"lease_max_ttl", l.LeaseMaxTTL, time.Second, 30 * day},
		{"lease_max_wait", l.LeaseMaxWait, time.Second, time.Hour},
		{"token_ttl", l.TokenTTL, time.Second, l.TokenMaxTTL.Duration},
		{"token_max_ttl", l.TokenMaxTTL, time.Second, 30 * day},
		{"idle_timeout", l.IdleTimeout, 0, 3650 * day},
		{"loser_ttl", l.LoserTTL, time.Second, 365 * day},
		{"state_idle", l.StateIdle, time.Second, 3650 * day},
		{"reap_every", l.ReapEvery, 100 * time.Millisecond, time.Hour},
		{"ended_for", l.EndedFor, time.Hour, 3650 * day}, // as long as tokens of it may be shown
	} {
		if v.got.Duration < v.least || v.got.Duration > v.max {
			return fmt.Errorf("%s: %v is not within %v and %v", v.key, v.got.Duration, v.least, v.max)
		}
	}
	if l.MaxForkN < 1 || l.MaxForkN > 10_000 {
		return fmt.Errorf("max_fork_n: %d is not within 1 and 10000", l.MaxForkN)
	}
	if l.MaxLive < 1 || l.MaxLive > 1_000_000_000 {
		return fmt.Errorf("max_live: %d is not within 1 and 1000000000", l.MaxLive)
	}
	return nil
}

func (l SessionLimits) ofKeeper() sessions.Limits {
	return sessions.Limits{
		LeaseDefault: l.LeaseTTL.Duration, LeaseMax: l.LeaseMaxTTL.Duration, LeaseWaitMax: l.LeaseMaxWait.Duration,
		TokenDefault: l.TokenTTL.Duration, TokenMax: l.TokenMaxTTL.Duration,
		IdleTimeout: l.IdleTimeout.Duration, MaxForkN: l.MaxForkN, MaxLive: l.MaxLive,
		LoserTTL: l.LoserTTL.Duration, StateIdle: l.StateIdle.Duration,
		ReapEvery: l.ReapEvery.Duration, EndedMemory: l.EndedFor.Duration,
	}
}
