package gitstore

import "time"

// Limits bound what one request or one repo may use. Zero fields take the default.
type Limits struct {
	HotPackBytes   int64 // a pushed pack or a commit's files up to this size go into the ledger; 1 MiB
	HotPackObjects int   // and up to this many objects; 5,000
	PackBytes      int64 // the largest pack one push may send; 16 GiB
	FileBytes      int64 // the largest file of a commit; 16 GiB
	CommitBytes    int64 // all files of one commit; 16 GiB
	CommitFiles    int   // entries of one commit; 200,000
	SettleObjects  int   // settle when so many objects are hot; 20,000
	SettleBytes    int64 // or so many bytes; 16 MiB
	CacheBytes     int64 // decoded small objects kept in memory; 64 MiB
	BlobCacheBytes int64 // inflated large blobs kept on disk; 2 GiB

	FetchCacheBytes  int64         // answers to fetches kept on disk for equal ones; 8 GiB
	FetchAnswerBytes int64         // the largest of them; 4 GiB
	FetchCacheFor    time.Duration // how long after it was last asked for; 10 min
	FetchSpareBytes  int64         // free space on the disk that they leave to others; 1 GiB

	ProofTimeout   time.Duration // for proving reach of what a push refers to; 30 s
	OpenRepos      int           // repos kept open; 1,000
	RefsPerPush    int           // commands of one push; 10,000
	UpkeepEvery    time.Duration // how often packs are looked after; negative: never; 1 min
	PackGrace      time.Duration // how long a replaced pack stays for those who read in it, longer than any request; negative: not at all; 6 h
	PruneDeletions int           // prune when so many refs were deleted or rewound, or a twentieth of all if that is more; 1,000
	PruneEvery     time.Duration // or when it was so long ago and refs have moved since; 24 h
	MergePacks     int           // merge packs of a kind when so many have come together; 5
	MergeBytes     int64         // the largest pack that is merged with others; 1 GiB
	IndexObjects   int           // write an index when so many packed objects have come since the last one; 1,000

	LogAge        time.Duration // how long entries of a repo's log stay in the ledger; 30 days
	LogEntries    int           // or so many of them, whichever is less; 100,000
	LogArchiveAge time.Duration // how long older ones stay on disk; 365 days

	PushLimits
}

// withDefaults fills the zero fields.
func (l Limits) withDefaults() Limits {
	fill := func(p *int64, v int64) {
		if *p == 0 {
			*p = v
		}
	}
	fillInt := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	l.PushLimits = l.PushLimits.withDefaults()
	fill(&l.HotPackBytes, 1<<20)
	fill(&l.PackBytes, 16<<30)
	fill(&l.FileBytes, 16<<30)
	fill(&l.CommitBytes, 16<<30)
	fill(&l.SettleBytes, 16<<20)
	fill(&l.CacheBytes, 64<<20)
	fill(&l.BlobCacheBytes, 2<<30)
	fill(&l.FetchCacheBytes, 8<<30)
	fill(&l.FetchAnswerBytes, 4<<30)
	fill(&l.FetchSpareBytes, 1<<30)
	fillInt(&l.HotPackObjects, 5_000)
	fillInt(&l.CommitFiles, 200_000)
	fillInt(&l.SettleObjects, 8_000)
	fillInt(&l.OpenRepos, 1_000)
	fillInt(&l.RefsPerPush, 10_000)
	fillInt(&l.PruneDeletions, 1_000)
	fillInt(&l.MergePacks, 5)
	fillInt(&l.IndexObjects, 1_000)
	fillInt(&l.LogEntries, 100_000)
	if l.LogAge == 0 {
		l.LogAge = 30 * 24 * time.Hour
	}
	if l.LogArchiveAge == 0 {
		l.LogArchiveAge = 365 * 24 * time.Hour
	}
	fill(&l.MergeBytes, 1<<30)
	if l.PruneEvery == 0 {
		l.PruneEvery = 24 * time.Hour
	}
	if l.UpkeepEvery == 0 {
		l.UpkeepEvery = time.Minute
	}
	if l.FetchCacheFor == 0 {
		l.FetchCacheFor = 10 * time.Minute
	}
	if l.PackGrace == 0 {
		l.PackGrace = sharedGrace
	}
	if l.ProofTimeout == 0 {
		l.ProofTimeout = 30 * time.Second
	}
	return l
}
