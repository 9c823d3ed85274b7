package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/tokens"
)

// In use it is not deleted, and who uses it is told; afterwards it is.
func TestD09_SnapshotInUse(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	sha := h.save("s", image(1, 200_000), meta{})["sha"].(string)
	h.session(meta{"id": "child", "from_snapshot": sha})
	del := ask{method: "DELETE", path: h.path("/snapshots/" + sha), token: h.write}
	got := h.refused(409, "in_use", del)
	if at(got, "holders", 0, "id") != "child" {
		t.Errorf("holders = %v, want child", got["holders"])
	}
	if children := fmt.Sprint(h.snapshot(sha)["children"]); children != "[child]" {
		t.Errorf("children = %v", children)
	}
	h.want(200, ask{method: "DELETE", path: h.path("/sessions/child"), token: h.write})
	dry := del
	dry.path += "?dry_run=true"
	if would := h.want(200, dry).json(t); would["dry_run"] != true || would["bytes_freed"].(float64) < 50_000 {
		t.Errorf("dry run = %v", would)
	}
	h.restored(sha, image(1, 200_000))
	if done := h.want(200, del).json(t); done["sha"] != sha || done["bytes_freed"].(float64) < 50_000 || at(done, "snapshot", "state") == "ready" {
		t.Errorf("deletion = %v", done)
	}
	h.refused(409, "snapshot_state", ask{path: h.path("/snapshots/" + sha + "/image"), token: h.read})
	if s := h.get("s"); s["snapshot_sha"] != nil {
		t.Errorf("session = %v, want no snapshot any more", s)
	}
	a := h.do(ask{method: "POST", path: h.path("/sessions"), token: h.write, body: meta{"from_snapshot": sha}})
	if a.status != 409 && a.status != 404 {
		t.Errorf("a session of a deleted snapshot = %d %s", a.status, a.body)
	}
}

const operatorsKey = "an operator's key"

// Bases are the operator's: no delete by the API, of anybody, removes one.
func TestD10_Bases(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.OperatorKey = operatorsKey })
	h.session(meta{"id": "s"})
	sha := h.save("s", image(1, 100_000), meta{})["sha"].(string)
	bases := operatorPrefix + "bases"
	body := meta{"org": "acme", "repo": h.name, "name": "ubuntu-24", "sha": sha}
	h.want(401, ask{method: "POST", path: bases, token: h.admin, body: body})
	h.want(401, ask{method: "DELETE", path: bases + "?org=acme&repo=team/site&name=ubuntu-24", token: h.admin})
	h.want(200, ask{method: "POST", path: bases, token: operatorsKey, body: body})
	list := h.want(200, ask{path: bases + "?org=acme&repo=team/site", token: operatorsKey}).json(t)
	if at(list, "bases", 0, "name") != "ubuntu-24" || at(list, "bases", 0, "sha") != sha || at(list, "bases", 1) != nil {
		t.Errorf("bases = %v", list)
	}
	admin := tokenOf(t, tokens.Claims{Repo: h.name, Scopes: []tokens.Scope{tokens.RepoWrite, tokens.GitWrite}})
	for _, tok := range []string{h.write, admin} {
		h.refused(403, "base_image", ask{method: "DELETE", path: h.path("/snapshots/" + sha), token: tok})
	}
	h.want(200, ask{method: "DELETE", path: h.path("/sessions/s"), token: h.write})
	if got := h.snapshot(sha); got["base"] != "ubuntu-24" || got["type"] != "base" || got["state"] != "ready" {
		t.Errorf("base = %v", got)
	}
	h.session(meta{"id": "child", "from_snapshot": sha})
	h.want(200, ask{method: "DELETE", path: h.path("/sessions/child"), token: h.write})
	h.want(204, ask{method: "DELETE", path: bases + "?org=acme&repo=team/site&name=ubuntu-24", token: operatorsKey})
	h.want(200, ask{method: "DELETE", path: h.path("/snapshots/" + sha), token: admin})
	h.want(400, ask{method: "POST", path: bases, token: operatorsKey, body: meta{"org": "acme", "repo": h.name, "name": "x", "sha": "y"}})
	h.want(404, ask{method: "POST", path: bases, token: operatorsKey, body: meta{"org": "acme", "repo": "nope", "name": "x", "sha": sha}})
}

