package snapshot

import (
	"cmp"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Options are what a Keeper is made of.
type Options struct {
	Ledger ledger.Ledger
	Users  Users
	Limits Limits       // zero fields take their defaults
	Logger *slog.Logger // nil: slog.Default
	// Repos opens a repo for the Keeper's own work; the caller may do everything. It is
	// asked only after New has returned.
	Repos func(repo RepoID, by Actor) (Repo, error)
}

// Limits are the settings of this room, with their defaults.
type Limits struct {
	Cap         int64         // stored bytes of one snapshot; 4 GiB; negative: none
	Quota       int64         // stored bytes of all snapshots of a repo; 0: none
	MaxCount    int           // live snapshots of a repo; 1,000,000
	UploadTTL   time.Duration // 24 h: an upload to which nothing is sent
	Uploads     int           // uploads of one session at once; 8
	KeepLast    int           // snapshots of a session that stay; 0: all
	RequireSeal bool          // saves that are not sealed are refused
	IdleTimeout time.Duration // of a snapshot that names none; 0: none
	ReapEvery   time.Duration // 5 s
	Memory      time.Duration // 30 days: how long records of deleted and failed ones stay
	Workers     int           // chunks worked on at once by one save or restore; number of CPUs, at most 4
}

// A Keeper keeps snapshots. It is safe for concurrent use, by several processes on one
// ledger as well.
type Keeper struct {
	Options
	looks   looks
	coder   *Coder
	leaves  *lru[leafKey, storedLeaf]
	images  *lru[imageKey, *openImage]
	moved   *lru[imageKey, movedTable]
	sealing sync.Map // ids of uploads that are being sealed
}

// New makes a Keeper.
func New(o Options) *Keeper {
	o.Limits = o.Limits.withDefaults()
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Keeper{
		Options: o, looks: newLooks(), coder: NewCoder(),
		leaves: newLRU[leafKey, storedLeaf](cachedLeaves), images: newLRU[imageKey, *openImage](cachedImages),
		moved: newLRU[imageKey, movedTable](keptTables),
	}
}

// withDefaults gives zero fields their defaults.
func (l Limits) withDefaults() Limits {
	l.Cap = cmp.Or(l.Cap, 4<<30)
	l.MaxCount = cmp.Or(l.MaxCount, 1_000_000)
	l.UploadTTL = cmp.Or(l.UploadTTL, 24*time.Hour)
	l.Uploads = cmp.Or(l.Uploads, 8)
	l.ReapEvery = cmp.Or(l.ReapEvery, 5*time.Second)
	l.Memory = cmp.Or(l.Memory, 30*24*time.Hour)
	l.Workers = cmp.Or(l.Workers, min(4, runtime.NumCPU()))
	return l
}
