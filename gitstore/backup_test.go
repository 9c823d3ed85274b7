package gitstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// openLoading opens a ledger to be loaded, in the place of one that Restore fills.
func openLoading(t testing.TB, dir string) *pebbledb.DB {
	t.Helper()
	db, err := pebbledb.Open(filepath.Join(dir, "ledger"), pebbledb.Options{Logger: quiet, Loading: true})
	if err != nil {
		t.Fatalf("open ledger to load: %v", err)
	}
	return db
}

// backupTo takes a backup of s into dir. hook may stand between store and folder.
func backupTo(t testing.TB, s *Store, dir string, hook func(*BackupDir) BackupSink) BackupReport {
	t.Helper()
	b, err := OpenBackupDir(dir)
	if err != nil {
		t.Fatalf("OpenBackupDir: %v", err)
	}
	var sink BackupSink = b
	if hook != nil {
		sink = hook(b)
	}
	if err := s.Backup(t.Context(), sink); err != nil {
		b.Abort()
		t.Fatalf("Backup: %v", err)
	}
	report, err := b.Finish()
	if err != nil {
		t.Fatalf("Finish: %v", err)
	}
	return report
}

// restored opens a store on what a folder of backups holds.
func restored(t testing.TB, from string) *Store {
	t.Helper()
	dir := t.TempDir()
	db := openLoading(t, dir)
	if _, err := Restore(t.Context(), RestoreOptions{From: from, Dir: dir, Ledger: db}); err != nil {
		t.Fatalf("Restore: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := pebbledb.Open(filepath.Join(dir, "ledger"), pebbledb.Options{Logger: quiet})
	if err != nil {
		t.Fatalf("open restored ledger: %v", err)
	}
	t.Cleanup(func() { db.Close() })
	return openTestStore(t, func(o *Options) { o.Dir, o.Ledger, o.Logger = dir, db, quiet })
}

// wantSound demands that a repo is there, sound, with a ref at an oid.
func wantSound(t testing.TB, s *Store, name string, ref refpolicy.RefName, oid refpolicy.OID) {
	t.Helper()
	r, err := s.Repo(t.Context(), "acme", name)
	if err != nil {
		t.Errorf("Repo(%s) = %v", name, err)
		return
	}
	findings, err := s.Fsck(t.Context(), r)
	if err != nil || len(findings) > 0 {
		t.Errorf("Fsck(%s) = %v, %v; want a sound repo", name, findings, err)
	}
	if got, err := r.Ref(t.Context(), someone, ref); err != nil || got.OID != oid {
		t.Errorf("%s of %s = %s, %v; want %s", ref, name, got.OID, err, oid)
	}
	checkRepo(t, r)
}

// What was committed comes back: both tiers, tags, pins, several repos, and the store
// goes on from there. A second backup copies what is new alone and removes the rest.
func TestBackupAndRestore(t *testing.T) {
	p := newPatient(t)
	if _, err := p.s.CreateRepo(t.Context(), someone, "acme", "other", "main", nil); err != nil {
		t.Fatal(err)
	}
	other, err := p.s.Repo(t.Context(), "acme", "other")
	if err != nil {
		t.Fatal(err)
	}
	first := mustCommit(t, other, someone, testCommit{target: mainRef, files: map[string]string{"x": "1\n"}}).Commit
	dir := filepath.Join(t.TempDir(), "deep", "backup")
	if r := backupTo(t, p.s, dir, nil); r.Packs != 1 || r.Copied != 1 || r.Spaces != 4 {
		t.Errorf("first backup = %+v, want 4 spaces (2 repos, org, server) and one pack, copied", r)
	}
	if err := other.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := mustCommit(t, other, someone, testCommit{target: mainRef, files: map[string]string{"x": "2\n"}}).Commit
	s := restored(t, dir)
	wantSound(t, s, "other", mainRef, first)
	wantSound(t, s, "repo", mainRef, p.commit)
	wantSound(t, s, "repo", sessionA, p.hot)
	r, err := s.Repo(t.Context(), "acme", "repo")
	if err != nil {
		t.Fatal(err)
	}
	if pins, err := r.Pins(t.Context(), someone, "", 10); err != nil || len(pins.Pins) != 1 || pins.Pins[0].ID != p.pin.ID {
		t.Errorf("pins after restore = %+v, %v; want %s", pins, err, p.pin.ID)
	}
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"more": "x\n"}})
	gcNow(t, r)
	if r := backupTo(t, p.s, dir, nil); r.Packs != 2 || r.Copied != 1 {
		t.Errorf("second backup = %+v, want two packs, one of them copied", r)
	}
	wantSound(t, restored(t, dir), "other", mainRef, second)
	if _, err := p.s.DeleteRepo(t.Context(), someone, "acme", "other", nil); err != nil {
		t.Fatal(err)
	}
	if r := backupTo(t, p.s, dir, nil); r.Packs != 1 || r.Copied != 0 || r.Spaces != 3 {
		t.Errorf("third backup = %+v, want what is left and nothing copied", r)
	}
	if n := len(filesOf(t, dir)); n != 2+3+2 {
		t.Errorf("the folder holds %d files, want FORMAT, MANIFEST, 3 spaces, a pack and its idx:\n%s", n, strings.Join(filesOf(t, dir), "\n"))
	}
	s = restored(t, dir)
	wantSound(t, s, "repo", mainRef, p.commit)
	if _, err := s.Repo(t.Context(), "acme", "other"); !errors.Is(err, ErrRepoNotFound) {
		t.Errorf("a repo that was deleted = %v, want ErrRepoNotFound", err)
	}
}

