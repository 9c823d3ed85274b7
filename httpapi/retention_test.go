package httpapi

import (
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// Every answer about a pointer says, if asked, until when it is readable, by both
// route sets; who does not ask is told nothing more than before.
func TestPI18_AnswersSayUntilWhen(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("team/site")
	main := r.commit(nil, file{path: "a", data: "main"})
	session := meta{"target_branch": "s", "base_branch": "main", "ephemeral": true}
	pinned := r.commit(session, file{path: "a", data: "pinned"})
	loose := r.commit(session, file{path: "a", data: "loose"})
	pin := r.want(201, ask{method: "POST", path: r.path("/pins"), token: r.write, body: meta{"sha": pinned, "holder": "reader", "ttl_s": 60}}).json(t)
	want := func(when string, wanted map[string]string) {
		t.Helper()
		for oid, until := range wanted {
			for what, a := range pointerAsks(r, oid) {
				got := r.want(200, a)
				if h := got.header.Get("X-Readable-Until"); h != until {
					t.Errorf("%s: %s of %s: X-Readable-Until is %q, want %q", when, what, oid, h, until)
				}
			}
		}
	}
	want("with the session", map[string]string{main: "forever", pinned: "forever", loose: "forever"})
	r.want(200, ask{method: "DELETE", path: r.path("/branches"), token: r.write, body: meta{"name": "s", "ephemeral": true}})
	until, err := time.Parse(time.RFC3339, pin["expires_at"].(string))
	if err != nil {
		t.Fatalf("pin %v: %v", pin, err)
	}
	want("without the session", map[string]string{main: "forever", pinned: until.UTC().Format(time.RFC3339), loose: "next-prune"})
	for _, path := range []string{r.path("/commit", "ref", loose), r.path("/file", "ref", loose, "path", "a", "readable_until", "false")} {
		if h := r.want(200, ask{path: path, token: r.read}).header; len(h.Values("X-Readable-Until")) > 0 {
			t.Errorf("GET %s: X-Readable-Until is %q, want none: nobody asked", path, h.Values("X-Readable-Until"))
		}
	}
	r.want(400, ask{path: r.path("/commit", "ref", loose, "readable_until", "tomorrow"), token: r.read})
}

// pointerAsks are the requests that read a commit by its id and ask until when they may.
func pointerAsks(r *repo, oid string) map[string]ask {
	asks := map[string]ask{}
	for set, path := range map[string]func(string, ...string) string{"new": r.path, "old": r.old} {
		get := func(name, tail string, query ...string) {
			asks[set+" "+name] = ask{path: path(tail, append(query, "readable_until", "true")...), token: r.read}
		}
		get("file", "/file", "ref", oid, "path", "a")
		asks[set+" head"] = ask{method: "HEAD", path: asks[set+" file"].path, token: r.read}
		asks[set+" range"] = ask{path: asks[set+" file"].path, token: r.read, header: http.Header{"If-Range": {`"x"`}, "Range": {"bytes=0-0"}}}
		get("files", "/files", "ref", oid)
		get("commits", "/commits", "ref", oid)
		get("commit", "/commit", "ref", oid)
		get("diff", "/diff", "ref", oid)
		get("diff from main", "/diff", "ref", "main", "base_ref", oid)
		get("branch diff", "/branches/diff", "branch", "main", "base", oid)
	}
	return asks
}

// What is kept by a cache for ever would tell for ever what holds for a minute.
func TestReadableUntilIsAskedAnew(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	oid := r.commit(nil, file{path: "a", data: "1"}, file{path: "b", data: "2"})
	path := r.path("/file", "ref", oid, "path", "a", "readable_until", "true")
	a := r.want(200, ask{path: path, token: r.read})
	if c := a.header.Get("Cache-Control"); c != byName[0] {
		t.Errorf("Cache-Control is %q, want %q", c, byName[0])
	}
	if a = r.want(304, ask{path: path, token: r.read, header: http.Header{"If-None-Match": a.header.Values("Etag")}}); a.header.Get("X-Readable-Until") != "forever" {
		t.Errorf("304: X-Readable-Until is %q, want forever", a.header.Get("X-Readable-Until"))
	}
	page := r.want(200, ask{path: r.path("/files", "limit", "1"), token: r.read}).json(t)
	a = r.want(200, ask{path: r.path("/files", "limit", "1", "cursor", page["next_cursor"].(string), "ref", oid, "readable_until", "true"), token: r.read})
	if a.header.Get("X-Readable-Until") != "forever" {
		t.Errorf("second page of files: X-Readable-Until is %q, want forever", a.header.Get("X-Readable-Until"))
	}
	r.commit(nil, file{path: "a", data: "3"})
	page = r.want(200, ask{path: r.path("/commits", "limit", "1"), token: r.read}).json(t)
	a = r.want(200, ask{path: r.path("/commits", "cursor", page["next_cursor"].(string), "readable_until", "true"), token: r.read})
	if a.header.Get("X-Readable-Until") != "forever" {
		t.Errorf("second page of commits: X-Readable-Until is %q, want forever", a.header.Get("X-Readable-Until"))
	}
}

// A confined token is told the same of what it reads whatever others pin, and of the
// rest that it does not exist, as ever.
func TestA13_ReadableUntilTellsNothing(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	own := r.commit(meta{"target_branch": "s/a", "ephemeral": true}, file{path: "a", data: "1"})
	r.want(200, ask{method: "POST", path: r.path("/branches/create"), token: r.write, body: meta{"target_branch": "s/b", "target_is_ephemeral": true, "base_ref": "s/a", "base_is_ephemeral": true}})
	secret := r.commit(meta{"target_branch": "s/b", "ephemeral": true}, file{path: "a", data: "2"})
	for _, sha := range []string{own, secret} {
		r.want(201, ask{method: "POST", path: r.path("/pins"), token: r.write, body: meta{"sha": sha, "holder": "x", "ttl_s": 60}})
	}
	confined := tokenOf(t, tokens.Claims{Repo: "r", Subject: "sandbox", Scopes: []tokens.Scope{tokens.GitRead}, Refs: []refpolicy.Rule{
		rule("refs/namespaces/ephemeral/refs/heads/s/a"), rule("*", refpolicy.NoRead),
	}})
	commit := func(oid string) ask {
		return ask{path: r.path("/commit", "ref", oid, "readable_until", "true"), token: confined}
	}
	if a := r.want(200, commit(own)); a.header.Get("X-Readable-Until") != "forever" {
		t.Errorf("own commit: X-Readable-Until is %q, want forever", a.header.Get("X-Readable-Until"))
	}
	if a := r.want(404, commit(secret)); a.header.Get("X-Readable-Until") != "" {
		t.Errorf("another's commit: X-Readable-Until is %q, want none", a.header.Get("X-Readable-Until"))
	}
}
