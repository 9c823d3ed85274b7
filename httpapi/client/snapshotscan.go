package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/sessions/snapshot"
)

// scanStep is how much of a file is read and looked at before more is read: it is still
// in the processor's cache then.
const scanStep = 512 << 10

// scan reads a paged part's file, and sends what is missing, by several at once: each
// takes some leaves that follow each other.
func (p *sendPart) scan(ctx context.Context, file io.ReaderAt) error {
	leaf := snapshot.LeafChunks * p.spec.ChunkBytes
	leaves, per := snapshot.PageLeaves(p.spec.Size, p.spec.ChunkBytes), max(1, sendJobBytes/leaf)
	p.reserve(leaves)
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range min(p.workers, (leaves+per-1)/per) {
		group.Go(func() error {
			room := make([]byte, per*leaf)
			var body []byte
			for ctx.Err() == nil {
				first := int(next.Add(int64(per))) - per
				if first >= leaves {
					return nil
				}
				var err error
				if body, err = p.scanSend(ctx, file, room, first, body); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

// scanSend sends leaves from first on, as many as fit in room. The body is put together
// in buf, and given back for the next one.
func (p *sendPart) scanSend(ctx context.Context, file io.ReaderAt, room []byte, first int, buf []byte) (body []byte, err error) {
	start := int64(first) * int64(p.spec.ChunkBytes) * snapshot.LeafChunks
	room = room[:min(int64(len(room)), p.spec.Size-start)]
	if p.direct {
		job, err := p.scanJob(file, room, first)
		if err != nil {
			return buf, err
		}
		return p.sendContent(ctx, job, buf[:0])
	}
	var shown []byte
	if p.v.o.Memo.has(p.spec.Name) {
		shown = mapFile(file, start, len(room))
		defer unmapFile(shown)
	}
	if shown == nil {
		job, err := p.scanJob(file, room, first)
		if err != nil {
			return buf, err
		}
		return buf, p.send(ctx, job)
	}
	defer faults(p.spec.Name, &err)()
	job, err := p.lookJob(file, shown, room, first)
	if err != nil {
		return buf, err
	}
	return buf, p.send(ctx, job)
}

// faults makes an error of a look at a part of a file that is no more. What it gives is
// deferred.
func faults(name string, err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		caught := recover()
		if caught == nil {
			return
		}
		if fault, ok := caught.(interface{ Addr() uintptr }); !ok || fault.Addr() == 0 {
			panic(caught)
		}
		*err = fmt.Errorf("read %s: %w", name, io.ErrUnexpectedEOF)
	}
}

// lookJob looks at leaves where the file shows them, and reads only chunks that the memo
// does not know as they are: what is shown may change from one look to the next, so that
// a fingerprint and a hash are never made of two looks.
func (p *sendPart) lookJob(file io.ReaderAt, shown, room []byte, first int) (*sendJob, error) {
	job := &sendJob{bytes: int64(len(shown))}
	start := int64(first) * int64(p.spec.ChunkBytes) * snapshot.LeafChunks
	for at := 0; at < len(shown); {
		end := min(at+p.spec.ChunkBytes, len(shown))
		leaf := p.leafFor(job, first)
		leaf.contents, leaf.looked = append(leaf.contents, shown[at:end]), true
		i := len(leaf.contents) - 1
		if _, ok := p.recall(leaf, i); !ok {
			leaf.contents[i] = room[at:end]
			if err := p.readAt(file, leaf.contents[i], start+int64(at)); err != nil {
				return nil, err
			}
			p.finish(leaf, i)
		}
		at = end
	}
	return job, nil
}

func (p *sendPart) readAt(file io.ReaderAt, b []byte, off int64) error {
	n, err := file.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %s: %w", p.spec.Name, err)
}

// scanJob reads leaves from first on into room, which they fill.
func (p *sendPart) scanJob(file io.ReaderAt, room []byte, first int) (*sendJob, error) {
	start := int64(first) * int64(p.spec.ChunkBytes) * snapshot.LeafChunks
	job := &sendJob{bytes: int64(len(room))}
	step := max(scanStep, p.spec.ChunkBytes)
	for at := 0; at < len(room); {
		piece := room[at:min(at+step, len(room))]
		if err := p.readAt(file, piece, start+int64(at)); err != nil {
			return nil, err
		}
		for rest := piece; len(rest) > 0; rest = rest[min(p.spec.ChunkBytes, len(rest)):] {
			p.scanned(job, first, rest[:min(p.spec.ChunkBytes, len(rest))])
		}
		at += len(piece)
	}
	return job, nil
}

// scanned takes a chunk that was read into a job.
func (p *sendPart) scanned(job *sendJob, first int, content []byte) {
	leaf := p.leafFor(job, first)
	leaf.contents = append(leaf.contents, content)
	if p.direct {
		p.print(leaf, content)
		return
	}
	p.finish(leaf, len(leaf.contents)-1)
}

// leafFor is the leaf that the next chunk of a job is in.
func (p *sendPart) leafFor(job *sendJob, first int) *sendLeaf {
	n := len(job.leaves)
	if n == 0 || len(job.leaves[n-1].contents) == snapshot.LeafChunks {
		leaf := sendLeaf{contents: make([][]byte, 0, snapshot.LeafChunks), known: p.v.o.Memo != nil}
		leaf.Index = first + n
		job.leaves, n = append(job.leaves, leaf), n+1
	}
	return &job.leaves[n-1]
}

// print keeps the fingerprint of a content for the memo.
func (p *sendPart) print(leaf *sendLeaf, content []byte) {
	if p.v.o.Memo != nil {
		leaf.prints = append(leaf.prints, p.v.o.Memo.Fingerprint(content))
	}
}

// told are the leaves of a job that the server must be told of: those that are as they
// were in the snapshot that the save builds on it knows.
func (p *sendPart) told(job *sendJob) []sendLeaf {
	var told []sendLeaf
	for _, leaf := range job.leaves {
		if leaf.known && p.v.o.Memo.leafChunks(p.spec.Name, leaf.Index) == len(leaf.contents) { // else the image has become shorter
			p.untold.Add(1)
			continue
		}
		told = append(told, leaf)
	}
	return told
}

const contentMedia = "application/x-headgate-content"

// sendContent sends a job's content to a server that has nothing yet which it could be
// part of, and takes the lists that it makes of it: so all is hashed once. The body is
// put together in buf, and given back for the next one.
func (p *sendPart) sendContent(ctx context.Context, job *sendJob, buf []byte) ([]byte, error) {
	body := slices.Grow(buf, int(job.bytes)+4*len(job.leaves)*snapshot.LeafChunks)
	for _, leaf := range job.leaves {
		for _, content := range leaf.contents {
			body = snapshot.AppendContent(body, content)
		}
	}
	var answer []byte
	path := fmt.Sprintf("content?first=%d", job.leaves[0].Index)
	tries, err := p.tried(ctx, path, contentMedia, body, &answer)
	if err == nil {
		err = listed(job, answer)
	}
	if err != nil {
		return nil, err
	}
	p.v.tell(SaveProgress{Read: job.bytes, Sent: int64(len(body)), Saved: max(0, job.bytes-int64(len(body)))})
	p.note(job)
	if tries > 1 {
		return nil, nil // what has failed may still be reading it
	}
	return body, nil
}

// listed takes the lists of a job's leaves out of an answer.
func listed(job *sendJob, answer []byte) error {
	for i := range job.leaves {
		leaf := &job.leaves[i]
		const head = 6
		size := len(leaf.contents) * snapshot.EntryBytes
		if len(answer) < head+size || int(binary.BigEndian.Uint32(answer)) != leaf.Index {
			return ErrBadAnswer
		}
		chunks, err := snapshot.DecodeList(answer[head : head+size])
		if err != nil {
			return fmt.Errorf("%w: %w", ErrBadAnswer, err)
		}
		for n, c := range chunks {
			if int(c.Length) != len(leaf.contents[n]) {
				return ErrBadAnswer
			}
		}
		leaf.Chunks, answer = chunks, answer[head+size:]
	}
	return nil
}
