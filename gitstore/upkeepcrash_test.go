package gitstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// A site is a repo with work for upkeep: packs to merge, dead objects in both tiers,
// pins that hold and one that has ended.
type site struct {
	dir        string
	h          *hookedLedger
	fs         *faultFS
	store      *Store
	repo       *Repo
	live, dead []refpolicy.OID
}

func newSite(t *testing.T) *site {
	t.Helper()
	db, err := pebbledb.Open("ledger", pebbledb.Options{FS: vfs.NewMem(), Logger: quiet})
	if err != nil {
		t.Fatalf("pebbledb.Open: %v", err)
	}
	t.Cleanup(func() { db.Close() })
	s := &site{dir: t.TempDir(), h: &hookedLedger{Ledger: db}, fs: &faultFS{}}
	s.open(t)
	if _, err := s.store.CreateRepo(t.Context(), someone, "acme", "site", "main", nil); err != nil {
		t.Fatalf("CreateRepo: %v", err)
	}
	s.find(t)
	commit := func(ref refpolicy.RefName, text string) refpolicy.OID {
		tc := testCommit{target: ref, files: map[string]string{"a": text}}
		if ref != mainRef {
			tc.base = mainRef
		}
		return mustCommit(t, s.repo, someone, tc).Commit
	}
	s.live = append(s.live, commit(mainRef, "main\n"))
	for i := range 3 {
		s.live = append(s.live, commit(mainRef, fmt.Sprint("state ", i)))
		ref := refpolicy.RefName(fmt.Sprintf("refs/heads/s%d", i))
		oid := commit(ref, fmt.Sprint("session ", i))
		pin, err := s.repo.Pin(t.Context(), someone, PinSpec{OID: oid, Holder: "holder"})
		if err == nil && i > 0 {
			err = s.repo.Unpin(t.Context(), someone, pin.ID, nil)
		}
		if err = errors.Join(err, s.repo.DeleteBranch(t.Context(), someone, ref, nil)); err != nil {
			t.Fatalf("make session %d: %v", i, err)
		}
		if i == 0 {
			s.live = append(s.live, oid)
		} else {
			s.dead = append(s.dead, oid)
		}
		if i == 2 {
			break // what comes last stays hot
		}
		if err := s.repo.Settle(t.Context()); err != nil {
			t.Fatalf("Settle: %v", err)
		}
	}
	return s
}

func (s *site) open(t *testing.T) {
	t.Helper()
	s.store = openTestStore(t, func(o *Options) { o.Dir, o.Ledger, o.FS, o.Logger = s.dir, s.h, s.fs, quiet })
}

func (s *site) find(t *testing.T) {
	t.Helper()
	var err error
	if s.repo, err = s.store.Repo(t.Context(), "acme", "site"); err != nil {
		t.Fatalf("Repo: %v", err)
	}
}

// check wants everything that is needed, in this process and in the next one, where
// upkeep then comes to its end.
func (s *site) check(t *testing.T, what string) {
	t.Helper()
	for _, when := range []string{"at once", "after opening anew"} {
		if err := checkWhole(t.Context(), s.repo); err != nil {
			t.Fatalf("%s, %s: %v", what, when, err)
		}
		for _, oid := range s.live {
			wantReadable(t, s.repo, oid, true)
		}
		if err := s.store.Close(t.Context()); err != nil {
			t.Fatalf("%s: Close: %v", what, err)
		}
		s.open(t)
		s.find(t)
	}
	for range 2 {
		if err := upkeepHard(t.Context(), s.repo); err != nil {
			t.Fatalf("%s: upkeep afterwards: %v", what, err)
		}
	}
	for _, oid := range s.dead {
		wantReadable(t, s.repo, oid, false)
	}
	files, err := s.repo.dir.Files()
	if err != nil || len(files) != len(s.repo.packNames()) || len(s.repo.condemned()) > 0 {
		t.Errorf("%s: files %v, %v; registered %v, condemned %v", what, files, err, s.repo.packNames(), s.repo.condemned())
	}
	if path, release := s.repo.useIndex(t.Context()); path == "" {
		t.Errorf("%s: no index is in use", what)
	} else {
		release()
	}
	if folders, err := s.repo.dir.Indexes(); err != nil || len(folders) != 1 {
		t.Errorf("%s: index folders %v, %v; want one", what, folders, err)
	}
	if n := countKeys(t, s.repo, pinKeys); n != 1 {
		t.Errorf("%s: %d pins on record, want 1", what, n)
	}
	if err := s.store.Close(t.Context()); err != nil {
		t.Fatalf("%s: Close: %v", what, err)
	}
}

