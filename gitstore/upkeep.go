package gitstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
)

// GCReport tells what upkeep did to one repo.
type GCReport struct {
	Repo    RepoInfo
	Prune   PruneReport
	Merged  int  // packs that were united with others
	Removed int  // packs whose files were removed
	Indexed bool // the index over the packs was written anew
}

// GC looks after all repos that want picks (nil: all): it prunes, merges packs, writes
// an index over them and removes those that were replaced. With now also what is little, and the files of
// replaced packs at once: who is reading something that nothing leads to any more
// may be told that it is not there. Without now only what is due is done. A repo in
// which that fails does not keep it from the others: the reports are of those that
// were done, the error joins a *RepoError for each of the rest.
func (s *Store) GC(ctx context.Context, want func(RepoInfo) bool, now bool) ([]GCReport, error) {
	ctx, end, err := s.work(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var reports []GCReport
	var failed []error
	err = s.eachWanted(ctx, want, func(r *Repo) error {
		report, err := r.gc(ctx, now)
		if errors.Is(err, ErrRepoNotFound) {
			return nil // deleted meanwhile
		}
		if err != nil && ctx.Err() == nil {
			failed = append(failed, repoError(r.Info(), fmt.Errorf("look after it: %w", err)))
			return nil
		}
		if err == nil {
			reports = append(reports, report)
		}
		return err
	})
	return reports, errors.Join(append(failed, err)...)
}

// eachWanted calls fn with every repo that want picks (nil: all), of all orgs, in no
// order. want is asked once for each and knows id, org and name. An error of fn ends it.
// A repo that cannot be opened does not: at the end the error joins a *RepoError for each.
func (s *Store) eachWanted(ctx context.Context, want func(RepoInfo) bool, fn func(*Repo) error) error {
	var failed []error
	err := s.eachNamed(ctx, func(named RepoInfo) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if want != nil && !want(named) {
			return nil
		}
		r, err := s.opened(ctx, named.ID)
		if err == nil {
			err = r.refresh(ctx)
		}
		switch {
		case err == nil:
			return fn(r)
		case errors.Is(err, ErrRepoNotFound):
			return nil
		case errors.Is(err, ErrClosed), errors.Is(err, ledger.ErrUnavailable):
			return err
		}
		failed = append(failed, repoError(named, err))
		return nil
	})
	return errors.Join(append(failed, err)...)
}

func repoError(info RepoInfo, err error) error {
	return &RepoError{ID: info.ID, Org: info.Org, Name: info.Name, Err: err}
}

// gc does all upkeep of one repo. Of several that are asked for it at the same time,
// in whatever process, one does it and the others wait. What was replaced before is
// removed also when the rest fails, which it may for want of just that space.
func (r *Repo) gc(ctx context.Context, now bool) (report GCReport, err error) {
	start := time.Now()
	r.upkeep.Lock()
	defer r.upkeep.Unlock()
	release, err := r.lease(ctx, now)
	if err != nil || release == nil {
		return GCReport{Repo: r.Info()}, err
	}
	defer release()
	grace := r.store.limits.PackGrace
	if now {
		grace = 0
	}
	if err = r.mend(ctx); err == nil {
		err = r.rearrange(ctx, now, &report)
	}
	err = errors.Join(err, r.tendLog(ctx), r.removeIndexes(ctx, grace))
	removed, rerr := r.removeCondemned(ctx, grace)
	report.Removed, report.Repo = removed, r.Info()
	r.store.observe("upkeep", time.Since(start))
	return report, errors.Join(err, rerr)
}

// rearrange prunes, merges and indexes, as far as each is due, with now all of it.
func (r *Repo) rearrange(ctx context.Context, now bool, report *GCReport) (err error) {
	least := r.store.limits.MergePacks
	if now {
		least = 1
	}
	if now || r.pruneDue() {
		if report.Prune, err = r.prune(ctx, now); err != nil && !errors.Is(err, errOvertaken) {
			// Tried again when that is due by the last one, and not every time from now on:
			// a damaged repo would be walked without end, and never merged.
			r.waste.Store(0)
			return err
		}
	}
	if now { // of what is hot nothing stays out
		if err := r.settleAlone(ctx); err != nil {
			return err
		}
	}
	if report.Merged, err = r.merge(ctx, least); err != nil && !replaced(err) {
		return err
	}
	if report.Indexed, err = r.index(ctx, now); err != nil && !replaced(err) {
		return err
	}
	return nil
}

// replaced reports whether packs were replaced by another upkeep before this one's batch.
func replaced(err error) bool {
	var check *ledger.CheckError
	return errors.As(err, &check) || errors.Is(err, packs.ErrPackMissing) || errors.Is(err, errOvertaken)
}

// index writes a new index if there is need, with all if there is any difference. The
// one in use is looked at first, with all every byte of it.
func (r *Repo) index(ctx context.Context, all bool) (written bool, err error) {
	if ri := r.store.indexes.known(r.id); all && ri != nil { // else it is read whole anyway
		ri.doubt.verify.Store(true)
	}
	_, release := r.useIndex(ctx)
	release()
	broken, err := r.settleDoubt(ctx)
	if err != nil {
		return false, err
	}
	return r.writeIndex(ctx, all || broken)
}

// pruneDue reports whether so much was deleted that pruning pays.
func (r *Repo) pruneDue() bool { return r.waste.Load() >= r.wastePruned() }

// pruneShare: a prune walks from all refs, so there has to be a deletion for every so
// many of them.
const pruneShare = 20

