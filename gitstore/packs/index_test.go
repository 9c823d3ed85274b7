package packs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// indexedDir is a folder with two packs and an index that git has written over them.
func indexedDir(t *testing.T) (d *Dir, name string, packNames []string, files []IndexFile) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "repo")
	if err := CreateDir(root, Options{}); err != nil {
		t.Fatalf("CreateDir: %v", err)
	}
	d, err := Open(root, Options{})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { d.Close() })
	for _, text := range []string{"one", "two"} {
		w, err := d.NewWriter(t.Context())
		if err != nil {
			t.Fatalf("NewWriter: %v", err)
		}
		if _, _, err := w.AddStream(Blob, int64(len(text)), strings.NewReader(text)); err != nil {
			t.Fatalf("AddStream: %v", err)
		}
		info, err := w.Finish()
		if err != nil {
			t.Fatalf("Finish: %v", err)
		}
		packNames = append(packNames, info.Name)
	}
	if name, err = d.NewIndex(packNames); err != nil {
		t.Fatalf("NewIndex: %v", err)
	}
	cmd := exec.Command("git", "multi-pack-index", "write")
	cmd.Env = append(os.Environ(), "GIT_DIR="+root, "GIT_OBJECT_DIRECTORY="+d.IndexPath(name))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git multi-pack-index write: %v: %s", err, out)
	}
	if files, err = d.SealIndex(name); err != nil || len(files) != 1 || files[0].Name != midxName {
		t.Fatalf("SealIndex = %v, %v; want the multi-pack-index", files, err)
	}
	return d, name, packNames, files
}

func TestIndexFolder(t *testing.T) {
	d, name, packNames, files := indexedDir(t)
	if err := d.VerifyIndex(name, packNames, files); err != nil {
		t.Errorf("VerifyIndex: %v", err)
	}
	got, err := d.IndexedPacks(name)
	if want := slices.Sorted(slices.Values(packNames)); err != nil || !slices.Equal(got, want) {
		t.Errorf("IndexedPacks = %v, %v; want %v", got, err, want)
	}
	stamp, err := d.StampIndex(name, files)
	if err != nil {
		t.Errorf("StampIndex: %v", err)
	}
	// The packs of an index outlive their own removal.
	for _, pack := range packNames {
		if err := d.Remove(pack); err != nil {
			t.Fatalf("Remove: %v", err)
		}
	}
	if again, err := d.StampIndex(name, files); err != nil || again != stamp {
		t.Errorf("StampIndex after packs were removed = %q, %v; want %q", again, err, stamp)
	}
	if err := d.VerifyIndex(name, packNames, files); err != nil {
		t.Errorf("VerifyIndex after packs were removed: %v", err)
	}
	if _, err := d.NewIndex(packNames); !errors.Is(err, ErrPackMissing) {
		t.Errorf("NewIndex over removed packs = %v, want ErrPackMissing", err)
	}
	if names, err := d.Indexes(); err != nil || len(names) != 1 || names[0] != name {
		t.Errorf("Indexes = %v, %v; want %s alone", names, err, name)
	}
	for grace, want := range map[time.Duration]bool{time.Hour: false, -time.Hour: true} {
		if idle, err := d.IndexUntouched(name, grace); err != nil || idle != want {
			t.Errorf("IndexUntouched(%s) = %v, %v; want %v", grace, idle, err, want)
		}
	}
	for range 2 {
		if err := d.RemoveIndex(name); err != nil {
			t.Errorf("RemoveIndex: %v", err)
		}
	}
	if names, err := d.Indexes(); err != nil || len(names) != 0 {
		t.Errorf("Indexes after RemoveIndex = %v, %v; want none", names, err)
	}
	if _, err := d.StampIndex(name, files); !errors.Is(err, ErrIndexBroken) {
		t.Errorf("StampIndex of what is gone = %v, want ErrIndexBroken", err)
	}
}

func TestIndexNamesAreChecked(t *testing.T) {
	d, name, packNames, files := indexedDir(t)
	for _, bad := range []string{"", "..", "index-../../packs", "pack-" + strings.Repeat("0", 40), "index-" + strings.Repeat("A", 40)} {
		_, ierr := d.IndexedPacks(bad)
		_, uerr := d.IndexUntouched(bad, 0)
		for what, err := range map[string]error{
			"RemoveIndex": d.RemoveIndex(bad), "VerifyIndex": d.VerifyIndex(bad, packNames, files), "IndexedPacks": ierr, "IndexUntouched": uerr,
		} {
			if !errors.Is(err, ErrBadName) {
				t.Errorf("%s(%q) = %v, want ErrBadName", what, bad, err)
			}
		}
	}
	if err := d.VerifyIndex(name, packNames, []IndexFile{{Name: "../../config"}}); !errors.Is(err, ErrBadName) {
		t.Errorf("VerifyIndex with a file outside = %v, want ErrBadName", err)
	}
	if err := d.LinkInto(d.IndexPath(name), "../config"); !errors.Is(err, ErrBadName) {
		t.Errorf("LinkInto of no pack = %v, want ErrBadName", err)
	}
}

func FuzzMidxNames(f *testing.F) {
	entry := func(id string, at int) []byte { return binary.BigEndian.AppendUint64([]byte(id), uint64(at)) }
	names := "pack-" + strings.Repeat("ab", 20) + ".idx\x00\x00\x00"
	whole := slices.Concat([]byte("MIDX\x01\x01\x01\x00\x00\x00\x00\x01"), entry("PNAM", 36), entry("\x00\x00\x00\x00", 36+len(names)), []byte(names))
	if got, err := midxNames(bytes.NewReader(whole), int64(len(whole))); err != nil || len(got) != 1 {
		f.Fatalf("midxNames of a whole one = %v, %v", got, err)
	}
	f.Add(whole)
	f.Add(whole[:40])
	f.Add([]byte("MIDX"))
	f.Add(slices.Concat(whole[:8], []byte("\xff\xff\xff\xff"), whole[12:]))
	f.Add(slices.Concat(whole[:16], []byte("\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"), whole[28:]))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := midxNames(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, name := range got {
			if CheckName(name) != nil {
				t.Errorf("midxNames gave %q", name)
			}
		}
		if uint32(len(got)) != binary.BigEndian.Uint32(b[8:]) {
			t.Errorf("midxNames gave %d names, header says %d", len(got), binary.BigEndian.Uint32(b[8:]))
		}
	})
}
