package packs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestMendDirMakesWhatIsLacking(t *testing.T) {
	for _, part := range parts() {
		t.Run(part, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "repo")
			if err := CreateDir(root, Options{}); err != nil {
				t.Fatalf("CreateDir: %v", err)
			}
			if err := os.RemoveAll(filepath.Join(root, part)); err != nil {
				t.Fatalf("RemoveAll: %v", err)
			}
			lacking, err := CheckDir(root, Options{})
			if err != nil || !slices.Contains(lacking, part) {
				t.Fatalf("CheckDir = %v, %v, want %s", lacking, err, part)
			}
			if mended, err := MendDir(root, Options{}); err != nil || !slices.Equal(mended, lacking) {
				t.Errorf("MendDir = %v, %v, want %v", mended, err, lacking)
			}
			if lacking, err := CheckDir(root, Options{}); err != nil || len(lacking) > 0 {
				t.Errorf("CheckDir after MendDir = %v, %v, want nothing", lacking, err)
			}
			if text, ok := files[part]; ok {
				if got, err := os.ReadFile(filepath.Join(root, part)); err != nil || string(got) != text {
					t.Errorf("%s is %q, %v, want %q", part, got, err, text)
				}
			}
		})
	}
}

// Where there is no folder there is no repository to be made up.
func TestMendDirMakesNoFolder(t *testing.T) {
	root := filepath.Join(t.TempDir(), "repo")
	if _, err := MendDir(root, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("MendDir = %v, want fs.ErrNotExist", err)
	}
	if _, err := os.Stat(root); err == nil {
		t.Error("MendDir made a folder")
	}
}
