package integration

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/tokens"
)

// A pointer is a repo, a commit and a path: what it names is read whole or in part,
// by whoever may, after the writer, his token and the process have gone (PI-3, PI-16).
func TestA08_FileByPointer(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, _ := g.seeded(harness.File{Path: "f", Content: "0123456789"})
		sha := r.head("main", false)
		r.commit(harness.Commit{Branch: "main", Expected: sha, Files: []harness.File{{Path: "f", Content: "changed"}}})
		whole := r.file(sha, "f")
		etag := whole.Header.Get("ETag")
		if whole.Status != 200 || string(whole.Body) != "0123456789" || etag != `"ad471007bd7f5983d273b9584e5629230150fd54"` {
			t.Fatalf("file = %s, ETag %s", whole, etag)
		}
		for name, want := range map[string]string{
			"X-Blob-Sha": "ad471007bd7f5983d273b9584e5629230150fd54", "X-Last-Commit-Sha": sha, "Accept-Ranges": "bytes",
			"Content-Type": "application/octet-stream", "Content-Length": "10",
		} {
			if got := whole.Header.Get(name); got != want {
				t.Errorf("file: %s = %q, want %q", name, got, want)
			}
		}
		for _, tc := range []struct {
			header, value string
			status        int
			body, where   string
		}{
			{"Range", "bytes=0-3", 206, "0123", "bytes 0-3/10"},
			{"Range", "bytes=-4", 206, "6789", "bytes 6-9/10"},
			{"Range", "bytes=8-", 206, "89", "bytes 8-9/10"},
			{"Range", "bytes=9-100", 206, "9", "bytes 9-9/10"},
			{"Range", "bytes=10-", 416, "", "bytes */10"},
			{"Range", "bytes=-0", 416, "", "bytes */10"},
			{"Range", "pages=1-2", 200, "0123456789", ""},
			{"If-None-Match", etag, 304, "", ""},
			{"If-None-Match", "W/" + etag, 304, "", ""},
			{"If-None-Match", `"other"`, 200, "0123456789", ""},
			{"If-Match", etag, 200, "0123456789", ""},
			{"If-Match", `"other"`, 412, "", ""},
		} {
			for _, method := range []string{"GET", "HEAD"} {
				a := g.do(harness.Ask{Method: method, Path: r.path("/file?path=f&ref=" + sha), Token: r.read, Header: map[string]string{tc.header: tc.value}})
				body := tc.body
				if method == "HEAD" {
					body = ""
				}
				if a.Status != tc.status || a.Header.Get("Content-Range") != tc.where || (a.Status < 300 && string(a.Body) != body) || (method == "HEAD" && len(a.Body) > 0) {
					t.Errorf("%s with %s: %s = %s, Content-Range %q; want %d %q, %q", method, tc.header, tc.value, a, a.Header.Get("Content-Range"), tc.status, body, tc.where)
				}
				if a.Header.Get("ETag") != etag {
					t.Errorf("%s with %s: %s has ETag %q, want %s", method, tc.header, tc.value, a.Header.Get("ETag"), etag)
				}
			}
		}
		if err := g.Stop(stopLimit); err != nil {
			t.Fatal(err)
		}
		if err := g.Restart(); err != nil {
			t.Fatal(err)
		}
		reader := r.token([]tokens.Scope{tokens.GitRead})
		if a := g.do(harness.Ask{Path: r.path("/file?path=f&ref=" + sha), Token: reader}); string(a.Body) != "0123456789" {
			t.Errorf("file after a restart = %s", a)
		}
	})
}

