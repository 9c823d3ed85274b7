package gitstore

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

func TestIndexNeed(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	index := func(objects int, names ...string) *indexRecord {
		return &indexRecord{Packs: names, Objects: objects, MadeAt: start, Files: []packs.IndexFile{{Name: "pack/x.bitmap"}}}
	}
	type packed struct {
		name    string
		objects int
	}
	for _, tc := range []struct {
		name        string
		old         *indexRecord
		list        []packed
		after       time.Duration
		force       bool
		need, later bool
	}{
		{"empty", nil, nil, 0, true, false, false},
		{"small", nil, []packed{{"a", 999}}, 0, false, false, false},
		{"small, asked for", nil, []packed{{"a", 1}}, 0, true, true, false},
		{"large", nil, []packed{{"a", 500}, {"b", 500}}, 0, false, true, false},
		{"nothing new", index(1000, "a"), []packed{{"a", 1000}}, time.Hour, true, false, false},
		{"little new", index(1000, "a"), []packed{{"a", 1000}, {"b", 999}}, time.Hour, false, false, false},
		{"little new, asked for", index(1000, "a"), []packed{{"a", 1000}, {"b", 1}}, 0, true, true, false},
		{"much new", index(1000, "a"), []packed{{"a", 1000}, {"b", 1000}}, 0, false, true, false},
		{"little beside much", index(80_000, "a"), []packed{{"a", 80_000}, {"b", 9_999}}, 0, false, false, false},
		{"an eighth more", index(80_000, "a"), []packed{{"a", 80_000}, {"b", 10_000}}, 0, false, true, false},
		{"merged just now", index(1000, "a", "b"), []packed{{"c", 1000}}, indexPatience - 1, false, false, true},
		{"merged long ago", index(1000, "a", "b"), []packed{{"c", 1000}}, indexPatience, false, true, true},
		{"much pruned", index(10_000, "a"), []packed{{"b", 8_000}}, 0, false, true, false},
	} {
		var list []livePack
		for _, p := range tc.list {
			list = append(list, livePack{p.name, packRecord{Objects: p.objects}, nil})
		}
		need, later := indexNeed(tc.old, list, start.Add(tc.after), 1000, tc.force)
		if need != tc.need || later != tc.later && !need {
			t.Errorf("%s: indexNeed = %v, %v; want %v, %v", tc.name, need, later, tc.need, tc.later)
		}
	}
}

// tracedGit is git that appends what it tells of itself to a file.
func tracedGit(t *testing.T) (*gitcmd.Runner, string) {
	t.Helper()
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace")
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatalf("find git: %v", err)
	}
	script := fmt.Sprintf("#!/bin/sh\nGIT_TRACE2_EVENT=%s exec %s \"$@\"\n", trace, real)
	if err := os.WriteFile(filepath.Join(dir, "git"), []byte(script), 0o755); err != nil {
		t.Fatalf("write script: %v", err)
	}
	r, err := gitcmd.New(gitcmd.Options{Path: filepath.Join(dir, "git"), Home: t.TempDir()})
	if err != nil {
		t.Fatalf("gitcmd.New: %v", err)
	}
	return r, trace
}

// fetchable wants upload-pack to give a pack for a commit.
func fetchable(ctx context.Context, r *Repo, want refpolicy.OID) error {
	_, err := fetchPack(ctx, r, someone, want)
	return err
}

// fetchPack fetches all of a commit over the wire, and gives the whole answer.
func fetchPack(ctx context.Context, r *Repo, c Caller, want refpolicy.OID, more ...string) ([]byte, error) {
	var in bytes.Buffer
	pkt := func(s string) { fmt.Fprintf(&in, "%04x%s", len(s)+4, s) }
	pkt("command=fetch\n")
	in.WriteString("0001")
	for _, line := range append([]string{"ofs-delta\n", "no-progress\n", "want " + want.String() + "\n"}, more...) {
		pkt(line)
	}
	pkt("done\n")
	in.WriteString("0000")
	var out bytes.Buffer
	err := r.UploadPack(ctx, c, GitRequest{Protocol: "version=2", In: &in, Out: &out})
	if err == nil && (!bytes.Contains(out.Bytes(), []byte("PACK")) || !bytes.HasSuffix(out.Bytes(), []byte("0000"))) {
		err = fmt.Errorf("fetch of %s was answered with %d bytes: %.200q", want, out.Len(), out.Bytes())
	}
	return out.Bytes(), err
}

