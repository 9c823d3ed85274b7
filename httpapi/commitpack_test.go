package httpapi

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

const zeros = "0000000000000000000000000000000000000000"

// Both route sets reach one handler, and both vocabularies are read and written:
// the four generations of clients.
func TestCommitPackInAllVocabularies(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("team-red/site")
	base := r.commit(nil, file{path: "a.txt", data: "1"})
	for i, tc := range []struct {
		path  string
		guard string
		flag  string
		based string
	}{
		{r.old("/commit-pack"), "expected_head_sha", "ephemeral", "ephemeral_base"},
		{r.old("/commit-pack"), "expected_target_sha", "target_is_ephemeral", "base_is_ephemeral"},
		{r.path("/commit-pack"), "expected_head_sha", "ephemeral", "ephemeral_base"},
		{r.path("/commit-pack"), "expected_target_sha", "target_is_ephemeral", "base_is_ephemeral"},
	} {
		branch := fmt.Sprintf("sessions/%d", i)
		body := pack(t, meta{"target_branch": branch, tc.flag: true, "base_branch": "main", tc.based: false, tc.guard: base}, file{path: "b.txt", data: "2"})
		v := r.want(201, ask{method: "POST", path: tc.path, token: r.write, body: body}).json(t)
		sha := at(v, "commit", "commit_sha")
		for _, want := range []struct {
			path []any
			want any
		}{
			{[]any{"commit", "target_branch"}, branch},
			{[]any{"commit", "blob_count"}, float64(1)},
			{[]any{"result", "branch"}, branch},
			{[]any{"result", "target_branch"}, branch},
			{[]any{"result", "old_sha"}, zeros},
			{[]any{"result", "new_sha"}, sha},
			{[]any{"result", "success"}, true},
			{[]any{"result", "status"}, "ok"},
		} {
			if got := at(v, want.path...); got != want.want {
				t.Errorf("%s with %s: %v = %v, want %v", tc.path, tc.guard, want.path, got, want.want)
			}
		}
		if n, _ := at(v, "commit", "pack_bytes").(float64); n <= 0 {
			t.Errorf("pack_bytes = %v, want more than 0", at(v, "commit", "pack_bytes"))
		}
		if tree, _ := at(v, "commit", "tree_sha").(string); len(tree) != 40 {
			t.Errorf("tree_sha = %q", tree)
		}
		if head := r.head(branch, true); head != sha {
			t.Errorf("%s is at %s, want %v", branch, head, sha)
		}
	}
}

func TestA03_CommitWithRightHead(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	first := r.commit(nil, file{path: "a/x", data: "ax"}, file{path: "b", data: "b"}, file{path: ".agent/task.json", data: "{}"})
	second := r.commit(meta{"expected_head_sha": first}, file{path: "b", data: "B"})
	c := r.want(200, ask{path: r.path("/commit", "ref", second), token: r.read}).json(t)
	if got := at(c, "commit", "parent_shas").([]any); len(got) != 1 || got[0] != first {
		t.Errorf("parents of %s = %v, want %s alone", second, got, first)
	}
	for path, want := range map[string]string{"a/x": "ax", "b": "B", ".agent/task.json": "{}"} {
		if got := r.content(second, path); got != want {
			t.Errorf("%s at %s = %q, want %q", path, second, got, want)
		}
	}
	if got := r.content(first, "b"); got != "b" {
		t.Errorf("b at the earlier commit = %q, want b", got)
	}
}

func TestA04_StaleHeadIsTold(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	first := r.commit(nil, file{path: "a", data: "1"})
	rival := tokenOf(t, tokens.Claims{Subject: "rival", Repo: "r", Scopes: []tokens.Scope{tokens.GitWrite}})
	v := r.want(201, ask{method: "POST", path: r.path("/commit-pack"), token: rival, body: pack(t, nil, file{path: "a", data: "2"})}).json(t)
	head := at(v, "commit", "commit_sha")
	for name, guard := range map[string]string{"stale": first, "unknown": strings.Repeat("1", 40), "absent": zeros} {
		a := r.want(409, ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: pack(t, meta{"expected_head_sha": guard}, file{path: "a", data: "3"})})
		v := a.json(t)
		for path, want := range map[string]any{
			"status": "precondition_failed", "success": false, "branch": "main", "target_branch": "main", "old_sha": head, "new_sha": head,
		} {
			if got := at(v, "result", path); got != want {
				t.Errorf("%s guard: result.%s = %v, want %v", name, path, got, want)
			}
		}
		if got := at(v, "result", "last_writer", "sub"); got != "rival" {
			t.Errorf("%s guard: last_writer.sub = %v, want rival", name, got)
		}
		when, _ := at(v, "result", "last_writer", "at").(string)
		if _, err := time.Parse(time.RFC3339, when); err != nil {
			t.Errorf("%s guard: last_writer.at = %q: %v", name, when, err)
		}
		if c, there := v["commit"]; !there || c != nil || v["error"] == nil || v["code"] != "ref_conflict" || v["retryable"] != false {
			t.Errorf("%s guard: %s, want commit null, error, code ref_conflict, not retryable", name, a.body)
		}
	}
	if got := r.head("main", false); got != head {
		t.Errorf("main moved to %s, want %v", got, head)
	}
}

