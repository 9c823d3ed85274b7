package httpapi

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

func TestRepoLife(t *testing.T) {
	g := newGate(t)
	admin := token(t, "team-red/site", tokens.RepoWrite)
	v := g.want(201, ask{method: "POST", path: "/api/repos", token: admin, body: meta{"default_branch": "trunk", "repo_name": "team-red/site", "limits": meta{"max_files": 1}}}).json(t)
	id, _ := v["repo_id"].(string)
	if id == "" || v["repo_name"] != "team-red/site" || v["url"] != "team-red/site" || v["message"] == nil {
		t.Errorf("create = %v", v)
	}
	if want := g.http.URL + "/team-red/site.git"; v["http_url"] != want {
		t.Errorf("http_url = %v, want %s", v["http_url"], want)
	}
	if a := g.want(409, ask{method: "POST", path: "/api/v1/repos", token: admin}); at(a.json(t), "code") != "repository_exists" {
		t.Errorf("second create = %s", a.body)
	}
	for _, path := range []string{"/api/v1/repo", "/api/repos/team-red%2Fsite"} {
		v := g.want(200, ask{path: path, token: admin}).json(t)
		created, _ := v["created_at"].(string)
		if _, err := time.Parse(time.RFC3339, created); err != nil || v["default_branch"] != "trunk" || v["repo_id"] != id || v["url"] != "team-red/site" {
			t.Errorf("get %s = %v", path, v)
		}
		if base, there := v["base_repo"]; !there || base != nil {
			t.Errorf("base_repo = %v, %v; want null", base, there)
		}
	}
	for _, tc := range []struct {
		body   string
		status int
	}{{"", 400}, {"{}", 400}, {`{"default_branch":"a..b"}`, 400}, {`[]`, 400}, {`{"default_branch":"main"}`, 200}} { // an empty repo takes any, OQ-C4
		if a := g.do(ask{method: "PATCH", path: "/api/v1/repo", token: admin, body: tc.body}); a.status != tc.status {
			t.Errorf("PATCH %s = %d %s, want %d", tc.body, a.status, a.body, tc.status)
		}
	}
	v = g.want(200, ask{method: "DELETE", path: "/api/v1/repos/delete", token: admin}).json(t)
	if v["repo_id"] != id || v["message"] == nil || v["repo_name"] != "team-red/site" {
		t.Errorf("delete = %v", v)
	}
	for _, a := range []ask{{path: "/api/v1/repo"}, {method: "DELETE", path: "/api/repos/team-red%2Fsite"}} {
		a.token = admin
		g.want(404, a)
	}
	g.want(201, ask{method: "POST", path: "/api/v1/repos", token: admin}) // OQ-C3: the name is free
}

func TestCreateRepoRefuses(t *testing.T) {
	g := newGate(t)
	admin := token(t, "r", tokens.RepoWrite)
	for name, tc := range map[string]struct{ body, code string }{
		"not JSON":       {"{", "invalid_request"},
		"an array":       {"[]", "invalid_request"},
		"branch":         {`{"default_branch":"a b"}`, "invalid_request"},
		"other name":     {`{"repo_name":"s"}`, "invalid_request"},
		"fork":           {`{"base_repo":{"provider":"code","operation":"fork","name":"x","auth":{"token":"t"}}}`, "not_supported"},
		"git host":       {`{"base_repo":{"provider":"github","owner":"o","name":"n"}}`, "not_supported"},
		"base no object": {`{"base_repo":"x"}`, "invalid_request"},
		"first commit":   {`{"initial_commit":{"message":"m"}}`, "invalid_request"},
	} {
		a := g.want(400, ask{method: "POST", path: "/api/repos", token: admin, body: tc.body})
		if at(a.json(t), "code") != tc.code {
			t.Errorf("%s: %s, want the code %s", name, a.body, tc.code)
		}
	}
	g.want(400, ask{method: "POST", path: "/api/repos?default_branch=a..b", token: admin})
	g.want(413, ask{method: "POST", path: "/api/repos", token: admin, body: `{"x":"` + strings.Repeat("x", 1<<20) + `"}`})
	for _, name := range []string{"../../tmp/x", ".hidden", "a//b", "/a", "a/", "x.git", "x+ephemeral", "a b", "-x", "a/../b", "é", "a\x00b", strings.Repeat("a", 256), "%2e%2e"} {
		if a := g.do(ask{method: "POST", path: "/api/repos", token: token(t, name, tokens.RepoWrite)}); a.status != 400 {
			t.Errorf("create of %q = %d %s, want 400", name, a.status, a.body)
		}
	}
	v := g.want(201, ask{method: "POST", path: "/api/v1/repos?default_branch=dev", token: admin, body: `{"base_repo":null}`}).json(t)
	if v["default_branch"] != "dev" {
		t.Errorf("default branch from the query = %v", v)
	}
}

