package gitstore

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// dotGitParts are what names that come near to .git are made of.
var dotGitParts = []string{
	".git", ".GiT", "git~1", "GIT~1", "git~2", ".", "..", " ", ":", "::$INDEX_ALLOCATION", `\`, "g", "git",
	"\u200c", "\u200f", "\u202a", "\u206f", "\ufeff", "\u2010", "a", "~", "1", "\u0130", "K", ".gitmodules", "\xff", "\uffff", "\ufffd", "\xed\xa0\x80", "é", "\t", "*",
}

// randomNames are names made of a few of the parts.
func randomNames(rng *rand.Rand, n int) []string {
	names := []string{"", "\xff.git", ".git\xff", ".g\u200cit", `a:b\.git`, `a\.git. .`, ".git:x", "x:.git", ".gi", "-", ".git~1"}
	for range n {
		var b strings.Builder
		for range 1 + rng.IntN(4) {
			b.WriteString(dotGitParts[rng.IntN(len(dotGitParts))])
		}
		names = append(names, b.String())
	}
	return names
}

// Names that headgate lets into a tree are those that git's strict fsck lets pass,
// asked of trees with one entry each.
func TestEntryNamesAreThoseOfFsck(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	git(t, dir, nil, "init", "-q", "--bare", ".")
	blob := strings.TrimSpace(git(t, dir, []byte("x"), "hash-object", "-w", "--stdin"))
	id, err := refpolicy.ParseOID(blob)
	if err != nil {
		t.Fatalf("ParseOID(%q): %v", blob, err)
	}
	names := map[string]string{} // tree -> the name in it
	var entries, stdin strings.Builder
	for _, name := range randomNames(rand.New(rand.NewPCG(seed, 0)), 1500) {
		if name == "" || strings.Contains(name, "/") {
			continue // no tree entry could hold it; checked by TestPathsAreThoseOfTheIndex
		}
		o := newObject(TreeObject, encodeTree([]treeEntry{{ModeFile, name, id}}))
		names[o.OID.String()] = name
		fmt.Fprintf(&entries, "100644 blob %s\t%s\x00\x00", blob, name)
	}
	stdin.WriteString(entries.String())
	made := strings.Fields(git(t, dir, []byte(stdin.String()), "mktree", "-z", "--batch"))
	if len(made) == 0 {
		t.Fatalf("git mktree made no trees")
	}
	cmd := exec.Command("git", "fsck", "--strict", "--no-dangling")
	cmd.Dir = dir
	out, _ := cmd.CombinedOutput() // it fails for what it finds
	bad := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		for _, id := range []string{"hasDotgit", "hasDot", "hasDotdot", "fullPathname", "emptyName"} {
			if strings.Contains(line, ": "+id+":") {
				bad[strings.TrimSuffix(strings.Fields(line)[3], ":")] = true
			}
		}
	}
	if len(bad) < 20 {
		t.Fatalf("git fsck found %d bad names, want many: %.300s", len(bad), out)
	}
	for tree, name := range names {
		if got := checkEntryName(name) != nil; got != bad[tree] {
			t.Errorf("checkEntryName(%q) refuses: %v, git fsck: %v", name, got, bad[tree])
		}
	}
}

// A path that git's index takes, headgate takes, and none that it does not, with
// the checks for other file systems switched on.
func TestPathsAreThoseOfTheIndex(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	git(t, dir, nil, "init", "-q", "--bare", ".")
	blob := hashObject(BlobObject, nil).String()
	names := randomNames(rng, 120)
	for range 120 {
		path := names[rng.IntN(len(names))]
		for range rng.IntN(3) {
			path += "/" + names[rng.IntN(len(names))]
		}
		// The index overlooks what stands behind a backslash at the start of a name;
		// fsck does not, and neither do we.
		if strings.ContainsAny(path, "\n,") || strings.HasPrefix(path, `\`) || strings.Contains(path, `/\`) {
			continue
		}
		cmd := exec.Command("git", "-c", "core.protectHFS=true", "-c", "core.protectNTFS=true",
			"update-index", "--add", "--index-info")
		cmd.Dir = dir
		cmd.Args = cmd.Args[:len(cmd.Args)-1]
		cmd.Args = append(cmd.Args, "--cacheinfo", "100644,"+blob+","+path)
		took := cmd.Run() == nil
		git(t, dir, nil, "read-tree", "--empty")
		if got := checkPath(path) == nil; got != took {
			t.Errorf("checkPath(%q) takes it: %v, git update-index: %v", path, got, took)
		}
	}
}

// The spellings that some file system takes for .git, and neighbours that none does.
func TestCase5_1_NamesThatStandForDotGit(t *testing.T) {
	for _, tc := range []struct {
		name string
		want bool
	}{
		{".git", true},
		{".GIT", true},
		{".g\u200cit", true},      // HFS+ drops the joiner
		{".git\ufeff", true},      // and the byte order mark
		{".git\xff", true},        // and stops where UTF-8 does
		{".git ", true},           // NTFS drops blanks and dots at the end
		{".git...", true},         //
		{"git~1", true},           // NTFS's short name
		{"GIT~1 .", true},         //
		{".git::$INDEX", true},    // a stream of .git
		{`a\.git\b`, true},        // a backslash parts names on NTFS
		{".gitignore", false},     //
		{".git2", false},          //
		{"x.git", false},          //
		{"git~2", false},          //
		{"\xff.git", false},       // ends before it begins
		{"a:.git", false},         // a stream's own name is no file
		{".gi\u200ct\xff.", true}, // both tricks at once
	} {
		if got := isDotGit(tc.name); got != tc.want {
			t.Errorf("isDotGit(%q) = %v, want %v", tc.name, got, tc.want)
		}
	}
}
