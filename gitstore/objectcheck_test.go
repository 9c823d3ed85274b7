package gitstore

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

const (
	zeros40    = "0000000000000000000000000000000000000000"
	goodCommit = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nparent " + zeros40 + "\nauthor A <a@b> 1234567890 +0100\ncommitter C <c@d> 1234567890 -0730\nencoding x\n\nmessage\n"
	goodTag    = "object 4b825dc642cb6eb9a060e54bf8d69288fbee4904\ntype tree\ntag v1\ntagger T <t@u> 1234567890 +0000\n\nmessage\n"
)

// treeOf makes a tree of entries written as "mode name".
func treeOf(entries ...string) string {
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(e + "\x00" + strings.Repeat("\x4b", 20))
	}
	return b.String()
}

var goodTree = treeOf("100644 a", "100644 a-b", "40000 a.d", "100755 a0", "120000 b", "160000 c", "100664 d")

func TestCheckObject(t *testing.T) {
	swap := func(s, old, replacement string) string {
		if !strings.Contains(s, old) {
			t.Fatalf("%q does not hold %q", s, old)
		}
		return strings.Replace(s, old, replacement, 1)
	}
	for _, tc := range []struct {
		typ  ObjectType
		data string
		want string // "" passes
	}{
		{CommitObject, goodCommit, ""},
		{CommitObject, swap(goodCommit, "message", "mess\x00age"), ""}, // git only warns
		{CommitObject, swap(goodCommit, "encoding x\n\nmessage\n", ""), ""},
		{CommitObject, swap(goodCommit, "author A", "author "), ""}, // an empty name
		{CommitObject, swap(goodCommit, "author A <", "author <"), "malformed name"},
		{CommitObject, swap(goodCommit, "A <a@b>", "A<a@b>"), "malformed name"},
		{CommitObject, swap(goodCommit, "A <a@b>", "A a@b"), "malformed name"},
		{CommitObject, swap(goodCommit, "A <a@b>", "A <a<b>"), "malformed address"},
		{CommitObject, swap(goodCommit, "<a@b> ", "<a@b>"), "no space"},
		{CommitObject, swap(goodCommit, "1234567890 +0100", "01234567890 +0100"), "leading zeros"},
		{CommitObject, swap(goodCommit, "1234567890 +0100", "99999999999999999999 +0100"), "out of bounds"},
		{CommitObject, swap(goodCommit, "1234567890 +0100", "x +0100"), "malformed date"},
		{CommitObject, swap(goodCommit, "+0100", "+1"), "malformed time zone"},
		{CommitObject, swap(goodCommit, "+0100\n", "+0100\nauthor A <a@b> 1 +0000\n"), "several authors"},
		{CommitObject, swap(goodCommit, "author", "auther"), "no author"},
		{CommitObject, swap(goodCommit, "committer", "comitter"), "no committer"},
		{CommitObject, swap(goodCommit, "tree", "free"), "without a tree"},
		{CommitObject, swap(goodCommit, "parent 00", "parent xx"), "malformed parent"},
		{CommitObject, swap(goodCommit, "encoding x", "encoding \x00"), "NUL"},
		{CommitObject, swap(goodCommit, "\nencoding x\n\nmessage\n", ""), "does not end"},
		{TagObject, goodTag, ""},
		{TagObject, swap(goodTag, "tagger T <t@u> 1234567890 +0000\n", ""), ""}, // as in git's oldest tags
		{TagObject, swap(goodTag, "T <t@u>", "T t@u"), "malformed name"},
		{TagObject, swap(goodTag, "type tree", "type wood"), "unknown type"},
		{TagObject, swap(goodTag, "object", "subject"), "without an object"},
		{TagObject, swap(goodTag, "tag v1", "name v1"), "without a name"},
		{TreeObject, goodTree, ""},
		{TreeObject, "", ""},
		{TreeObject, treeOf("040000 padded"), ""}, // git only warns
		{TreeObject, treeOf("100644 a b", "100644 a\\b", "100644 aux", "100644 a~1", "100644 trail ", "100644 \xff"), ""},
		{TreeObject, treeOf("100644 b", "100644 a"), "out of order"},
		{TreeObject, treeOf("100644 a", "100644 a"), "comes twice"},
		{TreeObject, treeOf("40000 a", "100644 a.b"), "out of order"}, // a folder sorts as a/
		{TreeObject, treeOf("100644 a", "100644 a-", "100644 a.b", "40000 a"), "comes twice"},
		{TreeObject, treeOf("100644 a", "100644 a-", "100644 a-b", "40000 a-"), "comes twice"},
		{TreeObject, treeOf("100644 a/b"), "slash"},
		{TreeObject, treeOf("100644 "), "cut short"},
		{TreeObject, treeOf("40000 ."), ". or .."},
		{TreeObject, treeOf("40000 .."), ". or .."},
		{TreeObject, treeOf("40000 .git"), ".git"},
		{TreeObject, treeOf("40000 .GiT"), ".git"},
		{TreeObject, treeOf("40000 .g\u200cit"), ".git"},
		{TreeObject, treeOf("40000 git~1"), ".git"},
		{TreeObject, treeOf("40000 .git . "), ".git"},
		{TreeObject, treeOf("40000 .git::$INDEX_ALLOCATION"), ".git"},
		{TreeObject, treeOf("40000 x\\.git"), ".git"},
		{TreeObject, treeOf("100644 .gitmodules"), ""},
		{TreeObject, treeOf("120000 .gitmodules"), "is no regular file"},
		{TreeObject, treeOf("120000 .gitmodule\u200cs"), "is no regular file"},
		{TreeObject, treeOf("120000 GITMOD~1"), "is no regular file"},
		{TreeObject, treeOf("120000 gi7eba~1"), "is no regular file"},
		{TreeObject, treeOf("120000 gi7e~123"), "is no regular file"},
		{TreeObject, treeOf("120000 .gitmodules ..:x"), "is no regular file"},
		{TreeObject, treeOf("120000 gitmod~5"), ""},
		{TreeObject, treeOf("120000 .gitmodulesx"), ""},
		{TreeObject, treeOf("0 a"), "mode 0"},
		{TreeObject, treeOf("40755 a"), "mode 40755"},
		{TreeObject, treeOf("110644 a"), "mode 110644"},
		{TreeObject, treeOf("1 a")[:10], "cut short"},
		{TreeObject, treeOf("9 a"), "mode"},
		{BlobObject, "\x00anything", ""},
	} {
		err := checkObject(tc.typ, []byte(tc.data), nil)
		if tc.want == "" {
			if err != nil {
				t.Errorf("checkObject(%s, %q) = %v, want nil", tc.typ, tc.data, err)
			}
			continue
		}
		if !errors.Is(err, ErrBadObject) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("checkObject(%s, %q) = %v, want ErrBadObject with %q", tc.typ, tc.data, err, tc.want)
		}
	}
}