func TestListRepos(t *testing.T) {
	g := newGate(t)
	org := token(t, "org", tokens.OrgRead)
	if v := g.want(200, ask{path: "/api/v1/repos", token: org}).json(t); len(v["repos"].([]any)) != 0 || v["has_more"] != false {
		t.Errorf("list of nothing = %v, want an empty list", v)
	}
	for i := range 5 {
		g.newRepo(fmt.Sprintf("team/%d", i))
	}
	g.newRepo("other")
	var names []string
	for cursor, more := "", true; more; {
		v := g.want(200, ask{path: "/api/repos?limit=2&q=%20TEAM%20&cursor=" + cursor, token: org}).json(t)
		for _, r := range v["repos"].([]any) {
			names = append(names, at(r, "url").(string))
			if at(r, "url") != at(r, "repo_name") {
				t.Errorf("url and repo_name differ: %v", r)
			}
		}
		more = v["has_more"].(bool)
		cursor, _ = v["next_cursor"].(string)
		if more != (cursor != "") {
			t.Fatalf("has_more %v with next_cursor %q", more, cursor)
		}
	}
	if fmt.Sprint(names) != "[team/4 team/3 team/2 team/1 team/0]" {
		t.Errorf("names = %v, want the team's, newest first", names)
	}
	for query, status := range map[string]int{"limit=0": 200, "limit=1000": 200, "limit=-1": 400, "limit=x": 400, "limit=1.5": 400, "cursor=!!!": 400, "q=": 200, "limit=99999999999999999999": 200, "a=%zz": 400} {
		if a := g.do(ask{path: "/api/v1/repos?" + query, token: org}); a.status != status {
			t.Errorf("list with %s = %d %s, want %d", query, a.status, a.body, status)
		}
	}
}

