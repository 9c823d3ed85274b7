package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/httpapi"
	"github.com/headgate/headgate/refpolicy"
)

// A shop is a data folder with one repo, acme/site, that no server has open.
type shop struct {
	data       string
	head, dead refpolicy.OID
}

var shopper = gitstore.Caller{Actor: gitstore.Actor{Org: "acme", Subject: "tester"}}

func openShop(t *testing.T, data string) *node {
	t.Helper()
	n, err := openStore(t.Context(), nodeOptions{data: data, ledger: "pebble", limits: defaultLimits(), log: slog.New(slog.DiscardHandler)}, httpapi.NewMetrics())
	if err != nil {
		t.Fatalf("openStore: %v", err)
	}
	return n
}

func newShop(t *testing.T) shop {
	t.Helper()
	s := shop{data: t.TempDir()}
	n := openShop(t, s.data)
	if _, err := n.store.CreateRepo(t.Context(), shopper, "acme", "site", "main", nil); err != nil {
		t.Fatalf("CreateRepo: %v", err)
	}
	r, err := n.store.Repo(t.Context(), "acme", "site")
	if err != nil {
		t.Fatalf("Repo: %v", err)
	}
	s.head = shopCommit(t, r, "refs/heads/main", "", "kept\n")
	session := refpolicy.RefName(refpolicy.EphemeralBranchPrefix + "s")
	s.dead = shopCommit(t, r, session, "refs/heads/main", "dead\n")
	if err := r.DeleteBranch(t.Context(), shopper, session, nil); err != nil {
		t.Fatalf("DeleteBranch: %v", err)
	}
	if err := n.close(context.Background()); err != nil {
		t.Fatalf("close: %v", err)
	}
	return s
}

func shopCommit(t *testing.T, r *gitstore.Repo, target, base refpolicy.RefName, text string) refpolicy.OID {
	t.Helper()
	w, err := r.NewCommit(t.Context(), shopper, gitstore.CommitSpec{
		Target: target, Base: base, Message: "state", Author: gitstore.Signature{Name: "T", Email: "t@example.org"},
		Files: []gitstore.FileChange{{Path: "a", ContentID: "a"}},
	})
	if err != nil {
		t.Fatalf("NewCommit: %v", err)
	}
	defer w.Abort()
	if err := w.Write("a", []byte(text), true); err != nil {
		t.Fatalf("Write: %v", err)
	}
	res, err := w.Commit(t.Context())
	if err != nil {
		t.Fatalf("Commit: %v", err)
	}
	return res.Commit
}

func TestGCAndFsckOfAFolder(t *testing.T) {
	s := newShop(t)
	for _, which := range [][]string{{"--repo", "other"}, {"--org", "other"}, {"--org", "other", "--repo", "site"}} {
		fails(t, "repository not found", append([]string{"gc", "--now", "--data", s.data}, which...)...)
		fails(t, "repository not found", append([]string{"fsck", "--data", s.data}, which...)...)
	}
	status, out, errs := headgate(t, "gc", "--now", "--data", s.data)
	if want := "acme/site: 3 dead objects gone, 1 packs rewritten, "; status != 0 || !strings.HasPrefix(out, want) {
		t.Errorf("gc --now = %d, %q, %q, want %q", status, out, errs, want)
	}
	n := openShop(t, s.data)
	r, err := n.store.Repo(t.Context(), "acme", "site")
	if err != nil {
		t.Fatalf("Repo: %v", err)
	}
	for oid, want := range map[refpolicy.OID]bool{s.head: true, s.dead: false} {
		if _, err := r.Resolve(t.Context(), shopper, oid.String(), false); (err == nil) != want {
			t.Errorf("Resolve(%s) after gc = %v, want it there: %v", oid, err, want)
		}
	}
	if err := n.close(context.Background()); err != nil {
		t.Fatalf("close: %v", err)
	}
	if status, out, errs := headgate(t, "fsck", "--data", s.data, "--org", "acme"); status != 0 || out != "acme/site: sound\n" {
		t.Errorf("fsck = %d, %q, %q, want a sound repo", status, out, errs)
	}
	packs, err := filepath.Glob(filepath.Join(s.data, "repos", "*", "*", "packs", "*.pack"))
	if err != nil || len(packs) != 1 {
		t.Fatalf("packs = %v, %v, want one", packs, err)
	}
	b, err := os.ReadFile(packs[0])
	if err != nil {
		t.Fatal(err)
	}
	b[20] ^= 0xff
	write(t, packs[0], string(b))
	status, out, errs = headgate(t, "fsck", "--data", s.data)
	if status != exitFailed || !strings.Contains(out, "acme/site: object-broken ") || !strings.Contains(errs, errDamaged.Error()) {
		t.Errorf("fsck of a damaged repo = %d, %q, %q, want %d and the object named", status, out, errs, exitFailed)
	}
}

func TestExportOfAFolder(t *testing.T) {
	s := newShop(t)
	to := filepath.Join(t.TempDir(), "site.git")
	if status, out, errs := headgate(t, "export", "--data", s.data, "--org", "acme", "--repo", "site", "--to", to); status != 0 || out != to+"\n" {
		t.Fatalf("export = %d, %q, %q, want the folder's name", status, out, errs)
	}
	if out, err := exec.Command("git", "-C", to, "fsck", "--strict").CombinedOutput(); err != nil {
		t.Errorf("git fsck --strict of the export: %v, %s", err, out)
	}
	refs, err := exec.Command("git", "-C", to, "for-each-ref", "--format=%(objectname) %(refname)").Output()
	if want := fmt.Sprintf("%s refs/heads/main\n", s.head); err != nil || string(refs) != want {
		t.Errorf("refs of the export = %q, %v, want %q", refs, err, want)
	}
	for _, tc := range []struct{ repo, to string }{{"site", to}, {"none", to + "2"}} {
		if status, _, errs := headgate(t, "export", "--data", s.data, "--org", "acme", "--repo", tc.repo, "--to", tc.to); status != exitFailed || errs == "" {
			t.Errorf("export of %s to %s = %d, %q, want %d", tc.repo, tc.to, status, errs, exitFailed)
		}
	}
}

// While a server runs the commands say so and touch nothing.
func TestUpkeepBesideAServer(t *testing.T) {
	s := newShop(t)
	n := openShop(t, s.data)
	defer n.close(context.Background())
	for _, args := range [][]string{
		{"gc", "--now"}, {"fsck"}, {"export", "--org", "acme", "--repo", "site", "--to", t.TempDir() + "/x"},
		{"export", "--org", "acme", "--repo", "site", "--bundle", t.TempDir() + "/x"}, {"backup", "--to", t.TempDir() + "/x"},
	} {
		status, out, errs := headgate(t, append(args, "--data", s.data)...)
		if status != exitFailed || out != "" || !strings.Contains(errs, errServerRuns.Error()) {
			t.Errorf("%s beside a server = %d, %q, %q, want %d and the reason", args[0], status, out, errs, exitFailed)
		}
	}
	for _, dir := range []string{t.TempDir(), filepath.Join(s.data, "none")} {
		if status, _, errs := headgate(t, "gc", "--data", dir); status == 0 || errs == "" {
			t.Errorf("gc of %s = %d, %q, want it refused", dir, status, errs)
		}
	}
}