func TestCase6_1_NamesInQueries(t *testing.T) {
	g := start(t)
	names := []string{"100%.txt", "a+b", "a b", "a#b", "a?b", "a&b=c", "%41", "\u00e9", "e\u0301", "a;b"}
	var files []harness.File
	for _, name := range names {
		files = append(files, harness.File{Path: name, Content: "content of " + name})
	}
	r, sha := g.seeded(files...)
	for _, name := range names {
		escaped := "%" + strings.TrimSuffix(strings.ReplaceAll(fmt.Sprintf("% x", name), " ", "%"), "%")
		a := g.do(harness.Ask{Path: r.path("/file?ref=" + sha + "&path=" + escaped), Token: r.read})
		if a.Status != 200 || string(a.Body) != "content of "+name {
			t.Errorf("file %q as %s = %s", name, escaped, a)
		}
	}
	if a := g.do(harness.Ask{Path: r.path("/file?path=a+b"), Token: r.read}); string(a.Body) != "content of a b" {
		t.Errorf("path=a+b = %s, want the file with a blank", a)
	}
	if a := g.do(harness.Ask{Path: r.path("/file?path=%2541"), Token: r.read}); string(a.Body) != "content of %41" {
		t.Errorf("path=%%2541 = %s, want the file %%41", a)
	}
}

// One byte of a large file costs one byte, fifty times over.
func TestCase6_2_RangesOfALargeFile(t *testing.T) {
	program, err := programs.Plain()
	if err != nil {
		t.Fatal(err)
	}
	g := startProgram(t, program)
	content := string(noise(t, 50<<20))
	r := g.repo()
	sha := r.commitLarge("main", "big", "", strings.NewReader(content))
	r.file(sha, "big")
	before, err := harness.RSSAnon(g.PID())
	if err != nil {
		t.Fatal(err)
	}
	w := harness.WatchMemory(g.PID(), watchEvery)
	for i := range 50 {
		at := i * len(content) / 50
		a := g.do(harness.Ask{Path: r.path("/file?path=big&ref=" + sha), Token: r.read, Header: map[string]string{"Range": fmt.Sprintf("bytes=%d-%d", at, at)}})
		if a.Status != 206 || string(a.Body) != content[at:at+1] {
			t.Fatalf("byte %d of big = %s, want %q", at, a, content[at])
		}
	}
	if own, _ := w.Peak(); own-before > 40<<20 {
		t.Errorf("50 ranges of a 50 MiB file: memory grew by %d MiB, want under 40", (own-before)>>20)
	}
}

