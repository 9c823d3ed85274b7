package gitstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// maxRepoName is the longest name of a repo, in bytes.
const maxRepoName = 255

var repoNameBytes = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)

// ParseRepoName checks a repo's name by the rule of contract OQ-R10; it is
// ErrBadRepoName with the reason.
func ParseRepoName(name string) error {
	bad := func(why string) error { return fmt.Errorf("%w: %s", ErrBadRepoName, why) }
	switch {
	case name == "" || len(name) > maxRepoName:
		return bad(fmt.Sprintf("%d bytes, 1 to %d allowed", len(name), maxRepoName))
	case !repoNameBytes.MatchString(name):
		return bad("only letters, digits, and . _ / - are allowed")
	case name == "org":
		return bad("org is reserved")
	case strings.Contains(name, ".git"):
		return bad("may not contain .git")
	}
	for seg := range strings.SplitSeq(name, "/") {
		switch {
		case seg == "":
			return bad("empty segment")
		case seg[0] == '-' || seg[0] == '.':
			return bad("segment begins with - or .")
		}
	}
	return nil
}

// repoIntent is written before a repo is made or removed and taken away after it,
// so that a crash in between leaves something to finish from.
type repoIntent struct {
	Delete bool      `json:"delete,omitempty"`
	Org    string    `json:"org"`
	Name   string    `json:"name"`
	At     time.Time `json:"at"`
}

// intentPatience is how old an intent must be before somebody else finishes it.
const intentPatience = 10 * time.Minute

// CreateRepo makes an empty repo. once, which may be nil, keeps its answer in the
// org's space. Errors: ErrBadRepoName, ErrRepoExists, *refpolicy.RefNameError for the branch.
func (s *Store) CreateRepo(ctx context.Context, c Caller, org, name, defaultBranch string, once *ledger.Once[RepoInfo]) (RepoInfo, error) {
	info, err := s.createRepo(ctx, org, name, defaultBranch, once)
	if err != nil {
		return RepoInfo{}, s.orRepeated(ctx, ledger.OrgSpace(org), once.StoreKey(), err)
	}
	return info, nil
}

func (s *Store) createRepo(ctx context.Context, org, name, defaultBranch string, once *ledger.Once[RepoInfo]) (RepoInfo, error) {
	if err := ParseRepoName(name); err != nil {
		return RepoInfo{}, err
	}
	if _, err := refpolicy.StrictBranch(defaultBranch); err != nil {
		return RepoInfo{}, err
	}
	end, err := s.begin()
	if err != nil {
		return RepoInfo{}, err
	}
	defer end()
	if err := s.nameFree(ctx, org, name); err != nil {
		return RepoInfo{}, err
	}
	now, err := s.ledger.Now(ctx)
	if err != nil {
		return RepoInfo{}, fmt.Errorf("create repo: %w", err)
	}
	rec := repoRecord{
		ID: "repo_" + strings.ReplaceAll(uuid.NewString(), "-", ""), Org: org, Name: name,
		DefaultBranch: defaultBranch, CreatedAt: now,
	}
	if err := s.writeIntent(ctx, rec.ID, repoIntent{Org: org, Name: name, At: now}); err != nil {
		return RepoInfo{}, err
	}
	if err := s.create(ctx, rec, once); err != nil {
		// Its batches may have been applied all the same, or may be later: what is not
		// known to be refused is left to whoever finishes intents.
		if errors.Is(err, ErrRepoExists) {
			if rerr := s.remove(ctx, rec.ID); rerr != nil {
				s.log.Warn("remove half-made repo", "repo", rec.ID, "err", rerr)
			}
		}
		return RepoInfo{}, err
	}
	if err := s.dropIntent(ctx, rec.ID); err != nil {
		s.log.Warn("repo is made, its intent stays", "repo", rec.ID, "err", err)
	}
	return rec.info(), nil
}

func (s *Store) nameFree(ctx context.Context, org, name string) error {
	v, err := s.ledger.Read(ctx, ledger.OrgSpace(org))
	if err != nil {
		return fmt.Errorf("create repo: %w", err)
	}
	defer v.Close()
	switch _, err := v.Get(ctx, nameKey(name)); {
	case err == nil:
		return ErrRepoExists
	case errors.Is(err, ledger.ErrNotFound):
		return nil
	default:
		return fmt.Errorf("create repo: %w", err)
	}
}

