package snapshot

import (
	"context"
	"errors"
)

// What is looked at at most to tell what a deletion frees: beyond it, what nobody was
// seen to share counts as freed.
const (
	maxRelatives = 64
	maxLeafTrees = 20_000
	maxMeasured  = 4_096 // chunks that are read, of a Repo that cannot tell sizes
)

// A sizer is a Repo that tells how many bytes blobs have without reading them.
type sizer interface {
	Sizes(ctx context.Context, ids []OID) ([]int64, error)
}

// freed tells how many stored bytes of chunks no other kept snapshot has: of the same
// session, what that was made from, and what was made from it, the nearest ones.
func (k *Keeper) freed(ctx context.Context, repo Repo, got stored) (int64, error) {
	others, err := k.relatives(ctx, k.reads(repo.ID()), got)
	if err != nil {
		return 0, err
	}
	if len(others) == 0 {
		return got.Stored, nil
	}
	n, err := freedOf(ctx, repo, got.Commit, others)
	if isDamage(err) || errors.Is(err, ErrInvalid) || got.Broken && ctx.Err() == nil && err != nil {
		return got.Charged, nil // it cannot be told, and goes all the same
	}
	return n, err
}

// relatives are kept snapshots that may share chunks with one, the nearest first.
func (k *Keeper) relatives(ctx context.Context, by reader, got stored) (all []OID, err error) {
	var newer, older []OID
	err = by.kept(ctx, got.Session, func(s stored) (bool, error) {
		switch {
		case s.Commit == got.Commit:
		case s.at().After(got.at()):
			newer = append(newer, s.Commit)
		default:
			older = append(older, s.Commit)
		}
		return len(older) >= maxRelatives/2, nil
	})
	if err != nil {
		return nil, err
	}
	for n := range maxRelatives / 2 {
		if n < len(newer) {
			all = append(all, newer[len(newer)-1-n])
		}
		if n < len(older) {
			all = append(all, older[n])
		}
	}
	ids := []string{got.Parent.String()}
	items, err := by.scan(ctx, childPrefix(got.ID), "", maxRelatives)
	if err != nil {
		return nil, err
	}
	ids = append(ids, idsOf(childPrefix(got.ID), items)...)
	if got.Parent.IsZero() {
		ids = ids[1:]
	}
	kin, err := by.records(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, s := range kin {
		if s.kept() && s.Session != got.Session {
			all = append(all, s.Commit)
		}
	}
	return all, nil
}

// freedOf compares trees: leaves that another has whole first, then chunk by chunk.
func freedOf(ctx context.Context, repo Repo, commit OID, others []OID) (int64, error) {
	own, err := leafTrees(ctx, repo, commit)
	if err != nil {
		return 0, err
	}
	theirs := make([]map[OID]struct{}, 0, len(others))
	for _, other := range others {
		leaves, err := leafTrees(ctx, repo, other)
		if isDamage(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		for leaf := range leaves {
			delete(own, leaf)
		}
		theirs = append(theirs, leaves)
		if len(own) == 0 {
			return 0, nil
		}
	}
	left := map[OID]struct{}{}
	for leaf := range own {
		if err := eachChunk(ctx, repo, leaf, func(id OID) { left[id] = struct{}{} }); err != nil {
			return 0, err
		}
	}
	if err := strike(ctx, repo, left, theirs); err != nil {
		return 0, err
	}
	return sizeOf(ctx, repo, left)
}

// strike takes those chunks out that are somewhere in theirs.
func strike(ctx context.Context, repo Repo, left map[OID]struct{}, theirs []map[OID]struct{}) error {
	seen := map[OID]struct{}{}
	for _, leaves := range theirs {
		for leaf := range leaves {
			if len(left) == 0 || len(seen) == maxLeafTrees {
				return nil
			}
			if _, twice := seen[leaf]; twice {
				continue
			}
			seen[leaf] = struct{}{}
			err := eachChunk(ctx, repo, leaf, func(id OID) { delete(left, id) })
			if err != nil && !isDamage(err) {
				return err
			}
		}
	}
	return nil
}

// leafTrees are the trees of a snapshot's leaves.
func leafTrees(ctx context.Context, repo Repo, commit OID) (map[OID]struct{}, error) {
	tree, err := treeOf(ctx, repo, commit)
	if err != nil {
		return nil, err
	}
	data, err := objectAs(ctx, repo, "tree", tree)
	if err != nil {
		return nil, err
	}
	leaves := map[OID]struct{}{}
	image, err := entryOf(data, imageName)
	if err != nil || image.IsZero() {
		return leaves, err
	}
	if data, err = objectAs(ctx, repo, "tree", image); err != nil {
		return nil, err
	}
	for e, err := range treeEntries(data) {
		if err != nil {
			return nil, err
		}
		if e.dir {
			leaves[e.id] = struct{}{}
		}
	}
	return leaves, nil
}

// eachChunk calls each for the blobs of a leaf's chunks.
func eachChunk(ctx context.Context, repo Repo, leaf OID, each func(OID)) error {
	data, err := objectAs(ctx, repo, "tree", leaf)
	if err != nil {
		return err
	}
	for e, err := range treeEntries(data) {
		if err != nil {
			return err
		}
		if len(e.name) == 2 { // else its list
			each(e.id)
		}
	}
	return nil
}

// sizeOf adds up how many bytes blobs have.
func sizeOf(ctx context.Context, repo Repo, blobs map[OID]struct{}) (sum int64, err error) {
	ids := make([]OID, 0, len(blobs))
	for id := range blobs {
		ids = append(ids, id)
	}
	if s, ok := repo.(sizer); ok {
		sizes, err := s.Sizes(ctx, ids)
		for _, n := range sizes {
			sum += n
		}
		return sum, err
	}
	var buf []byte
	for i, id := range ids {
		if i == maxMeasured {
			return sum / maxMeasured * int64(len(ids)), nil
		}
		if buf, err = repo.Chunk(ctx, id, buf[:0]); err != nil {
			return 0, err
		}
		sum += int64(len(buf))
	}
	return sum, nil
}