func TestA01_SessionBranch(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("team-red/site")
	head := r.commit(nil, file{path: "a", data: "1"})
	for i, tc := range []struct {
		path string
		body meta
	}{
		{r.path("/branches/create"), meta{"target_branch": "sessions/0", "target_is_ephemeral": true, "base_ref": "main"}},
		{r.old("/branches/create"), meta{"target_branch": "sessions/1", "target_is_ephemeral": true, "base_branch": "main", "base_is_ephemeral": false}},
		{r.path("/branches/create"), meta{"target_branch": "sessions/2", "target_is_ephemeral": true, "base_ref": "refs/heads/main", "base_branch": "nosuch"}},
		{r.old("/branches/create"), meta{"target_branch": "sessions/3", "target_is_ephemeral": true, "base_ref": "sessions/0", "base_is_ephemeral": true}},
	} {
		name := fmt.Sprintf("sessions/%d", i)
		v := r.want(200, ask{method: "POST", path: tc.path, token: r.write, body: tc.body}).json(t)
		for path, want := range map[string]any{
			"target_branch": name, "target_is_ephemeral": true, "commit_sha": head, "message": "branch created",
			"ref": "refs/namespaces/ephemeral/refs/heads/" + name, "repo_name": "team-red/site", "url": "team-red/site",
		} {
			if v[path] != want {
				t.Errorf("%v: %s = %v, want %v", tc.body, path, v[path], want)
			}
		}
		if id, _ := v["repo_id"].(string); id == "" {
			t.Errorf("%v: no repo_id", tc.body)
		}
		if got := r.head(name, true); got != head {
			t.Errorf("%s is at %s, want %s", name, got, head)
		}
	}
	names := func(ephemeral string) (list []string) {
		v := r.want(200, ask{path: r.path("/branches", "ephemeral", ephemeral), token: r.read}).json(t)
		for _, b := range v["branches"].([]any) {
			list = append(list, at(b, "name").(string))
			for _, field := range []string{"cursor", "head_sha", "created_at"} {
				if s, _ := at(b, field).(string); s == "" {
					t.Errorf("branch %v has no %s", b, field)
				}
			}
		}
		return list
	}
	if got := names("false"); fmt.Sprint(got) != "[main]" {
		t.Errorf("ordinary branches = %v, want main alone", got)
	}
	if got := names("true"); fmt.Sprint(got) != "[sessions/0 sessions/1 sessions/2 sessions/3]" {
		t.Errorf("ephemeral branches = %v, want the sessions in order", got)
	}
	// Promotion: the same name in the other namespace; the source stays.
	r.want(200, ask{method: "POST", path: r.path("/branches/create"), token: r.write, body: meta{"target_branch": "sessions/0", "base_ref": "sessions/0", "base_is_ephemeral": true}})
	if got := r.head("sessions/0", false); got != head || r.head("sessions/0", true) != head {
		t.Errorf("promoted branch is at %s, want %s in both namespaces", got, head)
	}
}

func TestA02_BranchFromSHA(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	first := r.commit(nil, file{path: "a", data: "1"})
	r.commit(nil, file{path: "a", data: "2"})
	v := r.want(200, ask{method: "POST", path: r.path("/branches/create"), token: r.write, body: meta{"target_branch": "s", "target_is_ephemeral": true, "base_ref": first, "base_is_ephemeral": true}}).json(t) // OQ-B3
	if v["commit_sha"] != first || r.head("s", true) != first {
		t.Errorf("branch from %s = %v", first, v)
	}
	confined := tokenOf(t, tokens.Claims{Repo: "r", Scopes: []tokens.Scope{tokens.GitWrite}, Refs: []refpolicy.Rule{
		rule("refs/namespaces/ephemeral/refs/heads/t"), rule("*", refpolicy.NoRead),
	}})
	unknown := r.want(404, ask{method: "POST", path: r.path("/branches/create"), token: confined, body: meta{"target_branch": "t", "target_is_ephemeral": true, "base_ref": strings.Repeat("1", 40)}})
	unreachable := r.want(404, ask{method: "POST", path: r.path("/branches/create"), token: confined, body: meta{"target_branch": "t", "target_is_ephemeral": true, "base_ref": first}})
	if at(unknown.json(t), "code") != "object_not_found" || strings.ReplaceAll(string(unknown.body), strings.Repeat("1", 40), first) != string(unreachable.body) {
		t.Errorf("unknown = %s, unreachable = %s; want one answer", unknown.body, unreachable.body)
	}
	r.want(404, ask{path: r.path("/branch", "name", "t", "ephemeral", "true"), token: r.read})
}

