package packs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
)

// Options of a Dir. The zero value is usable.
type Options struct {
	FS    FS         // OS{} when nil
	Codec Codec      // a StdCodec of its own when nil
	Cache *BaseCache // delta bases; shared by as many Dirs as one likes; one of 16 MiB when nil
	Level int        // deflate level of what AddStream writes, 1 to 9; 5 when 0
	// MaxInMemory bounds each object that decoding a delta has to hold; what is
	// larger is a *TooLargeError. 256 MiB when 0.
	MaxInMemory int64
	// Owner is whose incoming files and folders are, for SweepDead; a name without
	// slashes, or none.
	Owner string
	// Looking opens a folder also without its config: to look at what is there.
	Looking bool
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = OS{}
	}
	if o.Codec == nil {
		o.Codec = &StdCodec{}
	}
	if o.Cache == nil {
		o.Cache = NewBaseCache(16 << 20)
	}
	if o.Level <= 0 {
		o.Level = 5 // read faster than 3, by a fifth, and smaller; written more slowly, by a third
	}
	if o.MaxInMemory <= 0 {
		o.MaxInMemory = 256 << 20
	}
	return o
}

// A Dir is the folder of one repository. It is safe for concurrent use.
type Dir struct {
	root string
	o    Options
	fs   FS

	mu     sync.Mutex // guards the fields below; no file is touched under it
	open   map[string]*slot
	closed bool
}

// slot opens one pack once, however many ask for it at the same time.
type slot struct {
	once sync.Once
	p    *Pack
	err  error
}

// Open opens a folder made by CreateDir. It reads nothing but the folder's
// config: a pack costs only once it is asked for.
func Open(root string, o Options) (*Dir, error) {
	o = o.withDefaults()
	sign := "config"
	if o.Looking {
		sign = "."
	}
	if _, err := o.FS.Stat(filepath.Join(root, sign)); err != nil {
		return nil, fmt.Errorf("open pack folder: %w", err)
	}
	return &Dir{root: root, o: o, fs: o.FS, open: make(map[string]*slot)}, nil
}

// Root is the folder; it serves as GIT_DIR.
func (d *Dir) Root() string { return d.root }

// ObjectsPath is the folder that git takes as an alternate.
func (d *Dir) ObjectsPath() string { return filepath.Join(d.root, "objects") }

func (d *Dir) packsPath() string { return filepath.Join(d.root, "packs") }

func (d *Dir) path(name, ext string) string { return filepath.Join(d.root, "packs", name+ext) }

func (d *Dir) linkPath(name, ext string) string {
	return filepath.Join(d.root, "objects", "pack", name+ext)
}

// Pack opens the pack of that name, or shares it with those who have it open.
// The caller calls Release on it. Errors: ErrBadName, ErrPackMissing, a
// *BrokenError, ErrClosed. A failure is not remembered: the next call tries again.
func (d *Dir) Pack(name string) (*Pack, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	for {
		s, err := d.slotOf(name)
		if err != nil {
			return nil, err
		}
		s.once.Do(func() { s.p, s.err = openPack(d, name) })
		if s.err == nil && s.p.retain() {
			return s.p, nil
		}
		// Between slotOf and here the pack was closed under us: ask anew.
		if s.err != nil && !errors.Is(s.err, errForgotten) {
			d.dropSlot(name, s)
			return nil, s.err
		}
		d.dropSlot(name, s)
	}
}

var errForgotten = errors.New("pack was forgotten while it was opened")

func (d *Dir) slotOf(name string) (*slot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	s := d.open[name]
	if s == nil {
		s = &slot{}
		d.open[name] = s
	}
	return s, nil
}

func (d *Dir) dropSlot(name string, s *slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[name] == s {
		delete(d.open, name)
	}
}

// forget lets go the Dir's own hold on an open pack. Its file closes when its
// last reader has called Release.
func (s *slot) forget() {
	s.once.Do(func() { s.err = errForgotten })
	if s.p != nil {
		s.p.Release()
	}
}

// Forget closes a pack that is no longer wanted, once its readers are done.
func (d *Dir) Forget(name string) {
	d.mu.Lock()
	s := d.open[name]
	delete(d.open, name)
	d.mu.Unlock()
	if s != nil {
		s.forget()
	}
}

