package gitstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// modulesCases are files as git's fsck judges them.
var modulesCases = []struct {
	data string
	bad  bool
}{
	{"", false},
	{"[submodule \"a\"]\n\tpath = a\n\turl = https://example.org/a.git\n", false},
	{"[submodule \"a/b\"]\n\tpath = a/b\n\turl = ../b.git\n\tupdate = rebase\n", false},
	{"[submodule \"..\"]\n\tpath = a\n", true},
	{"[submodule \"a/../b\"]\n\turl = x\n", true},
	{"[submodule \"a\\\\..\\\\b\"]\n\turl = x\n", true},
	{"[submodule \"..a\"]\n\turl = x\n", false},
	{"[submodule \"a..\"]\n\turl = x\n", false},
	{"[submodule \"\"]\n\turl = x\n", true},
	{"[submodule \"..\"]\n", false}, // without an entry it does nothing
	{"[SubModule \"a\"]\n\tURL = -upload-pack=x\n", true},
	{"[submodule \"a\"]\n\turl = \"-x\"\n", true},
	{"[submodule \"a\"]\n\turl = a\\\nb\n", false},
	{"[submodule \"a\"]\n\tpath = -x\n", true},
	{"[submodule \"a\"]\n\tpath = \"-\\\nx\"\n", true},
	{"[submodule \"a\"]\n\tupdate = !touch x\n", true},
	{"[submodule \"a\"]\n\tupdate = \" !x\"\n", false},
	{"[submodule \"a\"] update = !x\n", true},
	{"[submodule \"a\"]\n\turl = ./%0ahost=example.org\n", true},
	{"[submodule \"a\"]\n\turl = git://host/%0A\n", true},
	{"[submodule \"a\"]\n\turl = https://one.example.org/%0ahost=two.example.org\n", true},
	{"[submodule \"a\"]\n\turl = \"https://a.example.org/x\\nhost=b\"\n", true},
	{"[submodule \"a\"]\n\turl = ../../../../:example.org/x\n", true},
	{"[submodule \"a\"]\n\turl = ../..//example.org/x\n", true},
	{"[submodule \"a\"]\n\turl = https:///example.org/x\n", true},
	{"[submodule \"a\"]\n\turl = http::https://example.org/x\n", false},
	{"[submodule \"a\"]\n\turl = ssh://git@example.org/x\n", false},
	{"[submodule \"a\"]\n\turl = git@example.org:x\n", false},
	{"[submodule.a]\n\tupdate = !x\n", true},
	{"[submodule]\n\tupdate = !x\n", false},
	{"[core \"a\"]\n\turl = -x\n", false},
	{"# [submodule \"..\"]\n; url = x\n[submodule \"a\"] ; x\n\turl = x # -y\n", false},
	{"[submodule \"a\"\n\turl = -x\n", false}, // git stops reading there
	{"[submodule \"a\"]\n\turl\n\tpath = -x\n", true},
	{"[submodule \"a\"]\r\n\turl = -x\r\n", true},
}

func TestCheckModules(t *testing.T) {
	for _, tc := range modulesCases {
		if err := checkModules([]byte(tc.data)); tc.bad != errors.Is(err, ErrBadObject) {
			t.Errorf("checkModules(%q) = %v, want it refused: %v", tc.data, err, tc.bad)
		}
		// fsck does not read behind a byte order mark, but a clone does.
		if err := checkModules([]byte("\xef\xbb\xbf" + tc.data)); tc.bad != errors.Is(err, ErrBadObject) {
			t.Errorf("checkModules(%q with a byte order mark) = %v, want it refused: %v", tc.data, err, tc.bad)
		}
	}
}

// The table says what git says.
func TestCheckModulesAgreesWithFsck(t *testing.T) {
	g := newGitSource(t)
	var h history
	for n, tc := range modulesCases {
		h.commit(fmt.Sprintf("refs/heads/b%d", n), 1577836800+n, nil, map[string]*blob{".gitmodules": text(tc.data), "n": text(fmt.Sprint(n))})
	}
	g.put(&h)
	said, _ := g.command("fsck", "--no-dangling", "--no-progress").CombinedOutput() // it finds errors: that is what it is for
	for n, tc := range modulesCases {
		blob := g.git("rev-parse", fmt.Sprintf("refs/heads/b%d:.gitmodules", n))
		if got := strings.Contains(string(said), "error in blob "+blob); got != tc.bad {
			t.Errorf("git refuses %q: %v; the table says %v", tc.data, got, tc.bad)
		}
	}
}