// filesOf lists the files below dir, by their names in it.
func filesOf(t testing.TB, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(dir, path)
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// refuses wants Restore to end with a *BackupError that names the file, before it has
// made a ledger that anybody would take for whole.
func refuses(t testing.TB, from, file, what string) {
	t.Helper()
	dir := t.TempDir()
	db := openLoading(t, dir)
	_, err := Restore(t.Context(), RestoreOptions{From: from, Dir: dir, Ledger: db})
	var bad *BackupError
	if !errors.As(err, &bad) || bad.File != file {
		t.Errorf("%s: Restore = %v, want a *BackupError of %s", what, err, file)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err := pebbledb.Open(filepath.Join(dir, "ledger"), pebbledb.Options{Logger: quiet}); !errors.Is(err, ledger.ErrUnfinished) {
		t.Errorf("%s: the ledger opens as %v, %v; want ErrUnfinished", what, db, err)
	}
}

// Whatever file of a backup is damaged at whatever place, cut or away: it is refused,
// and the file is named.
func TestRestoreRefusesDamage(t *testing.T) {
	p := newPatient(t)
	dir := filepath.Join(t.TempDir(), "backup")
	backupTo(t, p.s, dir, nil)
	for _, name := range filesOf(t, dir) {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write := func(b []byte) {
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		at := rand.IntN(len(whole))
		flipped := slices.Clone(whole)
		flipped[at] ^= 1 << rand.IntN(8)
		write(flipped)
		refuses(t, dir, name, fmt.Sprintf("bit of byte %d of %s", at, name))
		cut := rand.IntN(len(whole))
		write(whole[:cut])
		refuses(t, dir, name, fmt.Sprintf("%s cut to %d bytes", name, cut))
		write(append(slices.Clone(whole), '\n'))
		refuses(t, dir, name, name+" with a line more")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		refuses(t, dir, name, name+" away")
		write(whole)
	}
	wantSound(t, restored(t, dir), "repo", mainRef, p.commit)
}

// A backup that was given up, or whose process died, changes nothing of the one before.
func TestBackupThatWasCut(t *testing.T) {
	p := newPatient(t)
	dir := filepath.Join(t.TempDir(), "backup")
	b, err := OpenBackupDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.s.Backup(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	b.lock.Close() // the process dies: neither Finish nor Abort
	refuses(t, dir, manifestName, "a first backup that was cut")
	backupTo(t, p.s, dir, nil)
	later := mustCommit(t, p.r, someone, testCommit{target: mainRef, files: map[string]string{"later": "x\n"}}).Commit
	if err := p.r.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("enough")
	for n := 1; ; n++ {
		b, err := OpenBackupDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		c := &cutting{BackupDir: b, left: n, err: stop}
		err = p.s.Backup(t.Context(), c)
		if err == nil {
			b.Abort()
			break
		}
		if !errors.Is(err, stop) {
			t.Fatalf("Backup cut at step %d = %v, want %v", n, err, stop)
		}
		if n%2 == 0 {
			b.Abort()
		} else {
			b.lock.Close()
		}
		if n%5 == 0 {
			wantSound(t, restored(t, dir), "repo", mainRef, p.commit)
		}
	}
	backupTo(t, p.s, dir, nil)
	for _, f := range filesOf(t, dir) {
		if strings.HasSuffix(f, unfinishedFile) {
			t.Errorf("a cut backup leaves %s", f)
		}
	}
	wantSound(t, restored(t, dir), "repo", mainRef, later)
}

// cutting fails at a step.
type cutting struct {
	*BackupDir
	left int
	err  error
}

func (c *cutting) step() error {
	if c.left--; c.left < 0 {
		return c.err
	}
	return nil
}

func (c *cutting) Begin(f BackupFile) error { return errors.Join(c.step(), c.BackupDir.Begin(f)) }
func (c *cutting) End() error {
	if err := c.step(); err != nil {
		return err
	}
	return c.BackupDir.End()
}

func (c *cutting) Write(p []byte) (int, error) {
	if err := c.step(); err != nil {
		n, _ := c.BackupDir.Write(p[:len(p)/2])
		return n, err
	}
	return c.BackupDir.Write(p)
}

// meanwhile does something before a file begins.
type meanwhile struct {
	*BackupDir
	do func(BackupFile)
}

func (m meanwhile) Begin(f BackupFile) error {
	m.do(f)
	return m.BackupDir.Begin(f)
}

// Packs that are merged and removed between the look at the ledger and their copying
// are no loss: the ledger is looked at again.
func TestBackupWhilePacksAreReplaced(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Logger, o.Limits.UpkeepEvery = quiet, -1 })
	r := newTestRepo(t, s, "repo")

	add := func() {
		mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": fmt.Sprint(rand.Uint64())}})
		if err := r.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	add()
	add()
	times := 0
	dir := filepath.Join(t.TempDir(), "backup")
	report := backupTo(t, s, dir, func(b *BackupDir) BackupSink {
		return meanwhile{b, func(f BackupFile) {
			if f.Kind == BackupPack && times < 3 {
				times++
				add()
				gcNow(t, r)
			}
		}}
	})
	if times < 2 || report.Packs == 0 {
		t.Errorf("backup = %+v, packs replaced %d times meanwhile", report, times)
	}
	s2 := restored(t, dir)
	r2, err := s2.Repo(t.Context(), "acme", "repo")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := r2.Ref(t.Context(), someone, mainRef)
	if err != nil {
		t.Fatal(err)
	}
	wantSound(t, s2, "repo", mainRef, ref.OID)
}

// Repos that are made and deleted while the backup is taken are in it whole or not at
// all, and their names can be used again.
func TestBackupWhileReposComeAndGo(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Logger = quiet })
	heads := map[string]refpolicy.OID{}
	make1 := func(name string) {
		if _, err := s.CreateRepo(t.Context(), someone, "acme", name, "main", nil); err != nil {
			t.Fatal(err)
		}
		r, err := s.Repo(t.Context(), "acme", name)
		if err != nil {
			t.Fatal(err)
		}
		heads[name] = mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": name}}).Commit
	}
	remove := func(name string) {
		if _, err := s.DeleteRepo(t.Context(), someone, "acme", name, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		make1(fmt.Sprint("old", i))
	}
	step := 0
	dir := filepath.Join(t.TempDir(), "backup")
	backupTo(t, s, dir, func(b *BackupDir) BackupSink {
		return meanwhile{b, func(f BackupFile) {
			switch step++; {
			case step == 2: // one that has been taken, and one that has not
				remove("old0")
				remove("old1")
				make1("new0")
			case f.Space == ledger.OrgSpace("acme") && heads["new1"].IsZero():
				make1("new1")
				make1("new2")
			case heads["new2"] != refpolicy.ZeroOID && heads["new3"].IsZero():
				remove("new2")
				make1("new3")
			}
		}}
	})
	got := restored(t, dir)
	for _, name := range []string{"old2", "old3"} {
		wantSound(t, got, name, mainRef, heads[name])
	}
	for _, name := range []string{"old0", "old1", "new0", "new1", "new2", "new3"} {
		r, err := got.Repo(t.Context(), "acme", name)
		switch {
		case errors.Is(err, ErrRepoNotFound):
			if _, err := got.CreateRepo(t.Context(), someone, "acme", name, "main", nil); err != nil {
				t.Errorf("a repo %s that is not in the backup cannot be made: %v", name, err)
			}
		case err != nil:
			t.Errorf("Repo(%s) = %v, want it whole or not there", name, err)
		default:
			if findings, err := got.Fsck(t.Context(), r); err != nil || len(findings) > 0 {
				t.Errorf("Fsck(%s) = %v, %v", name, findings, err)
			}
			if _, err := got.DeleteRepo(t.Context(), someone, "acme", name, nil); err != nil {
				t.Errorf("DeleteRepo(%s) = %v", name, err)
			}
		}
	}
	listed, err := got.ListRepos(t.Context(), "acme", "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range listed.Repos {
		if _, err := got.Repo(t.Context(), "acme", info.Name); err != nil {
			t.Errorf("listed repo %s = %v", info.Name, err)
		}
	}
}

// A pack that is not what it says is not copied as if it were.
func TestBackupRefusesADamagedPack(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, path string)
		want   error
	}{
		{"flipped byte", func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 0x55
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}, packs.ErrPackBroken},
		{"cut", func(t *testing.T, path string) {
			if err := os.Truncate(path, 30); err != nil {
				t.Fatal(err)
			}
		}, packs.ErrPackBroken},
		{"away", func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}, fs.ErrNotExist},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPatient(t)
			name := p.r.packNames()[0]
			tc.damage(t, filepath.Join(p.r.dir.Root(), "packs", name+".pack"))
			dir := filepath.Join(t.TempDir(), "backup")
			b, err := OpenBackupDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Abort()
			if err := p.s.Backup(t.Context(), b); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), name) {
				t.Errorf("Backup = %v, want %v with the name of the pack", err, tc.want)
			}
		})
	}
}

