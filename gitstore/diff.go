package gitstore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/refpolicy"
)

// DiffRequest asks for the changes from Base to Head.
type DiffRequest struct {
	Base  refpolicy.OID // commit; zero: the empty tree
	Head  refpolicy.OID // commit
	Paths []string      // files or folders; with any, nothing is withheld
	Exact bool          // keep whitespace changes (git_apply_compatible); otherwise as git diff -b
}

// Diff is the answer. Its slices are shared with a cache: do not change them.
type Diff struct {
	Files     []FileDiff
	Filtered  []FileDiff // binary, or too large to show: Raw is empty and Bytes is the size of what was withheld
	Additions int        // over everything countable, filtered files included
	Deletions int
}

// FileDiff is one file's change.
type FileDiff struct {
	Path      string
	OldPath   string // of a rename, else empty
	State     string // git's letter with score: A M D T R087
	Raw       []byte // the patch as git diff prints it
	Bytes     int64
	Additions int
	Deletions int
}

const (
	// maxShownPatch is the longest patch of one file that is shown unasked, in bytes.
	maxShownPatch = 512_000
	// maxShownPatches bounds what all files shown unasked take; the rest is filtered.
	maxShownPatches = 128 << 20
	// maxAskedPatches bounds the patches of paths that were asked for.
	maxAskedPatches = 256 << 20
	// maxDiffPaths bounds the bytes of paths, which are arguments of a process.
	maxDiffPaths = 1 << 20
)

// Diff compares two commits' trees directly, with rename detection as git's
// default. The caller has resolved both. Files that differ in whitespace alone are
// left out unless Exact. A file over 32 MiB counts as binary and is never read.
// All of it has the time that one git process has. Errors: ErrObjectNotFound,
// ErrBadPath, ErrTooLarge for an asked file over 64 MiB, for over 256 MiB of patches
// of asked paths and for over two million files and folders that differ,
// gitcmd.ErrTimeout.
func (r *Repo) Diff(ctx context.Context, q DiffRequest) (*Diff, error) {
	key, paths, err := r.diffKey(ctx, q)
	if err != nil {
		return nil, err
	}
	if key.base == key.head {
		return &Diff{}, nil
	}
	cache := r.store.readers.diffs
	if d, ok := cache.get(key); ok {
		return d, nil
	}
	return r.store.readers.diffing.do(ctx, key, func(ctx context.Context) (*Diff, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, r.store.git.Limit(), gitcmd.ErrTimeout)
		defer cancel()
		d, err := r.runDiff(ctx, key, paths)
		if err != nil {
			return nil, fmt.Errorf("diff trees: %w", err)
		}
		cache.put(key, d, d.cost())
		return d, nil
	})
}

// diffKey is all that an answer depends on.
type diffKey struct {
	base, head refpolicy.OID // trees
	paths      string        // sorted, each ended by NUL
	exact      bool
}

