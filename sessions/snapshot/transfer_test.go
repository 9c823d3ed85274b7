package snapshot

import (
	"bytes"
	"errors"
	"maps"
	"testing"

	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// exported is the bundle of a snapshot.
func (w *world) exported(t fataler, commit OID) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := w.k.Export(t.(*testing.T).Context(), w.as(backend()), commit, &b); err != nil {
		t.Fatalf("Export: %v", err)
	}
	return b.Bytes()
}

// A snapshot is carried to another server, and is the same commit there (D-15).
func TestD15_ImportedElsewhereIsTheSame(t *testing.T) {
	w := saving(t, Limits{})
	image := snapshottest.NewImage(1, leafBytes+99, 0.4)
	w.stream(t, SaveSpec{}, memoryOf(t, image))
	changed := memoryOf(t, image.Mutate(1, 0.1, snapshottest.Scattered))
	got := w.stream(t, SaveSpec{Name: "named"}, changed)
	bundle := w.exported(t, got.Commit)
	there := saving(t, Limits{})
	imported, err := there.k.Import(t.Context(), there.as(backend()), "s", bytes.NewReader(bundle), nil)
	if err != nil || imported.Commit != got.Commit || imported.Root != got.Root || imported.Name != "named" || imported.State != Ready {
		t.Fatalf("Import = %+v, %v, want %s", imported, err, got.Commit)
	}
	there.wantRestored(t, "imported", got.Commit, "", changed)
	there.sound(t)
	if _, err := there.k.Import(t.Context(), there.as(backend()), "s", bytes.NewReader(bundle), nil); err == nil {
		t.Error("it is imported twice")
	}
	next := there.stream(t, SaveSpec{}, memoryOf(t, image))
	if next.New >= next.Stored {
		t.Errorf("a save after it stores %d of %d bytes anew", next.New, next.Stored)
	}
}

// What is no snapshot, or one with damage, or over the cap, is not imported.
func TestImportRefusals(t *testing.T) {
	w := saving(t, Limits{})
	data := memoryOf(t, snapshottest.NewImage(1, leafBytes/4, 0))
	got := w.stream(t, SaveSpec{}, data)
	good := maps.Clone(w.objects)
	blob := w.blobsOf(t, got.Commit, 0)[3]
	workspace := got.Workspace
	odd := w.withEntry(t, got.Commit, "zzz", []byte("what no save makes"))
	good = maps.Clone(w.objects)
	isInvalid := func(err error) bool { return errors.Is(err, ErrInvalid) && !isDamage(err) }
	for name, c := range map[string]struct {
		limits Limits
		tip    OID
		spoil  func()
		want   func(error) bool
	}{
		"no snapshot":   {tip: workspace, want: isInvalid},
		"chunk is gone": {tip: got.Commit, spoil: func() { delete(w.objects, blob) }, want: isInvalid},
		"another entry": {tip: odd, want: isInvalid},
		"over the cap":  {limits: Limits{Cap: 1000}, tip: got.Commit, want: func(err error) bool { return errors.As(err, new(*OverCapError)) }},
		"must be sealed": {limits: Limits{RequireSeal: true}, tip: got.Commit,
			want: func(err error) bool { return errors.Is(err, ErrSealNeeded) }},
	} {
		t.Run(name, func(t *testing.T) {
			w.objects = maps.Clone(good)
			if c.spoil != nil {
				c.spoil()
			}
			var b bytes.Buffer
			if err := w.as(backend()).WriteBundle(t.Context(), &b, c.tip, ""); err != nil {
				t.Fatalf("WriteBundle: %v", err)
			}
			there := saving(t, c.limits)
			objects := len(there.ids())
			if _, err := there.k.Import(t.Context(), there.as(backend()), "s", &b, nil); !c.want(err) {
				t.Errorf("Import = %v", err)
			}
			if !there.head(t, RefPrefix+"s").IsZero() || len(there.ids()) != objects {
				t.Error("something of it is there")
			}
			there.sound(t)
		})
	}
	there := saving(t, Limits{})
	if _, err := there.k.Import(t.Context(), there.as(backend()), "s", bytes.NewReader([]byte("no bundle")), nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("Import of no bundle = %v, want %v", err, ErrInvalid)
	}
}

// withEntry is a snapshot's commit with one more file in its tree.
func (w *world) withEntry(t *testing.T, commit OID, name string, content []byte) OID {
	t.Helper()
	repo := w.as(backend())
	tree, err := treeOf(t.Context(), repo, commit)
	if err != nil {
		t.Fatal(err)
	}
	_, data, err := repo.Object(t.Context(), tree)
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := repo.Object(t.Context(), commit)
	if err != nil {
		t.Fatal(err)
	}
	blob := w.put("blob", content)
	data = append(append(data, "100644 "+name+"\x00"...), blob[:]...)
	return w.put("commit", bytes.Replace(text, []byte(tree.String()), []byte(w.put("tree", data).String()), 1))
}
