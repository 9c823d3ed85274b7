package gitstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/gitstore/packs/packstest"
	"github.com/headgate/headgate/refpolicy"
)

// quiet takes what a test makes the store complain about.
var quiet = slog.New(slog.DiscardHandler)

// cutStore is a store on file systems that forget what was not synced. At each
// sync of either of them a cut is taken: what a power cut at that moment leaves.
type cutStore struct {
	t     *testing.T
	store *Store
	packs *packstest.CrashFS
	mem   *vfs.MemFS

	mu   sync.Mutex // guards all below
	told told
	cuts []cut
	off  bool
}

// told is what somebody has been told: refs that were acknowledged or seen, repos
// that exist and that do not. Under "after" stands what has been asked for and not
// been answered: it may be so or not.
type told struct {
	repos map[string]map[refpolicy.RefName]refpolicy.OID
	// after are other states that are as good as the one in repos
	after []map[string]map[refpolicy.RefName]refpolicy.OID
}

// cut is one moment at which the power goes.
type cut struct {
	what  string
	point int        // of the pack files
	mem   *vfs.MemFS // what the ledger's disk has kept
	told  told
}

// syncHook calls a function after each sync, rename or removal on a ledger's disk.
type syncHook struct {
	vfs.FS
	after func(what string)
}

func (h syncHook) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return h.hooked(h.FS.Create(name, c))
}

func (h syncHook) OpenDir(name string) (vfs.File, error) { return h.hooked(h.FS.OpenDir(name)) }

func (h syncHook) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return h.hooked(h.FS.ReuseForWrite(old, name, c))
}

func (h syncHook) Rename(old, name string) error {
	err := h.FS.Rename(old, name)
	h.after("ledger rename " + name)
	return err
}

func (h syncHook) hooked(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return hookedFile{f, h}, nil
}

type hookedFile struct {
	vfs.File
	h syncHook
}

func (f hookedFile) Sync() error {
	f.h.after("ledger before sync")
	err := f.File.Sync()
	f.h.after("ledger sync")
	return err
}

func (f hookedFile) SyncData() error {
	f.h.after("ledger before sync")
	err := f.File.SyncData()
	f.h.after("ledger sync")
	return err
}

// newCutStore opens a store whose data folder is durable and empty.
func newCutStore(t *testing.T) *cutStore {
	root := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatalf("make data folder: %v", err)
	}
	fs, err := packstest.New(root, t.TempDir())
	if err != nil {
		t.Fatalf("packstest.New: %v", err)
	}
	c := &cutStore{t: t, packs: fs, mem: vfs.NewCrashableMem(), off: true}
	c.told.repos = map[string]map[refpolicy.RefName]refpolicy.OID{}
	fs.After = func(point int, op packstest.Op) { c.take("packs "+op.String(), point) }
	db, err := pebbledb.Open("ledger", pebbledb.Options{Logger: quiet, FS: syncHook{c.mem, func(what string) {
		c.take(what, len(fs.Points()))
	}}})
	if err != nil {
		t.Fatalf("pebbledb.Open: %v", err)
	}
	t.Cleanup(func() { db.Close() })
	c.store = openTestStore(t, func(o *Options) {
		o.Dir, o.Ledger, o.FS, o.Logger, o.Limits.HotPackBytes = root, db, fs, quiet, 4000
		o.Limits.HotPackObjects = 60
	})
	return c
}

// take takes a cut. While another goroutine is at work on the other disk the two
// parts of a cut are not of one instant: the ledger's is taken first, so the packs
// are never older than it.
func (c *cutStore) take(what string, point int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return
	}
	unsynced := []int{0, 0, 100}[len(c.cuts)%3]
	mem := c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(1, uint64(len(c.cuts))))})
	c.cuts = append(c.cuts, cut{what, point, mem, c.told.clone()})
}

func (o told) clone() told {
	n := told{repos: map[string]map[refpolicy.RefName]refpolicy.OID{}}
	for name, refs := range o.repos {
		n.repos[name] = maps.Clone(refs)
	}
	n.after = append(n.after, o.after...)
	return n
}

// state is a copy of what was told of the repos, to be changed.
func (c *cutStore) state() map[string]map[refpolicy.RefName]refpolicy.OID {
	return c.told.clone().repos
}

