package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/sessions/snapshot"
)

// memory is content of n bytes, most of whose pages are zeros.
func memory(seed byte, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{seed})
	for at := 0; at < n; at += 128 << 10 {
		_, _ = r.Read(b[at:min(n, at+16<<10)])
	}
	return b
}

func opens(b []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}

func sizesOf(chunk int) []int {
	return []int{0, 1, chunk - 1, chunk, chunk + 1, 3*chunk + 7, 300*chunk + 5}
}

// savedTo saves one part and fails the test if that fails.
func savedTo(t *testing.T, g *fakeGate, part SavePart, more ...func(*SaveOptions)) Snapshot {
	t.Helper()
	o := SaveOptions{Session: "s", Parts: []SavePart{part}}
	for _, f := range more {
		f(&o)
	}
	got, err := g.client(t).Save(t.Context(), o)
	if err != nil {
		t.Fatalf("Save: %v", err)
	}
	return got
}

// fileOf restores to a file and gives what is in it.
func fileOf(t *testing.T, g *fakeGate, size int64, o RestoreOptions) ([]byte, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	o.At = f
	if _, err := g.client(t).Restore(t.Context(), fakeSHA, o); err != nil {
		return nil, err
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return got, nil
}

// What was saved comes back, whatever its size, to a file and in order.
func TestSaveAndRestore(t *testing.T) {
	for _, kind := range []string{snapshot.KindMemory, snapshot.KindFiles} {
		for _, n := range sizesOf(4 << 10) {
			g := newFakeGate(t)
			want := memory(byte(n), n)
			savedTo(t, g, SavePart{Kind: kind, ChunkBytes: 4 << 10, Size: int64(n), Open: opens(want)})
			var out bytes.Buffer
			back, err := g.client(t).Restore(t.Context(), fakeSHA, RestoreOptions{To: &out})
			if err != nil || !bytes.Equal(out.Bytes(), want) {
				t.Fatalf("%s of %d bytes: Restore in order: %d bytes, %v", kind, n, out.Len(), err)
			}
			if back.ID != "an-id" || back.Seed != "a-seed" || back.Bytes != int64(n) {
				t.Errorf("Restore of %d bytes tells %q, %q and %d bytes", n, back.ID, back.Seed, back.Bytes)
			}
			if got, err := fileOf(t, g, int64(n), RestoreOptions{}); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s of %d bytes: Restore to a file: %d bytes, %v", kind, n, len(got), err)
			}
		}
	}
}

// Several parts, one of them a pipe whose size nobody knows, with progress to the end.
func TestSaveParts(t *testing.T) {
	g := newFakeGate(t)
	disk, files := memory(1, 3<<20), memory(2, 700_000)
	var last SaveProgress
	_, err := g.client(t).Save(t.Context(), SaveOptions{
		Session: "s", Parts: []SavePart{
			{Name: "d", Kind: snapshot.KindDisk, Size: int64(len(disk)), Open: opens(disk)},
			{Name: "f", Kind: snapshot.KindFiles, Size: -1, Open: opens(files)},
		},
		Extra: map[string]any{"colour": "green"}, Machine: map[string]string{"arch": "amd64"},
		Progress: func(p SaveProgress) { last = p },
	})
	if err != nil {
		t.Fatal(err)
	}
	if last.Total != -1 || last.Read != int64(len(disk)+len(files)) || last.Saved == 0 || last.Sent == 0 {
		t.Errorf("progress at the end = %+v", last)
	}
	if g.spec["colour"] != "green" || g.spec["format"] != float64(snapshot.FormatVersion) {
		t.Errorf("the upload began with %v", g.spec)
	}
	for part, want := range map[string][]byte{"d": disk, "f": files} {
		var out bytes.Buffer
		if _, err := g.client(t).Restore(t.Context(), fakeSHA, RestoreOptions{Part: part, To: &out}); err != nil || !bytes.Equal(out.Bytes(), want) {
			t.Errorf("part %s: %d bytes, %v", part, out.Len(), err)
		}
	}
	if _, err := g.client(t).Restore(t.Context(), fakeSHA, RestoreOptions{Part: "x", To: io.Discard}); !errors.Is(err, errNoSuch) {
		t.Errorf("a part that is not there: %v", err)
	}
}

