package packs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
)

const incomingPrefix = "incoming-"

// Incoming makes an empty throw-away folder on the packs' file system, fit to be
// a git process's GIT_OBJECT_DIRECTORY. The caller ends it by RemoveIncoming;
// after a crash Sweep does.
func (d *Dir) Incoming() (string, error) {
	path := filepath.Join(d.packsPath(), incomingPrefix+randomHex())
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
	entries, err := d.fs.ReadDir(d.packsPath())
	if err != nil {
		return 0, fmt.Errorf("sweep pack folder: %w", err)
	}
	n, limit := 0, time.Now().Add(-grace)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), incomingPrefix) {
			continue
		}
		path := filepath.Join(d.packsPath(), e.Name())
		touched, err := lastTouched(d.fs, path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && touched.After(limit) {
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
