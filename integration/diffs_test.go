package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/integration/harness"
)

// change commits files on top of main and gives base and head.
func (r *repo) change(files ...harness.File) (base, head string) {
	r.g.t.Helper()
	base = r.head("main", false)
	return base, r.commit(harness.Commit{Branch: "main", Expected: base, Files: files})
}

// exact is a commit diff in the form that git apply takes.
func (r *repo) exact(base, head string) harness.Answer {
	r.g.t.Helper()
	a := r.get("/diff", "sha", head, "baseSha", base, "gitApplyCompatible", "true")
	if a.Status != 200 {
		r.g.t.Fatalf("diff %s..%s = %s, want 200", base, head, a)
	}
	return a
}

func raws(a harness.Answer) string {
	var b strings.Builder
	for _, f := range a.List("files") {
		raw, _ := f.(map[string]any)["raw"].(string)
		b.WriteString(raw)
	}
	return b.String()
}

// entry is the diff's entry for a path, in files or in filtered_files.
func entry(a harness.Answer, list, path string) map[string]any {
	for _, f := range a.List(list) {
		if m := f.(map[string]any); m["path"] == path {
			return m
		}
	}
	return nil
}

// applies checks that the diff's patches turn base into head.
func (r *repo) applies(clone, base, head string) {
	r.g.t.Helper()
	g := r.g
	patch := raws(r.exact(base, head))
	g.run(clone, "fetch", "-q", "origin")
	g.run(clone, "reset", "-q", "--hard", base)
	g.run(clone, "clean", "-q", "-f", "-d")
	if out := g.git.Run(clone, []byte(patch), "apply", "--index", "-"); out.Err != nil {
		g.t.Errorf("git apply of the diff: %v %s\n%s", out.Err, out.All(), patch)
		return
	}
	want := g.run(clone, "rev-parse", head+"^{tree}")
	if got := g.run(clone, "write-tree"); got != want {
		g.t.Errorf("git apply of the diff gives tree %s, want %s; patch:\n%s", got, want, patch)
	}
}

// statsOf sums git diff --numstat over text files.
func statsOf(numstat string) (files, added, deleted int) {
	for line := range strings.Lines(numstat) {
		var a, d int
		files++
		if n, _ := fmt.Sscanf(line, "%d\t%d", &a, &d); n == 2 {
			added, deleted = added+a, deleted+d
		}
	}
	return
}

// The difference of two states: complete stats, patches that apply, and large or
// binary files by name, to be had with another call (PI-17).
func TestA09_DiffBetweenTwoStates(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, base := g.seeded(harness.File{Path: "a", Content: "1\n2\n3\n"}, harness.File{Path: "gone", Content: "x\n"}, harness.File{Path: "moved/from", Content: strings.Repeat("line\n", 20)}, harness.File{Path: "bin", Content: "a\x00b"})
		head := r.commit(harness.Commit{Branch: "main", Expected: base, Files: []harness.File{
			{Path: "a", Content: "1\ntwo\n3\n4\n"}, {Path: "gone", Delete: true}, {Path: "moved/from", Delete: true}, {Path: "moved/to", Content: strings.Repeat("line\n", 20)},
			{Path: "bin", Content: "a\x00c"}, {Path: "huge", Content: strings.Repeat("0123456789abcdef\n", 50_000)},
		}})
		clone := r.clone(r.remote(r.read))
		a := r.exact(base, head)
		files, added, deleted := statsOf(g.run(clone, "diff", "--numstat", base, head))
		if got, want := fmt.Sprint(a.Get("stats")), fmt.Sprint(map[string]any{"files": files, "additions": added, "deletions": deleted, "changes": added + deleted}); got != want {
			t.Errorf("stats = %s, want %s as git diff --numstat", got, want)
		}
		if a.Text("sha") != head || a.Text("base_sha") != base {
			t.Errorf("diff names %s..%s, want %s..%s", a.Text("base_sha"), a.Text("sha"), base, head)
		}
		for _, path := range []string{"bin", "huge"} {
			if e := entry(a, "filtered_files", path); e == nil || e["raw"] != nil {
				t.Errorf("diff: %s = %v in filtered_files, want it there without raw", path, e)
			}
			b := r.get("/diff", "sha", head, "baseSha", base, "path", path, "gitApplyCompatible", "true")
			if raw := raws(b); !strings.HasPrefix(raw, "diff --git a/"+path) || len(b.List("filtered_files")) != 0 {
				t.Errorf("diff of %s alone = %s, want it whole", path, b)
			}
		}
		if e := entry(a, "files", "moved/to"); e == nil || e["old_path"] != "moved/from" || !strings.HasPrefix(e["state"].(string), "R") {
			t.Errorf("diff: moved/to = %v, want a rename from moved/from", e)
		}
		if e := entry(a, "files", "gone"); e == nil || e["state"] != "D" {
			t.Errorf("diff: gone = %v, want state D", e)
		}
		// Backwards is a diff as well, and asked again it is the same.
		if back := r.exact(head, base); back.Get("stats", "files") != a.Get("stats", "files") {
			t.Errorf("diff backwards = %s", back)
		}
		if again := r.exact(base, head); string(again.Body) != string(a.Body) {
			t.Error("the same diff asked again is another")
		}
	})
}

