package gitstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
)

// finishing takes a backup of s, of nothing if s is nil, and gives what Finish ends with.
func finishing(t testing.TB, s *Store, dir string, change func(*BackupDir)) (BackupReport, error) {
	t.Helper()
	b, err := OpenBackupDir(dir)
	if err != nil {
		t.Fatalf("OpenBackupDir: %v", err)
	}
	if change != nil {
		change(b)
	}
	if s != nil {
		if err := s.Backup(t.Context(), b); err != nil {
			b.Abort()
			return BackupReport{}, err
		}
	}
	return b.Finish()
}

// A good backup is not replaced by an empty one, by one of another store or by one that
// has lost most repos: not without being told to, and then it is.
func TestBackupIsNotReplacedByAnother(t *testing.T) {
	p := newPatient(t)
	dir := filepath.Join(t.TempDir(), "backup")
	backupTo(t, p.s, dir, nil)
	kept := filesOf(t, dir)
	other := openTestStore(t, func(o *Options) { o.Logger = quiet })
	newTestRepo(t, other, "repo")
	wiped := openTestStore(t, func(o *Options) { o.Logger = quiet })
	for name, s := range map[string]*Store{"nothing": nil, "another store": other, "a store without repos": wiped} {
		_, err := finishing(t, s, dir, nil)
		var no *ReplaceError
		if !errors.As(err, &no) || no.Dir != dir {
			t.Errorf("a backup of %s in the place of a good one = %v, want a *ReplaceError", name, err)
		}
		if got := filesOf(t, dir); fmt.Sprint(got) != fmt.Sprint(kept) {
			t.Errorf("after a backup of %s was refused the folder holds\n%v, want\n%v", name, got, kept)
		}
		wantSound(t, restored(t, dir), "repo", mainRef, p.commit)
	}
	if _, err := finishing(t, other, dir, func(b *BackupDir) { b.Replace = true }); err != nil {
		t.Errorf("a backup of another store that may replace = %v", err)
	}
	m, err := readManifest(dir)
	if err != nil || len(m.repos()) != 1 || m.store == "" {
		t.Errorf("the manifest after that = %+v, %v, want the other store's", m, err)
	}
	if _, err := finishing(t, p.s, dir, nil); err == nil {
		t.Error("now the first store's backup replaces the other's, want it refused")
	}
}

