package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// Images of all sizes around a chunk and a leaf restore as they were saved, however they
// were announced; 0 bytes have no chunks, and zeros no blobs (case 14.2, D-01).
func TestCase14_2_D01_SizesRestore(t *testing.T) {
	sizes := []int{0, 1, MinChunk - 1, MinChunk, MinChunk + 1, 2 * MinChunk, 3*MinChunk + 7, leafBytes, leafBytes + 1}
	for _, layout := range []Layout{Pages, Stream} {
		for _, size := range sizes {
			t.Run(fmt.Sprint(layout, size), func(t *testing.T) {
				w := saving(t, Limits{})
				data := memoryOf(t, snapshottest.NewImage(uint64(size), int64(size), 0.3))
				for _, told := range []int64{-1, int64(size)} {
					got := w.stream(t, SaveSpec{Name: fmt.Sprint(told), Parts: []PartSpec{{Layout: layout, ChunkBytes: MinChunk, Size: told}}}, data)
					if got.State != Ready || !got.Usable || got.Size != int64(size) || got.VerifiedAt.IsZero() {
						t.Errorf("saved %+v, want a ready one of %d bytes", got, size)
					}
					if cut := cutUp(t, PartSpec{Layout: layout, ChunkBytes: MinChunk}, data); got.Root != cut.root {
						t.Errorf("root = %s, want %s", got.Root, cut.root)
					}
					w.wantRestored(t, "saved", got.Commit, "", data)
				}
			})
		}
	}
	w := saving(t, Limits{})
	before := len(w.ids())
	zeros := w.stream(t, SaveSpec{}, make([]byte, 10*MinChunk))
	if zeros.Stored != 0 || zeros.New != 0 || zeros.Zero != 10*MinChunk {
		t.Errorf("zeros = %+v, want nothing stored", zeros)
	}
	if n := len(w.ids()) - before; n != 3 {
		t.Errorf("zeros have %d objects, want commit, tree and manifest", n)
	}
}

// A snapshot is a commit of the workspace's in git's form, whose message names its session.
func TestCommitOfASnapshot(t *testing.T) {
	w := saving(t, Limits{})
	got := w.stream(t, SaveSpec{Boundary: "leave", Name: "n"}, page("x"))
	_, data, err := w.as(backend()).Object(t.Context(), got.Commit)
	if err != nil {
		t.Fatalf("Object: %v", err)
	}
	who := fmt.Sprintf("headgate <headgate@localhost> %d +0000", got.CreatedAt.Unix())
	for _, line := range []string{"parent " + got.Workspace.String(), "author " + who, "committer " + who, "Session: s", "Boundary: leave"} {
		if !strings.Contains(string(data), "\n"+line+"\n") {
			t.Errorf("commit has no line %q:\n%s", line, data)
		}
	}
	if head := w.head(t, RefPrefix+"s"); head != got.Commit {
		t.Errorf("ref is at %s, want %s", head, got.Commit)
	}
}

// A save of what is saved already is skipped: it makes no object, no commit and no event.
func TestSaveOfTheSameIsSkipped(t *testing.T) {
	w := saving(t, Limits{})
	data := memoryOf(t, snapshottest.NewImage(1, leafBytes, 0.5))
	first := w.stream(t, SaveSpec{}, data)
	objects, events := len(w.ids()), len(w.log(t))
	again := w.stream(t, SaveSpec{}, data)
	if !again.Skipped || again.Commit != first.Commit {
		t.Errorf("second save = %+v, want %s, skipped", again, first.Commit)
	}
	for _, e := range w.log(t)[events:] {
		if e.Type != "" {
			t.Errorf("skipping told %s", e.Type)
		}
	}
	if n := len(w.ids()); n != objects {
		t.Errorf("skipping made %d objects", n-objects)
	}
	for what, s := range map[string]SaveSpec{"other machine": {Machine: map[string]string{"cpu": "x"}}, "other exclusions": {Excluded: []Excluded{{"gpu", "no"}}}} {
		if got := w.stream(t, s, data); got.Skipped || got.New != 0 {
			t.Errorf("%s: %+v, want a new snapshot that adds nothing", what, got)
		}
	}
	w.sound(t)
}

