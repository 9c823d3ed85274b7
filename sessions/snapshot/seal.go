package snapshot

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Seal makes the upload a snapshot, or of a dry run tells what it would be: all of it, or
// nothing. Errors: ErrUploadNotFound; ErrMissing, ErrBusy, and those of the store, after
// which it can be tried again; ErrMismatch, ErrNotQuiet, *MovedError, *OverCapError,
// *FullError, *FieldError; a *ledger.RepeatedError.
func (k *Keeper) Seal(ctx context.Context, repo Repo, session, upload string, s SealSpec) (Snapshot, error) {
	if err := k.reads(repo.ID()).known(ctx, s.Once.StoreKey()); err != nil {
		return Snapshot{}, err
	}
	if _, busy := k.sealing.LoadOrStore(upload, true); busy {
		return Snapshot{}, ErrBusy
	}
	defer k.sealing.Delete(upload)
	p, _, err := k.planAgain(ctx, repo, session, upload)
	if err != nil {
		return Snapshot{}, err
	}
	if err := p.sealWith(s); err != nil {
		return Snapshot{}, k.ended(ctx, repo, p, err)
	}
	got, err := k.sealUpload(ctx, repo, p, s)
	if err != nil {
		if err = k.ended(ctx, repo, p, err); retryable(err) {
			return Snapshot{}, err
		}
	}
	// Nothing is to be sent to it any more; the sweep finds it if this fails.
	if rerr := repo.RemoveStage(context.WithoutCancel(ctx), upload); rerr != nil {
		k.Logger.WarnContext(ctx, "remove what was staged", "repo", repo.ID().ID, "upload", upload, "err", rerr)
	}
	return got, err
}

// sealWith takes what is only said at the end.
func (p *planned) sealWith(s SealSpec) error {
	p.spec.Once = s.Once
	if s.Excluded != nil {
		if err := validExcluded(s.Excluded); err != nil {
			return err
		}
		p.spec.Excluded = s.Excluded
	}
	if s.Quiet != nil {
		p.spec.Quiet = s.Quiet
	}
	if s.Envelope != nil {
		if p.spec.Envelope == nil {
			return &FieldError{Field: "envelope", Text: "the upload was not begun as a sealed save"}
		}
		p.spec.Envelope = s.Envelope
		if err := p.sealed(false); err != nil {
			return err
		}
	}
	return quiet(p.spec.Quiet)
}

func (k *Keeper) sealUpload(ctx context.Context, repo Repo, p *planned, s SealSpec) (Snapshot, error) {
	stage, err := repo.OpenStage(ctx, p.id)
	if err != nil {
		return Snapshot{}, err
	}
	base, err := k.baseOf(ctx, repo, p)
	if err != nil {
		return Snapshot{}, err
	}
	parts, err := p.toldParts(ctx, stage, base, s)
	if err != nil {
		return Snapshot{}, err
	}
	if err := base.allThere(ctx, parts, stage); err != nil {
		return Snapshot{}, err
	}
	if err := checkRoots(parts, s.Roots); err != nil {
		return Snapshot{}, err
	}
	var pack Pack
	if !p.spec.DryRun {
		if pack, err = stage.Pack(ctx); err != nil {
			return Snapshot{}, err
		}
		defer pack.Abort()
	}
	w := k.newWeave(repo, pack, base)
	for _, t := range parts {
		w.begin(t.spec)
		err := base.eachLeaf(ctx, t, stage, func(chunks []woven) error {
			measure(stage, chunks)
			return w.leaf(ctx, chunks)
		})
		if err != nil {
			return Snapshot{}, err
		}
		w.end(t.size)
	}
	return k.conclude(ctx, repo, p, w)
}

// A toldPart is a part as its lists tell it.
type toldPart struct {
	spec  PartSpec
	size  int64
	lists [][]byte // of its leaves
	root  Hash
}

