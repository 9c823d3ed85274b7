package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/sessions/snapshot"
)

// An upload is a save in pieces, of one paged part.
type testUpload struct {
	h     *house
	id    string
	chunk int
	img   []byte
}

func (h *house) begin(img []byte, m meta) *testUpload {
	h.t.Helper()
	body := meta{"chunk_bytes": 4 << 10, "size_bytes": len(img)}
	for name, v := range m {
		body[name] = v
	}
	up := h.post(201, "/sessions/s/snapshots/uploads", body)
	return &testUpload{h, up["id"].(string), 4 << 10, img}
}

func (u *testUpload) path(tail string) string {
	return u.h.path("/sessions/s/snapshots/uploads/" + u.id + tail)
}

func (u *testUpload) leaves() (leaves []snapshot.Leaf) {
	for at := 0; at < len(u.img); at += u.chunk {
		c := snapshot.ChunkOf(u.img[at:min(at+u.chunk, len(u.img))])
		if n := at / u.chunk; n%snapshot.LeafChunks == 0 {
			leaves = append(leaves, snapshot.Leaf{Index: n / snapshot.LeafChunks})
		}
		last := &leaves[len(leaves)-1]
		last.Chunks = append(last.Chunks, c)
	}
	return leaves
}

// missing tells all lists in their binary form, and gives what is missing.
func (u *testUpload) missing() (hashes []snapshot.Hash) {
	u.h.t.Helper()
	var body []byte
	for _, leaf := range u.leaves() {
		body = binary.BigEndian.AppendUint32(body, uint32(leaf.Index))
		body = binary.BigEndian.AppendUint16(body, uint16(len(leaf.Chunks)))
		body = snapshot.AppendList(body, leaf.Chunks)
	}
	a := u.h.want(200, ask{method: "POST", path: u.path("/missing"), token: u.h.write, body: body, header: http.Header{"Content-Type": {octetMedia}}})
	for text := a.body; len(text) > 0; text = text[32:] {
		hashes = append(hashes, snapshot.Hash(text[:32]))
	}
	return hashes
}

func (u *testUpload) content(h snapshot.Hash) []byte {
	for at := 0; at < len(u.img); at += u.chunk {
		if c := u.img[at:min(at+u.chunk, len(u.img))]; sha256.Sum256(c) == [32]byte(h) {
			return c
		}
	}
	return nil
}

// records are chunks as they are sent together.
func (u *testUpload) records(hashes ...snapshot.Hash) []byte {
	u.h.t.Helper()
	var out bytes.Buffer
	w := snapshot.NewSparseWriter(&out)
	for _, h := range hashes {
		content := u.content(h)
		if err := w.Write(snapshot.Record{Length: int64(len(content)), Hash: h, Blob: content}); err != nil {
			u.h.t.Fatal(err)
		}
	}
	if err := w.End(snapshot.Hash{}); err != nil {
		u.h.t.Fatal(err)
	}
	return out.Bytes()
}

func (u *testUpload) send(hashes ...snapshot.Hash) answer {
	u.h.t.Helper()
	return u.h.do(ask{method: "POST", path: u.path("/chunks"), token: u.h.write, body: u.records(hashes...), header: http.Header{"Content-Type": {sparseMedia}}})
}

func (u *testUpload) seal() answer {
	u.h.t.Helper()
	var hashes []snapshot.Hash
	for _, leaf := range u.leaves() {
		hashes = append(hashes, leaf.Hash(snapshot.Pages))
	}
	root := snapshot.ImageRoot(snapshot.Part{Size: int64(len(u.img)), ChunkBytes: u.chunk, Layout: snapshot.Pages}, hashes)
	return u.h.do(ask{method: "POST", path: u.path("/seal"), token: u.h.write, body: meta{"roots": meta{"memory": root.String()}}})
}