// indexedRepo is a repo with some packs, an index over them, and a commit that is in
// none of them.
func indexedRepo(t *testing.T, fill func(*Options)) (r *Repo, commits []refpolicy.OID) {
	t.Helper()
	s := openTestStore(t, func(o *Options) {
		o.Limits.UpkeepEvery = -1
		o.Logger = quiet
		if fill != nil {
			fill(o)
		}
	})
	r = newTestRepo(t, s, "repo")
	for i := range 6 {
		tc := testCommit{target: mainRef, files: map[string]string{"a": fmt.Sprintln("state", i), fmt.Sprint("d/", i): fmt.Sprint(i)}}
		commits = append(commits, mustCommit(t, r, someone, tc).Commit)
		if i%2 == 1 && i < 5 {
			if err := r.Settle(t.Context()); err != nil {
				t.Fatalf("Settle: %v", err)
			}
		}
		if i == 3 {
			mustIndex(t, r)
		}
	}
	return r, commits
}

func mustIndex(t testing.TB, r *Repo) {
	t.Helper()
	if written, err := r.writeIndex(t.Context(), true); err != nil || !written {
		t.Fatalf("writeIndex = %v, %v; want an index", written, err)
	}
}

// What git answers from an index it answers by its bitmaps and its commit-graph, also
// when part of what is asked for came later.
func TestIndexIsUsedByFetches(t *testing.T) {
	git, trace := tracedGit(t)
	r, commits := indexedRepo(t, func(o *Options) { o.Git = git })
	for _, tc := range []struct {
		name string
		want refpolicy.OID
		more []string
	}{
		{"settled", commits[3], nil},
		{"hot", commits[5], nil},
		{"blobless", commits[5], []string{"filter blob:none\n"}},
	} {
		if err := os.Remove(trace); err != nil {
			t.Fatalf("remove trace: %v", err)
		}
		if _, err := fetchPack(t.Context(), r, someone, tc.want, tc.more...); err != nil {
			t.Errorf("%s: fetch: %v", tc.name, err)
		}
		told, err := os.ReadFile(trace)
		if err != nil {
			t.Fatalf("read trace: %v", err)
		}
		for _, sign := range []string{`"category":"load_midx_revindex","key":"source","value":"midx"`, `"key":"load/num_packs","value":"2"`} {
			if !bytes.Contains(told, []byte(sign)) {
				t.Errorf("%s: git's trace lacks %s:\n%s", tc.name, sign, told)
			}
		}
	}
}

func TestIndexHoldsACommitGraphWithFilters(t *testing.T) {
	r, commits := indexedRepo(t, nil)
	path, release := r.useIndex(t.Context())
	defer release()
	graph, err := os.ReadFile(filepath.Join(path, "info", "commit-graph"))
	if err != nil {
		t.Fatalf("read commit-graph: %v", err)
	}
	for _, chunk := range []string{"OIDF", "BIDX", "BDAT"} {
		if !bytes.Contains(graph[:200], []byte(chunk)) {
			t.Errorf("commit-graph has no chunk %s: %q", chunk, graph[:200])
		}
	}
	for i, oid := range commits {
		if got := bytes.Contains(graph, oid[:]); got != (i < 4) {
			t.Errorf("commit %d is in the graph: %v; the first four were settled", i, got)
		}
	}
}

