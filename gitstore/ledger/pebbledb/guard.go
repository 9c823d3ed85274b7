package pebbledb

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// errFenced is what a table's writer gets from a guard that has been fenced.
var errFenced = errors.New("this opening of the ledger has ended")

// guard is the file system of one opening of Pebble. Files are of two kinds.
//
// Tables are bulk: a failed write is returned, and Pebble tries again later.
//
// All else is vital (log, manifest, markers, folders): Pebble does not survive
// their failing. So the first failure is kept, the caller is told success, and
// from then on nothing vital and no removal reaches the disk, which stays as it
// was at that moment. Whoever needs to know whether a write is durable asks
// failure after it: the failure is noted before the false success is returned.
type guard struct {
	vfs.FS
	onFail    func(error) // called once, after the failure is noted
	onNoSpace func()      // called whenever there was no space for a write
	pause     time.Duration

	failed atomic.Pointer[failure]
	ended  chan struct{} // closed by fence; ends the pauses

	// ops is read-locked during each change of the disk, so that fence can wait for
	// those under way. Pebble writes from many goroutines; none takes it twice.
	ops    sync.RWMutex
	fenced bool
}

type failure struct{ err error }

var _ vfs.FS = (*guard)(nil)

func newGuard(fs vfs.FS, onFail func(error), onNoSpace func()) *guard {
	return &guard{FS: fs, onFail: onFail, onNoSpace: onNoSpace, pause: 100 * time.Millisecond, ended: make(chan struct{})}
}

// failure is the error that made this opening useless, nil while it is sound.
func (g *guard) failure() error {
	if f := g.failed.Load(); f != nil {
		return f.err
	}
	return nil
}

func (g *guard) fail(err error) {
	if g.failed.CompareAndSwap(nil, &failure{err}) {
		g.onFail(err)
	}
}

// fence keeps this opening from ever changing the disk again and waits for the
// changes under way. An opening that would not close can then do no harm.
func (g *guard) fence() {
	g.failed.CompareAndSwap(nil, &failure{errFenced})
	g.ops.Lock()
	defer g.ops.Unlock()
	if !g.fenced {
		g.fenced = true
		close(g.ended)
	}
}

// vital does a change that Pebble must not see fail.
func (g *guard) vital(change func() error) {
	g.ops.RLock()
	defer g.ops.RUnlock()
	if g.fenced || g.failure() != nil {
		return
	}
	if err := change(); err != nil {
		if vfs.IsNoSpaceError(err) {
			g.onNoSpace()
		}
		g.fail(err)
	}
}

// bulk does a change that Pebble may see fail. It makes a caller without space
// wait a little, since Pebble tries again at once, and so does an opening that was
// left behind.
func (g *guard) bulk(change func() error) error {
	err := g.bulkOnce(change)
	switch {
	case errors.Is(err, errFenced):
		time.Sleep(g.pause)
	case err != nil && vfs.IsNoSpaceError(err):
		select {
		case <-g.ended:
		case <-time.After(g.pause):
		}
	}
	return err
}

func (g *guard) bulkOnce(change func() error) error {
	g.ops.RLock()
	defer g.ops.RUnlock()
	if g.fenced {
		return errFenced
	}
	err := change()
	if err != nil && vfs.IsNoSpaceError(err) {
		g.onNoSpace()
	}
	return err
}

func (g *guard) isBulk(name string) bool {
	base := g.PathBase(name)
	return strings.HasSuffix(base, ".sst") || strings.HasSuffix(base, ".blob")
}

// open wraps the file that make gives; a vital file that cannot be made is
// replaced by one that takes everything and keeps nothing.
func (g *guard) open(name string, create func() (vfs.File, error)) (vfs.File, error) {
	var f vfs.File
	var err error
	change := func() error { f, err = create(); return err }
	if g.isBulk(name) {
		if err := g.bulk(change); err != nil {
			return nil, err
		}
		return &guardedFile{File: f, guard: g, bulk: true}, nil
	}
	g.vital(change)
	if f == nil {
		f = vfs.NewMemFile(nil)
	}
	return &guardedFile{File: f, guard: g}, nil
}

func (g *guard) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.open(name, func() (vfs.File, error) { return g.FS.Create(name, c) })
}

func (g *guard) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return g.open(name, func() (vfs.File, error) { return g.FS.OpenReadWrite(name, c, opts...) })
}

func (g *guard) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.open(name, func() (vfs.File, error) { return g.FS.ReuseForWrite(old, name, c) })
}

func (g *guard) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &guardedFile{File: f, guard: g}, nil
}

func (g *guard) Link(old, name string) error {
	if g.isBulk(name) {
		return g.bulk(func() error { return g.FS.Link(old, name) })
	}
	g.vital(func() error { return g.FS.Link(old, name) })
	return nil
}

func (g *guard) Rename(old, name string) error {
	g.vital(func() error { return g.FS.Rename(old, name) })
	return nil
}

func (g *guard) MkdirAll(dir string, perm os.FileMode) error {
	g.vital(func() error { return g.FS.MkdirAll(dir, perm) })
	return nil
}

// Remove of what is not needed any more may fail without harm; it must not be
// done once the disk no longer follows what Pebble believes.
func (g *guard) Remove(name string) error {
	return g.remove(func() error { return g.FS.Remove(name) })
}

// RemoveAll is like Remove.
func (g *guard) RemoveAll(name string) error {
	return g.remove(func() error { return g.FS.RemoveAll(name) })
}

func (g *guard) remove(change func() error) error {
	g.ops.RLock()
	defer g.ops.RUnlock()
	if g.fenced || g.failure() != nil {
		return nil
	}
	return change()
}

// Lock takes no lock: the DB holds the folder's lock over all openings.
func (g *guard) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// Unwrap returns the file system below.
func (g *guard) Unwrap() vfs.FS { return g.FS }
