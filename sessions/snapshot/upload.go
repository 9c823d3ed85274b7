package snapshot

import (
	"context"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Begin begins an upload. Errors: those of what is asked for, *FullError.
func (k *Keeper) Begin(ctx context.Context, repo Repo, s SaveSpec) (Upload, error) {
	p, err := k.plan(ctx, repo, &s)
	if err != nil {
		return Upload{}, err
	}
	p.upload = true
	if err := k.capture(ctx, repo, p); err != nil {
		return Upload{}, err
	}
	return k.Upload(ctx, repo, s.Session, p.id)
}

// Upload tells of one that is under way: ErrUploadNotFound.
func (k *Keeper) Upload(ctx context.Context, repo Repo, session, id string) (Upload, error) {
	_, up, err := k.planAgain(ctx, repo, session, id)
	if err != nil {
		return Upload{}, err
	}
	stage, err := repo.OpenStage(ctx, id)
	if err == nil {
		up.Staged = stage.Bytes()
	}
	return up, err
}

// Drop lets go of an upload and all that was staged for it: ErrUploadNotFound.
func (k *Keeper) Drop(ctx context.Context, repo Repo, session, upload string) error {
	p, _, err := k.planAgain(ctx, repo, session, upload)
	if err != nil {
		return err
	}
	if err := k.drop(ctx, repo, p); err != nil {
		return err
	}
	return repo.RemoveStage(ctx, upload)
}

// receiving gives the stage of an upload that something is sent to, and puts its end off.
func (k *Keeper) receiving(ctx context.Context, repo Repo, session, upload string) (*planned, Stage, error) {
	p, _, err := k.planAgain(ctx, repo, session, upload)
	if err != nil {
		return nil, nil, err
	}
	if err := k.extend(ctx, repo, p); err != nil {
		return nil, nil, err
	}
	stage, err := repo.OpenStage(ctx, upload)
	return p, stage, err
}

// Missing takes the lists of whole leaves of a part and tells which chunks are to be
// sent, each once, in their order. A leaf that is told again takes the place of the one
// before. Errors: ErrUploadNotFound, ErrInvalid.
func (k *Keeper) Missing(ctx context.Context, repo Repo, session, upload, part string, leaves []Leaf) ([]Hash, error) {
	p, stage, err := k.receiving(ctx, repo, session, upload)
	if err != nil {
		return nil, err
	}
	spec, err := p.part(part)
	if err != nil {
		return nil, err
	}
	base, err := k.baseOf(ctx, repo, p)
	if err != nil {
		return nil, err
	}
	missing, asked := []Hash{}, map[Hash]bool{}
	for _, leaf := range leaves {
		if err := p.checkLeaf(spec, leaf); err != nil {
			return nil, err
		}
		found, err := base.leafBlobs(ctx, base.like(spec), leaf, stage)
		if err != nil {
			return nil, err
		}
		for i, c := range leaf.Chunks {
			if !c.Hash.IsZero() && found[i].blob.IsZero() && !asked[c.Hash] {
				asked[c.Hash] = true
				missing = append(missing, c.Hash)
			}
		}
		if err := stage.Note(noteName(spec.Name, leaf.Index), AppendList(nil, leaf.Chunks)); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// part is a part of the save; an empty name is the only one's.
func (p *planned) part(name string) (PartSpec, error) {
	for _, spec := range p.spec.Parts {
		if spec.Name == name || name == "" && len(p.spec.Parts) == 1 {
			return spec, nil
		}
	}
	return PartSpec{}, invalidf("the save has no part %q", name)
}

// checkLeaf is ErrInvalid for a leaf that a part cannot have.
func (p *planned) checkLeaf(spec PartSpec, leaf Leaf) error {
	n := len(leaf.Chunks)
	if leaf.Index < 0 || leaf.Index >= MaxLeaves || n == 0 || n > LeafChunks {
		return invalidf("there is no %s", leaf)
	}
	most := mostContent(spec)
	if p.spec.Envelope != nil {
		most = min(most+MaxChunk, MaxContent) // a sealed chunk is a little longer
	}
	for i, c := range leaf.Chunks {
		if c.Length == 0 || int(c.Length) > most {
			return invalidf("chunk %d of %s has %d bytes", i, leaf, c.Length)
		}
	}
	if spec.Layout != Pages || spec.Size < 0 {
		return nil
	}
	if leaf.Index >= PageLeaves(spec.Size, spec.ChunkBytes) {
		return invalidf("%s is behind the end of the image", leaf)
	}
	want := zeroLeaf(Part{Size: spec.Size, ChunkBytes: spec.ChunkBytes}, leaf.Index).chunks
	if len(want) != n {
		return invalidf("%s should have %d", leaf, len(want))
	}
	for i, c := range leaf.Chunks {
		if c.Length != want[i].Length && (p.spec.Envelope == nil || c.Hash.IsZero()) {
			return invalidf("chunk %d of %s has %d bytes, not %d", i, leaf, c.Length, want[i].Length)
		}
	}
	return nil
}

func noteName(part string, leaf int) string { return fmt.Sprintf("%08x/%s", leaf, part) }

// leafBlobs finds the blobs of a leaf's chunks: in the base at their places, in the
// stage, or elsewhere in the base. Those that are nowhere are zero.
func (b *baseChunks) leafBlobs(ctx context.Context, like *partIndex, leaf Leaf, stage Stage) ([]woven, error) {
	found := make([]woven, len(leaf.Chunks))
	old, err := b.leafOf(ctx, like, leaf.Index)
	if err != nil {
		return nil, err
	}
	staged := []OID(nil)
	for i, c := range leaf.Chunks {
		found[i].Chunk = c
		if c.Hash.IsZero() {
			continue
		}
		if i < len(old.orNone()) && old.chunks[i] == c {
			found[i].blob = old.blobs[i]
			continue
		}
		if staged == nil {
			staged = stage.Has(leaf.Chunks)
		}
		if found[i].blob, found[i].isNew = staged[i], true; staged[i].IsZero() {
			found[i].isNew = false
			if found[i].blob, err = b.find(ctx, c); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// A sentChunk is on its way into a stage.
type sentChunk struct {
	chunk Chunk
	blob  []byte
}

// Put takes the blobs of chunks until r ends, and tells how many were taken. Each is
// held to its hash before it is staged: ErrMismatch. What came before is staged all the
// same. What is over the cap ends the upload. Errors: ErrUploadNotFound, ErrInvalid,
// io.ErrUnexpectedEOF, *OverCapError, *FullError.
func (k *Keeper) Put(ctx context.Context, repo Repo, session, upload string, r *SparseReader) (int, error) {
	p, stage, err := k.receiving(ctx, repo, session, upload)
	if err != nil {
		return 0, err
	}
	taken, err := k.put(ctx, stage, r)
	if err != nil {
		return taken, err
	}
	return taken, k.heldToCap(ctx, repo, p, stage)
}

func (k *Keeper) put(ctx context.Context, stage Stage, r *SparseReader) (taken int, err error) {
	group, ctx := errgroup.WithContext(ctx)
	work := make(chan sentChunk)
	buffers := sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}
	group.Go(func() error {
		defer close(work)
		for {
			rec, err := r.Next()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			if rec.Blob == nil {
				return invalidf("zeros are not sent")
			}
			buf := buffers.Get().(*[]byte)
			*buf = append((*buf)[:0], rec.Blob...)
			select {
			case work <- sentChunk{rec.Chunk(), *buf}:
				taken++
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	for range k.Limits.Workers {
		group.Go(func() error {
			var text []byte
			for c := range work {
				got, err := k.coder.Decode(c.chunk, c.blob, text[:0])
				if err != nil {
					return fmt.Errorf("%w: chunk %s", ErrMismatch, c.chunk.Hash)
				}
				if len(c.blob) < len(got) {
					text = got
				}
				if _, err := stage.Add(c.chunk, c.blob); err != nil {
					return err
				}
				if err := k.fullStage(stage); err != nil {
					return err
				}
				blob := c.blob
				buffers.Put(&blob)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return taken, nil
}