// create makes folder and records; the batch in the org's space is what makes the repo exist.
func (s *Store) create(ctx context.Context, rec repoRecord, once *ledger.Once[RepoInfo]) error {
	kept, err := once.Rider(rec.info(), rec.CreatedAt)
	if err != nil {
		return err
	}
	dir := s.repoDir(rec.ID)
	if err := makeParents(s.fs, dir, s.reposDir()); err != nil {
		return fmt.Errorf("create repo: %w", err)
	}
	if err := packs.CreateDir(dir, packs.Options{FS: s.fs}); err != nil {
		return fmt.Errorf("create repo: %w", err)
	}
	raw := rec.encode()
	_, err = s.ledger.Apply(ctx, ledger.Batch{
		Space:  ledger.RepoSpace(rec.ID),
		Checks: []ledger.Check{ledger.Absent(metaKey)},
		Sets:   []ledger.Set{{Key: metaKey, Value: raw}, {Key: genKey, Value: []byte(firstGen)}, {Key: linesKey}},
	})
	if err != nil {
		return fmt.Errorf("create repo: %w", err)
	}
	b := ledger.Batch{
		Space: ledger.OrgSpace(rec.Org),
		Checks: []ledger.Check{
			ledger.Absent(nameKey(rec.Name)),
			// Later somebody else may have taken away what this repo was to consist of.
			ledger.Before(rec.CreatedAt.Add(intentPatience / 2)),
		},
		Sets: []ledger.Set{
			{Key: nameKey(rec.Name), Value: []byte(rec.ID)},
			{Key: recentKey(rec.CreatedAt, rec.ID), Value: raw},
		},
	}
	b.Carry(kept)
	_, err = s.ledger.Apply(ctx, b)
	var check *ledger.CheckError
	if errors.As(err, &check) && check.Check.Kind == ledger.CheckAbsent {
		return ErrRepoExists // or this call was made before, and its repo may be gone again
	}
	if err != nil {
		return fmt.Errorf("create repo: %w", err)
	}
	return nil
}

// makeParents makes the folder between the repos folder and a repo's own.
func makeParents(fs packs.FS, dir, repos string) error {
	if err := fs.Mkdir(filepath.Dir(dir)); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return fs.SyncDir(repos)
}

