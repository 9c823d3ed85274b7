package gitstore

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/headgate/headgate/refpolicy"
)

const (
	// bigBlobs is the size, in bytes, from which a pack of blobs is left as it is: it
	// would be copied for nothing.
	bigBlobs = 32 << 20
	// bigSnapshots is the same for packs of chunks.
	bigSnapshots = 128 << 20
	// bigBlob is how many bytes a blob must take in a pack, deflated and without a
	// delta, to be put into a pack of blobs when its pack is written anew.
	bigBlob = 4 << 20
	// mergeFactor is how much larger than all smaller ones together a pack must be to
	// stay out of a merge.
	mergeFactor = 2
)

// A mergeRule says which packs are united with each other.
type mergeRule struct {
	from []string // their kinds
	to   string   // the kind of what is made of them
	// all: every one of them, however large beside the others.
	all bool
	// alone: a single one is worth being written anew.
	alone bool
}

// mergeRules are the steps of a merge. git does not try two objects as delta and base
// that come undeltified out of one pack, since it takes them for tried; what was
// settled has never been, so it is packed once with all deltas made new, and from then
// on goes with what was pushed, whose deltas are kept.
var mergeRules = []mergeRule{
	{from: []string{kindSettled}, to: kindMerged, all: true, alone: true},
	{from: []string{kindMerged, kindPushed}, to: kindMerged},
	{from: []string{kindBlobs}, to: kindBlobs},
	{from: []string{kindSnapshot}, to: kindSnapshot},
}

// merge unites small packs, so that reading and git look into few: in the end each is
// at least mergeFactor times as large as all smaller ones of its kind together, and an
// object is copied no oftener than sizes double. Large blobs are put into packs of
// their own on the way, and not copied any more. least is how many packs must have
// come together. What is dead in them stays: a merge decides about places alone, so
// it needs no generation.
func (r *Repo) merge(ctx context.Context, least int) (merged int, err error) {
	for _, rule := range mergeRules {
		_, list, err := r.livePacks(ctx)
		if err != nil {
			return merged, err
		}
		group := mergeable(list, rule, r.store.limits.MergeBytes)
		if len(group) == 0 || len(group) < least || len(group) == 1 && !rule.alone {
			continue
		}
		if err := r.mergeGroup(ctx, rule, group); err != nil {
			if r.anyReplaced(ctx, group) {
				return merged, errOvertaken
			}
			return merged, r.orGone(fmt.Errorf("merge packs: %w", err))
		}
		merged += len(group)
	}
	return merged, nil
}

// mergeable are the smallest packs of a rule's kinds, as many as have to be united.
func mergeable(list []livePack, rule mergeRule, most int64) []livePack {
	var group []livePack
	for _, p := range list {
		if slices.Contains(rule.from, p.rec.Kind) && p.rec.Size <= most && !leftAlone(p.rec) {
			group = append(group, p)
		}
	}
	if rule.all {
		return group
	}
	slices.SortFunc(group, func(a, b livePack) int { return cmp.Compare(a.rec.Size, b.rec.Size) })
	n, sum := 0, int64(0)
	for i, p := range group {
		if i > 0 && p.rec.Size < mergeFactor*sum {
			n = i + 1
		}
		sum += p.rec.Size
	}
	return group[:n]
}

// leftAlone reports whether a pack is too large to be copied for what that brings.
func leftAlone(rec packRecord) bool {
	switch rec.Kind {
	case kindBlobs:
		return rec.Size >= bigBlobs
	case kindSnapshot:
		return rec.Size >= bigSnapshots
	}
	return false
}

// anyReplaced reports whether another upkeep has replaced one of the packs meanwhile;
// its files may be gone then, and git have failed on that.
func (r *Repo) anyReplaced(ctx context.Context, group []livePack) bool {
	_, list, err := r.livePacks(ctx)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(group, func(p livePack) bool {
		return !slices.ContainsFunc(list, func(l livePack) bool { return l.name == p.name })
	})
}

func (r *Repo) mergeGroup(ctx context.Context, rule mergeRule, group []livePack) (err error) {
	s := &swap{old: group}
	defer func() {
		if err != nil {
			s.drop(ctx, r, err)
		}
	}()
	job := packJob{kind: rule.to, deltas: keepDeltas}
	if rule.all {
		job.deltas = newDeltas
	}
	names := make([]string, len(group))
	for n, p := range group {
		names[n] = p.name
	}
	if rule.to == kindSnapshot {
		// By name, since git would walk the trees over all chunks of a list of packs.
		job.feed = func(w io.Writer) error { return r.feedAll(ctx, names, w) }
	} else {
		job.packs = names
	}
	if job.packs != nil && rule.to != kindBlobs {
		if err := r.parkLarge(ctx, s, &job); err != nil {
			return err
		}
	}
	made, ok, err := r.gitPack(ctx, job)
	if err != nil {
		return err
	}
	if ok {
		s.new = append(s.new, made)
	}
	return s.apply(ctx, r)
}

// parkLarge writes the large blobs of a job's packs into a pack of their own, and has
// the job leave them out.
func (r *Repo) parkLarge(ctx context.Context, s *swap, job *packJob) error {
	var large []refpolicy.OID
	for _, name := range job.packs {
		ids, err := r.largeBlobs(name)
		if err != nil {
			return err
		}
		large = append(large, ids...)
	}
	if len(large) == 0 {
		return nil
	}
	made, ok, err := r.gitPack(ctx, packJob{kind: kindBlobs, feed: func(w io.Writer) error { return writeIDs(w, large) }})
	if err != nil || !ok {
		return err
	}
	s.new, job.without = append(s.new, made), made.Name
	return nil
}

// feedAll names all objects of packs, in the order of their files.
func (r *Repo) feedAll(ctx context.Context, names []string, w io.Writer) error {
	for _, name := range names {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		p, err := r.dir.Pack(name)
		if err != nil {
			return err
		}
		err = writeIDs(w, p.ByOffset())
		p.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Repo) largeBlobs(name string) ([]refpolicy.OID, error) {
	p, err := r.dir.Pack(name)
	if err != nil {
		return nil, err
	}
	defer p.Release()
	return p.LargeBlobs(bigBlob)
}

func writeIDs(w io.Writer, ids []refpolicy.OID) error {
	for _, oid := range ids {
		if _, err := io.WriteString(w, oid.String()+"\n"); err != nil {
			return err
		}
	}
	return nil
}
