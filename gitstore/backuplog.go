package gitstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
)

// segments copies those parts of a repo's log that are not there yet. On an error it
// names the part.
func (b *backup) segments(ctx context.Context, id string, all []segmentRecord) (name string, err error) {
	for _, rec := range all {
		if b.to.HasPack(rec.Name) {
			err = b.to.Keep(id, rec.Name)
		} else {
			err = b.segment(ctx, id, rec)
		}
		if err != nil {
			return rec.Name, err
		}
	}
	return "", nil
}

func (b *backup) segment(ctx context.Context, id string, rec segmentRecord) error {
	f, err := b.store.fs.Open(b.store.segmentPath(id, rec.Name))
	if err != nil {
		return unreadable(err)
	}
	defer f.Close()
	if err := b.to.Begin(BackupFile{Kind: BackupLog, Repo: id, Pack: rec.Name, Size: rec.Size}); err != nil {
		return err
	}
	sum := sha256.New()
	size, err := copySteps(ctx, io.MultiWriter(b.to, sum), damageReader{f})
	if err != nil {
		return err
	}
	if size != rec.Size || hex.EncodeToString(sum.Sum(nil)) != rec.SHA256 {
		return unreadable(badSegment("it does not have its size or its checksum"))
	}
	return b.to.End()
}

// manifestLog is a part of a repo's log in a backup.
type manifestLog struct {
	repo, name string
	fileSum
}

func (l manifestLog) path() string {
	return filepath.Join(packsFolder, l.repo, l.name+segmentEnding)
}

// logLine reads the rest of a line of a manifest.
func (m *manifest) logLine(rest string) (err error) {
	f := strings.Split(rest, " ")
	if len(f) != 4 || checkRepoID(f[0]) != nil || checkSegmentName(f[1]) != nil {
		return errBadLine
	}
	l := manifestLog{repo: f[0], name: f[1]}
	if l.fileSum, err = parseFileSum(f[2], f[3]); err != nil {
		return err
	}
	m.logs = append(m.logs, l)
	return nil
}

// hasLog reports whether the earlier backup has a part of a log, and its file is as it was.
func (b *BackupDir) hasLog(name string) bool {
	l, ok := b.oldLogs[name]
	if !ok {
		return false
	}
	whole, known := b.checked[name]
	if !known {
		whole = b.isThere(l.path(), l.fileSum)
		b.checked[name] = whole
	}
	return whole
}

func (b *BackupDir) keepLog(repo, name string) error {
	l := b.oldLogs[name]
	if l.repo != repo || !b.hasLog(name) {
		return fmt.Errorf("%w: part %.80q of the log of repo %.60q is not in the folder", ErrInvalid, name, repo)
	}
	space := ledger.RepoSpace(repo)
	b.logs[space] = append(b.logs[space], l)
	return nil
}

// beginLog gives the path of a part of a log. One that is there is written anew, with
// the same bytes, by a backup that was not told of it.
func (b *BackupDir) beginLog(f BackupFile) (string, error) {
	if err := errors.Join(checkRepoID(f.Repo), checkSegmentName(f.Pack)); err != nil {
		return "", err
	}
	if err := makeDurable(packs.OS{}, filepath.Join(b.dir, packsFolder, f.Repo)); err != nil {
		return "", err
	}
	return manifestLog{repo: f.Repo, name: f.Pack}.path(), nil
}

// log puts a part of a log into the folder of its repo.
func (r *restore) log(ctx context.Context, l manifestLog) error {
	repo := filepath.Join(r.Dir, "repos", l.repo[len(l.repo)-2:], l.repo)
	dir := filepath.Join(repo, segmentFolder)
	err := r.FS.Mkdir(dir)
	if err == nil {
		err = r.FS.SyncDir(repo)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := r.copy(ctx, l.path(), filepath.Join(dir, l.name+segmentEnding), l.fileSum); err != nil {
		return err
	}
	return r.FS.SyncDir(dir)
}

// checkLog refuses a space that names a part of its log which is not in the manifest as
// the space has it.
func (r *restore) checkLog(s manifestSpace, it ledger.Item, logs map[string]fileSum) error {
	if !strings.HasPrefix(it.Key, segmentKeys) {
		return nil
	}
	rec, err := decodeSegmentRecord(it.Value)
	if err != nil {
		return &BackupError{s.file, err}
	}
	f, ok := logs[rec.Name]
	if !ok {
		return &BackupError{s.file, fmt.Errorf("it names part %s of its log, the manifest does not", rec.Name)}
	}
	if f.size != rec.Size || hex.EncodeToString(f.sum[:]) != rec.SHA256 {
		return &BackupError{manifestLog{repo: strings.TrimPrefix(string(s.name), repoSpaces), name: rec.Name}.path(),
			errors.New("it is not the part of the log that its repo names")}
	}
	return nil
}