// A range is restored without the rest.
func TestRestoreRange(t *testing.T) {
	g := newFakeGate(t)
	want := memory(3, 5<<20)
	savedTo(t, g, SavePart{Size: int64(len(want)), Open: opens(want)})
	for _, r := range [][2]int64{{0, 1}, {5, 4096}, {16 << 10, 16 << 10}, {1 << 20, 3 << 20}, {4<<20 + 3, 0}} {
		var out bytes.Buffer
		end := r[0] + r[1]
		if r[1] == 0 {
			end = int64(len(want))
		}
		if _, err := g.client(t).Restore(t.Context(), fakeSHA, RestoreOptions{To: &out, Offset: r[0], Length: r[1]}); err != nil || !bytes.Equal(out.Bytes(), want[r[0]:end]) {
			t.Errorf("range %v: %d bytes, %v", r, out.Len(), err)
		}
	}
	if _, err := g.client(t).Restore(t.Context(), fakeSHA, RestoreOptions{To: io.Discard, Offset: int64(len(want)) + 1}); !errors.Is(err, snapshot.ErrRange) {
		t.Errorf("a range behind the end: %v", err)
	}
}

// cut ends a request's connection.
func cutConnection(http.ResponseWriter) bool { panic(http.ErrAbortHandler) }

// Connections that are cut, and servers that are busy, are met again.
func TestSaveThroughFaults(t *testing.T) {
	g := newFakeGate(t)
	g.fault = func(what string, n int, w http.ResponseWriter, r *http.Request) bool {
		switch {
		case what == "POST missing" && n == 1, what == "POST chunks" && n == 2:
			return cutConnection(w)
		case what == "POST chunks" && n == 3:
			w.Header().Set("Retry-After", "0")
			g.answer(w, http.StatusTooManyRequests, map[string]string{"error": "too many requests"})
			return true
		}
		return false
	}
	want := memory(4, 26<<20)
	savedTo(t, g, SavePart{Size: int64(len(want)), Open: opens(want)})
	var out bytes.Buffer
	if _, err := g.client(t).Restore(t.Context(), fakeSHA, RestoreOptions{To: &out}); err != nil || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("Restore: %d bytes, %v", out.Len(), err)
	}
}

