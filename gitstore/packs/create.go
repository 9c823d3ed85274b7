package packs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// The config forbids git to delete or rewrite anything in the folder; an old
// git that does not know the extension refuses the repository.
const gitConfig = `[core]
	repositoryformatversion = 1
	bare = true
	filemode = true
	logallrefupdates = false
[extensions]
	preciousObjects = true
[gc]
	auto = 0
[maintenance]
	auto = false
`

// No branch of that name can be made: refs are not files here.
const gitHEAD = "ref: refs/heads/main\n"

// CreateDir makes the folder of a repository, whole and durable, or makes sure
// of one that is there. root's parent must exist.
func CreateDir(root string, o Options) error {
	o = o.withDefaults()
	if _, err := o.FS.Stat(filepath.Join(root, "config")); err == nil {
		return syncParent(o.FS, root)
	}
	// Built beside and renamed: a folder that has its name is whole.
	tmp := root + "." + randomHex()[:8] + ".tmp"
	if err := fillDir(o.FS, tmp); err != nil {
		_ = removeTree(o.FS, tmp)
		return fmt.Errorf("create pack folder: %w", err)
	}
	if err := o.FS.Rename(tmp, root); err != nil {
		_ = removeTree(o.FS, tmp)
		// Two may create at once; the folder of either will do.
		if _, serr := o.FS.Stat(filepath.Join(root, "config")); serr != nil {
			return fmt.Errorf("create pack folder: %w", err)
		}
	}
	return syncParent(o.FS, root)
}

func syncParent(fsys FS, root string) error {
	if err := fsys.SyncDir(filepath.Dir(root)); err != nil {
		return fmt.Errorf("create pack folder: %w", err)
	}
	return nil
}

func fillDir(fsys FS, root string) error {
	for _, p := range folders {
		if err := fsys.Mkdir(filepath.Join(root, p)); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := writeFile(fsys, filepath.Join(root, name), text); err != nil {
			return err
		}
	}
	for _, p := range folders {
		if err := fsys.SyncDir(filepath.Join(root, p)); err != nil {
			return err
		}
	}
	return nil
}

// writeFile makes a small file and syncs its content.
func writeFile(fsys FS, name, text string) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// removeTree removes a file or a folder with all that is in it; one that is not
// there is no error.
func removeTree(fsys FS, name string) error {
	info, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		entries, err := fsys.ReadDir(name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := removeTree(fsys, filepath.Join(name, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
