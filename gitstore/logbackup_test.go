package gitstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// oldLogs is a store with a repo of whose log a part is in files, and its tip.
func oldLogs(t *testing.T) (*Store, *Repo, refpolicy.OID) {
	t.Helper()
	s := openTestStore(t, func(o *Options) { o.Logger, o.Limits.UpkeepEvery = quiet, -1 })
	s.segmentEntries = 4
	r := newTestRepo(t, s, "repo")
	var tip refpolicy.OID
	for n := range 10 {
		tip = mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": fmt.Sprint(n)}}).Commit
	}
	moveLog(t, r)
	mustCommit(t, r, someone, testCommit{target: "refs/heads/more", base: mainRef, files: map[string]string{"a": "more"}})
	return s, r, tip
}

// moveLog moves the whole log of a repo into files.
func moveLog(t testing.TB, r *Repo) {
	t.Helper()
	age := r.store.limits.LogAge
	defer func() { r.store.limits.LogAge = age }()
	r.store.limits.LogAge = time.Nanosecond
	if err := r.tendLog(t.Context()); err != nil {
		t.Fatalf("tendLog: %v", err)
	}
}

// logFiles are the files of a repo's old log, oldest first.
func logFiles(t testing.TB, r *Repo) (paths []string) {
	t.Helper()
	files, err := r.store.segmentFiles(r.id)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		paths = append(paths, filepath.Join(r.store.segmentDir(r.id), f.Name()))
	}
	return paths
}

func TestBackupTakesOldLogs(t *testing.T) {
	s, r, tip := oldLogs(t)
	dir := filepath.Join(t.TempDir(), "backup")
	backupTo(t, s, dir, nil)
	copied := 0
	count := func(b *BackupDir) BackupSink {
		return meanwhile{b, func(f BackupFile) {
			if f.Kind == BackupLog {
				copied++
			}
		}}
	}
	moveLog(t, r)
	backupTo(t, s, dir, count)
	if copied != 1 {
		t.Errorf("a second backup copied %d parts of the log, want the one that is new", copied)
	}
	want := allEvents(t, r, someone, EventQuery{})
	back := restored(t, dir)
	wantSound(t, back, "repo", mainRef, tip)
	rr, err := back.Repo(t.Context(), "acme", "repo")
	if err != nil {
		t.Fatal(err)
	}
	if got := allEvents(t, rr, someone, EventQuery{}); fmt.Sprint(got) != fmt.Sprint(want) || len(got) != 11 {
		t.Errorf("the restored repo tells %s, want %s", typesOf(got), typesOf(want))
	}
	mustCommit(t, rr, someone, testCommit{target: mainRef, files: map[string]string{"a": "x"}})
	moveLog(t, rr)
	if got := allEvents(t, rr, someone, EventQuery{}); len(got) != 12 {
		t.Errorf("after going on the restored repo tells %s", typesOf(got))
	}
	s.limits.LogArchiveAge = time.Nanosecond
	if err := r.tendLog(t.Context()); err != nil {
		t.Fatal(err)
	}
	backupTo(t, s, dir, nil)
	for _, f := range filesOf(t, dir) {
		if strings.HasSuffix(f, segmentEnding) {
			t.Errorf("a backup without old log leaves %s", f)
		}
	}
}

