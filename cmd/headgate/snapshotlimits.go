package main

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/sessions/snapshot"
)

// SnapshotLimits are the [snapshots] part of the configuration: how much snapshots may
// store, how many there may be, and how long they last. They are read at the start.
type SnapshotLimits struct {
	CapBytes    int64    `toml:"cap_bytes"`    // stored bytes of one snapshot; 4 GiB; -1: no cap
	QuotaBytes  int64    `toml:"quota_bytes"`  // stored bytes of all snapshots of a repo; 0: no quota
	MaxCount    int      `toml:"max_count"`    // live snapshots of a repo; 1,000,000
	UploadTTL   Duration `toml:"upload_ttl"`   // an upload to which nothing is sent; 24 h
	Uploads     int      `toml:"uploads"`      // uploads of one session at once; 8
	KeepLast    int      `toml:"keep_last"`    // snapshots of a session that stay, where it says nothing else; 0: all
	RequireSeal bool     `toml:"require_seal"` // sessions without a capture key, and saves that are not sealed, are refused
	IdleTimeout Duration `toml:"idle_timeout"` // of snapshots that name none; 0: none
	MemoryFor   Duration `toml:"memory_for"`   // how long records of deleted and failed ones stay; 30 days
	Workers     int      `toml:"workers"`      // chunks worked on at once by one save or restore; 0: one for each processor, at most 4
}

func defaultSnapshotLimits() SnapshotLimits {
	return SnapshotLimits{
		CapBytes: 4 << 30, MaxCount: 1_000_000, UploadTTL: Duration{day}, Uploads: 8, MemoryFor: Duration{30 * day},
	}
}

// check refuses what cannot be meant; the error begins with the key's name.
func (l SnapshotLimits) check() error {
	for _, v := range []struct {
		key        string
		got        Duration
		least, max time.Duration
	}{
		{"upload_ttl", l.UploadTTL, time.Second, 365 * day},
		{"idle_timeout", l.IdleTimeout, 0, 3650 * day},
		{"memory_for", l.MemoryFor, time.Second, 3650 * day},
	} {
		if v.got.Duration < v.least || v.got.Duration > v.max {
			return fmt.Errorf("%s: %v is not within %v and %v", v.key, v.got.Duration, v.least, v.max)
		}
	}
	for _, v := range []struct {
		key             string
		got, least, max int64
	}{
		{"cap_bytes", l.CapBytes, -1, 1 << 50},
		{"quota_bytes", l.QuotaBytes, 0, 1 << 60},
		{"max_count", int64(l.MaxCount), 1, 1_000_000_000},
		{"uploads", int64(l.Uploads), 1, 10_000},
		{"keep_last", int64(l.KeepLast), 0, 1_000_000_000},
		{"workers", int64(l.Workers), 0, 256},
	} {
		if v.got < v.least || v.got > v.max {
			return fmt.Errorf("%s: %d is not within %d and %d", v.key, v.got, v.least, v.max)
		}
	}
	if l.CapBytes == 0 {
		return fmt.Errorf("cap_bytes: 0 lets nothing be saved; -1 is no cap")
	}
	return nil
}

func (l SnapshotLimits) ofKeeper() snapshot.Limits {
	return snapshot.Limits{
		Cap: l.CapBytes, Quota: l.QuotaBytes, MaxCount: l.MaxCount, UploadTTL: l.UploadTTL.Duration, Uploads: l.Uploads,
		KeepLast: l.KeepLast, RequireSeal: l.RequireSeal, IdleTimeout: l.IdleTimeout.Duration, Memory: l.MemoryFor.Duration, Workers: l.Workers,
	}
}
