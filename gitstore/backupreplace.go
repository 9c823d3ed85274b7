package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
)

// A ReplaceError says why a backup may not take the place of the one that a folder
// holds. That one is as it was.
type ReplaceError struct {
	Dir string
	Why string // what is wrong with the new one
}

func (e *ReplaceError) Error() string {
	return fmt.Sprintf("%s keeps its earlier backup: the new one %s", e.Dir, e.Why)
}

// mayReplace refuses what an operator would not want in the place of the earlier
// backup: the packs that this one does not name go with it.
func (b *BackupDir) mayReplace(m *manifest) error {
	if b.Replace || len(b.before.spaces) == 0 {
		return nil
	}
	had, has, lost := b.before.repos(), m.repos(), 0
	for id := range had {
		if !has[id] {
			lost++
		}
	}
	switch old := b.before.store; {
	case len(m.spaces) == 0:
		return &ReplaceError{b.dir, "is empty"}
	case old != "" && m.store == "":
		return &ReplaceError{b.dir, "is of a store without an id, not of " + old}
	case old != "" && m.store != old:
		return &ReplaceError{b.dir, fmt.Sprintf("is of another store: %.80q, not %s", m.store, old)}
	case lost*2 > len(had):
		return &ReplaceError{b.dir, fmt.Sprintf("lacks %d of the %d repos that are in it", lost, len(had))}
	}
	return nil
}

// storeIn reads the store's id from the server's space in a folder of backups, "" if
// there is none.
func storeIn(dir string, server manifestSpace) (string, error) {
	f, err := openRegular(dir, server.file)
	if err != nil {
		return "", &BackupError{server.file, err}
	}
	defer f.Close()
	d, err := ledger.NewDumpReader(f)
	for err == nil {
		var c ledger.Chunk
		c, err = d.Next()
		for _, it := range c.Items {
			if it.Key == storeKey {
				return string(it.Value), nil
			}
		}
	}
	if err != io.EOF {
		return "", &BackupError{server.file, err}
	}
	return "", nil
}

// A SkippedRepo is a damaged repo that a backup was taken without.
type SkippedRepo struct {
	Repo    string // ORG/NAME
	Err     error  // what is wrong with it; nil when it is told of by a restore
	Earlier bool   // it is in the backup as an earlier backup found it
}

// Damaged implements BackupSink.
func (b *BackupDir) Damaged(d DamagedRepo) error {
	if !b.SkipDamaged {
		return d.Err
	}
	if err := errors.Join(checkRepoID(d.ID), b.Drop(ledger.RepoSpace(d.ID))); err != nil {
		return err
	}
	earlier, err := b.carry(d.ID)
	if err == nil && !earlier {
		err = b.Drop(ledger.RepoSpace(d.ID))
	}
	b.skipped[ledger.RepoSpace(d.ID)] = &SkippedRepo{Repo: d.Org + "/" + d.Name, Err: d.Err, Earlier: earlier}
	return err
}

// carry takes over what the earlier backup has of a repo; false: nothing of use.
func (b *BackupDir) carry(id string) (bool, error) {
	space, found := ledger.RepoSpace(id), false
	for _, s := range b.before.spaces {
		if s.name != space {
			continue
		}
		found = true
		if err := b.carrySpace(s); err != nil {
			return false, err
		}
		if b.spaces[space].fileSum != s.fileSum {
			return false, nil
		}
	}
	for _, p := range b.before.packs {
		if p.repo == id && found {
			if !b.HasPack(p.name) {
				return false, nil
			}
			if err := b.Keep(id, p.name); err != nil {
				return false, err
			}
		}
	}
	for _, l := range b.before.logs {
		if l.repo == id && found {
			if !b.hasLog(l.name) {
				return false, nil
			}
			if err := b.keepLog(id, l.name); err != nil {
				return false, err
			}
		}
	}
	return found, nil
}

// carrySpace copies what it can read of a space of the earlier backup.
func (b *BackupDir) carrySpace(s manifestSpace) error {
	f, err := openRegular(b.dir, s.file)
	if err != nil {
		return nil //nolint:nilerr // it is then not in this backup
	}
	defer f.Close()
	if err := b.Begin(BackupFile{Kind: BackupSpace, Space: s.name, Size: s.size}); err != nil {
		return err
	}
	if _, err := copySteps(context.Background(), b, damageReader{f}); err != nil && !errors.As(err, new(*unreadableError)) {
		return err
	}
	return b.End()
}

// skips are the repos that were left out.
func (b *BackupDir) skips() (all []SkippedRepo) {
	for _, s := range b.skipped {
		all = append(all, *s)
	}
	return all
}

// makePrivate makes a folder that only its owner may look into. One that is there
// stays as it is.
func makePrivate(dir string) error {
	if err := makeDurable(packs.OS{}, filepath.Dir(filepath.Clean(dir))); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return makeDurable(packs.OS{}, dir)
}

var errNotRegular = errors.New("it is no regular file")

// openRegular opens a file of a folder of backups. What is no regular file, as a
// symbolic link or a FIFO, is neither followed nor waited for.
func openRegular(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, errNotRegular
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotRegular
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// readRegular reads a file of a folder of backups that openRegular opens.
func readRegular(dir, name string) ([]byte, error) {
	f, err := openRegular(dir, name)
	if errors.Is(err, errNotRegular) {
		return nil, &BackupError{name, err}
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
