package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A saver saves one file again and again: headgate's command line into a session, and
// restic into a repository of its own, both on the same disk.
type saver struct {
	w     *workshop
	r     *repo
	image *imageFile
	last  string // the newest snapshot's id
	saves int    // sessions made so far

	restic string        // its repository
	idle   time.Duration // what restic takes for nothing, which is taken off its times
}

// newSaver makes an image, a server with a repo and a session, and a restic repository
// in which the image is already.
func (w *workshop) newSaver(ctx context.Context, name string, size int64) (*saver, error) {
	r, err := w.newSnapshotRepo(name)
	if err != nil {
		return nil, err
	}
	image, err := newImageFile(filepath.Join(w.dir, name+".img"), size, zeroShare)
	if err != nil {
		return nil, err
	}
	s := &saver{w: w, r: r, image: image}
	if err := s.begin(); err != nil {
		return nil, err
	}
	if err := s.prepareRestic(ctx); err != nil {
		return nil, err
	}
	_, err = s.save(ctx, image.path)
	return s, err
}

// begin makes a new session, in which nothing was saved.
func (s *saver) begin() error {
	s.saves++
	return s.r.begin(s.session())
}

func (s *saver) session() string { return fmt.Sprintf("saved-%d", s.saves) }

func (s *saver) data() string { return filepath.Join(s.w.dir, "data-"+s.r.name) }

func (s *saver) save(ctx context.Context, path string) (saved savedImage, err error) {
	if saved, err = s.w.snapshotSave(ctx, s.r, s.session(), path); err == nil {
		s.last = saved.SHA
	}
	return saved, err
}

func (s *saver) saveEmpty(ctx context.Context, rep int) (float64, error) {
	empty := filepath.Join(s.w.dir, "empty.img")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		return 0, err
	}
	session := fmt.Sprintf("empty-%d", rep)
	if err := s.r.begin(session); err != nil {
		return 0, err
	}
	return timed(1, func(int) error { _, err := s.w.snapshotSave(ctx, s.r, session, empty); return err })
}

// saveFirst saves the image into a session that has no snapshot.
func (s *saver) saveFirst(ctx context.Context, _ int) (float64, error) {
	if err := s.begin(); err != nil {
		return 0, err
	}
	return s.saveAgain(ctx, 0)
}

func (s *saver) saveAgain(ctx context.Context, _ int) (float64, error) {
	return timed(1, func(int) error { _, err := s.save(ctx, s.image.path); return err })
}

// saveSame saves what was saved just now.
func (s *saver) saveSame(ctx context.Context, _ int) (float64, error) {
	if _, err := s.save(ctx, s.image.path); err != nil {
		return 0, err
	}
	return timed(1, func(int) error {
		saved, err := s.save(ctx, s.image.path)
		if err == nil && saved.Status != "skipped" {
			err = fmt.Errorf("nothing had changed, and the save is %+v", saved)
		}
		return err
	})
}

// saveBoth lets both sides save the image as it is.
func (s *saver) saveBoth(ctx context.Context) error {
	if _, err := s.save(ctx, s.image.path); err != nil {
		return err
	}
	_, err := s.resticSave(ctx, 0)
	return err
}

// restore restores the newest snapshot and looks whether it is the image.
func (s *saver) restore(ctx context.Context, _ int) (float64, error) {
	if _, err := s.save(ctx, s.image.path); err != nil {
		return 0, err
	}
	to := filepath.Join(s.w.dir, "restored.img")
	defer os.Remove(to)
	perSecond, err := timed(1, func(int) error { return s.w.snapshotRestore(ctx, s.r, s.last, to) })
	if err == nil {
		err = sameFiles(s.image.path, to)
	}
	return perSecond, err
}

// copyFile copies the image, which is warm.
func (s *saver) copyFile(ctx context.Context, _ int) (float64, error) {
	to := filepath.Join(s.w.dir, "copied.img")
	defer os.Remove(to)
	if err := sameFiles(s.image.path, s.image.path); err != nil { // warms it
		return 0, err
	}
	return timed(1, func(int) error {
		_, err := output(exec.CommandContext(ctx, "cp", s.image.path, to))
		return err
	})
}

