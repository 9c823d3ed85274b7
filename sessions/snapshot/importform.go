package snapshot

import (
	"bytes"
	"context"
	"errors"
)

// foreign makes what is wrong with an imported snapshot the fault of whoever sent it:
// nothing of it is stored here.
func foreign(err error) error {
	if isDamage(err) || errors.Is(err, ErrInvalid) {
		return invalidf("the bundle holds no snapshot that is whole: %v", err)
	}
	return err
}

// checkForm holds an imported snapshot to the very bytes that a save would have made of
// it: nothing is in its trees that the format does not have, and what it is told of in
// its manifest is told in one way. Errors: ErrInvalid, *FieldError.
func checkForm(ctx context.Context, repo Repo, commit OID, m Manifest) error {
	parents, err := parentsOf(ctx, repo, commit)
	if err != nil {
		return err
	}
	if len(parents) > 2 {
		return invalidf("a snapshot has at most two parents")
	}
	tree, err := treeOf(ctx, repo, commit)
	if err != nil {
		return err
	}
	for e, err := range formed(ctx, repo, tree) {
		switch {
		case err != nil:
			return err
		case e.name == imageName && e.dir:
			err = checkImageForm(ctx, repo, e.id)
		case e.name == manifestName && !e.dir:
			err = checkManifestForm(ctx, repo, e.id, m)
		default:
			err = invalidf("a snapshot has no entry %q", e.name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// formed goes through the entries of a tree that is written as a save writes it.
func formed(ctx context.Context, repo Repo, tree OID) func(func(treeEntry, error) bool) {
	return func(yield func(treeEntry, error) bool) {
		data, err := objectAs(ctx, repo, "tree", tree)
		var entries []treeEntry
		for e, eerr := range treeEntries(data) {
			if err == nil {
				err = eerr
			}
			entries = append(entries, e)
		}
		if err == nil && (!bytes.Equal(encodeTree(entries), data) || !ascending(entries)) {
			err = invalidf("tree %s is not written as a save writes it", tree)
		}
		if err != nil {
			yield(treeEntry{}, err)
			return
		}
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// ascending reports whether entries are in git's order, each once: a folder as if its name
// ended with a slash.
func ascending(entries []treeEntry) bool {
	key := func(e treeEntry) string {
		if e.dir {
			return e.name + "/"
		}
		return e.name
	}
	for i := 1; i < len(entries); i++ {
		if key(entries[i-1]) >= key(entries[i]) || entries[i-1].name == entries[i].name {
			return false
		}
	}
	return true
}

// checkImageForm looks at the trees of leaves: their names were looked at with the lists.
func checkImageForm(ctx context.Context, repo Repo, image OID) error {
	for e, err := range formed(ctx, repo, image) {
		if err != nil {
			return err
		}
		if !e.dir {
			continue
		}
		for _, err := range formed(ctx, repo, e.id) {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func checkManifestForm(ctx context.Context, repo Repo, id OID, m Manifest) error {
	data, err := objectAs(ctx, repo, "blob", id)
	if err != nil {
		return err
	}
	text, err := m.Encode()
	if err == nil && !bytes.Equal(text, data) {
		err = invalidf("%s is not written as a save writes it", manifestName)
	}
	return err
}
