package snapshot

import (
	"context"
	"crypto/sha1"
	"fmt"
	"hash"
	"io"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
)

// hashBlob is the id that git gives a blob.
func hashBlob(content []byte) (id OID) {
	h := blobHashes.Get().(*blobHash)
	defer blobHashes.Put(h)
	h.Reset()
	head := strconv.AppendInt(append(h.head[:0], "blob "...), int64(len(content)), 10)
	h.Write(append(head, 0))
	h.Write(content)
	h.Sum(id[:0])
	return id
}

type blobHash struct {
	hash.Hash
	head [32]byte
}

var blobHashes = sync.Pool{New: func() any { return &blobHash{Hash: sha1.New()} }}

// checkedBlob reads a chunk's blob from disk and holds it to its id.
func checkedBlob(ctx context.Context, repo Repo, id OID, buf []byte) ([]byte, error) {
	blob, err := repo.Chunk(ctx, id, buf[:0])
	if err != nil {
		return blob, err
	}
	if got := hashBlob(blob); got != id {
		return blob, fmt.Errorf("%w: blob %s has the bytes of %s", ErrDamaged, id, got)
	}
	return blob, nil
}

// A batch of pieces is worked on by one goroutine and handed on in order.
type batch struct {
	pieces []piece
	blobs  [][]byte // of the pieces, in room; nil for zeros
	texts  [][]byte // contents, in text
	room   []byte
	text   []byte
	err    error
	done   chan struct{}
}

const batchBytes = 1 << 20 // of content

// inOrder prepares the chunks of a range, several batches at once, and hands them on in
// order. When it returns nothing of it goes on.
func (im *Image) inOrder(ctx context.Context, off, n int64, prepare func(context.Context, *batch) error, take func(*batch) error) error {
	group, ctx := errgroup.WithContext(ctx)
	workers := im.k.Limits.Workers
	queue, work := make(chan *batch, workers), make(chan *batch)
	free := make(chan *batch, 2*workers+2)
	for range cap(free) {
		free <- &batch{}
	}
	group.Go(func() error {
		defer close(queue)
		defer close(work)
		return im.cut(ctx, off, n, free, func(b *batch) error {
			for _, to := range []chan<- *batch{work, queue} {
				select {
				case to <- b:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	})
	for range workers {
		group.Go(func() error {
			for b := range work {
				b.err = prepare(ctx, b)
				close(b.done)
			}
			return nil
		})
	}
	group.Go(func() error {
		for b := range queue {
			select {
			case <-b.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if b.err != nil {
				return b.err
			}
			if err := take(b); err != nil {
				return err
			}
			free <- b
		}
		return nil
	})
	return group.Wait()
}

// cut puts the chunks of a range into batches.
func (im *Image) cut(ctx context.Context, off, n int64, free <-chan *batch, hand func(*batch) error) error {
	var b *batch
	size := int64(0)
	err := im.pieces(ctx, off, n, func(p piece) error {
		if b == nil {
			select {
			case b = <-free:
			case <-ctx.Done():
				return ctx.Err()
			}
			b.pieces, b.err, b.done, size = b.pieces[:0], nil, make(chan struct{}), 0
		}
		b.pieces = append(b.pieces, p)
		if !p.blob.IsZero() {
			size += int64(p.chunk.Length)
		}
		if size < batchBytes && len(b.pieces) < 1<<16/4 {
			return nil
		}
		full := b
		b = nil
		return hand(full)
	})
	if err == nil && b != nil {
		err = hand(b)
	}
	return err
}

// load reads the blobs of a batch, held to the checksums they were stored with: whoever
// takes their contents out holds them to their strong hashes.
func (im *Image) load(ctx context.Context, b *batch) error {
	room := 0
	for _, p := range b.pieces {
		if !p.blob.IsZero() {
			room += int(p.chunk.Length)
		}
	}
	if cap(b.room) < room {
		b.room = make([]byte, 0, room)
	}
	b.blobs = b.blobs[:0]
	rest := b.room[:0]
	for _, p := range b.pieces {
		if p.blob.IsZero() {
			b.blobs = append(b.blobs, nil)
			continue
		}
		blob, err := im.repo.Chunk(ctx, p.blob, rest)
		if err == nil && (len(blob) == 0 || len(blob) > int(p.chunk.Length)) {
			err = fmt.Errorf("%w: blob of %d bytes", ErrDamaged, len(blob))
		}
		if err != nil {
			return im.k.damage(ctx, im.repo, im.Snapshot.Commit, p.name(im.Part), err)
		}
		b.blobs = append(b.blobs, blob)
		if cap(rest) >= len(blob) {
			rest = rest[len(blob):cap(rest)][:0]
		}
	}
	return nil
}

// decode makes the contents of a batch, held to their strong hashes: those alone tell
// whether the blobs are right.
func (im *Image) decode(ctx context.Context, b *batch) error {
	if err := im.load(ctx, b); err != nil {
		return err
	}
	room := 0
	for _, p := range b.pieces {
		if !p.blob.IsZero() {
			room += int(p.chunk.Length)
		}
	}
	if cap(b.text) < room {
		b.text = make([]byte, room)
	}
	b.texts = b.texts[:0]
	rest := b.text[:cap(b.text)]
	for i, p := range b.pieces {
		if p.blob.IsZero() {
			b.texts = append(b.texts, nil)
			continue
		}
		text, err := im.k.coder.Decode(p.chunk, b.blobs[i], rest[:0:p.chunk.Length])
		if err != nil {
			return im.k.damage(ctx, im.repo, im.Snapshot.Commit, p.name(im.Part), err)
		}
		b.texts = append(b.texts, text)
		rest = rest[p.chunk.Length:]
	}
	return nil
}

var zeroRun [64 << 10]byte

// WriteRange writes content from off to off+n, every chunk checked before a byte of it is
// written. A damaged chunk is a *DamagedError, and the session is told. Of a sealed image
// nobody here knows the content: ErrSealed.
func (im *Image) WriteRange(ctx context.Context, w io.Writer, off, n int64) error {
	if im.at.sealed {
		return ErrSealed
	}
	return im.inOrder(ctx, off, n, im.decode, func(b *batch) error {
		for i, p := range b.pieces {
			from, to := max(off, p.offset)-p.offset, min(off+n, p.offset+p.covers)-p.offset
			if text := b.texts[i]; text != nil {
				if _, err := w.Write(text[from:to]); err != nil {
					return err
				}
				continue
			}
			for left := to - from; left > 0; left -= min(left, int64(len(zeroRun))) {
				if _, err := w.Write(zeroRun[:min(left, int64(len(zeroRun)))]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
