package gitstore

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// fsckAll gives what FsckAll tells of each repo, by name.
func fsckAll(t *testing.T, s *Store) map[string][]Finding {
	t.Helper()
	told := map[string][]Finding{}
	err := s.FsckAll(t.Context(), nil, func(r RepoInfo, found []Finding) error {
		told[r.Org+"/"+r.Name] = found
		return nil
	})
	if err != nil {
		t.Fatalf("FsckAll: %v", err)
	}
	return told
}

func wantFound(t *testing.T, found []Finding, kind FindingKind, subject string) {
	t.Helper()
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.Kind == kind && f.Subject == subject }) {
		t.Errorf("fsck found %v, want %s %s", found, kind, subject)
	}
}

// glob gives the files of a repo that match.
func (p *patient) glob(pattern string) []string {
	p.t.Helper()
	names, err := filepath.Glob(filepath.Join(p.r.dir.Root(), pattern))
	if err != nil || len(names) == 0 {
		p.t.Fatalf("Glob(%s) = %v, %v, want some", pattern, names, err)
	}
	return names
}

func (p *patient) removeAll(pattern string) {
	p.t.Helper()
	for _, name := range p.glob(pattern) {
		if err := os.Remove(name); err != nil {
			p.t.Fatalf("Remove: %v", err)
		}
	}
}

// fresh opens the store of a patient anew, as it stands on disk. The one before is closed.
func (p *patient) fresh(fill func(*Options)) *Store {
	p.t.Helper()
	if err := p.s.Close(context.Background()); err != nil {
		p.t.Fatalf("Close: %v", err)
	}
	o := Options{Dir: p.s.dir, Ledger: p.r.ledger, Logger: quiet}
	if fill != nil {
		fill(&o)
	}
	s, err := Open(p.t.Context(), o)
	if err != nil {
		p.t.Fatalf("Open: %v", err)
	}
	p.t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// A repo that the ledger has is named when its folder is gone, and the others are still
// looked at.
func TestFsckAllNamesARepoWithoutFolder(t *testing.T) {
	p := newPatient(t)
	if _, err := p.s.CreateRepo(t.Context(), someone, "other", "sound", "main", nil); err != nil {
		t.Fatalf("CreateRepo: %v", err)
	}
	aside := p.r.dir.Root() + ".aside"
	if err := os.Rename(p.r.dir.Root(), aside); err != nil {
		t.Fatalf("Rename: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Rename(aside, p.r.dir.Root()); err != nil {
			t.Errorf("Rename back: %v", err)
		}
	})
	told := fsckAll(t, p.s)
	wantFound(t, told["acme/repo"], FindRepoMissing, p.r.id)
	if found, ok := told["other/sound"]; !ok || len(found) > 0 {
		t.Errorf("fsck told %v of the sound repo (%v), want nothing", found, ok)
	}
}

func TestFsckAllNamesWhatAFolderLacks(t *testing.T) {
	for _, part := range []string{"config", "HEAD", "refs"} {
		t.Run(part, func(t *testing.T) {
			p := newPatient(t)
			if err := os.Remove(filepath.Join(p.r.dir.Root(), part)); err != nil {
				t.Fatalf("Remove: %v", err)
			}
			wantFound(t, fsckAll(t, p.s)["acme/repo"], FindRepoIncomplete, part)
			if _, err := os.Stat(filepath.Join(p.r.dir.Root(), part)); err == nil {
				t.Errorf("fsck made %s again, want it to change nothing", part)
			}
			if reports, err := p.s.GC(t.Context(), nil, false); err != nil || len(reports) != 1 {
				t.Fatalf("GC = %d reports, %v, want 1", len(reports), err)
			}
			if found := fsckAll(t, p.s)["acme/repo"]; len(found) > 0 {
				t.Errorf("fsck after gc found %v, want nothing", found)
			}
		})
	}
}

// A repo whose config is gone is opened all the same, and has one again; not by who
// only looks.
func TestOpenMendsAFolderWithoutConfig(t *testing.T) {
	p := newPatient(t)
	config := filepath.Join(p.r.dir.Root(), "config")
	want, err := os.ReadFile(config)
	if err != nil {
		t.Fatalf("ReadFile: %v", err)
	}
	p.removeAll("config")
	looking := p.fresh(func(o *Options) { o.Looking = true })
	wantFound(t, fsckAll(t, looking)["acme/repo"], FindRepoIncomplete, "config")
	if _, err := os.Stat(config); err == nil {
		t.Error("a store that only looks wrote a config")
	}
	p.s = looking
	s := p.fresh(nil)
	if _, err := s.Repo(t.Context(), "acme", "repo"); err != nil {
		t.Fatalf("Repo: %v", err)
	}
	if got, err := os.ReadFile(config); err != nil || !bytes.Equal(got, want) {
		t.Errorf("config is %q, %v, want %q", got, err, want)
	}
}

func TestFsckAllNamesAnUnknownFolder(t *testing.T) {
	p := newPatient(t)
	id := "repo_00000000000000000000000000000000"
	if err := os.MkdirAll(filepath.Join(p.s.repoDir(id), "packs"), 0o755); err != nil {
		t.Fatalf("MkdirAll: %v", err)
	}
	told := fsckAll(t, p.s)
	wantFound(t, told["/"+id], FindRepoUnknown, id)
	if found := told["acme/repo"]; len(found) > 0 {
		t.Errorf("fsck told %v of a sound repo, want nothing", found)
	}
}

func TestFsckAllNamesARepoWithoutRecord(t *testing.T) {
	p := newPatient(t)
	raw := p.get(metaKey)
	p.set(metaKey, nil)
	wantFound(t, fsckAll(t, p.s)["acme/repo"], FindRepoRecord, p.r.id)
	p.set(metaKey, raw)
}