// wastePruned is how many deleted or rewound refs make a prune due.
func (r *Repo) wastePruned() int64 {
	return max(int64(r.store.limits.PruneDeletions), r.prunedRefs.Load()/pruneShare)
}

// lookEvery is how often the ledger is asked whether the last prune is long ago.
const lookEvery = time.Hour

// overdue makes a prune due when refs have moved and the last one is long ago. What
// was deleted before this process opened the repo is known by this alone.
func (r *Repo) overdue(ctx context.Context) error {
	now := time.Now().Unix()
	if last := r.looked.Load(); now-last < int64(lookEvery/time.Second) || !r.looked.CompareAndSwap(last, now) {
		return nil
	}
	long, err := r.prunedLongAgo(ctx)
	if err == nil && long {
		r.waste.Add(r.wastePruned())
	}
	return err
}

func (r *Repo) prunedLongAgo(ctx context.Context) (bool, error) {
	v, err := r.ledger.Peek(ctx, r.space)
	if err != nil {
		return false, err
	}
	defer v.Close()
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return false, err
	}
	seq, err := v.LastSeq(ctx)
	if err != nil {
		return false, err
	}
	got, err := v.GetMany(ctx, prunedKey)
	if err != nil {
		return false, err
	}
	last := prunedRecord{At: r.Info().CreatedAt}
	if got[0] != nil {
		if err := json.Unmarshal(got[0], &last); err != nil {
			return false, fmt.Errorf("decode %s: %w", prunedKey, err)
		}
	}
	r.prunedRefs.Store(last.Refs)
	return seq > last.Seq && now.Sub(last.At) >= r.store.limits.PruneEvery, nil
}

// due is what can be told without asking anybody: whether upkeep may have something to do.
func (r *Repo) due() bool {
	return r.pruneDue() || len(r.condemned()) > 0 || len(r.packNames()) >= r.store.limits.MergePacks || r.indexDue()
}

// leaseTime is how long a process may look after a repo before others believe that it is gone.
const leaseTime = 30 * time.Minute

type upkeepLease struct {
	Holder string    `json:"holder"`
	Until  time.Time `json:"until"`
}

// lease keeps several processes from doing the same work; what they do is right
// without it. release is nil if another one holds it and wait is false.
func (r *Repo) lease(ctx context.Context, wait bool) (release func(), err error) {
	if !r.store.shared {
		return func() {}, nil
	}
	for {
		raw, held, err := r.takeLease(ctx)
		if err != nil {
			return nil, fmt.Errorf("take upkeep lease: %w", err)
		}
		if held {
			return func() { r.dropLease(raw) }, nil
		}
		if !wait {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (r *Repo) takeLease(ctx context.Context) (raw []byte, held bool, err error) {
	old, err := readKey(ctx, r.ledger.ReadKeys, r.space, leaseKey)
	if err != nil {
		return nil, false, err
	}
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return nil, false, err
	}
	check := ledger.Absent(leaseKey)
	if old != nil {
		var l upkeepLease
		if err := json.Unmarshal(old, &l); err == nil && now.Before(l.Until) {
			return nil, false, nil
		}
		check = ledger.Equal(leaseKey, old)
	}
	raw = mustJSON(upkeepLease{uuid.NewString(), now.Add(leaseTime)})
	_, err = r.ledger.Apply(ctx, ledger.Batch{
		Space: r.space, Checks: []ledger.Check{check}, Sets: []ledger.Set{{Key: leaseKey, Value: raw}},
	})
	var taken *ledger.CheckError
	if errors.As(err, &taken) {
		return nil, false, nil
	}
	return raw, err == nil, err
}

// dropLease ends a lease also when the work was cut short; what fails here ends by itself.
func (r *Repo) dropLease(raw []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), dropPatience)
	defer cancel()
	_, err := r.ledger.Apply(ctx, ledger.Batch{
		Space: r.space, Checks: []ledger.Check{ledger.Equal(leaseKey, raw)}, Deletes: []string{leaseKey},
	})
	if err != nil {
		r.store.log.Debug("release upkeep lease", "repo", r.id, "err", err)
	}
}

// keepUp looks after the open repos again and again until the store closes: one at a
// time, with processes of low priority, so that commits are not held up.
func (s *Store) keepUp(every time.Duration) {
	// What is cut short here is done another time; closing waits for requests alone.
	ctx, cancel := context.WithCancel(s.life)
	defer cancel()
	s.works.Go(func() { <-s.closed; cancel() })
	t := time.NewTicker(every)
	defer t.Stop()
	swept := time.Now()
	for {
		select {
		case <-s.closed:
			return
		case <-t.C:
		}
		if time.Since(swept) > answersEvery {
			swept = time.Now()
			if err := s.forgetAllAnswers(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("upkeep", "err", err)
			}
		}
		for _, r := range s.openRepos() {
			err := r.overdue(ctx)
			if err == nil && r.due() && !s.putOff(ctx, r) {
				_, err = r.gc(ctx, false)
			}
			err = errors.Join(err, r.keepLog(ctx))
			if err != nil && ctx.Err() == nil && !errors.Is(err, ErrRepoNotFound) {
				s.log.Warn("upkeep", "repo", r.id, "err", err)
			}
		}
	}
}

// openRepos are the repos that are kept open. One that is being opened has no record
// yet; it is looked after next time.
func (s *Store) openRepos() []*Repo {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Values(s.repos))
	return slices.DeleteFunc(all, func(r *Repo) bool { return r.meta.Load() == nil })
}
