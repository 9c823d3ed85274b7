package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/refpolicy"
)

// gcNow sweeps a repo as headgate gc --now does.
func gcNow(t testing.TB, r *Repo) GCReport {
	t.Helper()
	report, err := r.gc(t.Context(), true)
	if err != nil {
		t.Fatalf("gc: %v", err)
	}
	return report
}

// wantReadable demands that a commit's file a is there, or that nobody knows the commit.
func wantReadable(t testing.TB, r *Repo, commit refpolicy.OID, want bool) {
	t.Helper()
	_, err := r.Resolve(t.Context(), someone, commit.String(), false)
	if want && err != nil || !want && !errors.Is(err, ErrObjectNotFound) {
		t.Errorf("Resolve(%s) = %v, want readable: %v", commit, err, want)
	}
	if !want {
		return
	}
	if _, err := readPath(t.Context(), r, commit, "a"); err != nil {
		t.Errorf("a at %s: %v", commit, err)
	}
}

// settled are the states a repo's objects may be in when something happens to them.
var settledOrNot = []struct {
	name   string
	settle func(t testing.TB, r *Repo)
}{
	{"hot", func(testing.TB, *Repo) {}},
	{"packed", func(t testing.TB, r *Repo) {
		if err := r.Settle(t.Context()); err != nil {
			t.Fatalf("Settle: %v", err)
		}
	}},
}

// After 50 states every one reads. When the session is deleted and swept those that
// are pinned read on, with all they lead to, and the others are gone.
func TestA10_StatesAndPins(t *testing.T) {
	for _, tier := range settledOrNot {
		t.Run(tier.name, func(t *testing.T) {
			r := newTestRepo(t, openTestStore(t, nil), "repo")
			kept := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main\n"}})
			var states []refpolicy.OID
			for i := range 50 {
				c := mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"a": fmt.Sprintln("state", i), fmt.Sprint("d/", i): fmt.Sprint(i)}})
				states = append(states, c.Commit)
				if i == 30 {
					tier.settle(t, r)
				}
			}
			tier.settle(t, r)
			for _, s := range states {
				wantReadable(t, r, s, true)
			}
			if _, err := r.Pin(t.Context(), someone, PinSpec{OID: states[20], Holder: "a reader"}); err != nil {
				t.Fatalf("Pin: %v", err)
			}
			gcNow(t, r)
			for _, s := range states {
				wantReadable(t, r, s, true)
			}
			if err := r.DeleteBranch(t.Context(), someone, sessionA, nil); err != nil {
				t.Fatalf("DeleteBranch: %v", err)
			}
			report := gcNow(t, r)
			if report.Prune.Dead == 0 {
				t.Errorf("gc = %+v, want dead objects", report)
			}
			wantReadable(t, r, kept.Commit, true)
			for i, s := range states {
				wantReadable(t, r, s, i <= 20)
			}
			wantFile(t, r, states[20], "d/17", "17")
			// A branch can be made at what is pinned, and at nothing that is not there.
			if _, err := r.CreateBranch(t.Context(), someone, BranchSpec{Target: "refs/heads/back", Base: states[15].String()}); err != nil {
				t.Errorf("CreateBranch at an ancestor of a pinned commit: %v", err)
			}
			if _, err := r.CreateBranch(t.Context(), someone, BranchSpec{Target: "refs/heads/gone", Base: states[40].String()}); !errors.Is(err, ErrObjectNotFound) {
				t.Errorf("CreateBranch at a pruned commit = %v, want ErrObjectNotFound", err)
			}
			if again := gcNow(t, r); again.Prune.Dead != 0 || again.Prune.Condemned != 0 {
				t.Errorf("second gc = %+v, want nothing to do", again)
			}
		})
	}
}

