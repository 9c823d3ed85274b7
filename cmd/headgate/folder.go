package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// privateFolder makes a folder that only its owner may look into; one that is there
// keeps its mode, and it is told if others can read it. What was made is told too, the
// outermost first: its parents are made as any others.
func privateFolder(dir string, log *slog.Logger) (made []string, err error) {
	dir = filepath.Clean(dir)
	if parent := filepath.Dir(dir); parent != dir {
		if made, err = parentFolders(parent); err != nil {
			return made, err
		}
	}
	switch err := os.Mkdir(dir, 0o700); {
	case err == nil:
		return append(made, dir), nil
	case !errors.Is(err, fs.ErrExist):
		return made, err
	}
	warnReadable(dir, log)
	return made, nil
}

func parentFolders(dir string) (made []string, err error) {
	err = os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		if made, err = parentFolders(filepath.Dir(dir)); err != nil {
			return made, err
		}
		err = os.Mkdir(dir, 0o755)
	}
	switch {
	case err == nil:
		return append(made, dir), nil
	case errors.Is(err, fs.ErrExist):
		return made, nil
	}
	return made, err
}

// warnReadable tells of a folder whose files others on the machine can read.
func warnReadable(dir string, log *slog.Logger) {
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o077 != 0 {
		log.Warn("others on this machine can look into this folder: chmod 700 keeps them out", "folder", dir, "mode", info.Mode().Perm().String())
	}
}

// removeMade removes folders again that privateFolder has made, if nothing is in them.
func removeMade(made []string) (err error) {
	for i := len(made) - 1; i >= 0; i-- {
		if rerr := os.Remove(made[i]); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}