// The ETag always belongs to the bytes sent, whatever moves the branch meanwhile.
func TestCase6_3_ETagMatchesTheBytes(t *testing.T) {
	g := start(t)
	r, _ := g.seeded(harness.File{Path: "f", Content: "0"})
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(done)
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if a, err := g.Do(r.commitAsk(harness.Commit{Branch: "main", Files: []harness.File{{Path: "f", Content: fmt.Sprint(i)}}}, r.write)); err != nil || a.Status != 201 {
				done <- fmt.Errorf("commit %d = %s, %v", i, a, err)
				return
			}
		}
	}()
	last := ""
	for range 200 {
		a := g.do(harness.Ask{Path: r.path("/file?path=f&ref=main"), Token: r.read, Header: map[string]string{"If-None-Match": last}})
		switch a.Status {
		case 200:
			if a.Header.Get("ETag") != `"`+blobID(a.Body)+`"` {
				t.Fatalf("ETag %s on bytes %q, whose blob is %s", a.Header.Get("ETag"), a.Body, blobID(a.Body))
			}
			last = a.Header.Get("ETag")
		case 304:
			if a.Header.Get("ETag") != last || len(a.Body) != 0 {
				t.Fatalf("304 with ETag %s and %d bytes, want %s", a.Header.Get("ETag"), len(a.Body), last)
			}
		default:
			t.Fatalf("file = %s, want 200 or 304", a)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.session("twin", "main")
	one, two := r.file("main", "f"), r.get("/file", "path", "f", "ref", "twin", "ephemeral", "true")
	if one.Header.Get("ETag") != two.Header.Get("ETag") {
		t.Errorf("one content on two branches has ETags %s and %s", one.Header.Get("ETag"), two.Header.Get("ETag"))
	}
}

func TestCase6_4_WhatIsNoFile(t *testing.T) {
	g := start(t)
	r, _ := g.seeded(harness.File{Path: "dir/f", Content: "x"}, harness.File{Path: "link", Content: "dir/f", Mode: "120000"}, harness.File{Path: "file", Content: "y"})
	for _, tc := range []struct {
		ref, path string
		status    int
	}{
		{"main", "dir", 404}, {"main", "dir/", 404}, {"main", "link", 200}, {"main", "link/x", 404}, {"main", "file/x", 404},
		{"main", "none", 404}, {"none", "file", 404}, {"main", "", 400}, {zeros, "file", 404}, {"main..x", "file", 400},
	} {
		a := r.get("/file", "ref", tc.ref, "path", tc.path)
		if a.Status != tc.status && !(tc.path == "dir/" && a.Status == 400) {
			t.Errorf("file %q at %q = %s, want %d", tc.path, tc.ref, a, tc.status)
		}
	}
	r.wantFile("main", "link", "dir/f")
	if a := g.repo().get("/file", "path", "f"); a.Status != 404 {
		t.Errorf("file of an empty repo = %s, want 404", a)
	}
	if a := g.repo().get("/commits", "branch", "main"); a.Status != 200 || a.List("commits") == nil || len(a.List("commits")) != 0 {
		t.Errorf("commits of an empty repo = %s, want 200 and none", a)
	}
}

func TestCase6_ListFiles(t *testing.T) {
	g := start(t)
	r, _ := g.seeded(harness.File{Path: "b", Content: "x"}, harness.File{Path: "a/x/y", Content: "x"}, harness.File{Path: "a/z", Content: "x", Mode: "100755"}, harness.File{Path: "link", Content: "b", Mode: "120000"})
	a := r.get("/files", "ref", "main")
	if got := fmt.Sprint(a.List("paths")); got != "[a/x/y a/z b link]" {
		t.Errorf("files: paths = %s, want a/x/y a/z b link", got)
	}
	var paged []string
	for cursor, rounds := "", 0; rounds < 10; rounds++ {
		page := r.get("/files", "ref", "main", "limit", "2", "cursor", cursor)
		for _, e := range page.List("entries") {
			m := e.(map[string]any)
			paged = append(paged, fmt.Sprintf("%s:%s:%s", m["path"], m["type"], m["mode"]))
		}
		if page.Get("has_more") != true {
			break
		}
		cursor = page.Text("next_cursor")
	}
	want := "a:tree:040000 a/x:tree:040000 a/x/y:blob:100644 a/z:blob:100755 b:blob:100644 link:symlink:120000"
	if got := strings.Join(paged, " "); got != want {
		t.Errorf("files in pages = %s, want %s", got, want)
	}
	if a := r.get("/files", "ref", "main", "recursive", "false", "path", "a"); fmt.Sprint(a.List("paths")) != "[a/z]" {
		t.Errorf("files below a, not recursive = %s", a)
	}
	for query, status := range map[string]int{"?ref=none": 404, "?path=none": 404, "?recursive=yes": 400, "?limit=-1": 400, "?limit=x": 400, "?limit=99999": 200} {
		if a := g.do(harness.Ask{Path: r.path("/files" + query), Token: r.read}); a.Status != status {
			t.Errorf("files%s = %s, want %d", query, a, status)
		}
	}
}

// What is read by a full id is the same for ever and may be kept so.
func TestPI03_PointersAreCacheable(t *testing.T) {
	g := start(t)
	r, sha := g.seeded()
	if a := r.file(sha, "README.md"); !strings.Contains(a.Header.Get("Cache-Control"), "immutable") {
		t.Errorf("file by id: Cache-Control = %q, want immutable", a.Header.Get("Cache-Control"))
	}
	if a := r.file("main", "README.md"); strings.Contains(a.Header.Get("Cache-Control"), "immutable") {
		t.Errorf("file by branch: Cache-Control = %q, want no immutable", a.Header.Get("Cache-Control"))
	}
	for _, tail := range []string{"/files?ref=", "/commits?ref=", "/commit?sha=", "/diff?sha=", "/file?path=README.md&ref="} {
		for _, route := range []string{r.path(tail), "/api/v1/repos" + tail} {
			if a := g.do(harness.Ask{Path: route + url.QueryEscape(sha), Token: r.read}); a.Status != http.StatusOK {
				t.Errorf("GET %s by id = %s, want 200", route, a)
			}
		}
	}
}
