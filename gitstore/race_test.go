package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// noise is content that does not get smaller.
func noise(n int) string {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)})
	_, _ = rng.Read(b)
	return string(b)
}

// Two writers commit the same large blob, one of them with a stale head: the blob of
// the winner is readable, whoever removes the loser's pack.
func TestG01_TwoWritersOneLargeBlob(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Limits.HotPackBytes = 10_000 })
	r := newTestRepo(t, s, "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	stale := head
	for round, size := range append([]int{8 << 20}, slicesOf(50_000, 20)...) {
		blob := noise(size + round)
		var wg sync.WaitGroup
		var won CommitResult
		for _, expected := range []refpolicy.OID{head, stale} {
			wg.Go(func() {
				res, err := testCommit{target: mainRef, expected: expected.String(), files: map[string]string{"big": blob}}.make(t.Context(), r, someone)
				var moved *RefMovedError
				switch {
				case err == nil && expected == head:
					won = res
				case err != nil && (expected == head && expected != stale || !errors.As(err, &moved)):
					t.Errorf("round %d: commit: %v", round, err)
				}
			})
		}
		wg.Wait()
		if won.Commit.IsZero() { // in the first round both have the head, and the other may win
			ref, err := r.Ref(t.Context(), someone, mainRef)
			if err != nil {
				t.Fatalf("Ref: %v", err)
			}
			won.Commit = ref.OID
		}
		got, err := readPath(t.Context(), r, won.Commit, "big")
		if err != nil || got != blob {
			t.Fatalf("round %d: the winner's blob has %d bytes, %v; want the %d written", round, len(got), err, len(blob))
		}
		stale, head = head, won.Commit
	}
	if files, err := r.dir.Files(); err != nil || len(files) != 21 {
		t.Errorf("%d pack files, %v; want the 21 of the winners", len(files), err)
	}
}

func slicesOf(v, n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// 32 writers on 32 branches while settling never stops: whoever reads by an id that
// was told never misses it, and at the end every branch has its whole history.
func TestWritersReadersAndSettling(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, start func(testing.TB) opener) {
		db := start(t)(t)
		t.Cleanup(func() { db.Close() })
		s := openTestStore(t, func(o *Options) {
			o.Ledger, o.Limits.SettleObjects, o.Limits.CacheBytes = db, 20, 4000 // so that reading goes to the tiers
		})
		r := newTestRepo(t, s, "busy")
		first := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}})
		const writers, commits = 32, 8
		told := make(chan refpolicy.OID, writers*commits+1)
		told <- first.Commit
		var write, read, settle sync.WaitGroup
		stop := make(chan struct{})
		settle.Go(func() {
			for {
				if err := r.Settle(t.Context()); err != nil {
					t.Errorf("Settle: %v", err)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		for w := range writers {
			write.Go(func() { writeBranch(t, r, w, commits, told) })
		}
		var reads atomic.Int64
		for range 4 {
			read.Go(func() {
				for oid := range told {
					if _, err := filesAt(t.Context(), r, oid); err != nil {
						t.Errorf("read of %s, which had been told: %v", oid, err)
					}
					if o, err := r.load(t.Context(), oid); err != nil || o.typ != CommitObject {
						t.Errorf("read of commit %s: %v", oid, err)
					}
					reads.Add(1)
				}
			})
		}
		write.Wait()
		close(told)
		read.Wait()
		close(stop)
		settle.Wait()
		if err := checkComplete(t.Context(), r); err != nil {
			t.Errorf("objects: %v", err)
		}
		if refs, err := replayLog(t.Context(), r); err != nil || len(refs) != writers+1 {
			t.Errorf("the log replays to %d refs, %v; want %d", len(refs), err, writers+1)
		}
		if n := len(r.packNames()); n < 1 {
			t.Errorf("%d packs, want the settling to have made some", n)
		}
		if reads.Load() != writers*commits+1 {
			t.Errorf("%d commits were read, want %d", reads.Load(), writers*commits+1)
		}
	})
}

func writeBranch(t *testing.T, r *Repo, w, commits int, told chan<- refpolicy.OID) {
	tc := testCommit{target: refpolicy.RefName(fmt.Sprintf("refs/heads/w/%d", w)), base: mainRef}
	for i := range commits {
		// Some of the content is shared, so that hot objects are written again while they settle.
		tc.files = map[string]string{"own": fmt.Sprint(w, i), "shared": fmt.Sprint(i % 3), "d/e": fmt.Sprint(i % 2)}
		res, err := tc.make(t.Context(), r, someone)
		if err != nil {
			t.Errorf("writer %d: commit %d: %v", w, i, err)
			return
		}
		told <- res.Commit
	}
}

// One name, created and deleted by many at once: there is one repo of the name or
// none, it is whole, and what is gone has left nothing.
func TestParallelCreateAndDeleteOfOneRepo(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, start func(testing.TB) opener) {
		db := start(t)(t)
		t.Cleanup(func() { db.Close() })
		s := openTestStore(t, func(o *Options) { o.Ledger, o.Logger = db, quiet })
		var wg sync.WaitGroup
		var created, deleted atomic.Int64
		for range 8 {
			wg.Go(func() {
				for range 12 {
					switch _, err := s.CreateRepo(t.Context(), someone, "acme", "one", "main", nil); {
					case err == nil:
						created.Add(1)
					case !errors.Is(err, ErrRepoExists):
						t.Errorf("CreateRepo: %v, want ErrRepoExists or none", err)
					}
					r, err := s.Repo(t.Context(), "acme", "one")
					if err == nil {
						_, err = testCommit{target: mainRef, files: map[string]string{"a": fmt.Sprint(created.Load())}}.make(t.Context(), r, someone)
					}
					if err != nil && !errors.Is(err, ErrRepoNotFound) && !errors.Is(err, ErrNoChanges) && !isMovedErr(err) {
						t.Errorf("use of a repo that comes and goes: %v", err)
					}
					switch _, err := s.DeleteRepo(t.Context(), someone, "acme", "one", nil); {
					case err == nil:
						deleted.Add(1)
					case !errors.Is(err, ErrRepoNotFound):
						t.Errorf("DeleteRepo: %v, want ErrRepoNotFound or none", err)
					}
				}
			})
		}
		wg.Wait()
		page, err := s.ListRepos(t.Context(), "acme", "one", "", 10)
		if err != nil {
			t.Fatalf("ListRepos: %v", err)
		}
		if left := created.Load() - deleted.Load(); int64(len(page.Repos)) != left || left > 1 {
			t.Errorf("%d created, %d deleted, %d listed", created.Load(), deleted.Load(), len(page.Repos))
		}
		if n := len(s.repos); n > len(page.Repos) {
			t.Errorf("%d repos are kept open, want at most %d", n, len(page.Repos))
		}
	})
}

