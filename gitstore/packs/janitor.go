package packs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
)

// The names of incoming files and folders are incoming-[OWNER-]HEX, files with .tmp
// behind it.
const incomingPrefix = "incoming-"

func (d *Dir) incomingName() string {
	if d.o.Owner == "" {
		return incomingPrefix + randomHex()
	}
	return IncomingOf(d.o.Owner) + randomHex()
}

// IncomingOf is what the names begin with of all that is incoming for an owner.
func IncomingOf(owner string) string { return incomingPrefix + owner + "-" }

// ownerOf is the owner in the name of something incoming; "" for none.
func ownerOf(name string) string {
	owner := strings.TrimPrefix(name, incomingPrefix)
	if i := strings.LastIndexByte(owner, '-'); i >= 0 {
		return owner[:i]
	}
	return ""
}

// Incoming makes an empty throw-away folder on the packs' file system, fit to be
// a git process's GIT_OBJECT_DIRECTORY. The caller ends it by RemoveIncoming;
// after a crash Sweep does.
func (d *Dir) Incoming() (string, error) {
	path := filepath.Join(d.packsPath(), d.incomingName())
	for _, p := range []string{path, filepath.Join(path, "pack"), filepath.Join(path, "info")} {
		if err := d.fs.Mkdir(p); err != nil {
			_ = removeTree(d.fs, path)
			return "", fmt.Errorf("make incoming folder: %w", err)
		}
	}
	return path, nil
}

// RemoveIncoming removes a folder made by Incoming with all that is left in it.
func (d *Dir) RemoveIncoming(path string) error {
	if filepath.Dir(path) != d.packsPath() || !strings.HasPrefix(filepath.Base(path), incomingPrefix) {
		return fmt.Errorf("remove incoming folder: %w: %q", ErrBadName, filepath.Base(path))
	}
	if err := removeTree(d.fs, path); err != nil {
		return fmt.Errorf("remove incoming folder: %w", err)
	}
	return nil
}

// Files gives the names of all packs of which a file is in the folder, whole or
// not, in byte order. It is for a janitor that compares them with the registered
// ones, and for nobody who looks for packs.
func (d *Dir) Files() ([]string, error) {
	entries, err := d.fs.ReadDir(d.packsPath())
	if err != nil {
		return nil, fmt.Errorf("list pack files: %w", err)
	}
	var names []string
	for _, e := range entries { // in byte order, so .idx and .pack stand together
		name := strings.TrimSuffix(strings.TrimSuffix(e.Name(), ".pack"), ".idx")
		if CheckName(name) != nil || len(names) > 0 && names[len(names)-1] == name {
			continue
		}
		names = append(names, name)
	}
	return names, nil
}

// Sweep removes incoming files and folders that nothing has touched for longer
// than grace, which must be longer than the longest request. It gives how many.
func (d *Dir) Sweep(grace time.Duration) (int, error) {
	limit := time.Now().Add(-grace)
	return d.sweep(func(path string) (bool, error) {
		touched, err := lastTouched(d.fs, path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return !touched.After(limit), err
	})
}

// SweepDead removes incoming files and folders whose owner is gone. It gives how many.
func (d *Dir) SweepDead(gone func(owner string) bool) (int, error) {
	return d.sweep(func(path string) (bool, error) {
		owner := ownerOf(filepath.Base(path))
		return owner != "" && gone(owner), nil
	})
}

// sweep removes what is incoming and done with.
func (d *Dir) sweep(done func(path string) (bool, error)) (int, error) {
	entries, err := d.fs.ReadDir(d.packsPath())
	if err != nil {
		return 0, fmt.Errorf("sweep pack folder: %w", err)
	}
	n := 0
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), incomingPrefix) {
			continue
		}
		path := filepath.Join(d.packsPath(), e.Name())
		remove, err := done(path)
		if err == nil && !remove {
			continue
		}
		if err == nil {
			err = removeTree(d.fs, path)
		}
		if err != nil {
			return n, fmt.Errorf("sweep pack folder: %w", err)
		}
		n++
	}
	return n, nil
}

// lastTouched is the newest modification time in a file or folder: a folder in
// which a large push still streams into one file is not old.
func lastTouched(fsys FS, path string) (time.Time, error) {
	info, err := fsys.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	newest := info.ModTime()
	if !info.IsDir() {
		return newest, nil
	}
	entries, err := fsys.ReadDir(path)
	if err != nil {
		return time.Time{}, err
	}
	for _, e := range entries {
		t, err := lastTouched(fsys, filepath.Join(path, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return time.Time{}, err
		}
		if t.After(newest) {
			newest = t
		}
	}
	return newest, nil
}