func sameFiles(a, b string) error {
	out, err := exec.Command("cmp", a, b).CombinedOutput()
	if err != nil {
		return fmt.Errorf("restored file is another: %s", bytes.TrimSpace(out))
	}
	return nil
}

// resticRun runs restic on a repository.
func (s *saver) resticRun(ctx context.Context, repository string, args ...string) error {
	cmd := exec.CommandContext(ctx, "restic", append([]string{"-q", "--repo", repository}, args...)...)
	cmd.Env = append(os.Environ(), "RESTIC_PASSWORD=bench", "RESTIC_CACHE_DIR="+filepath.Join(s.w.dir, "restic-cache"))
	_, err := output(cmd)
	return err
}

// prepareRestic makes the repository with the image in it, and finds how long restic
// takes for nothing: the median of a few.
func (s *saver) prepareRestic(ctx context.Context) error {
	s.restic = filepath.Join(s.w.dir, "restic-"+s.r.name)
	if err := s.resticRun(ctx, s.restic, "init"); err != nil {
		return err
	}
	var took []float64
	for range 5 {
		perSecond, err := s.resticEmpty(ctx, 0)
		if err != nil {
			return err
		}
		took = append(took, 1/perSecond)
	}
	s.idle = time.Duration(median(took) * float64(time.Second))
	return s.resticRun(ctx, s.restic, "backup", "--force", s.image.path)
}

func (s *saver) resticEmpty(ctx context.Context, _ int) (float64, error) {
	empty := filepath.Join(s.w.dir, "empty-folder")
	if err := os.MkdirAll(empty, 0o700); err != nil {
		return 0, err
	}
	return timed(1, func(int) error { return s.resticRun(ctx, s.restic, "backup", "--force", empty) })
}

// resticFirst saves the image into a new repository.
func (s *saver) resticFirst(ctx context.Context, rep int) (float64, error) {
	repository := filepath.Join(s.w.dir, fmt.Sprintf("restic-first-%d", rep))
	defer os.RemoveAll(repository)
	if err := s.resticRun(ctx, repository, "init"); err != nil {
		return 0, err
	}
	perSecond, err := timed(1, func(int) error { return s.resticRun(ctx, repository, "backup", "--force", s.image.path) })
	return s.withoutIdle(perSecond), err
}

func (s *saver) resticSave(ctx context.Context, _ int) (float64, error) {
	perSecond, err := timed(1, func(int) error { return s.resticRun(ctx, s.restic, "backup", "--force", s.image.path) })
	return s.withoutIdle(perSecond), err
}

// resticSame saves what was saved just now.
func (s *saver) resticSame(ctx context.Context, _ int) (float64, error) {
	if _, err := s.resticSave(ctx, 0); err != nil {
		return 0, err
	}
	return s.resticSave(ctx, 0)
}

// resticRestore restores the newest state of the image.
func (s *saver) resticRestore(ctx context.Context, _ int) (float64, error) {
	to := filepath.Join(s.w.dir, "restic-restored")
	defer os.RemoveAll(to)
	if err := s.resticRun(ctx, s.restic, "backup", "--force", s.image.path); err != nil {
		return 0, err
	}
	return timed(1, func(int) error {
		return s.resticRun(ctx, s.restic, "restore", "latest", "--target", to, "--path", s.image.path)
	})
}

// withoutIdle takes off what restic takes for nothing.
func (s *saver) withoutIdle(perSecond float64) float64 {
	return 1 / max(1/perSecond-s.idle.Seconds(), time.Millisecond.Seconds())
}

// output runs a command and gives what it said, or an error with what it complained.
func output(cmd *exec.Cmd) ([]byte, error) {
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %.500s", filepath.Base(cmd.Path), err, complaint.Bytes())
	}
	return out, err
}
