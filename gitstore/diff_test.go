package gitstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// pair is a source with a commit of old and one of changed on top; nil removes.
func pair(t testing.TB, old, changed map[string]*blob) (*gitSource, *Repo, DiffRequest) {
	t.Helper()
	g := newGitSource(t)
	var h history
	h.commit("refs/heads/main", 1000, nil, old)
	h.commit("refs/heads/main", 2000, []int{1}, changed)
	at := g.put(&h)
	return g, g.store(), DiffRequest{Base: at[1], Head: at[2]}
}

func (g *gitSource) tree(oid refpolicy.OID) string {
	if oid.IsZero() {
		return emptyTree.String()
	}
	return oid.String() + "^{tree}"
}

// checkDiff asks for a diff in every form and compares it with git diff.
func checkDiff(t *testing.T, g *gitSource, r *Repo, q DiffRequest) (exact *Diff) {
	t.Helper()
	for _, q.Exact = range []bool{false, true} {
		d, err := r.Diff(t.Context(), q)
		if err != nil {
			t.Fatalf("Diff(%+v): %v", q, err)
		}
		compareWithGit(t, g, q, d)
		exact = d
	}
	return exact
}

func compareWithGit(t *testing.T, g *gitSource, q DiffRequest, d *Diff) {
	t.Helper()
	args := []string{"diff", "-M"}
	if !q.Exact {
		args = append(args, "-b")
	}
	if len(q.Paths) > 0 {
		args = append(args, "--binary")
	}
	trees := []string{g.tree(q.Base), g.tree(q.Head), "--"}
	for _, p := range q.Paths {
		trees = append(trees, ":(literal)"+p)
	}
	var raw []byte
	add, del := 0, 0
	for _, f := range d.Files {
		raw = append(raw, f.Raw...)
		if f.Bytes != int64(len(f.Raw)) || f.Bytes == 0 {
			t.Errorf("%q: Bytes = %d of a patch of %d", f.Path, f.Bytes, len(f.Raw))
		}
	}
	for _, f := range slices.Concat(d.Files, d.Filtered) {
		add += f.Additions
		del += f.Deletions
	}
	if len(d.Filtered) == 0 {
		if want := g.gitIn("", append(args, trees...)...); !bytes.Equal(raw, want) {
			t.Fatalf("Diff(%+v) is not git's:\n%s\ngit:\n%s", q, raw, want)
		}
	}
	if add != d.Additions || del != d.Deletions {
		t.Errorf("files add up to +%d -%d, the diff says +%d -%d", add, del, d.Additions, d.Deletions)
	}
	args = slices.DeleteFunc(args, func(a string) bool { return a == "--binary" }) // it asks for patches
	want := numstat(g, append(append(args, "--numstat", "-z"), trees...))
	got := map[string][2]int{}
	for _, f := range slices.Concat(d.Files, d.Filtered) {
		got[f.Path] = [2]int{f.Additions, f.Deletions}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Diff(%+v) counts\n%v\ngit --numstat\n%v", q, got, want)
	}
}

// numstat gives git's counts by new path; binary files count 0.
func numstat(g *gitSource, args []string) map[string][2]int {
	g.t.Helper()
	counts := map[string][2]int{}
	fields := strings.Split(string(g.gitIn("", args...)), "\x00")
	for i := 0; i < len(fields)-1; i++ {
		f := strings.SplitN(fields[i], "\t", 3)
		path := f[2]
		if path == "" {
			path = fields[i+2]
			i += 2
		}
		a, _ := strconv.Atoi(f[0]) // "-" is 0
		d, _ := strconv.Atoi(f[1])
		counts[path] = [2]int{a, d}
	}
	return counts
}

// checkApplies applies the concatenated patches to the base's tree with git apply
// and compares with the head's.
func checkApplies(t *testing.T, g *gitSource, q DiffRequest, d *Diff) {
	t.Helper()
	if len(d.Filtered) > 0 || len(d.Files) == 0 {
		return
	}
	var raw []byte
	for _, f := range d.Files {
		raw = append(raw, f.Raw...)
	}
	index := filepath.Join(t.TempDir(), "index")
	run := func(stdin []byte, args ...string) string {
		t.Helper()
		cmd := g.command(args...)
		cmd.Env = append(cmd.Env, "GIT_INDEX_FILE="+index)
		cmd.Stdin = bytes.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s\nof\n%s", args, err, out, raw)
		}
		return strings.TrimSpace(string(out))
	}
	run(nil, "read-tree", g.tree(q.Base))
	run(raw, "apply", "--cached", "--binary", "-")
	if got, want := run(nil, "write-tree"), g.git("rev-parse", g.tree(q.Head)); got != want {
		t.Errorf("the patch applied to %s gives tree %s, want %s", q.Base, got, want)
	}
}

