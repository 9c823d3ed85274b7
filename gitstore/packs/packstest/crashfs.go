// Package packstest has file systems for tests of what must survive a crash.
//
// A CrashFS works on real files and remembers the order of what was done. A
// point is the moment after one sync, of a file or of a folder. Materialise puts
// into another folder what a power cut at a point would have left.
package packstest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/headgate/headgate/gitstore/packs"
)

// An Op is one file operation, told to the hooks of a CrashFS.
type Op struct {
	Kind string // open, create, mkdir, rename, link, remove, sync, syncdir, write, readdir, stat
	Path string // relative to the root
	To   string // rename, link: the new name
}

func (o Op) String() string { return strings.TrimSpace(o.Kind + " " + o.Path + " " + o.To) }

// A CrashFS is an FS under one root folder. What others write below the root,
// such as git, counts as written and not synced. Operations wait for each other.
type CrashFS struct {
	// Before is asked before each operation; its error is the operation's. Set it
	// before the first use. It may be called from several goroutines.
	Before func(Op) error
	// After is told each sync that was done, with the point it makes.
	After func(point int, op Op)

	os    packs.OS
	root  string
	snaps string // a folder for the contents that were synced

	mu     sync.Mutex // guards the fields below, and keeps log and disk in step
	top    *node
	log    []event
	points []Op
}

var _ packs.FS = (*CrashFS)(nil)

// A node is a file or folder, whatever names it has.
type node struct {
	dir      bool
	children map[string]*node // what the folder holds now
}

// An event is one step of the log that Materialise plays.
type event struct {
	node    *node            // whose state this sets
	names   map[string]*node // the folder's names after the step
	synced  bool             // the names, or the content, are durable from here on
	content string           // file synced: where its content is kept
	point   int              // the point this step belongs to
}

// New takes what is in root as durable. snaps is a folder of its own, outside
// root, for what gets synced.
func New(root, snaps string) (*CrashFS, error) {
	c := &CrashFS{root: filepath.Clean(root), snaps: snaps, top: newNode(true)}
	if err := c.reconcile(c.top, c.root, true); err != nil {
		return nil, err
	}
	return c, nil
}

func newNode(dir bool) *node {
	n := &node{dir: dir}
	if dir {
		n.children = make(map[string]*node)
	}
	return n
}

// Points gives the syncs done so far; point i is the moment after the i-th,
// counted from 1, and point 0 is the beginning.
func (c *CrashFS) Points() []Op {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Op(nil), c.points...)
}

func (c *CrashFS) before(op Op) error {
	op.Path, op.To = c.rel(op.Path), c.rel(op.To)
	if c.Before == nil {
		return nil
	}
	if err := c.Before(op); err != nil {
		return &fs.PathError{Op: op.Kind, Path: op.Path, Err: err}
	}
	return nil
}

func (c *CrashFS) rel(path string) string {
	if path == "" {
		return ""
	}
	rel, err := filepath.Rel(c.root, path)
	if err != nil {
		return path
	}
	return rel
}

// find gives the node of a path, taking in what others made there.
func (c *CrashFS) find(path string) (*node, error) {
	rel := c.rel(path)
	if rel == ".." || strings.HasPrefix(rel, "../") {
		return nil, fmt.Errorf("packstest: %s is outside the crash file system", path)
	}
	n, at := c.top, c.root
	if rel == "." {
		return n, nil
	}
	for _, name := range strings.Split(rel, string(filepath.Separator)) {
		at = filepath.Join(at, name)
		next := n.children[name]
		if next == nil {
			info, err := os.Lstat(at)
			if err != nil {
				return nil, err
			}
			next = newNode(info.IsDir())
			c.name(n, name, next)
		}
		n = next
	}
	return n, nil
}

// name puts a name into a folder, or takes it away when to is nil.
func (c *CrashFS) name(dir *node, name string, to *node) {
	if to == nil {
		delete(dir.children, name)
	} else {
		dir.children[name] = to
	}
	c.log = append(c.log, event{node: dir, names: clone(dir.children), point: len(c.points)})
}

func clone(m map[string]*node) map[string]*node {
	out := make(map[string]*node, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// reconcile makes a folder's names those on the disk. With durable, all of it
// counts as synced, contents too.
func (c *CrashFS) reconcile(dir *node, path string, durable bool) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	there := make(map[string]bool)
	for _, e := range entries {
		there[e.Name()] = true
		n := dir.children[e.Name()]
		if n == nil {
			n = newNode(e.IsDir())
			c.name(dir, e.Name(), n)
		}
		at := filepath.Join(path, e.Name())
		switch {
		case !durable:
		case e.IsDir():
			err = c.reconcile(n, at, true)
		default:
			err = c.keepPath(n, at)
		}
		if err != nil {
			return err
		}
	}
	for name := range dir.children {
		if !there[name] {
			c.name(dir, name, nil)
		}
	}
	if durable {
		c.log = append(c.log, event{node: dir, names: clone(dir.children), synced: true})
	}
	return nil
}

func (c *CrashFS) keepPath(n *node, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.keep(n, f)
}

// keep notes that the content of a file is durable as it is now.
func (c *CrashFS) keep(n *node, f io.ReaderAt) error {
	out, err := os.CreateTemp(c.snaps, "content-")
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.NewSectionReader(f, 0, 1<<62))
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	c.log = append(c.log, event{node: n, synced: true, content: out.Name(), point: len(c.points)})
	return err
}

