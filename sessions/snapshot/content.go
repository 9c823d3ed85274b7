package snapshot

import (
	"context"
	"encoding/binary"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"
)

// A content stream is the content of whole leaves of a paged part, for a server that
// makes the hashes itself:
//
//	stream = *( length(4) content )      big endian
//
// A length whose top bit is set is that of zeros, and no content follows.
const contentZeros = 1 << 31

// AppendContent appends a chunk of a content stream to b.
func AppendContent(b, content []byte) []byte {
	if Zeros(content) {
		return binary.BigEndian.AppendUint32(b, contentZeros|uint32(len(content)))
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return append(b, content...)
}

// A contentRun is some chunks of a content stream that follow each other, worked on by
// one goroutine.
type contentRun struct {
	chunks []Chunk
	texts  [][]byte // of the chunks, in slab; nil for zeros
	slab   *[]byte
}

// contentSlab is how much of a content stream is worked on at once.
const contentSlab = 512 << 10

var contentSlabs = sync.Pool{New: func() any { b := make([]byte, contentSlab); return &b }}

// A contentReader reads a content stream run by run.
type contentReader struct {
	in    io.Reader
	most  int    // bytes of a chunk
	rest  []byte // what was read of a chunk that goes on in the next slab
	count int    // chunks so far
	ended bool
}

// next reads a run; io.EOF at the end.
func (r *contentReader) next() (*contentRun, error) {
	if r.ended {
		return nil, io.EOF
	}
	run := &contentRun{slab: contentSlabs.Get().(*[]byte)}
	if need := r.most + 4; len(*run.slab) < need {
		*run.slab = make([]byte, need)
	}
	b := *run.slab
	n := copy(b, r.rest)
	for n < len(b) && !r.ended {
		got, err := r.in.Read(b[n:])
		n += got
		if err != nil && err != io.EOF {
			return nil, err
		}
		r.ended = err == io.EOF
	}
	rest, err := r.take(run, b[:n])
	if err != nil {
		return nil, err
	}
	if r.ended && len(rest) > 0 {
		return nil, io.ErrUnexpectedEOF
	}
	r.rest = append(r.rest[:0], rest...)
	return run, nil
}

// take takes the chunks that are whole off the front of b, and gives what is left.
func (r *contentReader) take(run *contentRun, b []byte) (rest []byte, err error) {
	for len(b) >= 4 {
		head := binary.BigEndian.Uint32(b)
		length := int(head &^ contentZeros)
		if length == 0 || length > r.most {
			return nil, invalidf("content has a chunk of %d bytes", length)
		}
		var text []byte
		if head&contentZeros == 0 {
			if len(b)-4 < length {
				break
			}
			text = b[4 : 4+length]
		}
		if r.count++; r.count > maxContentChunks {
			return nil, invalidf("content of more than %d chunks", maxContentChunks)
		}
		run.chunks, run.texts = append(run.chunks, Chunk{Length: uint32(length)}), append(run.texts, text)
		b = b[4+len(text):]
	}
	return b, nil
}

// Content takes the content of whole leaves of a paged part, from leaf first on, stages
// what is new, and gives their lists, as if they had been told and sent. It saves who has
// saved nothing yet from hashing. Errors: ErrUploadNotFound, ErrInvalid,
// io.ErrUnexpectedEOF, *OverCapError, *FullError.
func (k *Keeper) Content(ctx context.Context, repo Repo, session, upload, part string, first int, body io.Reader) ([]Leaf, error) {
	p, stage, err := k.receiving(ctx, repo, session, upload)
	if err != nil {
		return nil, err
	}
	spec, err := p.part(part)
	switch {
	case err != nil:
		return nil, err
	case spec.Layout != Pages || p.spec.Envelope != nil:
		return nil, invalidf("content is taken of paged parts that are not sealed")
	}
	chunks, err := k.stageContent(ctx, stage, &contentReader{in: body, most: spec.ChunkBytes})
	if err != nil {
		return nil, err
	}
	var leaves []Leaf
	for at := 0; at < len(chunks); at += LeafChunks {
		leaf := Leaf{Index: first + at/LeafChunks, Chunks: chunks[at:min(at+LeafChunks, len(chunks))]}
		if err := p.checkLeaf(spec, leaf); err != nil {
			return nil, err
		}
		if err := stage.Note(noteName(spec.Name, leaf.Index), AppendList(nil, leaf.Chunks)); err != nil {
			return nil, err
		}
		leaves = append(leaves, leaf)
	}
	return leaves, k.heldToCap(ctx, repo, p, stage)
}

// maxContentChunks bounds the chunks of one content stream: 1 GiB of the smallest.
const maxContentChunks = 1 << 18

func (k *Keeper) stageContent(ctx context.Context, stage Stage, in *contentReader) (chunks []Chunk, err error) {
	group, ctx := errgroup.WithContext(ctx)
	work := make(chan *contentRun)
	var runs []*contentRun
	group.Go(func() error {
		defer close(work)
		for {
			run, err := in.next()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			runs = append(runs, run)
			select {
			case work <- run:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	for range k.Limits.Workers {
		group.Go(func() error {
			var room []byte
			for run := range work {
				var err error
				if room, err = k.stageRun(stage, run, room); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, run := range runs {
		chunks = append(chunks, run.chunks...)
	}
	return chunks, nil
}

// stageRun hashes the chunks of a run and stages them, and gives its memory back. Blobs
// are made in room.
func (k *Keeper) stageRun(stage Stage, run *contentRun, room []byte) ([]byte, error) {
	for i, text := range run.texts {
		if text == nil {
			continue
		}
		c := ChunkOf(text)
		if run.chunks[i] = c; c.Hash.IsZero() {
			continue
		}
		blob := k.coder.Encode(text, room[:0])
		if len(blob) < len(text) {
			room = blob
		}
		if _, err := stage.Add(c, blob); err != nil {
			return room, err
		}
	}
	contentSlabs.Put(run.slab)
	run.slab, run.texts = nil, nil
	return room, nil
}
