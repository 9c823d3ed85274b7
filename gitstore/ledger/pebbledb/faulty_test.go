package pebbledb

import (
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// faultyFS is a file system that breaks when it is told to.
type faultyFS struct {
	mu    sync.Mutex
	inner vfs.FS
	// before is asked before each change; op is create, write, sync, rename or remove.
	before func(op, name string) error
	// capacity bounds the bytes of all files in dir; 0 is no bound.
	capacity int64
	dir      string
}

var _ vfs.FS = (*faultyFS)(nil)

func newFaultyFS(inner vfs.FS, dir string) *faultyFS { return &faultyFS{inner: inner, dir: dir} }

func (f *faultyFS) fs() vfs.FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.inner
}

// swap lets everything opened from now on come from another file system.
func (f *faultyFS) swap(inner vfs.FS) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inner = inner
}

func (f *faultyFS) breakWith(before func(op, name string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = before
}

func (f *faultyFS) setCapacity(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.capacity = n
}

func (f *faultyFS) ask(op, name string) error {
	f.mu.Lock()
	before := f.before
	f.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(op, name)
}

// room is how many bytes may still be written, and whether there is a bound.
func (f *faultyFS) room() (int64, bool) {
	f.mu.Lock()
	capacity, inner := f.capacity, f.inner
	f.mu.Unlock()
	if capacity == 0 {
		return 0, false
	}
	names, err := inner.List(f.dir)
	if err != nil {
		return capacity, true
	}
	for _, name := range names {
		if info, err := inner.Stat(inner.PathJoin(f.dir, name)); err == nil {
			capacity -= info.Size()
		}
	}
	return max(capacity, 0), true
}

func (f *faultyFS) wrap(op, name string, open func(vfs.FS) (vfs.File, error)) (vfs.File, error) {
	if err := f.ask(op, name); err != nil {
		return nil, err
	}
	file, err := open(f.fs())
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, fs: f, name: name}, nil
}

func (f *faultyFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.wrap("create", name, func(fs vfs.FS) (vfs.File, error) { return fs.Create(name, c) })
}

func (f *faultyFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.wrap("create", name, func(fs vfs.FS) (vfs.File, error) { return fs.OpenReadWrite(name, c, opts...) })
}

func (f *faultyFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.wrap("create", name, func(fs vfs.FS) (vfs.File, error) { return fs.ReuseForWrite(old, name, c) })
}

func (f *faultyFS) OpenDir(name string) (vfs.File, error) {
	return f.wrap("opendir", name, func(fs vfs.FS) (vfs.File, error) { return fs.OpenDir(name) })
}

func (f *faultyFS) Rename(old, name string) error {
	if err := f.ask("rename", name); err != nil {
		return err
	}
	return f.fs().Rename(old, name)
}

func (f *faultyFS) Remove(name string) error {
	if err := f.ask("remove", name); err != nil {
		return err
	}
	return f.fs().Remove(name)
}

func (f *faultyFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	if room, bounded := f.room(); bounded {
		return vfs.DiskUsage{AvailBytes: uint64(room), TotalBytes: 1 << 40}, nil
	}
	return f.fs().GetDiskUsage(path)
}

func (f *faultyFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.fs().Open(name, opts...)
}
func (f *faultyFS) Link(old, name string) error                 { return f.fs().Link(old, name) }
func (f *faultyFS) RemoveAll(name string) error                 { return f.fs().RemoveAll(name) }
func (f *faultyFS) MkdirAll(dir string, perm os.FileMode) error { return f.fs().MkdirAll(dir, perm) }
func (f *faultyFS) Lock(name string) (io.Closer, error)         { return f.fs().Lock(name) }
func (f *faultyFS) List(dir string) ([]string, error)           { return f.fs().List(dir) }
func (f *faultyFS) Stat(name string) (vfs.FileInfo, error)      { return f.fs().Stat(name) }
func (f *faultyFS) PathBase(path string) string                 { return f.fs().PathBase(path) }
func (f *faultyFS) PathJoin(elem ...string) string              { return f.fs().PathJoin(elem...) }
func (f *faultyFS) PathDir(path string) string                  { return f.fs().PathDir(path) }
func (f *faultyFS) Unwrap() vfs.FS                              { return f.fs() }

// faultyFile asks before each write and sync. On a full disk it writes what still
// goes in, as a real one does.
type faultyFile struct {
	vfs.File
	fs   *faultyFS
	name string
}

func (f *faultyFile) Write(p []byte) (int, error) {
	if err := f.fs.ask("write", f.name); err != nil {
		return 0, err
	}
	if room, bounded := f.fs.room(); bounded && room < int64(len(p)) {
		n, _ := f.File.Write(p[:room])
		return n, syscall.ENOSPC
	}
	return f.File.Write(p)
}

func (f *faultyFile) Sync() error {
	if err := f.fs.ask("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) SyncData() error {
	if err := f.fs.ask("sync", f.name); err != nil {
		return err
	}
	return f.File.SyncData()
}

// breakOn gives err for every op on a file whose name contains part.
func breakOn(op, part string, err error) func(string, string) error {
	return func(o, name string) error {
		if o == op && strings.Contains(name, part) {
			return err
		}
		return nil
	}
}
