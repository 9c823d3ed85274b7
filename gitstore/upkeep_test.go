package gitstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/refpolicy"
)

func TestMergeable(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		name  string
		kind  string
		sizes []int64
		want  int
	}{
		{"none", kindSettled, nil, 0},
		{"one", kindSettled, []int64{5}, 0},
		{"two alike", kindSettled, []int64{5, 5}, 2},
		{"each twice the rest", kindSettled, []int64{1, 2, 6, 18}, 0},
		{"small ones beside a large one", kindSettled, []int64{1, 1, 1, 1000}, 3},
		{"a large one that is not large enough", kindSettled, []int64{10, 10, 10, 50}, 4},
		{"over the limit", kindSettled, []int64{10, 10, 3000 * mib, 3000 * mib}, 2},
		{"large blobs stay", kindBlobs, []int64{10, 10, 40 * mib, 40 * mib}, 2},
		{"large pushes do not", kindPushed, []int64{40 * mib, 40 * mib}, 2},
	} {
		var list []livePack
		for i, size := range tc.sizes {
			list = append(list, livePack{fmt.Sprint(i), packRecord{Size: size, Kind: tc.kind, State: packLive}, nil})
		}
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if got := mergeable(list, mergeRule{from: []string{tc.kind}}, 1024*mib); len(got) != tc.want {
			t.Errorf("%s: %d of %v are merged, want %d", tc.name, len(got), tc.sizes, tc.want)
		}
		if got := mergeable(list, mergeRule{from: []string{"other"}}, 1024*mib); len(got) != 0 {
			t.Errorf("%s: %d packs of another kind are merged", tc.name, len(got))
		}
	}
}

// However packs come in, few are left, and what stays out of a merge is much larger
// than what goes into it.
func TestPropertyMergesKeepPacksFew(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var list []livePack
		total := int64(0)
		for range rapid.IntRange(1, 200).Draw(rt, "packs") {
			size := rapid.Int64Range(1, 1000).Draw(rt, "size")
			total += size
			list = append(list, livePack{fmt.Sprint(total), packRecord{Size: size, Kind: kindSettled}, nil})
			group := mergeable(list, mergeRule{from: []string{kindSettled}}, 1<<40)
			if len(group) < 2 {
				continue
			}
			sum := int64(0)
			for _, p := range group {
				sum += p.rec.Size
				list = slices.DeleteFunc(list, func(q livePack) bool { return q.name == p.name })
			}
			list = append(list, livePack{fmt.Sprint("m", total), packRecord{Size: sum, Kind: kindSettled}, nil})
		}
		if len(list) > 20 { // 3^18 > 200,000, the most they can have together
			rt.Fatalf("%d packs are left of %d bytes", len(list), total)
		}
	})
}

// Merging unites packs within their kind; every object stays where it can be read,
// and git sees what it saw.
func TestMergeKeepsKindsApart(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Limits = Limits{HotPackBytes: 2000, UpkeepEvery: -1} })
	r := newTestRepo(t, s, "repo")
	var made []refpolicy.OID
	for i := range 4 {
		files := map[string]string{"a": fmt.Sprint("small ", i)}
		if i%2 == 0 {
			files["big"] = fmt.Sprint(i, string(slices.Repeat([]byte("0123456789"), 500)))
		}
		made = append(made, mustCommit(t, r, someone, testCommit{target: mainRef, files: files}).Commit)
		if err := r.Settle(t.Context()); err != nil {
			t.Fatalf("Settle: %v", err)
		}
	}
	kinds := func() map[string]int {
		_, list, err := r.livePacks(t.Context())
		if err != nil {
			t.Fatalf("livePacks: %v", err)
		}
		n := map[string]int{}
		for _, p := range list {
			n[p.rec.Kind]++
		}
		return n
	}
	if got := fmt.Sprint(kinds()); got != "map[blobs:2 settled:4]" {
		t.Fatalf("packs before the merge: %s", got)
	}
	if n, err := r.merge(t.Context(), 2); err != nil || n != 6 {
		t.Errorf("merge = %d, %v, want 6 packs united", n, err)
	}
	if got := fmt.Sprint(kinds()); got != "map[blobs:1 merged:1]" {
		t.Errorf("packs after the merge: %s, want one of each kind", got)
	}
	if n, err := r.removeCondemned(t.Context(), 0); err != nil || n != 6 {
		t.Errorf("removeCondemned = %d, %v, want 6", n, err)
	}
	for i, oid := range made {
		wantFile(t, r, oid, "a", fmt.Sprint("small ", i))
	}
	if n, err := r.merge(t.Context(), 2); err != nil || n != 0 {
		t.Errorf("second merge = %d, %v, want nothing to do", n, err)
	}
}