// A pin ends by the ledger's clock or by being deleted; what it held goes then and
// not before.
func TestPI18_PinsEnd(t *testing.T) {
	clock := newTestClock()
	db := openClockedLedger(t, clock)
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Ledger = db }), "repo")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main\n"}})
	var at [3]refpolicy.OID
	var pins [3]Pin
	var err error
	for i, ttl := range []time.Duration{time.Hour, 0, 0} {
		branch := refpolicy.RefName(fmt.Sprintf("refs/heads/s%d", i))
		at[i] = mustCommit(t, r, someone, testCommit{target: branch, base: mainRef, files: map[string]string{"a": fmt.Sprint(i)}}).Commit
		if pins[i], err = r.Pin(t.Context(), someone, PinSpec{OID: at[i], Holder: "holder", TTL: ttl}); err != nil {
			t.Fatalf("Pin: %v", err)
		}
		if err := r.DeleteBranch(t.Context(), someone, branch, nil); err != nil {
			t.Fatalf("DeleteBranch: %v", err)
		}
	}
	clock.forward(time.Hour - time.Second)
	gcNow(t, r)
	for _, oid := range at {
		wantReadable(t, r, oid, true)
	}
	clock.forward(2 * time.Second)
	if err := r.Unpin(t.Context(), someone, pins[1].ID, nil); err != nil {
		t.Errorf("Unpin: %v", err)
	}
	for _, p := range pins[:2] {
		if err := r.Unpin(t.Context(), someone, p.ID, nil); !errors.Is(err, ErrPinNotFound) {
			t.Errorf("Unpin of an ended pin = %v, want ErrPinNotFound", err)
		}
	}
	if page, err := r.Pins(t.Context(), someone, "", 10); err != nil || len(page.Pins) != 1 || page.Pins[0].ID != pins[2].ID {
		t.Errorf("Pins = %+v, %v; want the third alone", page, err)
	}
	gcNow(t, r)
	for i, oid := range at {
		wantReadable(t, r, oid, i == 2)
	}
	if n := countKeys(t, r, pinKeys) + countKeys(t, r, pinnedKeys); n != 2 {
		t.Errorf("%d keys of pins are left, want record and index of one", n)
	}
	if _, err := r.Pin(t.Context(), someone, PinSpec{OID: at[0], Holder: "late"}); !errors.Is(err, ErrObjectNotFound) {
		t.Errorf("Pin of a pruned commit = %v, want ErrObjectNotFound", err)
	}
}

func countKeys(t testing.TB, r *Repo, prefix string) int {
	t.Helper()
	v, err := r.ledger.Read(t.Context(), r.space)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	defer v.Close()
	items, err := scanAll(t.Context(), v, prefix)
	if err != nil {
		t.Fatalf("scan %s: %v", prefix, err)
	}
	return len(items)
}

// leans are what a proof may lean on: how it becomes the only root of a commit, and
// how it goes away.
var leans = []struct {
	name       string
	only, lose func(ctx context.Context, r *Repo, pin Pin) error
}{
	{"pin", deleteA, unpin},
	{"branch", unpin, deleteA},
}

func deleteA(ctx context.Context, r *Repo, _ Pin) error {
	return r.DeleteBranch(ctx, someone, sessionA, nil)
}

func unpin(ctx context.Context, r *Repo, pin Pin) error { return r.Unpin(ctx, someone, pin.ID, nil) }

