package integration

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

const snapshotPrefix = "refs/namespaces/state/refs/snapshots/"

// secretImage is what b has saved.
var secretImage = snapshottest.NewImage(1313, 300_000, 0)

// saveSecrets makes a snapshot of b.
func (v *vault) saveSecrets() {
	v.g.t.Helper()
	a := v.g.want(201, harness.Ask{
		Method: "POST", Path: v.path("/sessions/b/snapshots"), Token: v.both(), Body: secretImage.Reader(),
		Header: map[string]string{"Content-Type": "application/octet-stream"},
	})
	v.snapshot = a.Text("sha")
	u := v.runnerOf("b", v.both())
	dir := u.unbundled(v.snapshot)
	for line := range strings.Lines(v.g.run(dir, "ls-tree", "-r", "-t", v.snapshot)) {
		fields := strings.Fields(line)
		switch path := fields[3]; {
		case fields[1] == "tree":
			v.leaf = fields[2]
		case strings.HasSuffix(path, "/00"):
			v.chunk = fields[2]
		}
	}
	if v.snapshot == "" || v.leaf == "" || v.chunk == "" {
		v.g.t.Fatalf("snapshot %q has tree %q and chunk %q", v.snapshot, v.leaf, v.chunk)
	}
}

// What another session has saved is missing to an upload as if nobody had it: no hash
// tells that the server holds a content. What the session itself has saved is not.
func TestA13_ChunksOfOthersAreMissing(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		v := newVault(g)
		ask := func(upload string) harness.Answer {
			return g.do(harness.Ask{
				Method: "POST", Path: v.path("/sessions/a/snapshots/uploads/" + upload + "/missing"), Token: v.token, Body: bytes.NewReader(secretLeaf(t)),
				Header: map[string]string{"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"},
			})
		}
		begin := func() string {
			a := g.want(201, harness.Ask{Method: "POST", Path: v.path("/sessions/a/snapshots/uploads"), Token: v.token, JSON: map[string]any{"parts": []map[string]any{{"size_bytes": secretImage.Size()}}}})
			return a.Text("id")
		}
		chunks := int(secretImage.Size()+snapshot.DefaultChunk-1) / snapshot.DefaultChunk
		if a := ask(begin()); a.Status != 200 || len(a.Body) != chunks*sha256.Size {
			t.Errorf("missing of chunks that only b has = %d with %d bytes, want all %d hashes", a.Status, len(a.Body), chunks)
		}
		g.want(201, harness.Ask{
			Method: "POST", Path: v.path("/sessions/a/snapshots"), Token: v.token, Body: secretImage.Reader(), Header: map[string]string{"Content-Type": "application/octet-stream"},
		})
		if a := ask(begin()); a.Status != 200 || len(a.Body) != 0 {
			t.Errorf("missing of chunks that a has saved itself = %d with %d bytes, want none", a.Status, len(a.Body))
		}
	})
}

// secretLeaf is the list of the only leaf of b's image, as it is told to an upload.
func secretLeaf(t testing.TB) []byte {
	t.Helper()
	var all bytes.Buffer
	if _, err := secretImage.WriteTo(&all); err != nil {
		t.Fatal(err)
	}
	var chunks []snapshot.Chunk
	for all.Len() > 0 {
		chunks = append(chunks, snapshot.ChunkOf(bytes.Clone(all.Next(snapshot.DefaultChunk))))
	}
	body := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(nil, 0), uint16(len(chunks)))
	return snapshot.AppendList(body, chunks)
}
