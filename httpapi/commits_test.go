package httpapi

import (
	"fmt"
	"strings"
	"testing"
)

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
