package gitstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// scratch is this process's folder for files that need not survive it. The lock
// on it dies with the process, so whoever opens the store next knows what is left
// over, also where several processes share a data folder.
type scratch struct {
	path string
	lock *os.File
	dead []string // owners whose folders were there and were left over
}

// owner is the name under which the packs' folders know this process.
func (s *scratch) owner() string { return filepath.Base(s.path) }

// gone reports whether the process that an owner's name stands for has ended.
func (s *scratch) gone(owner string) bool {
	if owner == s.owner() {
		return false
	}
	lock, err := lockFolder(filepath.Join(filepath.Dir(s.path), owner))
	if err == nil {
		lock.Close()
	}
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

func openScratch(parent string) (*scratch, error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("make scratch folder: %w", err)
	}
	dead, err := sweepScratch(parent)
	if err != nil {
		return nil, fmt.Errorf("sweep scratch folder: %w", err)
	}
	for try := 1; ; try++ {
		s, err := newScratch(parent)
		if err == nil {
			s.dead = dead
		}
		if err == nil || try == scratchTries {
			return s, err
		}
	}
}

// scratchTries bounds how often a new folder is made because another process, which
// was sweeping, took it for one that is left over before it was locked.
const scratchTries = 20

func newScratch(parent string) (*scratch, error) {
	path, err := os.MkdirTemp(parent, "run-")
	if err != nil {
		return nil, fmt.Errorf("make scratch folder: %w", err)
	}
	lock, err := lockFolder(path)
	if err != nil {
		return nil, fmt.Errorf("lock scratch folder: %w", err)
	}
	if _, err := os.Stat(path); err != nil { // swept just before it was locked
		lock.Close()
		return nil, fmt.Errorf("lock scratch folder: %w", err)
	}
	return &scratch{path: path, lock: lock}, nil
}

func lockFolder(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweepScratch removes the folders of processes that are gone, and gives their names.
func sweepScratch(parent string) (dead []string, err error) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(parent, e.Name())
		lock, err := lockFolder(path)
		if err != nil {
			continue // in use, or gone already
		}
		os.RemoveAll(path) // what cannot be removed is tried again next time
		lock.Close()
		dead = append(dead, e.Name())
	}
	return dead, nil
}

func (s *scratch) close() {
	os.RemoveAll(s.path)
	s.lock.Close()
}