func TestBranchesRefuse(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	head := r.commit(nil, file{path: "a", data: "1"})
	create := func(m meta) ask {
		return ask{method: "POST", path: r.path("/branches/create"), token: r.write, body: m}
	}
	r.want(200, create(meta{"target_branch": "dev", "base_ref": "main"}))
	guarded := tokenOf(t, tokens.Claims{Repo: "r", Scopes: []tokens.Scope{tokens.GitWrite}, Refs: []refpolicy.Rule{rule("*", refpolicy.NoPush)}})
	as := func(tok string, a ask) ask { a.token = tok; return a }
	del := func(m meta) ask { return ask{method: "DELETE", path: r.old("/branches"), token: r.write, body: m} }
	for name, tc := range map[string]struct {
		ask    ask
		status int
		code   string
	}{
		"exists":               {create(meta{"target_branch": "dev", "base_ref": "main"}), 409, "already_exists"},
		"no base":              {create(meta{"target_branch": "n"}), 400, "invalid_request"},
		"no target":            {create(meta{"base_ref": "main"}), 400, "invalid_request"},
		"base missing":         {create(meta{"target_branch": "n", "base_ref": "nosuch"}), 404, "ref_not_found"},
		"bad base":             {create(meta{"target_branch": "n", "base_ref": "main..dev"}), 400, "invalid_request"},
		"clash below":          {create(meta{"target_branch": "dev/x", "base_ref": "main"}), 409, "already_exists"}, // case 2.1
		"policy":               {as(guarded, create(meta{"target_branch": "n", "base_ref": "main"})), 403, "policy_denied"},
		"policy before exists": {as(guarded, create(meta{"target_branch": "dev", "base_ref": "main"})), 403, "policy_denied"}, // OQ-S8
		"no boolean":           {create(meta{"target_branch": "n", "base_ref": "main", "force": "yes"}), 400, "invalid_request"},
		"delete default":       {del(meta{"name": "main"}), 409, "default_branch"},
		"delete missing":       {del(meta{"target_branch": "nosuch"}), 404, "ref_not_found"},
		"delete full name":     {del(meta{"name": "refs/heads/dev"}), 400, "invalid_request"},
		"delete nothing":       {del(meta{}), 400, "invalid_request"},
		"delete by policy":     {as(guarded, del(meta{"name": "dev"})), 403, "policy_denied"},
		"branch without name":  {ask{path: r.path("/branch"), token: r.read}, 400, "invalid_request"},
		"branch missing":       {ask{path: r.path("/branch", "name", "x"), token: r.read}, 404, "ref_not_found"},
		"list flag":            {ask{path: r.path("/branches", "ephemeral", "1"), token: r.read}, 400, "invalid_request"},
		"list cursor":          {ask{path: r.path("/branches", "cursor", "\x01"), token: r.read}, 400, "invalid_request"},
	} {
		a := r.do(tc.ask)
		if v := a.json(t); a.status != tc.status || v["code"] != tc.code {
			t.Errorf("%s: %d %s, want %d %s", name, a.status, a.body, tc.status, tc.code)
		}
	}
	next := r.commit(nil, file{path: "a", data: "2"})
	r.want(200, create(meta{"target_branch": "dev", "base_ref": "main", "force": true}))
	if got := r.head("dev", false); got != next {
		t.Errorf("forced branch is at %s, want %s", got, next)
	}
	v := r.want(200, del(meta{"name": "nosuch", "target_branch": "dev"})).json(t) // the new name wins
	if v["target_branch"] != "dev" || v["name"] != "dev" || v["message"] == nil || v["ephemeral"] != false {
		t.Errorf("delete = %v", v)
	}
	r.want(404, ask{path: r.path("/branch", "name", "dev"), token: r.read})
	_ = head
}

func TestBranchPaging(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	r.commit(nil, file{path: "a", data: "1"})
	for i := range 5 {
		r.want(200, ask{method: "POST", path: r.path("/branches/create"), token: r.write, body: meta{"target_branch": fmt.Sprintf("b%d", 5-i), "base_ref": "main"}})
	}
	var names []string
	for cursor, more := "", true; more; {
		v := r.want(200, ask{path: r.path("/branches", "limit", "2", "cursor", cursor), token: r.read}).json(t)
		for _, b := range v["branches"].([]any) {
			names = append(names, at(b, "name").(string))
		}
		more = v["has_more"].(bool)
		cursor, _ = v["next_cursor"].(string)
	}
	if fmt.Sprint(names) != "[main b5 b4 b3 b2 b1]" {
		t.Errorf("branches by pages = %v, want the order of creation", names)
	}
}

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

