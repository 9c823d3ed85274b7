package gitstore

import (
	"container/list"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/headgate/headgate/refpolicy"
)

// blobCache keeps inflated copies of large blobs as files, so that asking again
// costs what sending a file costs, and a range deep inside costs nothing more. It
// is a cache and no more: its folder is emptied when it is opened, nothing is synced.
type blobCache struct {
	dir   string
	max   int64
	fills flights[refpolicy.OID, struct{}]
	asked *lru[refpolicy.OID, struct{}] // large blobs that were opened not long ago

	mu    sync.Mutex // guards all below
	bytes int64      // of the files, with those being written
	order *list.List // of *cachedBlob, front: used last
	items map[refpolicy.OID]*list.Element
}

type cachedBlob struct {
	oid  refpolicy.OID
	size int64
}

// askedBlobs is how many opened blobs are remembered.
const askedBlobs = 4096

// errUncacheable: a blob is too large for the cache, or everything in it is being written.
var errUncacheable = errors.New("blob does not fit the cache")

// openBlobCache empties dir and makes a cache of at most limit bytes in it.
func openBlobCache(dir string, limit int64) (*blobCache, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &blobCache{
		dir: dir, max: limit, asked: newLRU[refpolicy.OID, struct{}](askedBlobs),
		order: list.New(), items: map[refpolicy.OID]*list.Element{},
	}, nil
}

// close waits for copies that are being given up. The files stay for openBlobCache to remove.
func (b *blobCache) close() { b.fills.wait() }

func (b *blobCache) path(oid refpolicy.OID) string { return filepath.Join(b.dir, oid.String()) }

// askedBefore reports whether a blob was asked for not long ago, and remembers that it was now.
func (b *blobCache) askedBefore(oid refpolicy.OID) bool {
	_, ok := b.asked.get(oid)
	if !ok {
		b.asked.put(oid, struct{}{}, 1)
	}
	return ok
}

// file opens the copy of a blob; ok is false if there is none. The file stays
// readable when its blob leaves the cache.
func (b *blobCache) file(oid refpolicy.OID) (f *os.File, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.items[oid]
	if !ok {
		return nil, false
	}
	f, err := os.Open(b.path(oid))
	if err != nil { // somebody else cleared the folder
		b.drop(e)
		return nil, false
	}
	b.order.MoveToFront(e)
	return f, true
}

// fill makes a copy of a blob from what open gives, unless there is one, and opens
// it. Callers that ask at once share the work. Errors: errUncacheable, ErrBadObject
// for content that is not oid's, those of open and of the disk.
func (b *blobCache) fill(ctx context.Context, oid refpolicy.OID, size int64, open func(context.Context) (io.ReadCloser, error)) (*os.File, error) {
	if f, ok := b.file(oid); ok {
		return f, nil
	}
	_, err := b.fills.do(ctx, oid, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.write(ctx, oid, size, open)
	})
	if err != nil {
		return nil, fmt.Errorf("cache blob %s: %w", oid, err)
	}
	if f, ok := b.file(oid); ok {
		return f, nil
	}
	return nil, errUncacheable // pushed out again already
}

func (b *blobCache) write(ctx context.Context, oid refpolicy.OID, size int64, open func(context.Context) (io.ReadCloser, error)) (err error) {
	if f, ok := b.file(oid); ok { // filled between two looks
		return f.Close()
	}
	if !b.reserve(size) {
		return errUncacheable
	}
	temp := ""
	defer func() {
		if err != nil {
			b.release(size)
			if temp != "" {
				_ = os.Remove(temp)
			}
		}
	}()
	src, err := open(ctx)
	if err != nil {
		return err
	}
	defer src.Close()
	f, err := os.CreateTemp(b.dir, "incoming-*")
	if err != nil {
		return err
	}
	temp = f.Name()
	err = errors.Join(copyBlob(ctx, f, src, oid, size), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(temp, b.path(oid)); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items[oid] = b.order.PushFront(&cachedBlob{oid, size})
	return nil
}

// copyBlob copies a blob's content and checks that it is what oid names.
func copyBlob(ctx context.Context, w io.Writer, src io.Reader, oid refpolicy.OID, size int64) error {
	sum := sha1.New()
	fmt.Fprintf(sum, "blob %d\x00", size)
	buf := make([]byte, 128<<10)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := src.Read(buf)
		sum.Write(buf[:n])
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if refpolicy.OID(sum.Sum(nil)) != oid {
		return fmt.Errorf("%w: content is not that of %s", ErrBadObject, oid)
	}
	return nil
}

// reserve makes room for size bytes, removing the files used longest ago.
func (b *blobCache) reserve(size int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if size > b.max {
		return false
	}
	for b.bytes+size > b.max {
		oldest := b.order.Back()
		if oldest == nil {
			return false
		}
		b.drop(oldest)
	}
	b.bytes += size
	return true
}

func (b *blobCache) release(size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= size
}

// drop removes a copy; mu is held.
func (b *blobCache) drop(e *list.Element) {
	c := b.order.Remove(e).(*cachedBlob)
	delete(b.items, c.oid)
	b.bytes -= c.size
	_ = os.Remove(b.path(c.oid)) // a leftover goes when the cache is next opened
}