// Saves after changes store what has changed, use the trees of leaves that have not, and
// find pages that have moved.
func TestSaveAgainStoresWhatHasChanged(t *testing.T) {
	image := snapshottest.NewImage(7, 2*leafBytes, 0.4)
	for name, how := range map[string]snapshottest.How{"clustered": snapshottest.Clustered, "scattered": snapshottest.Scattered} {
		t.Run(name, func(t *testing.T) {
			w := saving(t, Limits{})
			w.stream(t, SaveSpec{}, memoryOf(t, image))
			changed := image.Mutate(3, 0.02, how)
			got := w.stream(t, SaveSpec{}, memoryOf(t, changed))
			most := int64(changed.Changed(image)) * (MinChunk + 64)
			if got.New == 0 || got.New > most {
				t.Errorf("save stores %d bytes for %d pages", got.New, changed.Changed(image))
			}
			w.wantRestored(t, "changed", got.Commit, "", memoryOf(t, changed))
		})
	}
	w := saving(t, Limits{})
	data := memoryOf(t, snapshottest.NewImage(8, 3*leafBytes, 0))
	first := w.stream(t, SaveSpec{}, data)
	before := w.ids()
	moved := append(append(bytes.Clone(data[:leafBytes]), data[2*leafBytes:]...), data[leafBytes:2*leafBytes]...)
	got := w.stream(t, SaveSpec{}, moved)
	if got.New != 0 || got.Stored != first.Stored {
		t.Errorf("moved pages: %d new bytes of %d, want none of %d", got.New, got.Stored, first.Stored)
	}
	if n := len(w.ids()) - len(before); n > 8 {
		t.Errorf("moved pages make %d objects: the leaf that has not changed is the same tree", n)
	}
	w.wantRestored(t, "moved", got.Commit, "", moved)
	w.wantRestored(t, "before", first.Commit, "", data)
}

// What is inserted into a stream moves what follows, and is all that is stored.
func TestInsertIntoAStream(t *testing.T) {
	w := saving(t, Limits{})
	tar := snapshottest.NewStream(5, 3<<20)
	spec := SaveSpec{Parts: []PartSpec{{Kind: KindFiles, ChunkBytes: MinChunk, Size: -1}}}
	read := func(s *snapshottest.Stream) []byte {
		b, err := io.ReadAll(s.Reader())
		if err != nil {
			t.Fatalf("read stream: %v", err)
		}
		return b
	}
	w.stream(t, spec, read(tar))
	longer := read(tar.Insert(9, 1<<20, 1000))
	got := w.stream(t, spec, longer)
	if got.New > 64<<10 {
		t.Errorf("inserting 1000 bytes stores %d", got.New)
	}
	w.wantRestored(t, "inserted", got.Commit, KindFiles, longer)
}

// failingReader gives what it has, then an error.
type failingReader struct {
	io.Reader
	err error
}

func (r failingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = r.err
	}
	return n, err
}

// A body that is cut, or is not as long as was announced, leaves nothing behind but a
// record of the failure; what was saved before restores (case 14.3).
func TestCase14_3_CutBodySavesNothing(t *testing.T) {
	gone := errors.New("connection reset")
	data := memoryOf(t, snapshottest.NewImage(2, leafBytes+5, 0.2))
	for name, c := range map[string]struct {
		size int64
		body io.Reader
		want error
	}{
		"short":        {leafBytes + 6, bytes.NewReader(data), io.ErrUnexpectedEOF},
		"long":         {leafBytes + 4, bytes.NewReader(data), ErrInvalid},
		"reset":        {-1, failingReader{bytes.NewReader(data), gone}, gone},
		"cut, unknown": {-1, failingReader{bytes.NewReader(data), io.ErrUnexpectedEOF}, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			w := saving(t, Limits{})
			first := w.stream(t, SaveSpec{}, page("a"))
			objects := maps.Clone(w.objects)
			if _, err := w.tryStream(SaveSpec{Parts: []PartSpec{pagesOf(int(c.size))}}, c.body); !errors.Is(err, c.want) {
				t.Fatalf("Save = %v, want %v", err, c.want)
			}
			if head := w.head(t, RefPrefix+"s"); head != first.Commit || len(w.objects) != len(objects) {
				t.Errorf("ref is at %s, want %s and no new object", head, first.Commit)
			}
			w.wantRestored(t, "first", first.Commit, "", page("a"))
			w.sound(t)
		})
	}
}

