package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/headgate/headgate/gitstore/packs"
)

// ExportFiles makes the repository that Export makes, in a place of its own, and calls
// send with each file of it but the config: its name in the repository and its bytes.
// An ExportDir puts them together elsewhere.
func (s *Store) ExportFiles(ctx context.Context, r *Repo, send func(name string, body io.Reader) error) error {
	tmp, err := os.MkdirTemp(s.scratch.path, "export-")
	if err != nil {
		return fmt.Errorf("export %s: %w", r.Info().Name, err)
	}
	defer os.RemoveAll(tmp)
	dir := filepath.Join(tmp, "repo")
	if err := s.Export(ctx, r, dir); err != nil {
		return err
	}
	names, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "pack-*"))
	if err != nil {
		return err
	}
	for _, path := range append(names, filepath.Join(dir, "packed-refs"), filepath.Join(dir, "HEAD")) {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := sendFile(dir, path, send); err != nil {
			return fmt.Errorf("export %s: %w", r.Info().Name, err)
		}
	}
	return nil
}

func sendFile(dir, path string, send func(string, io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	return send(filepath.ToSlash(name), f)
}

// exportNames are the only files that an ExportDir takes. The config is not among
// them: git runs what a config says.
var exportNames = regexp.MustCompile(`^(packed-refs|HEAD|objects/pack/pack-[0-9a-f]{40}\.(pack|idx|rev))$`)

var exportHead = regexp.MustCompile(`^ref: refs/heads/[^\x00-\x20\x7f~^:?*\[\\]+\n$`)

// An ExportDir puts together a plain bare repository from files that ExportFiles has
// sent, whoever they come from: no name leads out of the folder, and nothing in it
// makes git run anything.
type ExportDir struct {
	dir  string
	head []byte // written last: without it git takes no folder for a repository
}

// NewExportDir makes a folder, which must not exist. Errors: ErrInvalid.
func NewExportDir(dir string) (*ExportDir, error) {
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return nil, invalidf("%s exists", dir)
	}
	for _, d := range []string{"", "refs", "objects", "objects/info", "objects/pack"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	e := &ExportDir{dir: dir}
	return e, e.File("config", strings.NewReader(exportConfig))
}

// File writes one file, durably. Errors: ErrInvalid for a name or a HEAD that an
// export does not have, or a file that came before.
func (e *ExportDir) File(name string, body io.Reader) (err error) {
	if name != "config" && !exportNames.MatchString(name) {
		return invalidf("a file %.100q is no part of an export", name)
	}
	if name == "HEAD" {
		e.head, err = io.ReadAll(io.LimitReader(body, 4<<10))
		if err == nil && !exportHead.Match(e.head) {
			err = invalidf("HEAD holds %.100q", e.head)
		}
		return err
	}
	f, err := os.OpenFile(filepath.Join(e.dir, filepath.FromSlash(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return invalidf("file %.100q comes twice", name)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(f, body)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Finish makes the folder a repository.
func (e *ExportDir) Finish() error {
	if e.head == nil {
		return invalidf("the export has no HEAD")
	}
	path := filepath.Join(e.dir, "HEAD")
	if err := os.WriteFile(path, e.head, 0o644); err != nil {
		return err
	}
	return errors.Join(syncFile(path), packs.OS{}.SyncDir(filepath.Join(e.dir, "objects", "pack")), packs.OS{}.SyncDir(e.dir))
}

// Abort removes what was written.
func (e *ExportDir) Abort() error { return os.RemoveAll(e.dir) }
