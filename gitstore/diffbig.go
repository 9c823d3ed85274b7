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

// maxDiffed bounds, as maxListing does for a listing, what a diff goes through: a tree
// of few objects that name each other many times has more files than git's memory
// holds. Beyond it nobody begins.
const (
	maxDiffed      = maxListing // files and folders that differ
	maxDiffedNames = 256 << 20  // bytes of their paths
	maxDiffRead    = 20_000_000 // entries of the trees that are compared
)

// bigFinder walks two trees in step, notes the files that git must not read and
// counts what git will go through.
type bigFinder struct {
	r     *Repo
	limit int64
	paths []string // asked for, sorted; none: all
	found []diffEntry
	hide  int // bytes of their paths

	sum   diffSum
	read  int
	depth int
	// plain holds what differs between trees without a file to note: it is the same
	// wherever they stand.
	plain map[treePair]diffSum
	sizes map[refpolicy.OID]int64
}

type treePair struct{ before, after refpolicy.OID }

// diffSum is how much differs, and the bytes of its paths.
type diffSum struct{ entries, names int64 }

// bigChanges finds changed files over limit bytes on either side, as git would
// list them: a file that only moved is one rename. paths are sorted. ErrTooLarge: more
// differs than any diff goes through.
func (r *Repo) bigChanges(ctx context.Context, base, head refpolicy.OID, paths []string, limit int64) ([]diffEntry, error) {
	f := &bigFinder{r: r, limit: limit, paths: paths, plain: map[treePair]diffSum{}, sizes: map[refpolicy.OID]int64{}}
	if err := f.trees(ctx, treePair{base, head}, "", len(paths) == 0); err != nil {
		return nil, err
	}
	return pairRenames(f.found), nil
}

// trees compares what stands at folder; whole says that all of it was asked for.
func (f *bigFinder) trees(ctx context.Context, pair treePair, folder string, whole bool) error {
	if pair.before == pair.after {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if sum, ok := f.plain[pair]; ok && whole {
		return f.count(sum, folder)
	}
	if f.depth++; f.depth > maxTreeDepth {
		return fmt.Errorf("%w: tree is deeper than %d", ErrTooLarge, maxTreeDepth)
	}
	defer func() { f.depth-- }()
	start, found := f.sum, len(f.found)
	if err := f.compare(ctx, pair, folder, whole); err != nil {
		return err
	}
	if whole && len(f.found) == found {
		n := f.sum.entries - start.entries
		f.plain[pair] = diffSum{n, f.sum.names - start.names - n*int64(len(folder))}
	}
	return nil
}

func (f *bigFinder) compare(ctx context.Context, pair treePair, folder string, whole bool) error {
	older, err := f.entries(ctx, pair.before)
	if err != nil {
		return err
	}
	newer, err := f.entries(ctx, pair.after)
	if err != nil {
		return err
	}
	for name, e := range newer {
		if err := f.entry(ctx, folder, name, older[name], e, whole); err != nil {
			return err
		}
		delete(older, name)
	}
	for name, e := range older {
		if err := f.entry(ctx, folder, name, e, treeEntry{}, whole); err != nil {
			return err
		}
	}
	return nil
}

// count adds what differs below folder.
func (f *bigFinder) count(sum diffSum, folder string) error {
	f.sum.entries += sum.entries
	f.sum.names += sum.names + sum.entries*int64(len(folder))
	switch {
	case f.sum.entries > maxDiffed:
		return fmt.Errorf("%w: more than %d files and folders differ", ErrTooLarge, maxDiffed)
	case f.sum.names > maxDiffedNames:
		return fmt.Errorf("%w: paths of what differs are over %d bytes", ErrTooLarge, maxDiffedNames)
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
	if f.read += len(list); f.read > maxDiffRead {
		return nil, fmt.Errorf("%w: trees that differ have more than %d entries", ErrTooLarge, maxDiffRead)
	}
	m := make(map[string]treeEntry, len(list))
	for _, e := range list {
		m[e.name] = e
	}
	return m, nil
}

// entry compares what stands under one name before and after; nothing has mode 0.
func (f *bigFinder) entry(ctx context.Context, folder, name string, before, after treeEntry, whole bool) error {
	if before.oid == after.oid && before.mode == after.mode {
		return nil
	}
	path := folder + name
	if !whole {
		var leads bool
		if whole, leads = f.asked(path); !whole && !leads {
			return nil
		}
	}
	if err := f.count(diffSum{1, int64(len(name))}, folder); err != nil {
		return err
	}
	var pair treePair
	d := diffEntry{path: path, printed: true, withheld: true}
	if before.isTree() {
		pair.before = before.oid
	} else if before.mode != 0 {
		d.old = diffSide{before.mode, before.oid}
	}
	if after.isTree() {
		pair.after = after.oid
	} else if after.mode != 0 {
		d.new = diffSide{after.mode, after.oid}
	}
	if err := f.trees(ctx, pair, path+"/", whole); err != nil {
		return err
	}
	return f.note(ctx, d)
}

// note keeps a changed file whose content is over the limit on either side. Of asked
// paths none may be so large.
func (f *bigFinder) note(ctx context.Context, d diffEntry) error {
	big, err := f.big(ctx, d)
	if err != nil || !big {
		return err
	}
	if len(f.paths) > 0 {
		return fmt.Errorf("%w: %s is over %d bytes, which no diff shows", ErrTooLarge, d.path, f.limit)
	}
	if f.hide += len(d.path); f.hide > maxDiffPaths {
		return fmt.Errorf("%w: paths of large files over %d bytes", ErrTooLarge, maxDiffPaths)
	}
	d.state = stateOf(d)
	f.found = append(f.found, d)
	return nil
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
		size, ok := f.sizes[s.oid]
		if !ok {
			var err error
			if _, size, err = f.r.header(ctx, s.oid); err != nil {
				return false, err
			}
			f.sizes[s.oid] = size
		}
		if size > f.limit {
			return true, nil
		}
	}
	return false, nil
}

// asked reports whether path was asked for itself, and whether it leads to what was.
func (f *bigFinder) asked(path string) (whole, leads bool) {
	if _, whole = slices.BinarySearch(f.paths, path); whole {
		return true, false
	}
	i, _ := slices.BinarySearch(f.paths, path+"/")
	return false, i < len(f.paths) && strings.HasPrefix(f.paths[i], path+"/")
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
	for _, d := range big {
		for _, p := range []string{d.path, d.oldPath} {
			if p != "" {
				hide = append(hide, ":(exclude,literal)"+p)
			}
		}
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
