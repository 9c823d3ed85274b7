package gitstore

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/refpolicy"
)

// gitSource is a bare repository made by the installed git, which tests read
// through headgate and compare with what git says of it.
type gitSource struct {
	t   testing.TB
	dir string
}

func newGitSource(t testing.TB) *gitSource {
	t.Helper()
	g := &gitSource{t, filepath.Join(t.TempDir(), "source.git")}
	g.git("init", "-q", "--bare", "-b", "main", g.dir)
	return g
}

func (g *gitSource) command(args ...string) *exec.Cmd {
	cmd := exec.Command("git", args...)
	cmd.Dir = filepath.Dir(g.dir)
	cmd.Env = []string{
		"HOME=" + filepath.Dir(g.dir), "PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "GIT_CONFIG_NOSYSTEM=1", "GIT_DIR=" + g.dir,
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=C", "GIT_COMMITTER_EMAIL=c@example.org",
	}
	return cmd
}

// git runs git in the source and gives its output without the last line feed.
func (g *gitSource) git(args ...string) string {
	g.t.Helper()
	return strings.TrimSuffix(string(g.gitIn("", args...)), "\n")
}

func (g *gitSource) gitIn(stdin string, args ...string) []byte {
	g.t.Helper()
	cmd := g.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		g.t.Fatalf("git %v: %v: %s", args, err, stderr.String())
	}
	return out
}

func (g *gitSource) oid(rev string) refpolicy.OID {
	g.t.Helper()
	return mustOID(g.t, g.git("rev-parse", "--verify", "-q", rev))
}

func mustOID(t testing.TB, s string) refpolicy.OID {
	t.Helper()
	oid, err := refpolicy.ParseOID(s)
	if err != nil {
		t.Fatalf("ParseOID(%q): %v", s, err)
	}
	return oid
}

// history writes commits for git fast-import.
type history struct {
	bytes.Buffer
	marks int
}

type blob struct {
	mode string // "" is 100644
	data string // of a 160000 entry: the commit
}

// commit adds a commit to ref with parents by mark and gives its mark. A nil
// blob removes the path.
func (h *history) commit(ref string, when int, parents []int, files map[string]*blob) int {
	h.marks++
	fmt.Fprintf(h, "commit %s\nmark :%d\n", ref, h.marks)
	fmt.Fprintf(h, "author A <a@example.org> %d +0100\ncommitter C <c@example.org> %d +0100\ndata <<EOT\ncommit %d\nEOT\n", when, when, h.marks)
	for i, p := range parents {
		fmt.Fprintf(h, "%s :%d\n", map[bool]string{true: "from", false: "merge"}[i == 0], p)
	}
	var paths []string
	for p := range files {
		paths = append(paths, p)
	}
	sort.Slice(paths, func(i, j int) bool { // removals first, so that a folder can make way for a file
		if (files[paths[i]] == nil) != (files[paths[j]] == nil) {
			return files[paths[i]] == nil
		}
		return paths[i] < paths[j]
	})
	for _, p := range paths {
		switch b := files[p]; {
		case b == nil:
			fmt.Fprintf(h, "D %s\n", appendQuoted(nil, p))
		case b.mode == "160000":
			fmt.Fprintf(h, "M 160000 %s %s\n", b.data, appendQuoted(nil, p))
		case b.mode != "":
			fmt.Fprintf(h, "M %s inline %s\ndata %d\n%s\n", b.mode, appendQuoted(nil, p), len(b.data), b.data)
		default:
			fmt.Fprintf(h, "M 100644 inline %s\ndata %d\n%s\n", appendQuoted(nil, p), len(b.data), b.data)
		}
	}
	h.WriteByte('\n')
	return h.marks
}

// text is a file of the given content.
func text(s string) *blob { return &blob{data: s} }