// makeDurable makes a folder with its parents, each of which keeps its name
// through a power cut.
func makeDurable(fs packs.FS, dir string) error {
	parent := filepath.Dir(dir)
	err := fs.Mkdir(dir)
	if errors.Is(err, os.ErrNotExist) {
		if err := makeDurable(packs.OS{}, parent); err != nil {
			return err
		}
		err = fs.Mkdir(dir)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	serr := fs.SyncDir(parent)
	if err != nil && errors.Is(serr, os.ErrPermission) {
		return nil // an operator made it where we may not look
	}
	return serr
}

// DeleteRepo removes a repo, be its folder damaged or gone; from its answer on the name
// is free and nothing of it can be read. once, which may be nil, keeps its answer in
// the org's space. Errors: ErrRepoNotFound.
func (s *Store) DeleteRepo(ctx context.Context, c Caller, org, name string, once *ledger.Once[RepoInfo]) (RepoInfo, error) {
	info, err := s.deleteRepo(ctx, org, name, once)
	if err != nil {
		return RepoInfo{}, s.orRepeated(ctx, ledger.OrgSpace(org), once.StoreKey(), err)
	}
	return info, nil
}

func (s *Store) deleteRepo(ctx context.Context, org, name string, once *ledger.Once[RepoInfo]) (RepoInfo, error) {
	end, err := s.begin()
	if err != nil {
		return RepoInfo{}, err
	}
	defer end()
	if once != nil { // the name may be another repo's by now
		stored, err := s.OrgOnce(ctx, org, once.StoreKey())
		if err != nil || stored != nil {
			return RepoInfo{}, cmp.Or(err, ledger.Repeated(stored))
		}
	}
	info, err := s.recorded(ctx, org, name)
	if err != nil {
		return RepoInfo{}, err
	}
	now, err := s.ledger.Now(ctx)
	if err != nil {
		return RepoInfo{}, fmt.Errorf("delete repo: %w", err)
	}
	if err := s.writeIntent(ctx, info.ID, repoIntent{Delete: true, Org: org, Name: name, At: now}); err != nil {
		return RepoInfo{}, err
	}
	kept, err := once.Rider(info, now)
	if err != nil {
		return RepoInfo{}, err
	}
	b := ledger.Batch{
		Space:   ledger.OrgSpace(org),
		Checks:  []ledger.Check{ledger.Equal(nameKey(name), []byte(info.ID))},
		Deletes: []string{nameKey(name), recentKey(info.CreatedAt, info.ID)},
	}
	b.Carry(kept)
	_, err = s.ledger.Apply(ctx, b)
	if isCheck(err) {
		return RepoInfo{}, ErrRepoNotFound // or this call was made before: the intent finds the name and goes
	}
	if err != nil {
		return RepoInfo{}, fmt.Errorf("delete repo: %w", err)
	}
	if err := s.remove(ctx, info.ID); err != nil {
		s.log.Warn("repo is deleted, its files stay for now", "repo", info.ID, "err", err)
	}
	return info, nil
}

// recorded reads a repo's record without opening its folder.
func (s *Store) recorded(ctx context.Context, org, name string) (RepoInfo, error) {
	id, err := readKey(ctx, s.ledger.ReadKeys, ledger.OrgSpace(org), nameKey(name))
	if err != nil {
		return RepoInfo{}, fmt.Errorf("find repo: %w", err)
	}
	if id == nil {
		return RepoInfo{}, ErrRepoNotFound
	}
	raw, err := readKey(ctx, s.ledger.ReadKeys, ledger.RepoSpace(string(id)), metaKey)
	if err != nil {
		return RepoInfo{}, fmt.Errorf("read repo record: %w", err)
	}
	if raw == nil {
		return RepoInfo{}, ErrRepoNotFound // being deleted
	}
	rec, err := decodeRepoRecord(raw)
	return rec.info(), err
}

// remove takes away all that a repo without a name consists of, then its intent.
// Dropping the space takes the generation key away, which every write checks:
// whatever is still under way then fails.
func (s *Store) remove(ctx context.Context, id string) error {
	if err := s.ledger.Drop(ctx, ledger.RepoSpace(id)); err != nil {
		return fmt.Errorf("drop repo space: %w", err)
	}
	s.mu.Lock()
	r := s.repos[id]
	s.mu.Unlock()
	if r != nil {
		s.forget(r)
	}
	s.tidied.Delete(id)
	if err := os.RemoveAll(s.repoDir(id)); err != nil {
		return fmt.Errorf("remove repo folder: %w", err)
	}
	return s.dropIntent(ctx, id)
}

func (s *Store) writeIntent(ctx context.Context, id string, in repoIntent) error {
	_, err := s.ledger.Apply(ctx, ledger.Batch{
		Space: ledger.ServerSpace,
		Sets:  []ledger.Set{{Key: intentKeys + id, Value: mustJSON(in)}},
	})
	if err != nil {
		return fmt.Errorf("write intent: %w", err)
	}
	return nil
}

func (s *Store) dropIntent(ctx context.Context, id string) error {
	_, err := s.ledger.Apply(ctx, ledger.Batch{Space: ledger.ServerSpace, Deletes: []string{intentKeys + id}})
	if err != nil {
		return fmt.Errorf("drop intent: %w", err)
	}
	return nil
}

// sweepIntents finishes intents again and again where several processes share the
// data folder, since one that dies may not be the next to start.
func (s *Store) sweepIntents(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.closed:
			return
		case <-t.C:
		}
		if err := s.finishIntents(s.life); err != nil && s.life.Err() == nil {
			s.log.Warn("finish what a crash left", "err", err)
		}
	}
}

// finishIntents removes what a crash left of repos half made or half deleted. A
// young intent may belong to another process that is at work on it.
func (s *Store) finishIntents(ctx context.Context) error {
	v, err := s.ledger.Read(ctx, ledger.ServerSpace)
	if err != nil {
		return err
	}
	defer v.Close()
	items, err := scanAll(ctx, v, intentKeys)
	if err != nil {
		return err
	}
	now, err := s.ledger.Now(ctx)
	if err != nil {
		return err
	}
	for _, it := range items {
		var in repoIntent
		if err := json.Unmarshal(it.Value, &in); err != nil {
			return fmt.Errorf("decode intent: %w", err)
		}
		if s.shared && now.Sub(in.At) < intentPatience {
			continue
		}
		if err := s.finishIntent(ctx, strings.TrimPrefix(it.Key, intentKeys), in); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) finishIntent(ctx context.Context, id string, in repoIntent) error {
	v, err := s.ledger.Read(ctx, ledger.OrgSpace(in.Org))
	if err != nil {
		return err
	}
	defer v.Close()
	named, err := v.Get(ctx, nameKey(in.Name))
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return err
	}
	if string(named) == id { // it was made whole, or its deletion had not begun to show
		return s.dropIntent(ctx, id)
	}
	return s.remove(ctx, id)
}