func TestA05_ParallelCASHasOneWinner(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	first := r.commit(nil, file{path: "a", data: "0"})
	const writers = 200
	bodies := make([][]byte, writers)
	for i := range bodies {
		bodies[i] = pack(t, meta{"expected_head_sha": first}, file{path: "a", data: fmt.Sprint(i + 1)})
	}
	answers := make([]answer, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			answers[i] = r.do(ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: bodies[i]})
		})
	}
	wg.Wait()
	won := 0
	head := r.head("main", false)
	for i, a := range answers {
		v := a.json(t)
		switch {
		case a.status == 201:
			won++
			if at(v, "commit", "commit_sha") != head {
				t.Errorf("writer %d was told %s, main is at %s", i, a.body, head)
			}
		case a.status != 409 || at(v, "result", "status") != "precondition_failed" || at(v, "result", "old_sha") != head:
			t.Errorf("loser %d was told %d %s, want 409 precondition_failed with the head %s", i, a.status, a.body, head)
		}
	}
	if won != 1 {
		t.Errorf("%d writers won, want 1", won)
	}
	list := r.want(200, ask{path: r.path("/commits"), token: r.read}).json(t)
	if n := len(list["commits"].([]any)); n != 2 {
		t.Errorf("history has %d commits, want 2", n)
	}
}

func TestA06_DeletesAndOrder(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	r.commit(nil, file{path: "a", data: "a"}, file{path: "d/x", data: "x"}, file{path: "d/y", data: "y"})
	c := r.commit(nil, file{path: "d/x", del: true}, file{path: "a", data: "one"}, file{path: "a", data: "two"})
	if got := r.content(c, "a"); got != "two" {
		t.Errorf("a named twice = %q, want the last", got)
	}
	if got := r.content(c, "d/y"); got != "y" {
		t.Errorf("d/y = %q after deleting d/x", got)
	}
	if a := r.do(ask{path: r.path("/file", "ref", c, "path", "d/x"), token: r.read}); a.status != 404 {
		t.Errorf("deleted file = %d, want 404", a.status)
	}
	// Case 4.3: the folder goes with its last file; everything can be deleted.
	c = r.commit(nil, file{path: "d", del: true}, file{path: "a", del: true})
	v := r.want(200, ask{path: r.path("/commit", "ref", c), token: r.read}).json(t)
	if got := at(v, "commit", "tree_sha"); got != "4b825dc642cb6eb9a060e54bf8d69288fbee4904" {
		t.Errorf("tree of nothing = %v", got)
	}
	a := r.want(412, ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: pack(t, nil)})
	if v := a.json(t); at(v, "result", "status") != "precondition_failed" || v["code"] != "no_changes" {
		t.Errorf("commit without a change = %s, want precondition_failed, no_changes", a.body)
	}
}

func TestCase4_1_Chunks(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	body := lineOf(t, meta{"metadata": meta{
		"target_branch": "main", "commit_message": "m", "author": meta{"name": "a", "email": "e"},
		"files": []meta{{"path": "x", "content_id": "x"}, {"path": "y", "content_id": "y"}, {"path": "z", "content_id": "z"}, {"path": "gone", "content_id": "g", "operation": "delete"}},
	}})
	for _, c := range []struct {
		id, data string
		eof      bool
	}{
		{"x", "1", false}, {"y", "ab", false}, {"x", "23", false}, {"z", "", true}, {"x", "456", false}, {"g", "", true},
		{"x", "7890", false}, {"y", "c", true}, {"x", "", true},
	} {
		body = append(body, chunkOf(t, c.id, c.data, c.eof)...)
		body = append(body, "\r\n"...)
	}
	a := r.want(201, ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: bytes.TrimSpace(body)})
	c := at(a.json(t), "commit", "commit_sha").(string)
	for path, want := range map[string]string{"x": "1234567890", "y": "abc", "z": ""} {
		if got := r.content(c, path); got != want {
			t.Errorf("%s = %q, want %q", path, got, want)
		}
	}
	h := r.want(200, ask{method: "HEAD", path: r.path("/file", "ref", c, "path", "z"), token: r.read}).header
	if got := h.Get("X-Blob-Sha"); got != "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391" {
		t.Errorf("empty blob is %s", got)
	}
}

