package main

import (
	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/httpapi"
)

// Each room has limits of its own; these are its part of the configuration's.
// Fields that a room keeps to itself stay zero and take the room's default.

func (l Limits) ofHTTP() httpapi.Limits {
	return httpapi.Limits{
		HeaderBytes: l.HeaderBytes, BodyBytes: l.BodyBytes, LineBytes: l.LineBytes,
		CommitFiles: l.CommitFiles, FetchBytes: l.FetchBytes, PushBytes: l.PushBytes,
		HeaderTimeout: l.HeaderTimeout.Duration, IdleTimeout: l.IdleTimeout.Duration, KeepAlive: l.KeepAlive.Duration,
	}
}

func (l Limits) ofStore() gitstore.Limits {
	return gitstore.Limits{
		HotPackBytes: l.HotPackBytes, HotPackObjects: l.HotPackObjects, PackBytes: l.PackBytes,
		FileBytes: l.FileBytes, CommitBytes: l.CommitBytes, CommitFiles: l.CommitFiles,
		SettleObjects: l.SettleObjects, SettleBytes: l.SettleBytes,
		CacheBytes: l.CacheBytes, BlobCacheBytes: l.BlobCacheBytes,
		ProofTimeout: l.ProofTimeout.Duration, OpenRepos: l.OpenRepos, RefsPerPush: l.RefsPerPush,
	}
}

func (l Limits) ofGit() gitcmd.Options {
	return gitcmd.Options{MaxProcesses: l.GitProcesses, MaxWait: l.GitWait.Duration, Timeout: l.GitTimeout.Duration}
}

func (l Limits) ofPebble() pebbledb.Options {
	return pebbledb.Options{
		ReserveBytes: l.ReserveBytes, WatermarkBytes: uint64(l.WatermarkBytes), CacheBytes: l.LedgerCacheBytes,
	}
}