func lines(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func TestCase7_1_MissingFinalNewlines(t *testing.T) {
	for _, tc := range []struct{ old, new *blob }{
		{text("a"), text("a\nb")}, {text("a\n"), text("a")}, {text("a"), text("a\n")}, {nil, text("x")}, {text("x"), nil},
		{text(""), text("x\n")}, {text("a\nb\nc"), text("a\nB\nc")},
	} {
		files := map[string]*blob{"keep": text("k")}
		if tc.old != nil {
			files["f"] = tc.old
		}
		g, r, q := pair(t, files, map[string]*blob{"f": tc.new})
		d := checkDiff(t, g, r, q)
		if len(d.Files) != 1 {
			t.Fatalf("%v to %v: %d files", tc.old, tc.new, len(d.Files))
		}
		checkApplies(t, g, q, d)
	}
}

func TestCase7_2_Renames(t *testing.T) {
	body := lines(1, 40)
	for _, tc := range []struct {
		name    string
		changed map[string]*blob
		state   string
		add     int
	}{
		{"one line", map[string]*blob{"old": nil, "new": text(strings.Replace(body, "line 20\n", "line XX\n", 1))}, "R09", 1},
		{"and mode", map[string]*blob{"old": nil, "new": {"100755", strings.Replace(body, "line 20\n", "line XX\n", 1)}}, "R09", 1},
		{"pure", map[string]*blob{"old": nil, "new": text(body)}, "R100", 0},
	} {
		g, r, q := pair(t, map[string]*blob{"old": text(body)}, tc.changed)
		d := checkDiff(t, g, r, q)
		f := d.Files[0]
		if len(d.Files) != 1 || !strings.HasPrefix(f.State, tc.state) || f.Path != "new" || f.OldPath != "old" || f.Additions != tc.add || f.Deletions != tc.add {
			t.Errorf("%s: %+v", tc.name, d.Files)
		}
		checkApplies(t, g, q, d)
	}
	g, r, q := pair(t, map[string]*blob{"old": text(body)}, map[string]*blob{"new": text(body), "old": text("other\n")})
	checkApplies(t, g, q, checkDiff(t, g, r, q))
	q.Paths = []string{"new"} // one side of a rename is an added file
	if d := checkDiff(t, g, r, q); len(d.Files) != 1 || d.Files[0].State != "A" {
		t.Errorf("one side of a rename: %+v", d.Files)
	}
}

func TestCase7_3_ModeChange(t *testing.T) {
	g, r, q := pair(t, map[string]*blob{"run": text("x\n")}, map[string]*blob{"run": {"100755", "x\n"}})
	d := checkDiff(t, g, r, q)
	if want := "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n"; len(d.Files) != 1 || string(d.Files[0].Raw) != want || d.Files[0].State != "M" {
		t.Errorf("Diff = %+v, want the patch %q", d.Files, want)
	}
	checkApplies(t, g, q, d)
}

func TestCase7_4_EmptyFiles(t *testing.T) {
	g, r, q := pair(t, map[string]*blob{"e1": text("")}, map[string]*blob{"e2": text("")})
	d := checkDiff(t, g, r, q)
	if want := "diff --git a/e2 b/e2\nnew file mode 100644\nindex 0000000..e69de29\n"; len(d.Files) != 1 || string(d.Files[0].Raw) != want || d.Files[0].State != "A" {
		t.Errorf("Diff = %+v, want the patch %q", d.Files, want)
	}
	checkApplies(t, g, q, d)
	g, r, q = pair(t, map[string]*blob{"e1": text("")}, map[string]*blob{"e1": nil, "e2": text("")})
	d = checkDiff(t, g, r, q) // as git: a rename, never a copy
	if len(d.Files) != 1 || d.Files[0].State != "R100" {
		t.Errorf("Diff = %+v, want a rename", d.Files)
	}
}

func TestCase7_5_Binary(t *testing.T) {
	base := map[string]*blob{"k": text("k"), "bin": text("\x00\x01\x02")}
	for _, tc := range []struct {
		old, changed map[string]*blob
		state        string
		size         int64
	}{
		{map[string]*blob{"k": text("k")}, map[string]*blob{"bin": text("\x00ab")}, "A", 3},
		{base, map[string]*blob{"bin": text("\x00\x01\xff\xfe")}, "M", 4},
		{base, map[string]*blob{"bin": nil}, "D", 3},
	} {
		g, r, q := pair(t, tc.old, tc.changed)
		d := checkDiff(t, g, r, q)
		want := FileDiff{Path: "bin", State: tc.state, Bytes: tc.size}
		if len(d.Files) != 0 || len(d.Filtered) != 1 || !reflect.DeepEqual(d.Filtered[0], want) {
			t.Errorf("Diff = %+v, filtered %+v; want only %+v filtered", d.Files, d.Filtered, want)
		}
		q.Paths = []string{"bin"}
		d = checkDiff(t, g, r, q)
		if len(d.Files) != 1 || !bytes.Contains(d.Files[0].Raw, []byte("GIT binary patch\n")) {
			t.Errorf("Diff of the path = %+v, filtered %+v; want a binary patch", d.Files, d.Filtered)
		}
		checkApplies(t, g, q, d)
	}
}

func TestCase7_6_LargePatchIsCountedAndNamed(t *testing.T) {
	big := lines(1, 60000)
	g, r, q := pair(t, map[string]*blob{"big": text(big), "small": text("a\n"), "z": text("z\n")}, map[string]*blob{"big": nil, "small": text("b\n"), "z": nil})
	d := checkDiff(t, g, r, q)
	if len(d.Filtered) != 1 || len(d.Files) != 2 {
		t.Fatalf("%d files, %d filtered", len(d.Files), len(d.Filtered))
	}
	if want := (FileDiff{Path: "big", State: "D", Bytes: int64(len(big)), Deletions: 60000}); !reflect.DeepEqual(d.Filtered[0], want) {
		t.Errorf("filtered %+v, want %+v", d.Filtered[0], want)
	}
	q.Paths = []string{"big"}
	d = checkDiff(t, g, r, q)
	if len(d.Files) != 1 || !bytes.Contains(d.Files[0].Raw, []byte("\n@@ -1,60000 +0,0 @@\n")) {
		t.Errorf("Diff of the path: %d files, %d filtered", len(d.Files), len(d.Filtered))
	}
}

func TestDiffLimitIsThePatchsLength(t *testing.T) {
	fits := strings.Repeat("x", maxShownPatch-200) // one line
	for _, tc := range []struct {
		content string
		shown   bool
	}{{fits, true}, {fits + strings.Repeat("y", 300), false}} {
		g, r, q := pair(t, map[string]*blob{"k": text("k")}, map[string]*blob{"f": text(tc.content)})
		if d := checkDiff(t, g, r, q); (len(d.Files) == 1) != tc.shown {
			t.Errorf("file of %d bytes: %d shown, %d filtered", len(tc.content), len(d.Files), len(d.Filtered))
		}
	}
}

func TestCase7_7_ContentThatLooksLikeADiff(t *testing.T) {
	old := "-- a\n++ b\n@@ -1 +1 @@\ndiff --git a/x b/x\nrename from y\n\\ No newline\nBinary files a and b differ\nGIT binary patch\n"
	g, r, q := pair(t, map[string]*blob{"x b/y": text(old), "x": text("1\n")},
		map[string]*blob{"x b/y": text(strings.ReplaceAll(old, "\n", "!\n")), "x": text("2\n")})
	d := checkDiff(t, g, r, q)
	if len(d.Files) != 2 || d.Files[1].Path != "x b/y" || d.Files[1].Additions != 8 || d.Files[1].Deletions != 8 {
		t.Errorf("Diff = %+v", d.Files)
	}
	checkApplies(t, g, q, d)
}

func TestCase7_8_RootAndEmptyTrees(t *testing.T) {
	g := newGitSource(t)
	var h history
	h.commit("refs/heads/main", 1000, nil, map[string]*blob{"a": text("a\n"), "d/b": text("b\n")})
	h.commit("refs/heads/main", 2000, []int{1}, map[string]*blob{"a": nil, "d": nil})
	h.commit("refs/heads/main", 3000, []int{1}, nil)
	at := g.put(&h)
	g.git("update-ref", "refs/heads/x", at[2].String())
	r := g.store()
	for _, tc := range []struct {
		base, head refpolicy.OID
		files      int
	}{
		{refpolicy.OID{}, at[1], 2}, {at[1], at[2], 2}, {at[2], at[1], 2}, {refpolicy.OID{}, at[2], 0}, {at[1], at[1], 0}, {at[1], at[3], 0},
	} {
		d := checkDiff(t, g, r, DiffRequest{Base: tc.base, Head: tc.head})
		if len(d.Files) != tc.files {
			t.Errorf("Diff(%s, %s) has %d files, want %d", tc.base, tc.head, len(d.Files), tc.files)
		}
	}
	for _, q := range []DiffRequest{{Base: refpolicy.OID{1}, Head: at[1]}, {Base: at[1], Head: refpolicy.OID{1}}, {Base: at[1]}} {
		if _, err := r.Diff(t.Context(), q); !errors.Is(err, ErrObjectNotFound) {
			t.Errorf("Diff(%+v) = %v, want ErrObjectNotFound", q, err)
		}
	}
	for _, p := range []string{"", "/a", "a//b", "..", "a\x00b"} {
		if _, err := r.Diff(t.Context(), DiffRequest{Base: at[1], Head: at[2], Paths: []string{p}}); !errors.Is(err, ErrBadPath) {
			t.Errorf("Diff of path %q = %v, want ErrBadPath", p, err)
		}
	}
}

func TestDiffLeavesOutWhitespace(t *testing.T) {
	g, r, q := pair(t, map[string]*blob{"ws": text("a b\n"), "both": text("a b\nc\n"), "mode": text("a b\n")},
		map[string]*blob{"ws": text("a   b\n"), "both": text("a  b\nd\n"), "mode": {"100755", "a  b\n"}})
	q.Exact = false
	d, err := r.Diff(t.Context(), q)
	if err != nil || len(d.Files) != 2 || d.Files[0].Path != "both" || d.Files[1].Path != "mode" || d.Additions != 1 {
		t.Errorf("Diff = %+v, %v; want both and mode", d, err)
	}
	if d := checkDiff(t, g, r, q); len(d.Files) != 3 {
		t.Errorf("exact Diff has %d files, want 3", len(d.Files))
	}
}

// Every odd name, and every kind of entry turning into every other.
func TestA09_DiffEqualsGit(t *testing.T) {
	names := []string{"a", "q\"uote", "new\nline", "tab\tx", "b\\s", "\u00e9", "\xff\x01", " lead", "trail ", "d/x", "d/a b/c d", ":(glob)*", "-dash", "a/b b/a", "*"}
	contents := []*blob{
		text("one\n"), text("one\ntwo\nthree\n"), text("one\n two\nthree"), text("\x00bin"), text(""), {"100755", "one\n"}, {"120000", "one"}, {"120000", "two"},
		{"160000", strings.Repeat("1", 40)}, {"160000", strings.Repeat("2", 40)}, text(lines(1, 30)), text(lines(2, 31)), text("one\r\n"), text("one \n"),
	}
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 3))
		g := newGitSource(t)
		var h history
		pick := func() map[string]*blob {
			files := map[string]*blob{}
			for _, n := range names {
				if c := rng.IntN(len(contents) + 3); c < len(contents) && (n != "a/b b/a" || files["a"] == nil) {
					files[n] = contents[c]
				}
			}
			return files
		}
		for i := range 5 {
			h.commit(fmt.Sprintf("refs/heads/b%d", i), 1000+i, nil, pick())
		}
		at := g.put(&h)
		r := g.store()
		for i := 2; i <= 5; i++ {
			q := DiffRequest{Base: at[i-1], Head: at[i]}
			checkApplies(t, g, q, checkDiff(t, g, r, q))
			q.Paths = names[:]
			checkApplies(t, g, q, checkDiff(t, g, r, q))
			q.Paths = []string{names[rng.IntN(len(names))], "d", ":(glob)*"}
			checkDiff(t, g, r, q)
		}
	}
}

