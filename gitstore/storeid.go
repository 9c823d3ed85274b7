package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
)

const (
	// storeFile in the data folder and storeKey in the server's space hold one and the
	// same id: which ledger and which folder belong together.
	storeFile = "STORE"
	storeKey  = "store"
)

// claim makes sure that folder and ledger belong together before anything is done in
// either; if not it is a *ForeignLedgerError. New ones get an id, which is written to
// the ledger first: a folder that has one has a ledger that has it.
func (s *Store) claim(ctx context.Context) error {
	folder, err := readStoreID(s.dir)
	for err == nil {
		if err = s.claimAs(ctx, folder); err == nil {
			return nil
		}
		// Another process may have given both their id since the folder was read.
		again, rerr := readStoreID(s.dir)
		if rerr != nil || again == folder {
			return err
		}
		folder, err = again, nil
	}
	return err
}

// claimAs is claim for a folder whose id is folder, "" if it has none.
func (s *Store) claimAs(ctx context.Context, folder string) error {
	raw, err := readKey(ctx, s.ledger.ReadKeys, ledger.ServerSpace, storeKey)
	if err != nil {
		return fmt.Errorf("read store id: %w", err)
	}
	id := string(raw)
	foreign := &ForeignLedgerError{Dir: s.dir, Folder: folder, Ledger: id}
	if folder != "" {
		if folder != id {
			return foreign
		}
		return nil
	}
	older, err := s.unmarked(ctx, foreign)
	if err != nil {
		return err
	}
	if id == "" {
		if id, err = s.nameLedger(ctx); err != nil {
			return err
		}
	}
	if older {
		s.log.Info("data folder upgraded", "step", "store id", "store", id)
	}
	return nameFolder(s.fs, s.dir, id)
}

// unmarked looks at a folder that has no id. With repos it is an older one if the
// ledger knows any of them; without, the ledger may know no repo either.
func (s *Store) unmarked(ctx context.Context, foreign *ForeignLedgerError) (older bool, err error) {
	folders, err := repoFolders(s.dir)
	if err != nil {
		return false, err
	}
	for _, folder := range folders {
		known, err := s.knows(ctx, filepath.Base(folder))
		if known || err != nil {
			return known, err
		}
		foreign.Repo = filepath.Base(folder)
	}
	if len(folders) > 0 {
		return false, foreign
	}
	bulk, ok := s.ledger.(ledger.Bulk)
	if !ok {
		return false, nil
	}
	return false, bulk.Spaces(ctx, func(space ledger.Space) error {
		if id, ok := strings.CutPrefix(string(space), repoSpaces); ok {
			foreign.Repo, foreign.Empty = id, true
			return foreign
		}
		return nil
	})
}

// knows reports whether the ledger has a repo, or one is being made or removed.
func (s *Store) knows(ctx context.Context, id string) (bool, error) {
	for space, key := range map[ledger.Space]string{ledger.RepoSpace(id): metaKey, ledger.ServerSpace: intentKeys + id} {
		raw, err := readKey(ctx, s.ledger.ReadKeys, space, key)
		if err != nil {
			return false, fmt.Errorf("look for repo %s: %w", id, err)
		}
		if raw != nil {
			return true, nil
		}
	}
	return false, nil
}

// nameLedger gives the ledger a new id, or has the one that another process gave it.
func (s *Store) nameLedger(ctx context.Context) (string, error) {
	id := newStoreID()
	_, err := s.ledger.Apply(ctx, ledger.Batch{
		Space:  ledger.ServerSpace,
		Checks: []ledger.Check{ledger.Absent(storeKey)},
		Sets:   []ledger.Set{{Key: storeKey, Value: []byte(id)}},
	})
	var check *ledger.CheckError
	if errors.As(err, &check) {
		return string(check.Present), nil
	}
	if err != nil {
		return "", fmt.Errorf("write store id: %w", err)
	}
	return id, nil
}

func newStoreID() string { return "store-" + strings.ReplaceAll(uuid.NewString(), "-", "") }

// renamed gives a store that is restored to dir an id of its own, in the server's space
// and in the folder: the one that was backed up may live on. A backup of a store that
// had none gets one when the restored one is opened.
func renamed(server []ledger.Item, files packs.FS, dir string) error {
	for i, it := range server {
		if it.Key == storeKey {
			id := newStoreID()
			server[i].Value = []byte(id)
			return nameFolder(files, dir, id)
		}
	}
	return nil
}

// nameFolder gives a folder its id, durably and for good: one that another process
// gave it meanwhile must be the same.
func nameFolder(files packs.FS, dir, id string) error {
	err := linkStoreID(files, dir, id)
	if errors.Is(err, fs.ErrExist) {
		there, rerr := readStoreID(dir)
		if rerr == nil && there != id {
			return &ForeignLedgerError{Dir: dir, Folder: there, Ledger: id}
		}
		err = rerr
	}
	if err == nil {
		err = files.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("write store id: %w", err)
	}
	return nil
}

// linkStoreID makes the file whole or not at all; one that is there is fs.ErrExist.
func linkStoreID(files packs.FS, dir, id string) error {
	temp := filepath.Join(dir, ".new-"+uuid.NewString())
	f, err := files.Create(temp)
	if err != nil {
		return fmt.Errorf("make %s: %w", temp, err)
	}
	_, err = f.Write([]byte(id + "\n"))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = files.Link(temp, filepath.Join(dir, storeFile))
	}
	if rerr := files.Remove(temp); err == nil {
		err = rerr
	}
	return err
}

// readStoreID reads the id of a data folder, "" if it has none.
func readStoreID(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, storeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read store id: %w", err)
	}
	id := strings.TrimSpace(string(text))
	if id == "" {
		return "", fmt.Errorf("read store id: %s is empty", filepath.Join(dir, storeFile))
	}
	return id, nil
}

// CheckUnused is nil if a data folder, which need not exist, belongs to no ledger, so
// that it may get a new one; else it is a *ForeignLedgerError. It changes nothing.
func CheckUnused(dir string) error {
	id, err := readStoreID(dir)
	if err != nil {
		return err
	}
	folders, err := repoFolders(dir)
	if err != nil {
		return err
	}
	switch {
	case id != "":
		return &ForeignLedgerError{Dir: dir, Folder: id}
	case len(folders) > 0:
		return &ForeignLedgerError{Dir: dir, Repo: filepath.Base(folders[0])}
	}
	return nil
}

// repoFolders gives the folders of the repos that were made whole.
func repoFolders(dir string) ([]string, error) {
	configs, err := filepath.Glob(filepath.Join(dir, "repos", "*", "repo_*", "config"))
	if err != nil {
		return nil, fmt.Errorf("list repos: %w", err)
	}
	for i, path := range configs {
		configs[i] = filepath.Dir(path)
	}
	return configs, nil
}