func TestPushOfSpecialFiles(t *testing.T) {
	eachRoad(t, func(t *testing.T, p *pushTarget) {
		p.w.commit(".gitmodules", "[submodule \"a\"]\n\tpath = a\n\turl = ../a\n")
		good := p.w.commit(".gitattributes", "*.x binary\n")
		p.w.git("push", "-q", "origin", "main")
		bad := "[submodule \"../x\"]\n\tpath = a\n\turl = ../a\n"
		p.w.commit(filepath.Join("deep", "folder", ".gitmodules"), bad)
		contains(t, p.w.refused("push", "origin", "main"), "unpacker error", `.gitmodules has a submodule named "../x"`)
		p.w.git("reset", "-q", "--hard", good)
		p.w.commit(".gitattributes", strings.Repeat("x", 3000)+" binary\n")
		contains(t, p.w.refused("push", "origin", "main"), ".gitattributes has a line of over 2048 bytes")
		p.at("refs/heads/main", good)
		// A file that is there under another name does harm only once it gets this one.
		p.w.git("reset", "-q", "--hard", good)
		p.w.commit("harmless", bad)
		p.w.git("push", "-q", "origin", "main")
		p.w.git("mv", "-f", "harmless", ".gitmodules")
		p.w.git("commit", "-q", "-m", "rename")
		contains(t, p.w.refused("push", "origin", "main"), `.gitmodules has a submodule named "../x"`)
	})
}

// What a push is refused for is refused over the API: otherwise a commit leaves a
// history that git's own check will not take.
func TestCase5_1_CommitOfSpecialFiles(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	good := "[submodule \"a\"]\n\tpath = a\n\turl = ../a\n"
	evil := "[submodule \"../x\"]\n\tpath = a\n\turl = ../a\n"
	long := strings.Repeat("x", maxAttributesLine) + " binary\n"
	for _, tc := range []struct {
		path, text string
		mode       Mode
		bad        bool
	}{
		{".gitmodules", good, 0, false},
		{"deep/.gitmodules", evil, 0, true},
		{".GITMODULES", evil, ModeExecutable, true},
		{"gitmod~1", evil, ModeFile, true},
		{".gitmodules", "target", ModeSymlink, true},
		{".gitmodules", strings.Repeat("a", 40), ModeSubmodule, true},
		{".gitmodules/x", good, ModeFile, true},
		{".gitmodules", strings.Repeat("#", maxSpecial) + "\n", ModeFile, true},
		{".gitattributes", "* text=auto eol=lf\n", ModeFile, false},
		{".gitattributes", long, ModeFile, true},
		{".gitattributes", "target", ModeSymlink, false},
		{"a/.gitattributes/x", "x", ModeFile, true},
		{"gitmodules", evil, ModeFile, false},
	} {
		err := commitFile(t.Context(), r, tc.path, tc.text, tc.mode)
		if tc.bad != errors.Is(err, ErrInvalid) || !tc.bad && err != nil {
			t.Errorf("commit of %s with mode %o and %.40q: %v, want it refused: %v", tc.path, tc.mode, tc.text, err, tc.bad)
		}
	}
}

func commitFile(ctx context.Context, r *Repo, path, text string, mode Mode) error {
	w, err := r.NewCommit(ctx, someone, CommitSpec{
		Target: mainRef, Message: "change " + path, Author: Signature{Name: "Tester", Email: "tester@example.org"},
		Files: []FileChange{{Path: path, Mode: mode, ContentID: "1"}},
	})
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := w.Write("1", []byte(text), true); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	return err
}

func FuzzCheckModules(f *testing.F) {
	for _, tc := range modulesCases {
		f.Add([]byte(tc.data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer hangs(t)()
		if err := checkModules(data); err != nil && !errors.Is(err, ErrBadObject) {
			t.Fatalf("checkModules(%q) = %v, want ErrBadObject", data, err)
		}
	})
}