// Close lets all packs go. Those that are still held stay readable until Release.
func (d *Dir) Close() error {
	d.mu.Lock()
	all := d.open
	d.open, d.closed = nil, true
	d.mu.Unlock()
	for _, s := range all {
		s.forget()
	}
	return nil
}

// Adopt takes over a pack and its idx that git has written elsewhere on the same
// file system: both are checked, synced and moved in under a fresh name. The
// pack exists for nobody until the caller registers that name. On an error the
// files may be at either place; whoever owns the place they came from removes them.
func (d *Dir) Adopt(ctx context.Context, packPath, idxPath string) (Info, error) {
	if err := context.Cause(ctx); err != nil {
		return Info{}, err
	}
	name := newName()
	p, err := openFiles(d, name, packPath, idxPath)
	if err != nil {
		return Info{}, fmt.Errorf("adopt pack: %w", err)
	}
	info := Info{Name: name, Size: p.size, Objects: p.Count()}
	p.Release()
	for _, path := range []string{packPath, idxPath} {
		if err := d.syncFile(path); err != nil {
			return Info{}, fmt.Errorf("adopt pack: %w", err)
		}
	}
	if err := d.moveIn(name, packPath, idxPath); err != nil {
		return Info{}, fmt.Errorf("adopt pack: %w", err)
	}
	return info, nil
}

func (d *Dir) syncFile(path string) error {
	f, err := d.fs.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// moveIn gives two synced files their name in the folder, durably.
func (d *Dir) moveIn(name, packPath, idxPath string) error {
	err := d.fs.Rename(packPath, d.path(name, ".pack"))
	if err == nil {
		err = d.fs.Rename(idxPath, d.path(name, ".idx"))
	}
	if err == nil {
		err = d.fs.SyncDir(d.packsPath())
	}
	if err != nil {
		_ = d.fs.Remove(d.path(name, ".pack"))
		_ = d.fs.Remove(d.path(name, ".idx"))
	}
	return err
}

// Link lets git see a registered pack. The idx comes last, since git takes it
// for the sign that the pack is whole. Calling it again does no harm.
func (d *Dir) Link(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	for _, ext := range []string{".pack", ".idx"} {
		err := d.fs.Link(d.path(name, ext), d.linkPath(name, ext))
		if errors.Is(err, fs.ErrExist) {
			err = d.relink(name, ext)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", ErrPackMissing, err)
		}
		if err != nil {
			return fmt.Errorf("link pack %s: %w", name, err)
		}
	}
	if err := d.fs.SyncDir(filepath.Join(d.root, "objects", "pack")); err != nil {
		return fmt.Errorf("link pack %s: %w", name, err)
	}
	return nil
}

// relink takes a name from a file that is not the registered one and gives it to that.
func (d *Dir) relink(name, ext string) error {
	if same, err := d.sameLink(name, ext); same || err != nil {
		return err
	}
	if err := d.fs.Remove(d.linkPath(name, ext)); err != nil {
		return err
	}
	return d.fs.Link(d.path(name, ext), d.linkPath(name, ext))
}

// Linked reports whether the pack's files are there and git sees them.
func (d *Dir) Linked(name string) bool {
	for _, ext := range []string{".pack", ".idx"} {
		if same, err := d.sameLink(name, ext); !same || err != nil {
			return false
		}
	}
	return CheckName(name) == nil
}

// Unlink hides a pack from git processes that start from now on.
func (d *Dir) Unlink(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return d.removeAll("unlink pack", filepath.Join(d.root, "objects", "pack"),
		d.linkPath(name, ".idx"), d.linkPath(name, ".pack"))
}

// Remove deletes a pack, its link included. Those who hold it open go on reading.
func (d *Dir) Remove(name string) error {
	if err := d.Unlink(name); err != nil {
		return err
	}
	err := d.removeAll("remove pack", d.packsPath(), d.path(name, ".idx"), d.path(name, ".pack"))
	d.Forget(name) // last: until the files are gone it can be opened anew
	return err
}

// removeAll removes files that may be gone already and syncs their folder.
func (d *Dir) removeAll(what, folder string, paths ...string) error {
	for _, p := range paths {
		if err := d.fs.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	if err := d.fs.SyncDir(folder); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