// step runs one operation with the cuts on. change is what its success does.
func (c *cutStore) step(op func() error, change func(repos map[string]map[refpolicy.RefName]refpolicy.OID)) {
	c.t.Helper()
	c.mu.Lock()
	if change != nil { // from now on it may be seen
		next := c.state()
		change(next)
		c.told.after = append(c.told.after, next)
	}
	c.off = false
	c.mu.Unlock()
	err := op()
	c.mu.Lock()
	if n := len(c.told.after); n > 0 {
		c.told.repos, c.told.after = c.told.after[n-1], nil
	}
	c.mu.Unlock()
	c.take("acknowledged", len(c.packs.Points()))
	c.mu.Lock()
	c.off = true
	c.mu.Unlock()
	if err != nil {
		c.t.Fatalf("operation under cuts: %v", err)
	}
}

// syncPoints is the table of operations whose every sync point is cut. Each is run
// on a repo "site" with a main branch; what is written later gets its own rows.
var syncPoints = []struct {
	name string
	run  func(t *testing.T, c *cutStore, r *Repo)
}{
	{"hot commits", func(t *testing.T, c *cutStore, r *Repo) {
		for i := range 3 {
			c.commit(r, testCommit{target: mainRef, files: map[string]string{"a": fmt.Sprint("small ", i)}})
		}
	}},
	{"commit with large blobs", func(t *testing.T, c *cutStore, r *Repo) {
		c.commit(r, testCommit{target: mainRef, files: map[string]string{"big": strings.Repeat("0123456789", 1000), "small": "x\n"}})
	}},
	{"commit with many trees", func(t *testing.T, c *cutStore, r *Repo) {
		c.commit(r, testCommit{target: mainRef, files: manyFolders(70, "x")})
	}},
	{"large push registers a pack", func(t *testing.T, c *cutStore, r *Repo) {
		head, err := r.Ref(t.Context(), someone, mainRef)
		if err != nil {
			t.Fatalf("Ref: %v", err)
		}
		blob := newBlob(strings.Repeat("pushed ", 100))
		tree := newTree(treeEntry{ModeFile, "pushed", blob.OID})
		commit := newCommitOn(tree.OID, head.OID)
		c.step(func() error {
			info, err := adoptPack(t, r, blob, tree, commit)
			if err != nil {
				return err
			}
			return updateOne(t, r, Update{
				Caller: someone, Changes: []Change{{Ref: mainRef, Old: head.OID, New: commit.OID}},
				Pack: &IncomingPack{Info: info, Kind: "pushed"},
			})
		}, sets("site", mainRef, commit.OID))
	}},
	{"save of a snapshot", func(t *testing.T, c *cutStore, r *Repo) {
		head, err := r.Ref(t.Context(), someone, mainRef)
		if err != nil {
			t.Fatalf("Ref: %v", err)
		}
		p := newSnapshotPack(t, r)
		commit, _ := addSnapshot(t, p, head.OID, nil, randomChunk(1, 5000), randomChunk(2, 100))
		c.step(func() error {
			if err := p.Finish(t.Context()); err != nil {
				return err
			}
			return updateOne(t, r, Update{
				Caller: someone, Changes: []Change{{Ref: testSnapshotRef, New: commit}}, Pack: p.Incoming(), Vouched: true,
			})
		}, sets("site", testSnapshotRef, commit))
		p.Abort()
	}},
	{"settle", func(t *testing.T, c *cutStore, r *Repo) {
		c.step(func() error { return r.Settle(t.Context()) }, nil)
		c.commit(r, testCommit{target: mainRef, files: map[string]string{"after": "settling\n"}})
		c.step(func() error { return r.Settle(t.Context()) }, nil)
	}},
	{"branches", func(t *testing.T, c *cutStore, r *Repo) {
		head, err := r.Ref(t.Context(), someone, mainRef)
		if err != nil {
			t.Fatalf("Ref: %v", err)
		}
		c.step(func() error {
			_, err := r.CreateBranch(t.Context(), someone, BranchSpec{Target: sessionA, Base: "main"})
			return err
		}, sets("site", sessionA, head.OID))
		c.commit(r, testCommit{target: sessionA, files: map[string]string{"a": "of the session\n"}})
		c.step(func() error { return r.DeleteBranch(t.Context(), someone, sessionA, nil) }, sets("site", sessionA, refpolicy.OID{}))
	}},
	{"merge of packs", func(t *testing.T, c *cutStore, r *Repo) {
		for i := range 3 {
			mustCommitUncut(c, r, testCommit{target: mainRef, files: map[string]string{"a": fmt.Sprint("state ", i)}})
			if err := r.Settle(t.Context()); err != nil {
				t.Fatalf("Settle: %v", err)
			}
		}
		c.step(func() error { return mergeAll(t.Context(), r, 3) }, nil)
		c.step(func() error { _, err := r.removeCondemned(t.Context(), 0); return err }, nil)
		c.commit(r, testCommit{target: mainRef, files: map[string]string{"after": "merging\n"}})
	}},
	{"prune", func(t *testing.T, c *cutStore, r *Repo) {
		mustCommitUncut(c, r, testCommit{target: sessionA, base: mainRef, files: map[string]string{"a": "of the session\n"}})
		if _, err := r.Pin(t.Context(), someone, PinSpec{OID: c.told.repos["site"][mainRef], Holder: "holder"}); err != nil {
			t.Fatalf("Pin: %v", err)
		}
		if err := r.Settle(t.Context()); err != nil {
			t.Fatalf("Settle: %v", err)
		}
		mustCommitUncut(c, r, testCommit{target: sessionA, files: map[string]string{"b": "hot\n"}})
		c.step(func() error { return r.DeleteBranch(t.Context(), someone, sessionA, nil) }, sets("site", sessionA, refpolicy.OID{}))
		c.step(func() error {
			report, err := r.prune(t.Context(), true)
			if err == nil && (report.Condemned != 1 || report.Written != 1) {
				err = fmt.Errorf("prune did %+v, want one pack in place of another", report)
			}
			return err
		}, nil)
		c.step(func() error { _, err := r.removeCondemned(t.Context(), 0); return err }, nil)
		c.commit(r, testCommit{target: mainRef, files: map[string]string{"after": "pruning\n"}})
	}},
	{"index", func(t *testing.T, c *cutStore, r *Repo) {
		index := func() error {
			written, err := r.writeIndex(t.Context(), true)
			if err == nil && !written {
				err = errors.New("no index was written")
			}
			return err
		}
		if err := r.Settle(t.Context()); err != nil {
			t.Fatalf("Settle: %v", err)
		}
		c.step(index, nil)
		mustCommitUncut(c, r, testCommit{target: mainRef, files: map[string]string{"a": "not indexed\n"}})
		if err := r.Settle(t.Context()); err != nil {
			t.Fatalf("Settle: %v", err)
		}
		c.step(index, nil)
		c.step(func() error { return mergeAll(t.Context(), r, 2) }, nil)
		c.step(func() error { _, err := r.removeCondemned(t.Context(), 0); return err }, nil)
		c.step(func() error { return r.removeIndexes(t.Context(), 0) }, nil)
		c.step(index, nil)
		c.step(func() error { return r.removeIndexes(t.Context(), 0) }, nil)
		c.commit(r, testCommit{target: mainRef, files: map[string]string{"after": "indexing\n"}})
	}},
	{"repos", func(t *testing.T, c *cutStore, r *Repo) {
		create := func(name string) {
			c.step(func() error {
				_, err := c.store.CreateRepo(t.Context(), someone, "acme", name, "main", nil)
				return err
			}, func(repos map[string]map[refpolicy.RefName]refpolicy.OID) {
				repos[name] = map[refpolicy.RefName]refpolicy.OID{}
			})
		}
		create("second")
		second, err := c.store.Repo(t.Context(), "acme", "second")
		if err != nil {
			t.Fatalf("Repo: %v", err)
		}
		c.commitTo("second", second, testCommit{target: mainRef, files: map[string]string{"big": strings.Repeat("0123456789", 1000)}})
		c.step(func() error {
			_, err := c.store.DeleteRepo(t.Context(), someone, "acme", "second", nil)
			return err
		}, func(repos map[string]map[refpolicy.RefName]refpolicy.OID) { delete(repos, "second") })
		create("second")
	}},
}

