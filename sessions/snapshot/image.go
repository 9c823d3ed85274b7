package snapshot

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// An Image is one part of a snapshot, open for reading. It is safe for concurrent use.
type Image struct {
	Snapshot Snapshot
	Manifest Manifest
	Part     Part

	k    *Keeper
	repo Repo
	at   *partIndex
}

// An openImage is what is remembered of a snapshot whose lists were hashed.
type openImage struct {
	manifest Manifest
	parts    []*partIndex
}

type imageKey struct {
	repo   string
	commit OID
}

// Open opens a snapshot's part for restoring; an empty name is its first. Its lists have
// been hashed up to the root, since this process began at the latest, when it returns.
// Errors: ErrNotFound, *StateError, *FieldError, *DamagedError.
func (k *Keeper) Open(ctx context.Context, repo Repo, commit OID, part string) (*Image, error) {
	got, err := k.ready(ctx, repo, commit)
	if err != nil {
		return nil, err
	}
	open, err := k.openImage(ctx, repo, commit)
	if err != nil {
		return nil, err
	}
	for i, p := range open.manifest.Parts {
		if part == "" || part == p.Name {
			return &Image{Snapshot: got, Manifest: open.manifest, Part: p, k: k, repo: repo, at: open.parts[i]}, nil
		}
	}
	return nil, invalidf("the snapshot has no part %q", part)
}

// openImage reads manifest and lists. What is damaged is written down.
func (k *Keeper) openImage(ctx context.Context, repo Repo, commit OID) (*openImage, error) {
	key := imageKey{repo.ID().ID, commit}
	if open, ok := k.images.get(key); ok {
		return open, nil
	}
	m, parts, err := k.checkLists(ctx, repo, commit)
	if err != nil {
		return nil, k.damage(ctx, repo, commit, "manifest and lists", err)
	}
	open := &openImage{m, parts}
	k.images.put(key, open)
	return open, nil
}

// damage writes down that a snapshot is damaged, if err says so, and gives err so that
// it names the snapshot and what it is about.
func (k *Keeper) damage(ctx context.Context, repo Repo, commit OID, what string, err error) error {
	var known *DamagedError
	switch {
	case err == nil || !isDamage(err):
		return err
	case errors.As(err, &known):
		return k.broken(ctx, repo, commit, known)
	}
	k.images.drop(imageKey{repo.ID().ID, commit})
	return k.broken(ctx, repo, commit, &DamagedError{Commit: commit, What: what, Err: err})
}

// checkLists reads a snapshot's manifest and all its lists, and hashes them up to the
// root. Errors: ErrDamaged, ErrNoObject, *FieldError.
func (k *Keeper) checkLists(ctx context.Context, repo Repo, commit OID) (Manifest, []*partIndex, error) {
	m, tree, err := manifestOf(ctx, repo, commit)
	if err != nil {
		return m, nil, err
	}
	parts, err := indexParts(ctx, repo, m, tree)
	if err != nil {
		return m, nil, err
	}
	for _, x := range parts {
		leaves, err := k.leafHashes(ctx, repo, x)
		if err != nil {
			return m, nil, err
		}
		if root := ImageRoot(x.part, leaves); root.String() != x.part.Root {
			return m, nil, fmt.Errorf("%w: part %s has the hash %s", ErrDamaged, x.part.Name, root)
		}
	}
	return m, parts, nil
}

func (k *Keeper) leafHashes(ctx context.Context, repo Repo, x *partIndex) ([]Hash, error) {
	leaves := make([]Hash, len(x.trees))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(k.Limits.Workers)
	for n := range leaves {
		if x.trees[n].IsZero() {
			continue
		}
		group.Go(func() error {
			l, hash, err := x.leaf(ctx, repo, n)
			if err == nil {
				leaves[n] = hash
				k.leaves.put(leafKey{repo.ID().ID, x.trees[n], n == len(x.trees)-1}, l)
			}
			return err
		})
	}
	return leaves, group.Wait()
}

// Offset turns a guest address into an offset, if length bytes from there on are in one
// region: ErrRange.
func (im *Image) Offset(address uint64, length int64) (int64, error) {
	if len(im.Part.Regions) == 0 {
		if length < 0 || address > uint64(im.Part.Size) || length > im.Part.Size-int64(address) {
			return 0, ErrRange
		}
		return int64(address), nil
	}
	for _, r := range im.Part.Regions {
		if address < r.Address || address-r.Address >= uint64(r.Size) {
			continue
		}
		into := int64(address - r.Address)
		if length < 0 || length > r.Size-into {
			return 0, ErrRange
		}
		return r.Offset + into, nil
	}
	return 0, ErrRange
}

// A piece is a chunk of an image, and what of the range it holds.
type piece struct {
	number int   // of the chunk among those of the range
	offset int64 // of what it covers in the image
	covers int64
	chunk  Chunk
	blob   OID // zero: zeros
	leaf   int
	place  int
}

func (p piece) name(part Part) string {
	return fmt.Sprintf("chunk %s/%s of %s", leafName(part.FirstLeaf+p.leaf), chunkName(p.place), part.Name)
}

// pieces calls each for the chunks that meet the range, in order.
func (im *Image) pieces(ctx context.Context, off, n int64, each func(piece) error) error {
	if off < 0 || n < 0 || off > im.Part.Size || n > im.Part.Size-off {
		return ErrRange
	}
	if n == 0 {
		return nil
	}
	number := 0
	for leaf := im.at.leafAt(off); leaf < len(im.at.trees) && im.at.start(leaf) < off+n; leaf++ {
		l, err := im.k.cachedLeaf(ctx, im.repo, im.at, leaf)
		if err != nil {
			return im.k.damage(ctx, im.repo, im.Snapshot.Commit, "leaf "+leafName(im.Part.FirstLeaf+leaf), err)
		}
		at := im.at.start(leaf)
		for i, c := range l.chunks {
			p := piece{number, at, im.at.covers(leaf, i, c), c, l.blobs[i], leaf, i}
			at += p.covers
			if at <= off {
				continue
			}
			if p.offset >= off+n {
				return nil
			}
			if err := each(p); err != nil {
				return err
			}
			number++
		}
	}
	return nil
}
