package snapshot

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
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

// A contentReader reads a content stream.
type contentReader struct {
	in   *bufio.Reader
	most int
}

// next reads a chunk into buf; zeros are told by their length alone. io.EOF at the end.
func (r *contentReader) next(buf []byte) (content []byte, zeros int, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return nil, 0, err // io.EOF between two chunks alone
	}
	n := binary.BigEndian.Uint32(head[:])
	length := int(n &^ contentZeros)
	if length == 0 || length > r.most {
		return nil, 0, invalidf("content has a chunk of %d bytes", length)
	}
	if n&contentZeros != 0 {
		return nil, length, nil
	}
	if cap(buf) < length {
		buf = make([]byte, length)
	}
	_, err = io.ReadFull(r.in, buf[:length])
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return buf[:length], 0, err
}

// Content takes the content of whole leaves of a paged part, from leaf first on, stages
// what is new, and gives their lists, as if they had been told and sent. It saves who has
// saved nothing yet from hashing. Errors: ErrUploadNotFound, ErrInvalid,
// io.ErrUnexpectedEOF, *OverCapError.
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
	chunks, err := k.stageContent(ctx, stage, &contentReader{bufio.NewReaderSize(body, 64<<10), spec.ChunkBytes})
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
	return leaves, k.overCap(stage.Bytes())
}

// maxContentChunks bounds the chunks of one content stream: 1 GiB of the smallest.
const maxContentChunks = 1 << 18

// A numbered chunk is a content on its way into a stage.
type numbered struct {
	at   int
	text []byte
}

func (k *Keeper) stageContent(ctx context.Context, stage Stage, in *contentReader) ([]Chunk, error) {
	group, ctx := errgroup.WithContext(ctx)
	work := make(chan numbered, 2*k.Limits.Workers)
	buffers := sync.Pool{New: func() any { return new([]byte) }}
	var mu sync.Mutex // guards chunks
	var chunks []Chunk
	group.Go(func() error {
		defer close(work)
		for n := 0; ; n++ {
			text, zeros, err := in.next(*buffers.Get().(*[]byte))
			if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			if err == nil && n == maxContentChunks {
				err = invalidf("content of more than %d chunks", maxContentChunks)
			}
			if err != nil {
				return err
			}
			mu.Lock()
			chunks = append(chunks, Chunk{Length: uint32(zeros + len(text))})
			mu.Unlock()
			if text == nil {
				continue
			}
			select {
			case work <- numbered{n, text}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	for range k.Limits.Workers {
		group.Go(func() error {
			var room []byte
			for one := range work {
				c := ChunkOf(one.text)
				mu.Lock()
				chunks[one.at] = c
				mu.Unlock()
				if !c.Hash.IsZero() {
					blob := k.coder.Encode(one.text, room[:0])
					if len(blob) < len(one.text) {
						room = blob
					}
					if _, err := stage.Add(c, blob); err != nil {
						return err
					}
				}
				buffers.Put(&one.text)
			}
			return nil
		})
	}
	err := group.Wait()
	return chunks, err
}
