package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/tokens"
)

// A save is ready when it is answered, whole, and what is written afterwards is not in it.
func TestD01_SaveWhileRunning(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	img := image(1, 300_000)
	got := h.save("s", img, meta{"name": "first", "boundary": "manual", "machine": meta{"arch": "amd64", "cpu": "x"}})
	sha := got["sha"].(string)
	for field, want := range map[string]any{
		"state": "ready", "status": "saved", "usable": true, "sealed": false, "session_id": "s", "name": "first", "boundary": "manual",
		"kind": "memory", "size_bytes": 300_000.0, "workspace_sha": h.main, "type": "saved", "chunk_bytes": float64(snapshot.DefaultChunk),
	} {
		if got[field] != want {
			t.Errorf("snapshot's %s = %v, want %v", field, got[field], want)
		}
	}
	if got["verified_at"] == nil || got["stored_bytes"].(float64) >= 300_000 || got["new_bytes"].(float64) <= 0 {
		t.Errorf("snapshot = %v", got)
	}
	again := h.want(200, h.saving("s", img, meta{"machine": meta{"arch": "amd64", "cpu": "x"}})).json(t)
	if again["status"] != "skipped" || again["sha"] != sha {
		t.Errorf("a save of the same = %v, want it skipped", again)
	}
	if a := h.commitAs(h.write, "sessions/s", "later", "1"); a.status != 201 {
		t.Fatalf("commit after the save = %d %s", a.status, a.body)
	}
	h.restored(sha, img)
	told := h.snapshot(sha)
	if told["workspace_sha"] != h.main || at(told, "manifest", "machine", "cpu") != "x" || at(told, "manifest", "image_sha256") != got["image_sha256"] {
		t.Errorf("snapshot = %v", told)
	}
	if list := h.listed("s"); fmt.Sprint(list) != "[ready "+sha+"]" {
		t.Errorf("snapshots = %v", list)
	}
	if s := h.get("s"); s["snapshot_sha"] != sha || s["durability"] != durable || s["usable"] != true || s["notice"] != nil {
		t.Errorf("session = %v", s)
	}
	events := string(h.want(200, ask{path: h.path("/events"), token: h.read}).body)
	if n := strings.Count(events, `"snapshot.ready"`); n != 1 {
		t.Errorf("events tell %d times of a ready snapshot, want once: %s", n, events)
	}
}

// A whole image, its ranges, conditions and forms.
func TestImage(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	img := image(2, 5*snapshot.DefaultChunk+7)
	sha := h.save("s", img, meta{})["sha"].(string)
	whole := h.restored(sha, img)
	root := whole.header.Get("X-Content-Sha256")
	path := h.path("/snapshots/" + sha + "/image")
	if etag := whole.header.Get("Etag"); etag != `"`+root+`"` || whole.header.Get("Content-Length") != fmt.Sprint(len(img)) || whole.header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("headers of an image: %v", whole.header)
	}
	if head := h.want(200, ask{method: "HEAD", path: path, token: h.read}); head.header.Get("Content-Length") != fmt.Sprint(len(img)) || len(head.body) > 0 {
		t.Errorf("HEAD = %v", head.header)
	}
	for _, tc := range []struct {
		header       [2]string
		status       int
		from, length int
	}{
		{[2]string{"Range", "bytes=0-0"}, 206, 0, 1},
		{[2]string{"Range", "bytes=16380-16389"}, 206, 16380, 10},
		{[2]string{"Range", "bytes=-5"}, 206, len(img) - 5, 5},
		{[2]string{"Range", "bytes=100-"}, 206, 100, len(img) - 100},
		{[2]string{"Range", "bytes=9999999-"}, 416, 0, 0},
		{[2]string{"If-None-Match", `"` + root + `"`}, 304, 0, 0},
		{[2]string{"If-Match", `"x"`}, 412, 0, 0},
	} {
		a := h.want(tc.status, ask{path: path, token: h.read, header: http.Header{tc.header[0]: {tc.header[1]}}})
		if tc.status == 206 && !bytes.Equal(a.body, img[tc.from:tc.from+tc.length]) {
			t.Errorf("%v: %d bytes, want %d from %d", tc.header, len(a.body), tc.length, tc.from)
		}
		if want := fmt.Sprintf("bytes %d-%d/%d", tc.from, tc.from+tc.length-1, len(img)); tc.status == 206 && a.header.Get("Content-Range") != want {
			t.Errorf("%v: Content-Range %q, want %q", tc.header, a.header.Get("Content-Range"), want)
		}
	}
	stale := h.want(200, ask{path: path, token: h.read, header: http.Header{"Range": {"bytes=0-0"}, "If-Range": {`"other"`}}})
	if !bytes.Equal(stale.body, img) {
		t.Errorf("If-Range of another image: %d bytes, want all", len(stale.body))
	}
	h.refused(404, "snapshot_not_found", ask{path: h.path("/snapshots/" + strings.Repeat("1", 40) + "/image"), token: h.read})
	h.refused(404, "snapshot_not_found", ask{path: h.path("/snapshots/main/image"), token: h.read})
	h.refused(400, "invalid_request", ask{path: path + "?address=12", token: h.read})
	h.refused(409, "not_sealed", ask{method: "POST", path: h.path("/snapshots/" + sha + "/key"), token: h.read})
}

