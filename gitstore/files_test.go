package gitstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

func readFile(t *testing.T, f *File) string {
	t.Helper()
	rc, err := f.Open(t.Context())
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	defer rc.Close()
	b, err := io.ReadAll(rc)
	if err != nil {
		t.Fatalf("read file: %v", err)
	}
	return string(b)
}

func TestCase6_1_FileNamesAreBytes(t *testing.T) {
	names := []string{"100%.txt", "a+b", "a b", "a#b", "a?b", "a&b=c", "%41", "\u00e9", "e\u0301", "a;b", "a:b", "trail ", "...x", "\xff", "tab\there", "q\"uote", strings.Repeat("n", 300)}
	files := map[string]*blob{}
	for i, n := range names {
		files["dir/"+n] = text(fmt.Sprint("content ", i))
	}
	_, r, c := oneCommit(t, files)
	for i, n := range names {
		f, err := r.File(t.Context(), c, "dir/"+n)
		if err != nil {
			t.Errorf("File(%q): %v", n, err)
			continue
		}
		if got, want := readFile(t, f), fmt.Sprint("content ", i); got != want || f.Size != int64(len(want)) {
			t.Errorf("File(%q) = %q of size %d, want %q", n, got, f.Size, want)
		}
	}
}

// oneCommit is a store of one commit on main.
func oneCommit(t testing.TB, files map[string]*blob) (*gitSource, *Repo, refpolicy.OID) {
	t.Helper()
	g := newGitSource(t)
	var h history
	h.commit("refs/heads/main", 1000, nil, files)
	c := g.put(&h)[1]
	return g, g.store(), c
}

func TestCase6_4_WhatIsNotAFile(t *testing.T) {
	g, r, c := oneCommit(t, map[string]*blob{
		"dir/x": text("x"), "file": text("f"), "run": {"100755", "r"}, "link": {"120000", "dir/x"},
		"sub": {"160000", strings.Repeat("1", 40)}, "empty": text(""),
	})
	for _, tc := range []struct {
		path string
		want error
	}{
		{"dir", ErrNotAFile}, {"dir/", ErrNotAFile}, {"sub", ErrNotAFile},
		{"link/x", ErrPathNotFound}, {"file/x", ErrPathNotFound}, {"file/", ErrPathNotFound}, {"sub/x", ErrPathNotFound},
		{"nothing", ErrPathNotFound}, {"dir/nothing", ErrPathNotFound}, {"FILE", ErrPathNotFound}, {".git", ErrPathNotFound},
		{"", ErrBadPath}, {"/", ErrBadPath}, {"/file", ErrBadPath}, {"dir//x", ErrBadPath}, {"./file", ErrBadPath},
		{"dir/../file", ErrBadPath}, {"dir//", ErrBadPath}, {"fi\x00le", ErrBadPath}, {strings.Repeat("x/", 1<<19), ErrPathNotFound},
	} {
		if f, err := r.File(t.Context(), c, tc.path); !errors.Is(err, tc.want) {
			t.Errorf("File(%.40q) = %v, %v; want %v", tc.path, f, err, tc.want)
		}
	}
	for _, tc := range []struct {
		path    string
		mode    Mode
		content string
	}{{"link", ModeSymlink, "dir/x"}, {"run", ModeExecutable, "r"}, {"dir/x", ModeFile, "x"}, {"empty", ModeFile, ""}} {
		f, err := r.File(t.Context(), c, tc.path)
		if err != nil {
			t.Fatalf("File(%q): %v", tc.path, err)
		}
		if got := readFile(t, f); got != tc.content || f.Mode != tc.mode || f.OID != g.oid("main:"+tc.path) || f.Size != int64(len(tc.content)) {
			t.Errorf("File(%q) = %q %o %s %d, want %q %o", tc.path, got, f.Mode, f.OID, f.Size, tc.content, tc.mode)
		}
	}
	if _, err := r.File(t.Context(), refpolicy.OID{1}, "file"); !errors.Is(err, ErrObjectNotFound) {
		t.Errorf("File at a missing commit = %v, want ErrObjectNotFound", err)
	}
}

