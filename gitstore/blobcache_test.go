package gitstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/refpolicy"
	"pgregory.net/rapid"
)

func randomBytes(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		v := rng.Uint64()
		for j := range 8 {
			b[i+j] = byte(v >> (8 * j))
		}
	}
	return b
}

func testBlobCache(t testing.TB, limit int64) *blobCache {
	t.Helper()
	b, err := openBlobCache(t.TempDir(), limit)
	if err != nil {
		t.Fatalf("openBlobCache: %v", err)
	}
	t.Cleanup(b.close)
	return b
}

// counted opens data as a stream and counts how often, and how much is read.
type counted struct {
	data  []byte
	opens atomic.Int64
	read  atomic.Int64
	gate  chan struct{} // if not nil, opening waits for it
}

func (c *counted) open(ctx context.Context) (io.ReadCloser, error) {
	c.opens.Add(1)
	if c.gate != nil {
		select {
		case <-c.gate:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return io.NopCloser(io.TeeReader(bytes.NewReader(c.data), c)), nil
}

func (c *counted) Write(p []byte) (int, error) { c.read.Add(int64(len(p))); return len(p), nil }

func (b *blobCache) fillFrom(t testing.TB, c *counted) (*os.File, error) {
	return b.fill(t.Context(), hashObject(BlobObject, c.data), int64(len(c.data)), c.open)
}

func TestBlobCacheFillsOnceForAllWhoAsk(t *testing.T) {
	b := testBlobCache(t, 1<<20)
	c := &counted{data: randomBytes(1, 100_000), gate: make(chan struct{})}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			f, err := b.fillFrom(t, c)
			if err != nil {
				t.Errorf("fill: %v", err)
				return
			}
			defer f.Close()
			if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, c.data) {
				t.Errorf("cached file has %d bytes, %v", len(got), err)
			}
		})
	}
	close(c.gate)
	wg.Wait()
	if n := c.opens.Load(); n != 1 {
		t.Errorf("the blob was read %d times, want once", n)
	}
}

func TestBlobCacheOutlivesTheCallerWhoCameFirst(t *testing.T) {
	b := testBlobCache(t, 1<<20)
	c := &counted{data: randomBytes(2, 50_000), gate: make(chan struct{})}
	oid := hashObject(BlobObject, c.data)
	ctx, leave := context.WithCancel(t.Context())
	first := make(chan error)
	go func() {
		_, err := b.fill(ctx, oid, int64(len(c.data)), c.open)
		first <- err
	}()
	for c.opens.Load() == 0 { // until the first is at work
		if f, ok := b.file(oid); ok {
			f.Close()
			t.Fatal("the blob is cached before it was read")
		}
		runtime.Gosched()
	}
	second := make(chan error)
	go func() {
		f, err := b.fillFrom(t, c)
		if err == nil {
			err = f.Close()
		}
		second <- err
	}()
	for joined := false; !joined; {
		b.fills.mu.Lock()
		joined = b.fills.running[oid] != nil && b.fills.running[oid].waiters == 2
		b.fills.mu.Unlock()
		runtime.Gosched()
	}
	leave()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller who left got %v", err)
	}
	close(c.gate)
	if err := <-second; err != nil || c.opens.Load() != 1 {
		t.Errorf("the caller who stayed got %v after %d reads", err, c.opens.Load())
	}
}

func TestBlobCacheGivesUpWhenAllHaveLeft(t *testing.T) {
	b := testBlobCache(t, 1<<20)
	c := &counted{data: randomBytes(2, 50_000), gate: make(chan struct{})} // never opened
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := b.fill(ctx, hashObject(BlobObject, c.data), int64(len(c.data)), c.open)
		done <- err
	}()
	for c.opens.Load() == 0 {
		runtime.Gosched()
	}
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("fill = %v, want context.Canceled", err)
	}
	b.fills.wait()
	if b.bytes != 0 {
		t.Errorf("%d bytes are still reserved", b.bytes)
	}
}