// mutate changes a few bytes, often into ones that mean something.
func mutate(random *rand.Rand, s string) string {
	b := []byte(s)
	const telling = " \n\x00<>0149+-.:/~gitGT\\\xff"
	for range 1 + random.IntN(3) {
		if len(b) == 0 {
			break
		}
		at := random.IntN(len(b))
		switch random.IntN(4) {
		case 0:
			b = append(b[:at], b[at+1:]...)
		case 1:
			b = append(b[:at], append([]byte{telling[random.IntN(len(telling))]}, b[at:]...)...)
		case 2:
			b[at] = telling[random.IntN(len(telling))]
		case 3:
			end := at + random.IntN(min(len(b)-at, 30))
			b = append(b[:end:end], b[at:]...) // a piece twice, or cut out
		}
	}
	return string(b)
}

// What git's fsck calls an error is refused, and nothing else but the names and
// modes that headgate refuses beyond it.
func TestPropertyCheckObjectAgreesWithFsck(t *testing.T) {
	g := newGitSource(t)
	random := rand.New(rand.NewPCG(9, 9))
	objects := map[refpolicy.OID]NewObject{}
	for typ, good := range map[ObjectType]string{CommitObject: goodCommit, TreeObject: goodTree, TagObject: goodTag} {
		folder := t.TempDir()
		var paths strings.Builder
		for n := range 700 {
			o := newObject(typ, []byte(mutate(random, good)))
			objects[o.OID] = o
			path := filepath.Join(folder, fmt.Sprint(n))
			if err := os.WriteFile(path, o.Data, 0o644); err != nil {
				t.Fatal(err)
			}
			paths.WriteString(path + "\n")
		}
		g.gitIn(paths.String(), "hash-object", "-t", typ.String(), "--literally", "-w", "--stdin-paths")
	}
	cmd := g.command("fsck", "--no-dangling", "--no-progress")
	said, _ := cmd.CombinedOutput() // it finds errors: that is what it is for
	faults, notes := map[refpolicy.OID]string{}, map[refpolicy.OID]string{}
	for line := range strings.Lines(string(said)) {
		kind, rest, _ := strings.Cut(line, " in ")
		for _, word := range strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == ':' || r == '\n' }) {
			oid, err := refpolicy.ParseOID(word)
			if err != nil {
				continue
			}
			switch {
			case strings.Contains(line, "broken links"): // what they name is not there
			case kind == "error":
				faults[oid] += rest
			case strings.HasPrefix(line, "error: ") && !strings.Contains(line, "missing"):
				faults[oid] += line
			case kind == "warning":
				notes[oid] += rest
			}
			break
		}
	}
	agreed := 0
	for oid, o := range objects {
		err := checkObject(o.Type, o.Data, nil)
		switch {
		case err == nil && faults[oid] != "":
			t.Errorf("checkObject(%s, %q) passes; git: %s", o.Type, o.Data, faults[oid])
		case err != nil && faults[oid] == "" && !beyondFsck(o, err, notes[oid]):
			t.Errorf("checkObject(%s, %q) = %v; git finds no error: %s", o.Type, o.Data, err, notes[oid])
		case err != nil:
			agreed++
		}
	}
	if agreed < 100 {
		t.Errorf("only %d objects were refused by both: the test proves nothing\n%.2000s", agreed, said)
	}
}