// The sparse form has every chunk once, with its hash, and ends with the root.
func TestImageSparse(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	img := image(3, 40*snapshot.DefaultChunk+7)
	sha := h.save("s", img, meta{})["sha"].(string)
	a := h.want(200, ask{path: h.path("/snapshots/" + sha + "/image"), token: h.read, header: http.Header{"Accept": {sparseMedia}}})
	if a.header.Get("Content-Type") != sparseMedia || a.header.Get("X-Restore-Id") == "" || len(a.body) > len(img) {
		t.Errorf("sparse answer: %v, %d bytes for %d", a.header, len(a.body), len(img))
	}
	in := snapshot.NewSparseReader(bytes.NewReader(a.body))
	head, err := in.Header()
	if err != nil || head.Commit != sha || head.Part.Size != int64(len(img)) {
		t.Fatalf("sparse header = %+v, %v", head, err)
	}
	got, coder := make([]byte, len(img)), snapshot.NewCoder()
	for {
		rec, err := in.Next()
		if err != nil {
			if in.Root().String() != a.header.Get("X-Content-Sha256") {
				t.Errorf("sparse stream ends with %v, root %s; want %s", err, in.Root(), a.header.Get("X-Content-Sha256"))
			}
			break
		}
		if rec.Blob == nil {
			continue
		}
		content, err := coder.Decode(rec.Chunk(), rec.Blob, nil)
		if err != nil {
			t.Fatal(err)
		}
		copy(got[rec.Offset:], content)
	}
	if !bytes.Equal(got, img) {
		t.Error("the chunks are not the image")
	}
	part := h.want(206, ask{path: h.path("/snapshots/" + sha + "/image"), token: h.read, header: http.Header{"Accept": {sparseMedia}, "Range": {"bytes=16384-32767"}}})
	if want := fmt.Sprintf("bytes 16384-32767/%d", len(img)); part.header.Get("Content-Range") != want {
		t.Errorf("a sparse range: %v", part.header)
	}
}