// point ends a sync: all events from now on belong to the next moment.
func (c *CrashFS) point(op Op) int {
	op.Path = c.rel(op.Path)
	c.points = append(c.points, op)
	c.log[len(c.log)-1].point = len(c.points)
	return len(c.points)
}

func (c *CrashFS) told(point int, op Op) {
	if c.After != nil {
		op.Path = c.rel(op.Path)
		c.After(point, op)
	}
}

// do runs one operation between its hook and its entry in the log.
func (c *CrashFS) do(op Op, disk func() error, log func() error) error {
	if err := c.before(op); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := disk(); err != nil {
		return err
	}
	return log()
}

func (c *CrashFS) parent(path string) (*node, string, error) {
	n, err := c.find(filepath.Dir(path))
	return n, filepath.Base(path), err
}

// Open opens a file to read.
func (c *CrashFS) Open(name string) (packs.File, error) {
	return c.file(Op{Kind: "open", Path: name}, c.os.Open)
}

// Create makes a new file; neither it nor its name is durable yet.
func (c *CrashFS) Create(name string) (packs.File, error) {
	return c.file(Op{Kind: "create", Path: name}, c.os.Create)
}

func (c *CrashFS) file(op Op, open func(string) (packs.File, error)) (packs.File, error) {
	var f packs.File
	var n *node
	err := c.do(op, func() (err error) {
		f, err = open(op.Path)
		return err
	}, func() (err error) {
		n, err = c.find(op.Path)
		return err
	})
	if err != nil {
		if f != nil {
			_ = f.Close()
		}
		return nil, err
	}
	return &crashFile{File: f, c: c, n: n, path: op.Path}, nil
}

// Mkdir makes a folder; its name is not durable yet.
func (c *CrashFS) Mkdir(name string) error {
	return c.do(Op{Kind: "mkdir", Path: name}, func() error { return c.os.Mkdir(name) }, func() error {
		_, err := c.find(name)
		return err
	})
}

// Rename moves a name; each of the two folders must be synced for its half.
func (c *CrashFS) Rename(from, to string) error {
	var n *node
	return c.do(Op{Kind: "rename", Path: from, To: to}, func() (err error) {
		if n, err = c.find(from); err == nil {
			err = c.os.Rename(from, to)
		}
		return err
	}, func() error { return errors.Join(c.rename(from, nil), c.rename(to, n)) })
}

func (c *CrashFS) rename(path string, n *node) error {
	dir, base, err := c.parent(path)
	if err == nil {
		c.name(dir, base, n)
	}
	return err
}

// Link gives a file one more name.
func (c *CrashFS) Link(from, to string) error {
	return c.do(Op{Kind: "link", Path: from, To: to}, func() error { return c.os.Link(from, to) }, func() error {
		n, err := c.find(from)
		if err == nil {
			err = c.rename(to, n)
		}
		return err
	})
}

// Remove takes a name away; after a cut it may be back.
func (c *CrashFS) Remove(name string) error {
	return c.do(Op{Kind: "remove", Path: name}, func() error { return c.os.Remove(name) }, func() error {
		return c.rename(name, nil)
	})
}

// SyncDir makes the names in a folder durable.
func (c *CrashFS) SyncDir(name string) error {
	op, point := Op{Kind: "syncdir", Path: name}, 0
	err := c.do(op, func() error { return nil }, func() error {
		n, err := c.find(name)
		if err == nil {
			err = c.reconcile(n, name, false)
		}
		if err != nil {
			return err
		}
		c.log = append(c.log, event{node: n, names: clone(n.children), synced: true})
		point = c.point(op)
		return nil
	})
	if err == nil {
		c.told(point, op)
	}
	return err
}

// ReadDir lists a folder as it is now.
func (c *CrashFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := c.before(Op{Kind: "readdir", Path: name}); err != nil {
		return nil, err
	}
	return c.os.ReadDir(name)
}

// Stat looks at a name as it is now.
func (c *CrashFS) Stat(name string) (fs.FileInfo, error) {
	if err := c.before(Op{Kind: "stat", Path: name}); err != nil {
		return nil, err
	}
	return c.os.Stat(name)
}

// A crashFile tells its CrashFS when it is synced.
type crashFile struct {
	packs.File
	c    *CrashFS
	n    *node
	path string
}

func (f *crashFile) Write(b []byte) (int, error) {
	if err := f.c.before(Op{Kind: "write", Path: f.path}); err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

func (f *crashFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.c.before(Op{Kind: "write", Path: f.path}); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, off)
}

func (f *crashFile) Sync() error {
	op, point := Op{Kind: "sync", Path: f.path}, 0
	err := f.c.do(op, func() error { return nil }, func() error {
		if err := f.c.keep(f.n, f.File); err != nil {
			return err
		}
		point = f.c.point(op)
		return nil
	})
	if err == nil {
		f.c.told(point, op)
	}
	return err
}
