package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

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

func TestBranchesBelowAPrefix(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	r.commit(nil, file{path: "a", data: "1"})
	for _, name := range []string{"s/2", "s/10", "s/1", "t"} {
		r.want(200, ask{method: "POST", path: r.path("/branches/create"), token: r.write, body: meta{"target_branch": name, "target_is_ephemeral": true, "base_ref": "main"}})
	}
	for prefix, want := range map[string]string{"s/": "[s/1 s/10 s/2]", "s/1": "[s/1 s/10]", "x": "[]", "t": "[t]"} {
		var names []string
		for cursor, more := "", true; more; {
			v := r.want(200, ask{path: r.path("/branches", "ephemeral", "true", "prefix", prefix, "limit", "2", "cursor", cursor), token: r.read}).json(t)
			for _, b := range v["branches"].([]any) {
				names = append(names, at(b, "name").(string))
			}
			more = v["has_more"].(bool)
			cursor, _ = v["next_cursor"].(string)
		}
		if fmt.Sprint(names) != want {
			t.Errorf("branches below %q by pages = %v, want %v", prefix, names, want)
		}
	}
	r.want(400, ask{path: r.path("/branches", "prefix", "s/", "cursor", "YjE6eA"), token: r.read}) // of the other order
}