func TestBlobCacheRefusesWrongContent(t *testing.T) {
	b := testBlobCache(t, 1<<20)
	c := &counted{data: randomBytes(3, 10_000)}
	oid := hashObject(BlobObject, c.data)
	c.data[77] ^= 1
	if f, err := b.fill(t.Context(), oid, int64(len(c.data)), c.open); !errors.Is(err, ErrBadObject) {
		t.Errorf("fill with a flipped bit = %v, %v; want ErrBadObject", f, err)
	}
	if _, ok := b.file(oid); ok || b.bytes != 0 {
		t.Errorf("a damaged copy is kept (%v), %d bytes counted", ok, b.bytes)
	}
	if left, err := os.ReadDir(b.dir); err != nil || len(left) != 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

func TestBlobCacheStaysInItsBounds(t *testing.T) {
	b := testBlobCache(t, 300_000)
	var blobs []*counted
	for i := range 8 {
		c := &counted{data: randomBytes(uint64(10+i), 100_000)}
		blobs = append(blobs, c)
		f, err := b.fillFrom(t, c)
		if err != nil {
			t.Fatalf("fill %d: %v", i, err)
		}
		defer f.Close()
		if again, ok := b.file(hashObject(BlobObject, blobs[0].data)); ok { // keep the first in use
			again.Close()
		} else {
			t.Fatalf("the blob used last was pushed out by blob %d", i)
		}
		entries, err := os.ReadDir(b.dir)
		if err != nil || len(entries) > 3 || b.bytes > 300_000 {
			t.Fatalf("after %d blobs: %d files, %d bytes counted, %v", i+1, len(entries), b.bytes, err)
		}
		// one that was pushed out stays readable for those who have it open
		if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, c.data) {
			t.Fatalf("blob %d: %d bytes, %v", i, len(got), err)
		}
	}
	if _, ok := b.file(hashObject(BlobObject, blobs[4].data)); ok {
		t.Error("a blob used long ago is still there")
	}
	big := &counted{data: randomBytes(1, 300_008)}
	if f, err := b.fillFrom(t, big); !errors.Is(err, errUncacheable) {
		t.Errorf("fill over the limit = %v, %v; want errUncacheable", f, err)
	}
}

func TestBlobCacheIsEmptiedWhenOpened(t *testing.T) {
	dir := t.TempDir()
	b, err := openBlobCache(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.fillFrom(t, &counted{data: randomBytes(5, 1000)})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	b.close()
	if _, err := openBlobCache(dir, 1<<20); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

func TestBlobCacheSurvivesACleanedFolder(t *testing.T) {
	b := testBlobCache(t, 1<<20)
	c := &counted{data: randomBytes(6, 5000)}
	for range 2 {
		f, err := b.fillFrom(t, c)
		if err != nil {
			t.Fatalf("fill: %v", err)
		}
		f.Close()
		if err := os.Remove(b.path(hashObject(BlobObject, c.data))); err != nil {
			t.Fatal(err)
		}
	}
	if c.opens.Load() != 2 {
		t.Errorf("the blob was read %d times, want 2", c.opens.Load())
	}
}

func largeReaderOf(t testing.TB, b *blobCache, c *counted) *largeReader {
	return &largeReader{ctx: t.Context(), cache: b, oid: hashObject(BlobObject, c.data), size: int64(len(c.data)), open: c.open}
}

// Reading and seeking in a large blob is like reading and seeking in its bytes,
// with a cache that takes it and with one that does not.
func TestLargeReaderIsASeeker(t *testing.T) {
	c := &counted{data: randomBytes(7, 5<<20)}
	caches := []*blobCache{testBlobCache(t, 8<<20), testBlobCache(t, 1<<20)}
	rapid.Check(t, func(rt *rapid.T) {
		cache := caches[rapid.IntRange(0, 1).Draw(rt, "cache")]
		r := largeReaderOf(t, cache, c)
		defer r.Close()
		want := bytes.NewReader(c.data)
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "seek") {
				offset := rapid.Int64Range(-6<<20, 6<<20).Draw(rt, "offset")
				whence := rapid.IntRange(0, 2).Draw(rt, "whence")
				got, err := r.Seek(offset, whence)
				pos, wantErr := want.Seek(offset, whence)
				if (err == nil) != (wantErr == nil) || (err == nil && got != pos) {
					rt.Fatalf("Seek(%d, %d) = %d, %v; want %d, %v", offset, whence, got, err, pos, wantErr)
				}
				continue
			}
			n := rapid.IntRange(0, 300_000).Draw(rt, "n")
			got, gotErr := io.ReadAll(io.LimitReader(r, int64(n)))
			expect, _ := io.ReadAll(io.LimitReader(want, int64(n)))
			if gotErr != nil || !bytes.Equal(got, expect) {
				rt.Fatalf("read %d gave %d bytes (%v), want %d", n, len(got), gotErr, len(expect))
			}
		}
	})
}

