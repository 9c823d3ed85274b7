package pebbledb

// Metrics is a picture of the ledger's condition for operators.
type Metrics struct {
	// Batches counts the batches that Apply has made durable, and answers to
	// repeated ids, since Open.
	Batches uint64
	// Reopens counts how often the disk failed and the engine was opened anew.
	Reopens uint64
	// Spaces is the number of spaces kept in memory.
	Spaces int

	// DiskAvailBytes is the free space when last looked at, 0 if it cannot be told.
	DiskAvailBytes uint64
	// WatermarkBytes is Options.WatermarkBytes.
	WatermarkBytes uint64
	// NoSpace is whether Apply answers ErrNoSpace now.
	NoSpace bool
	// HasReserve is whether the reserve file is there.
	HasReserve bool
	// Available is whether the engine is open and sound.
	Available bool

	// TableBytes, LogBytes and MemTableBytes are what Pebble holds on disk in tables,
	// on disk in live logs, and in memory.
	TableBytes, LogBytes, MemTableBytes uint64
	// CacheHits and CacheMisses count blocks asked of the cache.
	CacheHits, CacheMisses int64
	// ReadAmp is how many tables a read may have to look into.
	ReadAmp int
}

// Metrics returns the present condition; also of a closed ledger.
func (db *DB) Metrics() Metrics {
	m := Metrics{
		Batches:        db.batches.Load(),
		Reopens:        db.reopens.Load(),
		DiskAvailBytes: db.disk.avail.Load(),
		WatermarkBytes: db.disk.watermark,
		NoSpace:        db.disk.refusal() != nil,
		HasReserve:     db.disk.hasReserve.Load(),
	}
	e, err := db.enter()
	if err != nil {
		return m
	}
	defer db.mu.RUnlock()
	m.Spaces = e.spaces.size()
	if failed := e.guard.failure(); failed != nil {
		m.NoSpace = m.NoSpace || isNoSpace(failed)
		return m
	}
	m.Available = true
	p := e.pdb.Metrics()
	m.TableBytes, m.LogBytes, m.MemTableBytes = uint64(p.Total().TablesSize), p.WAL.Size, p.MemTable.Size
	m.CacheHits, m.CacheMisses = p.BlockCache.Hits, p.BlockCache.Misses
	m.ReadAmp = p.ReadAmp()
	return m
}