// Of the same store half of the repos may go, not more. A manifest of a time without
// ids is compared by its repos.
func TestBackupThatLosesRepos(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Logger = quiet })
	for i := range 5 {
		newTestRepo(t, s, fmt.Sprint("r", i))
	}
	dir := filepath.Join(t.TempDir(), "backup")
	backupTo(t, s, dir, nil)
	remove := func(names ...string) {
		for _, name := range names {
			if _, err := s.DeleteRepo(t.Context(), someone, "acme", name, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove("r0", "r1", "r2")
	var no *ReplaceError
	if _, err := finishing(t, s, dir, nil); !errors.As(err, &no) || !strings.Contains(no.Why, "3 of the 5 repos") {
		t.Errorf("a backup that lacks 3 of 5 repos = %v, want a *ReplaceError", err)
	}
	if _, err := finishing(t, s, dir, func(b *BackupDir) { b.before.store = "" }); !errors.As(err, &no) {
		t.Errorf("the same over a manifest without an id = %v, want a *ReplaceError", err)
	}
	newTestRepo(t, s, "r0")
	if _, err := finishing(t, s, dir, func(b *BackupDir) { b.Replace = true }); err != nil {
		t.Fatal(err)
	}
	remove("r0")
	if _, err := finishing(t, s, dir, func(b *BackupDir) { b.before.store = "" }); err != nil {
		t.Errorf("a backup that lacks one of 3 repos = %v, want it taken", err)
	}
}

// A sound pack of the earlier backup cannot be written over by what is sent for it.
func TestBackupPacksAreNotWrittenOver(t *testing.T) {
	p := newPatient(t)
	dir := filepath.Join(t.TempDir(), "backup")
	backupTo(t, p.s, dir, nil)
	b, err := OpenBackupDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Abort()
	for _, old := range b.before.packs {
		if err := b.Begin(BackupFile{Kind: BackupPack, Repo: old.repo, Pack: old.name}); !errors.Is(err, errOutOfTurn) {
			t.Errorf("Begin of a pack that is there = %v, want %v", err, errOutOfTurn)
		}
	}
}

// With SkipDamaged one damaged repo costs that repo alone: the rest is in the backup,
// which names it, and after a restore its name can be used again.
func TestBackupWithoutADamagedRepo(t *testing.T) {
	p := newPatient(t)
	other := newTestRepo(t, p.s, "other")
	head := mustCommit(t, other, someone, testCommit{target: mainRef, files: map[string]string{"x": "1\n"}}).Commit
	pack := filepath.Join(p.r.dir.Root(), "packs", p.r.packNames()[0]+".pack")
	whole, err := os.ReadFile(pack)
	if err != nil {
		t.Fatal(err)
	}
	skip := func(b *BackupDir) { b.SkipDamaged = true }
	for name, damage := range map[string]func() error{
		"flipped": func() error { return flipByte(pack) },
		"cut":     func() error { return os.Truncate(pack, 30) },
		"away":    func() error { return os.Remove(pack) },
		"folder":  func() error { return errors.Join(os.Remove(pack), os.Mkdir(pack, 0o700)) },
	} {
		dir := filepath.Join(t.TempDir(), "backup")
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := finishing(t, p.s, dir, nil); err == nil || !strings.Contains(err.Error(), "acme/repo") {
			t.Errorf("%s: Backup = %v, want an error that names the repo", name, err)
		}
		r, err := finishing(t, p.s, dir, skip)
		if err != nil || len(r.Skipped) != 1 || r.Skipped[0].Repo != "acme/repo" || r.Skipped[0].Earlier || r.Skipped[0].Err == nil {
			t.Errorf("%s: backup without damaged repos = %+v, %v", name, r, err)
		}
		s := restored(t, dir)
		wantSound(t, s, "other", mainRef, head)
		if _, err := s.Repo(t.Context(), "acme", "repo"); !errors.Is(err, ErrRepoNotFound) {
			t.Errorf("%s: the damaged repo after a restore = %v, want ErrRepoNotFound", name, err)
		}
		if list, err := s.ListRepos(t.Context(), "acme", "", "", 10); err != nil || len(list.Repos) != 1 {
			t.Errorf("%s: repos after a restore = %+v, %v, want one", name, list, err)
		}
		newTestRepo(t, s, "repo")
		if err := errors.Join(os.RemoveAll(pack), os.WriteFile(pack, whole, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// What an earlier backup in the folder has of a damaged repo stays, from backup to
// backup, and comes back; what is damaged there too does not.
func TestBackupKeepsTheEarlierOfADamagedRepo(t *testing.T) {
	p := newPatient(t)
	other := newTestRepo(t, p.s, "other")
	dir := filepath.Join(t.TempDir(), "backup")
	backupTo(t, p.s, dir, nil)
	head := mustCommit(t, other, someone, testCommit{target: mainRef, files: map[string]string{"x": "1\n"}}).Commit
	later := mustCommit(t, p.r, someone, testCommit{target: mainRef, files: map[string]string{"later": "x\n"}}).Commit
	if err := p.r.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	packs, err := filepath.Glob(filepath.Join(p.r.dir.Root(), "packs", "*.pack"))
	if err != nil || len(packs) != 2 {
		t.Fatalf("packs = %v, %v, want two", packs, err)
	}
	for _, pack := range packs { // the one that the folder has is not read again
		if err := flipByte(pack); err != nil {
			t.Fatal(err)
		}
	}
	skip := func(b *BackupDir) { b.SkipDamaged = true }
	for range 2 {
		r, err := finishing(t, p.s, dir, skip)
		if err != nil || len(r.Skipped) != 1 || !r.Skipped[0].Earlier {
			t.Fatalf("backup without damaged repos = %+v, %v, want what the earlier one has", r, err)
		}
		s := restored(t, dir)
		wantSound(t, s, "repo", mainRef, p.commit)
		wantSound(t, s, "other", mainRef, head)
	}
	to := t.TempDir()
	db := openLoading(t, to)
	defer db.Close()
	if r, err := Restore(t.Context(), RestoreOptions{From: dir, Dir: to, Ledger: db}); err != nil || len(r.Skipped) != 1 || r.Skipped[0].Repo != "acme/repo" || !r.Skipped[0].Earlier {
		t.Errorf("Restore = %+v, %v, want it to name the repo (whose %s it lacks)", r, err, later)
	}
	m, err := readManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range m.spaces {
		if s.name == p.r.space {
			if err := flipByte(filepath.Join(dir, s.file)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r, err := finishing(t, p.s, dir, skip); err != nil || len(r.Skipped) != 1 || r.Skipped[0].Earlier {
		t.Errorf("backup over one whose space is damaged = %+v, %v, want the repo left out", r, err)
	}
	wantSound(t, restored(t, dir), "other", mainRef, head)
}

// Whatever stands in the place of a backup's files is no reason to wait or to follow.
func TestRestoreReadsRegularFilesAlone(t *testing.T) {
	p := newPatient(t)
	dir := filepath.Join(t.TempDir(), "backup")
	backupTo(t, p.s, dir, nil)
	for _, name := range filesOf(t, dir) {
		path := filepath.Join(dir, name)
		aside := filepath.Join(t.TempDir(), "aside")
		if err := os.Rename(path, aside); err != nil {
			t.Fatal(err)
		}
		for what, put := range map[string]func() error{
			"a fifo":   func() error { return syscall.Mkfifo(path, 0o600) },
			"a link":   func() error { return os.Symlink(aside, path) },
			"a folder": func() error { return os.Mkdir(path, 0o700) },
		} {
			if err := put(); err != nil {
				t.Fatal(err)
			}
			refuses(t, dir, name, fmt.Sprintf("%s in the place of %s", what, name))
			if b, err := OpenBackupDir(dir); name == formatName || name == manifestName {
				if !errors.As(err, new(*BackupError)) {
					t.Errorf("OpenBackupDir with %s in the place of %s = %v, want a *BackupError", what, name, err)
				}
			} else if err != nil {
				t.Errorf("OpenBackupDir with %s in the place of %s = %v", what, name, err)
			} else {
				b.Abort()
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Rename(aside, path); err != nil {
			t.Fatal(err)
		}
	}
}

// Nobody else may look into a folder of backups that was made here.
func TestBackupDirIsPrivate(t *testing.T) {
	old := t.TempDir()
	if err := os.Chmod(old, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]os.FileMode{filepath.Join(t.TempDir(), "deep", "new"): 0o700, old: 0o755} {
		b, err := OpenBackupDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		b.Abort()
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != want {
			t.Errorf("mode of %s = %v, %v, want %v", dir, info, err, want)
		}
	}
}

// What a half loaded ledger says tells what to do.
func TestUnfinishedLedgerSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	if err := openLoading(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	_, err := pebbledb.Open(filepath.Join(dir, "ledger"), pebbledb.Options{Logger: quiet})
	if !errors.Is(err, ledger.ErrUnfinished) || !strings.Contains(err.Error(), "delete the folder "+filepath.Join(dir, "ledger")) {
		t.Errorf("Open of a half loaded ledger = %v, want it to say what to delete", err)
	}
}