// Names that were left out are told by the save and by every restore.
func TestC06_ExcludedAreNamed(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	left := []any{meta{"name": "sock", "reason": "open socket"}, meta{"name": "modèle", "reason": "not picklable: 𝄞"}}
	got := h.save("s", image(4, 20_000), meta{"excluded": left, "kind": "namespace"})
	want := fmt.Sprint([]any{map[string]any{"name": "sock", "reason": "open socket"}, map[string]any{"name": "modèle", "reason": "not picklable: 𝄞"}})
	if fmt.Sprint(got["excluded"]) != want {
		t.Errorf("save answers excluded %v, want %v", got["excluded"], want)
	}
	a := h.imageOf(got["sha"].(string))
	var told []any
	text := a.header.Get(excludedHeader)
	if err := json.Unmarshal([]byte(text), &told); err != nil || fmt.Sprint(told) != want || a.header.Get(excludedHeader+"-Count") != "2" {
		t.Errorf("restore tells %q, want %v", text, want)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r > '~' }) {
		t.Errorf("the header %q is not ASCII", text)
	}
	if fmt.Sprint(h.snapshot(got["sha"].(string))["excluded"]) != want {
		t.Errorf("snapshot = %v", h.snapshot(got["sha"].(string)))
	}
	many := make([]any, 2000)
	for i := range many {
		many[i] = meta{"name": fmt.Sprintf("object-%d", i), "reason": "not picklable"}
	}
	// 2,000 names are more than a request's headers take.
	up := h.want(201, ask{method: "POST", path: h.path("/sessions/s/snapshots/uploads"), token: h.write, body: meta{"kind": "namespace", "size_bytes": 0, "excluded": many}}).json(t)
	sealed := h.want(201, ask{method: "POST", path: h.path("/sessions/s/snapshots/uploads/" + up["id"].(string) + "/seal"), token: h.write, body: meta{"roots": meta{"namespace": snapshot.ImageRoot(snapshot.Part{ChunkBytes: snapshot.DefaultChunk, Layout: snapshot.Stream}, nil).String()}}}).json(t)
	a = h.imageOf(sealed["sha"].(string))
	if n := len(a.header.Get(excludedHeader)); n > excludedBytes || n < excludedBytes/4 || a.header.Get(excludedHeader+"-Count") != "2000" {
		t.Errorf("of 2,000 names a header of %d bytes tells", n)
	}
}

// Sizes around a chunk: restores are identical, zeros cost nothing, and there is no
// chunk of nothing.
func TestCase14_2_Sizes(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	const c = 4 << 10
	images := map[string][]byte{"zeros 10C": make([]byte, 10*c), "random 3C+7": {}}
	r := rand.NewChaCha8([32]byte{9})
	for _, n := range []int{0, 1, c - 1, c, c + 1, 2 * c, 3*c + 7} {
		b := make([]byte, n)
		_, _ = r.Read(b)
		images[fmt.Sprintf("random of %d", n)] = b
	}
	images["random 3C+7"] = images[fmt.Sprintf("random of %d", 3*c+7)]
	for name, img := range images {
		for _, kind := range []string{"memory", "files"} {
			got := h.want(201, h.saving("s", img, meta{"kind": kind, "chunk_bytes": c, "boundary": name})).json(t)
			a := h.restored(got["sha"].(string), img)
			if a.header.Get("X-Content-Sha256") != got["image_sha256"] || got["size_bytes"] != float64(len(img)) {
				t.Errorf("%s: %v", name, got)
			}
			if strings.HasPrefix(name, "zeros") && (got["stored_bytes"] != 0.0 || got["zero_bytes"] != float64(len(img))) {
				t.Errorf("zeros: %v, want nothing stored", got)
			}
		}
	}
}

// Any 4 KiB by guest address are those of the image.
func TestD17_PagesByAddress(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	img := image(5, 600<<10)
	low, high := uint64(0x10000), uint64(0xffff800000000000)
	sha := h.save("s", img, meta{"regions": []any{
		meta{"address": low, "offset": 0, "size_bytes": 256 << 10}, meta{"address": high, "offset": 256 << 10, "size_bytes": 344 << 10},
	}})["sha"].(string)
	r := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		off := r.Int64N(int64(len(img) - 4096))
		address := low + uint64(off)
		if off >= 256<<10 {
			address = high + uint64(off-256<<10)
		} else if off > 256<<10-4096 {
			continue // it goes over the region's end
		}
		a := h.imageOf(sha, "address", fmt.Sprintf("%#x", address), "length", "4096")
		if !bytes.Equal(a.body, img[off:off+4096]) || a.header.Get("X-Headgate-Offset") != fmt.Sprint(off) {
			t.Fatalf("page at %#x is not the image's at %d", address, off)
		}
	}
	h.refused(416, "range_not_satisfiable", ask{path: h.path("/snapshots/"+sha+"/image", "address", "0x1", "length", "4096"), token: h.read})
	h.refused(416, "range_not_satisfiable", ask{path: h.path("/snapshots/"+sha+"/image", "address", fmt.Sprint(low+256<<10-1), "length", "2"), token: h.read})
}

