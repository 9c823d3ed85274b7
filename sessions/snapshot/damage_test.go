package snapshot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// Of a snapshot with a chunk that is gone, flipped or cut nothing wrong comes out: what
// does is the image's beginning, the error names the chunk, the session is told, and
// the state before restores (case 14.1, B-09, D-17).
func TestCase14_1_B09_D17_DamagedChunk(t *testing.T) {
	for name, spoil := range map[string]func([]byte) []byte{
		"removed": func([]byte) []byte { return nil },
		"flipped": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"cut":     func(b []byte) []byte { return b[:len(b)/2] },
		"empty":   func(b []byte) []byte { return b[:0] },
		"longer":  func(b []byte) []byte { return append(b, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			w := saving(t, Limits{})
			image := snapshottest.NewImage(1, leafBytes+leafBytes/4, 0)
			before := w.stream(t, SaveSpec{}, memoryOf(t, image))
			changed := memoryOf(t, image.Mutate(1, 0.05, snapshottest.Scattered))
			got := w.stream(t, SaveSpec{}, changed)
			old, now := w.blobsOf(t, before.Commit, 0), w.blobsOf(t, got.Commit, 0)
			at := len(now) * 2 / 3
			for old[at] == now[at] {
				at++
			}
			w.spoil(now[at], spoil)
			out, err := restored(w.keeper(w.k.Limits), w.as(backend()), got.Commit, "")
			var damaged *DamagedError
			if !errors.As(err, &damaged) || damaged.Commit != got.Commit || !strings.Contains(damaged.What, "chunk "+leafName(at/LeafChunks)+"/"+chunkName(at%LeafChunks)) {
				t.Fatalf("restore = %v, want the chunk named", err)
			}
			if len(out) > at*MinChunk || !bytes.HasPrefix(changed, out) {
				t.Errorf("%d bytes came out, of which some are wrong", len(out))
			}
			if s := w.got(t, got.Commit); s.State != Failed || s.Usable {
				t.Errorf("snapshot is %+v, want failed", s)
			}
			if w.users.told["s"] == "" {
				t.Error("the session is not told")
			}
			if _, err := restored(w.k, w.as(backend()), got.Commit, ""); !errors.Is(err, ErrDamaged) {
				t.Errorf("second restore = %v, want %v", err, ErrDamaged)
			}
			w.wantRestored(t, "before", before.Commit, "", memoryOf(t, image))
			again := w.stream(t, SaveSpec{}, changed)
			w.wantRestored(t, "saved anew", again.Commit, "", changed)
		})
	}
}

// A save whose base is damaged where nothing has changed is refused, and the next one
// builds on something else: what was re-used has been read again.
func TestSaveReadsWhatItUsesAgain(t *testing.T) {
	w := saving(t, Limits{})
	image := snapshottest.NewImage(2, leafBytes, 0)
	first := w.stream(t, SaveSpec{}, memoryOf(t, image))
	w.spoil(w.blobsOf(t, first.Commit, 0)[7], func(b []byte) []byte { b[0] ^= 1; return b })
	changed := memoryOf(t, image)
	copy(changed[200*MinChunk:], "changed")
	_, err := w.tryStream(SaveSpec{}, bytes.NewReader(changed))
	var damaged *DamagedError
	if !errors.As(err, &damaged) || damaged.Commit != first.Commit {
		t.Fatalf("Save = %v, want the base damaged", err)
	}
	got := w.stream(t, SaveSpec{}, changed)
	if got.Parent == first.Commit && got.New != got.Stored {
		t.Errorf("saved %+v, want all of it new", got)
	}
	w.wantRestored(t, "saved anew", got.Commit, "", changed)
}