// A part of a log that is damaged in the backup is refused, and one that is damaged in
// the store ends the backup; both with its name.
func TestBackupRefusesDamagedLogs(t *testing.T) {
	s, r, tip := oldLogs(t)
	dir := filepath.Join(t.TempDir(), "backup")
	backupTo(t, s, dir, nil)
	tried := 0
	for _, name := range filesOf(t, dir) {
		if !strings.HasSuffix(name, segmentEnding) {
			continue
		}
		tried++
		path := filepath.Join(dir, name)
		whole := mustRead(t, path)
		flipped := slices.Clone(whole)
		flipped[rand.IntN(len(whole))] ^= 1 << rand.IntN(8)
		for what, bytes := range map[string][]byte{"cut": whole[:rand.IntN(len(whole))], "flipped": flipped, "longer": append(slices.Clone(whole), 0)} {
			mustWrite(t, path, bytes)
			refuses(t, dir, name, what)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		refuses(t, dir, name, "away")
		mustWrite(t, path, whole)
	}
	if tried != 3 {
		t.Fatalf("%d parts of the log in the backup, want 3", tried)
	}
	wantSound(t, restored(t, dir), "repo", mainRef, tip)
	path := logFiles(t, r)[1]
	whole := mustRead(t, path)
	for _, what := range []string{"cut", "away"} {
		if what == "cut" {
			mustWrite(t, path, whole[:len(whole)/2])
		} else if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		b, err := OpenBackupDir(filepath.Join(t.TempDir(), "other"))
		if err != nil {
			t.Fatal(err)
		}
		err = s.Backup(t.Context(), b)
		b.Abort()
		if name := strings.TrimSuffix(filepath.Base(path), segmentEnding); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: Backup = %v, want an error that names %s", what, err, name)
		}
	}
	mustWrite(t, path, whole)
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustWrite(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Parts that are too old and removed while they are to be copied are no loss.
func TestBackupWhileOldLogsAreRemoved(t *testing.T) {
	s, r, tip := oldLogs(t)
	dir := filepath.Join(t.TempDir(), "backup")
	removed := false
	backupTo(t, s, dir, func(b *BackupDir) BackupSink {
		return meanwhile{b, func(f BackupFile) {
			if f.Kind == BackupLog && !removed {
				removed = true
				s.limits.LogArchiveAge = time.Nanosecond
				if err := r.tendLog(t.Context()); err != nil {
					t.Errorf("tendLog: %v", err)
				}
			}
		}}
	})
	if !removed {
		t.Error("no part of the log was copied")
	}
	wantSound(t, restored(t, dir), "repo", mainRef, tip)
}

func TestFsckNamesDamagedLogs(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, r *Repo, files []string)
		want   string // kinds, in order
	}{
		{"sound", func(*testing.T, *Repo, []string) {}, ""},
		{"cut", func(t *testing.T, _ *Repo, files []string) { mustWrite(t, files[0], mustRead(t, files[0])[:50]) }, "log-broken"},
		{"of others", func(t *testing.T, _ *Repo, files []string) { mustWrite(t, files[0], mustRead(t, files[1])) }, "log-broken"},
		{"away", func(t *testing.T, _ *Repo, files []string) {
			if err := os.Remove(files[1]); err != nil {
				t.Fatal(err)
			}
		}, "log-missing"},
		{"a stranger", func(t *testing.T, _ *Repo, files []string) {
			mustWrite(t, strings.Replace(files[0], "-0000", "-0001", 1), nil)
		}, "log-unknown"},
		{"half written", func(t *testing.T, _ *Repo, files []string) {
			mustWrite(t, filepath.Join(filepath.Dir(files[0]), segmentIncoming+"x"), nil)
		}, ""},
		{"a record away", func(t *testing.T, r *Repo, _ []string) { deleteKey(t, r, segmentKey(8)) }, "log-gap log-unknown"},
		{"the last record away", func(t *testing.T, r *Repo, _ []string) { deleteKey(t, r, segmentKey(10)) }, "log-gap log-unknown"},
		{"a record of no form", func(t *testing.T, r *Repo, _ []string) { setKey(t, r, segmentKey(4), []byte("{")) }, "log-record"},
		{"entries dropped", func(t *testing.T, r *Repo, _ []string) {
			if err := r.ledger.TrimLog(t.Context(), r.space, 12); err != nil {
				t.Fatal(err)
			}
		}, "log-gap"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, r, _ := oldLogs(t)
			tc.damage(t, r, logFiles(t, r))
			found, err := s.Fsck(t.Context(), r)
			if err != nil {
				t.Fatalf("Fsck: %v", err)
			}
			var kinds []string
			for _, f := range found {
				kinds = append(kinds, string(f.Kind))
			}
			if got := strings.Join(kinds, " "); got != tc.want {
				t.Errorf("Fsck = %v, want %q", found, tc.want)
			}
		})
	}
}

// A reader whose part of the log is lost is told how things stand, and not nothing.
func TestLostLogGivesResync(t *testing.T) {
	s, r, _ := oldLogs(t)
	mustWrite(t, logFiles(t, r)[1], nil)
	s.segments.drop(strings.TrimSuffix(filepath.Base(logFiles(t, r)[1]), segmentEnding))
	if got := typesOf(allEvents(t, r, someone, EventQuery{})); !strings.HasPrefix(got, "1:ref.updated 2:ref.updated") || !strings.HasSuffix(got, "4:ref.updated 11:resync") {
		t.Errorf("events = %s, want 1 to 4 and a resync", got)
	}
	if got := typesOf(allEvents(t, r, someone, EventQuery{After: 8})); got != "9:ref.updated 10:ref.updated 11:ref.updated" {
		t.Errorf("events after the lost part = %s, want 9 to 11", got)
	}
}

// A deleted repo leaves nothing of its log, also when a part is just being made.
func TestDeleteRepoTakesItsLog(t *testing.T) {
	s, r, _ := oldLogs(t)
	dir := s.repoDir(r.id)
	w, err := s.newSegment(r.id, 11)
	if err != nil {
		t.Fatal(err)
	}
	st, err := r.logState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeleteRepo(t.Context(), someone, "acme", "repo", nil); err != nil {
		t.Fatalf("DeleteRepo: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder of a deleted repo: %v, want none", err)
	}
	w.close()
	if ok, err := r.registerSegment(t.Context(), st, segmentRecord{Name: "log", First: 11, Last: 11}); ok {
		t.Errorf("a part of a deleted repo's log was registered (%v)", err)
	}
	if n := countKeys(t, r, segmentKeys); n != 0 {
		t.Errorf("%d parts on record of a deleted repo", n)
	}
}

func setKey(t testing.TB, r *Repo, key string, value []byte) {
	t.Helper()
	if _, err := r.ledger.Apply(t.Context(), ledger.Batch{Space: r.space, Sets: []ledger.Set{{Key: key, Value: value}}}); err != nil {
		t.Fatal(err)
	}
}

func deleteKey(t testing.TB, r *Repo, key string) {
	t.Helper()
	if _, err := r.ledger.Apply(t.Context(), ledger.Batch{Space: r.space, Deletes: []string{key}}); err != nil {
		t.Fatal(err)
	}
}