func isMovedErr(err error) bool {
	var moved *RefMovedError
	return errors.As(err, &moved)
}

// A repo is deleted under writers, readers and settling: each gets its answer or is
// told that the repo is not there, and afterwards nothing of it can be read.
func TestDeleteRepoUnderWork(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Limits.SettleObjects, o.Limits.HotPackBytes, o.Logger = 10, 2000, quiet })
	for round := range 4 {
		name := fmt.Sprint("doomed-", round)
		if _, err := s.CreateRepo(t.Context(), someone, "acme", name, "main", nil); err != nil {
			t.Fatalf("CreateRepo: %v", err)
		}
		r, err := s.Repo(t.Context(), "acme", name)
		if err != nil {
			t.Fatalf("Repo: %v", err)
		}
		first := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n", "big": noise(3000)}})
		var wg sync.WaitGroup
		var busy atomic.Int64
		for w := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					size := 10
					if i%3 == 0 {
						size = 3000
					}
					busy.Add(1)
					_, err := testCommit{target: refpolicy.RefName(fmt.Sprint("refs/heads/", w)), base: mainRef, files: map[string]string{"f": noise(size + i + w*100_000)}}.make(t.Context(), r, someone)
					if err == nil {
						continue
					}
					if !errors.Is(err, ErrRepoNotFound) {
						t.Errorf("commit to a repo being deleted: %v, want ErrRepoNotFound", err)
					}
					return
				}
			})
		}
		wg.Go(func() {
			for {
				if _, err := filesAt(t.Context(), r, first.Commit); err != nil {
					return // what it was told is looked at below
				}
				if _, err := s.Repo(t.Context(), "acme", name); err != nil {
					if !errors.Is(err, ErrRepoNotFound) {
						t.Errorf("Repo while it is deleted: %v, want ErrRepoNotFound", err)
					}
					return
				}
			}
		})
		for busy.Load() < 20 {
			if _, err := r.Refs(t.Context(), someone, "refs/", "", 0); err != nil {
				t.Fatalf("Refs: %v", err)
			}
		}
		if _, err := s.DeleteRepo(t.Context(), someone, "acme", name, nil); err != nil {
			t.Fatalf("DeleteRepo: %v", err)
		}
		wg.Wait()
		if _, err := s.Repo(t.Context(), "acme", name); !errors.Is(err, ErrRepoNotFound) {
			t.Errorf("Repo after DeleteRepo: %v, want ErrRepoNotFound", err)
		}
		if refs, err := r.Refs(t.Context(), someone, "refs/", "", 0); err == nil && len(refs) > 0 {
			t.Errorf("refs of a deleted repo: %v, want none", refs)
		}
	}
}

