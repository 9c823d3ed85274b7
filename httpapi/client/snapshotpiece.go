package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/sessions/snapshot"
)

// pieceReader takes the sparse stream of one piece: it verifies chunks, gives their
// contents on, and keeps the lists of whole leaves.
type pieceReader struct {
	r     *restoring
	p     piece
	write func(off int64, content []byte) error
	wire  func() int64 // bytes that have come so far

	first  int              // number of the chunk that chunks begins with
	chunks []snapshot.Chunk // of a paged image by place, of a streamed one in order
	leaf   []snapshot.Chunk
	leaves []snapshot.Hash // of a streamed image
	next   int64           // where the next chunk of a streamed one begins
	buf    []byte
	open   []byte
	done   int64 // bytes of the piece that were told
	zero   int64
}

const tellEvery = 1 << 20

func (g *pieceReader) read(in *snapshot.SparseReader) error {
	h, err := in.Header()
	if err != nil {
		return err
	}
	if h.Part.Root != g.r.part.Root || h.Part.Size != g.r.part.Size || h.Sealed != g.r.sealed || h.Commit != "" && h.Commit != g.r.sha {
		return fmt.Errorf("%w: another image", ErrBadAnswer)
	}
	g.begin()
	told, toldZero, toldWire := int64(0), int64(0), int64(0)
	for {
		rec, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = g.take(rec)
		}
		if err != nil {
			g.r.tell(-told, -toldZero, 0) // it is not done after all
			return err
		}
		if g.done-told >= tellEvery {
			wire := g.wire()
			g.r.tell(g.done-told, g.zero-toldZero, wire-toldWire)
			told, toldZero, toldWire = g.done, g.zero, wire
		}
	}
	if err := g.end(); err != nil {
		g.r.tell(-told, -toldZero, 0)
		return err
	}
	g.r.tell(g.p.length-told, g.zero-toldZero, g.wire()-toldWire)
	return nil
}

func (g *pieceReader) paged() bool { return g.r.part.Layout == snapshot.Pages }

func (g *pieceReader) begin() {
	if !g.paged() || g.p.length == 0 {
		return
	}
	c := int64(g.r.part.ChunkBytes)
	g.first = int(g.p.offset / c)
	last := int((g.p.offset + g.p.length - 1) / c)
	g.chunks = make([]snapshot.Chunk, last-g.first+1)
}

// take verifies a record and gives what it holds of the piece on.
func (g *pieceReader) take(rec snapshot.Record) error {
	if err := g.place(rec); err != nil {
		return err
	}
	if rec.Blob == nil {
		from, to := max(rec.Offset, g.p.offset), min(rec.Offset+rec.Length, g.p.offset+g.p.length)
		g.done += max(0, to-from)
		g.zero += max(0, to-from)
		return nil
	}
	content, err := g.r.coder.Decode(rec.Chunk(), rec.Blob, g.buf)
	if err != nil {
		return err
	}
	if len(content) > 0 && len(rec.Blob) < len(content) {
		g.buf = content
	}
	if g.r.sealed {
		if content, err = g.r.o.Open(g.open[:0], content); err != nil {
			return fmt.Errorf("%w: %w", errLocal, err)
		}
		g.open = content
	}
	off := rec.Offset
	if cut := g.p.offset - off; cut > 0 {
		content = content[min(cut, int64(len(content))):]
		off = g.p.offset
	}
	content = content[:max(0, min(int64(len(content)), g.p.offset+g.p.length-off))]
	if len(content) == 0 {
		return nil
	}
	g.done += int64(len(content))
	return g.write(off, content)
}

var errBadRecord = fmt.Errorf("%w: a chunk out of its place", ErrBadAnswer)

// place notes a record's chunk where it belongs.
func (g *pieceReader) place(rec snapshot.Record) error {
	if !g.paged() {
		return g.placeStreamed(rec)
	}
	c, size := int64(g.r.part.ChunkBytes), g.r.part.Size
	if rec.Offset%c != 0 {
		return errBadRecord
	}
	if rec.Blob != nil {
		return g.set(rec.Offset/c, rec.Chunk())
	}
	for at, end := rec.Offset, rec.Offset+rec.Length; at < end; at += c {
		n := min(c, size-at)
		if at+n > end {
			return errBadRecord
		}
		if err := g.set(at/c, snapshot.Chunk{Length: uint32(n)}); err != nil {
			return err
		}
	}
	return nil
}

// set keeps one chunk of a paged image; a record may tell of more than was asked for.
func (g *pieceReader) set(number int64, c snapshot.Chunk) error {
	i := number - int64(g.first)
	if i < 0 || i >= int64(len(g.chunks)) {
		return nil
	}
	if g.chunks[i].Length != 0 {
		return errBadRecord
	}
	g.chunks[i] = c
	return nil
}

// placeStreamed adds a chunk to a leaf, which ends where its chunks say.
func (g *pieceReader) placeStreamed(rec snapshot.Record) error {
	if g.r.whole {
		if rec.Offset != g.next || rec.Length > snapshot.MaxContent {
			return errBadRecord
		}
		g.next += rec.Length
	}
	g.leaf = append(g.leaf, rec.Chunk())
	if snapshot.LeafEnds(snapshot.Stream, g.leaf) {
		g.endLeaf()
	}
	return nil
}

func (g *pieceReader) endLeaf() {
	g.leaves = append(g.leaves, snapshot.Leaf{Chunks: g.leaf}.Hash(snapshot.Stream))
	g.leaf = g.leaf[:0]
}

// end checks that every chunk has come, and notes the hashes of leaves.
func (g *pieceReader) end() error {
	if !g.paged() {
		if len(g.leaf) > 0 {
			g.endLeaf()
		}
		g.r.mu.Lock()
		g.r.leaves = g.leaves
		g.r.mu.Unlock()
		return nil
	}
	for _, c := range g.chunks {
		if c.Length == 0 {
			return fmt.Errorf("%w: a chunk is missing", ErrBadAnswer)
		}
	}
	if !g.r.whole {
		return nil
	}
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	for at := 0; at < len(g.chunks); at += snapshot.LeafChunks {
		chunks := g.chunks[at:min(at+snapshot.LeafChunks, len(g.chunks))]
		index := (g.first + at) / snapshot.LeafChunks
		g.r.leaves[index] = snapshot.Leaf{Index: index, Chunks: chunks}.Hash(snapshot.Pages)
	}
	return nil
}

// watchedBody ends a request whose answer makes no progress, and counts.
type watchedBody struct {
	watched
	n atomic.Int64
}

func (w *watchedBody) Read(p []byte) (int, error) {
	n, err := w.watched.Read(p)
	w.n.Add(int64(n))
	return n, err
}

func (w *watchedBody) counted() int64 { return w.n.Load() }

func watch(body io.Reader, cancel context.CancelCauseFunc) (*watchedBody, func()) {
	silence := time.AfterFunc(idleLimit, func() { cancel(ErrSilent) })
	w := &watchedBody{watched: watched{r: body, heard: func() { silence.Reset(idleLimit) }}}
	return w, func() { silence.Stop() }
}