func TestDiffIsRememberedAndShared(t *testing.T) {
	_, r, q := pair(t, map[string]*blob{"a": text("1\n")}, map[string]*blob{"a": text("2\n")})
	var wg sync.WaitGroup
	got := make([]*Diff, 8)
	for i := range got {
		wg.Go(func() {
			d, err := r.Diff(t.Context(), q)
			if err != nil {
				t.Errorf("Diff: %v", err)
			}
			got[i] = d
		})
	}
	wg.Wait()
	again, err := r.Diff(t.Context(), q)
	for _, d := range append(got, again) {
		if err != nil || !reflect.DeepEqual(d, again) {
			t.Errorf("Diff asked at once or again = %v, %v; want %v", d, err, again)
		}
	}
	if d, err := r.Diff(t.Context(), q); err != nil || d != again {
		t.Errorf("Diff asked again is computed again (%v)", err)
	}
}

func TestDiffOfHotObjects(t *testing.T) {
	g := newGitSource(t)
	var h history
	h.commit("refs/heads/main", 1000, nil, map[string]*blob{"a": text("1\n")})
	h.commit("refs/heads/main", 2000, []int{1}, map[string]*blob{"a": text("2\n")})
	at := g.put(&h)
	r := g.hotInto(emptyRepo(t, Limits{}))
	checkDiff(t, g, r, DiffRequest{Base: at[1], Head: at[2]})
}