// Hashes first, then only what is missing, in every form, then the seal.
func TestUpload(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	first := image(1, 2<<20)
	h.save("s", first, meta{"chunk_bytes": 4 << 10})
	img := bytes.Clone(first)
	img[0], img[1<<20] = img[0]+1, img[1<<20]+1
	u := h.begin(img, meta{})
	missing := u.missing()
	if len(missing) != 2 {
		t.Fatalf("%d chunks are missing, want the two that have changed", len(missing))
	}
	list := h.listed("s")
	if len(list) != 2 || !strings.HasPrefix(list[0], "capturing ") {
		t.Errorf("snapshots = %v, want one that is captured before the other", list)
	}
	early := u.seal()
	if early.status != 409 || code(t, early) != codeMissing || len(early.json(t)["missing"].([]any)) != 2 {
		t.Errorf("seal before all was sent = %d %s, want the two that are missing", early.status, early.body)
	}
	put := func(status int, hash snapshot.Hash, body []byte, coding ...string) answer {
		t.Helper()
		header := http.Header{}
		if len(coding) > 0 {
			header["Content-Encoding"] = coding
		}
		return h.want(status, ask{method: "PUT", path: u.path("/chunks/" + hash.String()), token: h.write, body: body, header: header})
	}
	if stored := put(200, missing[0], u.content(missing[0])).json(t)["stored"]; stored != 1.0 {
		t.Errorf("a chunk that is new: stored %v", stored)
	}
	put(200, missing[0], u.content(missing[0])) // again, as who does not know whether it has come
	if c := code(t, put(422, missing[1], u.content(missing[0]))); c != codeHash {
		t.Errorf("other bytes under a hash: %s", c)
	}
	put(400, missing[1], []byte("x"), "zstd")
	put(415, missing[1], u.content(missing[1]), "gzip")
	h.refused(415, "unsupported_media_type", ask{method: "POST", path: u.path("/chunks"), token: h.write, body: "x"})
	cut := u.records(missing[1])
	h.want(400, ask{method: "POST", path: u.path("/chunks"), token: h.write, body: cut[:len(cut)-60], header: http.Header{"Content-Type": {sparseMedia}}})
	if a := u.send(missing[1]); a.status != 200 {
		t.Fatalf("chunks = %d %s", a.status, a.body)
	}
	if still := u.missing(); len(still) != 0 {
		t.Errorf("%d chunks are still missing", len(still))
	}
	a := u.seal()
	if a.status != 201 {
		t.Fatalf("seal = %d %s", a.status, a.body)
	}
	got := a.json(t)
	if got["new_bytes"].(float64) > 100_000 || got["upload_id"] != u.id {
		t.Errorf("snapshot = %v", got)
	}
	h.restored(got["sha"].(string), img)
	h.refused(404, "upload_not_found", ask{path: u.path(""), token: h.read})
	if c := code(t, u.seal()); c != codeNoUpload {
		t.Errorf("seal of what is sealed = %s", c)
	}
}

// zstd frames tell how long their contents are.
func TestChunkAsFrame(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	coder := snapshot.NewCoder()
	img := bytes.Repeat([]byte("headgate "), 4096/9*40)
	u := h.begin(img, meta{})
	for _, hash := range u.missing() {
		frame := coder.Encode(u.content(hash), nil)
		if n, ok := frameContent(frame); !ok || n != int64(len(u.content(hash))) {
			t.Fatalf("a frame of %d bytes tells %d, %v", len(u.content(hash)), n, ok)
		}
		h.want(200, ask{method: "PUT", path: u.path("/chunks/" + hash.String()), token: h.write, body: frame, header: http.Header{"Content-Encoding": {"zstd"}}})
	}
	h.restored(u.seal().json(t)["sha"].(string), img)
}

func FuzzFrameContent(f *testing.F) {
	f.Add(snapshot.NewCoder().Encode(make([]byte, 300), nil))
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, ok := frameContent(b); n < 0 || !ok && n != 0 {
			t.Errorf("frameContent(%x) = %d, %v", b, n, ok)
		}
	})
}

func FuzzLeavesOf(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 1})
	f.Add(append([]byte{0, 0, 0, 1, 0, 1, 0, 0, 16, 0}, make([]byte, 32)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		leaves, err := leavesOf(b)
		var back []byte
		for _, l := range leaves {
			back = binary.BigEndian.AppendUint32(back, uint32(l.Index))
			back = binary.BigEndian.AppendUint16(back, uint16(len(l.Chunks)))
			back = snapshot.AppendList(back, l.Chunks)
		}
		if err == nil && !bytes.Equal(back, b) {
			t.Errorf("leavesOf(%x) is written as %x", b, back)
		}
	})
}