// Close comes while commits run: each commit is acknowledged and there when the
// store is opened again, or is refused as closed.
func TestCloseUnderWork(t *testing.T) {
	mem := vfs.NewMem()
	dir := t.TempDir()
	for round := range 4 {
		db := pebbleIn(mem)(t)
		s, err := Open(t.Context(), Options{Dir: dir, Ledger: db, Limits: Limits{SettleObjects: 15, HotPackBytes: 2000}})
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		if round == 0 {
			if _, err := s.CreateRepo(t.Context(), someone, "acme", "site", "main", nil); err != nil {
				t.Fatalf("CreateRepo: %v", err)
			}
		}
		r, err := s.Repo(t.Context(), "acme", "site")
		if err != nil {
			t.Fatalf("Repo: %v", err)
		}
		if round == 0 {
			mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}})
		}
		if err := checkComplete(t.Context(), r); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		acknowledged := make([]refpolicy.OID, 8)
		var wg sync.WaitGroup
		var n atomic.Int64
		for w := range acknowledged {
			wg.Go(func() {
				for i := 0; ; i++ {
					res, err := testCommit{target: refpolicy.RefName(fmt.Sprint("refs/heads/", w)), base: mainRef, files: map[string]string{"f": noise(1900 + i%300 + 7*w + 1000*round)}}.make(t.Context(), r, someone)
					if errors.Is(err, ErrNoChanges) {
						continue
					}
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Errorf("commit while the store closes: %v, want ErrClosed", err)
						}
						return
					}
					acknowledged[w] = res.Commit
					n.Add(1)
				}
			})
		}
		for n.Load() < 30 {
			if _, err := r.Ref(t.Context(), someone, mainRef); err != nil {
				t.Fatalf("Ref: %v", err)
			}
		}
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
		wg.Wait()
		v, err := db.Read(t.Context(), r.space)
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		for w, oid := range acknowledged {
			ref, err := refOf(t.Context(), v, refpolicy.RefName(fmt.Sprint("refs/heads/", w)))
			if err != nil || ref.OID != oid {
				t.Errorf("branch %d is at %s, %v; acknowledged was %s", w, ref.OID, err, oid)
			}
		}
		if hot, err := scanAll(t.Context(), v, hotKeys); err != nil || len(hot) > 0 {
			t.Errorf("%d objects are hot after Close, %v; want none", len(hot), err)
		}
		v.Close()
		if err := db.Close(); err != nil {
			t.Errorf("close ledger: %v", err)
		}
	}
}

// Close does not wait longer than its context for work that does not end.
func TestCloseEndsWorkThatHangs(t *testing.T) {
	h := &hookedLedger{Ledger: openTestLedger(t)}
	s := openTestStore(t, func(o *Options) { o.Ledger = h })
	if _, err := s.CreateRepo(t.Context(), someone, "acme", "site", "main", nil); err != nil {
		t.Fatalf("CreateRepo: %v", err)
	}
	r, err := s.Repo(t.Context(), "acme", "site")
	if err != nil {
		t.Fatalf("Repo: %v", err)
	}
	hangs := make(chan struct{})
	h.hook(func(b ledger.Batch) bool { return b.Log != nil }, func(ctx context.Context, _ ledger.Batch) (ledger.Result, error) {
		close(hangs)
		<-ctx.Done()
		return ledger.Result{}, ctx.Err()
	})
	done := make(chan error)
	go func() {
		_, err := testCommit{target: mainRef, files: map[string]string{"a": "1\n"}}.make(context.Background(), r, someone)
		done <- err
	}()
	<-hangs
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("the commit that hung: %v, want ErrClosed", err)
	}
}

// fakeGuard refuses refs and adds conditions.
type fakeGuard struct {
	refuse map[refpolicy.RefName]error
	checks []ledger.Check
	sets   []ledger.Set
	stale  int // how often what it answers is out of date
	asked  atomic.Int64
}

func (g *fakeGuard) Guard(_ context.Context, q GuardRequest) (GuardAnswer, error) {
	g.asked.Add(1)
	if q.Repo.Name == "" || q.Actor.Subject == "" || q.Now.IsZero() {
		return GuardAnswer{}, fmt.Errorf("guard was not told who, where and when: %+v", q)
	}
	for _, c := range q.Changes {
		if err := g.refuse[c.Ref]; err != nil {
			return GuardAnswer{}, err
		}
	}
	if g.stale > 0 {
		g.stale--
		return GuardAnswer{Rider: ledger.Rider{Checks: []ledger.Check{ledger.Equal("x/fence", []byte("old"))}}}, nil
	}
	return GuardAnswer{Rider: ledger.Rider{Checks: g.checks, Sets: g.sets}}, nil
}

