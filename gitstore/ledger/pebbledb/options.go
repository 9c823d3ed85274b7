package pebbledb

import (
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options set up a DB; the zero value is a sound default without a reserve.
type Options struct {
	// FS holds the files; nil is the operating system's.
	FS vfs.FS
	// Clock is the source of the ledger's time; nil is time.Now. It may jump: the
	// ledger's time stands still until the source has caught up.
	Clock func() time.Time
	// Logger is told of trouble with the disk, and at debug level of all that
	// Pebble does; nil is slog.Default.
	Logger *slog.Logger
	// ReserveBytes is the size of a file that is kept to be given up when the disk
	// is full, so that the ledger can be opened again and read. MinReserve is always
	// enough. With less, or none (0), a disk that is full to the last byte keeps what
	// was written last from being read until there is space.
	ReserveBytes int64
	// WatermarkBytes is the free space on the disk below which Apply answers
	// ErrNoSpace; reading, Drop and TrimLog go on. 0 is none.
	WatermarkBytes uint64
	// CacheBytes is the memory for blocks of the files; 0 is 64 MiB.
	CacheBytes int64
	// OnBatch is called once for each batch that Apply made durable, with the time
	// Apply took and the number of keys written. It must not block.
	OnBatch func(d time.Duration, keys int)
	// Loading opens a new ledger to be loaded: its folder must be empty (else
	// ledger.ErrNotEmpty), and until FinishLoad nobody else can open it.
	Loading bool

	// checkEvery is how often the disk's free space is looked at; 0 is 250 ms.
	checkEvery time.Duration
	// patience is how long a call waits for the ledger to be opened anew; 0 is 5 s.
	patience time.Duration
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
	}
	if o.OnBatch == nil {
		o.OnBatch = func(time.Duration, int) {}
	}
	if o.checkEvery == 0 {
		o.checkEvery = 250 * time.Millisecond
	}
	if o.patience == 0 {
		o.patience = 5 * time.Second
	}
	return o
}

// MinReserve is the size of the reserve with which the ledger can be opened and read
// on a disk that is full to the last byte.
const MinReserve = 72 << 20

// memTableBytes is how much is gathered in memory before it is written as a table.
// Pebble starts small and doubles up to it.
const memTableBytes = 32 << 20

// pebbleOptions are chosen for many small synced batches: writers are never made
// to wait for compactions while some four memory tables can still take them, and
// level 0 is let grow rather than commits held up.
func pebbleOptions(g *guard, cache *pebble.Cache, log *slog.Logger) *pebble.Options {
	o := &pebble.Options{
		FS:                          g,
		Cache:                       cache,
		Logger:                      pebbleLogger{log: log, guard: g},
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                memTableBytes,
		MemTableStopWritesThreshold: 5,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       256,
		CompactionConcurrencyRange:  func() (int, int) { return 1, max(1, runtime.GOMAXPROCS(0)/2) },
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { log.Warn("ledger: background work of Pebble", "error", err.Error()) },
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				log.Error("ledger: corrupt data", "info", info.String())
			},
		},
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].BlockSize = 8 << 10
		o.Levels[i].IndexBlockSize = 256 << 10
	}
	return o
}

// pebbleLogger takes what Pebble says. Pebble calls Fatalf where it cannot go on;
// the goroutine ends there and the guard is marked as failed, which has the engine
// opened anew. The process goes on.
type pebbleLogger struct {
	log   *slog.Logger
	guard *guard
}

func (l pebbleLogger) Infof(format string, args ...any) {
	l.log.Debug("ledger: pebble: " + fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Warn("ledger: pebble: " + fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf("pebble gave up: "+format, args...)
	l.log.Error("ledger: "+err.Error(), "stack", string(stack()))
	l.guard.fail(err)
	runtime.Goexit()
}

func stack() []byte {
	buf := make([]byte, 16<<10)
	return buf[:runtime.Stack(buf, false)]
}