// Before it is complete a snapshot is not there and the old one restores; who breaks off
// goes on with the same upload, and what was sent is of use to another one's retry.
func TestCase14_3_BrokenUpload(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	old := image(1, 1<<20)
	sha := h.save("s", old, meta{"chunk_bytes": 4 << 10})["sha"].(string)
	img := image(2, 1<<20)
	u := h.begin(img, meta{})
	missing := u.missing()
	half := missing[:len(missing)/2]
	whole := u.records(half...)
	// The connection breaks in the middle of a body.
	broken := io.MultiReader(bytes.NewReader(whole[:len(whole)/2]), failing{})
	req, err := http.NewRequestWithContext(t.Context(), "POST", h.http.URL+u.path("/chunks"), broken)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+h.write)
	req.Header.Set("Content-Type", sparseMedia)
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("a body that breaks off = %d", resp.StatusCode)
	}
	h.restored(sha, old)
	if s := h.get("s"); s["snapshot_sha"] != sha {
		t.Errorf("session = %v, want the old snapshot", s)
	}
	if a := u.send(half...); a.status != 200 {
		t.Fatal(a.status)
	}
	if c := code(t, u.seal()); c != codeMissing {
		t.Errorf("seal of half = %s", c)
	}
	rest := u.missing()
	if len(rest) != len(missing)-len(half) {
		t.Errorf("%d chunks are missing, want %d", len(rest), len(missing)-len(half))
	}
	u.send(rest...)
	done := u.seal()
	if done.status != 201 {
		t.Fatalf("seal = %d %s", done.status, done.body)
	}
	h.restored(at(done.json(t), "sha").(string), img)
	other := h.begin(img, meta{})
	if again := other.missing(); len(again) != 0 {
		t.Errorf("another upload of the same misses %d chunks", len(again))
	}
	h.want(204, ask{method: "DELETE", path: other.path(""), token: h.write})
	h.refused(404, "upload_not_found", ask{path: other.path(""), token: h.read})
	if list := h.listed("s"); len(list) != 2 {
		t.Errorf("snapshots = %v, want the two", list)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broken off") }

// What cannot be taken is refused with its field before any data is sent; unknown
// optional fields are kept.
func TestCase14_4_WrongSpecs(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	h.session(meta{"id": "amd", "labels": meta{"arch": "amd64"}})
	for _, tc := range []struct {
		session, field string
		status         int
		body           meta
	}{
		{"s", "format", 422, meta{"format": 99}},
		{"s", "quantum", 422, meta{"format": 1, "requires": []string{"quantum"}, "quantum": true}},
		{"amd", "machine.arch", 409, meta{"arch": "arm64"}},
		{"s", "base", 409, meta{"base_sha": strings.Repeat("1", 40)}},
		{"s", "layout", 422, meta{"parts": []any{meta{"layout": "spiral"}}}},
		{"s", "parts", 422, meta{"parts": []any{meta{"name": "a"}, meta{"name": "a"}}}},
	} {
		if got := h.refused(tc.status, codeField, ask{method: "POST", path: h.path("/sessions/" + tc.session + "/snapshots/uploads"), token: h.write, body: tc.body}); got["field"] != tc.field {
			t.Errorf("an upload with %v = %v, want the field %s", tc.body, got, tc.field)
		}
	}
	if list := h.listed("s"); len(list) != 0 {
		t.Errorf("snapshots = %v, want none", list)
	}
	u := h.begin(image(1, 10_000), meta{"colour": "green", "nested": meta{"a": 1}})
	u.send(u.missing()...)
	sha := u.seal().json(t)["sha"].(string)
	if got := h.snapshot(sha); at(got, "manifest", "colour") != "green" || at(got, "manifest", "nested", "a") != 1.0 {
		t.Errorf("manifest = %v, want the unknown fields kept", got["manifest"])
	}
}

// Of two who save different content at once from one state one wins whole.
func TestCase14_5_TwoUploads(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	images := [][]byte{image(1, 300_000), image(2, 300_000)}
	none := strings.Repeat("0", 40)
	ups := make([]*testUpload, 2)
	for i, img := range images {
		ups[i] = h.begin(img, meta{"expected_head_sha": none})
		if a := ups[i].send(ups[i].missing()...); a.status != 200 {
			t.Fatal(a.status)
		}
	}
	answers := make([]answer, 2)
	var both sync.WaitGroup
	for i := range ups {
		both.Go(func() { answers[i] = ups[i].seal() })
	}
	both.Wait()
	won := 0
	if answers[1].status == 201 {
		won = 1
	}
	if answers[won].status != 201 || answers[1-won].status != 409 {
		t.Fatalf("seals = %d %s and %d %s, want 201 and 409", answers[0].status, answers[0].body, answers[1].status, answers[1].body)
	}
	h.restored(at(answers[won].json(t), "sha").(string), images[won])
	// One upload, one chunk sent again with other bytes: they are another chunk, or 422.
	u := h.begin(image(3, 100_000), meta{})
	missing := u.missing()
	u.send(missing...)
	other := snapshot.Record{Length: 4096, Hash: missing[3], Blob: image(4, 4096)}
	var out bytes.Buffer
	w := snapshot.NewSparseWriter(&out)
	_ = w.Write(other)
	_ = w.End(snapshot.Hash{})
	h.refused(422, codeHash, ask{method: "POST", path: u.path("/chunks"), token: h.write, body: out.Bytes(), header: http.Header{"Content-Type": {sparseMedia}}})
	h.restored(u.seal().json(t)["sha"].(string), u.img)
}

// A proof of quiet whose two halves differ is refused, and nothing is left.
func TestD02_NotQuiescent(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	h.refused(409, "not_quiescent", h.saving("s", image(1, 50_000), meta{"quiescence": meta{"before": "aa", "after": "bb"}}))
	u := h.begin(image(1, 50_000), meta{})
	u.send(u.missing()...)
	h.refused(409, "not_quiescent", ask{method: "POST", path: u.path("/seal"), token: h.write, body: meta{"quiescence": meta{"before": "aa", "after": "bb"}}})
	for _, one := range h.listed("s") {
		if strings.HasPrefix(one, "ready") {
			t.Errorf("snapshots = %v", h.listed("s"))
		}
	}
	if s := h.get("s"); s["snapshot_sha"] != nil {
		t.Errorf("session = %v, want no snapshot", s)
	}
	got := h.save("s", image(1, 50_000), meta{"quiescence": meta{"before": "aa", "after": "aa"}})
	if at(h.snapshot(got["sha"].(string)), "manifest", "quiescence", "after") != "aa" {
		t.Error("the proof is not in the manifest")
	}
}

// Lists as JSON, parts by name, and what is wrong with them.
func TestTellLeavesAsJSON(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	u := h.begin(image(1, 5*4096), meta{})
	leaf := u.leaves()[0]
	var chunks []any
	for _, c := range leaf.Chunks {
		chunks = append(chunks, meta{"length": c.Length, "hash": c.Hash.String()})
	}
	got := h.post(200, "/sessions/s/snapshots/uploads/"+u.id+"/missing", meta{"part": "memory", "leaves": []any{meta{"index": 0, "chunks": chunks}}})
	if n := len(got["missing"].([]any)); n != 3 {
		t.Errorf("%d chunks are missing, want the 3 that are not zeros", n)
	}
	for name, body := range map[string]any{
		"part":   meta{"part": "disk", "leaves": []any{meta{"index": 0, "chunks": chunks}}},
		"index":  meta{"leaves": []any{meta{"index": -1, "chunks": chunks}}},
		"far":    meta{"leaves": []any{meta{"index": 1 << 30, "chunks": chunks}}},
		"hash":   meta{"leaves": []any{meta{"index": 0, "chunks": []any{meta{"length": 1, "hash": "x"}}}}},
		"length": meta{"leaves": []any{meta{"index": 0, "chunks": []any{meta{"length": 5, "hash": strings.Repeat("1", 64)}}}}},
		"none":   `[]`,
	} {
		a := h.do(ask{method: "POST", path: u.path("/missing"), token: h.write, body: body})
		if a.status < 400 || a.status >= 500 {
			t.Errorf("lists with a wrong %s = %d %s", name, a.status, a.body)
		}
	}
	h.want(400, ask{method: "POST", path: u.path("/missing"), token: h.write, body: "xyz", header: http.Header{"Content-Type": {octetMedia}}})
}
