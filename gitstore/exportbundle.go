package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/gitstore/gitcmd"
)

// ExportBundle writes a repo as a git bundle of all refs under their stored names,
// pins as Export has them, with all they lead to. A repo without any is ErrEmptyRepo.
func (s *Store) ExportBundle(ctx context.Context, r *Repo, w io.Writer) error {
	ctx, end, err := s.work(ctx)
	if err != nil {
		return err
	}
	defer end()
	out := &tally{w: w}
	for try := 1; ; try++ {
		err := r.bundle(ctx, out)
		// A ref that was pruned away meanwhile makes git give up before it writes the
		// pack; once anything is out there is no beginning again.
		var exit *gitcmd.ExitError
		if err == nil || !errors.As(err, &exit) || out.n > 0 || try == exportTries {
			if err != nil {
				err = r.orGone(fmt.Errorf("export bundle of %s: %w", r.Info().Name, err))
			}
			return err
		}
	}
}

// tally knows whether anything was written.
type tally struct {
	w io.Writer
	n int64
}

func (c *tally) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (r *Repo) bundle(ctx context.Context, w io.Writer) error {
	view, err := r.store.writeView(nil)
	if err != nil {
		return err
	}
	defer view.remove()
	refs := filepath.Join(view.dir, "packed-refs")
	if err := r.writePackedRefs(ctx, refs); err != nil {
		return err
	}
	head := []byte("ref: " + string(r.head()) + "\n")
	if err := os.WriteFile(filepath.Join(view.dir, "HEAD"), head, 0o644); err != nil {
		return err
	}
	if info, err := os.Stat(refs); err != nil || info.Size() <= int64(len(packedRefsHead)) {
		return errors.Join(err, ErrEmptyRepo)
	}
	objects, alternates, release, err := r.gitObjects(ctx)
	if err != nil {
		return err
	}
	defer release()
	return r.store.git.Run(ctx, gitcmd.Cmd{
		Args:   []string{"bundle", "create", "-q", "-", "--all"},
		GitDir: view.dir, ObjectDir: objects, Alternates: alternates,
		Stdout: w, Timeout: transferTimeout, Low: true,
	})
}
