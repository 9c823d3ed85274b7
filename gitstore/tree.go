package gitstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/refpolicy"
)

// emptyTree is the id of the tree without entries, which git knows without storing it.
var emptyTree = refpolicy.OID{0x4b, 0x82, 0x5d, 0xc6, 0x42, 0xcb, 0x6e, 0xb9, 0xa0, 0x60, 0xe5, 0x4b, 0xf8, 0xd6, 0x92, 0x88, 0xfb, 0xee, 0x49, 0x04}

// treeEntry is one entry of a tree object. Its name has no slash.
type treeEntry struct {
	mode Mode
	name string
	oid  refpolicy.OID
}

func (e treeEntry) isTree() bool { return e.mode == ModeTree }

// parseTree reads a tree object:
//
//	tree  = *entry
//	entry = mode SP name NUL oid    ; mode in octal, oid 20 bytes
func parseTree(data []byte) ([]treeEntry, error) {
	entries := make([]treeEntry, 0, len(data)/32)
	for rest := string(data); rest != ""; { // one copy, of which all names are parts
		sp := strings.IndexByte(rest, ' ')
		if sp < 1 || sp > 6 {
			return nil, fmt.Errorf("%w: tree entry without a mode", ErrBadObject)
		}
		mode, err := strconv.ParseUint(rest[:sp], 8, 32)
		if err != nil {
			return nil, fmt.Errorf("%w: tree entry mode %q", ErrBadObject, rest[:sp])
		}
		rest = rest[sp+1:]
		nul := strings.IndexByte(rest, 0)
		if nul < 1 || len(rest) < nul+1+20 {
			return nil, fmt.Errorf("%w: tree entry cut short", ErrBadObject)
		}
		e := treeEntry{mode: Mode(mode), name: rest[:nul]}
		copy(e.oid[:], rest[nul+1:])
		rest = rest[nul+21:]
		entries = append(entries, e)
	}
	return entries, nil
}

// encodeTree is the inverse of parseTree; entries are in git's order already.
func encodeTree(entries []treeEntry) []byte {
	size := 0
	for _, e := range entries {
		size += 6 + 1 + len(e.name) + 1 + len(e.oid)
	}
	b := make([]byte, 0, size)
	for _, e := range entries {
		b = strconv.AppendUint(b, uint64(e.mode), 8)
		b = append(b, ' ')
		b = append(b, e.name...)
		b = append(b, 0)
		b = append(b, e.oid[:]...)
	}
	return b
}

// compareEntries is git's order of tree entries: by name, a tree as if its name ended in a slash.
func compareEntries(a, b treeEntry) int {
	n := min(len(a.name), len(b.name))
	if c := strings.Compare(a.name[:n], b.name[:n]); c != 0 {
		return c
	}
	return int(endOf(a, n)) - int(endOf(b, n))
}

func endOf(e treeEntry, n int) byte {
	switch {
	case len(e.name) > n:
		return e.name[n]
	case e.isTree():
		return '/'
	}
	return 0
}

// treeEntries reads a tree; the zero id and the empty tree have no entries.
func (r *Repo) treeEntries(ctx context.Context, tree refpolicy.OID) ([]treeEntry, error) {
	if tree.IsZero() || tree == emptyTree {
		return nil, ctx.Err()
	}
	data, err := r.typed(ctx, tree, TreeObject)
	if err != nil {
		return nil, err
	}
	return parseTree(data)
}
