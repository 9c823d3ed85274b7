package gitstore

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/refpolicy"
)

// openTestLedger opens an embedded ledger that goes with the test.
func openTestLedger(t testing.TB) ledger.Ledger {
	t.Helper()
	db, err := pebbledb.Open(filepath.Join(t.TempDir(), "ledger"), pebbledb.Options{})
	if err != nil {
		t.Fatalf("pebbledb.Open: %v", err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// openTestStore opens a store in a folder of its own. fill may change its options.
func openTestStore(t testing.TB, fill func(*Options)) *Store {
	t.Helper()
	o := Options{Dir: t.TempDir()}
	if fill != nil {
		fill(&o)
	}
	if o.Ledger == nil {
		o.Ledger = openTestLedger(t)
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// newTestRepo makes a repo acme/<name> that is checked with git fsck when the test ends.
func newTestRepo(t testing.TB, s *Store, name string) *Repo {
	t.Helper()
	if _, err := s.CreateRepo(t.Context(), Caller{}, "acme", name, "main", nil); err != nil {
		t.Fatalf("CreateRepo(%s): %v", name, err)
	}
	r, err := s.Repo(t.Context(), "acme", name)
	if err != nil {
		t.Fatalf("Repo(%s): %v", name, err)
	}
	t.Cleanup(func() { checkRepo(t, r) })
	return r
}

// checkRepo exports a repo's refs and objects into a plain repository and lets git look at it.
func checkRepo(t testing.TB, r *Repo) {
	t.Helper()
	ctx := context.Background()
	refs, err := r.Refs(ctx, Caller{}, "refs/", "", 0)
	if err != nil {
		t.Errorf("Refs: %v", err)
		return
	}
	dir, alternates, release, err := r.gitObjects(ctx)
	if err != nil {
		t.Errorf("gitObjects: %v", err)
		return
	}
	defer release()
	plain := t.TempDir()
	git(t, plain, nil, "init", "-q", "--bare", ".")
	var lines bytes.Buffer
	for _, a := range append(alternates, dir) {
		lines.WriteString(a + "\n")
	}
	if err := os.WriteFile(filepath.Join(plain, "objects", "info", "alternates"), lines.Bytes(), 0o644); err != nil {
		t.Errorf("write alternates: %v", err)
		return
	}
	var updates bytes.Buffer
	for _, ref := range refs {
		updates.WriteString("create " + string(ref.Name) + " " + ref.OID.String() + "\n")
	}
	git(t, plain, updates.Bytes(), "update-ref", "--stdin")
	git(t, plain, nil, "fsck", "--strict", "--no-dangling", "--full")
}

// git runs git in dir and fails the test if git does.
func git(t testing.TB, dir string, stdin []byte, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(stdin)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("git %v: %v\n%s", args, err, errOut.String())
	}
	return string(out)
}

// someone is a caller whose subject stands in records.
var someone = Caller{Actor: Actor{Org: "acme", Subject: "tester"}}

// confined is a caller that may read and fast-forward one ref alone.
func confined(t testing.TB, ref refpolicy.RefName) Caller {
	t.Helper()
	p, err := refpolicy.New([]refpolicy.Rule{
		{Pattern: string(ref), Ops: []refpolicy.Op{refpolicy.NoForcePush}},
		{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}},
	}, nil)
	if err != nil {
		t.Fatalf("refpolicy.New: %v", err)
	}
	return Caller{Actor: Actor{Org: "acme", Subject: "sandbox"}, Policy: p}
}

// testCommit is a commit of files over the API; "" deletes.
type testCommit struct {
	target, base refpolicy.RefName
	expected     string
	files        map[string]string
}

func (tc testCommit) make(ctx context.Context, r *Repo, c Caller) (CommitResult, error) {
	spec := CommitSpec{
		Target: tc.target, Base: tc.base, Expected: tc.expected, Message: "change files",
		Author: Signature{Name: "Tester", Email: "tester@example.org"},
	}
	for path, text := range tc.files {
		spec.Files = append(spec.Files, FileChange{Path: path, Delete: text == "", ContentID: path})
	}
	w, err := r.NewCommit(ctx, c, spec)
	if err != nil {
		return CommitResult{}, err
	}
	defer w.Abort()
	for path, text := range tc.files {
		if text == "" {
			continue
		}
		if err := w.Write(path, []byte(text), true); err != nil {
			return CommitResult{}, err
		}
	}
	return w.Commit(ctx)
}

func mustCommit(t testing.TB, r *Repo, c Caller, tc testCommit) CommitResult {
	t.Helper()
	res, err := tc.make(t.Context(), r, c)
	if err != nil {
		t.Fatalf("commit %+v: %v", tc, err)
	}
	return res
}