// The first byte of a 50 MiB file, fifty times, must not cost 50 MiB fifty times.
func TestCase6_2_FirstByteFiftyTimes(t *testing.T) {
	content := bytes.Repeat([]byte("all work and no play\n"), 50<<20/21)
	_, r, c := oneCommit(t, map[string]*blob{"big": {data: string(content)}})
	f, err := r.File(t.Context(), c, "big")
	if err != nil || f.Size != int64(len(content)) {
		t.Fatalf("File = %+v, %v", f, err)
	}
	inflated := 0
	for range 50 {
		rc, err := f.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if lr, ok := rc.(*largeReader); ok {
			open := lr.open
			lr.open = func(ctx context.Context) (io.ReadCloser, error) { inflated++; return open(ctx) }
		}
		for _, at := range []int64{0, int64(len(content)) - 1} {
			if _, err := rc.Seek(at, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			var b [1]byte
			if _, err := io.ReadFull(rc, b[:]); err != nil || b[0] != content[at] {
				t.Fatalf("byte %d = %q, %v; want %q", at, b, err, content[at])
			}
		}
		if err := rc.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if inflated > 2 {
		t.Errorf("the blob was opened in the store %d times, want at most twice", inflated)
	}
	again, err := f.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, ok := again.(*os.File); !ok {
		t.Errorf("a blob asked again is a %T, want a file the kernel can send", again)
	}
}

// A cache that is too small, or a full disk under it, costs speed and not the answer.
func TestLargeFileWithoutCache(t *testing.T) {
	content := randomBytes(8, 3<<20)
	g := newGitSource(t)
	var h history
	h.commit("refs/heads/main", 1000, nil, map[string]*blob{"big": {data: string(content)}})
	c := g.put(&h)[1]
	r := g.into(emptyRepo(t, Limits{BlobCacheBytes: 1 << 20}))
	f, err := r.File(t.Context(), c, "big")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := readFile(t, f); got != string(content) {
			t.Errorf("content differs: %d bytes, want %d", len(got), len(content))
		}
	}
}

func TestOpenOfWhatIsNoBlob(t *testing.T) {
	_, r, c := oneCommit(t, map[string]*blob{"a": text("x")})
	for _, size := range []int64{10, largeBlob + 1} {
		rc, err := r.openBlob(t.Context(), c, size)
		if err == nil {
			_, err = rc.Read(make([]byte, 1))
		}
		if !errors.Is(err, ErrObjectNotFound) {
			t.Errorf("open a commit as a blob of %d bytes = %v, want ErrObjectNotFound", size, err)
		}
		if _, err := r.openBlob(t.Context(), refpolicy.OID{1}, 10); !errors.Is(err, ErrObjectNotFound) {
			t.Errorf("open a missing blob = %v, want ErrObjectNotFound", err)
		}
	}
}