// A pack of an earlier backup that has been damaged since is seen and copied again
// when that is asked for; one that is gone or cut always.
func TestBackupHealsItsPacks(t *testing.T) {
	p := newPatient(t)
	dir := filepath.Join(t.TempDir(), "backup")
	backupTo(t, p.s, dir, nil)
	packs, err := filepath.Glob(filepath.Join(dir, packsFolder, "*", "*.pack"))
	if err != nil || len(packs) != 1 {
		t.Fatalf("packs = %v, %v", packs, err)
	}
	for _, tc := range []struct {
		name   string
		damage func() error
		check  bool
		copied int
	}{
		{"nothing", func() error { return nil }, true, 0},
		{"flipped, not looked at", func() error { return flipByte(packs[0]) }, false, 0},
		{"flipped", func() error { return nil }, true, 1},
		{"cut", func() error { return os.Truncate(packs[0], 20) }, false, 1},
		{"gone", func() error { return os.Remove(packs[0]) }, false, 1},
	} {
		if err := tc.damage(); err != nil {
			t.Fatal(err)
		}
		r := backupTo(t, p.s, dir, func(b *BackupDir) BackupSink { b.Check = tc.check; return b })
		if r.Packs != 1 || r.Copied != tc.copied {
			t.Errorf("%s: backup with check %v = %+v, want %d copied", tc.name, tc.check, r, tc.copied)
		}
	}
	wantSound(t, restored(t, dir), "repo", mainRef, p.commit)
}

