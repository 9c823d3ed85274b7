package gitstore

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

const commitTree = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n"

func TestParseCommit(t *testing.T) {
	raw := commitTree +
		"parent 1111111111111111111111111111111111111111\nparent 2222222222222222222222222222222222222222\n" +
		"author A U Thor <a@example.org> 1700000000 +0530\ncommitter C <c@example.org> 1700000001 -0230\n" +
		"encoding ISO-8859-1\ngpgsig -----BEGIN\n author X <x> 1 +0000\n -----END\n\ntitle\n\nbody \xe9\n\n"
	c, err := parseCommit([]byte(raw))
	if err != nil {
		t.Fatalf("parseCommit: %v", err)
	}
	if c.Tree != emptyTree || len(c.Parents) != 2 || c.Parents[1].String()[:4] != "2222" {
		t.Errorf("tree %s parents %v", c.Tree, c.Parents)
	}
	if c.Author.Name != "A U Thor" || c.Author.Email != "a@example.org" || c.Author.When.Format(time.RFC3339) != "2023-11-15T03:43:20+05:30" {
		t.Errorf("author = %+v", c.Author)
	}
	if c.Committer.Name != "C" || c.Committer.When.Format(time.RFC3339) != "2023-11-14T19:43:21-02:30" {
		t.Errorf("committer = %+v", c.Committer)
	}
	if c.Message != "title\n\nbody \xe9\n\n" {
		t.Errorf("message = %q", c.Message)
	}
}

func TestParseCommitKeepsToTreeAndParents(t *testing.T) {
	for _, raw := range []string{
		"", "tree", "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904", "tree 4b825dc642cb6eb9a060e54bf8d69288fbee490z\n",
		commitTree + "parent 1111\n", "author a <b> 1 +0000\n\nx",
	} {
		if _, err := parseCommit([]byte(raw)); !errors.Is(err, ErrBadObject) {
			t.Errorf("parseCommit(%q) = %v, want ErrBadObject", raw, err)
		}
	}
}

func TestParseSignature(t *testing.T) {
	for _, tc := range []struct{ line, name, email, when string }{
		{"A <a@b> 1 +0000", "A", "a@b", "1970-01-01T00:00:01Z"},
		{"<a@b> 1 +0100", "", "a@b", "1970-01-01T01:00:01+01:00"},
		{"A  <> 1 -0000", "A", "", "1970-01-01T00:00:01Z"},
		{"A <a@b>", "A", "a@b", "1970-01-01T00:00:00Z"},
		{"A <a@b> 5", "A", "a@b", "1970-01-01T00:00:00Z"},                          // a time without a zone is none
		{"A <a@b> x> 5 +0000", "A", "a@b", "1970-01-01T00:00:05Z"},                 // the time follows the last bracket
		{"A <a@b> 1 +9999", "A", "a@b", "1970-01-01T00:00:01Z"},                    // no such zone
		{"A <a@b> 1 +90", "A", "a@b", "1970-01-01T01:30:01+01:30"},                 // 90 minutes
		{"A <a@b> 1 +051800", "A", "a@b", "1970-01-01T00:00:01Z"},                  // seen in the wild
		{"A <a@b> 99999999999999999999 +0000", "A", "a@b", "1970-01-01T00:00:00Z"}, // overflows
		{"A <a@b> -5 +0000", "A", "a@b", "1970-01-01T00:00:00Z"},
		{"no brackets 1 +0000", "", "", "1970-01-01T00:00:00Z"},
		{"A <unclosed 1 +0000", "", "", "1970-01-01T00:00:00Z"},
		{"", "", "", "1970-01-01T00:00:00Z"},
	} {
		s := parseSignature([]byte(tc.line))
		if s.Name != tc.name || s.Email != tc.email || s.When.Format(time.RFC3339) != tc.when {
			t.Errorf("parseSignature(%q) = %q %q %s, want %q %q %s", tc.line, s.Name, s.Email, s.When.Format(time.RFC3339), tc.name, tc.email, tc.when)
		}
	}
}

