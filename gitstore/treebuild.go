package gitstore

import (
	"errors"
	"slices"
	"strings"

	"github.com/headgate/headgate/refpolicy"
)

// treeNode is a tree being changed. Folders are read when a change goes into them.
type treeNode struct {
	read    func(refpolicy.OID) ([]treeEntry, error)
	before  refpolicy.OID        // the tree's id when it was read; zero for a new one
	entries []treeEntry          // sorted by compareEntries; the oid of a folder in kids is not up to date
	kids    map[string]*treeNode // folders that were gone into
}

// newTreeNode reads a tree; read gives the caller entries of its own.
func newTreeNode(tree refpolicy.OID, read func(refpolicy.OID) ([]treeEntry, error)) (*treeNode, error) {
	n := &treeNode{read: read, before: tree}
	if tree.IsZero() || tree == emptyTree {
		return n, nil
	}
	var err error
	n.entries, err = read(tree)
	return n, err
}

// find is the place of the entry of that name, -1 if there is none. A file and a
// folder of one name would stand at different places, so both are looked for.
func (n *treeNode) find(name string) int {
	for _, mode := range [...]Mode{ModeFile, ModeTree} {
		i, ok := slices.BinarySearchFunc(n.entries, treeEntry{mode: mode, name: name}, compareEntries)
		if ok {
			return i
		}
	}
	return -1
}

// put sets an entry, replacing the one of that name.
func (n *treeNode) put(e treeEntry) {
	n.drop(e.name)
	i, _ := slices.BinarySearchFunc(n.entries, e, compareEntries)
	n.entries = slices.Insert(n.entries, i, e)
}

func (n *treeNode) drop(name string) {
	if i := n.find(name); i >= 0 {
		n.entries = slices.Delete(n.entries, i, i+1)
	}
	delete(n.kids, name)
}

// folder goes into a folder, making it if create is set; nil if it is not there.
func (n *treeNode) folder(name string, create bool) (*treeNode, error) {
	if kid := n.kids[name]; kid != nil {
		return kid, nil
	}
	i := n.find(name)
	switch {
	case i < 0 && !create:
		return nil, nil
	case i < 0:
		n.put(treeEntry{mode: ModeTree, name: name})
	case !n.entries[i].isTree() && !create:
		return nil, nil
	case !n.entries[i].isTree():
		return nil, errFileInTheWay
	}
	var tree refpolicy.OID
	if i >= 0 {
		tree = n.entries[i].oid
	}
	kid, err := newTreeNode(tree, n.read)
	if err != nil {
		return nil, err
	}
	if n.kids == nil {
		n.kids = map[string]*treeNode{}
	}
	n.kids[name] = kid
	return kid, nil
}

var (
	errFileInTheWay   = errors.New("a file is in the way of a directory")
	errFolderInTheWay = errors.New("a directory is in the way of a file")
)

// upsert sets the file at path. A mode of 0 keeps that of an executable, else makes a plain file.
func (n *treeNode) upsert(path string, mode Mode, oid refpolicy.OID) error {
	dir, name, err := n.parentOf(path, true)
	if err != nil {
		return err
	}
	if i := dir.find(name); i >= 0 {
		if dir.entries[i].isTree() {
			empty, err := dir.emptied(name)
			if err != nil {
				return err
			}
			if !empty {
				return errFolderInTheWay
			}
		}
		if mode == 0 && dir.entries[i].mode == ModeExecutable {
			mode = ModeExecutable
		}
	}
	if mode == 0 {
		mode = ModeFile
	}
	dir.put(treeEntry{mode, name, oid})
	return nil
}

// emptied reports whether all that was in a folder has been deleted by earlier changes.
func (n *treeNode) emptied(name string) (bool, error) {
	kid := n.kids[name]
	if kid == nil {
		return false, nil
	}
	for _, e := range kid.entries {
		if !e.isTree() {
			return false, nil
		}
		if empty, err := kid.emptied(e.name); err != nil || !empty {
			return false, err
		}
	}
	return true, nil
}

// remove deletes a file, or a folder with all that is in it; what is not there is ignored.
func (n *treeNode) remove(path string) error {
	dir, name, err := n.parentOf(path, false)
	if err != nil || dir == nil {
		return err
	}
	dir.drop(name)
	return nil
}

func (n *treeNode) parentOf(path string, create bool) (dir *treeNode, name string, err error) {
	dir = n
	for {
		head, rest, more := strings.Cut(path, "/")
		if !more {
			return dir, head, nil
		}
		if dir, err = dir.folder(head, create); err != nil || dir == nil {
			return nil, "", err
		}
		path = rest
	}
}

// write makes the tree objects of what changed, children first, and gives the
// tree's id. Folders that have become empty vanish.
func (n *treeNode) write(emit func(NewObject)) refpolicy.OID {
	n.writeKids(emit)
	o := newObject(TreeObject, encodeTree(n.entries))
	if o.OID != n.before {
		emit(o)
	}
	return o.OID
}

func (n *treeNode) writeKids(emit func(NewObject)) {
	for name, kid := range n.kids {
		i := n.find(name)
		if kid.writeKids(emit); len(kid.entries) == 0 {
			n.entries = slices.Delete(n.entries, i, i+1)
			continue
		}
		o := newObject(TreeObject, encodeTree(kid.entries))
		if o.OID != kid.before {
			emit(o)
		}
		n.entries[i].oid = o.OID
	}
}