// Restores of one state have an id and a seed each, its children a token each, and no
// token is in an image.
func TestD18_RestoresAreDistinct(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	sha := h.save("s", image(6, 100_000), meta{})["sha"].(string)
	fork := h.fork(201, "s", meta{"n": 2, "from_snapshot": sha, "token": meta{}})
	seen := map[string]bool{}
	for i := range 2 {
		if from := at(fork, "children", i, "session", "from_snapshot"); from != sha {
			t.Errorf("child %d is from %v, want %s", i, from, sha)
		}
		tok := at(fork, "children", i, "token", "token").(string)
		a := h.imageOf(sha)
		id, seed := a.header.Get("X-Restore-Id"), a.header.Get("X-Restore-Seed")
		if len(id) != 36 || len(seed) != 64 || seen[id] || seen[seed] || seen[tok] || bytes.Contains(a.body, []byte(tok)) {
			t.Errorf("restore %d: id %q, seed %q", i, id, seed)
		}
		seen[id], seen[seed], seen[tok] = true, true, true
		if len(h.packsWith([]byte(tok))) > 0 {
			t.Error("a token is in a pack")
		}
	}
}

// A session that is made of a state says which, and its image is the same bytes.
func TestD03_CreateFromState(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	img := image(7, 100_000)
	if a := h.commitAs(h.write, "sessions/s", "work", "1"); a.status != 201 {
		t.Fatal(a.status)
	}
	sha := h.save("s", img, meta{})["sha"].(string)
	workspace := h.snapshot(sha)["workspace_sha"]
	child := h.session(meta{"id": "child", "from_snapshot": sha})
	if child["from_snapshot"] != sha || child["base_sha"] != workspace || child["head_sha"] != workspace || child["parent_id"] != "s" {
		t.Errorf("child = %v, want it at %v, from %s", child, workspace, sha)
	}
	if s := h.get("child"); s["from_snapshot"] != sha {
		t.Errorf("child = %v", s)
	}
	next := h.save("child", append(img, 1), meta{})
	if next["parent_sha"] != sha || next["new_bytes"].(float64) > 20_000 {
		t.Errorf("the child's first save = %v, want little that is new, after %s", next, sha)
	}
	h.restored(next["sha"].(string), append(img, 1))
	h.restored(sha, img)
	h.refused(404, "snapshot_not_found", ask{method: "POST", path: h.path("/sessions"), token: h.write, body: meta{"from_snapshot": strings.Repeat("1", 40)}})
	h.refused(400, "invalid_request", ask{method: "POST", path: h.path("/sessions"), token: h.write, body: meta{"from_snapshot": sha, "base_ref": "main"}})
}

