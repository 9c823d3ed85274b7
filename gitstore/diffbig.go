package gitstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/refpolicy"
)

const (
	// maxDiffedFile is the largest file that git is let look into, in bytes. It holds
	// a file that was added or removed whole in memory, whatever its own threshold.
	maxDiffedFile = 32 << 20
	// maxAskedFile is the same for files that were asked for by path.
	maxAskedFile = 64 << 20
)

// bigFinder walks two trees in step and notes the files that git must not read.
type bigFinder struct {
	r     *Repo
	limit int64
	paths []string // asked for; none: all
	found []diffEntry
}

// bigChanges finds changed files over limit bytes on either side, as git would
// list them: a file that only moved is one rename.
func (r *Repo) bigChanges(ctx context.Context, base, head refpolicy.OID, paths []string, limit int64) ([]diffEntry, error) {
	f := &bigFinder{r: r, limit: limit, paths: paths}
	if err := f.trees(ctx, base, head, ""); err != nil {
		return nil, err
	}
	return pairRenames(f.found), nil
}

func (f *bigFinder) trees(ctx context.Context, before, after refpolicy.OID, folder string) error {
	if before == after {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	older, err := f.entries(ctx, before)
	if err != nil {
		return err
	}
	newer, err := f.entries(ctx, after)
	if err != nil {
		return err
	}
	for name, e := range newer {
		if err := f.entry(ctx, folder+name, older[name], e); err != nil {
			return err
		}
		delete(older, name)
	}
	for name, e := range older {
		if err := f.entry(ctx, folder+name, e, treeEntry{}); err != nil {
			return err
		}
	}
	return nil
}

func (f *bigFinder) entries(ctx context.Context, tree refpolicy.OID) (map[string]treeEntry, error) {
	if tree.IsZero() {
		return nil, nil
	}
	data, err := f.r.typed(ctx, tree, TreeObject)
	if err != nil {
		return nil, err
	}
	list, err := parseTree(data)
	if err != nil {
		return nil, err
	}
	m := make(map[string]treeEntry, len(list))
	for _, e := range list {
		m[e.name] = e
	}
	return m, nil
}

// entry compares what stands at one path before and after; nothing has mode 0.
func (f *bigFinder) entry(ctx context.Context, path string, before, after treeEntry) error {
	if before.oid == after.oid && before.mode == after.mode || !f.asked(path) {
		return nil
	}
	var trees [2]refpolicy.OID
	d := diffEntry{path: path, printed: true, withheld: true}
	for i, e := range []treeEntry{before, after} {
		switch {
		case e.isTree():
			trees[i] = e.oid
		case e.mode != 0 && i == 0:
			d.old = diffSide{e.mode, e.oid}
		case e.mode != 0:
			d.new = diffSide{e.mode, e.oid}
		}
	}
	if err := f.trees(ctx, trees[0], trees[1], path+"/"); err != nil {
		return err
	}
	big, err := f.big(ctx, d)
	if err == nil && big {
		d.state = stateOf(d)
		f.found = append(f.found, d)
	}
	return err
}

// big reports whether a changed file's content is over the limit on either side.
func (f *bigFinder) big(ctx context.Context, d diffEntry) (bool, error) {
	if d.old.oid == d.new.oid {
		return false, nil // its mode alone changed, if it is a file at all
	}
	for _, s := range []diffSide{d.old, d.new} {
		if s.mode == 0 || s.mode.canonical() == ModeSubmodule {
			continue
		}
		_, size, err := f.r.header(ctx, s.oid)
		if err != nil {
			return false, err
		}
		if size > f.limit {
			return true, nil
		}
	}
	return false, nil
}

// asked reports whether path was asked for, lies below what was, or leads to it.
func (f *bigFinder) asked(path string) bool {
	if len(f.paths) == 0 {
		return true
	}
	below := func(a, b string) bool { return strings.HasPrefix(a, b) && (len(a) == len(b) || a[len(b)] == '/') }
	return slices.ContainsFunc(f.paths, func(p string) bool { return below(path, p) || below(p, path) })
}

func stateOf(d diffEntry) string {
	switch {
	case d.old.mode == 0:
		return "A"
	case d.new.mode == 0:
		return "D"
	case d.old.mode.canonical()&0o170000 != d.new.mode.canonical()&0o170000:
		return "T"
	}
	return "M"
}

// pairRenames makes one entry of a removed and an added file of the same content.
func pairRenames(found []diffEntry) []diffEntry {
	slices.SortFunc(found, func(a, b diffEntry) int { return cmp.Compare(a.path, b.path) })
	gone := map[refpolicy.OID]int{}
	for i, d := range found {
		if d.state == "D" {
			gone[d.old.oid] = i
		}
	}
	for i := range found {
		from, ok := gone[found[i].new.oid]
		if found[i].state != "A" || !ok {
			continue
		}
		found[i].state, found[i].oldPath, found[i].old = "R100", found[from].path, found[from].old
		found[from].state = ""
		delete(gone, found[i].new.oid)
	}
	return slices.DeleteFunc(found, func(d diffEntry) bool { return d.state == "" })
}

// withoutBig finds the files that git is not shown and the pathspecs that hide
// them. Of asked paths none may be so large.
func (r *Repo) withoutBig(ctx context.Context, key diffKey, paths []string) (big []diffEntry, hide []string, err error) {
	limit := int64(maxDiffedFile)
	if len(paths) > 0 {
		limit = maxAskedFile
	}
	if big, err = r.bigChanges(ctx, key.base, key.head, paths, limit); err != nil {
		return nil, nil, err
	}
	size := len(key.paths)
	for _, d := range big {
		if len(paths) > 0 {
			return nil, nil, fmt.Errorf("%w: %s is over %d bytes, which no diff shows", ErrTooLarge, d.path, limit)
		}
		for _, p := range []string{d.path, d.oldPath} {
			if p != "" {
				hide = append(hide, ":(exclude,literal)"+p)
				size += len(p)
			}
		}
	}
	if size > maxDiffPaths {
		return nil, nil, fmt.Errorf("%w: paths of large files over %d bytes", ErrTooLarge, maxDiffPaths)
	}
	return big, hide, nil
}

// addBig lists the files git was not shown among the filtered ones.
func (r *Repo) addBig(ctx context.Context, d *Diff, big []diffEntry) error {
	for i := range big {
		e := &big[i]
		size, err := r.withheldSize(ctx, e)
		if err != nil {
			return err
		}
		d.Filtered = append(d.Filtered, FileDiff{Path: e.path, OldPath: e.oldPath, State: e.state, Bytes: size})
	}
	slices.SortStableFunc(d.Filtered, func(a, b FileDiff) int { return cmp.Compare(a.Path, b.Path) })
	return nil
}