// toldParts gathers the lists that were told; those of a paged part that were not are
// the base's at their places. ErrMissing if a leaf is nowhere, ErrMismatch if they do not
// have the part's size.
func (p *planned) toldParts(ctx context.Context, stage Stage, base *baseChunks, s SealSpec) ([]toldPart, error) {
	told := map[string]map[int][]byte{}
	err := stage.Notes(ctx, func(name string, data []byte) error {
		number, part, ok := strings.Cut(name, "/")
		n, err := strconv.ParseUint(number, 16, 32)
		if !ok || err != nil {
			return nil // none of ours
		}
		if told[part] == nil {
			told[part] = map[int][]byte{}
		}
		told[part][int(n)] = data
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name := range s.Roots {
		if _, err := p.part(name); err != nil {
			return nil, err
		}
	}
	parts := make([]toldPart, len(p.spec.Parts))
	for i, spec := range p.spec.Parts {
		if parts[i], err = p.toldPart(ctx, spec, told[spec.Name], base, s); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

func (p *planned) toldPart(ctx context.Context, spec PartSpec, told map[int][]byte, base *baseChunks, s SealSpec) (t toldPart, err error) {
	t = toldPart{spec: spec, size: spec.Size}
	if size, ok := s.Sizes[spec.Name]; ok && t.size < 0 {
		t.size = size
	}
	if t.size < 0 || t.size > MaxImage {
		return t, &FieldError{Field: "sizes." + spec.Name, Text: "is needed: it was not known before"}
	}
	spec.Size = t.size
	t.spec.Size = t.size
	leaves := len(told)
	if spec.Layout == Pages {
		leaves = PageLeaves(t.size, spec.ChunkBytes)
	}
	if leaves > MaxLeaves {
		return t, invalidf("part %s has more than %d leaves", spec.Name, MaxLeaves)
	}
	t.lists = make([][]byte, leaves)
	hashes, sum := make([]Hash, leaves), int64(0)
	for n := range leaves {
		leaf, data, err := p.toldLeaf(ctx, spec, n, told[n], base)
		if err != nil {
			return t, err
		}
		t.lists[n], hashes[n] = data, leaf.hashOf(spec.Layout, data)
		sum += leaf.Size()
	}
	if spec.Layout == Stream && sum != t.size {
		return t, fmt.Errorf("%w: part %s has %d bytes, not %d", ErrMismatch, spec.Name, sum, t.size)
	}
	t.root = ImageRoot(Part{Layout: spec.Layout, ChunkBytes: spec.ChunkBytes, Size: t.size}, hashes)
	return t, nil
}

// toldLeaf is a leaf as it was told, or as the base has it, with its list.
func (p *planned) toldLeaf(ctx context.Context, spec PartSpec, n int, data []byte, base *baseChunks) (leaf Leaf, list []byte, err error) {
	leaf.Index = n
	if data != nil {
		leaf.Chunks, err = DecodeList(data)
	} else {
		old, berr := base.leafOf(ctx, base.like(spec), n)
		if err = berr; err == nil && (old == nil || spec.Layout != Pages) {
			err = fmt.Errorf("%w: leaf %d of part %s was not told", ErrMissing, n, spec.Name)
		}
		leaf.Chunks = old.orNone()
		data = AppendList(nil, leaf.Chunks)
	}
	if err == nil {
		err = p.checkLeaf(spec, leaf)
	}
	return leaf, data, err
}

// checkRoots holds each part to the hash that its sender has: ErrMismatch.
func checkRoots(parts []toldPart, roots map[string]Hash) error {
	for _, t := range parts {
		want, ok := roots[t.spec.Name]
		if !ok && len(parts) == 1 {
			want, ok = roots[""]
		}
		if !ok {
			return &FieldError{Field: "roots." + t.spec.Name, Text: "is missing"}
		}
		if t.root != want {
			return fmt.Errorf("%w: part %s has the hash %s", ErrMismatch, t.spec.Name, t.root)
		}
	}
	return nil
}

// toldMissing is how many missing chunks an error names.
const toldMissing = 16

// A MissingError is ErrMissing with the first chunks that are.
type MissingError struct {
	Chunks []Hash
	More   bool // there are others
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%v: %d and more, the first is %s", ErrMissing, len(e.Chunks), e.Chunks[0])
}

// Unwrap gives ErrMissing.
func (e *MissingError) Unwrap() error { return ErrMissing }

// eachLeaf calls each for the leaves of a part, with the blobs of their chunks. Those
// that are nowhere are zero.
func (b *baseChunks) eachLeaf(ctx context.Context, t toldPart, stage Stage, each func([]woven) error) error {
	like := b.like(t.spec)
	for n, list := range t.lists {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		chunks, err := DecodeList(list)
		if err != nil {
			return err
		}
		found, err := b.leafBlobs(ctx, like, Leaf{Index: n, Chunks: chunks}, stage)
		if err != nil {
			return err
		}
		if err := each(found); err != nil {
			return err
		}
	}
	return nil
}

// allThere looks for the blobs of all chunks: *MissingError.
func (b *baseChunks) allThere(ctx context.Context, parts []toldPart, stage Stage) error {
	missing := &MissingError{}
	named := map[Hash]bool{}
	for _, t := range parts {
		err := b.eachLeaf(ctx, t, stage, func(chunks []woven) error {
			for _, c := range chunks {
				if c.Hash.IsZero() || !c.blob.IsZero() || named[c.Hash] {
					continue
				}
				if missing.More = len(missing.Chunks) == toldMissing; missing.More {
					return missing
				}
				named[c.Hash] = true
				missing.Chunks = append(missing.Chunks, c.Hash)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if len(missing.Chunks) > 0 {
		return missing
	}
	return nil
}

// measure tells of staged chunks how many bytes their blobs have.
func measure(stage Stage, found []woven) {
	var at []int
	var chunks []Chunk
	for i, c := range found {
		if c.isNew {
			at, chunks = append(at, i), append(chunks, c.Chunk)
		}
	}
	if len(at) == 0 {
		return
	}
	for i, size := range stage.Sizes(chunks) {
		found[at[i]].bytes = size
	}
}
