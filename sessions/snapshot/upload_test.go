package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// A cutImage is an image as who sends it knows it.
type cutImage struct {
	spec   PartSpec
	leaves []Leaf
	texts  map[Hash][]byte
	root   Hash
}

// cutUp cuts an image as a client does.
func cutUp(t fataler, spec PartSpec, data []byte) *cutImage {
	t.Helper()
	spec.Size = int64(len(data))
	spec, err := spec.Complete()
	if err != nil {
		t.Fatalf("Complete: %v", err)
	}
	c := &cutImage{spec: spec, texts: map[Hash][]byte{}}
	cut := NewCutter(bytes.NewReader(data), spec)
	var chunks []Chunk
	var hashes []Hash
	end := func() {
		leaf := Leaf{Index: len(c.leaves), Chunks: chunks}
		c.leaves, hashes, chunks = append(c.leaves, leaf), append(hashes, leaf.Hash(spec.Layout)), nil
	}
	for {
		text, err := cut.Next(nil)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		one := ChunkOf(text)
		c.texts[one.Hash] = text
		if chunks = append(chunks, one); LeafEnds(spec.Layout, chunks) {
			end()
		}
	}
	if len(chunks) > 0 {
		end()
	}
	c.root = ImageRoot(Part{Layout: spec.Layout, ChunkBytes: spec.ChunkBytes, Size: spec.Size}, hashes)
	return c
}

// body is a stream of the chunks of these hashes.
func (c *cutImage) body(t fataler, hashes ...Hash) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	out := NewSparseWriter(&b)
	for _, h := range hashes {
		text := c.texts[h]
		if err := out.Write(Record{Length: int64(len(text)), Hash: h, Blob: testCoder.Encode(text, nil)}); err != nil {
			t.Fatalf("Write: %v", err)
		}
	}
	if err := out.End(Hash{}); err != nil {
		t.Fatalf("End: %v", err)
	}
	return &b
}

// A client sends to an upload.
type client struct {
	w  *world
	k  *Keeper
	id string
}

func (w *world) begin(t fataler, s SaveSpec) *client {
	t.Helper()
	if s.Session == "" {
		s.Session = "s"
	}
	up, err := w.k.Begin(context.Background(), w.as(backend()), s)
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	return &client{w, w.k, up.ID}
}

func (c *client) missing(part string, leaves ...Leaf) ([]Hash, error) {
	return c.k.Missing(context.Background(), c.w.as(backend()), "s", c.id, part, leaves)
}

func (c *client) put(r io.Reader) (int, error) {
	return c.k.Put(context.Background(), c.w.as(backend()), "s", c.id, NewSparseReader(r))
}

func (c *client) seal(s SealSpec) (Snapshot, error) {
	return c.k.Seal(context.Background(), c.w.as(backend()), "s", c.id, s)
}

// send tells and sends all of an image, and gives how many chunks were missing.
func (c *client) send(t fataler, im *cutImage) (sent int) {
	t.Helper()
	missing, err := c.missing(im.spec.Name, im.leaves...)
	if err != nil {
		t.Fatalf("Missing: %v", err)
	}
	if n, err := c.put(im.body(t, missing...)); err != nil || n != len(missing) {
		t.Fatalf("Put = %d, %v, want %d", n, err, len(missing))
	}
	return len(missing)
}

func rootsOf(images ...*cutImage) SealSpec {
	s := SealSpec{Roots: map[string]Hash{}, Sizes: map[string]int64{}}
	for _, im := range images {
		s.Roots[im.spec.Name], s.Sizes[im.spec.Name] = im.root, im.spec.Size
	}
	return s
}

func (c *client) sealed(t fataler, images ...*cutImage) Snapshot {
	t.Helper()
	got, err := c.seal(rootsOf(images...))
	if err != nil {
		t.Fatalf("Seal: %v", err)
	}
	return got
}

// An upload of several parts, one of them empty, one a stream, sends what is missing and
// no more, also after a restart; a second one sends what has changed (D-01).
func TestUploadOfSeveralParts(t *testing.T) {
	w := saving(t, Limits{})
	memory := snapshottest.NewImage(1, 2*leafBytes+100, 0.5)
	files := memoryOf(t, snapshottest.NewImage(2, 1<<20, 0))
	parts := []PartSpec{pagesOf(int(memory.Size())), {Name: "none", Kind: KindDisk, ChunkBytes: MinChunk, Size: 0}, {Kind: KindFiles, ChunkBytes: MinChunk, Size: -1}}
	images := []*cutImage{cutUp(t, parts[0], memoryOf(t, memory)), cutUp(t, parts[1], nil), cutUp(t, parts[2], files)}
	c := w.begin(t, SaveSpec{Parts: parts})
	c.send(t, images[0])
	c.k = w.keeper(w.k.Limits) // a restart
	if n := c.send(t, images[0]); n != 0 {
		t.Errorf("%d chunks are to be sent again", n)
	}
	if _, err := c.seal(rootsOf(images...)); !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrMissing) {
		t.Errorf("Seal of half = %v, want it refused", err)
	}
	c.send(t, images[2])
	got := c.sealed(t, images...)
	w.wantRestored(t, "memory", got.Commit, KindMemory, memoryOf(t, memory))
	w.wantRestored(t, "none", got.Commit, "none", nil)
	w.wantRestored(t, "files", got.Commit, KindFiles, files)
	if len(w.stages) != 0 {
		t.Errorf("the stage is still there")
	}
	changed := memory.Mutate(1, 0.01, snapshottest.Clustered)
	images[0] = cutUp(t, parts[0], memoryOf(t, changed))
	c = w.begin(t, SaveSpec{Parts: parts})
	if n := c.send(t, images[0]) + c.send(t, images[2]); n > changed.Changed(memory) {
		t.Errorf("%d chunks are missing after %d pages changed", n, changed.Changed(memory))
	}
	second := c.sealed(t, images...)
	w.wantRestored(t, "changed", second.Commit, KindMemory, memoryOf(t, changed))
	w.sound(t)
}

