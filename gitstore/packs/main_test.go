package packs

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// newDir makes a repository folder; git checks it when the test is over.
func newDir(t testing.TB, o Options) *Dir {
	t.Helper()
	root := filepath.Join(t.TempDir(), "repo")
	if err := CreateDir(root, o); err != nil {
		t.Fatalf("CreateDir: %v", err)
	}
	d, err := Open(root, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if out, err := gitErr(root, nil, "fsck", "--full", "--strict", "--no-dangling"); err != nil {
			t.Errorf("git fsck of %s: %v\n%s", root, err, out)
		}
	})
	return d
}

// git runs the real git on a folder and fails the test if it does.
func git(t testing.TB, gitDir string, stdin []byte, args ...string) []byte {
	t.Helper()
	out, err := gitErr(gitDir, stdin, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func gitErr(gitDir string, stdin []byte, args ...string) ([]byte, error) {
	c := exec.Command("git", args...)
	c.Env = append(os.Environ(), "GIT_DIR="+gitDir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.com", "GIT_COMMITTER_DATE=1700000000 +0000")
	c.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return append(out, stderr.Bytes()...), err
	}
	return out, nil
}

// seeded gives random numbers that are the same in every run.
func seeded(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, 7)) }

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n]
}

// words is text that deflates.
func words(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+16)
	for len(b) < n {
		b = strconv.AppendInt(append(b, " word"...), int64(r.IntN(500)), 10)
		if r.IntN(8) == 0 {
			b = append(b, '\n')
		}
	}
	return b[:n]
}

// sample makes a repository whose history gives deep deltas and returns its
// folder: 40 versions of a file, several trees, a tag, an empty file.
func sample(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sample.git")
	git(t, dir, nil, "init", "-q", "--bare", dir)
	r := seeded(1)
	text := words(r, 6000)
	var in bytes.Buffer
	for i := range 40 {
		copy(text[r.IntN(len(text)-40):], words(r, 40))
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter c <c@example.com> %d +0000\ndata 3\nc%02d\n", 1700000000+i, i)
		fmt.Fprintf(&in, "M 100644 inline dir/sub/text\ndata %d\n%s\n", len(text), text)
		fmt.Fprintf(&in, "M 100644 inline dir/n%d\ndata 5\n%05d\n", i, i)
		if i == 0 {
			fmt.Fprintf(&in, "M 100644 inline empty\ndata 0\n\n")
			big := noise(r, 200<<10)
			fmt.Fprintf(&in, "M 100644 inline noise\ndata %d\n%s\n", len(big), big)
		}
	}
	fmt.Fprintf(&in, "tag v1\nfrom refs/heads/main\ntagger c <c@example.com> 1700000000 +0000\ndata 2\nv1\n")
	git(t, dir, in.Bytes(), "fast-import", "--quiet")
	return dir
}

// packSample packs all of a repository by real git and gives pack and idx.
// With ofs the deltas name their bases by distance, otherwise by id.
func packSample(t testing.TB, repo, into string, ofs bool) (pack, idx string) {
	t.Helper()
	all := git(t, repo, nil, "rev-list", "--objects", "--all", "--no-object-names")
	args := []string{"pack-objects", "-q", "--depth=50", "--window=20", "--no-reuse-delta", filepath.Join(into, "made")}
	if ofs {
		args = append(args[:1:1], append([]string{"--delta-base-offset"}, args[1:]...)...)
	}
	sum := strings.TrimSpace(string(git(t, repo, all, args...)))
	base := filepath.Join(into, "made-"+sum)
	return base + ".pack", base + ".idx"
}

// adopt brings a pack made by real git into d and opens it.
func adopt(t testing.TB, d *Dir, repo string, ofs bool) *Pack {
	t.Helper()
	in, err := d.Incoming()
	if err != nil {
		t.Fatalf("Incoming: %v", err)
	}
	pack, idx := packSample(t, repo, in, ofs)
	info, err := d.Adopt(context.Background(), pack, idx)
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	if err := d.RemoveIncoming(in); err != nil {
		t.Fatalf("RemoveIncoming: %v", err)
	}
	return openPackT(t, d, info.Name)
}

func openPackT(t testing.TB, d *Dir, name string) *Pack {
	t.Helper()
	p, err := d.Pack(name)
	if err != nil {
		t.Fatalf("Pack(%s): %v", name, err)
	}
	t.Cleanup(p.Release)
	return p
}

type object struct {
	id   refpolicy.OID
	typ  Type
	data []byte
}

// objectsOf reads every object of a repository by git cat-file --batch.
func objectsOf(t testing.TB, repo string) []object {
	t.Helper()
	return parseBatch(t, git(t, repo, nil, "cat-file", "--batch", "--batch-all-objects"))
}

func parseBatch(t testing.TB, out []byte) (all []object) {
	t.Helper()
	types := map[string]Type{"commit": Commit, "tree": Tree, "blob": Blob, "tag": Tag}
	for len(out) > 0 {
		line, rest, _ := bytes.Cut(out, []byte("\n"))
		var hex, typ string
		var n int
		if _, err := fmt.Sscanf(string(line), "%s %s %d", &hex, &typ, &n); err != nil {
			t.Fatalf("cat-file --batch said %q: %v", line, err)
		}
		id, err := refpolicy.ParseOID(hex)
		if err != nil {
			t.Fatalf("ParseOID(%q): %v", hex, err)
		}
		all = append(all, object{id, types[typ], rest[:n:n]})
		out = rest[n+1:]
	}
	return all
}

// noSync saves the time that syncing takes where no crash is tested.
type noSync struct{ OS }

type noSyncFile struct{ File }

func (noSyncFile) Sync() error { return nil }

func (noSync) SyncDir(string) error { return nil }

func (n noSync) Create(name string) (File, error) {
	f, err := n.OS.Create(name)
	if err != nil {
		return nil, err
	}
	return noSyncFile{f}, nil
}

// allocated is how many bytes f asks of the heap.
func allocated(f func()) uint64 {
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	f()
	runtime.ReadMemStats(&b)
	return b.TotalAlloc - a.TotalAlloc
}
