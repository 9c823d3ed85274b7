package httpapi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

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

// What is shown for git apply applies: a text that is no UTF-8 is withheld, and told.
func TestA09_PatchThatIsNoUTF8IsWithheld(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	r.commit(nil, file{path: "latin", data: "caf\xe9\n"}, file{path: "plain", data: "1\n"})
	b := r.commit(nil, file{path: "latin", data: "caf\xe8\n"}, file{path: "plain", data: "2\n"})
	for _, tc := range []struct {
		query           []string
		files, filtered string
	}{
		{[]string{"ref", b, "git_apply_compatible", "true"}, "[plain]", "[latin]"},
		{[]string{"ref", b, "git_apply_compatible", "true", "path", "latin"}, "[latin]", "[]"},
		{[]string{"ref", b}, "[latin plain]", "[]"},
	} {
		v := r.want(200, ask{path: r.path("/diff", tc.query...), token: r.read}).json(t)
		paths := map[string][]any{"files": {}, "filtered_files": {}}
		for list := range paths {
			for _, f := range v[list].([]any) {
				paths[list] = append(paths[list], at(f, "path"))
			}
		}
		if fmt.Sprint(paths["files"]) != tc.files || fmt.Sprint(paths["filtered_files"]) != tc.filtered {
			t.Errorf("diff %v shows %v and withholds %v, want %s and %s", tc.query, paths["files"], paths["filtered_files"], tc.files, tc.filtered)
		}
		if fmt.Sprint(v["stats"].(map[string]any)["files"]) != fmt.Sprint(len(paths["files"])+len(paths["filtered_files"])) {
			t.Errorf("diff %v: stats %v do not count both lists", tc.query, v["stats"])
		}
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