// oddDate finds dates that only newer gits refuse: with a sign, with other white
// space than blanks before them, padded with zeros behind blanks.
var oddDate = regexp.MustCompile(`> [ \t]*[+-][0-9]+ |> [ \t]*[\v\f\r]|> [ \t]+0[0-9]`)

// beyondFsck reports whether an object is one that headgate refuses though git only
// warns, or though this git does not look.
func beyondFsck(o NewObject, err error, notes string) bool {
	if o.Type != TreeObject {
		return oddDate.Match(o.Data)
	}
	if strings.Contains(err.Error(), "mode") {
		return true
	}
	for _, id := range []string{"hasDotgit", "hasDot", "hasDotdot", "fullPathname", "emptyName"} {
		if strings.Contains(notes, id) {
			return true
		}
	}
	return false
}

func FuzzCheckObject(f *testing.F) {
	for i, s := range []string{goodCommit, goodTree, "", goodTag} {
		f.Add(uint8(i+1), []byte(s))
	}
	f.Fuzz(func(t *testing.T, typ uint8, data []byte) {
		defer hangs(t)()
		if err := checkObject(ObjectType(typ), data, map[refpolicy.OID]specialFile{}); err != nil && !errors.Is(err, ErrBadObject) {
			t.Fatalf("checkObject(%d, %s) = %v, want ErrBadObject", typ, hex.EncodeToString(data), err)
		}
	})
}