var errFenced = errors.New("fenced off")

// Whatever road a change comes by, the guard's conditions ride in its batch, and
// what the guard refuses does not happen.
func TestGuardRidesInTheBatch(t *testing.T) {
	g := &fakeGuard{refuse: map[refpolicy.RefName]error{}}
	s := openTestStore(t, func(o *Options) { o.Guard = g })
	r := newTestRepo(t, s, "site")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}})
	n := 0
	roads := []struct {
		name string
		run  func() error
	}{
		{"commit", func() error {
			n++
			_, err := testCommit{target: mainRef, files: map[string]string{"a": fmt.Sprint(n)}}.make(t.Context(), r, someone)
			return err
		}},
		{"create branch", func() error {
			_, err := r.CreateBranch(t.Context(), someone, BranchSpec{Target: "refs/heads/b", Base: "main"})
			return err
		}},
		{"move branch", func() error {
			_, err := r.CreateBranch(t.Context(), someone, BranchSpec{Target: "refs/heads/b", Base: "main~1", Force: true})
			return err
		}},
		{"delete branch", func() error { return r.DeleteBranch(t.Context(), someone, "refs/heads/b", nil) }},
	}
	for _, road := range roads {
		before, err := r.Refs(t.Context(), someone, "refs/", "", 0)
		if err != nil {
			t.Fatalf("Refs: %v", err)
		}
		g.refuse = map[refpolicy.RefName]error{mainRef: errFenced, "refs/heads/b": errFenced}
		if err := road.run(); !errors.Is(err, errFenced) {
			t.Errorf("%s that the guard refuses: %v, want its error", road.name, err)
		}
		g.refuse, g.checks = nil, []ledger.Check{ledger.Equal("x/lease", []byte("mine"))}
		if err := road.run(); !errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("%s whose guard's check never holds: %v, want ErrUnavailable", road.name, err)
		}
		after, err := r.Refs(t.Context(), someone, "refs/", "", 0)
		if err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("%s was refused, refs went from %v to %v (%v)", road.name, before, after, err)
		}
		g.stale, g.checks, g.sets = 2, nil, []ledger.Set{{Key: "x/seen", Value: []byte(road.name)}}
		asked := g.asked.Load()
		if err := road.run(); err != nil {
			t.Errorf("%s whose guard's check holds the third time: %v", road.name, err)
		}
		if n := g.asked.Load() - asked; n < 3 {
			t.Errorf("%s asked the guard %d times, want it asked anew whenever its check failed", road.name, n)
		}
		raw, err := readKey(t.Context(), r.ledger.ReadKeys, r.space, "x/seen")
		if err != nil || !bytes.Equal(raw, []byte(road.name)) {
			t.Errorf("%s left %q of the guard's sets, %v", road.name, raw, err)
		}
		g.sets = nil
	}
}

// Of changes that are not atomic, the guard's refusal takes out those it means.
func TestGuardRefusesSomeOfMany(t *testing.T) {
	g := &fakeGuard{}
	s := openTestStore(t, func(o *Options) { o.Guard = g })
	r := newTestRepo(t, s, "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	g.refuse = map[refpolicy.RefName]error{"refs/heads/2": errFenced}
	changes := []Change{{Ref: "refs/heads/1", New: head}, {Ref: "refs/heads/2", New: head}, {Ref: "refs/heads/3", New: head}}
	for _, tc := range []struct {
		atomic bool
		want   [3]bool
	}{{true, [3]bool{}}, {false, [3]bool{true, false, true}}} {
		res, err := r.Update(t.Context(), Update{Caller: someone, Atomic: tc.atomic, Changes: changes})
		if err != nil {
			t.Fatalf("Update: %v", err)
		}
		if err := res.Refusal(); !errors.Is(err, errFenced) {
			t.Errorf("atomic %v: the refusal is %v, want the guard's", tc.atomic, err)
		}
		for i, ref := range res.Refs {
			why := ErrAtomic
			if g.refuse[ref.Ref] != nil {
				why = errFenced
			}
			if (ref.Err == nil) != tc.want[i] || ref.Err != nil && !errors.Is(ref.Err, why) {
				t.Errorf("atomic %v: %s is told %v, want it to pass: %v", tc.atomic, ref.Ref, ref.Err, tc.want[i])
			}
			if _, err := r.Ref(t.Context(), someone, ref.Ref); (err == nil) != tc.want[i] {
				t.Errorf("atomic %v: %s exists: %v, want %v", tc.atomic, ref.Ref, err == nil, tc.want[i])
			}
		}
	}
}
