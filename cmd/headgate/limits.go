package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/httpapi"
)

// Limits bound what a request may send, how long it may stand still, and what
// the server spends. They are read at the start; SIGHUP does not change them.
// Sizes are in bytes; durations are written like "30s" or "1h30m".
type Limits struct {
	HeaderBytes  int   `toml:"header_bytes"`        // request line and headers; 128 KiB, at least 64 KiB
	BodyBytes    int64 `toml:"body_bytes"`          // a JSON body; 1 MiB
	LineBytes    int   `toml:"line_bytes"`          // one line of a streamed commit; 16 MiB, at least 6 MiB
	FetchBytes   int64 `toml:"fetch_bytes"`         // what a git client sends to ask for objects; 64 MiB
	PushBytes    int64 `toml:"push_bytes"`          // one push as it travels; 17 GiB
	PackBytes    int64 `toml:"pack_bytes"`          // the pack in it; 16 GiB
	PackObjects  int   `toml:"pack_objects"`        // objects in it; 20,000,000
	PackInflated int64 `toml:"pack_inflated_bytes"` // all of it inflated, with its deltas resolved; 1 TiB
	DeltaDepth   int   `toml:"delta_depth"`         // deltas in it that stand on each other; 4,095
	RefsPerPush  int   `toml:"refs_per_push"`       // refs that one push may change; 10,000
	FileBytes    int64 `toml:"file_bytes"`          // one file of a commit; 16 GiB
	CommitBytes  int64 `toml:"commit_bytes"`        // all files of a commit; 16 GiB
	CommitFiles  int   `toml:"commit_files"`        // files of a commit; 100,000

	HeaderTimeout   Duration `toml:"header_timeout"`   // for the headers of a request; 10 s
	IdleTimeout     Duration `toml:"idle_timeout"`     // a body that makes no progress, either way; 30 s
	KeepAlive       Duration `toml:"keep_alive"`       // a connection between two requests; 2 min
	ShutdownTimeout Duration `toml:"shutdown_timeout"` // for what runs when the server is told to stop; 30 s
	PushTimeout     Duration `toml:"push_timeout"`     // to unpack a push once all of it has come; 30 min
	ProofTimeout    Duration `toml:"proof_timeout"`    // to prove that what a push names may be read; 30 s

	TokenRate  int `toml:"token_rate"`  // requests a second of one token; 20,000
	TokenBurst int `toml:"token_burst"` // requests of one token that may come at once after a pause; 20,000

	TokenRequests    int   `toml:"token_requests"`     // running at once, of one token; 256
	OrgRequests      int   `toml:"org_requests"`       // of one org; 512
	Requests         int   `toml:"requests"`           // of all; 1,024
	TokenGitRequests int   `toml:"token_git_requests"` // those that may need a git process, which do not count above: fetches, large pushes, diffs; 64
	OrgGitRequests   int   `toml:"org_git_requests"`   // of one org; 128
	AllGitRequests   int   `toml:"git_requests"`       // of all; 256
	TokenStreams     int   `toml:"token_streams"`      // requests that wait for events, which do not count above either, of one token; 1,024
	OrgStreams       int   `toml:"org_streams"`        // of one org; 4,096
	Streams          int   `toml:"streams"`            // of all; 16,384
	TokenUploadBytes int64 `toml:"token_upload_bytes"` // that bodies over 1 MiB of running requests brought, of one token; 20 GiB
	OrgUploadBytes   int64 `toml:"org_upload_bytes"`   // of one org; 40 GiB
	UploadBytes      int64 `toml:"upload_bytes"`       // of all; 80 GiB

	Turns     int      `toml:"turns"`      // requests that work at once rather than wait for their clients; 32 for each processor, at least 64
	LimitWait Duration `toml:"limit_wait"` // of a request over one of these limits, before 429; 5 s

	GitProcesses int      `toml:"git_processes"` // running at once; 16
	GitWait      Duration `toml:"git_wait"`      // for a free one, before 503; 10 s
	GitTimeout   Duration `toml:"git_timeout"`   // for one process; 10 min

	HotPackBytes   int64 `toml:"hot_pack_bytes"`   // a push or commit up to this size goes into the ledger; 1 MiB, at most 4 MiB
	HotPackObjects int   `toml:"hot_pack_objects"` // and up to this many objects; 5,000, at most 15,000
	SettleObjects  int   `toml:"settle_objects"`   // objects in the ledger before they are settled into a pack; 8,000
	SettleBytes    int64 `toml:"settle_bytes"`     // or bytes; 16 MiB
	CacheBytes     int64 `toml:"cache_bytes"`      // small objects kept in memory; 64 MiB
	BlobCacheBytes int64 `toml:"blob_cache_bytes"` // large blobs kept inflated on disk; 2 GiB
	OpenRepos      int   `toml:"open_repos"`       // repos kept open; 1,000

	FetchCacheBytes  int64    `toml:"fetch_cache_bytes"`  // answers to fetches kept on disk, for others that ask the same; 8 GiB
	FetchAnswerBytes int64    `toml:"fetch_answer_bytes"` // the largest of them; 4 GiB
	FetchCacheFor    Duration `toml:"fetch_cache_for"`    // how long after it was last asked for; 10 min
	FetchSpareBytes  int64    `toml:"fetch_spare_bytes"`  // free space on the disk that they leave to others; 1 GiB

	UpkeepEvery    Duration `toml:"upkeep_every"`    // how often repos are looked after; 1 min
	PackGrace      Duration `toml:"pack_grace"`      // how long a replaced pack stays for those who read in it; 6 h
	PruneDeletions int      `toml:"prune_deletions"` // prune a repo when so many refs were deleted or rewound, or a twentieth of all if that is more; 1,000
	PruneEvery     Duration `toml:"prune_every"`     // or when it was so long ago and refs have moved since; 24 h
	MergePacks     int      `toml:"merge_packs"`     // merge packs when so many have come together; 5
	IndexObjects   int      `toml:"index_objects"`   // write an index when so many packed objects have come since the last one; 1,000
	MergeBytes     int64    `toml:"merge_bytes"`     // the largest pack that is merged with others; 1 GiB

	LogAge        Duration `toml:"log_age"`         // how long entries of a repo's log stay in the ledger; 30 days
	LogEntries    int      `toml:"log_entries"`     // or so many of them, whichever is less; 100,000
	LogArchiveAge Duration `toml:"log_archive_age"` // how long older ones stay, in files; who asks for what is older is told how things stand; 365 days

	WatermarkBytes   int64 `toml:"watermark_bytes"`    // free space on the disk below which writes get 507; 256 MiB
	ReserveBytes     int64 `toml:"reserve_bytes"`      // a file given up when the disk is full, so that reads go on; 96 MiB, at least 72 MiB
	LedgerCacheBytes int64 `toml:"ledger_cache_bytes"` // of the embedded ledger; 64 MiB
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

func defaultLimits() Limits {
	return Limits{
		HeaderBytes: 128 * kib, BodyBytes: 1 * mib, LineBytes: 16 * mib,
		FetchBytes: 64 * mib, PushBytes: 17 * gib, PackBytes: 16 * gib, RefsPerPush: 10_000,
		PackObjects: 20_000_000, PackInflated: 1024 * gib, DeltaDepth: 4095,
		FileBytes: 16 * gib, CommitBytes: 16 * gib, CommitFiles: 100_000,

		HeaderTimeout: Duration{10 * time.Second}, IdleTimeout: Duration{30 * time.Second},
		KeepAlive: Duration{2 * time.Minute}, ShutdownTimeout: Duration{30 * time.Second},
		ProofTimeout: Duration{30 * time.Second}, PushTimeout: Duration{30 * time.Minute},

		TokenRate: 20_000, TokenBurst: 20_000,
		TokenRequests: 256, OrgRequests: 512, Requests: 1024,
		TokenGitRequests: 64, OrgGitRequests: 128, AllGitRequests: 256,
		TokenStreams: 1024, OrgStreams: 4096, Streams: 16_384,
		TokenUploadBytes: 20 * gib, OrgUploadBytes: 40 * gib, UploadBytes: 80 * gib,
		Turns: httpapi.DefaultTurns(), LimitWait: Duration{5 * time.Second},

		GitProcesses: 16, GitWait: Duration{10 * time.Second}, GitTimeout: Duration{10 * time.Minute},

		HotPackBytes: 1 * mib, HotPackObjects: 5_000, SettleObjects: 8_000, SettleBytes: 16 * mib,
		CacheBytes: 64 * mib, BlobCacheBytes: 2 * gib, OpenRepos: 1_000,

		FetchCacheBytes: 8 * gib, FetchAnswerBytes: 4 * gib,
		FetchCacheFor: Duration{10 * time.Minute}, FetchSpareBytes: gib,

		UpkeepEvery: Duration{time.Minute}, PackGrace: Duration{6 * time.Hour},
		PruneDeletions: 1_000, PruneEvery: Duration{24 * time.Hour}, MergePacks: 5, MergeBytes: gib, IndexObjects: 1_000,

		LogAge: Duration{30 * 24 * time.Hour}, LogEntries: 100_000, LogArchiveAge: Duration{365 * 24 * time.Hour},

		WatermarkBytes: 256 * mib, ReserveBytes: 96 * mib, LedgerCacheBytes: 64 * mib,
	}
}

// check refuses values with which the server could not do what it promises; the
// error begins with the key's name.
func (l Limits) check() error {
	const most = int64(1) << 50
	for _, v := range []struct {
		key        string
		got        int64
		least, max int64
	}{
		{"header_bytes", int64(l.HeaderBytes), 64 * kib, 16 * mib}, // a token with many rules has 64 KiB
		{"body_bytes", l.BodyBytes, 64 * kib, gib},
		{"line_bytes", int64(l.LineBytes), 6 * mib, gib}, // a chunk of 4 MiB in base64, and what is around it
		{"fetch_bytes", l.FetchBytes, 64 * kib, gib},
		{"push_bytes", l.PushBytes, mib, most},
		{"pack_bytes", l.PackBytes, mib, most},
		{"pack_objects", int64(l.PackObjects), 1000, 1_000_000_000},
		{"pack_inflated_bytes", l.PackInflated, 16 * mib, most},
		{"delta_depth", int64(l.DeltaDepth), 50, 1_000_000}, // git's own packs have 50
		{"refs_per_push", int64(l.RefsPerPush), 1, 1_000_000},
		{"file_bytes", l.FileBytes, mib, most},
		{"commit_bytes", l.CommitBytes, mib, most},
		{"commit_files", int64(l.CommitFiles), 1, 10_000_000},
		{"token_rate", int64(l.TokenRate), 1, 1_000_000},
		{"token_burst", int64(l.TokenBurst), 1, 1_000_000},
		{"token_requests", int64(l.TokenRequests), 1, 1_000_000},
		{"org_requests", int64(l.OrgRequests), 1, 1_000_000},
		{"requests", int64(l.Requests), 1, 1_000_000},
		{"token_git_requests", int64(l.TokenGitRequests), 1, 1_000_000},
		{"org_git_requests", int64(l.OrgGitRequests), 1, 1_000_000},
		{"git_requests", int64(l.AllGitRequests), 1, 1_000_000},
		{"token_streams", int64(l.TokenStreams), 1, 1_000_000},
		{"org_streams", int64(l.OrgStreams), 1, 1_000_000},
		{"streams", int64(l.Streams), 1, 1_000_000},
		{"token_upload_bytes", l.TokenUploadBytes, mib, most},
		{"org_upload_bytes", l.OrgUploadBytes, mib, most},
		{"upload_bytes", l.UploadBytes, mib, most},
		{"turns", int64(l.Turns), 1, 100_000},
		{"git_processes", int64(l.GitProcesses), 1, 10_000},
		{"hot_pack_bytes", l.HotPackBytes, 1, 4 * mib},           // a batch of the ledger has 8 MiB
		{"hot_pack_objects", int64(l.HotPackObjects), 1, 15_000}, // and 20,000 keys
		{"settle_objects", int64(l.SettleObjects), 1, 10_000_000},
		{"settle_bytes", l.SettleBytes, 1, most},
		{"cache_bytes", l.CacheBytes, mib, most},
		{"blob_cache_bytes", l.BlobCacheBytes, mib, most},
		{"fetch_cache_bytes", l.FetchCacheBytes, mib, most},
		{"fetch_answer_bytes", l.FetchAnswerBytes, mib, most},
		{"fetch_spare_bytes", l.FetchSpareBytes, 1, most},
		{"open_repos", int64(l.OpenRepos), 1, 1_000_000},
		{"prune_deletions", int64(l.PruneDeletions), 1, 1_000_000_000},
		{"merge_packs", int64(l.MergePacks), 2, 10_000},
		{"index_objects", int64(l.IndexObjects), 1, 10_000_000},
		{"log_entries", int64(l.LogEntries), 100, 100_000_000},
		{"merge_bytes", l.MergeBytes, mib, most},
		{"watermark_bytes", l.WatermarkBytes, 0, most},
		{"reserve_bytes", l.ReserveBytes, pebbledb.MinReserve, most}, // with less a full disk could not be read
		{"ledger_cache_bytes", l.LedgerCacheBytes, mib, most},
	} {
		if v.got < v.least || v.got > v.max {
			return fmt.Errorf("%s: %d is not within %d and %d", v.key, v.got, v.least, v.max)
		}
	}
	return l.checkTimes()
}

func (l Limits) checkTimes() error {
	for key, d := range map[string]Duration{
		"header_timeout": l.HeaderTimeout, "idle_timeout": l.IdleTimeout, "keep_alive": l.KeepAlive,
		"shutdown_timeout": l.ShutdownTimeout, "proof_timeout": l.ProofTimeout, "push_timeout": l.PushTimeout,
		"upkeep_every": l.UpkeepEvery, "pack_grace": l.PackGrace, "prune_every": l.PruneEvery,
		"limit_wait": l.LimitWait, "git_wait": l.GitWait, "git_timeout": l.GitTimeout,
		"fetch_cache_for": l.FetchCacheFor,
	} {
		if d.Duration < 100*time.Millisecond || d.Duration > 24*time.Hour {
			return fmt.Errorf("%s: %v is not within 100ms and 24h", key, d)
		}
	}
	const century = 100 * 365 * 24 * time.Hour
	for key, d := range map[string]Duration{"log_age": l.LogAge, "log_archive_age": l.LogArchiveAge} {
		if d.Duration < time.Minute || d.Duration > century {
			return fmt.Errorf("%s: %v is not within 1m and %v", key, d, century)
		}
	}
	return nil
}

// A Duration is a time.Duration that a file writes like "1m30s".
type Duration struct{ time.Duration }

// UnmarshalText takes what time.ParseDuration takes; a bare number has no unit and
// is refused. The error does not repeat the text.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	if d.Duration, err = time.ParseDuration(string(text)); err != nil {
		return errors.New(`want a duration with its unit, such as "30s"`)
	}
	return nil
}
