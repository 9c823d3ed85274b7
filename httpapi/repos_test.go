package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
