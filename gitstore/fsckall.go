package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
)

// maxUnchecked is how many repos may be kept from being looked at before fsck gives up.
const maxUnchecked = 10

// FsckAll is Fsck for all repos that want picks (nil: all), of all orgs, by the ledger;
// tell gets what was found in each, nothing for a sound one. Folders of which the
// ledger knows nothing come last, as repos without org whose name is their id. A repo
// that is deleted meanwhile is passed over. An error of tell ends it; one that keeps it
// from looking at a repo is returned when the others have been looked at.
func (s *Store) FsckAll(ctx context.Context, want func(RepoInfo) bool, tell func(RepoInfo, []Finding) error) error {
	ctx, end, err := s.work(ctx)
	if err != nil {
		return err
	}
	defer end()
	var unchecked []error
	known := map[string]bool{}
	err = s.eachNamed(ctx, func(named RepoInfo) error {
		known[named.ID] = true
		if want != nil && !want(named) {
			return nil
		}
		findings, there, err := s.fsckNamed(ctx, named)
		if err != nil && (ctx.Err() != nil || len(unchecked) == maxUnchecked) {
			return errors.Join(append(unchecked, err)...)
		}
		if err != nil {
			unchecked = append(unchecked, fmt.Errorf("%s/%s: %w", named.Org, named.Name, err))
		}
		if !there {
			return nil
		}
		return tell(named, findings)
	})
	if err == nil {
		err = s.unknownFolders(ctx, known, func(id string) error {
			info := RepoInfo{ID: id, Name: id}
			if want != nil && !want(info) {
				return nil
			}
			return tell(info, []Finding{{FindRepoUnknown, id, "no org names it"}})
		})
	}
	return errors.Join(append(unchecked, err)...)
}

// eachNamed calls fn with the id, org and name of every repo that an org names.
func (s *Store) eachNamed(ctx context.Context, fn func(RepoInfo) error) error {
	bulk, ok := s.ledger.(ledger.Bulk)
	if !ok {
		return fmt.Errorf("%w: this ledger cannot list its repos", ErrInvalid)
	}
	var orgs []string
	err := bulk.Spaces(ctx, func(space ledger.Space) error {
		if org, ok := strings.CutPrefix(string(space), orgSpaces); ok {
			orgs = append(orgs, org)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list orgs: %w", err)
	}
	for _, org := range orgs {
		items, err := s.namesOf(ctx, org)
		if err != nil {
			return fmt.Errorf("list repos of %s: %w", org, err)
		}
		for _, it := range items {
			info := RepoInfo{ID: string(it.Value), Org: org, Name: strings.TrimPrefix(it.Key, nameKeys)}
			if err := fn(info); err != nil {
				return err
			}
		}
	}
	return nil
}

// namesOf reads the names of an org's repos, and nothing is kept open after it.
func (s *Store) namesOf(ctx context.Context, org string) ([]ledger.Item, error) {
	v, err := s.ledger.Read(ctx, ledger.OrgSpace(org))
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return scanAll(ctx, v, nameKeys)
}

// fsckNamed is Fsck for a repo that need not be open, nor be there. there is false for
// one that has been deleted.
func (s *Store) fsckNamed(ctx context.Context, named RepoInfo) (found []Finding, there bool, err error) {
	f := &fsck{store: s, id: named.ID}
	whole, err := f.recorded(ctx)
	if err == nil && whole {
		whole, err = f.disk(ctx)
	}
	if err == nil && whole {
		err = f.opened(ctx)
	}
	still, serr := s.stillNamed(ctx, named)
	if !still && serr == nil {
		return nil, false, nil
	}
	return f.all(), true, errors.Join(err, serr)
}

// recorded wants a repo that is named to have a record.
func (f *fsck) recorded(ctx context.Context) (bool, error) {
	raw, err := readKey(ctx, f.store.ledger.ReadKeys, ledger.RepoSpace(f.id), metaKey)
	if err != nil {
		return false, err
	}
	if raw == nil {
		f.find(FindRepoRecord, f.id, "its record is not there")
		return false, nil
	}
	if _, err := decodeRepoRecord(raw); err != nil {
		f.find(FindRepoRecord, f.id, "%v", err)
		return false, nil
	}
	return true, nil
}

// opened looks at all of a repo whose folder is there. That it cannot be opened is
// damage too, which must not keep the others from being looked at.
func (f *fsck) opened(ctx context.Context) error {
	r, err := f.store.opened(ctx, f.id)
	switch {
	case err == nil:
		return r.orGone(f.repo(ctx, r))
	case ctx.Err() != nil, errors.Is(err, ErrClosed), errors.Is(err, ErrRepoNotFound):
		return err
	}
	f.find(FindRepoUnreadable, f.id, "%v", err)
	return nil
}

func (s *Store) stillNamed(ctx context.Context, named RepoInfo) (bool, error) {
	id, err := readKey(ctx, s.ledger.ReadKeys, ledger.OrgSpace(named.Org), nameKey(named.Name))
	return string(id) == named.ID, err
}

// unknownFolders calls fn with the names of repo folders that nothing names: no org,
// and no intent to make or remove it.
func (s *Store) unknownFolders(ctx context.Context, known map[string]bool, fn func(id string) error) error {
	paths, err := filepath.Glob(filepath.Join(s.reposDir(), "*", "repo_*"))
	if err != nil {
		return fmt.Errorf("list repos: %w", err)
	}
	for _, path := range paths {
		id := filepath.Base(path)
		if known[id] || strings.Contains(id, ".") { // a dot is in those that are being made
			continue
		}
		if unknown, err := s.unknown(ctx, id); err != nil || !unknown {
			if err != nil {
				return err
			}
			continue
		}
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue // its removal was under way
		}
		if err := fn(id); err != nil {
			return err
		}
	}
	return nil
}

// unknown asks about a folder that was not named when the names were read. An intent
// outlasts the making of a repo as well as its removal.
func (s *Store) unknown(ctx context.Context, id string) (bool, error) {
	intent, err := readKey(ctx, s.ledger.ReadKeys, ledger.ServerSpace, intentKeys+id)
	if intent != nil || err != nil {
		return false, err
	}
	raw, err := readKey(ctx, s.ledger.ReadKeys, ledger.RepoSpace(id), metaKey)
	if raw == nil || err != nil {
		return err == nil, err
	}
	rec, err := decodeRepoRecord(raw)
	if err != nil {
		return true, nil
	}
	named, err := s.stillNamed(ctx, rec.info())
	return !named, err
}
