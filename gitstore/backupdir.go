package gitstore

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
)

// A BackupDir is a sink that keeps the newest backup in a folder. Packs that an
// earlier backup has put there are not written again. Until Finish the folder's
// earlier backup stays the one that counts, whole.
type BackupDir struct {
	dir  string
	lock *os.File
	run  string // name of this backup's folder of spaces
	old  map[string]manifestPack
	// oldLogs are the earlier backup's parts of logs.
	oldLogs map[string]manifestLog

	// Replace lets this backup take the place of the folder's earlier one, whatever
	// that is of. Without it Finish is a *ReplaceError for a backup of another store,
	// for an empty one and for one that lacks more than half of the earlier one's repos.
	Replace bool
	// SkipDamaged leaves out repos that cannot be read. What an earlier backup in the
	// folder has of such a repo stays a part of this one.
	SkipDamaged bool
	before      *manifest                     // of the folder's earlier backup
	skipped     map[ledger.Space]*SkippedRepo // by the repo's space

	// Check has the bytes of packs compared that are there from earlier backups, not
	// their sizes alone: one that is damaged is then copied again.
	Check   bool
	checked map[string]bool

	spaces map[ledger.Space]manifestSpace
	packs  map[ledger.Space][]manifestPack // by the repo's space
	logs   map[ledger.Space][]manifestLog  // by the repo's space
	count  int                             // of files of spaces so far
	copied int                             // packs written

	// The file that is being written; nil between files.
	file *os.File
	what BackupFile
	path string // below dir
	hash hash.Hash
	size int64
}

var _ BackupSink = (*BackupDir)(nil)

// OpenBackupDir prepares a folder for the next backup; it makes a new one, or takes
// one that an earlier backup made. Anything else, and a folder that another backup is
// written to, is a *BackupError. The caller calls Finish or Abort.
func OpenBackupDir(dir string) (_ *BackupDir, err error) {
	if err := makePrivate(dir); err != nil {
		return nil, fmt.Errorf("make folder of backups: %w", err)
	}
	b := &BackupDir{dir: dir, skipped: map[ledger.Space]*SkippedRepo{}, checked: map[string]bool{}, old: map[string]manifestPack{}, spaces: map[ledger.Space]manifestSpace{}, packs: map[ledger.Space][]manifestPack{},
		oldLogs: map[string]manifestLog{}, logs: map[ledger.Space][]manifestLog{}}
	if b.lock, err = lockFolder(dir); err != nil {
		return nil, &BackupError{dir, fmt.Errorf("another backup is written to it, or it cannot be locked: %w", err)}
	}
	defer func() {
		if err != nil {
			b.lock.Close()
		}
	}()
	if err := b.begin(); err != nil {
		return nil, err
	}
	m, err := readManifest(dir)
	if errors.Is(err, os.ErrNotExist) {
		m, err = &manifest{}, nil
	}
	if err != nil {
		return nil, err
	}
	b.before = m
	for _, p := range m.packs {
		b.old[p.name] = p
	}
	for _, l := range m.logs {
		b.oldLogs[l.name] = l
	}
	var id [8]byte
	_, _ = rand.Read(id[:])
	b.run = spacesPrefix + hex.EncodeToString(id[:])
	return b, makeDurable(packs.OS{}, filepath.Join(dir, b.run))
}

// begin says what the folder is, if it is new.
func (b *BackupDir) begin() error {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return checkBackupFormat(b.dir)
	}
	return b.writeFile(formatName, func(w io.Writer) error {
		_, err := io.WriteString(w, backupFormat+"\n")
		return err
	})
}