// Every way a stream can be wrong gets its status and an envelope, and leaves
// nothing.
func TestCommitPackFailures(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	head := r.commit(nil, file{path: "a", data: "1"}, file{path: "d/x", data: "x"})
	r.want(200, ask{method: "POST", path: r.path("/branches/create"), token: r.write, body: meta{"target_branch": "dev", "base_ref": "main"}})
	guarded := tokenOf(t, tokens.Claims{Repo: "r", Scopes: []tokens.Scope{tokens.GitWrite}, Refs: []refpolicy.Rule{rule("main", refpolicy.NoPush)}})
	one := file{path: "new", data: "n"}
	m := func(change meta) []byte { return pack(t, change, one) }
	first := lineOf(t, meta{"metadata": meta{"target_branch": "main", "commit_message": "m", "author": meta{"name": "a", "email": "e"}, "files": []meta{{"path": "p", "content_id": "c"}, {"path": "q", "content_id": "d", "operation": "delete"}}}})
	after := func(lines ...string) []byte { return append(bytes.Clone(first), strings.Join(lines, "\n")...) }
	chunk := func(id, data string, eof bool) string { return string(chunkOf(t, id, data, eof)) }
	for _, tc := range []struct {
		name   string
		body   []byte
		token  string
		status int
		label  string
	}{
		{"empty", nil, r.write, 400, "invalid"},
		{"no metadata first", chunkOf(t, "c", "x", true), r.write, 400, "invalid"},
		{"not JSON", []byte("hello\n"), r.write, 400, "invalid"},
		{"no author", m(meta{"author": nil}), r.write, 400, "invalid"},
		{"bad target", m(meta{"target_branch": "a..b"}), r.write, 400, "invalid"},
		{"bad guard", m(meta{"expected_head_sha": strings.ToUpper(strings.Repeat("ab", 20))}), r.write, 400, "invalid"},
		{"guard names nothing", m(meta{"expected_head_sha": "nosuch"}), r.write, 400, "invalid"},
		{"unknown id", after(chunk("other", "x", true)), r.write, 400, "invalid"},
		{"not ended", after(chunk("c", "x", false)), r.write, 400, "invalid"},
		{"no chunk at all", first, r.write, 400, "invalid"},
		{"after eof", after(chunk("c", "x", true), chunk("c", "y", true)), r.write, 400, "invalid"},
		{"data for a delete", after(chunk("c", "x", true), chunk("d", "y", true)), r.write, 400, "invalid"},
		{"bad base64", after(`{"blob_chunk":{"content_id":"c","data":"???","eof":true}}`), r.write, 400, "invalid"},
		{"second metadata", after(string(first)), r.write, 400, "invalid"},
		{"file over folder", pack(t, nil, file{path: "d", data: "x"}), r.write, 400, "invalid"},   // OQ-K10
		{"folder over file", pack(t, nil, file{path: "a/b", data: "x"}), r.write, 400, "invalid"}, //
		{"link with NUL", pack(t, nil, file{path: "l", data: "a\x00b", mode: "120000"}), r.write, 400, "invalid"},
		{"long link", pack(t, nil, file{path: "l", data: strings.Repeat("x", 5000), mode: "120000"}), r.write, 400, "invalid"},
		{"bad gitlink", pack(t, nil, file{path: "l", data: "x", mode: "160000"}), r.write, 400, "invalid"},
		{"missing base", m(meta{"target_branch": "n", "base_branch": "nosuch"}), r.write, 404, "not_found"},
		{"missing target", m(meta{"target_branch": "n"}), r.write, 404, "not_found"},
		{"clash below", m(meta{"target_branch": "dev/x", "base_branch": "main"}), r.write, 409, "conflict"},
		{"guard of a new branch", m(meta{"target_branch": "n", "base_branch": "main", "expected_head_sha": strings.Repeat("1", 40)}), r.write, 409, "precondition_failed"},
		{"same content", pack(t, nil, file{path: "a", data: "1"}), r.write, 412, "precondition_failed"},
		{"delete of nothing", pack(t, nil, file{path: "nope", del: true}), r.write, 412, "precondition_failed"},
		{"policy", m(nil), guarded, 403, "forbidden"},
		{"policy after body", m(meta{"author": nil}), guarded, 400, "invalid"},
		{"scope", m(nil), r.read, 403, "forbidden"},
		{"token", m(nil), "x", 401, "unauthorized"},
		{"another's", m(nil), token(t, "other", tokens.GitWrite), 404, "not_found"},
	} {
		a := r.do(ask{method: "POST", path: r.path("/commit-pack"), token: tc.token, body: tc.body})
		v := a.json(t)
		if a.status != tc.status || at(v, "result", "status") != tc.label || at(v, "result", "success") != false || v["error"] != at(v, "result", "message") {
			t.Errorf("%s: %d %s; want %d with result.status %s and one text", tc.name, a.status, a.body, tc.status, tc.label)
		}
		if tc.name == "policy" && !strings.Contains(string(a.body), "denied by policy") {
			t.Errorf("denial is told as %s", a.body)
		}
	}
	if got := r.head("main", false); got != head {
		t.Errorf("main is at %s after refused commits, want %s", got, head)
	}
}