// mustCommitUncut makes a commit between cuts.
func mustCommitUncut(c *cutStore, r *Repo, tc testCommit) {
	c.t.Helper()
	res := mustCommit(c.t, r, someone, tc)
	sets("site", tc.target, res.Commit)(c.told.repos)
}

// mergeAll merges the packs of a repo, of which want must come together.
func mergeAll(ctx context.Context, r *Repo, want int) error {
	if n, err := r.merge(ctx, 2); err != nil || n != want {
		return fmt.Errorf("merge united %d packs, want %d: %w", n, want, err)
	}
	return nil
}

// adoptPack takes over a pack as git would have written it for a push.
func adoptPack(t *testing.T, r *Repo, objects ...NewObject) (info packs.Info, err error) {
	in, err := r.dir.Incoming()
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, r.dir.RemoveIncoming(in)) }()
	plain := gitWith(t, objects)
	var ids strings.Builder
	for _, o := range objects {
		ids.WriteString(o.OID.String() + "\n")
	}
	sum := strings.TrimSpace(git(t, plain, []byte(ids.String()), "pack-objects", "-q", filepath.Join(in, "pack", "pack")))
	base := filepath.Join(in, "pack", "pack-"+sum)
	return r.dir.Adopt(t.Context(), base+".pack", base+".idx")
}

