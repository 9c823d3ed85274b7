package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// A dead commit may outlive its parent, when the pack it lies in is mostly needed.
// Neither merging nor a client that still has it stumbles over that.
func TestDeadCommitWithoutItsParent(t *testing.T) {
	for _, version := range []string{"0", "2"} {
		t.Run("v"+version, func(t *testing.T) {
			s := openTestStore(t, func(o *Options) { o.Limits = Limits{UpkeepEvery: -1} })
			r := newTestRepo(t, s, "repo")
			mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main\n"}})
			server := newGitServer(t, r)
			w := cloneOf(t, server.url(someone, MainRemote))
			w.git("config", "protocol.version", version)
			w.git("checkout", "-q", "-b", "s")
			parent := w.commit("b", noise(3000))
			w.git("push", "-q", "origin", "s")
			if err := r.Settle(t.Context()); err != nil {
				t.Fatalf("Settle: %v", err)
			}
			dead := w.commit("b", noise(3100))
			w.git("push", "-q", "origin", "s")
			files := map[string]string{}
			for n := range 60 {
				files[fmt.Sprint("f", n)] = fmt.Sprint(n)
			}
			mustCommit(t, r, someone, testCommit{target: mainRef, files: files})
			err := errors.Join(r.Settle(t.Context()), r.DeleteBranch(t.Context(), someone, "refs/heads/s", nil))
			if err != nil {
				t.Fatalf("settle and delete: %v", err)
			}
			if report, err := r.prune(t.Context(), false); err != nil || report.Condemned != 1 {
				t.Fatalf("prune = %+v, %v; want one pack rewritten", report, err)
			}
			if _, err := r.removeCondemned(t.Context(), 0); err != nil {
				t.Fatalf("removeCondemned: %v", err)
			}
			for oid, want := range map[string]bool{parent: false, dead: true} {
				id, _ := refpolicy.ParseOID(oid)
				if ok, err := r.exists(t.Context(), id); err != nil || ok != want {
					t.Fatalf("exists(%s) = %v, %v; want %v", oid, ok, err, want)
				}
			}
			mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "later\n"}})
			w.git("fetch", "-q", "origin", "main")
			if err := r.Settle(t.Context()); err != nil {
				t.Fatalf("Settle: %v", err)
			}
			_, list, err := r.livePacks(t.Context())
			if err == nil {
				err = r.mergeGroup(t.Context(), mergeRules[0], list)
			}
			if err != nil || len(list) < 2 || len(r.packNames()) != 1 {
				t.Errorf("merge of %d packs = %v, left %v; want one", len(list), err, r.packNames())
			}
			mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "latest\n"}})
			w.git("fetch", "-q", "origin", "main")
			w.git("push", "-q", "origin", "s")
			w.fsck()
			if findings, err := s.Fsck(t.Context(), r); err != nil || len(findings) > 0 {
				t.Errorf("Fsck = %v, %v", findings, err)
			}
			server.noErrors()
		})
	}
}

// A request that began when what it reads was reachable goes on, in whatever tier
// that is when upkeep that nobody asked for prunes.
func TestUpkeepLeavesReadersTheirTime(t *testing.T) {
	for _, tier := range settledOrNot {
		t.Run(tier.name, func(t *testing.T) {
			r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Limits = Limits{UpkeepEvery: -1, PruneDeletions: 1} }), "repo")
			mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main\n"}})
			read := mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"a": "being read\n"}}).Commit
			tier.settle(t, r)
			if err := r.DeleteBranch(t.Context(), someone, sessionA, nil); err != nil {
				t.Fatalf("DeleteBranch: %v", err)
			}
			if report, err := r.gc(t.Context(), false); err != nil || report.Prune.Dead != 3 {
				t.Errorf("gc = %+v, %v; want three dead objects", report, err)
			}
			wantFile(t, r, read, "a", "being read\n")
			gcNow(t, r)
			wantReadable(t, r, read, false)
		})
	}
}

// lateLedger is a node's whose clock is behind that of the space: servers of a
// cluster have clocks of their own, and one may be set back.
type lateLedger struct {
	*hookedLedger
	behind time.Duration
}

func (l lateLedger) Now(ctx context.Context) (time.Time, error) {
	at, err := l.Ledger.Now(ctx)
	return at.Add(-l.behind), err
}