// What is missing is named, what hashes to something else is refused, and the upload can
// go on (case 14.5).
func TestCase14_5_OtherBytesAreAnotherChunk(t *testing.T) {
	w := saving(t, Limits{})
	a := cutUp(t, pagesOf(-1), append(page("a"), page("b")...))
	other := cutUp(t, pagesOf(-1), page("c"))
	c := w.begin(t, SaveSpec{Parts: []PartSpec{pagesOf(2 * MinChunk)}})
	if _, err := c.seal(rootsOf(a)); !errors.Is(err, ErrMissing) {
		t.Errorf("Seal of nothing = %v, want %v", err, ErrMissing)
	}
	chunks := a.leaves[0].Chunks
	if got, err := c.missing("", a.leaves...); err != nil || len(got) != 2 || got[0] != chunks[0].Hash || got[1] != chunks[1].Hash {
		t.Fatalf("Missing = %v, %v, want both in order", got, err)
	}
	forged := &cutImage{texts: map[Hash][]byte{chunks[1].Hash: page("c")}}
	if _, err := c.put(forged.body(t, chunks[1].Hash)); !errors.Is(err, ErrMismatch) {
		t.Errorf("Put of other bytes = %v, want %v", err, ErrMismatch)
	}
	if _, err := c.put(a.body(t, chunks[0].Hash)); err != nil {
		t.Errorf("Put: %v", err)
	}
	_, err := c.seal(rootsOf(a))
	var missing *MissingError
	if !errors.As(err, &missing) || len(missing.Chunks) != 1 || missing.Chunks[0] != chunks[1].Hash || missing.More {
		t.Errorf("Seal = %v, want %s missing", err, chunks[1].Hash)
	}
	if _, err := c.put(a.body(t, chunks[1].Hash, chunks[0].Hash)); err != nil {
		t.Errorf("Put: %v", err)
	}
	if _, err := c.seal(rootsOf(other)); !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrInvalid) {
		t.Errorf("Seal with another root = %v, want it refused", err)
	}
	if !w.head(t, RefPrefix+"s").IsZero() {
		t.Error("a refused seal has moved the ref")
	}
	got := c.sealed(t, a)
	w.wantRestored(t, "sealed", got.Commit, "", append(page("a"), page("b")...))
	if _, err := c.seal(rootsOf(a)); !errors.Is(err, ErrUploadNotFound) {
		t.Errorf("second Seal = %v, want %v", err, ErrUploadNotFound)
	}
	if _, err := c.put(a.body(t)); !errors.Is(err, ErrUploadNotFound) {
		t.Errorf("Put to what is sealed = %v, want %v", err, ErrUploadNotFound)
	}
}

// Of many seals at once, by several processes, one wins.
func TestOneSealWins(t *testing.T) {
	w := saving(t, Limits{})
	im := cutUp(t, pagesOf(-1), page("a"))
	c := w.begin(t, SaveSpec{Parts: []PartSpec{pagesOf(MinChunk)}, ExpectedHead: &OID{}})
	c.send(t, im)
	var mu sync.Mutex
	var won []Snapshot
	var all sync.WaitGroup
	for n := range 6 {
		k := w.k
		if n%2 == 1 {
			k = w.keeper(w.k.Limits)
		}
		all.Go(func() {
			got, err := (&client{w, k, c.id}).seal(rootsOf(im))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won = append(won, got)
			case !errors.Is(err, ErrBusy) && !errors.Is(err, ErrUploadNotFound) && !errors.Is(err, ErrMissing) && !errors.As(err, new(*MovedError)):
				t.Errorf("Seal = %v", err)
			}
		})
	}
	all.Wait()
	if len(won) != 1 {
		t.Fatalf("%d seals have won", len(won))
	}
	w.wantRestored(t, "sealed", won[0].Commit, "", page("a"))
	w.sound(t)
}