func TestEncodeCommitIsGitsOwn(t *testing.T) {
	dir := t.TempDir()
	run := func(env []string, in string, args ...string) []byte {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
		cmd.Env = append([]string{"HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "PATH=/usr/bin:/bin:/usr/local/bin"}, env...)
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return out
	}
	run(nil, "", "init", "-q", "--bare")
	run(nil, "", "hash-object", "-t", "tree", "-w", "/dev/null")
	zone := time.FixedZone("", -9*3600-30*60)
	for _, id := range []string{"Plain Name", "  .dots.  ", "a<b>c", "\"quoted\"", "O'Neil", "'x'", "line\nfeed", "caf\xc3\xa9", "a,b;c:", "\x01x\x02y\x1f"} {
		who := Signature{Name: id, Email: id, When: time.Unix(1700000000, 0).In(zone)}
		got := encodeCommit(emptyTree, nil, who, who, "subject\n\nbody")
		env := []string{
			"GIT_AUTHOR_NAME=" + id, "GIT_AUTHOR_EMAIL=" + id, "GIT_AUTHOR_DATE=1700000000 -0930",
			"GIT_COMMITTER_NAME=" + id, "GIT_COMMITTER_EMAIL=" + id, "GIT_COMMITTER_DATE=1700000000 -0930",
		}
		oid := strings.TrimSpace(string(run(env, "subject\n\nbody\n", "commit-tree", emptyTree.String())))
		if want := run(nil, "", "cat-file", "commit", oid); !bytes.Equal(got, want) {
			t.Errorf("encodeCommit with %q:\n%q\ngit makes\n%q", id, got, want)
		}
	}
}

func TestEncodeCommitMessageEndsInOneLF(t *testing.T) {
	who := Signature{Name: "A", Email: "a@b", When: time.Unix(7, 0)}
	for in, want := range map[string]string{"x": "x\n", "x\n": "x\n", "x\n\n\n": "x\n", "\nx": "\nx\n"} {
		c, err := parseCommit(encodeCommit(emptyTree, []refpolicy.OID{{1}}, who, who, in))
		if err != nil || c.Message != want || len(c.Parents) != 1 {
			t.Errorf("message %q became %q (%v), want %q", in, c.Message, err, want)
		}
	}
}

func FuzzParseCommit(f *testing.F) {
	f.Add([]byte(commitTree + "author A <a> 1 +0000\ncommitter A <a> 1 +0000\n\nx\n"))
	f.Add([]byte(commitTree + "parent 1111111111111111111111111111111111111111\nauthor <\ncommitter >< 9 -2359\n"))
	f.Add([]byte(commitTree + "\n\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		defer hangs(t)()
		c, err := parseCommit(raw)
		if err != nil {
			if !errors.Is(err, ErrBadObject) {
				t.Fatalf("parseCommit(%q) = %v, want ErrBadObject", raw, err)
			}
			return
		}
		if _, err := c.Committer.When.MarshalJSON(); err != nil {
			t.Fatalf("time of %q: %v", raw, err)
		}
		again, err := parseCommit(encodeCommit(c.Tree, c.Parents, c.Author, c.Committer, c.Message))
		if err != nil || again.Tree != c.Tree || len(again.Parents) != len(c.Parents) {
			t.Fatalf("encoded again: %v, %d parents, want %d", err, len(again.Parents), len(c.Parents))
		}
		if !again.Author.When.Equal(c.Author.When) || again.Author.Name != cleanIdentity(c.Author.Name) {
			t.Fatalf("author %+v came back as %+v", c.Author, again.Author)
		}
		if want := strings.TrimRight(c.Message, "\n") + "\n"; again.Message != want {
			t.Fatalf("message %q came back as %q", c.Message, again.Message)
		}
	})
}