// What is open says nothing of what is on disk. What is lost is brought back by upkeep
// as long as another link is left.
func TestFsckOfAnOpenRepoLooksAtTheDisk(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		kind  FindingKind
		heals bool
	}{
		{"packs", []string{"packs/*.pack"}, FindPackMissing, true},
		{"idx", []string{"packs/*.idx"}, FindPackMissing, true},
		{"both", []string{"packs/*.pack", "packs/*.idx"}, FindPackMissing, true},
		{"links", []string{"objects/pack/*"}, FindPackUnlinked, true},
		{"link of the pack", []string{"objects/pack/*.pack"}, FindPackUnlinked, true},
		{"all but the index's", []string{"packs/*.pack", "packs/*.idx", "objects/pack/*"}, FindPackMissing, true},
		{"everywhere", []string{"packs/*.pack", "objects/pack/*.pack", "indexes/*/pack/*.pack"}, FindPackMissing, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPatient(t)
			if _, err := p.s.GC(t.Context(), nil, true); err != nil {
				t.Fatalf("GC: %v", err)
			}
			if found := fsckAll(t, p.s)["acme/repo"]; len(found) > 0 {
				t.Fatalf("fsck of a sound repo found %v", found)
			}
			name := p.pack()
			for _, pattern := range c.files {
				p.removeAll(pattern)
			}
			wantFound(t, fsckAll(t, p.s)["acme/repo"], c.kind, name)
			wantFound(t, fsckAll(t, p.s)["acme/repo"], c.kind, name) // it has changed nothing
			_, err := p.s.GC(t.Context(), nil, true)
			found := fsckAll(t, p.s)["acme/repo"]
			if c.heals && (err != nil || len(found) > 0) {
				t.Errorf("gc = %v, fsck after it found %v, want nothing", err, found)
			}
			if !c.heals {
				wantFound(t, found, c.kind, name)
			}
		})
	}
}

// A reader that opens a repo brings back what it finds lost.
func TestReaderBringsBackAPack(t *testing.T) {
	p := newPatient(t)
	p.removeAll("packs/*.pack")
	s := p.fresh(nil)
	r, err := s.Repo(t.Context(), "acme", "repo")
	if err != nil {
		t.Fatalf("Repo: %v", err)
	}
	wantReadable(t, r, p.commit, true)
	p.glob("packs/*.pack")
}

// A link that is not what the record says is not taken for the pack.
func TestUpkeepBringsBackNoOtherFile(t *testing.T) {
	p := newPatient(t)
	lost := p.file(".pack")
	p.removeAll("packs/*.pack")
	link := p.glob("objects/pack/*.pack")[0]
	data, err := os.ReadFile(link)
	if err != nil {
		t.Fatalf("ReadFile: %v", err)
	}
	data[len(data)/2] ^= 0x5a
	if err := os.WriteFile(link, data, 0o644); err != nil {
		t.Fatalf("WriteFile: %v", err)
	}
	_, _ = p.s.GC(t.Context(), nil, true) // it says that a pack is lost, or that an object is broken
	if _, err := os.Stat(lost); err == nil {
		t.Errorf("gc brought back %s from a damaged link", filepath.Base(lost))
	}
}

func TestFsckNamesAReplacedPack(t *testing.T) {
	p := newPatient(t)
	if found := fsckAll(t, p.s)["acme/repo"]; len(found) > 0 {
		t.Fatalf("fsck of a sound repo found %v", found)
	}
	if p.r.packNames() == nil {
		t.Fatal("the repo has no packs")
	}
	wantReadable(t, p.r, p.commit, true) // opens it
	name := p.file(".pack")
	data, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name+".copy", data, 0o644)
	}
	if err == nil {
		err = os.Rename(name+".copy", name)
	}
	if err != nil {
		t.Fatalf("replace: %v", err)
	}
	wantFound(t, fsckAll(t, p.s)["acme/repo"], FindPackReplaced, p.pack())
}

// Much damage is told once for each thing, and not logged for each.
func TestFsckTellsEachThingOnce(t *testing.T) {
	var logged bytes.Buffer
	p := newPatient(t)
	p.r.store.log = slog.New(slog.NewTextHandler(&logged, nil))
	// Hot commits that lead to the same packed tree.
	for _, target := range []refpolicy.RefName{sessionB, "refs/heads/x", "refs/heads/y"} {
		mustCommit(t, p.r, someone, testCommit{target: target, base: mainRef, files: map[string]string{"a": string(target)}})
	}
	p.removeAll("packs/*.pack")
	p.removeAll("objects/pack/*.pack")
	p.r.dir.Forget(p.pack())
	seen := map[[2]string]bool{}
	for _, f := range fsckAll(t, p.s)["acme/repo"] {
		key := [2]string{string(f.Kind), f.Subject}
		if seen[key] && (f.Kind == FindObjectMissing || f.Kind == FindPackMissing) {
			t.Errorf("fsck told %s %s twice", f.Kind, f.Subject)
		}
		seen[key] = true
	}
	if n := strings.Count(logged.String(), "link pack"); n > 1 {
		t.Errorf("fsck logged %d lines about one lost pack, want 1 at most:\n%s", n, logged.String())
	}
}

func TestFindingsAreBounded(t *testing.T) {
	var f fsck
	for i := range maxFindings + 7 {
		f.find(FindRef, string(rune(i)), "wrong")
	}
	all := f.all()
	if last := all[len(all)-1]; len(all) != maxFindings+1 || last.Detail != "and 7 more" {
		t.Errorf("%d findings, the last %v, want %d and the number of the rest", len(all), last, maxFindings+1)
	}
}