// breakages are ways in which an index can be damaged.
var breakages = []struct {
	name  string
	found bool // by fsck
	do    func(t *testing.T, r *Repo, name string) error
}{
	{"multi-pack-index truncated", true, func(_ *testing.T, r *Repo, name string) error {
		return os.Truncate(filepath.Join(r.dir.IndexPath(name), "pack/multi-pack-index"), 100)
	}},
	{"multi-pack-index flipped", true, func(t *testing.T, r *Repo, name string) error {
		return flip(filepath.Join(r.dir.IndexPath(name), "pack/multi-pack-index"), 1050)
	}},
	{"bitmap flipped", true, func(t *testing.T, r *Repo, name string) error {
		return flip(bitmapOf(t, r, name), 60)
	}},
	{"bitmap missing", true, func(t *testing.T, r *Repo, name string) error {
		return os.Remove(bitmapOf(t, r, name))
	}},
	{"commit-graph flipped", true, func(t *testing.T, r *Repo, name string) error {
		return flip(filepath.Join(r.dir.IndexPath(name), "info/commit-graph"), 1200)
	}},
	{"commit-graph emptied", true, func(t *testing.T, r *Repo, name string) error {
		return os.Truncate(chmodded(filepath.Join(r.dir.IndexPath(name), "info/commit-graph")), 0)
	}},
	{"pack missing", true, func(t *testing.T, r *Repo, name string) error {
		return os.Remove(filepath.Join(r.dir.IndexPath(name), "pack", r.packNames()[1]+".pack"))
	}},
	{"folder missing", true, func(t *testing.T, r *Repo, name string) error {
		return os.RemoveAll(r.dir.IndexPath(name))
	}},
	{"record unreadable", true, func(t *testing.T, r *Repo, name string) error {
		_, err := r.ledger.Apply(t.Context(), ledger.Batch{Space: r.space, Sets: []ledger.Set{{Key: indexKey(name), Value: []byte("{")}}})
		return err
	}},
	{"record missing", true, func(t *testing.T, r *Repo, name string) error {
		_, err := r.ledger.Apply(t.Context(), ledger.Batch{Space: r.space, Deletes: []string{indexKey(name)}})
		return err
	}},
	{"pointer to nowhere", true, func(t *testing.T, r *Repo, name string) error {
		_, err := r.ledger.Apply(t.Context(), ledger.Batch{Space: r.space, Sets: []ledger.Set{{Key: indexPointer, Value: []byte("../x")}}})
		return err
	}},
}

// flip changes a byte of a file, whatever it is.
func flip(path string, at int) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[at] ^= 0x55
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

// chmodded lets a file that git made read-only be written.
func chmodded(path string) string {
	_ = os.Chmod(path, 0o644) // the write that follows tells
	return path
}

func bitmapOf(t *testing.T, r *Repo, name string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.dir.IndexPath(name), "pack", "*.bitmap"))
	if err != nil || len(found) != 1 {
		t.Fatalf("bitmaps of %s: %v, %v; want one", name, found, err)
	}
	return found[0]
}

// A damaged index is told by fsck, keeps no fetch from being answered, neither the
// first nor a later one, and is written anew by upkeep.
func TestDamagedIndexIsHealed(t *testing.T) {
	for _, b := range breakages {
		for _, seen := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/used-before-%v", strings.ReplaceAll(b.name, " ", "-"), seen), func(t *testing.T) {
				r, commits := indexedRepo(t, nil)
				if seen {
					if err := fetchable(t.Context(), r, commits[5]); err != nil {
						t.Fatalf("fetch: %v", err)
					}
				}
				pointer, _, err := r.currentIndex(t.Context())
				if err == nil {
					err = b.do(t, r, string(pointer))
				}
				if err != nil {
					t.Fatalf("damage: %v", err)
				}
				findings, err := r.store.Fsck(t.Context(), r)
				damaged := func(f Finding) bool { return f.Kind == FindMultiPackIndex || f.Kind == FindCommitGraph }
				if err != nil || b.found != slices.ContainsFunc(findings, damaged) {
					t.Errorf("Fsck = %v, %v; want the damage told", findings, err)
				}
				for _, oid := range commits[3:5] { // others than before, since answers are kept
					if err := fetchable(t.Context(), r, oid); err != nil {
						t.Errorf("fetch from a damaged index: %v", err)
					}
				}
				if !r.due() {
					t.Errorf("no upkeep is due after the index was found broken")
				}
				if report, err := r.gc(t.Context(), false); err != nil || !report.Indexed {
					t.Errorf("gc = %+v, %v; want a new index", report, err)
				}
				if findings, err := r.store.Fsck(t.Context(), r); err != nil || len(findings) != 0 {
					t.Errorf("Fsck after gc = %v, %v; want nothing", findings, err)
				}
				if path, release := r.useIndex(t.Context()); path == "" {
					t.Errorf("no index is in use after gc")
				} else {
					release()
				}
			})
		}
	}
}