// Upkeep comes by itself when enough has been deleted and enough packs have come
// together, and goes on while commits come in.
func TestUpkeepComesByNeed(t *testing.T) {
	s := openTestStore(t, func(o *Options) {
		o.Limits = Limits{UpkeepEvery: time.Millisecond, PackGrace: -1, PruneDeletions: 3, MergePacks: 3}
	})
	r := newTestRepo(t, s, "repo")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main\n"}})
	var dead []refpolicy.OID
	for i := range 3 {
		ref := refpolicy.RefName(fmt.Sprintf("refs/heads/s%d", i))
		dead = append(dead, mustCommit(t, r, someone, testCommit{target: ref, base: mainRef, files: map[string]string{"a": fmt.Sprint(i)}}).Commit)
		if err := r.Settle(t.Context()); err != nil {
			t.Fatalf("Settle: %v", err)
		}
		if err := r.DeleteBranch(t.Context(), someone, ref, nil); err != nil {
			t.Fatalf("DeleteBranch: %v", err)
		}
	}
	deadline := time.Now().Add(20 * time.Second)
	for n := 0; ; n++ {
		mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"b": fmt.Sprint(n)}})
		gone := 0
		for _, oid := range dead {
			if _, err := r.Resolve(t.Context(), someone, oid.String(), false); err != nil {
				gone++
			}
		}
		if gone == len(dead) && len(r.packNames()) < 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d dead commits are gone, packs are %v", gone, len(dead), r.packNames())
		}
	}
}

// What was deleted before a restart is pruned when the last prune is long ago.
func TestPruneComesAfterARestart(t *testing.T) {
	clock := newTestClock()
	db, dir := openClockedLedger(t, clock), t.TempDir()
	open := func() (*Store, *Repo) {
		s := openTestStore(t, func(o *Options) { o.Dir, o.Ledger, o.Limits = dir, db, Limits{UpkeepEvery: -1} })
		r, err := s.Repo(t.Context(), "acme", "repo")
		if err != nil {
			t.Fatalf("Repo: %v", err)
		}
		return s, r
	}
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Dir, o.Ledger = dir, db }), "repo")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main\n"}})
	for _, step := range []struct {
		what  string
		do    func(s *Store, r *Repo) error
		later time.Duration
		want  bool
	}{
		{"young repo", nil, time.Hour, false},
		{"old repo", nil, 24 * time.Hour, true},
		{"just pruned", func(_ *Store, r *Repo) error { _, err := r.prune(t.Context(), false); return err }, 0, false},
		{"nothing moved since", nil, 48 * time.Hour, false},
		{"moved since", func(_ *Store, r *Repo) error { return r.DeleteBranch(t.Context(), someone, sessionA, nil) }, 0, true},
	} {
		clock.forward(step.later)
		s, r := open()
		if step.do != nil {
			if step.what == "moved since" {
				mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"a": "x"}})
			}
			if err := step.do(s, r); err != nil {
				t.Fatalf("%s: %v", step.what, err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatalf("Close: %v", err)
			}
			_, r = open()
		}
		if err := r.overdue(t.Context()); err != nil || r.pruneDue() != step.want {
			t.Errorf("%s: prune due: %v, %v; want %v", step.what, r.pruneDue(), err, step.want)
		}
	}
}