// A pin that has just expired by the clock of the node that prunes may hold by that
// of another, which lets a write lean on it.
func TestPruneKeepsPinsThatHoldByAnotherClock(t *testing.T) {
	clock := newTestClock()
	db, dir := openClockedLedger(t, clock), t.TempDir()
	a, b := &hookedLedger{Ledger: db}, &hookedLedger{Ledger: db}
	open := func(l ledger.Ledger) *Store {
		return openTestStore(t, func(o *Options) { o.Dir, o.Ledger, o.Shared, o.Limits = dir, l, true, Limits{UpkeepEvery: -1} })
	}
	r := newTestRepo(t, open(a), "repo")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main\n"}})
	old := mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"a": "pinned\n"}}).Commit
	if _, err := r.Pin(t.Context(), someone, PinSpec{OID: old, Holder: "holder", TTL: time.Hour}); err != nil {
		t.Fatalf("Pin: %v", err)
	}
	if err := r.DeleteBranch(t.Context(), someone, sessionA, nil); err != nil {
		t.Fatalf("DeleteBranch: %v", err)
	}
	other, err := open(lateLedger{b, 10 * time.Second}).Repo(t.Context(), "acme", "repo")
	if err != nil {
		t.Fatalf("Repo: %v", err)
	}
	clock.forward(time.Hour + time.Second)
	proved, pruned, made := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	b.hook(func(b ledger.Batch) bool {
		return slices.ContainsFunc(b.Sets, func(s ledger.Set) bool { return s.Key == refKey(sessionB) })
	}, func(ctx context.Context, batch ledger.Batch) (ledger.Result, error) {
		close(proved)
		<-pruned
		return db.Apply(ctx, batch)
	})
	a.hook(func(b ledger.Batch) bool { return len(b.Sets) == 1 && b.Sets[0].Key == genKey },
		func(ctx context.Context, batch ledger.Batch) (ledger.Result, error) {
			res, err := db.Apply(ctx, batch)
			go func() {
				_, err := other.CreateBranch(t.Context(), someone, BranchSpec{Target: sessionB, Base: old.String()})
				made <- err
			}()
			select {
			case <-proved:
			case err := <-made:
				t.Errorf("CreateBranch at what a pin holds = %v", err)
				made <- err
			}
			return res, err
		})
	gcNow(t, r)
	close(pruned)
	if err := <-made; err != nil {
		t.Errorf("CreateBranch: %v", err)
	}
	wantFile(t, r, old, "a", "pinned\n")
	if err := checkWhole(t.Context(), r); err != nil {
		t.Error(err)
	}
}

// A git process opens a pack again whose window it had to give up. The files of one
// that is replaced while it runs stay until it has ended, however long that takes.
func TestReplacedPacksStayForLongGitProcesses(t *testing.T) {
	clock := newTestClock()
	db := openClockedLedger(t, clock)
	s := openTestStore(t, func(o *Options) {
		o.Ledger, o.Limits = db, Limits{UpkeepEvery: -1, PackGrace: time.Nanosecond, MergePacks: 2}
	})
	r := newTestRepo(t, s, "repo")
	for n := range 2 {
		mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": fmt.Sprint(n)}})
		if err := r.Settle(t.Context()); err != nil {
			t.Fatalf("Settle: %v", err)
		}
	}
	_, _, release, err := r.gitObjects(t.Context())
	if err != nil {
		t.Fatalf("gitObjects: %v", err)
	}
	if report, err := r.gc(t.Context(), false); err != nil || report.Merged != 2 || report.Removed != 0 {
		t.Errorf("gc beside a git process = %+v, %v; want two packs merged, none removed", report, err)
	}
	release()
	if report, err := r.gc(t.Context(), false); err != nil || report.Removed != 2 {
		t.Errorf("gc after it = %+v, %v; want both removed", report, err)
	}
}

// A prune that fails is not tried at every turn, and holds up no merge.
func TestUpkeepGoesOnWhenPruningFails(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Limits = Limits{UpkeepEvery: -1, PruneDeletions: 1, MergePacks: 2} })
	r := newTestRepo(t, s, "repo")
	for n := range 2 {
		mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": fmt.Sprint(n)}})
		if err := r.Settle(t.Context()); err != nil {
			t.Fatalf("Settle: %v", err)
		}
	}
	lost := mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"a": "lost\n"}}).Commit
	raw, err := readKey(t.Context(), r.ledger.PeekKeys, r.space, hotKey(lost))
	if err == nil {
		err = r.coolDown(t.Context(), []ledger.Item{{Key: hotKey(lost), Value: raw}})
	}
	if err != nil {
		t.Fatalf("lose a commit: %v", err)
	}
	r.waste.Add(1)
	if _, err := r.gc(t.Context(), false); !errors.Is(err, ErrObjectNotFound) {
		t.Errorf("gc of a damaged repo = %v, want ErrObjectNotFound", err)
	}
	if report, err := r.gc(t.Context(), false); err != nil || report.Merged < 2 {
		t.Errorf("gc afterwards = %+v, %v; want packs merged", report, err)
	}
	if err := r.DeleteBranch(t.Context(), someone, sessionA, nil); err != nil {
		t.Errorf("DeleteBranch: %v", err)
	}
}