// What is sent over the cap ends the upload, and the session says so (C-05); a seal that
// comes too late for its expected head moves nothing.
func TestC05_UploadOverTheCap(t *testing.T) {
	w := saving(t, Limits{Cap: 50_000})
	first := w.stream(t, SaveSpec{}, page("a"))
	im := cutUp(t, pagesOf(-1), memoryOf(t, snapshottest.NewImage(1, leafBytes, 0)))
	c := w.begin(t, SaveSpec{Parts: []PartSpec{pagesOf(leafBytes)}})
	missing, err := c.missing("", im.leaves...)
	if err != nil {
		t.Fatalf("Missing: %v", err)
	}
	_, err = c.put(im.body(t, missing...))
	var over *OverCapError
	if !errors.As(err, &over) {
		t.Fatalf("Put = %v, want it over the cap", err)
	}
	if st := w.standing(t, "s"); !st.Stale {
		t.Errorf("standing = %+v, want it stale", st)
	}
	w.reaped(t)
	if len(w.stages) != 0 {
		t.Error("the stage is still there after a round of the reaper")
	}
	late := w.begin(t, SaveSpec{Parts: []PartSpec{pagesOf(MinChunk)}, ExpectedHead: &first.Commit})
	b := cutUp(t, pagesOf(-1), page("b"))
	late.send(t, b)
	second := w.stream(t, SaveSpec{}, page("c"))
	_, err = late.seal(rootsOf(b))
	var moved *MovedError
	if !errors.As(err, &moved) || moved.Actual != second.Commit {
		t.Errorf("late Seal = %v, want the head %s told", err, second.Commit)
	}
	w.sound(t)
}

// What was staged and is needed no more does not count for the cap, but there is an end
// to it; a request that is wrong leaves the upload as it is.
func TestC05_WhatIsNotNeededIsNotOverTheCap(t *testing.T) {
	w := saving(t, Limits{Cap: 3 * MinChunk})
	c := w.begin(t, SaveSpec{Parts: []PartSpec{pagesOf(2 * MinChunk)}})
	var last *cutImage
	for n := range 4 {
		last = cutUp(t, pagesOf(-1), memoryOf(t, snapshottest.NewImage(uint64(n+1), 2*MinChunk, 0)))
		c.send(t, last)
	}
	if st := w.standing(t, "s"); st.Stale {
		t.Errorf("standing = %+v, want no notice", st)
	}
	for what, s := range map[string]SealSpec{
		"no roots":          {},
		"unknown part":      {Roots: map[string]Hash{"nope": {1}}},
		"bad exclusions":    {Roots: rootsOf(last).Roots, Excluded: []Excluded{{Name: ""}}},
		"half a proof":      {Roots: rootsOf(last).Roots, Quiet: &Quiet{Before: "x"}},
		"another root":      {Roots: map[string]Hash{KindMemory: {1}}},
		"envelope for none": {Roots: rootsOf(last).Roots, Envelope: []byte("{}")},
	} {
		if _, err := w.k.Seal(t.Context(), w.as(backend()), "s", c.id, s); err == nil {
			t.Errorf("Seal with %s has succeeded", what)
		}
	}
	if got, err := c.seal(rootsOf(last)); err != nil || got.Stored > 3*MinChunk {
		t.Errorf("Seal = %+v, %v", got, err)
	}
	w.sound(t)
}

// A sealed part's chunks are longer than what they cover, and only the sparse form tells
// them.
func TestSealedPart(t *testing.T) {
	w := saving(t, Limits{})
	const size = 3*MinChunk + 10
	im := &cutImage{spec: PartSpec{Name: KindMemory}, texts: map[Hash][]byte{}}
	im.spec.Size = size
	leaf := Leaf{}
	for i := range 4 {
		text := append(page(fmt.Sprint(i)), make([]byte, 32)...)
		if i == 3 {
			text = append([]byte("sealed end"), make([]byte, 32)...)
		}
		one := ChunkOf(text)
		im.texts[one.Hash] = text
		leaf.Chunks = append(leaf.Chunks, one)
	}
	im.leaves = []Leaf{leaf}
	im.root = ImageRoot(Part{Layout: Pages, ChunkBytes: MinChunk, Size: size}, []Hash{leaf.Hash(Pages)})
	envelope := json.RawMessage(`{"version":1}`)
	c := w.begin(t, SaveSpec{Parts: []PartSpec{pagesOf(size)}, Envelope: envelope, Requires: []string{"sealed"}})
	c.send(t, im)
	got := c.sealed(t, im)
	if _, err := restored(w.k, w.as(backend()), got.Commit, ""); !errors.Is(err, ErrSealed) {
		t.Errorf("WriteRange = %v, want %v", err, ErrSealed)
	}
	opened, err := w.keeper(w.k.Limits).Open(t.Context(), w.as(backend()), got.Commit, "")
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	var b bytes.Buffer
	if err := opened.WriteSparse(t.Context(), &b, 0, size, false); err != nil {
		t.Fatalf("WriteSparse: %v", err)
	}
	in := NewSparseReader(&b)
	if h, err := in.Header(); err != nil || !h.Sealed {
		t.Fatalf("Header = %+v, %v, want it sealed", h, err)
	}
	for i, one := range leaf.Chunks {
		rec, err := in.Next()
		if err != nil || rec.Chunk() != one || rec.Offset != int64(i)*MinChunk {
			t.Errorf("record %d = %+v, %v, want %+v", i, rec, err, one)
		}
	}
}
