package packs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// folders are those of a repository, parents first; indexes are made when needed.
var folders = []string{"", "packs", "objects", "objects/pack", "objects/info", "refs"}

// files are those of a repository that are the same in all of them.
var files = map[string]string{"HEAD": gitHEAD, "config": gitConfig}

// CheckDir gives what a repository's folder lacks of that which is the same in all of
// them, in byte order. An error that is fs.ErrNotExist says that there is no folder.
func CheckDir(root string, o Options) (lacking []string, err error) {
	o = o.withDefaults()
	if _, err := o.FS.Stat(root); err != nil {
		return nil, fmt.Errorf("check pack folder: %w", err)
	}
	for _, part := range parts() {
		_, err := o.FS.Stat(filepath.Join(root, part))
		if errors.Is(err, fs.ErrNotExist) {
			lacking = append(lacking, part)
		} else if err != nil {
			return nil, fmt.Errorf("check pack folder: %w", err)
		}
	}
	return lacking, nil
}

// parts are the names of all that a repository's folder consists of, parents first.
func parts() []string {
	all := slices.Clone(folders[1:])
	for name := range files {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// MendDir makes anew what CheckDir finds lacking, and tells what that was. It makes
// no repository where there is no folder: fs.ErrNotExist.
func MendDir(root string, o Options) (mended []string, err error) {
	o = o.withDefaults()
	lacking, err := CheckDir(root, o)
	if err != nil || len(lacking) == 0 {
		return nil, err
	}
	for _, part := range lacking {
		path := filepath.Join(root, part)
		if text, ok := files[part]; ok {
			err = replaceFile(o.FS, path, text)
		} else if err = o.FS.Mkdir(path); errors.Is(err, fs.ErrExist) {
			err = nil // another process mends it too
		}
		if err == nil {
			err = o.FS.SyncDir(filepath.Dir(path))
		}
		if err != nil {
			return mended, fmt.Errorf("mend pack folder: %w", err)
		}
		mended = append(mended, part)
	}
	return mended, nil
}

// replaceFile gives a small file its name once it is whole.
func replaceFile(fsys FS, path, text string) error {
	tmp := path + "." + randomHex()[:8] + ".tmp"
	err := writeFile(fsys, tmp, text)
	if err == nil {
		err = fsys.Rename(tmp, path)
	}
	if err != nil {
		_ = fsys.Remove(tmp)
	}
	return err
}

// Fresh opens a pack anew by what stands on disk now, whoever has it open. It is
// shared with nobody. The caller calls Release on it. Errors: those of Pack.
func (d *Dir) Fresh(name string) (*Pack, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	return openPack(d, name)
}

// Replaced reports whether another file than the one that is open has a pack's name.
func (d *Dir) Replaced(name string) (bool, error) {
	p, err := d.Pack(name)
	if err != nil {
		return false, err
	}
	defer p.Release()
	open, err := p.f.Stat()
	if err != nil {
		return false, fmt.Errorf("look at pack %s: %w", name, err)
	}
	now, err := d.fs.Stat(d.path(name, ".pack"))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrPackMissing, err)
	}
	if err != nil {
		return false, fmt.Errorf("look at pack %s: %w", name, err)
	}
	return !os.SameFile(open, now), nil
}

// Missing gives which of a pack's two files, ".idx" and ".pack", are not there.
func (d *Dir) Missing(name string) (exts []string, err error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	for _, ext := range []string{".idx", ".pack"} {
		_, err := d.fs.Stat(d.path(name, ext))
		if errors.Is(err, fs.ErrNotExist) {
			exts = append(exts, ext)
		} else if err != nil {
			return nil, fmt.Errorf("look at pack %s: %w", name, err)
		}
	}
	return exts, nil
}

// BringBack gives the files of a registered pack of that size their names again, where
// others of their links are left: in git's sight or in an index. Nothing gets a name
// that does not end with its checksum. ErrPackMissing: there is no such link.
func (d *Dir) BringBack(name string, size int64) error {
	missing, err := d.Missing(name)
	if err != nil || len(missing) == 0 {
		return err
	}
	from, err := d.findLinks(name, size, missing)
	if err != nil {
		return fmt.Errorf("bring back pack %s: %w", name, err)
	}
	slices.Reverse(missing) // the idx comes last
	for _, ext := range missing {
		err := d.fs.Link(from[ext], d.path(name, ext))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("bring back pack %s: %w", name, err)
		}
	}
	if err := d.fs.SyncDir(d.packsPath()); err != nil {
		return fmt.Errorf("bring back pack %s: %w", name, err)
	}
	return nil
}

// findLinks gives a path for each file of a pack, a link for those that are missing.
func (d *Dir) findLinks(name string, size int64, missing []string) (map[string]string, error) {
	indexes, err := d.Indexes()
	if err != nil {
		return nil, err
	}
	left := []string{d.linkPath(name, "")}
	for _, index := range indexes {
		left = append(left, filepath.Join(d.IndexPath(index), "pack", name))
	}
	of := func(ext string) []string {
		if slices.Contains(missing, ext) {
			return left
		}
		return []string{d.path(name, "")}
	}
	last := ErrPackMissing
	for _, pack := range of(".pack") {
		for _, idx := range of(".idx") {
			err := d.sound(name, size, pack+".pack", idx+".idx")
			if err == nil {
				return map[string]string{".pack": pack + ".pack", ".idx": idx + ".idx"}, nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				last = fmt.Errorf("%w: %w", ErrPackMissing, err)
			}
		}
	}
	return nil, last
}

// sound wants two files to be a pack of that size, whole to its last byte, and its idx.
func (d *Dir) sound(name string, size int64, packPath, idxPath string) error {
	p, err := openFiles(d, name, packPath, idxPath)
	if err != nil {
		return err
	}
	defer p.Release()
	if p.size != size {
		return fmt.Errorf("%s has %d bytes, want %d", filepath.Base(packPath), p.size, size)
	}
	_, err = d.sumFile(filepath.Dir(packPath), filepath.Base(packPath))
	return err
}

// sameLink reports whether git sees the file that is registered, as far as its length
// tells: in a copy of the data folder a link may have become a file of its own.
func (d *Dir) sameLink(name, ext string) (bool, error) {
	link, err := d.fs.Stat(d.linkPath(name, ext))
	if err != nil {
		return false, err
	}
	file, err := d.fs.Stat(d.path(name, ext))
	return err == nil && link.Size() == file.Size(), err
}
