package pebbledb

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger"
)

// disk watches the free space under the ledger. Its files are written past every
// guard. look and makeRoom are called by one goroutine at a time; the rest reads.
type disk struct {
	fs        vfs.FS
	dir       string
	reserve   int64
	watermark uint64

	hasReserve atomic.Bool
	// full is set by any write that found no space, and cleared once there is some.
	full atomic.Bool
	// low is whether the free space is below the watermark.
	low   atomic.Bool
	avail atomic.Uint64 // free bytes when last looked at, 0 if not known
}

const (
	reserveName = "RESERVE"
	probeName   = "PROBE"
	// probeBytes is written to find out whether the disk takes anything.
	probeBytes = 256 << 10
	// openMargin is what opening needs beside the tables it makes from the logs.
	openMargin = 4 << 20
	// maxReplay is how much of the logs may have to be made into tables: two memory
	// tables, since no more gather when tables cannot be written. The rest of the
	// logs' bytes is kept for being written over.
	maxReplay = 2 * memTableBytes
)

func (d *disk) init(dir string, o Options) {
	d.fs, d.dir, d.reserve, d.watermark = o.FS, dir, o.ReserveBytes, o.WatermarkBytes
}

func (d *disk) path(name string) string { return d.fs.PathJoin(d.dir, name) }

// refusal is why no batch may be applied for want of space, nil if one may.
func (d *disk) refusal() error {
	if d.full.Load() {
		return fmt.Errorf("%w: the disk was full", ledger.ErrNoSpace)
	}
	if d.low.Load() {
		return fmt.Errorf("%w: %d bytes free, at least %d wanted", ledger.ErrNoSpace, d.avail.Load(), d.watermark)
	}
	return nil
}

// look measures the free space. While the disk is full the reserve is given up
// first, so that what is under way can end; it is made again, and writing goes on,
// when there is room for it above the watermark.
func (d *disk) look() {
	if d.full.Load() && d.hasReserve.Load() {
		d.giveUpReserve()
	}
	usage, err := d.fs.GetDiskUsage(d.dir)
	known := err == nil
	if known {
		d.avail.Store(usage.AvailBytes)
	}
	wanted := d.watermark
	if !d.hasReserve.Load() {
		wanted += uint64(max(d.reserve, 0))
	}
	d.low.Store(known && usage.AvailBytes < wanted)
	if d.low.Load() {
		return
	}
	if !d.hasReserve.Load() && d.reserve > 0 && d.write(reserveName, d.reserve) == nil {
		d.hasReserve.Store(true)
	}
	if d.full.Load() && (d.reserve <= 0 || d.hasReserve.Load()) && d.probe() == nil {
		d.full.Store(false)
	}
}

// makeRoom returns nil when the engine can be opened: there is room for the tables
// that the logs become, and the disk can be written. It gives up the reserve for that.
func (d *disk) makeRoom() error {
	if info, err := d.fs.Stat(d.path(reserveName)); err == nil && info.Size() == d.reserve {
		d.hasReserve.Store(true)
	} else if err == nil {
		d.giveUpReserve() // of another size, or half written
	}
	err := d.roomToOpen()
	if err != nil && d.hasReserve.Load() {
		d.giveUpReserve()
		d.full.Store(true)
		err = d.roomToOpen()
	}
	return err
}

func (d *disk) roomToOpen() error {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", d.dir, err)
	}
	var logs uint64
	for _, name := range names {
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		if info, err := d.fs.Stat(d.path(name)); err == nil {
			logs += uint64(info.Size())
		}
	}
	need := openMargin + min(logs, maxReplay)
	if usage, err := d.fs.GetDiskUsage(d.dir); err == nil && usage.AvailBytes < need {
		return fmt.Errorf("%w: %d bytes free, opening takes %d", ledger.ErrNoSpace, usage.AvailBytes, need)
	}
	return d.probe()
}

func (d *disk) probe() error {
	err := d.write(probeName, probeBytes)
	_ = d.fs.Remove(d.path(probeName)) // of no use, however the probe went
	return err
}

func (d *disk) giveUpReserve() {
	if err := d.fs.Remove(d.path(reserveName)); err == nil || errors.Is(err, fs.ErrNotExist) {
		d.hasReserve.Store(false)
	}
}

// write makes a synced file of size bytes, or none.
func (d *disk) write(name string, size int64) (err error) {
	f, err := d.fs.Create(d.path(name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = d.fs.Remove(d.path(name)) // a file that is half there would be taken for whole
		}
	}()
	block := make([]byte, min(size, 1<<20))
	for left := size; left > 0; left -= int64(len(block)) {
		if _, err := f.Write(block[:min(left, int64(len(block)))]); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", name, err)
	}
	return nil
}

func isNoSpace(err error) bool {
	return errors.Is(err, ledger.ErrNoSpace) || vfs.IsNoSpaceError(err)
}

// noSpace makes err an ErrNoSpace if that is what it comes from.
func noSpace(err error) error {
	if isNoSpace(err) && !errors.Is(err, ledger.ErrNoSpace) {
		return fmt.Errorf("%w: %w", ledger.ErrNoSpace, err)
	}
	return err
}