// One list has what the caller may launch, and nothing of another repo.
func TestD11_Launchable(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.OperatorKey = operatorsKey })
	h.session(meta{"id": "s"})
	amd := h.save("s", image(1, 50_000), meta{"arch": "amd64"})["sha"].(string)
	base := h.save("s", image(2, 50_000), meta{"arch": "amd64"})["sha"].(string)
	h.session(meta{"id": "arm"})
	arm := h.save("arm", image(3, 50_000), meta{"arch": "arm64"})["sha"].(string)
	h.want(200, ask{method: "POST", path: operatorPrefix + "bases", token: operatorsKey, body: meta{"org": "acme", "repo": h.name, "name": "b", "sha": base}})
	other := h.newHouse("team/other")
	other.session(meta{"id": "s"})
	other.save("s", image(4, 50_000), meta{})
	shas := func(query string) string {
		t.Helper()
		list := h.want(200, ask{path: "/api/launchable" + query, token: h.read}).json(t)
		var all []string
		for i := range list["snapshots"].([]any) {
			all = append(all, at(list, "snapshots", i, "sha").(string))
		}
		return fmt.Sprint(all)
	}
	if got := shas(""); !strings.Contains(got, amd) || !strings.Contains(got, base) || !strings.Contains(got, arm) || strings.Count(got, " ") != 2 {
		t.Errorf("launchable = %s, want %s, %s and %s", got, amd, base, arm)
	}
	if got := shas("?arch=arm64"); got != "["+arm+"]" {
		t.Errorf("launchable on arm64 = %s, want %s", got, arm)
	}
	first := h.want(200, ask{path: "/api/launchable?limit=1", token: h.read}).json(t)
	if first["has_more"] != true || len(first["snapshots"].([]any)) != 1 {
		t.Errorf("a page = %v", first)
	}
	h.refused(400, "invalid_request", ask{path: "/api/launchable?cursor=!", token: h.read})
}

// Parent, source and children are right through three generations.
func TestD12_Lineage(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	a := h.save("s", image(1, 50_000), meta{})["sha"].(string)
	b := h.save("s", image(2, 50_000), meta{})["sha"].(string)
	h.session(meta{"id": "child", "from_snapshot": b})
	c := h.save("child", image(3, 50_000), meta{})["sha"].(string)
	h.session(meta{"id": "grandchild", "from_snapshot": c})
	d := h.save("grandchild", image(4, 50_000), meta{})["sha"].(string)
	lineage := func(sha, list string) string {
		t.Helper()
		got := h.want(200, ask{path: h.path("/snapshots/" + sha + "/lineage"), token: h.read}).json(t)
		var all []string
		for i := range got[list].([]any) {
			all = append(all, at(got, list, i, "sha").(string))
		}
		return fmt.Sprint(all)
	}
	if got, want := lineage(d, "ancestors"), fmt.Sprint([]string{c, b, a}); got != want {
		t.Errorf("ancestors = %s, want %s", got, want)
	}
	if got, want := lineage(a, "descendants"), fmt.Sprint([]string{b, c, d}); got != want {
		t.Errorf("descendants = %s, want %s", got, want)
	}
	if got := h.snapshot(c); got["parent_sha"] != b || fmt.Sprint(got["children"]) != "[grandchild]" || got["session_id"] != "child" {
		t.Errorf("snapshot = %v", got)
	}
}

// Only who made it, an admin, or who made its session may delete.
func TestD13_WhoDeletes(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	sha := h.save("s", image(1, 50_000), meta{})["sha"].(string)
	stranger := tokenOf(t, tokens.Claims{Repo: h.name, Subject: "stranger", Scopes: []tokens.Scope{tokens.GitWrite}})
	h.refused(403, "forbidden", ask{method: "DELETE", path: h.path("/snapshots/" + sha), token: stranger})
	h.refused(403, "forbidden", ask{method: "DELETE", path: h.path("/snapshots/" + sha), token: h.read})
	h.restored(sha, image(1, 50_000))
	theirs := h.saving("s", image(2, 50_000), meta{})
	theirs.token = stranger
	second := h.want(201, theirs).json(t)["sha"].(string)
	h.want(200, ask{method: "DELETE", path: h.path("/snapshots/" + second), token: stranger})
	admin := tokenOf(t, tokens.Claims{Repo: h.name, Subject: "admin", Scopes: []tokens.Scope{tokens.RepoWrite, tokens.GitWrite}})
	h.want(200, ask{method: "DELETE", path: h.path("/snapshots/" + sha), token: admin})
}