// A prune walks from all refs, so in a repo with many of them more have to go before
// it pays, also as a process sees it that opens the repo anew.
func TestPruneWaitsForAShareOfTheRefs(t *testing.T) {
	db, dir := openTestLedger(t), t.TempDir()
	open := func() (*Store, *Repo) {
		s := openTestStore(t, func(o *Options) { o.Dir, o.Ledger, o.Limits = dir, db, Limits{UpkeepEvery: -1, PruneDeletions: 2} })
		r, err := s.Repo(t.Context(), "acme", "repo")
		if err != nil {
			t.Fatalf("Repo: %v", err)
		}
		return s, r
	}
	first := newTestRepo(t, openTestStore(t, func(o *Options) { o.Dir, o.Ledger = dir, db }), "repo")
	mustCommit(t, first, someone, testCommit{target: mainRef, files: map[string]string{"a": "main"}})
	s, r := open()
	session := func(n int) refpolicy.RefName {
		return refpolicy.RefName(fmt.Sprintf("%s%d", refpolicy.EphemeralBranchPrefix, n))
	}
	const sessions = 4*pruneShare - 1 // with main four shares
	for n := range sessions {
		if _, err := r.CreateBranch(t.Context(), someone, BranchSpec{Target: session(n), Base: "main"}); err != nil {
			t.Fatalf("CreateBranch(%s): %v", session(n), err)
		}
	}
	deleted := 0
	drop := func(r *Repo, n int, due bool) {
		t.Helper()
		for range n {
			if err := r.DeleteBranch(t.Context(), someone, session(deleted), nil); err != nil {
				t.Fatalf("DeleteBranch(%s): %v", session(deleted), err)
			}
			deleted++
		}
		if err := r.overdue(t.Context()); err != nil || r.pruneDue() != due {
			t.Errorf("after %d deletions: prune due: %v, %v; want %v", deleted, r.pruneDue(), err, due)
		}
	}
	if _, err := r.prune(t.Context(), false); err != nil {
		t.Fatalf("prune: %v", err)
	}
	drop(r, 3, false)
	drop(r, 1, true)
	if err := s.Close(t.Context()); err != nil {
		t.Fatalf("Close: %v", err)
	}
	_, r = open()
	drop(r, 3, false)
	drop(r, 1, true)
	if _, err := r.prune(t.Context(), false); err != nil { // sees 72 refs
		t.Fatalf("prune: %v", err)
	}
	drop(r, 2, false)
	drop(r, 1, true)
}

// Of two nodes one looks after a repo at a time, and a node that is gone holds the
// other up no longer than its lease.
func TestUpkeepLease(t *testing.T) {
	clock := newTestClock()
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Ledger, o.Shared = openClockedLedger(t, clock), true }), "repo")
	release, err := r.lease(t.Context(), false)
	if err != nil || release == nil {
		t.Fatalf("lease = %v, want it", err)
	}
	if again, err := r.lease(t.Context(), false); err != nil || again != nil {
		t.Errorf("second lease = given: %v, %v, want none", again != nil, err)
	}
	release()
	lost, err := r.lease(t.Context(), false)
	if err != nil || lost == nil {
		t.Fatalf("lease after release = %v, want it", err)
	}
	clock.forward(leaseTime + time.Second)
	taken, err := r.lease(t.Context(), true)
	if err != nil || taken == nil {
		t.Fatalf("lease after its time = %v, want it", err)
	}
	lost() // of one that has been taken over: must not end the new one
	if again, err := r.lease(t.Context(), false); err != nil || again != nil {
		t.Errorf("lease beside the one taken over = given: %v, %v, want none", again != nil, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.lease(ctx, true); err == nil {
		t.Errorf("waiting for a lease outlives its context")
	}
	taken()
}

// What was replaced is removed although the rest of upkeep fails: on a full disk it
// may fail for want of just that space.
func TestUpkeepRemovesAlsoWhenMergingFails(t *testing.T) {
	s := openTestStore(t, func(o *Options) {
		o.Limits, o.Logger = Limits{UpkeepEvery: -1, PackGrace: -1, MergePacks: 2}, quiet
	})
	if _, err := s.CreateRepo(t.Context(), someone, "acme", "repo", "main", nil); err != nil {
		t.Fatalf("CreateRepo: %v", err)
	}
	r, err := s.Repo(t.Context(), "acme", "repo") // it ends damaged, so nobody checks it
	if err != nil {
		t.Fatalf("Repo: %v", err)
	}
	settled := func() {
		for i := range 2 {
			mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": fmt.Sprintln("state", i)}})
			if err := r.Settle(t.Context()); err != nil {
				t.Fatalf("Settle: %v", err)
			}
		}
	}
	settled()
	if n, err := r.merge(t.Context(), 2); err != nil || n != 2 || len(r.condemned()) != 2 {
		t.Fatalf("merge = %d, %v, condemned %v; want 2 packs replaced", n, err, r.condemned())
	}
	settled()
	broken := filepath.Join(r.dir.ObjectsPath(), "pack", r.packNames()[0]+".pack")
	if err := os.Truncate(broken, 20); err != nil {
		t.Fatalf("truncate: %v", err)
	}
	report, err := r.gc(t.Context(), false)
	if err == nil || report.Removed != 2 || len(r.condemned()) != 0 {
		t.Errorf("gc = %+v, %v, condemned %v; want an error, and the replaced packs removed", report, err, r.condemned())
	}
}