func TestCommits(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	for _, query := range [][]string{nil, {"branch", "main"}, {"ref", "HEAD"}} {
		v := r.want(200, ask{path: r.path("/commits", query...), token: r.read}).json(t)
		if len(v["commits"].([]any)) != 0 || v["has_more"] != false {
			t.Errorf("commits of an empty repo by %v = %v, want none", query, v)
		}
	}
	var shas []string
	for i := range 5 {
		m := meta{"commit_message": fmt.Sprintf("change %d\n\nbody\n\n", i), "committer": meta{"name": "Com", "email": "c@example.org", "timestamp": 1790000000 + i}}
		shas = append([]string{r.commit(m, file{path: fmt.Sprintf("d%d/f", i%2), data: fmt.Sprint(i)})}, shas...)
	}
	var got []string
	for cursor, more := "", true; more; {
		v := r.want(200, ask{path: r.old("/commits", "branch", "main", "limit", "2", "cursor", cursor), token: r.read}).json(t)
		for _, c := range v["commits"].([]any) {
			got = append(got, at(c, "sha").(string))
		}
		if len(got) == 2 {
			r.commit(nil, file{path: "later", data: "x"}) // paging stays on its history
		}
		more = v["has_more"].(bool)
		cursor, _ = v["next_cursor"].(string)
	}
	if fmt.Sprint(got) != fmt.Sprint(shas) {
		t.Errorf("commits by pages = %v, want %v", got, shas)
	}
	v := r.want(200, ask{path: r.path("/commits", "ref", shas[0], "path", "d1", "limit", "10"), token: r.read}).json(t)
	if list := v["commits"].([]any); len(list) != 2 || at(list, 0, "sha") != shas[1] {
		t.Errorf("commits of d1 = %v, want two", v)
	}
	for _, query := range [][]string{{"sha", shas[0]}, {"ref", shas[0][:10]}, {"ref", "main~1"}} {
		c := at(r.want(200, ask{path: r.path("/commit", query...), token: r.read}).json(t), "commit")
		for field, want := range map[string]any{
			"sha": shas[0], "message": "change 4\n\nbody", "author_name": "Build Bot", "author_email": "bot@example.org",
			"committer_name": "Com", "committer_email": "c@example.org", "date": "2026-09-21T14:13:24Z",
		} {
			if at(c, field) != want {
				t.Errorf("commit by %v: %s = %v, want %v", query, field, at(c, field), want)
			}
		}
		if parents := at(c, "parent_shas").([]any); len(parents) != 1 || parents[0] != shas[1] {
			t.Errorf("parents = %v", parents)
		}
		if at(c, "signature") != nil || at(c, "payload") != nil {
			t.Errorf("an unsigned commit has a signature: %v", c)
		}
	}
	root := at(r.want(200, ask{path: r.path("/commit", "ref", shas[4]), token: r.read}).json(t), "commit", "parent_shas")
	if list, ok := root.([]any); !ok || len(list) != 0 {
		t.Errorf("parents of the root = %v, want []", root)
	}
	for _, tc := range []struct {
		path   string
		status int
	}{
		{r.path("/commit"), 400}, {r.path("/commit", "ref", "nosuch"), 404}, {r.path("/commit", "ref", strings.Repeat("1", 40)), 404},
		{r.path("/commit", "ref", "main:a"), 400}, {r.path("/commit", "ref", "main~99"), 404}, {r.path("/commits", "ref", "nosuch"), 404},
		{r.path("/commits", "cursor", "x"), 400}, {r.path("/commits", "limit", "-2"), 400},
	} {
		if a := r.do(ask{path: tc.path, token: r.read}); a.status != tc.status {
			t.Errorf("GET %s = %d %s, want %d", tc.path, a.status, a.body, tc.status)
		}
	}
}