// sets is the change of one ref; the zero oid takes it away.
func sets(repo string, ref refpolicy.RefName, oid refpolicy.OID) func(map[string]map[refpolicy.RefName]refpolicy.OID) {
	return func(repos map[string]map[refpolicy.RefName]refpolicy.OID) {
		if repos[repo][ref] = oid; oid.IsZero() {
			delete(repos[repo], ref)
		}
	}
}

func (c *cutStore) commit(r *Repo, tc testCommit) { c.t.Helper(); c.commitTo("site", r, tc) }

// commitTo makes a commit under cuts. Its id is not known before: what is found
// under the ref after a cut may be it, if it is whole.
func (c *cutStore) commitTo(repo string, r *Repo, tc testCommit) {
	c.t.Helper()
	var res CommitResult
	c.step(func() (err error) {
		res, err = tc.make(c.t.Context(), r, someone)
		c.mu.Lock()
		c.told.after = []map[string]map[refpolicy.RefName]refpolicy.OID{c.state()}
		sets(repo, tc.target, res.Commit)(c.told.after[0])
		c.mu.Unlock()
		return err
	}, sets(repo, tc.target, anyOID))
}

// anyOID stands for a commit that was being made when the power went.
var anyOID = refpolicy.OID{0xff, 0xff, 0xff}

// The power goes at every sync of an operation, on either disk. What was
// acknowledged is there after it, what was published still is, every ref leads to
// whole history, and what was not done is not half there.
func TestG03_PowerCut(t *testing.T) {
	for _, sp := range syncPoints {
		t.Run(strings.ReplaceAll(sp.name, " ", "-"), func(t *testing.T) {
			c := newCutStore(t)
			r := newTestRepo(t, c.store, "site")
			first := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n", "d/b": "2\n"}})
			c.told.repos["site"] = map[refpolicy.RefName]refpolicy.OID{mainRef: first.Commit}
			sp.run(t, c, r)
			if len(c.cuts) < 3 {
				t.Fatalf("%d cuts, want one for each sync", len(c.cuts))
			}
			t.Logf("%d cuts", len(c.cuts))
			for n, cut := range c.cuts {
				if testing.Short() && n%4 != 0 {
					continue
				}
				losses := []packstest.Loss{packstest.Strict}
				if strings.HasPrefix(cut.what, "packs") { // else their files have not changed since the last cut
					losses = append(losses, packstest.Eager)
				}
				for _, loss := range losses {
					if err := c.reopen(cut, loss); err != nil {
						t.Errorf("cut %d, %s, after %q: %v", n, loss, cut.what, err)
					}
				}
			}
		})
	}
}

// reopen opens a store on what a cut has left and looks at it.
func (c *cutStore) reopen(at cut, loss packstest.Loss) error {
	root := c.t.TempDir()
	if err := c.packs.Materialise(root, at.point, loss); err != nil {
		return fmt.Errorf("materialise: %w", err)
	}
	db, err := pebbledb.Open("ledger", pebbledb.Options{FS: at.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), Logger: quiet})
	if err != nil {
		return fmt.Errorf("open ledger: %w", err)
	}
	defer db.Close()
	s, err := Open(context.Background(), Options{Dir: root, Ledger: db, Logger: quiet, Git: c.store.git, FS: unsynced{}})
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	defer s.Close(context.Background())
	if err := holds(s, at.told); err != nil {
		return err
	}
	return works(s)
}