// A write of the new generation is proved by a branch or pin that goes before the
// prune reads refs and pins, and is applied only after the prune has ended. What it
// leant on is still there.
func TestPruneKeepsWhatAProofLeantOn(t *testing.T) {
	for _, lean := range leans {
		for _, tier := range settledOrNot {
			t.Run(lean.name+"-"+tier.name, func(t *testing.T) {
				h := &hookedLedger{Ledger: openTestLedger(t)}
				r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Ledger = h }), "repo")
				mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main\n"}})
				old := mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"a": "leant on\n"}}).Commit
				dead := mustCommit(t, r, someone, testCommit{target: "refs/heads/dead", base: mainRef, files: map[string]string{"a": "dead\n"}}).Commit
				pin, err := r.Pin(t.Context(), someone, PinSpec{OID: old, Holder: "holder"})
				if err != nil {
					t.Fatalf("Pin: %v", err)
				}
				if err := r.DeleteBranch(t.Context(), someone, "refs/heads/dead", nil); err != nil {
					t.Fatalf("DeleteBranch: %v", err)
				}
				if err := lean.only(t.Context(), r, pin); err != nil {
					t.Fatalf("leave one root alone: %v", err)
				}
				tier.settle(t, r)
				proved, pruned, made := make(chan struct{}), make(chan struct{}), make(chan error)
				raises := func(b ledger.Batch) bool { return len(b.Sets) == 1 && b.Sets[0].Key == genKey }
				creates := func(b ledger.Batch) bool {
					return slices.ContainsFunc(b.Sets, func(s ledger.Set) bool { return s.Key == refKey(sessionB) })
				}
				h.hook(raises, func(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
					res, err := h.Ledger.Apply(ctx, b)
					h.hook(creates, func(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
						close(proved)
						<-pruned
						return h.Ledger.Apply(ctx, b)
					})
					go func() {
						_, err := r.CreateBranch(t.Context(), someone, BranchSpec{Target: sessionB, Base: old.String()})
						made <- err
					}()
					<-proved
					if err := lean.lose(ctx, r, pin); err != nil {
						t.Errorf("take away what the proof leant on: %v", err)
					}
					return res, err
				})
				gcNow(t, r)
				close(pruned)
				if err := <-made; err != nil {
					t.Errorf("CreateBranch: %v", err)
				}
				wantReadable(t, r, dead, false)
				wantFile(t, r, old, "a", "leant on\n")
				if err := checkWhole(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A write whose proof is older than a prune is proved anew and does not bring back
// what the prune is about to take.
func TestPruneMakesOldProofsFail(t *testing.T) {
	for _, tier := range settledOrNot {
		t.Run(tier.name, func(t *testing.T) {
			h := &hookedLedger{Ledger: openTestLedger(t)}
			r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Ledger = h }), "repo")
			mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main\n"}})
			old := mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"a": "going\n"}}).Commit
			tier.settle(t, r)
			h.hook(func(b ledger.Batch) bool { return b.Log != nil }, func(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
				if err := r.DeleteBranch(ctx, someone, sessionA, nil); err != nil {
					t.Errorf("DeleteBranch: %v", err)
				}
				gcNow(t, r)
				return h.Ledger.Apply(ctx, b)
			})
			if _, err := r.CreateBranch(t.Context(), someone, BranchSpec{Target: sessionB, Base: old.String()}); !errors.Is(err, ErrObjectNotFound) {
				t.Errorf("CreateBranch at what was pruned meanwhile = %v, want ErrObjectNotFound", err)
			}
			wantReadable(t, r, old, false)
		})
	}
}

// A replaced pack stays for its readers until the grace is over.
func TestReplacedPacksStayForReaders(t *testing.T) {
	clock := newTestClock()
	db := openClockedLedger(t, clock)
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Ledger, o.Limits.PackGrace = db, time.Hour }), "repo")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main\n"}})
	dead := mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"a": strings.Repeat("dead\n", 100)}}).Commit
	if err := errors.Join(r.Settle(t.Context()), r.DeleteBranch(t.Context(), someone, sessionA, nil)); err != nil {
		t.Fatalf("settle and delete: %v", err)
	}
	if report, err := r.prune(t.Context(), true); err != nil || report.Condemned != 1 || report.Written != 1 || report.Bytes <= 0 {
		t.Fatalf("prune = %+v, %v; want one pack in place of another", report, err)
	}
	wantReadable(t, r, dead, true)
	for _, step := range []struct {
		wait    time.Duration
		removed int
	}{{time.Hour - time.Second, 0}, {2 * time.Second, 1}, {time.Hour, 0}} {
		clock.forward(step.wait)
		if n, err := r.removeCondemned(t.Context(), time.Hour); err != nil || n != step.removed {
			t.Errorf("removeCondemned after %v = %d, %v; want %d", step.wait, n, err, step.removed)
		}
	}
	wantReadable(t, r, dead, false)
	clock.forward(deadMemory)
	if _, err := r.removeCondemned(t.Context(), time.Hour); err != nil {
		t.Errorf("removeCondemned: %v", err)
	}
	if n := countKeys(t, r, packKeys); n != 1 {
		t.Errorf("%d packs are on record, want the new one alone", n)
	}
}

// testClock runs with the machine's, ahead of it by what a test has asked for.
type testClock struct{ ahead atomic.Int64 }

func newTestClock() *testClock { return &testClock{} }

func (c *testClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *testClock) forward(d time.Duration) { c.ahead.Add(int64(d)) }

// openClockedLedger opens a ledger in memory that tells a test's time.
func openClockedLedger(t *testing.T, c *testClock) ledger.Ledger {
	t.Helper()
	db, err := pebbledb.Open("ledger", pebbledb.Options{FS: vfs.NewMem(), Clock: c.now})
	if err != nil {
		t.Fatalf("pebbledb.Open: %v", err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
