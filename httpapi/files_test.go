package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestA08_File(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	c := r.commit(nil, file{path: "dir/ten", data: "0123456789"}, file{path: "empty", data: ""})
	r.commit(nil, file{path: "other", data: "x"})
	get := func(method string, header ...string) answer {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return r.do(ask{method: method, path: r.old("/file", "ref", c, "path", "/dir/ten"), token: r.read, header: h})
	}
	whole := get("GET")
	etag := whole.header.Get("ETag")
	const blob = "ad471007bd7f5983d273b9584e5629230150fd54"
	modified := whole.header.Get("Last-Modified")
	for _, method := range []string{"GET", "HEAD"} {
		for _, tc := range []struct {
			header []string
			status int
			body   string
			length string
			ranged string
		}{
			{nil, 200, "0123456789", "10", ""},
			{[]string{"Range", "bytes=0-3"}, 206, "0123", "4", "bytes 0-3/10"},
			{[]string{"Range", "bytes=-4"}, 206, "6789", "4", "bytes 6-9/10"},
			{[]string{"Range", "bytes=8-"}, 206, "89", "2", "bytes 8-9/10"},
			{[]string{"Range", "bytes=10-"}, 416, "", "", "bytes */10"},
			{[]string{"Range", "bytes=0-1,3-4"}, 200, "0123456789", "10", ""},
			{[]string{"If-None-Match", etag}, 304, "", "", ""},
			{[]string{"If-Match", `"x"`}, 412, "", "", ""},
			{[]string{"If-Modified-Since", modified}, 304, "", "", ""},
			{[]string{"Range", "bytes=0-3", "If-Range", `"x"`}, 200, "0123456789", "10", ""},
		} {
			a := get(method, tc.header...)
			if a.status != tc.status || a.header.Get("Content-Range") != tc.ranged {
				t.Errorf("%s %v = %d, Content-Range %q; want %d, %q", method, tc.header, a.status, a.header.Get("Content-Range"), tc.status, tc.ranged)
			}
			if tc.length != "" && (a.header.Get("Content-Length") != tc.length || a.header.Get("Content-Type") != "application/octet-stream") {
				t.Errorf("%s %v: length %s, type %s; want %s", method, tc.header, a.header.Get("Content-Length"), a.header.Get("Content-Type"), tc.length)
			}
			if method == "HEAD" && len(a.body) != 0 || method == "GET" && tc.length != "" && string(a.body) != tc.body {
				t.Errorf("%s %v: body %q, want %q", method, tc.header, a.body, tc.body)
			}
			for name, want := range map[string]string{"ETag": `"` + blob + `"`, "X-Blob-Sha": blob, "X-Last-Commit-Sha": c, "Accept-Ranges": "bytes", "Last-Modified": modified} {
				if got := a.header.Get(name); got != want || got == "" {
					t.Errorf("%s %v (%d): %s = %q, want %q", method, tc.header, a.status, name, got, want)
				}
			}
		}
	}
	if a := r.do(ask{path: r.path("/file", "ref", c, "path", "empty"), token: r.read}); a.status != 200 || len(a.body) != 0 {
		t.Errorf("empty file = %d, %d bytes", a.status, len(a.body))
	}
}

// Case 6.4 and what else is not a file.
func TestCase6_4_NotAFile(t *testing.T) {
	g := newGate(t)
	empty := g.newRepo("empty")
	r := g.newRepo("r")
	r.commit(nil, file{path: "dir/f", data: "1"}, file{path: "link", data: "dir", mode: "120000"})
	for _, tc := range []struct {
		path   string
		status int
		text   string
	}{
		{r.path("/file", "path", "dir"), 404, "directory"},
		{r.path("/file", "path", "dir/"), 404, ""},
		{r.path("/file", "path", "link/f"), 404, ""},
		{r.path("/file", "path", "dir/f/x"), 404, ""},
		{r.path("/file", "path", "nosuch"), 404, ""},
		{r.path("/file", "path", "dir/f", "ref", "nosuch"), 404, ""},
		{r.path("/file", "path", "dir/f", "ref", "main..x"), 400, ""},
		{r.path("/file", "path", "dir/f", "ref", "refs/namespaces/ephemeral/refs/heads/x"), 404, ""},
		{r.path("/file", "path", "../../../../etc/passwd"), 400, ""},
		{r.path("/file"), 400, "path"},
		{r.path("/file", "path", ""), 400, "path"},
		{r.path("/file", "path", "dir/f", "ephemeral", "yes"), 400, "ephemeral"},
		{r.path("/file") + "?path=dir%2Ff&x=%zz", 400, "query"},
		{empty.path("/file", "path", "x"), 404, ""},
		{empty.path("/files"), 404, ""},
	} {
		tok := r.read
		if strings.HasPrefix(tc.path, empty.path("")) {
			tok = empty.read
		}
		a := r.do(ask{path: tc.path, token: tok})
		if a.status != tc.status || !strings.Contains(string(a.body), tc.text) {
			t.Errorf("GET %s = %d %s, want %d and %q", tc.path, a.status, a.body, tc.status, tc.text)
		}
		if h := r.do(ask{method: "HEAD", path: tc.path, token: tok}); h.status != tc.status || len(h.body) != 0 {
			t.Errorf("HEAD %s = %d, %d bytes; want %d and none", tc.path, h.status, len(h.body), tc.status)
		}
	}
	if got := r.content("main", "link"); got != "dir" {
		t.Errorf("link = %q, want its target", got)
	}
	if a := r.do(ask{path: r.path("/file") + "?path=a+b", token: r.read}); a.status != 404 || !strings.Contains(string(a.body), "a b") {
		t.Errorf("a raw + = %d %s, want it read as a blank", a.status, a.body)
	}
}

