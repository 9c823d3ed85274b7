package packs

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
)

// An index folder holds what git keeps about many packs at once: a multi-pack-index
// with its bitmaps and a commit-graph, beside hard links to the packs they speak of.
// git takes it for one more object directory. Since the links are its own, no pack
// that its index names can be missing while the folder is there, whatever becomes of
// the pack elsewhere. A folder is written once, under a name never used before, and
// removed as a whole; as with packs, it exists for nobody until it is registered.

const (
	indexPrefix  = "index-"
	indexesName  = "indexes"
	midxName     = "pack/multi-pack-index"
	graphName    = "info/commit-graph"
	bitmapSuffix = ".bitmap"
	sumLen       = sha1.Size
)

// An IndexFile is one file of an index folder as it was when it was made durable.
type IndexFile struct {
	Name string `json:"name"` // below the folder, with slashes
	Size int64  `json:"size"`
	Sum  string `json:"sum"` // git's SHA-1 of what precedes it, at the end of the file; hex
}

// IsGraph reports whether the file is the commit-graph.
func (f IndexFile) IsGraph() bool { return f.Name == graphName }

// IsBitmap reports whether the file holds the bitmaps.
func (f IndexFile) IsBitmap() bool { return strings.HasSuffix(f.Name, bitmapSuffix) }

// CheckIndexName refuses what is not index-<40 lower-case hex digits>: ErrBadName.
func CheckIndexName(name string) error {
	digits, ok := strings.CutPrefix(name, indexPrefix)
	if !ok || CheckName(namePrefix+digits) != nil {
		return fmt.Errorf("%w: %q", ErrBadName, name)
	}
	return nil
}

func (d *Dir) indexesPath() string { return filepath.Join(d.root, indexesName) }

// IndexPath is the object directory that git is given for an index.
func (d *Dir) IndexPath(name string) string { return filepath.Join(d.indexesPath(), name) }

// NewIndex makes an index folder with links to packs, and nothing else in it yet.
// ErrPackMissing: one of them has been removed. The caller ends it by SealIndex or
// RemoveIndex.
func (d *Dir) NewIndex(packNames []string) (name string, err error) {
	if err := d.makeIndexes(); err != nil {
		return "", fmt.Errorf("make index folder: %w", err)
	}
	name = indexPrefix + randomHex()
	path := d.IndexPath(name)
	defer func() {
		if err != nil {
			_ = removeTree(d.fs, path)
		}
	}()
	for _, p := range []string{path, filepath.Join(path, "pack"), filepath.Join(path, "info")} {
		if err := d.fs.Mkdir(p); err != nil {
			return "", fmt.Errorf("make index folder: %w", err)
		}
	}
	for _, pack := range packNames {
		if err := d.LinkInto(path, pack); err != nil {
			return "", fmt.Errorf("make index folder: %w", err)
		}
	}
	return name, nil
}

// makeIndexes makes the parent of index folders: repositories made before there
// were any have none.
func (d *Dir) makeIndexes() error {
	if _, err := d.fs.Stat(d.indexesPath()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.fs.Mkdir(d.indexesPath()); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.fs.SyncDir(d.root)
}

// LinkInto puts a pack into an object directory, be it one of Incoming or of an
// index: ErrPackMissing.
func (d *Dir) LinkInto(objects, pack string) error {
	if err := CheckName(pack); err != nil {
		return err
	}
	for _, ext := range []string{".pack", ".idx"} {
		err := d.fs.Link(d.path(pack, ext), filepath.Join(objects, "pack", pack+ext))
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", ErrPackMissing, err)
		}
		if err != nil {
			return fmt.Errorf("link pack %s: %w", pack, err)
		}
	}
	return nil
}

// SealIndex makes durable what git has written into an index folder, and the folder
// with it. The files it gives are what is to be registered.
func (d *Dir) SealIndex(name string) ([]IndexFile, error) {
	path := d.IndexPath(name)
	var files []IndexFile
	for _, sub := range []string{"info", "pack"} {
		entries, err := d.fs.ReadDir(filepath.Join(path, sub))
		if err != nil {
			return nil, fmt.Errorf("seal index: %w", err)
		}
		for _, e := range entries {
			if isPackFile(e.Name()) {
				continue // durable already
			}
			f, err := d.sealFile(path, sub+"/"+e.Name())
			if err != nil {
				return nil, fmt.Errorf("seal index: %w", err)
			}
			files = append(files, f)
		}
	}
	for _, folder := range []string{filepath.Join(path, "info"), filepath.Join(path, "pack"), path, d.indexesPath()} {
		if err := d.fs.SyncDir(folder); err != nil {
			return nil, fmt.Errorf("seal index: %w", err)
		}
	}
	return files, nil
}

func isPackFile(name string) bool {
	base := strings.TrimSuffix(strings.TrimSuffix(name, ".pack"), ".idx")
	return base != name && CheckName(base) == nil
}

