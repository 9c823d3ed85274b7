package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"iter"
)

// manifestName and imageName are the entries of a snapshot's tree.
const (
	manifestName = "manifest.json"
	imageName    = "m"
)

// A treeEntry is an entry of a git tree.
type treeEntry struct {
	name string
	dir  bool
	id   OID
}

// treeEntries goes through a git tree:
//
//	tree = *( mode SP name NUL id )
func treeEntries(data []byte) iter.Seq2[treeEntry, error] {
	return func(yield func(treeEntry, error) bool) {
		for len(data) > 0 {
			head, rest, ok := bytes.Cut(data, []byte{0})
			mode, name, spaced := bytes.Cut(head, []byte{' '})
			var e treeEntry
			if !ok || !spaced || len(rest) < len(e.id) {
				yield(e, fmt.Errorf("%w: tree is cut", ErrDamaged))
				return
			}
			e.name, e.dir = string(name), string(mode) == "40000"
			copy(e.id[:], rest)
			if data = rest[len(e.id):]; !yield(e, nil) {
				return
			}
		}
	}
}

// entryOf finds one entry of a tree; the zero OID: it has none of that name.
func entryOf(data []byte, name string) (OID, error) {
	for e, err := range treeEntries(data) {
		if err != nil || e.name == name {
			return e.id, err
		}
	}
	return OID{}, nil
}

// objectAs reads an object that must be of a type.
func objectAs(ctx context.Context, repo Repo, typ string, id OID) ([]byte, error) {
	got, data, err := repo.Object(ctx, id)
	if err != nil {
		return nil, err
	}
	if got != typ {
		return nil, fmt.Errorf("%w: %s is a %s, not a %s", ErrDamaged, id, got, typ)
	}
	return data, nil
}

// treeOf gives the tree of a commit.
func treeOf(ctx context.Context, repo Repo, commit OID) (OID, error) {
	data, err := objectAs(ctx, repo, "commit", commit)
	if err != nil {
		return OID{}, err
	}
	line, _, _ := bytes.Cut(data, []byte{'\n'})
	id, ok := bytes.CutPrefix(line, []byte("tree "))
	if !ok {
		return OID{}, fmt.Errorf("%w: commit %s has no tree", ErrDamaged, commit)
	}
	tree, err := ParseOID(string(id))
	if err != nil {
		return tree, fmt.Errorf("%w: commit %s: %w", ErrDamaged, commit, err)
	}
	return tree, nil
}

// manifestOf reads the manifest of a snapshot's commit, with the commit's tree. Whatever
// is wrong with what is stored is ErrDamaged or ErrNoObject, or *FieldError for a
// manifest of a later version.
func manifestOf(ctx context.Context, repo Repo, commit OID) (m Manifest, tree OID, err error) {
	if tree, err = treeOf(ctx, repo, commit); err != nil {
		return m, tree, fmt.Errorf("read snapshot %s: %w", commit, err)
	}
	data, err := objectAs(ctx, repo, "tree", tree)
	if err != nil {
		return m, tree, fmt.Errorf("read snapshot %s: %w", commit, err)
	}
	id, err := entryOf(data, manifestName)
	if err == nil && id.IsZero() {
		err = fmt.Errorf("%w: %s is missing", ErrDamaged, manifestName)
	}
	if err != nil {
		return m, tree, fmt.Errorf("read snapshot %s: %w", commit, err)
	}
	if data, err = objectAs(ctx, repo, "blob", id); err != nil {
		return m, tree, fmt.Errorf("read manifest of snapshot %s: %w", commit, err)
	}
	m, err = DecodeManifest(data)
	return m, tree, err
}