// Limits are told, and issued tokens may do with snapshots of their session what they
// may, and nothing with others.
func TestSnapshotsOfIssuedTokens(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	h.session(meta{"id": "other"})
	foreign := h.save("other", image(8, 50_000), meta{})["sha"].(string)
	tok := h.issued("s")
	own := h.saving("s", image(9, 50_000), meta{})
	own.token = tok
	sha := h.want(201, own).json(t)["sha"].(string)
	second := h.saving("s", image(10, 50_000), meta{})
	second.token = tok
	h.want(201, second) // the ref moves to what is no descendant, which a sandbox's rules do not forbid
	for _, tail := range []string{"", "/image", "/lineage", "/bundle"} {
		h.want(200, ask{path: h.path("/snapshots/" + sha + tail), token: tok})
		h.refused(404, "snapshot_not_found", ask{path: h.path("/snapshots/" + foreign + tail), token: tok})
	}
	h.want(200, ask{path: h.path("/sessions/s/snapshots"), token: tok})
	h.want(204, ask{method: "POST", path: h.path("/snapshots/" + sha + "/hot-order"), token: tok, body: meta{"chunks": []int{1, 0}}})
	for _, a := range []ask{
		h.saving("other", image(1, 10), meta{}), {path: h.path("/sessions/other/snapshots")},
		{method: "POST", path: h.path("/sessions/other/snapshots/uploads"), body: meta{}}, {method: "POST", path: h.path("/sessions/other/snapshots/import"), body: "x"},
		{path: h.path("/sessions/other/snapshots/uploads/x")}, {method: "DELETE", path: h.path("/sessions/other/snapshots/uploads/x")},
		{method: "POST", path: h.path("/sessions/other/snapshots/uploads/x/missing"), body: meta{}}, {method: "POST", path: h.path("/sessions/other/snapshots/uploads/x/chunks"), body: "x"},
		{method: "PUT", path: h.path("/sessions/other/snapshots/uploads/x/chunks/" + strings.Repeat("1", 64)), body: "x"},
		{method: "POST", path: h.path("/sessions/other/snapshots/uploads/x/seal"), body: meta{}},
		{path: "/api/launchable"}, {method: "POST", path: h.path("/sessions"), body: meta{"from_snapshot": sha}}, {method: "POST", path: h.path("/sessions/s/fork"), body: meta{"n": 1, "from_snapshot": sha}},
	} {
		a.token = tok
		h.refused(403, "forbidden", a)
	}
	h.want(200, ask{method: "DELETE", path: h.path("/snapshots/" + sha), token: tok})
	reader := h.issue("s", meta{"permissions": []string{"git:read"}})["token"].(string)
	own.token = reader
	h.refused(403, "forbidden", own)
	limits := h.want(200, ask{path: "/api/limits", token: h.read}).json(t)
	for name, want := range map[string]any{"snapshots.cap_bytes": float64(4 << 30), "snapshots.uploads": 8.0, "snapshots.upload_ttl_s": 86400.0} {
		if got := at(limits, "limits", name); got != want {
			t.Errorf("limit %s = %v, want %v", name, got, want)
		}
	}
}

// A token of an epoch before cannot save, and what it was to write is not there.
func TestStaleTokensDoNotSave(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	h.lease(200, "s", meta{"action": "acquire", "holder": "A"})
	tok := h.issued("s")
	h.lease(200, "s", meta{"action": "takeover", "holder": "B"})
	a := h.saving("s", image(1, 50_000), meta{})
	a.token = tok
	h.refused(403, "stale_epoch", a)
	if list := h.listed("s"); len(list) != 0 {
		t.Errorf("snapshots = %v, want none", list)
	}
}

// A save moves workspace and snapshot together, or neither.
func TestSaveMovesTheWorkspace(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	next := h.commit(meta{"expected_head_sha": h.main}, file{path: "x", data: "1"})
	got := h.want(201, h.saving("s", image(1, 50_000), meta{"workspace_sha": next, "move_workspace": true})).json(t)
	if got["workspace_sha"] != next || h.get("s")["head_sha"] != next {
		t.Errorf("snapshot = %v, session at %v; want both at %s", got, h.get("s")["head_sha"], next)
	}
	moved := h.refused(409, "precondition_failed", h.saving("s", image(2, 50_000), meta{"expected_head_sha": strings.Repeat("0", 40), "workspace_sha": h.main}))
	if moved["head_sha"] != got["sha"] {
		t.Errorf("a save on a ref that has moved = %v, want the present head %v", moved, got["sha"])
	}
	backwards := h.do(h.saving("s", image(2, 50_000), meta{"workspace_sha": h.main, "move_workspace": true}))
	if backwards.status != 409 || h.get("s")["head_sha"] != next || h.get("s")["snapshot_sha"] != got["sha"] {
		t.Errorf("a save that rewinds the workspace = %d %s, want nothing moved", backwards.status, backwards.body)
	}
}