// put gives the history to the source and the commit of every mark.
func (g *gitSource) put(h *history) map[int]refpolicy.OID {
	g.t.Helper()
	marks := filepath.Join(filepath.Dir(g.dir), "marks")
	g.gitIn(h.String(), "fast-import", "--quiet", "--force", "--date-format=raw", "--export-marks="+marks)
	data, err := os.ReadFile(marks)
	if err != nil {
		g.t.Fatal(err)
	}
	commits := map[int]refpolicy.OID{}
	for line := range strings.Lines(string(data)) {
		var mark int
		var hex string
		if _, err := fmt.Sscanf(line, ":%d %s", &mark, &hex); err != nil {
			g.t.Fatalf("marks line %q: %v", line, err)
		}
		commits[mark] = mustOID(g.t, hex)
	}
	return commits
}

// testStore opens a store on an embedded ledger.
func testStore(t testing.TB, l Limits) *Store {
	t.Helper()
	dir := t.TempDir()
	db, err := pebbledb.Open(filepath.Join(dir, "ledger"), pebbledb.Options{})
	if err != nil {
		t.Fatalf("open ledger: %v", err)
	}
	s, err := Open(t.Context(), Options{Dir: filepath.Join(dir, "data"), Ledger: db, Limits: l})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Errorf("close ledger: %v", err)
		}
	})
	return s
}

func emptyRepo(t testing.TB, l Limits) *Repo {
	t.Helper()
	s := testStore(t, l)
	if _, err := s.CreateRepo(t.Context(), Caller{}, "org", "repo", "main", nil); err != nil {
		t.Fatalf("CreateRepo: %v", err)
	}
	r, err := s.Repo(t.Context(), "org", "repo")
	if err != nil {
		t.Fatalf("Repo: %v", err)
	}
	return r
}

// store gives a repo with all refs and objects of the source, in one pack.
func (g *gitSource) store() *Repo {
	g.t.Helper()
	return g.into(emptyRepo(g.t, Limits{}))
}

func (g *gitSource) into(r *Repo) *Repo {
	g.t.Helper()
	dir, err := r.dir.Incoming()
	if err != nil {
		g.t.Fatal(err)
	}
	base := filepath.Join(dir, "pack", "in")
	name := g.git("pack-objects", "-q", "--all", base)
	info, err := r.dir.Adopt(g.t.Context(), base+"-"+name+".pack", base+"-"+name+".idx")
	if err != nil {
		g.t.Fatalf("Adopt: %v", err)
	}
	u := Update{Changes: g.refs(), Proved: true, Atomic: true, Pack: &IncomingPack{Info: info, Kind: "history"}}
	if err := r.dir.RemoveIncoming(dir); err != nil {
		g.t.Fatal(err)
	}
	return g.update(r, u)
}

// hotInto is into with the objects in the hot tier.
func (g *gitSource) hotInto(r *Repo) *Repo {
	g.t.Helper()
	u := Update{Changes: g.refs(), Proved: true, Atomic: true}
	types := map[string]ObjectType{"commit": CommitObject, "tree": TreeObject, "blob": BlobObject, "tag": TagObject}
	out := bytes.NewReader(g.gitIn("", "cat-file", "--batch-all-objects", "--batch"))
	for {
		var hex, typ string
		var size int
		if _, err := fmt.Fscanf(out, "%s %s %d\n", &hex, &typ, &size); err != nil {
			break
		}
		data := make([]byte, size+1)
		if _, err := io.ReadFull(out, data); err != nil {
			g.t.Fatalf("read object %s: %v", hex, err)
		}
		u.Objects = append(u.Objects, NewObject{mustOID(g.t, hex), types[typ], data[:size]})
	}
	return g.update(r, u)
}

func (g *gitSource) refs() (changes []Change) {
	for line := range strings.Lines(g.git("for-each-ref", "--format=%(objectname) %(refname)")) {
		hex, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		changes = append(changes, Change{Ref: refpolicy.RefName(name), New: mustOID(g.t, hex)})
	}
	return changes
}

func (g *gitSource) update(r *Repo, u Update) *Repo {
	g.t.Helper()
	res, err := r.Update(g.t.Context(), u)
	if err != nil {
		g.t.Fatalf("Update: %v", err)
	}
	for _, ref := range res.Refs {
		if ref.Err != nil {
			g.t.Fatalf("Update of %s: %v", ref.Ref, ref.Err)
		}
	}
	return r
}
