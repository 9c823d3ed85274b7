package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"
)

// Save makes a snapshot of one stream of one part. Size -1: to the end of body. Errors:
// those of what is asked for, *OverCapError, *FullError, *MovedError, io.ErrUnexpectedEOF
// for a body that was cut, those of body and of the store; nothing is kept then.
func (k *Keeper) Save(ctx context.Context, repo Repo, s SaveSpec, body io.Reader) (Snapshot, error) {
	p, err := k.plan(ctx, repo, &s)
	if err != nil {
		return Snapshot{}, err
	}
	if len(p.spec.Parts) != 1 {
		return Snapshot{}, invalidf("a stream is one part")
	}
	if p.spec.Envelope != nil {
		return Snapshot{}, invalidf("a sealed save is sent as an upload, whose chunks are sealed")
	}
	if !p.spec.DryRun {
		if err := k.capture(ctx, repo, p); err != nil {
			return Snapshot{}, err
		}
	}
	got, err := k.saveStream(ctx, repo, p, body)
	if err != nil && !p.spec.DryRun {
		err = k.refuse(ctx, repo, p, err)
	}
	return got, err
}

func (k *Keeper) saveStream(ctx context.Context, repo Repo, p *planned, body io.Reader) (Snapshot, error) {
	base, err := k.baseOf(ctx, repo, p)
	if err != nil {
		return Snapshot{}, err
	}
	var pack Pack
	if !p.spec.DryRun {
		if pack, err = repo.NewPack(ctx); err != nil {
			return Snapshot{}, err
		}
		defer pack.Abort()
	}
	w := k.newWeave(repo, pack, base)
	part := p.spec.Parts[0]
	w.begin(part)
	if err := k.weaveStream(ctx, w, part, body); err != nil {
		return Snapshot{}, err
	}
	if part.Size >= 0 && part.Size != w.size {
		return Snapshot{}, invalidf("the image has %d bytes, %d were announced", w.size, part.Size)
	}
	w.end(w.size)
	return k.conclude(ctx, repo, p, w)
}

// A strand is some chunks of a stream that follow each other, worked on by one goroutine.
type strand struct {
	first  int // number of its first chunk
	texts  [][]byte
	chunks []Chunk
	blobs  [][]byte // of those that the base does not have; nil for others
	old    []OID    // blobs of those that it has
	slab   []byte
	room   []byte // for blobs
	err    error
	done   chan struct{}
}

const strandBytes = 1 << 20

// weaveStream cuts a stream and weaves its chunks: read by one, hashed and deflated by
// several, written in order by one.
func (k *Keeper) weaveStream(ctx context.Context, w *weave, part PartSpec, body io.Reader) error {
	group, ctx := errgroup.WithContext(ctx)
	workers := k.Limits.Workers
	queue, work := make(chan *strand, workers), make(chan *strand)
	free := make(chan *strand, 2*workers+2)
	for range cap(free) {
		free <- &strand{}
	}
	reader := &strandReader{cutter: NewCutter(body, part), most: mostContent(part), free: free}
	group.Go(func() error {
		defer close(queue)
		defer close(work)
		return reader.run(ctx, work, queue)
	})
	like := w.like
	for range workers {
		group.Go(func() error {
			for s := range work {
				s.err = k.prepare(ctx, w.base, like, s)
				close(s.done)
			}
			return nil
		})
	}
	group.Go(func() error { return k.weaveStrands(ctx, w, part, queue, free) })
	return group.Wait()
}

// mostContent is how long a chunk of a part can be.
func mostContent(p PartSpec) int {
	if p.Layout == Pages {
		return p.ChunkBytes
	}
	_, most := StreamBounds(p.ChunkBytes)
	return most
}

type strandReader struct {
	cutter *Cutter
	most   int
	free   <-chan *strand
	next   int
}

func (r *strandReader) run(ctx context.Context, to ...chan<- *strand) error {
	for {
		var s *strand
		select {
		case s = <-r.free:
		case <-ctx.Done():
			return ctx.Err()
		}
		end, err := r.fill(s)
		if err != nil {
			return err
		}
		if len(s.texts) > 0 {
			for _, c := range to {
				select {
				case c <- s:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		if end {
			return nil
		}
	}
}

// fill reads some chunks; end is true after the last.
func (r *strandReader) fill(s *strand) (end bool, err error) {
	s.first, s.texts, s.err, s.done = r.next, s.texts[:0], nil, make(chan struct{})
	if cap(s.slab) == 0 {
		s.slab = make([]byte, max(strandBytes, r.most))
	}
	for rest := s.slab; len(rest) >= r.most; {
		text, err := r.cutter.Next(rest[:0:r.most])
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("read image: %w", err)
		}
		s.texts = append(s.texts, text)
		rest = rest[len(text):]
		r.next++
	}
	return false, nil
}

// prepare hashes the chunks of a strand, and makes blobs of those that the base does not
// have.
func (k *Keeper) prepare(ctx context.Context, base *baseChunks, like *partIndex, s *strand) error {
	s.chunks, s.blobs, s.old = s.chunks[:0], s.blobs[:0], s.old[:0]
	if cap(s.room) < len(s.slab) {
		s.room = make([]byte, 0, len(s.slab))
	}
	room := s.room[:0]
	old := leafAtPlace{base: base, like: like}
	for i, text := range s.texts {
		c := ChunkOf(text)
		s.chunks, s.blobs, s.old = append(s.chunks, c), append(s.blobs, nil), append(s.old, OID{})
		if c.Hash.IsZero() {
			continue
		}
		id, err := old.blob(ctx, s.first+i, c)
		if err == nil && id.IsZero() {
			id, err = base.find(ctx, c)
		}
		if err != nil {
			return err
		}
		if s.old[i] = id; !id.IsZero() {
			continue
		}
		blob := k.coder.Encode(text, room[len(room):cap(room)][:0])
		s.blobs[i] = blob
		if len(blob) < len(text) && len(room)+len(blob) <= cap(room) {
			room = room[:len(room)+len(blob)]
		}
	}
	return nil
}

// weaveStrands writes what is new, and weaves leaves, in order.
func (k *Keeper) weaveStrands(ctx context.Context, w *weave, part PartSpec, queue <-chan *strand, free chan<- *strand) error {
	var leaf []woven
	var list []Chunk
	for s := range queue {
		select {
		case <-s.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if s.err != nil {
			return s.err
		}
		for i, c := range s.chunks {
			one, err := w.chunk(c, s.old[i], s.blobs[i])
			if err != nil {
				return err
			}
			leaf, list = append(leaf, one), append(list, c)
			if !LeafEnds(part.Layout, list) {
				continue
			}
			if err := w.leaf(ctx, leaf); err != nil {
				return err
			}
			leaf, list = leaf[:0], list[:0]
		}
		free <- s
	}
	if len(leaf) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	return w.leaf(ctx, leaf)
}

// chunk gives a chunk with its blob: the base's, or a new one.
func (w *weave) chunk(c Chunk, old OID, blob []byte) (one woven, err error) {
	one = woven{Chunk: c, blob: old}
	if blob == nil {
		return one, nil
	}
	one.isNew, one.bytes = true, len(blob)
	if w.pack == nil {
		one.blob = hashBlob(blob)
		return one, nil
	}
	one.blob, err = w.pack.AddChunk(blob)
	return one, err
}
