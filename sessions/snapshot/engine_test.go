package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// leafBytes is what a leaf of the smallest chunks covers.
const leafBytes = LeafChunks * MinChunk

// memoryOf is an image of memory.
func memoryOf(t fataler, image *snapshottest.Image) []byte {
	t.Helper()
	b := make([]byte, image.Size())
	if _, err := io.ReadFull(image.Reader(), b); err != nil {
		t.Fatalf("read image: %v", err)
	}
	return b
}

// sparseMemory is an image of size bytes of which only some pages are no zeros.
func sparseMemory(seed byte, size int, pages ...int) []byte {
	b := make([]byte, size)
	for _, p := range pages {
		if at := p * MinChunk; at < size {
			copy(b[at:], bytes.Repeat([]byte{seed, byte(p), byte(p >> 8)}, MinChunk/3))
		}
	}
	return b
}

// pagesOf is a part of the smallest pages.
func pagesOf(size int) PartSpec { return PartSpec{ChunkBytes: MinChunk, Size: int64(size)} }

// tryStream saves one stream; parts that are not told are of the smallest pages.
func (w *world) tryStream(s SaveSpec, body io.Reader) (Snapshot, error) {
	if s.Session == "" {
		s.Session = "s"
	}
	if s.Parts == nil {
		s.Parts = []PartSpec{pagesOf(-1)}
	}
	return w.k.Save(context.Background(), w.as(backend()), s, body)
}

// stream saves what must succeed.
func (w *world) stream(t fataler, s SaveSpec, data []byte) Snapshot {
	t.Helper()
	got, err := w.tryStream(s, bytes.NewReader(data))
	if err != nil {
		t.Fatalf("Save: %v", err)
	}
	return got
}

// restored reads a part whole, as image bytes, with what came out before an error.
func restored(k *Keeper, repo Repo, commit OID, part string) ([]byte, error) {
	im, err := k.Open(context.Background(), repo, commit, part)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Grow(int(im.Part.Size))
	err = im.WriteRange(context.Background(), &b, 0, im.Part.Size)
	return b.Bytes(), err
}

// received reads a sparse stream as its receiver does: every content is held to its
// hash, every byte of the range must come once, and the end must tell the part's root.
func received(r io.Reader) (data []byte, first []int64, err error) {
	in := NewSparseReader(r)
	h, err := in.Header()
	if err != nil {
		return nil, nil, err
	}
	data = make([]byte, h.Part.Size)
	var told [][2]int64 // runs of bytes
	for {
		rec, err := in.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		first = append(first, rec.Offset)
		told = append(told, [2]int64{rec.Offset, rec.Offset + rec.Length})
		if rec.Blob == nil {
			continue
		}
		text, err := testCoder.Decode(rec.Chunk(), rec.Blob, nil)
		if err != nil {
			return nil, nil, err
		}
		copy(data[rec.Offset:], text)
	}
	slices.SortFunc(told, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	for i, run := range told {
		if i > 0 && run[0] != told[i-1][1] {
			return nil, nil, fmt.Errorf("bytes from %d on are told after those to %d", run[0], told[i-1][1])
		}
	}
	if h.Length > 0 && (len(told) == 0 || told[0][0] > h.Offset || told[len(told)-1][1] < h.Offset+h.Length) {
		return nil, nil, errors.New("a byte of the range is not told")
	}
	if in.Root().String() != h.Part.Root {
		return nil, nil, fmt.Errorf("end tells %s, header %s", in.Root(), h.Part.Root)
	}
	return data, first, nil
}

// sparse reads a part whole as a sparse stream.
func sparse(k *Keeper, repo Repo, commit OID, part string, hot bool) ([]byte, []int64, error) {
	im, err := k.Open(context.Background(), repo, commit, part)
	if err != nil {
		return nil, nil, err
	}
	var b bytes.Buffer
	if err := im.WriteSparse(context.Background(), &b, 0, im.Part.Size, hot); err != nil {
		return nil, nil, err
	}
	return received(&b)
}

// wantRestored demands that a snapshot restores as want, in all ways, also in a process
// that knows nothing of it.
func (w *world) wantRestored(t fataler, what string, commit OID, part string, want []byte) {
	t.Helper()
	for name, k := range map[string]*Keeper{"known": w.k, "new": w.keeper(w.k.Limits)} {
		got, err := restored(k, w.as(backend()), commit, part)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s, %s keeper: restored %d bytes (%v), want the %d that were saved", what, name, len(got), err, len(want))
		}
		got, _, err = sparse(k, w.as(backend()), commit, part, false)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s, %s keeper: sparse restore has %d bytes (%v), want the %d that were saved", what, name, len(got), err, len(want))
		}
	}
}

// ids are all objects there are, in order.
func (w *world) ids() []OID {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []OID
	for id := range w.objects {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b OID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// spoil puts other bytes in the place of an object's; nil removes it.
func (w *world) spoil(id OID, make func([]byte) []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.objects[id]
	if o.Data = make(bytes.Clone(o.Data)); o.Data == nil {
		delete(w.objects, id)
		return
	}
	w.objects[id] = o
}

// blobsOf are the blobs of a part's chunks, by place.
func (w *world) blobsOf(t fataler, commit OID, part int) (blobs []OID) {
	t.Helper()
	open, err := w.k.openImage(context.Background(), w.as(backend()), commit)
	if err != nil {
		t.Fatalf("open %s: %v", commit, err)
	}
	x := open.parts[part]
	for n := range x.trees {
		l, err := w.k.cachedLeaf(context.Background(), w.as(backend()), x, n)
		if err != nil {
			t.Fatalf("leaf %d: %v", n, err)
		}
		blobs = append(blobs, l.blobs...)
	}
	return blobs
}

// inWorld runs f in a world of its own, with a session s.
func inWorld(t fataler, limits Limits, f func(*world)) {
	t.Helper()
	db, err := pebbledb.Open("ledger", pebbledb.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatalf("pebbledb.Open: %v", err)
	}
	defer func() { _ = db.Close() }()
	w := worldOn(db, limits)
	w.session("s", OID{})
	f(w)
}

// saving is a new world with a session s.
func saving(t testing.TB, limits Limits) *world {
	t.Helper()
	w := newWorld(t, limits)
	w.session("s", OID{})
	return w
}