func TestCase7_1_EndsOfFiles(t *testing.T) {
	g := start(t)
	r, _ := g.seeded(harness.File{Path: "a", Content: "a"}, harness.File{Path: "b", Content: "a\n"}, harness.File{Path: "c", Content: "a"}, harness.File{Path: "x", Content: "x"})
	base, head := r.change(harness.File{Path: "a", Content: "a\nb"}, harness.File{Path: "b", Content: "a"}, harness.File{Path: "c", Content: "a\n"},
		harness.File{Path: "new", Content: "x"}, harness.File{Path: "x", Delete: true}, harness.File{Path: "crlf", Content: "a\r\nb\r\n"})
	clone := r.clone(r.remote(r.read))
	r.applies(clone, base, head)
	r.applies(clone, head, base)
	if raw := entry(r.exact(base, head), "files", "a")["raw"].(string); !strings.HasSuffix(raw, "-a\n\\ No newline at end of file\n+a\n+b\n\\ No newline at end of file\n") {
		t.Errorf("raw of a = %q, want the marker after each side's own last line", raw)
	}
}

func TestCase7_2_Renames(t *testing.T) {
	g := start(t)
	var text, other strings.Builder
	for i := range 40 {
		fmt.Fprintf(&text, "line %d\n", i)
		fmt.Fprintf(&other, "other words %d\n", i*i)
	}
	changed := strings.Replace(text.String(), "line 20\n", "line twenty\n", 1)
	r, _ := g.seeded(harness.File{Path: "one", Content: text.String()}, harness.File{Path: "pure", Content: other.String()})
	base, head := r.change(harness.File{Path: "one", Delete: true}, harness.File{Path: "two", Content: changed, Mode: "100755"}, harness.File{Path: "pure", Delete: true}, harness.File{Path: "pure2", Content: other.String()})
	a := r.exact(base, head)
	two := entry(a, "files", "two")
	if two == nil || two["old_path"] != "one" || two["additions"] != 1.0 || two["deletions"] != 1.0 {
		t.Fatalf("renamed file = %v, want old_path one, 1 and 1", two)
	}
	raw := two["raw"].(string)
	wantHas(t, "raw of two", raw, "old mode 100644\nnew mode 100755\nsimilarity index 9", "rename from one\nrename to two\n", "-line 20\n+line twenty\n")
	pure := entry(a, "files", "pure2")
	if pure == nil || pure["additions"] != 0.0 || pure["deletions"] != 0.0 {
		t.Errorf("pure rename = %v, want 0 and 0", pure)
	} else {
		wantHas(t, "raw of pure2", pure["raw"].(string), "similarity index 100%")
	}
	r.applies(r.clone(r.remote(r.read)), base, head)
}

func TestCase7_3_And7_4_ModesAndEmptyFiles(t *testing.T) {
	g := start(t)
	r, _ := g.seeded(harness.File{Path: "run", Content: "x\n"}, harness.File{Path: "e1", Content: ""})
	base, head := r.change(harness.File{Path: "run", Content: "x\n", Mode: "100755"}, harness.File{Path: "e2", Content: ""})
	a := r.exact(base, head)
	run, e2 := entry(a, "files", "run"), entry(a, "files", "e2")
	if run == nil || run["state"] != "M" || run["raw"] != "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n" || run["additions"] != 0.0 {
		t.Errorf("chmod = %v, want the mode lines alone", run)
	}
	if e2 == nil || e2["state"] != "A" || e2["raw"] != "diff --git a/e2 b/e2\nnew file mode 100644\nindex 0000000..e69de29\n" {
		t.Errorf("new empty file = %v, want no --- and +++ lines", e2)
	}
	base, head = r.change(harness.File{Path: "e1", Delete: true}, harness.File{Path: "e3", Content: ""})
	for _, f := range r.exact(base, head).List("files") {
		if state := f.(map[string]any)["state"].(string); strings.HasPrefix(state, "C") {
			t.Errorf("empty file against another = %v, never a copy", f)
		}
	}
	r.applies(r.clone(r.remote(r.read)), base, head)
}