func (r *Repo) diffKey(ctx context.Context, q DiffRequest) (diffKey, []string, error) {
	key := diffKey{base: emptyTree, exact: q.Exact}
	var paths []string
	for _, path := range q.Paths {
		p, err := parsePath(path)
		if err != nil {
			return key, nil, err
		}
		paths = append(paths, p.name)
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	for _, p := range paths {
		key.paths += p + "\x00"
	}
	if len(key.paths) > maxDiffPaths {
		return key, nil, fmt.Errorf("%w: paths of a diff over %d bytes", ErrTooLarge, maxDiffPaths)
	}
	g := graph{r, noFresh}
	if !q.Base.IsZero() {
		h, err := g.commit(ctx, q.Base)
		if err != nil {
			return key, nil, err
		}
		key.base = h.tree
	}
	h, err := g.commit(ctx, q.Head)
	key.head = h.tree
	return key, paths, err
}

func (d *Diff) cost() int64 {
	n := int64(128)
	for _, list := range [][]FileDiff{d.Files, d.Filtered} {
		for _, f := range list {
			n += int64(192 + len(f.Raw) + len(f.Path) + len(f.OldPath))
		}
	}
	return n
}

// runDiff has one git process compare the trees.
func (r *Repo) runDiff(ctx context.Context, key diffKey, paths []string) (*Diff, error) {
	p := &diffParser{keepAll: len(paths) > 0, total: maxShownPatches, perFile: maxShownPatch}
	if p.keepAll {
		p.total = maxAskedPatches
	}
	args := []string{"--raw", "--no-abbrev", "-p", "-z"}
	if p.keepAll {
		args = append(args, "--binary")
	}
	big, hide, err := r.withoutBig(ctx, key, paths)
	if err != nil {
		return nil, err
	}
	specs := hide
	for _, path := range paths {
		specs = append(specs, ":(literal)"+path)
	}
	if err := r.diffTree(ctx, key, specs, args, p.parse); err != nil {
		return nil, err
	}
	d, err := r.collect(ctx, p)
	if err == nil && d.hasTypeChange() {
		err = r.recount(ctx, key, specs, d)
	}
	if err == nil && len(big) > 0 {
		err = r.addBig(ctx, d, big)
	}
	return d, err
}

// diffTree runs git diff-tree with the options that are common to all questions
// and lets parse read what it writes.
func (r *Repo) diffTree(ctx context.Context, key diffKey, specs, options []string, parse func(*bufio.Reader) error) error {
	args := append([]string{"diff-tree", "-r", "-M", "--no-color", "--no-ext-diff", "--no-textconv"}, options...)
	if !key.exact {
		args = append(args, "-b")
	}
	args = append(args, key.base.String(), key.head.String(), "--")
	args = append(args, specs...)
	// A pipe of the kernel's: git writes into it without a detour through us.
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	ran := make(chan error, 1)
	go func() {
		err := r.runGit(ctx, gitcmd.Cmd{Args: args, Stdout: in})
		in.Close()
		ran <- err
	}()
	err = parse(bufio.NewReaderSize(out, 64<<10))
	out.Close() // a git that is still writing ends here
	if runErr := <-ran; runErr != nil && !errors.Is(err, ErrTooLarge) {
		err = errors.Join(err, runErr)
	}
	return err
}

// collect sorts what git told of each file into shown and filtered ones.
func (r *Repo) collect(ctx context.Context, p *diffParser) (*Diff, error) {
	d := &Diff{}
	for i := range p.entries {
		e := &p.entries[i]
		if !e.printed { // differs in whitespace alone
			continue
		}
		f := FileDiff{Path: e.path, OldPath: e.oldPath, State: e.state, Additions: e.additions, Deletions: e.deletions}
		d.Additions += f.Additions
		d.Deletions += f.Deletions
		if !e.withheld {
			f.Raw, f.Bytes = e.raw, int64(len(e.raw))
			d.Files = append(d.Files, f)
			continue
		}
		var err error
		if f.Bytes, err = r.withheldSize(ctx, e); err != nil {
			return nil, err
		}
		d.Filtered = append(d.Filtered, f)
	}
	return d, nil
}

// withheldSize is the size of the new blob, or of the old one when the new side is
// none; a submodule has no size.
func (r *Repo) withheldSize(ctx context.Context, e *diffEntry) (int64, error) {
	for _, s := range []diffSide{e.new, e.old} {
		if s.mode != 0 && s.mode.canonical() != ModeSubmodule {
			_, size, err := r.header(ctx, s.oid)
			return size, err
		}
	}
	return 0, nil
}

func (d *Diff) hasTypeChange() bool {
	is := func(f FileDiff) bool { return strings.HasPrefix(f.State, "T") }
	return slices.ContainsFunc(d.Files, is) || slices.ContainsFunc(d.Filtered, is)
}

// recount asks git for the numbers of files that changed their type. Their patch
// removes all lines and adds all lines, but git counts only those that differ.
func (r *Repo) recount(ctx context.Context, key diffKey, specs []string, d *Diff) error {
	counts := map[string][2]int{}
	err := r.diffTree(ctx, key, specs, []string{"--numstat", "-z", "--diff-filter=T"}, func(in *bufio.Reader) (err error) {
		counts, err = parseNumstat(in)
		return err
	})
	if err != nil {
		return err
	}
	for _, list := range [][]FileDiff{d.Files, d.Filtered} {
		for i := range list {
			f := &list[i]
			if n, ok := counts[f.Path]; ok && f.State[0] == 'T' {
				d.Additions += n[0] - f.Additions
				d.Deletions += n[1] - f.Deletions
				f.Additions, f.Deletions = n[0], n[1]
			}
		}
	}
	return nil
}

// parseNumstat reads the lines of files that were not renamed:
//
//	line = ( digits / "-" ) TAB ( digits / "-" ) TAB path NUL    ; "-" for binary
func parseNumstat(in *bufio.Reader) (map[string][2]int, error) {
	counts := map[string][2]int{}
	for {
		line, err := in.ReadBytes(0)
		if err == io.EOF && len(line) == 0 {
			return counts, nil
		}
		fields := bytes.SplitN(line, []byte("\t"), 3)
		if err != nil || len(fields) != 3 || len(fields[2]) < 2 {
			return nil, fmt.Errorf("read numstat line %q: %w", line, errors.Join(errDiffOutput, err))
		}
		counts[string(fields[2][:len(fields[2])-1])] = [2]int{
			boundedNumber(strings.Trim(string(fields[0]), "-")), boundedNumber(strings.Trim(string(fields[1]), "-")),
		}
	}
}
