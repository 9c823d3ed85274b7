package gitstore

import (
	"fmt"
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
}

func openScratch(parent string) (*scratch, error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("make scratch folder: %w", err)
	}
	if err := sweepScratch(parent); err != nil {
		return nil, fmt.Errorf("sweep scratch folder: %w", err)
	}
	path, err := os.MkdirTemp(parent, "run-")
	if err != nil {
		return nil, fmt.Errorf("make scratch folder: %w", err)
	}
	lock, err := lockFolder(path)
	if err != nil {
		return nil, fmt.Errorf("lock scratch folder: %w", err)
	}
	return &scratch{path, lock}, nil
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

// sweepScratch removes the folders of processes that are gone.
func sweepScratch(parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(parent, e.Name())
		lock, err := lockFolder(path)
		if err != nil {
			continue // in use, or gone already
		}
		os.RemoveAll(path) // what cannot be removed is tried again next time
		lock.Close()
	}
	return nil
}

func (s *scratch) close() {
	os.RemoveAll(s.path)
	s.lock.Close()
}