// holds compares the repos of a store with what was told.
func holds(s *Store, told told) error {
	ctx := context.Background()
	page, err := s.ListRepos(ctx, "acme", "", "", 100)
	if err != nil {
		return err
	}
	got := map[string]map[refpolicy.RefName]refpolicy.OID{}
	for _, info := range page.Repos {
		r, err := s.Repo(ctx, "acme", info.Name)
		if err != nil {
			return fmt.Errorf("listed repo %s: %w", info.Name, err)
		}
		if err := checkComplete(ctx, r); err != nil {
			return fmt.Errorf("repo %s: %w", info.Name, err)
		}
		replayed, err := replayLog(ctx, r)
		if err != nil {
			return fmt.Errorf("log of %s: %w", info.Name, err)
		}
		refs, err := r.Refs(ctx, someone, "refs/", "", 0)
		if err != nil {
			return err
		}
		got[info.Name] = map[refpolicy.RefName]refpolicy.OID{}
		for _, ref := range refs {
			got[info.Name][ref.Name] = ref.OID
		}
		if !maps.Equal(replayed, got[info.Name]) {
			return fmt.Errorf("log of %s replays to %v, its refs are %v", info.Name, replayed, got[info.Name])
		}
	}
	for _, want := range append(told.after, told.repos) {
		if sameRepos(got, want, told.repos) {
			return nil
		}
	}
	return fmt.Errorf("repos are %v, told was %v, under way %v", got, told.repos, told.after)
}

// sameRepos compares what is with what should be; anyOID is any value but the old one.
func sameRepos(got, want, old map[string]map[refpolicy.RefName]refpolicy.OID) bool {
	return maps.EqualFunc(got, want, func(g, w map[refpolicy.RefName]refpolicy.OID) bool { return len(g) == len(w) }) &&
		func() bool {
			for repo, refs := range want {
				for name, oid := range refs {
					is, there := got[repo][name]
					if !there || is != oid && (oid != anyOID || is == old[repo][name]) {
						return false
					}
				}
			}
			return true
		}()
}

// works makes sure that all repos can go on after a cut.
func works(s *Store) error {
	ctx := context.Background()
	for _, name := range []string{"site", "second"} {
		r, err := s.Repo(ctx, "acme", name)
		if errors.Is(err, ErrRepoNotFound) {
			if _, err = s.CreateRepo(ctx, someone, "acme", name, "main", nil); err == nil {
				r, err = s.Repo(ctx, "acme", name)
			}
		}
		if err != nil {
			return fmt.Errorf("repo %s after the cut: %w", name, err)
		}
		res, err := testCommit{target: mainRef, files: map[string]string{"next": name, "more": strings.Repeat("x", 100)}}.make(ctx, r, someone)
		if err != nil {
			return fmt.Errorf("commit to %s after the cut: %w", name, err)
		}
		if err := r.Settle(ctx); err != nil {
			return fmt.Errorf("settle %s after the cut: %w", name, err)
		}
		if got, err := readPath(ctx, r, res.Commit, "next"); err != nil || got != name {
			return fmt.Errorf("file in %s after the cut: %q, %w", name, got, err)
		}
		files, err := r.dir.Files()
		if err != nil {
			return err
		}
		if known := len(r.packNames()) + len(r.condemned()); len(files) != known {
			return fmt.Errorf("repo %s has %d pack files and %d registered packs", name, len(files), known)
		}
		if name != "site" {
			continue // its packs are one
		}
		if err := fetchable(ctx, r, res.Commit); err != nil {
			return fmt.Errorf("fetch from %s after the cut: %w", name, err)
		}
		if err := upkeepHard(ctx, r); err != nil {
			return fmt.Errorf("upkeep of %s after the cut: %w", name, err)
		}
		if folders, err := r.dir.Indexes(); err != nil || len(folders) != 1 {
			return fmt.Errorf("repo %s has index folders %v, %w; want one", name, folders, err)
		}
		if err := checkWhole(ctx, r); err != nil {
			return fmt.Errorf("repo %s after upkeep: %w", name, err)
		}
	}
	return nil
}