// gitListing is what git lists, in byte order of full paths.
func gitListing(g *gitSource, rev, path string, recursive bool) (paths []string) {
	args := []string{"ls-tree", "-z", "--format=%(path)"}
	if recursive {
		args = append(args, "-r", "-t")
	}
	tree := rev
	if path != "" {
		tree += ":" + path
	}
	for p := range strings.SplitSeq(g.git(append(args, tree)...), "\x00") {
		if p == "" {
			continue
		}
		if path != "" {
			p = path + "/" + p
		}
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return paths
}

func pathsOf(entries []TreeEntry) (paths []string) {
	for _, e := range entries {
		paths = append(paths, e.Path)
	}
	return paths
}

// listInPages pages through a listing, and checks that more tells the truth.
func listInPages(t *testing.T, r *Repo, c refpolicy.OID, l ListTree) (all []TreeEntry) {
	t.Helper()
	for {
		entries, more, err := r.Tree(t.Context(), c, l)
		if err != nil {
			t.Fatalf("Tree(%+v): %v", l, err)
		}
		all = append(all, entries...)
		if !more {
			return all
		}
		if len(entries) != l.Limit {
			t.Fatalf("Tree(%+v) gave %d entries and says there are more", l, len(entries))
		}
		l.After = entries[len(entries)-1].Path
	}
}

func TestTreeIsInByteOrderOfFullPaths(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	files := map[string]*blob{"a/x": text("1"), "a.b": text("2"), "a-b/y": text("3"), "a0": text("4"), "a/x.y": text("5"), "link": {"120000", "a"}, "sub": {"160000", strings.Repeat("2", 40)}}
	for range 300 {
		segments := make([]string, 1+rng.IntN(4))
		for i := range segments {
			segments[i] = []string{"d", "d-", "d.", "d0", "e", "e.f", "\xff"}[rng.IntN(7)]
		}
		files[strings.Join(segments, "/")+"f"] = text(fmt.Sprint(rng.IntN(9)))
	}
	g, r, c := oneCommit(t, files)
	for _, recursive := range []bool{true, false} {
		for _, path := range []string{"", "a", "d", "d/d-"} {
			want := gitListing(g, "main", path, recursive)
			for _, limit := range []int{0, 1, 3, 50, len(want)} {
				l := ListTree{Path: path, Recursive: recursive, Limit: limit}
				if got := pathsOf(listInPages(t, r, c, l)); !slices.Equal(got, want) {
					t.Fatalf("Tree(%+v):\n%q\nwant\n%q", l, got, want)
				}
			}
			for _, after := range []string{"a", "a.", "a/", "a/x", "d/d-/d", "d/~", "zzz", "\xff\xff"} {
				rest := want[len(slices.Collect(func(yield func(string) bool) {
					for _, p := range want {
						if p <= after && !yield(p) {
							return
						}
					}
				})):]
				if got := pathsOf(listInPages(t, r, c, ListTree{Path: path, Recursive: recursive, After: after})); !slices.Equal(got, rest) {
					t.Fatalf("Tree(%q, after %q):\n%q\nwant\n%q", path, after, got, rest)
				}
			}
		}
	}
}

func TestTreeEntries(t *testing.T) {
	g, r, c := oneCommit(t, map[string]*blob{"d/run": {"100755", "x"}, "file": text("f"), "link": {"120000", "d"}, "sub": {"160000", strings.Repeat("2", 40)}})
	entries, more, err := r.Tree(t.Context(), c, ListTree{Recursive: true})
	want := []TreeEntry{
		{"d", ModeTree, g.oid("main:d")}, {"d/run", ModeExecutable, g.oid("main:d/run")}, {"file", ModeFile, g.oid("main:file")},
		{"link", ModeSymlink, g.oid("main:link")}, {"sub", ModeSubmodule, mustOID(t, strings.Repeat("2", 40))},
	}
	if err != nil || more || !slices.Equal(entries, want) {
		t.Errorf("Tree = %v, %v, %v; want %v", entries, more, err, want)
	}
	for _, tc := range []struct {
		path string
		want []string
		err  error
	}{
		{"d/", []string{"d/run"}, nil},
		{"file", []string{"file"}, nil},
		{"sub", []string{"sub"}, nil},
		{"link", []string{"link"}, nil},
		{"link/run", nil, ErrPathNotFound},
		{"nothing", nil, ErrPathNotFound},
		{"../x", nil, ErrBadPath},
		{"/d", nil, ErrBadPath},
	} {
		entries, _, err := r.Tree(t.Context(), c, ListTree{Path: tc.path})
		if !errors.Is(err, tc.err) || !slices.Equal(pathsOf(entries), tc.want) {
			t.Errorf("Tree(%q) = %q, %v; want %q, %v", tc.path, pathsOf(entries), err, tc.want, tc.err)
		}
	}
}

// A page must not cost reading what it does not show: here nothing below z exists.
func TestTreeReadsOnlyWhatAPageShows(t *testing.T) {
	r := emptyRepo(t, Limits{})
	small := newObject(BlobObject, []byte("x"))
	missing := refpolicy.OID{9, 9}
	root := newObject(TreeObject, encodeTree([]treeEntry{{ModeFile, "a", small.OID}, {ModeTree, "b", missing}, {ModeFile, "c", small.OID}, {ModeTree, "z", missing}}))
	who := Signature{Name: "A", Email: "a@b"}
	raw := newObject(CommitObject, encodeCommit(root.OID, nil, who, who, "x"))
	commit := raw.OID
	(&gitSource{t: t}).update(r, Update{Changes: []Change{{Ref: "refs/heads/main", New: commit}}, Proved: true, Objects: []NewObject{small, root, raw}})
	entries, more, err := r.Tree(t.Context(), commit, ListTree{Recursive: true, Limit: 1})
	if err != nil || !more || !slices.Equal(pathsOf(entries), []string{"a"}) {
		t.Errorf("first page = %q %v, %v", pathsOf(entries), more, err)
	}
	entries, more, err = r.Tree(t.Context(), commit, ListTree{Recursive: true, Limit: 1, After: "b~"})
	if err != nil || !more || !slices.Equal(pathsOf(entries), []string{"c"}) {
		t.Errorf("page after b~ = %q %v, %v", pathsOf(entries), more, err)
	}
	if _, _, err := r.Tree(t.Context(), commit, ListTree{Recursive: true}); !errors.Is(err, ErrObjectNotFound) {
		t.Errorf("whole listing = %v, want ErrObjectNotFound", err)
	}
}

func FuzzFindEntry(f *testing.F) {
	f.Add(encodeTree([]treeEntry{{ModeFile, "a", refpolicy.OID{1}}, {ModeTree, "b", refpolicy.OID{2}}}), "b")
	f.Add([]byte("100644 a\x00short"), "a")
	f.Add([]byte("x"), "")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		entries, err := parseTree(data)
		got, ok, findErr := findEntry(data, name)
		if err != nil {
			return // findEntry looks no further than it must
		}
		i := slices.IndexFunc(entries, func(e treeEntry) bool { return e.name == name })
		if findErr != nil || ok != (i >= 0) || (ok && got != entries[i]) {
			t.Fatalf("findEntry(%q, %q) = %v %v, %v; parseTree has it at %d", data, name, got, ok, findErr, i)
		}
	})
}

func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"", "a", "a/b", "a/", "/a", "a//b", "./a", "..", "a/../b", "\x00", "a\xff/b "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePath(s)
		if err != nil {
			if !errors.Is(err, ErrBadPath) {
				t.Fatalf("parsePath(%q) = %v, want ErrBadPath", s, err)
			}
			return
		}
		again := p.name
		if p.dir {
			again += "/"
		}
		if again != s || strings.Contains("/"+p.name+"/", "/../") || strings.Contains("/"+p.name+"/", "//") || bytes.IndexByte([]byte(s), 0) >= 0 {
			t.Fatalf("parsePath(%q) = %+v", s, p)
		}
	})
}