// Who is interrupted goes on with the upload's id, and sends nothing twice.
func TestSaveResumes(t *testing.T) {
	g := newFakeGate(t)
	want := memory(5, 26<<20)
	ctx, cancel := context.WithCancel(t.Context())
	g.fault = func(what string, n int, w http.ResponseWriter, r *http.Request) bool {
		if what == "POST chunks" && n == 3 {
			cancel()
			return cutConnection(w)
		}
		return false
	}
	id := ""
	o := SaveOptions{
		Session: "s", Workers: 1, Begun: func(up Upload) { id = up.ID },
		Parts: []SavePart{{Size: int64(len(want)), Open: opens(want)}},
	}
	if _, err := g.client(t).Save(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("Save while it is interrupted: %v", err)
	}
	g.mu.Lock()
	sent, dropped := g.chunks, g.dropped
	g.fault = nil
	g.mu.Unlock()
	if sent == 0 || dropped || id != "u1" {
		t.Fatalf("after the interruption %d chunks, dropped %v, upload %q", sent, dropped, id)
	}
	o.Upload = id
	if _, err := g.client(t).Save(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if all := len(g.blobs); g.chunks != all {
		t.Errorf("%d chunks were sent for %d: some twice", g.chunks, all)
	}
	o.Parts = append(o.Parts, o.Parts[0])
	if _, err := g.client(t).Save(t.Context(), o); !errors.Is(err, errOtherParts) {
		t.Errorf("going on with other parts: %v", err)
	}
}

// A refusal is told with its facts, and the upload is let go of.
func TestSaveRefused(t *testing.T) {
	g := newFakeGate(t)
	g.fault = func(what string, n int, w http.ResponseWriter, r *http.Request) bool {
		if what == "POST seal" {
			g.answer(w, http.StatusRequestEntityTooLarge, map[string]any{"error": "over", "code": "over_cap", "cap": 5, "size": 9})
			return true
		}
		return false
	}
	want := memory(6, 1<<20)
	_, err := g.client(t).Save(t.Context(), SaveOptions{Session: "s", Parts: []SavePart{{Size: int64(len(want)), Open: opens(want)}}})
	var refused *ServerError
	if !errors.As(err, &refused) || refused.Code != "over_cap" || !strings.Contains(string(refused.Body), `"cap":5`) || !g.dropped {
		t.Errorf("Save over the cap: %v, dropped %v", err, g.dropped)
	}
	short := SavePart{Size: int64(len(want)) + 1, Open: opens(want)}
	if _, err := g.client(t).Save(t.Context(), SaveOptions{Session: "s", Parts: []SavePart{short}}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Save of an image that is shorter than it was said: %v", err)
	}
	if _, err := g.client(t).Save(t.Context(), SaveOptions{Session: "s"}); !errors.Is(err, errNoParts) {
		t.Errorf("Save of nothing: %v", err)
	}
}

// Wrong bytes, chunks out of their places, too few of them and answers that are cut are
// errors; a cut that does not last is not noticed.
func TestD17_RestoreNeverWrongBytes(t *testing.T) {
	want := memory(7, 2<<20)
	other := memory(8, 16<<10)
	for name, tc := range map[string]struct {
		bend func(n int, r *snapshot.Record)
		want error
	}{
		"flipped": {func(n int, r *snapshot.Record) {
			r.Blob = bytes.Clone(r.Blob)
			if len(r.Blob) > 0 {
				r.Blob[len(r.Blob)/2] ^= 1
			}
		}, snapshot.ErrDamaged},
		"another hash": {func(n int, r *snapshot.Record) {
			if n == 2 {
				r.Hash, r.Blob = snapshot.Hash(sha256.Sum256(other)), other
			}
		}, snapshot.ErrDamaged},
		"zeros": {func(n int, r *snapshot.Record) {
			if n == 8 {
				r.Hash, r.Blob = snapshot.Hash{}, nil
			}
		}, snapshot.ErrDamaged},
		"moved": {func(n int, r *snapshot.Record) {
			if n == 4 {
				r.Offset += 16 << 10
			}
		}, ErrBadAnswer},
	} {
		for _, workers := range []int{1, 3} {
			g := newFakeGate(t)
			savedTo(t, g, SavePart{Size: int64(len(want)), Open: opens(want)})
			g.bend = tc.bend
			if _, err := g.client(t).Restore(t.Context(), fakeSHA, RestoreOptions{To: io.Discard, Workers: workers}); !errors.Is(err, tc.want) {
				t.Errorf("%s, %d workers: %v, want %v", name, workers, err, tc.want)
			}
		}
	}
	g := newFakeGate(t)
	savedTo(t, g, SavePart{Size: int64(len(want)), Open: opens(want)})
	g.fault = func(what string, n int, w http.ResponseWriter, r *http.Request) bool {
		return what == "GET image" && n == 1 && cutConnection(w)
	}
	if got, err := fileOf(t, g, int64(len(want)), RestoreOptions{}); err != nil || !bytes.Equal(got, want) {
		t.Errorf("Restore through one cut: %d bytes, %v", len(got), err)
	}
	g.fault = func(what string, _ int, w http.ResponseWriter, r *http.Request) bool {
		if what != "GET image" {
			return false
		}
		w.Header().Set("Trailer", "X-Headgate-Error")
		_ = snapshot.NewSparseWriter(w).Flush()
		w.Header().Set("X-Headgate-Error", `{"error":"leaf 1","code":"snapshot_damaged"}`)
		return true
	}
	var refused *ServerError
	if _, err := fileOf(t, g, int64(len(want)), RestoreOptions{}); !errors.As(err, &refused) || refused.Code != "snapshot_damaged" {
		t.Errorf("Restore of what the server cannot read: %v", err)
	}
}

// A memo spares hashing, and what has changed is saved all the same.
func TestSaveWithMemo(t *testing.T) {
	g := newFakeGate(t)
	path := filepath.Join(t.TempDir(), "memo")
	want := memory(9, 5<<20)
	for range 3 {
		m, err := OpenMemo(path)
		if err != nil {
			t.Fatal(err)
		}
		g.leaves = map[string]map[int]snapshot.Leaf{}
		savedTo(t, g, SavePart{Size: int64(len(want)), Open: opens(want)}, func(o *SaveOptions) { o.Memo = m })
		var out bytes.Buffer
		if _, err := g.client(t).Restore(t.Context(), fakeSHA, RestoreOptions{To: &out}); err != nil || !bytes.Equal(out.Bytes(), want) {
			t.Fatalf("Restore: %d bytes, %v", out.Len(), err)
		}
		want[3<<20]++
		want[0]++
	}
}

// Chunks of a sealed save are what the server gets, and their contents what comes back.
func TestSaveSealed(t *testing.T) {
	g := newFakeGate(t)
	seal := func(buf, content []byte) []byte {
		buf = append(buf, 'S')
		for _, c := range content {
			buf = append(buf, c^0x55)
		}
		return buf
	}
	want := memory(10, 5<<20)
	savedTo(t, g, SavePart{Size: int64(len(want)), Open: opens(want)}, func(o *SaveOptions) { o.Seal = seal })
	for hash, content := range g.contents {
		if content[0] != 'S' || snapshot.ChunkOf(content).Hash != hash {
			t.Fatalf("the server got a chunk that is not sealed")
		}
	}
	if len(g.contents) == 0 {
		t.Error("no chunk was sent")
	}
}
