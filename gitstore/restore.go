package gitstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
)

// RestoreOptions say what is restored to where.
type RestoreOptions struct {
	From   string      // a folder of backups
	Dir    string      // the data folder to be; it has no repos yet
	Ledger ledger.Bulk // empty, and opened to be loaded
	FS     packs.FS    // files of packs; nil: the operating system's
}

// A RestoreReport tells what was restored.
type RestoreReport struct {
	Spaces, Repos, Packs int
	Skipped              []SkippedRepo // that were damaged when the backup was taken
}

// Restore puts a backup into a new data folder and its ledger. Before anything is
// written the manifest and every space are checked whole, and that every pack is
// there with its size; a pack's bytes are checked while it is copied. What is wrong
// is a *BackupError with the file's name. After any error what was written is of no
// use. The packs are there, durably, before the ledger names them.
func Restore(ctx context.Context, o RestoreOptions) (RestoreReport, error) {
	if o.FS == nil {
		o.FS = packs.OS{}
	}
	r := restore{RestoreOptions: o}
	if err := r.run(ctx); err != nil {
		return RestoreReport{}, fmt.Errorf("restore: %w", err)
	}
	return r.report, nil
}

type restore struct {
	RestoreOptions
	m      *manifest
	gone   map[string]bool // ids of repos that the backup was taken without
	report RestoreReport
}

func (r *restore) run(ctx context.Context) error {
	if err := checkBackupFormat(r.From); err != nil {
		return err
	}
	m, err := readManifest(r.From)
	if errors.Is(err, os.ErrNotExist) {
		err = &BackupError{manifestName, fmt.Errorf("no backup in this folder was finished: %w", err)}
	}
	if err != nil {
		return err
	}
	r.m = m
	r.gone = map[string]bool{}
	there := m.repos()
	for _, s := range m.skipped {
		r.gone[s.repo] = !there[s.repo]
		r.report.Skipped = append(r.report.Skipped, SkippedRepo{Repo: s.name, Earlier: there[s.repo]})
	}
	for _, step := range []func(context.Context) error{r.check, r.repos, r.load} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return r.Ledger.FinishLoad(ctx)
}

// check reads every space and compares it with the manifest and its packs.
func (r *restore) check(ctx context.Context) error {
	named := map[ledger.Space]map[string]bool{}
	for _, p := range r.m.packs {
		space := ledger.RepoSpace(p.repo)
		if named[space] == nil {
			named[space] = map[string]bool{}
		}
		named[space][p.name] = true
		for ext, f := range map[string]fileSum{".pack": p.pack, ".idx": p.idx} {
			if err := r.checkSize(p.path(ext), f); err != nil {
				return err
			}
		}
	}
	logs := map[ledger.Space]map[string]fileSum{}
	for _, l := range r.m.logs {
		space := ledger.RepoSpace(l.repo)
		if logs[space] == nil {
			logs[space] = map[string]fileSum{}
		}
		logs[space][l.name] = l.fileSum
		if err := r.checkSize(l.path(), l.fileSum); err != nil {
			return err
		}
	}
	seen := map[ledger.Space]bool{}
	for _, s := range r.m.spaces {
		if id, ok := strings.CutPrefix(string(s.name), repoSpaces); ok {
			if err := checkRepoID(id); err != nil {
				return &BackupError{manifestName, err}
			}
		}
		if seen[s.name] {
			return &BackupError{manifestName, fmt.Errorf("space %s is there twice", s.name)}
		}
		seen[s.name] = true
		if err := r.checkSpace(ctx, s, named[s.name], logs[s.name]); err != nil {
			return err
		}
	}
	for space := range named {
		if !seen[space] {
			return &BackupError{manifestName, fmt.Errorf("packs without their space %s", space)}
		}
	}
	for space := range logs {
		if !seen[space] {
			return &BackupError{manifestName, fmt.Errorf("parts of a log without their space %s", space)}
		}
	}
	return nil
}

func (r *restore) checkSize(name string, f fileSum) error {
	info, err := os.Lstat(filepath.Join(r.From, name))
	switch {
	case err != nil:
		return &BackupError{name, err}
	case !info.Mode().IsRegular():
		return &BackupError{name, errors.New("it is no file")}
	case info.Size() != f.size:
		return &BackupError{name, fmt.Errorf("%d bytes, the manifest says %d", info.Size(), f.size)}
	}
	return nil
}

// checkSpace reads a space to its end without loading it.
func (r *restore) checkSpace(ctx context.Context, s manifestSpace, named map[string]bool, logs map[string]fileSum) error {
	if err := r.checkSize(s.file, s.fileSum); err != nil {
		return err
	}
	return r.eachChunk(ctx, s, func(c ledger.Chunk) error {
		for _, it := range c.Items {
			if !strings.HasPrefix(string(s.name), repoSpaces) {
				continue
			}
			if err := r.checkLog(s, it, logs); err != nil {
				return err
			}
			name, ok := strings.CutPrefix(it.Key, packKeys)
			if !ok {
				continue
			}
			if rec, err := decodePackRecord(it.Value); err == nil && rec.State == packLive && !named[name] {
				return &BackupError{s.file, fmt.Errorf("it names pack %.60q, the manifest does not", name)}
			}
		}
		return nil
	})
}

