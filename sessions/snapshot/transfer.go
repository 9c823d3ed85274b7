package snapshot

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Export writes the bundle of a snapshot: the commit with all that it leads to. Errors:
// ErrNotFound, *StateError, *DamagedError, those of w.
func (k *Keeper) Export(ctx context.Context, repo Repo, commit OID, w io.Writer) error {
	got, err := k.ready(ctx, repo, commit)
	if err != nil {
		return err
	}
	err = repo.WriteBundle(ctx, w, commit, RefPrefix+got.Session)
	return k.damage(ctx, repo, commit, "bundle", err)
}

// Import makes a ready snapshot of a bundle, with the same id: the session's new one. All
// of it is read and hashed first, as after a save. Errors: ErrInvalid and *FieldError for
// what is no whole snapshot, *StateError for one that is here already, *OverCapError,
// *FullError, those of the store.
func (k *Keeper) Import(ctx context.Context, repo Repo, session string, bundle io.Reader, once *ledger.Once[Snapshot]) (Snapshot, error) {
	p, err := k.plan(ctx, repo, &SaveSpec{Session: session, Once: once, imported: true})
	if err != nil {
		return Snapshot{}, err
	}
	if err := k.capture(ctx, repo, p); err != nil {
		return Snapshot{}, err
	}
	got, err := k.importBundle(ctx, repo, p, bundle)
	if err != nil {
		err = k.refuse(ctx, repo, p, err)
	}
	return got, err
}

func (k *Keeper) importBundle(ctx context.Context, repo Repo, p *planned, bundle io.Reader) (Snapshot, error) {
	tip, pack, err := repo.ReadBundle(ctx, bundle)
	if err != nil {
		return Snapshot{}, err
	}
	defer pack.Abort()
	if err := pack.Finish(ctx); err != nil {
		return Snapshot{}, err
	}
	in := packRepo{repo, pack}
	m, parts, err := k.checkLists(ctx, in, tip)
	if err == nil {
		err = checkForm(ctx, in, tip, m)
	}
	if err != nil {
		return Snapshot{}, foreign(err)
	}
	if p.spec.Envelope = m.Envelope; p.spec.Envelope != nil || k.Limits.RequireSeal || p.owner.CaptureKey != "" {
		if err := p.sealed(k.Limits.RequireSeal); err != nil {
			return Snapshot{}, err
		}
	}
	if p.workspace, err = parentOf(ctx, in, tip, m); err != nil {
		return Snapshot{}, err
	}
	if err := k.noSnapshot(ctx, repo, p.workspace); err != nil {
		return Snapshot{}, err
	}
	stored, err := k.checkContents(ctx, in, parts)
	if err != nil {
		return Snapshot{}, foreign(err)
	}
	if stored != m.Stored {
		return Snapshot{}, &FieldError{Field: "stored_bytes", Text: fmt.Sprintf("must be %d", stored)}
	}
	p.spec.Name, p.base = m.Name, nil
	return k.publish(ctx, repo, p, made{Commit: tip, Manifest: m, Pack: pack, New: stored})
}

// parentOf is the workspace commit of a snapshot: its last parent, which the manifest names.
func parentOf(ctx context.Context, repo Repo, commit OID, m Manifest) (OID, error) {
	workspace, err := ParseOID(m.Workspace)
	if err != nil {
		return workspace, &FieldError{Field: "workspace_sha", Text: "is missing"}
	}
	parents, err := parentsOf(ctx, repo, commit)
	if err != nil {
		return workspace, err
	}
	if len(parents) == 0 || parents[len(parents)-1] != workspace {
		return workspace, &FieldError{Field: "workspace_sha", Text: "is not the commit's parent"}
	}
	return workspace, nil
}

// checkContents reads all chunks and holds them to their hashes, and adds their blobs up.
func (k *Keeper) checkContents(ctx context.Context, repo Repo, parts []*partIndex) (int64, error) {
	sum := &blobSum{counted: map[uint64]struct{}{}, k: k}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(k.Limits.Workers)
	for _, x := range parts {
		for n, tree := range x.trees {
			if tree.IsZero() {
				continue
			}
			group.Go(func() error {
				l, _, err := x.leaf(ctx, repo, n)
				if err == nil {
					err = k.checkLeafContents(ctx, repo, l, sum)
				}
				return err
			})
		}
	}
	err := group.Wait()
	return sum.bytes, err
}

// A blobSum adds blobs up, each once.
type blobSum struct {
	k *Keeper

	mu      sync.Mutex // guards what follows
	counted map[uint64]struct{}
	bytes   int64
}

// add is *OverCapError if they are too many.
func (s *blobSum) add(id OID, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := binary.BigEndian.Uint64(id[:])
	if _, twice := s.counted[key]; !twice {
		s.counted[key] = struct{}{}
		s.bytes += int64(n)
	}
	return s.k.overCap(s.bytes)
}

func (k *Keeper) checkLeafContents(ctx context.Context, repo Repo, l storedLeaf, sum *blobSum) error {
	var blob, text []byte
	for i, c := range l.chunks {
		if c.Hash.IsZero() {
			continue
		}
		got, err := checkedBlob(ctx, repo, l.blobs[i], blob)
		if err != nil {
			return fmt.Errorf("chunk %s: %w", chunkName(i), err)
		}
		blob = got
		content, err := k.coder.Decode(c, blob, text[:0])
		if err != nil {
			return fmt.Errorf("chunk %s: %w", chunkName(i), err)
		}
		if len(blob) < len(content) {
			text = content
		}
		if err := sum.add(l.blobs[i], len(blob)); err != nil {
			return err
		}
	}
	return nil
}

// A packRepo is a repo with a pack that nobody knows of yet.
type packRepo struct {
	Repo
	pack Pack
}

// Object reads from the pack what is in it.
func (r packRepo) Object(ctx context.Context, id OID) (string, []byte, error) {
	if !r.pack.Has(id) {
		return r.Repo.Object(ctx, id)
	}
	data, err := r.pack.Chunk(id, nil)
	if err != nil {
		return "", nil, err
	}
	for _, typ := range []string{"blob", "tree", "commit"} {
		if hashObject(typ, data) == id {
			return typ, data, nil
		}
	}
	return "", nil, fmt.Errorf("%w: %s", ErrDamaged, id)
}

// Chunk reads from the pack what is in it.
func (r packRepo) Chunk(ctx context.Context, id OID, buf []byte) ([]byte, error) {
	if !r.pack.Has(id) {
		return r.Repo.Chunk(ctx, id, buf)
	}
	return r.pack.Chunk(id, buf)
}

func hashObject(typ string, data []byte) (id OID) {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", typ, len(data))
	h.Write(data)
	h.Sum(id[:0])
	return id
}
