package httpapi

import (
	"fmt"
	"strings"
	"testing"
)

// Case 5.1: paths that no tree may hold, and good ones near them.
func TestCase5_1_Paths(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	r.commit(nil, file{path: "a", data: "1"})
	for _, path := range []string{".git/config", ".git", "a/.git/x", ".GIT/x", "..", "../x", "a/../../x", "//abs", "a//b", "a/", "./a", "", "/", "a\x00b", "x/."} {
		for _, del := range []bool{false, true} {
			a := r.do(ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: pack(t, nil, file{path: path, data: "x", del: del})})
			if a.status != 400 {
				t.Errorf("commit of %q, delete %v = %d %s, want 400", path, del, a.status, a.body)
			}
		}
		a := r.do(ask{path: r.path("/file", "path", path), token: r.read})
		if a.status != 400 && a.status != 404 {
			t.Errorf("file %q = %d, want 400 or 404", path, a.status)
		}
	}
	for _, path := range []string{".gitignore", ".github/x", "a..b", "x.git/y", "/abs", `back\slash`, "a:b", "aux", "trail.", "trail ", "100%.txt", "a+b", "a b", "a#b", "a?b", "a&b=c", "%41", "\u00e9", "e\u0301", "a;b"} {
		c := r.commit(nil, file{path: path, data: "content of " + path})
		if got := r.content(c, path); got != "content of "+path {
			t.Errorf("%q = %q", path, got)
		}
	}
}

// Case 2.4: bad branch names are 400 and name the rule, good ones are made.
func TestCase2_4_BranchNames(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	r.commit(nil, file{path: "a", data: "1"})
	for i, name := range []string{"a..b", "a.lock", "x.lock/y", "a@{b", "a.", ".a", "a/.b", "a//b", "a/", "/a", "a b", "a~b", "a^b", "a:b", "a?b", "a*b", "a[b", `a\b`, "a\tb", "a\x7fb", "HEAD", "-a", "--x=y", "../../config", "", "refs/tags/x"} {
		for call, a := range map[string]ask{
			"create":      {method: "POST", path: r.path("/branches/create"), body: meta{"target_branch": name, "base_ref": "main"}},
			"commit-pack": {method: "POST", path: r.path("/commit-pack"), body: pack(t, meta{"target_branch": name, "base_branch": "main"}, file{path: "b", data: fmt.Sprint(i)})},
		} {
			a.token = r.write
			if got := r.do(a); got.status != 400 || len(at(got.json(t), "error").(string)) < 10 {
				t.Errorf("%s of branch %q = %d %s, want a 400 that names the rule", call, name, got.status, got.body)
			}
		}
	}
	for i, name := range []string{"ok/é", "a.LOCK", "@a", "{", "1.0", "feature/x-y_z"} {
		r.want(200, ask{method: "POST", path: r.path("/branches/create"), token: r.write, body: meta{"target_branch": name, "base_ref": "main"}})
		r.commit(meta{"target_branch": name}, file{path: "b", data: fmt.Sprint(i)})
	}
}

func TestCase4_5_Modes(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	link := strings.Repeat("ab", 20)
	c := r.commit(nil, file{path: "x", data: "run", mode: "100755"}, file{path: "l", data: "target.txt", mode: "120000"}, file{path: "s", data: " " + link + "\n", mode: "160000"}, file{path: "n", data: "n"})
	c2 := r.commit(nil, file{path: "x", data: "run again"})
	for _, rev := range []string{c, c2} {
		v := r.want(200, ask{path: r.path("/files", "ref", rev), token: r.read}).json(t)
		got := map[string]string{}
		for _, e := range v["entries"].([]any) {
			got[at(e, "path").(string)] = at(e, "mode").(string) + " " + at(e, "type").(string)
		}
		want := map[string]string{"x": "100755 blob", "l": "120000 symlink", "s": "160000 submodule", "n": "100644 blob"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("entries of %s = %v, want %v", rev, got, want)
		}
		if fmt.Sprint(v["paths"]) != "[l n x]" { // OQ-F3
			t.Errorf("paths = %v, want links and no submodules", v["paths"])
		}
	}
	if got := r.content(c, "l"); got != "target.txt" {
		t.Errorf("link = %q, want its target", got)
	}
	if a := r.do(ask{path: r.path("/file", "path", "s"), token: r.read}); a.status != 404 {
		t.Errorf("file of a submodule = %d, want 404", a.status)
	}
}

// Case 4.6: bytes go in and out as they are.
func TestCase4_6_BytesStay(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	data := "a\r\nb\n\x00\xff\xfe\xc3\x28"
	c := r.commit(nil, file{path: ".gitattributes", data: "* text=auto eol=lf\n"}, file{path: "f", data: data})
	if got := r.content(c, "f"); got != data {
		t.Errorf("f = %q, want %q", got, data)
	}
}
