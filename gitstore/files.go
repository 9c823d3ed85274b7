package gitstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/headgate/headgate/refpolicy"
)

// Mode is a git file mode.
type Mode uint32

// The modes a tree entry may have.
const (
	ModeFile       Mode = 0o100644
	ModeExecutable Mode = 0o100755
	ModeSymlink    Mode = 0o120000
	ModeSubmodule  Mode = 0o160000
	ModeTree       Mode = 0o040000
)

// canonical is the mode git takes m for: old trees hold modes like 0100664.
func (m Mode) canonical() Mode {
	switch m & 0o170000 {
	case 0o100000:
		if m&0o100 != 0 {
			return ModeExecutable
		}
		return ModeFile
	case ModeSymlink, ModeTree:
		return m & 0o170000
	}
	return ModeSubmodule
}

// File is a blob at a path of a commit. OID and Size are known before any content is read.
type File struct {
	OID  refpolicy.OID
	Mode Mode
	Size int64
	open func(ctx context.Context) (io.ReadSeekCloser, error)
}

// Open gives the content; close it. Seeking is meant for ranges: seeking forward
// in a large file that has not been read before may cost reading what is skipped.
func (f *File) Open(ctx context.Context) (io.ReadSeekCloser, error) { return f.open(ctx) }

// largeBlob is the size over which a blob is streamed instead of read whole.
const largeBlob = 1 << 20

// File finds path at commit. The caller has resolved commit. A trailing slash asks
// for a directory, so it never finds a file. Errors: ErrBadPath, ErrPathNotFound, ErrNotAFile.
func (r *Repo) File(ctx context.Context, commit refpolicy.OID, path string) (*File, error) {
	p, err := parsePath(path)
	if err != nil {
		return nil, err
	}
	h, err := graph{r, noFresh}.commit(ctx, commit)
	if err != nil {
		return nil, err
	}
	e, ok, err := r.entryAt(ctx, h.tree, p)
	if err != nil {
		return nil, fmt.Errorf("find file: %w", err)
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrPathNotFound, path)
	}
	if e.isTree() || e.mode == ModeSubmodule {
		return nil, fmt.Errorf("%w: %s is a %s", ErrNotAFile, path, kindOf(e.mode))
	}
	_, size, err := r.header(ctx, e.oid)
	if err != nil {
		return nil, fmt.Errorf("find file: %w", err)
	}
	f := &File{OID: e.oid, Mode: e.mode, Size: size}
	f.open = func(ctx context.Context) (io.ReadSeekCloser, error) { return r.openBlob(ctx, e.oid, size) }
	return f, nil
}

func kindOf(m Mode) string {
	if m == ModeSubmodule {
		return "submodule"
	}
	return "directory"
}

// smallFile is a blob in memory.
type smallFile struct{ bytes.Reader }

func (*smallFile) Close() error { return nil }

func (r *Repo) openBlob(ctx context.Context, oid refpolicy.OID, size int64) (io.ReadSeekCloser, error) {
	if size > largeBlob {
		return r.openLarge(ctx, oid, size)
	}
	data, err := r.typed(ctx, oid, BlobObject)
	if err != nil {
		return nil, fmt.Errorf("open file: %w", err)
	}
	f := &smallFile{}
	f.Reset(data)
	return f, nil
}

// treePath is a checked path from the root of a tree, without a slash at its end.
type treePath struct {
	name string // "" is the root
	dir  bool   // it was written with a trailing slash: only a directory is meant
}

// parsePath checks a path that names something below the root:
//
//	path = segment *( "/" segment ) [ "/" ]    ; no segment is empty, "." or ".."
//
// Its bytes are taken as they are: no decoding, no normalisation, no case folding.
func parsePath(path string) (treePath, error) {
	name, dir := strings.CutSuffix(path, "/")
	if strings.IndexByte(name, 0) >= 0 {
		return treePath{}, fmt.Errorf("%w: it holds a NUL", ErrBadPath)
	}
	for segment := range strings.SplitSeq(name, "/") {
		switch segment {
		case "", ".", "..":
			return treePath{}, fmt.Errorf("%w: %q has the segment %q", ErrBadPath, path, segment)
		}
	}
	return treePath{name, dir}, nil
}

// first splits p at its first slash.
func (p treePath) first() (segment string, rest treePath) {
	segment, p.name, _ = strings.Cut(p.name, "/")
	return segment, p
}

// parsePathOrRoot is parsePath that takes "" for the root.
func parsePathOrRoot(path string) (treePath, error) {
	if path == "" {
		return treePath{dir: true}, nil
	}
	return parsePath(path)
}

// entryAt finds what stands at p below tree, its mode in canonical form.
func (r *Repo) entryAt(ctx context.Context, tree refpolicy.OID, p treePath) (treeEntry, bool, error) {
	e := treeEntry{mode: ModeTree, oid: tree}
	for rest := p.name; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if !e.isTree() {
			return e, false, nil
		}
		var ok bool
		var err error
		if e, ok, err = r.entry(ctx, e.oid, name); err != nil || !ok {
			return e, false, err
		}
	}
	return e, e.isTree() || !p.dir, nil
}

// entry finds a name in a tree.
func (r *Repo) entry(ctx context.Context, tree refpolicy.OID, name string) (treeEntry, bool, error) {
	data, err := r.typed(ctx, tree, TreeObject)
	if err != nil {
		return treeEntry{}, false, err
	}
	e, ok, err := findEntry(data, name)
	e.mode = e.mode.canonical()
	return e, ok, err
}

// findEntry is parseTree for one name, without allocating: it is on the way to
// every file and of every step through a path's history.
func findEntry(data []byte, name string) (e treeEntry, ok bool, err error) {
	for len(data) > 0 {
		sp := bytes.IndexByte(data, ' ')
		nul := bytes.IndexByte(data, 0)
		if sp < 1 || nul < sp || len(data) < nul+21 {
			return e, false, fmt.Errorf("%w: tree entry cut short", ErrBadObject)
		}
		if string(data[sp+1:nul]) == name {
			mode, err := strconv.ParseUint(string(data[:sp]), 8, 32)
			if err != nil {
				return e, false, fmt.Errorf("%w: tree entry mode %q", ErrBadObject, data[:sp])
			}
			e = treeEntry{mode: Mode(mode), name: name}
			copy(e.oid[:], data[nul+1:])
			return e, true, nil
		}
		data = data[nul+21:]
	}
	return e, false, nil
}