func TestA09_Diff(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	forty := strings.Repeat("line of text\n", 40)
	a := r.commit(nil, file{path: "f", data: "a\nb\n"}, file{path: "old name", data: forty + "end\n"}, file{path: "bin", data: "\x00\x01"}, file{path: "space", data: "x y\n"})
	b := r.commit(nil, file{path: "f", data: "a\nB\nc"}, file{path: "old name", del: true}, file{path: "new name", data: forty + "END\n"},
		file{path: "bin", data: "\x00\x02\x03"}, file{path: "space", data: "x   y\n"}, file{path: "added", data: "new\n"})
	for _, query := range [][]string{{"ref", b}, {"sha", b, "baseSha", a}, {"ref", b, "base_ref", a}, {"ref", "main", "base_ref", "main~1"}} {
		v := r.want(200, ask{path: r.path("/diff", query...), token: r.read}).json(t)
		if v["sha"] != b || v["base_sha"] != a || v["merge_base_sha"] != a {
			t.Errorf("diff %v: sha %v, base_sha %v, merge_base_sha %v", query, v["sha"], v["base_sha"], v["merge_base_sha"])
		}
		if fmt.Sprint(v["stats"]) != "map[additions:4 changes:6 deletions:2 files:4]" {
			t.Errorf("diff %v: stats = %v", query, v["stats"])
		}
		var states []string
		for _, f := range v["files"].([]any) {
			states = append(states, fmt.Sprint(at(f, "path"), ":", at(f, "state").(string)[:1]))
			if raw, _ := at(f, "raw").(string); !strings.HasPrefix(raw, "diff --git ") || at(f, "is_eof") != true || at(f, "bytes") != float64(len(raw)) {
				t.Errorf("file %v", f)
			}
		}
		if fmt.Sprint(states) != "[added:A f:M new name:R]" {
			t.Errorf("diff %v: files = %v", query, states)
		}
		if old := at(v, "files", 2, "old_path"); old != "old name" || at(v, "files", 0, "old_path") != nil {
			t.Errorf("old_path of the rename = %v", old)
		}
		if at(v, "filtered_files", 0, "path") != "bin" || at(v, "filtered_files", 0, "raw") != nil || at(v, "filtered_files", 0, "bytes") != float64(3) {
			t.Errorf("filtered_files = %v, want bin by name and size", v["filtered_files"])
		}
	}
	// What was withheld can be had by another call.
	v := r.want(200, ask{path: r.path("/diff", "ref", b, "path", "bin"), token: r.read}).json(t)
	if raw, _ := at(v, "files", 0, "raw").(string); !strings.Contains(raw, "GIT binary patch") || len(v["filtered_files"].([]any)) != 0 {
		t.Errorf("diff of bin alone = %v", v)
	}
	root := r.want(200, ask{path: r.path("/diff", "ref", a), token: r.read}).json(t)
	if root["base_sha"] != nil || root["merge_base_sha"] != nil || at(root, "stats", "files") != float64(4) {
		t.Errorf("diff of the root commit = %v", root)
	}
	same := r.want(200, ask{path: r.path("/diff", "ref", a, "base_ref", a), token: r.read}).json(t)
	if fmt.Sprint(same["files"], same["filtered_files"]) != "[] []" {
		t.Errorf("diff of a commit with itself = %v, want empty lists", same)
	}
	for _, tc := range []struct {
		query  []string
		status int
	}{{nil, 400}, {[]string{"ref", "nosuch"}, 404}, {[]string{"ref", b, "base_ref", strings.Repeat("1", 40)}, 404}, {[]string{"ref", b, "git_apply_compatible", "1"}, 400}} {
		if a := r.do(ask{path: r.path("/diff", tc.query...), token: r.read}); a.status != tc.status {
			t.Errorf("diff %v = %d %s, want %d", tc.query, a.status, a.body, tc.status)
		}
	}
}