// writeFile writes a file of the folder that is there whole, or not at all.
func (b *BackupDir) writeFile(name string, write func(io.Writer) error) error {
	path := filepath.Join(b.dir, name)
	f, err := os.Create(path + unfinishedFile)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+unfinishedFile, path)
	}
	if err == nil {
		err = packs.OS{}.SyncDir(b.dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Have calls fn with the name of every pack that HasPack tells of.
func (b *BackupDir) Have(fn func(pack string)) {
	for name := range b.old {
		if b.HasPack(name) {
			fn(name)
		}
	}
}

// HasPack implements BackupSink: the earlier backup names the pack, and its files
// are as they were.
func (b *BackupDir) HasPack(pack string) bool {
	p, ok := b.old[pack]
	if !ok {
		return b.hasLog(pack)
	}
	whole, known := b.checked[pack]
	if !known {
		whole = b.isThere(p.path(".pack"), p.pack) && b.isThere(p.path(".idx"), p.idx)
		b.checked[pack] = whole
	}
	return whole
}

func (b *BackupDir) isThere(path string, f fileSum) bool {
	path = filepath.Join(b.dir, path)
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() != f.size {
		return false
	}
	if !b.Check {
		return true
	}
	in, err := os.Open(path)
	if err != nil {
		return false
	}
	defer in.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, in)
	return err == nil && !f.differs(sum.Sum(nil))
}

var errOutOfTurn = errors.New("a backup's steps come out of turn")

// Begin implements BackupSink.
func (b *BackupDir) Begin(f BackupFile) error {
	if b.file != nil {
		return fmt.Errorf("%w: a file begins in another", errOutOfTurn)
	}
	switch f.Kind {
	case BackupSpace:
		if err := f.Space.Validate(); err != nil {
			return err
		}
		b.path = filepath.Join(b.run, strconv.Itoa(b.count))
		b.count++
	case BackupPack, BackupIdx:
		if err := errors.Join(checkRepoID(f.Repo), packs.CheckName(f.Pack)); err != nil {
			return err
		}
		if b.old[f.Pack].repo == f.Repo && b.HasPack(f.Pack) {
			return fmt.Errorf("%w: pack %s is there", errOutOfTurn, f.Pack) // a sound file is never written over
		}
		if err := makeDurable(packs.OS{}, filepath.Join(b.dir, packsFolder, f.Repo)); err != nil {
			return err
		}
		b.path = manifestPack{repo: f.Repo, name: f.Pack}.path("." + f.Kind)
	case BackupLog:
		path, err := b.beginLog(f)
		if err != nil {
			return err
		}
		b.path = path
	default:
		return fmt.Errorf("%w: a file of kind %.20q", ErrInvalid, f.Kind)
	}
	file, err := os.Create(filepath.Join(b.dir, b.path) + unfinishedFile)
	if err != nil {
		return err
	}
	b.file, b.what, b.hash, b.size = file, f, sha256.New(), 0
	return nil
}

// Write implements BackupSink.
func (b *BackupDir) Write(p []byte) (int, error) {
	if b.file == nil {
		return 0, fmt.Errorf("%w: bytes of no file", errOutOfTurn)
	}
	n, err := b.file.Write(p)
	b.hash.Write(p[:n])
	b.size += int64(n)
	return n, err
}

// End implements BackupSink.
func (b *BackupDir) End() error {
	if b.file == nil {
		return fmt.Errorf("%w: no file has begun", errOutOfTurn)
	}
	f := fileSum{size: b.size}
	copy(f.sum[:], b.hash.Sum(nil))
	path := filepath.Join(b.dir, b.path)
	err := errors.Join(b.file.Sync(), b.file.Close())
	b.file = nil
	if err == nil {
		err = os.Rename(path+unfinishedFile, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", b.path, err)
	}
	return b.note(f)
}

// note puts a whole file on record for the manifest.
func (b *BackupDir) note(f fileSum) error {
	repo := ledger.RepoSpace(b.what.Repo)
	switch b.what.Kind {
	case BackupSpace:
		b.spaces[b.what.Space] = manifestSpace{b.what.Space, b.path, f}
	case BackupPack:
		b.packs[repo] = append(b.packs[repo], manifestPack{repo: b.what.Repo, name: b.what.Pack, pack: f, idx: fileSum{size: -1}})
		b.copied++
	case BackupIdx:
		list := b.packs[repo]
		if n := len(list); n == 0 || list[n-1].name != b.what.Pack || list[n-1].idx.size >= 0 {
			return fmt.Errorf("%w: an idx without its pack", errOutOfTurn)
		}
		list[len(list)-1].idx = f
	case BackupLog:
		b.logs[repo] = append(b.logs[repo], manifestLog{b.what.Repo, b.what.Pack, f})
	}
	return nil
}

// Keep implements BackupSink.
func (b *BackupDir) Keep(repo, pack string) error {
	if checkSegmentName(pack) == nil {
		return b.keepLog(repo, pack)
	}
	p := b.old[pack]
	if p.repo != repo || !b.HasPack(pack) {
		return fmt.Errorf("%w: pack %.60q of repo %.60q is not in the folder", ErrInvalid, pack, repo)
	}
	space := ledger.RepoSpace(repo)
	b.packs[space] = append(b.packs[space], p)
	return nil
}

// Drop implements BackupSink.
func (b *BackupDir) Drop(s ledger.Space) error {
	if b.file != nil && (b.what.Space == s || ledger.RepoSpace(b.what.Repo) == s) {
		b.dropFile()
	}
	var err error
	if had, ok := b.spaces[s]; ok {
		err = os.Remove(filepath.Join(b.dir, had.file))
	}
	delete(b.spaces, s)
	delete(b.packs, s)
	delete(b.logs, s)
	delete(b.skipped, s)
	return err
}

func (b *BackupDir) dropFile() {
	b.file.Close()
	os.Remove(filepath.Join(b.dir, b.path) + unfinishedFile)
	b.file = nil
}

// A BackupReport tells what a backup holds.
type BackupReport struct {
	Spaces, Packs int
	Copied        int // of Packs, those that were not there before
	Skipped       []SkippedRepo
}

// Finish makes the backup the folder's own, durably, and removes what only earlier
// ones needed. Errors: *ReplaceError; the earlier backup is then untouched.
func (b *BackupDir) Finish() (r BackupReport, err error) {
	defer b.lock.Close()
	m, err := b.manifest()
	if err == nil {
		err = b.mayReplace(m)
	}
	if err == nil {
		err = b.syncFolders(m)
	}
	if err == nil {
		err = b.writeFile(manifestName, m.write)
	}
	if err != nil {
		os.RemoveAll(filepath.Join(b.dir, b.run)) // what stays is removed by the next backup
		return r, fmt.Errorf("finish backup: %w", err)
	}
	r = BackupReport{Spaces: len(m.spaces), Packs: len(m.packs), Copied: b.copied, Skipped: b.skips()}
	if err := b.sweep(m); err != nil {
		return r, fmt.Errorf("the backup is whole; remove what is not needed any more: %w", err)
	}
	return r, nil
}

func (b *BackupDir) manifest() (*manifest, error) {
	if b.file != nil {
		return nil, fmt.Errorf("%w: a file is not ended", errOutOfTurn)
	}
	m := &manifest{}
	for _, s := range b.spaces {
		m.spaces = append(m.spaces, s)
	}
	for space, list := range b.packs {
		if _, ok := b.spaces[space]; !ok {
			return nil, fmt.Errorf("%w: packs without their space %s", errOutOfTurn, space)
		}
		for _, p := range list {
			if p.idx.size < 0 {
				return nil, fmt.Errorf("%w: pack %s without its idx", errOutOfTurn, p.name)
			}
			m.packs = append(m.packs, p)
		}
	}
	for space, list := range b.logs {
		if _, ok := b.spaces[space]; !ok {
			return nil, fmt.Errorf("%w: parts of a log without their space %s", errOutOfTurn, space)
		}
		m.logs = append(m.logs, list...)
	}
	for space, s := range b.skipped {
		m.skipped = append(m.skipped, manifestSkip{strings.TrimPrefix(string(space), repoSpaces), s.Repo})
	}
	server, ok := b.spaces[ledger.ServerSpace]
	if !ok {
		return m, nil
	}
	var err error
	m.store, err = storeIn(b.dir, server)
	return m, err
}

// syncFolders makes the names of all files durable.
func (b *BackupDir) syncFolders(m *manifest) error {
	folders := map[string]bool{b.run: true}
	for _, p := range m.packs {
		folders[filepath.Join(packsFolder, p.repo)] = true
	}
	for _, l := range m.logs {
		folders[filepath.Join(packsFolder, l.repo)] = true
	}
	for folder := range folders {
		if err := (packs.OS{}).SyncDir(filepath.Join(b.dir, folder)); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes what m does not name.
func (b *BackupDir) sweep(m *manifest) error {
	named := map[string]bool{}
	for _, p := range m.packs {
		named[p.path(".pack")], named[p.path(".idx")], named[filepath.Join(packsFolder, p.repo)] = true, true, true
	}
	for _, l := range m.logs {
		named[l.path()], named[filepath.Join(packsFolder, l.repo)] = true, true
	}
	for _, s := range m.spaces {
		named[s.file] = true
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if (strings.HasPrefix(name, spacesPrefix) && name != b.run) || strings.HasSuffix(name, unfinishedFile) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(b.dir, name)))
		}
	}
	return errors.Join(err, b.sweepPacks(named))
}

func (b *BackupDir) sweepPacks(named map[string]bool) error {
	root := filepath.Join(b.dir, packsFolder)
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || path == root {
			return nil
		}
		if err != nil {
			return err
		}
		below, err := filepath.Rel(b.dir, path)
		if err != nil || named[below] {
			return err
		}
		if err := os.RemoveAll(path); err != nil || !e.IsDir() {
			return err
		}
		return fs.SkipDir
	})
}

// Abort gives this backup up. The folder's earlier one stays as it is.
func (b *BackupDir) Abort() {
	defer b.lock.Close()
	if b.file != nil {
		b.dropFile()
	}
	os.RemoveAll(filepath.Join(b.dir, b.run)) // what stays is removed by the next backup
}