func (d *Dir) sealFile(folder, name string) (IndexFile, error) {
	got, err := d.sumFile(folder, name)
	if err == nil {
		err = d.syncFile(filepath.Join(folder, name))
	}
	return got, err
}

// sumFile hashes a file whose last bytes must be the hash of the rest, as git ends
// all files of these kinds.
func (d *Dir) sumFile(folder, name string) (IndexFile, error) {
	f, size, err := openSized(d.fs, filepath.Join(folder, name))
	if err != nil {
		return IndexFile{}, err
	}
	defer f.Close()
	if size < sumLen {
		return IndexFile{}, fmt.Errorf("%w: %s has %d bytes", ErrIndexBroken, name, size)
	}
	h := sha1.New()
	if _, err := io.CopyBuffer(h, io.NewSectionReader(f, 0, size-sumLen), make([]byte, 256<<10)); err != nil {
		return IndexFile{}, err
	}
	var sum [sumLen]byte
	if _, err := f.ReadAt(sum[:], size-sumLen); err != nil {
		return IndexFile{}, err
	}
	if [sumLen]byte(h.Sum(nil)) != sum {
		return IndexFile{}, fmt.Errorf("%w: %s does not end with its checksum", ErrIndexBroken, name)
	}
	return IndexFile{Name: name, Size: size, Sum: hex.EncodeToString(sum[:])}, nil
}

// VerifyIndex reads the files of an index and looks for the packs it names:
// ErrIndexBroken if anything is not as it was registered.
func (d *Dir) VerifyIndex(name string, packNames []string, files []IndexFile) error {
	if err := CheckIndexName(name); err != nil {
		return err
	}
	for _, want := range files {
		if !fs.ValidPath(want.Name) {
			return fmt.Errorf("%w: %q", ErrBadName, want.Name)
		}
		got, err := d.sumFile(d.IndexPath(name), want.Name)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %s is missing", ErrIndexBroken, want.Name)
		}
		if err == nil && got != want {
			err = fmt.Errorf("%w: %s is another file", ErrIndexBroken, want.Name)
		}
		if err != nil {
			return fmt.Errorf("verify %s: %w", name, err)
		}
	}
	for _, pack := range packNames {
		for _, ext := range []string{".pack", ".idx"} {
			_, err := d.fs.Stat(filepath.Join(d.IndexPath(name), "pack", pack+ext))
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w: it names pack %s, which it has no link to", ErrIndexBroken, pack)
			}
			if err != nil {
				return fmt.Errorf("verify %s: %w", name, err)
			}
		}
	}
	return nil
}

// An IndexStamp changes when a file of an index is written to or a name in its
// folders comes or goes, as far as the file system's times tell.
type IndexStamp string

// StampIndex looks at the files of an index without reading them: ErrIndexBroken if
// one is missing.
func (d *Dir) StampIndex(name string, files []IndexFile) (IndexStamp, error) {
	var b strings.Builder
	for _, f := range append([]IndexFile{{Name: "pack"}, {Name: "info"}}, files...) {
		info, err := d.fs.Stat(filepath.Join(d.IndexPath(name), f.Name))
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %s is missing", ErrIndexBroken, f.Name)
		}
		if err != nil {
			return "", fmt.Errorf("look at %s: %w", name, err)
		}
		fmt.Fprintf(&b, "%d %d\n", info.Size(), info.ModTime().UnixNano())
	}
	return IndexStamp(b.String()), nil
}

// RemoveIndex removes an index folder, its links included. The packs stay.
func (d *Dir) RemoveIndex(name string) error {
	if err := CheckIndexName(name); err != nil {
		return err
	}
	if _, err := d.fs.Stat(d.IndexPath(name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := removeTree(d.fs, d.IndexPath(name)); err != nil {
		return fmt.Errorf("remove index: %w", err)
	}
	if err := d.fs.SyncDir(d.indexesPath()); err != nil {
		return fmt.Errorf("remove index: %w", err)
	}
	return nil
}

// Indexes gives the names of all index folders, whole or not, in byte order. It is
// for a janitor that compares them with the registered ones.
func (d *Dir) Indexes() ([]string, error) {
	entries, err := d.fs.ReadDir(d.indexesPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list index folders: %w", err)
	}
	var names []string
	for _, e := range entries {
		if CheckIndexName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// IndexUntouched reports whether nothing was written into an index folder for
// longer than grace. Links to old packs do not make it old: its folders are young.
func (d *Dir) IndexUntouched(name string, grace time.Duration) (bool, error) {
	if err := CheckIndexName(name); err != nil {
		return false, err
	}
	touched, err := lastTouched(d.fs, d.IndexPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", name, err)
	}
	return touched.Before(time.Now().Add(-grace)), nil
}