// the patches applied by git to the base give the new tree.
func TestA09_PatchesApply(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	base := []file{{path: "f", data: "a\nb\n"}, {path: "gone", data: "x\n"}, {path: "space", data: "x y\n"}, {path: "run", data: "1\n"}}
	r.commit(nil, base...)
	want := map[string]string{"f": "a\nB", "space": "x   y\n", "run": "2\n", "sub/new": "n\n"}
	b := r.commit(nil, file{path: "f", data: want["f"]}, file{path: "gone", del: true}, file{path: "space", data: want["space"]}, file{path: "run", data: want["run"], mode: "100755"}, file{path: "sub/new", data: want["sub/new"]})
	v := r.want(200, ask{path: r.path("/diff", "ref", b, "git_apply_compatible", "true"), token: r.read}).json(t)
	var patch strings.Builder
	for _, f := range v["files"].([]any) {
		patch.WriteString(at(f, "raw").(string))
	}
	dir := t.TempDir()
	for _, f := range base {
		if err := os.WriteFile(filepath.Join(dir, f.path), []byte(f.data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("git", "apply", "-")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(patch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v\n%s\n%s", err, out, patch.String())
	}
	for path, data := range want {
		if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != data {
			t.Errorf("%s after git apply = %q, %v; want %q", path, got, err, data)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "gone")); !os.IsNotExist(err) {
		t.Errorf("gone is still there: %v", err)
	}
}

func TestBranchDiff(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	fork := r.commit(nil, file{path: "a", data: "1\n"})
	r.commit(meta{"target_branch": "s", "base_branch": "main", "ephemeral": true}, file{path: "b", data: "2\n"})
	r.commit(nil, file{path: "a", data: "main went on\n"})
	for _, query := range [][]string{{"branch", "s", "ephemeral", "true"}, {"branch", "s", "ephemeral", "true", "base", "main"}} {
		v := r.want(200, ask{path: r.old("/branches/diff", query...), token: r.read}).json(t)
		if v["branch"] != "s" || v["base"] != "main" || v["merge_base_sha"] != fork {
			t.Errorf("branch diff %v = %v", query, v)
		}
		if list := v["files"].([]any); len(list) != 1 || at(list, 0, "path") != "b" {
			t.Errorf("branch diff %v: files = %v, want b alone", query, list)
		}
	}
	v := r.want(200, ask{path: r.path("/branches/diff", "branch", "main", "base", "s", "ephemeral_base", "true", "path", "a", "path", "nosuch"), token: r.read}).json(t)
	if list := v["files"].([]any); len(list) != 1 || at(list, 0, "path") != "a" {
		t.Errorf("files = %v, want a alone", list)
	}
	r.want(400, ask{path: r.path("/branches/diff"), token: r.read})
	r.want(404, ask{path: r.path("/branches/diff", "branch", "s"), token: r.read})
}

// Text that is not UTF-8 is made valid, and angle brackets stay as they are.
func TestTextOnTheWire(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	r.commit(nil, file{path: "f", data: "ok\n"})
	c := r.commit(meta{"commit_message": "<b> & \u2028"}, file{path: "f", data: "caf\xe9 <b>\n"})
	a := r.want(200, ask{path: r.path("/diff", "ref", c), token: r.read})
	if raw, _ := at(a.json(t), "files", 0, "raw").(string); !strings.Contains(raw, "caf\ufffd <b>") || !strings.Contains(string(a.body), "<b>") {
		t.Errorf("diff text = %q", raw)
	}
	m := at(r.want(200, ask{path: r.path("/commit", "ref", c), token: r.read}).json(t), "commit", "message")
	if m != "<b> & \u2028" {
		t.Errorf("message = %q", m)
	}
}