// Every batch of upkeep is answered by a failure once, applied or not.
func TestUpkeepSurvivesEveryLostBatch(t *testing.T) {
	for _, lost := range lostAnswers[:3] {
		t.Run(lost.name, func(t *testing.T) {
			for k, more := 0, true; more; k++ {
				s := newSite(t)
				n := 0
				f := func(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
					if n++; n != k+1 {
						return s.h.Ledger.Apply(ctx, b)
					}
					if lost.applied {
						if _, err := s.h.Ledger.Apply(ctx, b); err != nil {
							return ledger.Result{}, err
						}
					}
					return ledger.Result{}, lost.answer
				}
				s.h.onApply.Store(&f)
				err := upkeepHard(t.Context(), s.repo)
				s.h.onApply.Store(nil)
				if more = n > k; more && err == nil && k < 3 && !lost.applied {
					t.Errorf("batch %d failed and upkeep says nothing", k)
				}
				if !more && k < 6 {
					t.Errorf("upkeep was %d batches, want more", k)
				}
				s.check(t, fmt.Sprintf("batch %d, error %v", k, err))
			}
		})
	}
}

// Every file operation of upkeep fails once.
func TestUpkeepSurvivesEveryFileFault(t *testing.T) {
	for k, more := int64(0), true; more; k++ {
		s := newSite(t)
		s.fs.fail(k)
		err := upkeepHard(t.Context(), s.repo)
		more = s.fs.failed()
		if !more && k < 20 {
			t.Errorf("upkeep was %d file operations, want more", k)
		}
		s.check(t, fmt.Sprintf("file operation %d, error %v", k, err))
	}
}

// faultFS is the operating system's files, none of them synced, with one operation
// that fails.
type faultFS struct {
	unsynced
	left atomic.Int64 // operations until it; 0: no fault
}

var errFault = errors.New("injected fault")

// fail lets the operation after n others fail.
func (f *faultFS) fail(n int64) { f.left.Store(n + 1) }

// failed ends the waiting for the fault and reports whether it happened.
func (f *faultFS) failed() bool { return f.left.Swap(0) <= 0 }

// due counts an operation. After the fault left stays below 1 without failing more.
func (f *faultFS) due() error {
	if f.left.Load() <= 0 {
		return nil
	}
	if f.left.Add(-1) == 0 {
		f.left.Store(-1)
		return errFault
	}
	return nil
}

func (f *faultFS) Open(name string) (packs.File, error) {
	if err := f.due(); err != nil {
		return nil, err
	}
	return f.unsynced.Open(name)
}

func (f *faultFS) Create(name string) (packs.File, error) {
	if err := f.due(); err != nil {
		return nil, err
	}
	return f.unsynced.Create(name)
}

func (f *faultFS) Mkdir(name string) error { return errors.Join(f.due(), f.OS.Mkdir(name)) }

func (f *faultFS) Rename(from, to string) error {
	if err := f.due(); err != nil {
		return err
	}
	return f.OS.Rename(from, to)
}

func (f *faultFS) Link(from, to string) error {
	if err := f.due(); err != nil {
		return err
	}
	return f.OS.Link(from, to)
}

func (f *faultFS) Remove(name string) error {
	if err := f.due(); err != nil {
		return err
	}
	return f.OS.Remove(name)
}

func (f *faultFS) SyncDir(name string) error { return errors.Join(f.due(), f.unsynced.SyncDir(name)) }