// Flip, cut, double or remove any byte of any object, or the object: a restore and a
// save on top give an error or the right bytes.
func TestDamageIsAnErrorOrTheRightBytes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		inWorld(rt, Limits{}, func(w *world) {
			layout := draw(rt, "layout", Pages, Stream)
			spec := SaveSpec{Parts: []PartSpec{{Layout: layout, ChunkBytes: MinChunk, Size: -1}}}
			image := snapshottest.NewImage(rapid.Uint64Range(1, 5).Draw(rt, "seed"), leafBytes/16, 0.3)
			one := w.stream(rt, spec, memoryOf(rt, image))
			changed := image.Mutate(1, 0.1, snapshottest.Scattered)
			two := w.stream(rt, spec, memoryOf(rt, changed))
			w.spoilAny(rt)
			for commit, want := range map[OID]*snapshottest.Image{one.Commit: image, two.Commit: changed} {
				w.errorOrRight(rt, commit, memoryOf(rt, want))
			}
			next := memoryOf(rt, changed.Mutate(2, 0.05, snapshottest.Scattered))
			if got, err := w.tryStream(spec, bytes.NewReader(next)); err == nil {
				out, err := restored(w.keeper(w.k.Limits), w.as(backend()), got.Commit, "")
				if err != nil || !bytes.Equal(out, next) {
					rt.Fatalf("a save that succeeded restores %d bytes, %v", len(out), err)
				}
			} else if !isDamage(err) {
				rt.Fatalf("Save = %v, want it to say what is damaged", err)
			}
		})
	})
}

// spoilAny spoils one byte of one object, or removes it.
func (w *world) spoilAny(t *rapid.T) {
	ids := w.ids()
	id := ids[rapid.IntRange(0, len(ids)-1).Draw(t, "object")]
	how := draw(t, "how", "flip", "cut", "double", "take out", "remove")
	place := rapid.IntRange(0, 1<<20).Draw(t, "place")
	bit := byte(1) << rapid.IntRange(0, 7).Draw(t, "bit")
	w.spoil(id, func(b []byte) []byte {
		if len(b) == 0 {
			return b
		}
		at := place % len(b)
		switch how {
		case "flip":
			b[at] ^= bit
		case "cut":
			b = b[:at]
		case "double":
			b = append(b[:at+1], b[at:]...)
		case "take out":
			b = append(b[:at], b[at+1:]...)
		case "remove":
			return nil
		}
		return b
	})
}

func (w *world) errorOrRight(t fataler, commit OID, want []byte) {
	t.Helper()
	k, repo := w.keeper(w.k.Limits), w.as(backend())
	data, _, err := sparse(k, repo, commit, "", false)
	if err != nil && !isDamage(err) || err == nil && !bytes.Equal(data, want) {
		t.Fatalf("sparse restore has %d bytes, %v", len(data), err)
	}
	data, err = restored(k, repo, commit, "")
	if err != nil && (!isDamage(err) || !bytes.HasPrefix(want, data)) || err == nil && !bytes.Equal(data, want) {
		t.Fatalf("restored %d bytes, %v", len(data), err)
	}
	if err != nil && !errors.As(err, new(*DamagedError)) {
		t.Fatalf("restore = %v, which names no snapshot", err)
	}
}

// running is how many goroutines of this package work on saves and restores.
func running() int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("errgroup.(*Group).Go.func"))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type stoppingWriter func()

func (stop stoppingWriter) Write(p []byte) (int, error) { stop(); return len(p), nil }

var errWrite = errors.New("connection reset")

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errWrite }

// Saves and restores that are given up end all that they have begun.
func TestCancelledWorkEnds(t *testing.T) {
	w := saving(t, Limits{Workers: 3})
	data := memoryOf(t, snapshottest.NewImage(1, 2*leafBytes, 0))
	got := w.stream(t, SaveSpec{}, data)
	im, err := w.k.Open(t.Context(), w.as(backend()), got.Commit, "")
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	before := running()
	for range 20 {
		ctx, stop := context.WithCancel(t.Context())
		if err := im.WriteRange(ctx, stoppingWriter(stop), 0, im.Part.Size); !errors.Is(err, context.Canceled) && err != nil {
			t.Errorf("WriteRange = %v", err)
		}
		if err := im.WriteRange(t.Context(), failingWriter{}, 0, im.Part.Size); !errors.Is(err, errWrite) {
			t.Errorf("WriteRange to a broken connection = %v, want %v", err, errWrite)
		}
		ctx, stop = context.WithCancel(t.Context())
		body := readerFunc(func(p []byte) (int, error) { stop(); return len(p), ctx.Err() })
		if _, err := w.k.Save(ctx, w.as(backend()), SaveSpec{Session: "s"}, io.MultiReader(bytes.NewReader(data), body)); !errors.Is(err, context.Canceled) {
			t.Errorf("Save = %v, want %v", err, context.Canceled)
		}
		stop()
	}
	for late := time.Now().Add(20 * time.Second); running() > before; runtime.Gosched() { // what has ended may not have left yet
		if time.Now().After(late) {
			t.Fatalf("%d of what was begun go on", running()-before)
		}
	}
	w.sound(t)
}