// Many small things are wrong with a request.
func TestSavesRefuse(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	img := image(1, 20_000)
	for _, q := range [][2]string{
		{"chunk_bytes", "x"}, {"dry_run", "maybe"}, {"expected_head_sha", "1234"}, {"workspace_sha", "zz"}, {"ttl_unused_s", "-1"}, {"keep_last", "-1"}, {"meta", "{"},
	} {
		a := h.saving("s", img, nil, q[0], q[1])
		a.header = nil
		h.refused(400, "invalid_request", a)
	}
	for field, m := range map[string]meta{"chunk_bytes": {"chunk_bytes": 5000}, "layout": {"layout": "round"}, "kind": {"name": "a", "part": "x", "kind": "a/b"}} {
		if got := h.refused(422, "invalid_field", h.saving("s", img, m)); got["field"] != field {
			t.Errorf("a save with %v = %v, want the field %s", m, got, field)
		}
	}
	h.refused(404, "session_not_found", h.saving("nope", img, meta{}))
	cut := h.saving("s", img, meta{"size_bytes": 30_000})
	h.refused(400, "invalid_request", cut)
	if list := h.listed("s"); strings.Contains(fmt.Sprint(list), "ready") {
		t.Errorf("snapshots = %v, want none ready", list)
	}
	h.want(200, ask{method: "DELETE", path: h.path("/sessions/s"), token: h.write})
	a := h.do(h.saving("s", img, meta{}))
	if a.status != 404 && a.status != 409 {
		t.Errorf("a save for a session that has ended = %d %s", a.status, a.body)
	}
}

// A save that is named is made once.
func TestSaveOnce(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	a := h.saving("s", image(1, 100_000), meta{})
	a.header[keyHeader] = []string{"save-1"}
	first := h.want(201, a)
	second := h.want(201, a)
	if !bytes.Equal(first.body, second.body) || second.header.Get(replayedHeader) != "true" {
		t.Errorf("the same save again = %s, want %s", second.body, first.body)
	}
	a.body = image(2, 100_000)
	h.refused(422, "idempotency_mismatch", a)
	sha := at(first.json(t), "sha").(string)
	del := ask{method: "DELETE", path: h.path("/snapshots/" + sha), token: h.write, header: http.Header{keyHeader: {"del-1"}}}
	one, two := h.want(200, del), h.want(200, del)
	if !bytes.Equal(one.body, two.body) || two.header.Get(replayedHeader) != "true" {
		t.Errorf("the same deletion again = %s, want %s", two.body, one.body)
	}
}

// What a session's ref is moved by is saving alone.
func TestSnapshotRefsAreNobodysToMove(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	sha := h.save("s", image(1, 50_000), meta{})["sha"].(string)
	ref := snapshot.RefPrefix + "s"
	out, ok := gitIn(t, t.TempDir(), "ls-remote", h.remote("team/site.git", h.write))
	if !ok || strings.Contains(out, ref) || strings.Contains(out, sha) {
		t.Errorf("ls-remote shows %q", out)
	}
	pins := h.want(200, ask{path: h.path("/pins"), token: h.read}).json(t)
	if len(pins["pins"].([]any)) != 0 {
		t.Errorf("pins = %v, want none of snapshots", pins)
	}
	h.refused(404, "pin_not_found", ask{method: "DELETE", path: h.path("/pins/" + snapshotPinIDs + sha), token: h.write})
	confined := tokenOf(t, tokens.Claims{Repo: h.name, Scopes: []tokens.Scope{tokens.GitWrite}, Refs: []refpolicy.Rule{rule(ref, refpolicy.NoPush), rule("*")}})
	a := h.saving("s", image(2, 50_000), meta{})
	a.token = confined
	h.refused(403, "policy_denied", a)
	if got := sha256.Sum256(h.imageOf(sha).body); got != sha256.Sum256(image(1, 50_000)) {
		t.Error("the image has changed")
	}
}
