package pebbledb

import "github.com/cockroachdb/pebble/v2/vfs"

// guardedFile is a file on a guard; reading passes through.
type guardedFile struct {
	vfs.File
	guard *guard
	bulk  bool
}

var _ vfs.File = (*guardedFile)(nil)

func (f *guardedFile) change(do func() error) error {
	if f.bulk {
		return f.guard.bulk(do)
	}
	f.guard.vital(do)
	return nil
}

func (f *guardedFile) Write(p []byte) (int, error) {
	n := len(p)
	err := f.change(func() error {
		var err error
		n, err = f.File.Write(p)
		return err
	})
	if err == nil {
		n = len(p)
	}
	return n, err
}

func (f *guardedFile) WriteAt(p []byte, off int64) (int, error) {
	n := len(p)
	err := f.change(func() error {
		var err error
		n, err = f.File.WriteAt(p, off)
		return err
	})
	if err == nil {
		n = len(p)
	}
	return n, err
}

// maxPreallocate bounds what is set aside for a log at a time: Pebble would take a
// whole memory table's worth for each of the small first ones.
const maxPreallocate = 8 << 20

// Preallocate is a hint: without space for it there may still be space for what
// will really be written.
func (f *guardedFile) Preallocate(off, length int64) error {
	if !f.bulk {
		length = min(length, maxPreallocate)
	}
	f.guard.ops.RLock()
	defer f.guard.ops.RUnlock()
	if f.guard.fenced || f.guard.failure() != nil {
		return nil
	}
	if err := f.File.Preallocate(off, length); err != nil && !vfs.IsNoSpaceError(err) {
		return err
	}
	return nil
}

func (f *guardedFile) Sync() error     { return f.change(f.File.Sync) }
func (f *guardedFile) SyncData() error { return f.change(f.File.SyncData) }

func (f *guardedFile) SyncTo(length int64) (full bool, err error) {
	err = f.change(func() error {
		var err error
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

// Close always closes; only what it says may be kept from Pebble.
func (f *guardedFile) Close() error {
	err := f.File.Close()
	if err == nil || f.bulk {
		return err
	}
	f.guard.vital(func() error { return err })
	return nil
}
