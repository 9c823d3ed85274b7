package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/refpolicy"
)

// TreeEntry is one entry of a listing; Path is from the root.
type TreeEntry struct {
	Path string
	Mode Mode
	OID  refpolicy.OID
}

// ListTree asks for a listing of commit.
type ListTree struct {
	Path      string // subtree or file; "" is the root; a trailing slash is tolerated
	Recursive bool   // trees are listed too, before their content
	After     string // only paths after this one, in byte order of full paths
	Limit     int    // <= 0: all
}

// maxListing is the most entries a listing without a limit gives: a tree of few
// objects that name each other many times has more entries than memory holds.
const maxListing = 2_000_000

const (
	// maxListed bounds the bytes of the paths of any listing.
	maxListed = 256 << 20
	// weighFrom is how many entries a listing of all gives before it is weighed.
	weighFrom = 50_000
)

// Tree lists a commit's tree in byte order of full paths; more tells that entries
// follow. No subtree is read that the page does not show. Errors: ErrBadPath,
// ErrPathNotFound, ErrTooLarge for more than two million entries without a limit or
// 256 MiB of paths.
func (r *Repo) Tree(ctx context.Context, commit refpolicy.OID, l ListTree) (entries []TreeEntry, more bool, err error) {
	p, err := parsePathOrRoot(l.Path)
	if err != nil {
		return nil, false, err
	}
	h, err := graph{r, noFresh}.commit(ctx, commit)
	if err != nil {
		return nil, false, err
	}
	p.dir = false
	e, ok, err := r.entryAt(ctx, h.tree, p)
	if err != nil {
		return nil, false, fmt.Errorf("list tree: %w", err)
	}
	if !ok {
		return nil, false, fmt.Errorf("%w: %s", ErrPathNotFound, l.Path)
	}
	w := listing{r: r, ListTree: l, root: e.oid, weighed: l.Limit > 0 || l.After != ""}
	if e.isTree() {
		prefix := p.name
		if prefix != "" {
			prefix += "/"
		}
		err = w.list(ctx, e.oid, prefix, 0)
	} else {
		err = w.emit(TreeEntry{p.name, e.mode, e.oid})
	}
	full := errors.Is(err, errPageFull)
	if err != nil && !full {
		return nil, false, fmt.Errorf("list tree: %w", err)
	}
	return w.entries, full, nil
}

// listing is a walk through a tree that stops when its page is full.
type listing struct {
	ListTree
	r       *Repo
	entries []TreeEntry
	size    int // of their paths
	root    refpolicy.OID
	weighed bool
}

// errPageFull ends a listing that met one entry more than it may show.
var errPageFull = errors.New("page is full")

func (w *listing) emit(e TreeEntry) error {
	switch {
	case e.Path <= w.After:
		return nil
	case w.Limit > 0 && len(w.entries) == w.Limit:
		return errPageFull
	case len(w.entries) == maxListing:
		return fmt.Errorf("%w: more than %d entries", ErrTooLarge, maxListing)
	}
	if w.size += len(e.Path); w.size > maxListed {
		return fmt.Errorf("%w: paths are over %d bytes", ErrTooLarge, maxListed)
	}
	w.entries = append(w.entries, e)
	return nil
}

// list walks the content of one tree. A subtree takes two places in the order of
// full paths: its own at "a", and its content's at "a/", with names such as "a-b"
// and "a.b" between them.
func (w *listing) list(ctx context.Context, tree refpolicy.OID, prefix string, depth int) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if depth > maxTreeDepth {
		return fmt.Errorf("%w: tree is deeper than %d", ErrTooLarge, maxTreeDepth)
	}
	if !w.weighed && len(w.entries) >= weighFrom {
		w.weighed = true
		if _, err := w.weigh(ctx, w.root, map[refpolicy.OID]int{}, 0); err != nil {
			return err
		}
	}
	places, err := w.places(ctx, tree)
	if err != nil {
		return err
	}
	for _, p := range places {
		full := prefix + p.at
		if !p.content {
			err = w.emit(TreeEntry{full, p.mode, p.oid})
		} else if full > w.After || strings.HasPrefix(w.After, full) {
			err = w.list(ctx, p.oid, full, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// weigh counts the entries of a whole tree, each subtree once however often it is
// named, so that a listing that will end as too large is not made first.
func (w *listing) weigh(ctx context.Context, tree refpolicy.OID, known map[refpolicy.OID]int, depth int) (int, error) {
	if n, ok := known[tree]; ok || depth > maxTreeDepth {
		return n, nil // the walk itself tells what is too deep
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	data, err := w.r.typed(ctx, tree, TreeObject)
	if err != nil {
		return 0, err
	}
	entries, err := parseTree(data)
	if err != nil {
		return 0, err
	}
	sum := len(entries)
	for _, e := range entries {
		if !e.isTree() {
			continue
		}
		n, err := w.weigh(ctx, e.oid, known, depth+1)
		if err != nil {
			return 0, err
		}
		if sum += n; sum > maxListing {
			return 0, fmt.Errorf("%w: more than %d entries", ErrTooLarge, maxListing)
		}
	}
	known[tree] = sum
	return sum, nil
}

// A place is where an entry, or the content of a subtree, comes in the order of paths.
type place struct {
	treeEntry
	at      string
	content bool
}

func (w *listing) places(ctx context.Context, tree refpolicy.OID) ([]place, error) {
	data, err := w.r.typed(ctx, tree, TreeObject)
	if err != nil {
		return nil, err
	}
	entries, err := parseTree(data)
	if err != nil {
		return nil, err
	}
	places := make([]place, 0, len(entries))
	for _, e := range entries {
		e.mode = e.mode.canonical()
		places = append(places, place{treeEntry: e, at: e.name})
		if w.Recursive && e.isTree() {
			places = append(places, place{treeEntry: e, at: e.name + "/", content: true})
		}
	}
	slices.SortFunc(places, func(a, b place) int { return strings.Compare(a.at, b.at) })
	return places, nil
}
