package packs

import (
	"io"
	"io/fs"
	"os"
)

// FS is every file operation of this package, so that a test can fail one or
// forget what was not synced. Errors are those of package os.
type FS interface {
	// Open opens a file to read; Sync works on it.
	Open(name string) (File, error)
	// Create makes a file that must not exist, to read and write.
	Create(name string) (File, error)
	// Mkdir makes a folder in a folder that exists.
	Mkdir(name string) error
	// Rename moves a file or folder on the same file system.
	Rename(from, to string) error
	// Link makes to another name of the file from.
	Link(from, to string) error
	// Remove removes a file or an empty folder.
	Remove(name string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
	// ReadDir lists a folder.
	ReadDir(name string) ([]fs.DirEntry, error)
	// Stat looks at a name.
	Stat(name string) (fs.FileInfo, error)
}

// A File is an open file of an FS.
type File interface {
	io.Reader
	io.Writer
	io.ReaderAt
	io.WriterAt
	io.Seeker
	io.Closer
	Truncate(size int64) error
	// Sync makes the content durable, not the file's name.
	Sync() error
	Stat() (fs.FileInfo, error)
}

// OS is the file system of the operating system.
type OS struct{}

var _ FS = OS{}

// Open is os.Open.
func (OS) Open(name string) (File, error) { return orNil(os.Open(name)) }

// Create makes a new file, readable by all who may enter the folder.
func (OS) Create(name string) (File, error) {
	return orNil(os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644))
}

// orNil keeps a nil *os.File from becoming a File that is not nil.
func orNil(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Mkdir is os.Mkdir.
func (OS) Mkdir(name string) error { return os.Mkdir(name, 0o755) }

// Rename is os.Rename.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Link is os.Link.
func (OS) Link(from, to string) error { return os.Link(from, to) }

// Remove is os.Remove.
func (OS) Remove(name string) error { return os.Remove(name) }

// SyncDir syncs the folder itself.
func (OS) SyncDir(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// ReadDir is os.ReadDir.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Stat is os.Lstat: a symbolic link is never followed.
func (OS) Stat(name string) (fs.FileInfo, error) { return os.Lstat(name) }
