package gitstore

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
)

const (
	// bigBlobs is the size, in bytes, from which a pack of blobs is left as it is: it
	// would be copied for nothing.
	bigBlobs = 32 << 20
	// mergeFactor is how much larger than all smaller ones together a pack must be to
	// stay out of a merge.
	mergeFactor = 2
)

// merge unites small packs of a kind, so that reading and git look into few: in the
// end each is at least mergeFactor times as large as all smaller ones together, and
// an object is copied no oftener than sizes double. least is how many packs must have
// come together. What is dead in them stays: a merge decides about places alone, so
// it needs no generation.
func (r *Repo) merge(ctx context.Context, least int) (merged int, err error) {
	_, list, err := r.livePacks(ctx)
	if err != nil {
		return 0, err
	}
	for _, kind := range kindsOf(list) {
		group := mergeable(list, kind, r.store.limits.MergeBytes)
		if len(group) < max(least, 2) {
			continue
		}
		if err := r.mergeGroup(ctx, kind, group); err != nil {
			if r.anyReplaced(ctx, group) {
				return merged, errOvertaken
			}
			return merged, r.orGone(fmt.Errorf("merge packs: %w", err))
		}
		merged += len(group)
	}
	return merged, nil
}

// mergeable are the smallest packs of a kind, as many as have to be united.
func mergeable(list []livePack, kind string, most int64) []livePack {
	var group []livePack
	for _, p := range list {
		if p.rec.Kind == kind && p.rec.Size <= most && (kind != kindBlobs || p.rec.Size < bigBlobs) {
			group = append(group, p)
		}
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

func (r *Repo) mergeGroup(ctx context.Context, kind string, group []livePack) error {
	made, ok, err := r.gitPack(ctx, kind, true, func(w io.Writer) error {
		for _, p := range group {
			if _, err := io.WriteString(w, p.name+".pack\n"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || !ok {
		return err
	}
	s := &swap{new: []newPack{made}, old: group}
	if err := s.apply(ctx, r); err != nil {
		s.drop(ctx, r, err)
		return err
	}
	return nil
}