// eachChunk reads a space from its file and checks it against its sum.
func (r *restore) eachChunk(ctx context.Context, s manifestSpace, fn func(ledger.Chunk) error) error {
	f, err := openRegular(r.From, s.file)
	if err != nil {
		return &BackupError{s.file, err}
	}
	defer f.Close()
	sum := sha256.New()
	d, err := ledger.NewDumpReader(io.TeeReader(f, sum))
	if err != nil {
		return &BackupError{s.file, err}
	}
	if d.Space != s.name {
		return &BackupError{s.file, fmt.Errorf("it is of space %s, the manifest says %s", d.Space, s.name)}
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		c, err := d.Next()
		if err == nil && c.State != nil && s.differs(sum.Sum(nil)) {
			err = errOtherSum
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &BackupError{s.file, err}
		}
		if err := fn(c); err != nil {
			return err
		}
	}
}

var errOtherSum = errors.New("its checksum is not that of the manifest")

func (f fileSum) differs(sum []byte) bool { return string(f.sum[:]) != string(sum) }

// repos makes the folders of all repos and copies their packs.
func (r *restore) repos(ctx context.Context) error {
	root := filepath.Join(r.Dir, "repos")
	if err := makeDurable(r.FS, root); err != nil {
		return fmt.Errorf("make repos folder: %w", err)
	}
	for _, s := range r.m.spaces {
		id, ok := strings.CutPrefix(string(s.name), repoSpaces)
		if !ok {
			continue
		}
		dir := filepath.Join(root, id[len(id)-2:], id)
		if err := makeParents(r.FS, dir, root); err != nil {
			return fmt.Errorf("make folder of repo %s: %w", id, err)
		}
		if err := packs.CreateDir(dir, packs.Options{FS: r.FS}); err != nil {
			return err
		}
		r.report.Repos++
	}
	for _, p := range r.m.packs {
		if err := r.pack(ctx, p); err != nil {
			return err
		}
		r.report.Packs++
	}
	for _, l := range r.m.logs {
		if err := r.log(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

func (r *restore) pack(ctx context.Context, p manifestPack) error {
	dir := filepath.Join(r.Dir, "repos", p.repo[len(p.repo)-2:], p.repo)
	for ext, f := range map[string]fileSum{".pack": p.pack, ".idx": p.idx} {
		if err := r.copy(ctx, p.path(ext), filepath.Join(dir, "packs", p.name+ext), f); err != nil {
			return err
		}
	}
	if err := r.FS.SyncDir(filepath.Join(dir, "packs")); err != nil {
		return err
	}
	d, err := packs.Open(dir, packs.Options{FS: r.FS})
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Link(p.name)
}

// copy copies a file of the backup, whose bytes must be those of the manifest.
func (r *restore) copy(ctx context.Context, name, to string, f fileSum) (err error) {
	in, err := openRegular(r.From, name)
	if err != nil {
		return &BackupError{name, err}
	}
	defer in.Close()
	out, err := r.FS.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	sum := sha256.New()
	if _, err := copySteps(ctx, io.MultiWriter(out, sum), in); err != nil {
		return fmt.Errorf("copy %s: %w", name, err)
	}
	if f.differs(sum.Sum(nil)) {
		return &BackupError{name, errOtherSum}
	}
	return out.Sync()
}

// load loads every space.
func (r *restore) load(ctx context.Context) error {
	for _, s := range r.m.spaces {
		repo := strings.HasPrefix(string(s.name), repoSpaces)
		org := strings.HasPrefix(string(s.name), orgSpaces)
		err := r.eachChunk(ctx, s, func(c ledger.Chunk) error {
			if repo {
				c.Items = lasting(c.Items)
			}
			if org {
				c.Items = slices.DeleteFunc(c.Items, r.ofGone)
			}
			if s.name == ledger.ServerSpace {
				if err := renamed(c.Items, r.FS, r.Dir); err != nil {
					return err
				}
			}
			return r.Ledger.Load(ctx, s.name, c)
		})
		if err != nil {
			return err
		}
		r.report.Spaces++
	}
	return nil
}

// ofGone reports whether an item of an org's names a repo that is not in the backup:
// its name can be used again.
func (r *restore) ofGone(it ledger.Item) bool {
	if strings.HasPrefix(it.Key, nameKeys) {
		return r.gone[string(it.Value)]
	}
	rec, err := decodeRepoRecord(it.Value)
	return strings.HasPrefix(it.Key, recentKeys) && err == nil && r.gone[rec.ID]
}

// lasting leaves out what was true of the place that the backup is of alone: who was
// looking after the repo, and its indexes, which upkeep writes anew.
func lasting(items []ledger.Item) []ledger.Item {
	var kept []ledger.Item
	for _, it := range items {
		if it.Key != leaseKey && it.Key != indexPointer && !strings.HasPrefix(it.Key, indexKeys) {
			kept = append(kept, it)
		}
	}
	return kept
}