func TestCase7_5_To7_7_OddContents(t *testing.T) {
	g := start(t)
	var seq strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&seq, "%d\n", i+1)
	}
	odd := "x b/y"
	before := "-- a\n++ b\n@@ -1 +1 @@\ndiff --git a/x b/x\nrename from y\nend\n"
	r, _ := g.seeded(harness.File{Path: "seq", Content: seq.String()}, harness.File{Path: odd, Content: before}, harness.File{Path: "bin", Content: "a\x00b"})
	base, head := r.change(harness.File{Path: "seq", Delete: true}, harness.File{Path: odd, Content: strings.Replace(strings.ReplaceAll(before, "a", "z"), "end", "END", 1)}, harness.File{Path: "bin", Content: "a\x00c"}, harness.File{Path: "bin2", Content: "\x00\xff"})
	clone := r.clone(r.remote(r.read))
	a := r.exact(base, head)
	files, added, deleted := statsOf(g.run(clone, "diff", "--numstat", base, head))
	if got, want := fmt.Sprint(a.Get("stats")), fmt.Sprint(map[string]any{"files": files, "additions": added, "deletions": deleted, "changes": added + deleted}); got != want {
		t.Errorf("stats = %s, want %s", got, want)
	}
	if e := entry(a, "files", odd); e == nil || e["path"] != odd {
		t.Errorf("diff has no entry for %q: %.500s", odd, a)
	}
	s := r.get("/diff", "sha", head, "baseSha", base, "path", "seq")
	if e := entry(s, "files", "seq"); e == nil || e["deletions"] != 60000.0 || !strings.Contains(e["raw"].(string), "@@ -1,60000 +0,0 @@") || strings.Count(e["raw"].(string), "\n-") < 60000 {
		t.Errorf("deleting 60,000 lines: deletions %v, want them all", e["deletions"])
	}
	b := r.get("/diff", "sha", head, "baseSha", base, "path", "bin", "gitApplyCompatible", "true")
	if raw := raws(b); !strings.Contains(raw, "GIT binary patch") && !strings.Contains(raw, "Binary files") {
		t.Errorf("diff of a binary file = %q, want a binary patch or git's words", raw)
	}
}

func TestCase7_8_OddRevisions(t *testing.T) {
	g := start(t)
	r, root := g.seeded(harness.File{Path: "a", Content: "1\n"})
	if a := r.get("/diff", "sha", root); a.Status != 200 || a.Get("stats", "additions") != 1.0 || entry(a, "files", "a")["state"] != "A" {
		t.Errorf("diff of the root commit = %s, want everything added", a)
	}
	clone := r.clone(r.remote(r.write))
	r.work(clone, "left", "l\n")
	g.run(clone, "checkout", "-q", "-b", "side", root)
	r.work(clone, "right", "r\n")
	g.run(clone, "checkout", "-q", "main")
	g.run(clone, "merge", "-q", "--no-edit", "side")
	g.run(clone, "push", "-q", "origin", "main", "side")
	merge := g.run(clone, "rev-parse", "HEAD")
	if a := r.get("/diff", "sha", merge); a.Status != 200 || len(a.List("files")) != 1 || entry(a, "files", "right") == nil {
		t.Errorf("diff of a merge = %s, want it against the first parent", a)
	}
	if a := r.exact(merge, merge); len(a.List("files")) != 0 || a.List("files") == nil || a.List("filtered_files") == nil {
		t.Errorf("diff of a commit with itself = %s, want empty lists", a)
	}
	for _, query := range [][]string{{"sha", merge, "baseSha", strings.Repeat("12", 20)}, {"sha", strings.Repeat("12", 20)}, {"sha", "none"}} {
		if a := r.get("/diff", query...); a.Status != 404 {
			t.Errorf("diff %v = %s, want 404", query, a)
		}
	}
	if a := r.get("/diff"); a.Status != 400 {
		t.Errorf("diff of nothing = %s, want 400", a)
	}
	r.commit(harness.Commit{Branch: "main", Files: []harness.File{{Path: "a", Delete: true}, {Path: "left", Delete: true}, {Path: "right", Delete: true}}})
	if a := r.get("/diff", "sha", "main"); a.Status != 200 || a.Get("stats", "deletions") != 3.0 {
		t.Errorf("diff to an empty tree = %s, want three lines deleted", a)
	}
}

func TestBranchDiffIsThreeDot(t *testing.T) {
	g := start(t)
	r, root := g.seeded(harness.File{Path: "a", Content: "1\n"})
	r.session("s", "main")
	r.commit(harness.Commit{Branch: "s", Ephemeral: true, Files: []harness.File{{Path: "s", Content: "s\n"}}})
	r.commit(harness.Commit{Branch: "main", Expected: root, Files: []harness.File{{Path: "m", Content: "m\n"}}})
	a := r.get("/branches/diff", "branch", "s", "ephemeral", "true", "base", "main")
	if a.Status != 200 || a.Text("merge_base_sha") != root || len(a.List("files")) != 1 || entry(a, "files", "s") == nil {
		t.Errorf("branch diff = %s, want s alone since %s", a, root)
	}
	// Reading hides changes in the amount of whitespace; applying does not.
	base, head := r.change(harness.File{Path: "a", Content: "1  \n"})
	if a := r.get("/diff", "sha", head, "baseSha", base); len(a.List("files")) != 0 || a.Get("stats", "files") != 0.0 {
		t.Errorf("diff of whitespace = %s, want none in the default form", a)
	}
	r.applies(r.clone(r.remote(r.read)), base, head)
}