// Nothing is captured of a sandbox that was not quiet, nothing of a dry run is kept, and
// what a dry run tells is what a save then does.
func TestNotQuietAndDryRun(t *testing.T) {
	w := saving(t, Limits{})
	image := snapshottest.NewImage(4, leafBytes, 0.3)
	w.stream(t, SaveSpec{}, memoryOf(t, image))
	objects, keys := len(w.ids()), len(w.keys(t, ""))
	data := memoryOf(t, image.Mutate(1, 0.1, snapshottest.Scattered))
	if _, err := w.tryStream(SaveSpec{Quiet: &Quiet{"a", "b"}}, bytes.NewReader(data)); !errors.Is(err, ErrNotQuiet) {
		t.Errorf("Save of what was not quiet = %v, want %v", err, ErrNotQuiet)
	}
	dry := w.stream(t, SaveSpec{DryRun: true}, data)
	if len(w.ids()) != objects || len(w.keys(t, "")) != keys || !dry.Commit.IsZero() {
		t.Errorf("a dry run has kept something: %+v", dry)
	}
	got := w.stream(t, SaveSpec{Quiet: &Quiet{"a", "a"}}, data)
	if dry.New != got.New || dry.Stored != got.Stored || dry.Root != got.Root || got.New == 0 {
		t.Errorf("a dry run tells %+v, the save %+v", dry, got)
	}
}

// A save that is over the cap says so as soon as it is; the state before stays (C-05).
func TestC05_SaveOverTheCap(t *testing.T) {
	w := saving(t, Limits{Cap: 100_000})
	first := w.stream(t, SaveSpec{}, page("a"))
	endless := io.MultiReader(snapshottest.NewImage(1, 1<<30, 0).Reader())
	_, err := w.tryStream(SaveSpec{}, endless)
	var over *OverCapError
	if !errors.As(err, &over) || over.Cap != 100_000 || over.Size <= over.Cap || over.Size > 10*over.Cap {
		t.Fatalf("Save = %v, want over the cap, early", err)
	}
	if st := w.standing(t, "s"); !st.Stale || st.Last != first.Commit {
		t.Errorf("standing = %+v, want stale at %s", st, first.Commit)
	}
	w.stream(t, SaveSpec{}, page("b"))
	if st := w.standing(t, "s"); st.Stale {
		t.Errorf("standing after a save that fits = %+v, want it stale no more", st)
	}
}

// The last of many saves restores by as many reads as the first: no chain is followed (D-16).
func TestD16_NoChainIsFollowed(t *testing.T) {
	w := saving(t, Limits{})
	image := snapshottest.NewImage(3, 2*leafBytes, 0.6)
	var saved []Snapshot
	var images []*snapshottest.Image
	for n := range 40 {
		saved, images = append(saved, w.stream(t, SaveSpec{}, memoryOf(t, image))), append(images, image)
		image = image.Mutate(uint64(n), 0.01, snapshottest.Scattered)
	}
	reads := func(n int) int {
		repo := &countingRepo{fakeRepo: w.as(backend())}
		got, err := restored(w.keeper(w.k.Limits), repo, saved[n].Commit, "")
		if err != nil || !bytes.Equal(got, memoryOf(t, images[n])) {
			t.Fatalf("save %d does not restore: %v", n, err)
		}
		return repo.objects
	}
	if first, last := reads(0), reads(39); last > first {
		t.Errorf("the first restores by %d reads of trees and lists, the last by %d", first, last)
	}
}

// A countingRepo counts reads of objects that are no chunks.
type countingRepo struct {
	*fakeRepo
	objects int
}

func (r *countingRepo) Object(ctx context.Context, id OID) (string, []byte, error) {
	r.w.mu.Lock()
	r.objects++
	r.w.mu.Unlock()
	return r.fakeRepo.Object(ctx, id)
}
