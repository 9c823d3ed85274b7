package httpapi

import (
	"bytes"
	"io"
	"testing"

	"github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/sessions/snapshot"
)

// The client saves, restores and carries by these routes; a streamed image with zeros in
// it as well, whose leaves it hashes itself.
func TestClientBySnapshotRoutes(t *testing.T) {
	h, there := newKeep(t, snapshot.Limits{}), newKeep(t, snapshot.Limits{})
	snapshots := func(h *house) *client.Snapshots {
		api, err := client.NewAPI(h.http.URL, h.write)
		if err != nil {
			t.Fatal(err)
		}
		return api.Snapshots(h.name)
	}
	img := image(1, 6<<20)
	clear(img[1<<20 : 4<<20])
	last := ""
	for _, kind := range []string{snapshot.KindMemory, snapshot.KindFiles} {
		for range 2 {
			part := client.SavePart{Kind: kind, Size: -1, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(img)), nil }}
			got, err := snapshots(h).Save(t.Context(), client.SaveOptions{Session: "s", Parts: []client.SavePart{part}})
			if err != nil || got.Zero < 2<<20 {
				t.Fatalf("Save of %s: %+v, %v", kind, got, err)
			}
			var out bytes.Buffer
			back, err := snapshots(h).Restore(t.Context(), got.SHA, client.RestoreOptions{To: &out})
			if err != nil || !bytes.Equal(out.Bytes(), img) || len(back.ID) != 36 {
				t.Fatalf("Restore of %s: %d bytes, %v", kind, out.Len(), err)
			}
			img[12345]++
			last = got.SHA
		}
	}
	var bundle bytes.Buffer
	if err := snapshots(h).Export(t.Context(), last, &bundle); err != nil {
		t.Fatal(err)
	}
	if in, err := snapshots(there).Import(t.Context(), "s", &bundle); err != nil || in.SHA != last {
		t.Fatalf("Import: %s, %v; want %s", in.SHA, err, last)
	}
	if l, err := snapshots(h).Lineage(t.Context(), last); err != nil || len(l.Ancestors) != 3 {
		t.Errorf("Lineage: %d ancestors, %v; want 3", len(l.Ancestors), err)
	}
	if d, err := snapshots(h).Delete(t.Context(), last, true); err != nil || d.Freed == 0 || !d.DryRun {
		t.Errorf("Delete, to see what it would free: %+v, %v", d, err)
	}
}
