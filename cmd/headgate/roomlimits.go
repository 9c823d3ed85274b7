package main

import (
	"reflect"

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
		FairLimits: httpapi.FairLimits{
			TokenRate: l.TokenRate, TokenBurst: l.TokenBurst,
			TokenRequests: l.TokenRequests, OrgRequests: l.OrgRequests, Requests: l.Requests,
			TokenGit: l.TokenGitRequests, OrgGit: l.OrgGitRequests, Git: l.AllGitRequests,
			TokenStreams: l.TokenStreams, OrgStreams: l.OrgStreams, Streams: l.Streams,
			TokenUpload: l.TokenUploadBytes, OrgUpload: l.OrgUploadBytes, Upload: l.UploadBytes,
			Turns: l.Turns, LimitWait: l.LimitWait.Duration,
		},
	}
}

// inForce is every limit under its name in the file; those of a section besides
// [limits] with the section's name before it.
func (o nodeOptions) inForce() map[string]any {
	all := make(map[string]any)
	for section, limits := range map[string]any{"": o.limits, "sessions.": o.sessions, "snapshots.": o.snapshots} {
		for i, v := 0, reflect.ValueOf(limits); i < v.NumField(); i++ {
			value := v.Field(i).Interface()
			if d, ok := value.(Duration); ok {
				value = d.Duration
			}
			all[section+v.Type().Field(i).Tag.Get("toml")] = value
		}
	}
	return all
}

func (l Limits) ofStore() gitstore.Limits {
	return gitstore.Limits{
		PushLimits: gitstore.PushLimits{
			PackObjects: l.PackObjects, PackInflated: l.PackInflated, DeltaDepth: l.DeltaDepth, PushTimeout: l.PushTimeout.Duration,
		},
		HotPackBytes: l.HotPackBytes, HotPackObjects: l.HotPackObjects, PackBytes: l.PackBytes,
		FileBytes: l.FileBytes, CommitBytes: l.CommitBytes, CommitFiles: l.CommitFiles,
		SettleObjects: l.SettleObjects, SettleBytes: l.SettleBytes,
		CacheBytes: l.CacheBytes, BlobCacheBytes: l.BlobCacheBytes,
		FetchCacheBytes: l.FetchCacheBytes, FetchAnswerBytes: l.FetchAnswerBytes,
		FetchCacheFor: l.FetchCacheFor.Duration, FetchSpareBytes: l.FetchSpareBytes,
		ProofTimeout: l.ProofTimeout.Duration, OpenRepos: l.OpenRepos, RefsPerPush: l.RefsPerPush,
		UpkeepEvery: l.UpkeepEvery.Duration, PackGrace: l.PackGrace.Duration,
		PruneDeletions: l.PruneDeletions, PruneEvery: l.PruneEvery.Duration, MergePacks: l.MergePacks, MergeBytes: l.MergeBytes,
		IndexObjects: l.IndexObjects,
		LogAge:       l.LogAge.Duration, LogEntries: l.LogEntries, LogArchiveAge: l.LogArchiveAge.Duration,
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