// As one file it is taken to another server, and is the same there.
func TestD15_TakenElsewhere(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	img := image(1, 500_000)
	h.save("s", image(1, 400_000), meta{})
	got := h.save("s", img, meta{"name": "take me", "machine": meta{"arch": "amd64"}})
	sha := got["sha"].(string)
	bundle := h.want(200, ask{path: h.path("/snapshots/" + sha + "/bundle"), token: h.read})
	if bundle.header.Get("Content-Type") != "application/x-git-bundle" {
		t.Errorf("bundle = %v", bundle.header)
	}
	there := newKeep(t, snapshot.Limits{})
	imports := ask{method: "POST", path: there.path("/sessions/s/snapshots/import"), token: there.write, body: bundle.body, header: http.Header{keyHeader: {"import"}}}
	back := there.want(201, imports).json(t)
	if back["sha"] != sha || back["image_sha256"] != got["image_sha256"] || back["name"] != "take me" || back["state"] != "ready" {
		t.Errorf("imported = %v, want %v", back, got)
	}
	there.restored(sha, img)
	if again := there.want(201, imports); again.header.Get(replayedHeader) != "true" {
		t.Error("the same import again was made again")
	}
	for name, bad := range map[string][]byte{"cut": bundle.body[:len(bundle.body)/2], "none": []byte("x"), "empty": nil} {
		a := there.do(ask{method: "POST", path: there.path("/sessions/s/snapshots/import"), token: there.write, body: bad})
		if a.status < 400 || a.status >= 500 {
			t.Errorf("a bundle that is %s = %d %s", name, a.status, a.body)
		}
	}
	there.restored(sha, img)
}

// Over the cap nothing moves, the session says so, and the next save that fits clears it.
func TestC05_OverTheCap(t *testing.T) {
	h := newKeep(t, snapshot.Limits{Cap: 200_000})
	first := image(1, 200_000)
	sha := h.save("s", first, meta{})["sha"].(string)
	got := h.refused(413, "over_cap", h.saving("s", image(2, 2_000_000), meta{}))
	if got["cap"] != 200_000.0 || got["size"].(float64) <= 200_000 || got["retryable"] != false {
		t.Errorf("over the cap = %v", got)
	}
	s := h.get("s")
	if s["snapshot_sha"] != sha || s["durability"] != stale || at(s, "notice", "code") != "over_cap" || at(s, "notice", "cap_bytes") != 200_000.0 || s["usable"] != true {
		t.Errorf("session = %v, want a notice", s)
	}
	list := h.want(200, ask{path: h.path("/sessions"), token: h.read}).json(t)
	if at(list, "sessions", 0, "durability") != stale {
		t.Errorf("sessions = %v", list)
	}
	h.restored(sha, first)
	h.save("s", image(3, 200_000), meta{})
	if s := h.get("s"); s["durability"] != durable || s["notice"] != nil {
		t.Errorf("session = %v, want no notice any more", s)
	}
}

// A repo's quota is one for all its snapshots, and a deletion gives back.
func TestQuotaOfSnapshots(t *testing.T) {
	h := newKeep(t, snapshot.Limits{Quota: 250_000})
	sha := h.save("s", image(1, 300_000), meta{})["sha"].(string)
	h.refused(507, "storage_full", h.saving("s", image(2, 300_000), meta{}))
	h.restored(sha, image(1, 300_000))
	h.want(200, ask{method: "DELETE", path: h.path("/snapshots/" + sha), token: h.write})
	h.save("s", image(2, 300_000), meta{})
}

// A full disk is told as one, nothing moves, and the retry succeeds when there is room.
func TestB06_FullDisk(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	old := image(1, 300_000)
	sha := h.save("s", old, meta{})["sha"].(string)
	h.disk.full.Store(true)
	got := h.refused(507, "no_space", h.saving("s", image(2, 300_000), meta{}))
	if got["retryable"] != true {
		t.Errorf("a full disk = %v, want it retryable", got)
	}
	if s := h.get("s"); s["snapshot_sha"] != sha || s["state"] != "active" {
		t.Errorf("session = %v, want it as it was", s)
	}
	h.restored(sha, old)
	h.disk.full.Store(false)
	next := h.save("s", image(2, 300_000), meta{})["sha"].(string)
	h.restored(next, image(2, 300_000))
	u := h.begin(image(3, 300_000), meta{})
	missing := u.missing()
	h.disk.full.Store(true)
	if a := u.send(missing...); a.status != 200 && (a.status != 507 || code(t, a) != codeNoSpace) {
		t.Errorf("chunks to a full disk = %d %s", a.status, a.body)
	}
	if a := u.seal(); a.status != 507 && code(t, a) != codeMissing { // what was not staged is missing
		t.Errorf("seal on a full disk = %d %s", a.status, a.body)
	}
	h.restored(next, image(2, 300_000))
	h.disk.full.Store(false)
	if a := u.send(u.missing()...); a.status != 200 {
		t.Errorf("chunks when there is room = %d %s", a.status, a.body)
	}
	h.restored(u.seal().json(t)["sha"].(string), u.img)
}