func flipByte(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[len(b)/2] ^= 1
	return os.WriteFile(path, b, 0o644)
}

func TestBackupDirRefuses(t *testing.T) {
	strange := t.TempDir()
	if err := os.WriteFile(filepath.Join(strange, "thesis.txt"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	var bad *BackupError
	if b, err := OpenBackupDir(strange); !errors.As(err, &bad) {
		t.Errorf("OpenBackupDir of somebody's folder = %v, %v; want a *BackupError", b, err)
	}
	dir := t.TempDir()
	b, err := OpenBackupDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := OpenBackupDir(dir); !errors.As(err, &bad) {
		t.Errorf("OpenBackupDir beside another = %v, %v; want a *BackupError", b, err)
	}
	defer b.Abort()
	repo := "repo_" + strings.Repeat("0", 32)
	pack := "pack-" + strings.Repeat("0", 40)
	for name, step := range map[string]func() error{
		"repo outside":     func() error { return b.Begin(BackupFile{Kind: BackupPack, Repo: "../../x", Pack: pack}) },
		"pack outside":     func() error { return b.Begin(BackupFile{Kind: BackupPack, Repo: repo, Pack: "../" + pack}) },
		"unknown kind":     func() error { return b.Begin(BackupFile{Kind: "../x"}) },
		"space of no name": func() error { return b.Begin(BackupFile{Kind: BackupSpace}) },
		"bytes of nothing": func() error { _, err := b.Write([]byte("x")); return err },
		"end of nothing":   func() error { return b.End() },
		"keep of nothing":  func() error { return b.Keep(repo, pack) },
		"idx alone": func() error {
			return errors.Join(b.Begin(BackupFile{Kind: BackupIdx, Repo: repo, Pack: "pack-" + strings.Repeat("1", 40)}), b.End())
		},
		"pack alone": func() error {
			if err := errors.Join(b.Begin(BackupFile{Kind: BackupPack, Repo: repo, Pack: pack}), b.End()); err != nil {
				return fmt.Errorf("not even begun: %w", err)
			}
			_, err := b.manifest()
			return err
		},
	} {
		if err := step(); err == nil || strings.Contains(err.Error(), "not even begun") {
			t.Errorf("%s = %v, want an error", name, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	m := &manifest{
		spaces: []manifestSpace{{name: "server", file: "spaces-0123456789abcdef/0"}, {name: "org/\xff \n", file: "spaces-0123456789abcdef/1"}},
		packs:  []manifestPack{{repo: "repo_" + strings.Repeat("a", 32), name: "pack-" + strings.Repeat("0", 40)}},
		logs:   []manifestLog{{repo: "repo_" + strings.Repeat("a", 32), name: fmt.Sprintf("log-%020d-%020d-%016x", 1, 2, 3)}},
	}
	var text strings.Builder
	if err := m.write(&text); err != nil {
		f.Fatal(err)
	}
	f.Add(text.String(), false)
	f.Add("headgate backup 1\nspace ../../x 1 00 \"x\"\n", true)
	f.Add("headgate backup 2\n", true)
	f.Add("headgate backup 1\nstore \"store-1\"\nskipped repo_"+strings.Repeat("a", 32)+" \"acme/x\"\n", true)
	f.Add("", true)
	f.Fuzz(func(t *testing.T, text string, seal bool) {
		if seal { // with the right sum, so that the lines are looked at
			text = withSum(text)
		}
		m, err := parseManifest([]byte(text))
		if err != nil {
			return
		}
		for _, s := range m.spaces {
			if !filepath.IsLocal(s.file) {
				t.Fatalf("file %q leads out of the folder", s.file)
			}
		}
		for _, p := range m.packs {
			if !filepath.IsLocal(p.path(".pack")) || strings.Count(p.path(".pack"), "/") != 2 {
				t.Fatalf("file %q leads out of the folder", p.path(".pack"))
			}
		}
		for _, l := range m.logs {
			if !filepath.IsLocal(l.path()) || strings.Count(l.path(), "/") != 2 {
				t.Fatalf("file %q leads out of the folder", l.path())
			}
		}
		var again strings.Builder
		if err := m.write(&again); err != nil {
			t.Fatal(err)
		}
		if _, err := parseManifest([]byte(again.String())); err != nil {
			t.Fatalf("what was read is written as %q: %v", again.String(), err)
		}
	})
}

// withSum adds the line that a manifest ends with.
func withSum(text string) string {
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + fmt.Sprintf("sum %x\n", sha256.Sum256([]byte(text)))
}

func TestBackupOfAClosedStore(t *testing.T) {
	s := openTestStore(t, nil)
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBackupDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Abort()
	if err := s.Backup(t.Context(), b); !errors.Is(err, ErrClosed) {
		t.Errorf("Backup of a closed store = %v, want ErrClosed", err)
	}
}