func TestLargeFile(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	data := strings.Repeat("0123456789abcdef", 3<<20/16)
	c := r.commit(nil, file{path: "big", data: data})
	for range 2 {
		if got := r.content(c, "big"); got != data {
			t.Fatalf("large file came back as %d bytes, want %d", len(got), len(data))
		}
	}
	a := r.want(206, ask{path: r.path("/file", "ref", c, "path", "big"), token: r.read, header: http.Header{"Range": {"bytes=2000003-2000009"}}})
	if string(a.body) != data[2000003:2000010] {
		t.Errorf("range of a large file = %q, want %q", a.body, data[2000003:2000010])
	}
}

func TestListFiles(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	r.commit(nil, file{path: "a", data: "1"}, file{path: "docs/img/x", data: "1"}, file{path: "docs/intro.md", data: "1"}, file{path: "z", data: "1"})
	r.commit(meta{"target_branch": "s", "base_branch": "main", "ephemeral": true}, file{path: "only", data: "1"})
	list := func(query ...string) string {
		v := r.want(200, ask{path: r.path("/files", query...), token: r.read}).json(t)
		var entries []string
		for _, e := range v["entries"].([]any) {
			entries = append(entries, fmt.Sprint(at(e, "path"), ":", at(e, "type")))
		}
		return strings.TrimSpace(fmt.Sprintln(v["paths"], entries, v["ref"], v["has_more"], v["next_cursor"]))
	}
	all := "[a docs/img/x docs/intro.md z] [a:blob docs:tree docs/img:tree docs/img/x:blob docs/intro.md:blob z:blob] main false <nil>"
	for _, tc := range []struct {
		query []string
		want  string
	}{
		{nil, all},
		{[]string{"limit", "0"}, all},
		{[]string{"ref", "refs/heads/main"}, strings.Replace(all, "main", "refs/heads/main", 1)},
		{[]string{"recursive", "false"}, "[a z] [a:blob docs:tree z:blob] main false <nil>"},
		{[]string{"path", "docs/", "recursive", "false"}, "[docs/intro.md] [docs/img:tree docs/intro.md:blob] main false <nil>"},
		{[]string{"path", "docs/intro.md"}, "[docs/intro.md] [docs/intro.md:blob] main false <nil>"}, // OQ-F4
		{[]string{"limit", "2"}, "[a] [a:blob docs:tree] main true docs"},
		{[]string{"limit", "3", "cursor", "docs"}, "[docs/img/x docs/intro.md] [docs/img:tree docs/img/x:blob docs/intro.md:blob] main true docs/intro.md"},
		{[]string{"cursor", "docs/intro.md"}, "[z] [z:blob] main false <nil>"},
		{[]string{"ref", "s", "ephemeral", "true", "cursor", "docs/zzz", "limit", "1"}, "[only] [only:blob] refs/namespaces/ephemeral/refs/heads/s true only"},
	} {
		if got := list(tc.query...); got != tc.want {
			t.Errorf("files %v = %s\nwant %s", tc.query, got, tc.want)
		}
	}
	for _, tc := range []struct {
		query  []string
		status int
	}{
		{[]string{"path", "nosuch"}, 404}, {[]string{"path", ".."}, 400}, {[]string{"limit", "-1"}, 400}, {[]string{"limit", "x"}, 400},
		{[]string{"recursive", "maybe"}, 400}, {[]string{"cursor", "/x"}, 400}, {[]string{"ref", "nosuch"}, 404}, {[]string{"limit", "100000"}, 200},
	} {
		if a := r.do(ask{path: r.path("/files", tc.query...), token: r.read}); a.status != tc.status {
			t.Errorf("files %v = %d %s, want %d", tc.query, a.status, a.body, tc.status)
		}
	}
}