// A damaged chunk is an error that names it, never wrong or short bytes; the session
// becomes view-only, what was saved before restores, and without the bad one it goes on.
func TestB09_DamagedChunk(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	old := image(1, 300_000)
	before := h.save("s", old, meta{})["sha"].(string)
	img := image(2, 3<<20)
	sha := h.save("s", img, meta{})["sha"].(string)
	h.damage(img[:4<<10])
	path := h.path("/snapshots/" + sha + "/image")
	got := h.refused(500, "snapshot_damaged", ask{path: path, token: h.read})
	if got["sha"] != sha || got["chunk"] == nil || got["retryable"] != false {
		t.Errorf("a damaged chunk = %v, want it named", got)
	}
	s := h.get("s")
	if s["state"] != "view_only" || s["usable"] != false {
		t.Errorf("session = %v, want it view-only", s)
	}
	if one := h.snapshot(sha); one["state"] != "failed" || one["usable"] != false || one["reason"] == nil {
		t.Errorf("snapshot = %v, want it failed", one)
	}
	h.refused(409, "view_only", h.saving("s", image(3, 50_000), meta{}))
	if a := h.commitAs(h.write, "sessions/s", "x", "1"); a.status != 409 {
		t.Errorf("commit to a view-only session = %d", a.status)
	}
	a := h.do(ask{method: "POST", path: h.path("/sessions"), token: h.write, body: meta{"from_snapshot": sha}})
	if a.status != 500 || code(t, a) != codeDamaged {
		t.Errorf("a session of a damaged state = %d %s, want the failure and no fresh session", a.status, a.body)
	}
	h.restored(before, old)
	h.want(200, ask{method: "DELETE", path: h.path("/snapshots/" + sha), token: h.write})
	if s := h.get("s"); s["state"] != "active" || s["usable"] != true || s["snapshot_sha"] != before {
		t.Errorf("session = %v, want it active at %s", s, before)
	}
	h.restored(before, old)
}

// Damage behind the first bytes cuts the answer: its length is not met, the sparse form
// has no end and says why.
func TestCase14_1_DamageBehindTheBeginning(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	img := image(1, 10<<20)
	sha := h.save("s", img, meta{})["sha"].(string)
	at := len(img) - 8<<10 - len(img)%(8<<10)
	h.damage(img[at : at+4<<10])
	for _, accept := range []string{"", sparseMedia} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", h.http.URL+h.path("/snapshots/"+sha+"/image"), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+h.read)
		req.Header.Set("Accept", accept)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		_, rerr := got.ReadFrom(resp.Body)
		resp.Body.Close()
		switch {
		case resp.StatusCode != 200:
			if resp.StatusCode != 500 {
				t.Errorf("image with %q = %d", accept, resp.StatusCode)
			}
		case accept == "" && (rerr == nil || !bytes.HasPrefix(img, got.Bytes())):
			t.Errorf("a damaged image: %d bytes, %v; want it cut, and right up to there", got.Len(), rerr)
		case accept != "":
			in := snapshot.NewSparseReader(&got)
			_, err := in.Header()
			for err == nil {
				_, err = in.Next()
			}
			if in.Root() != (snapshot.Hash{}) || rerr == nil && !strings.Contains(resp.Trailer.Get(errorTrailer), codeDamaged) {
				t.Errorf("a damaged sparse stream ends with %v, trailer %q", err, resp.Trailer.Get(errorTrailer))
			}
		}
	}
}

// Uploads that nobody goes on with are the session's only so many.
func TestUploadsAreBounded(t *testing.T) {
	h := newKeep(t, snapshot.Limits{})
	for range h.server.Snapshots.Limits.Uploads {
		h.begin(image(1, 5000), meta{})
	}
	a := h.do(ask{method: "POST", path: h.path("/sessions/s/snapshots/uploads"), token: h.write, body: meta{}})
	if a.status < 400 || a.status >= 500 && a.status != 507 {
		t.Errorf("one upload more than there may be = %d %s", a.status, a.body)
	}
}
