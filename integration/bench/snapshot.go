package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// snapshotSettings lift what would stop a measurement, and have merged packs removed
// before they fill the disk.
const snapshotSettings = settings + "pack_grace = \"30s\"\n[snapshots]\ncap_bytes = -1\n"

// snapshotRows measures saving and restoring memory images. What they need is made when
// the first of a kind is measured.
func snapshotRows(ctx context.Context, w *workshop) ([]row, error) {
	if _, err := exec.LookPath("restic"); err != nil {
		return nil, fmt.Errorf("restic is needed to measure beside: %w", err)
	}
	return append(append(w.savedRows(ctx), w.agedRows(ctx)...), w.fourRows(ctx)...), nil
}

// savedRows measure one large image beside restic, and beside cp.
func (w *workshop) savedRows(ctx context.Context) []row {
	l := &lazySaver{}
	l.made = sync.OnceValues(func() (*saver, error) { return w.newSaver(ctx, "image", int64(w.image)<<20) })
	size := fmt.Sprintf("%d MiB memory image, %.0f%% zero pages", w.image, 100*zeroShare)
	const force = "restic backup --force, less what it takes for an empty folder"
	return []row{
		{name: "snapshot-empty", work: "save an empty file", reference: "restic backup of an empty folder", figure: perOperation, ours: l.do((*saver).saveEmpty), theirs: l.do((*saver).resticEmpty)},
		{name: "snapshot-first", work: "first save of a " + size, reference: force + ", into a new repository", goal: 2, figure: perOperation, ours: l.do((*saver).saveFirst), theirs: l.do((*saver).resticFirst)},
		l.againRow("clustered", snapshottest.Clustered, 3),
		l.storedRow("clustered", snapshottest.Clustered, 1.3),
		l.againRow("scattered", snapshottest.Scattered, 3),
		l.storedRow("scattered", snapshottest.Scattered, 4),
		{name: "snapshot-again-same", work: "save it again, nothing changed: skipped", reference: force, goal: 5, figure: perOperation, ours: l.do((*saver).saveSame), theirs: l.do((*saver).resticSame)},
		{name: "snapshot-restore", work: "restore it into a new file", reference: "restic restore", goal: 2, figure: perOperation, ours: l.do((*saver).restore), theirs: l.do((*saver).resticRestore)},
		{name: "snapshot-restore-cp", work: "restore it into a new file, warm", reference: "cp of the image, warm", goal: 0.6, figure: perOperation, ours: l.do((*saver).restore), theirs: l.do((*saver).copyFile)},
	}
}

// A lazySaver is a saver that is made when it is first used.
type lazySaver struct {
	made func() (*saver, error)
}

func (l *lazySaver) do(step func(*saver, context.Context, int) (float64, error)) side {
	return func(ctx context.Context, rep int) (float64, error) {
		s, err := l.made()
		if err != nil {
			return 0, err
		}
		return step(s, ctx, rep)
	}
}

// againRow measures a save after one page in a hundred has changed. The first of both
// sides changes them.
func (l *lazySaver) againRow(name string, how snapshottest.How, goal float64) row {
	changed := -1
	after := func(save func(*saver, context.Context, int) (float64, error)) side {
		return l.do(func(s *saver, ctx context.Context, rep int) (float64, error) {
			if changed < 0 { // both know what there is
				if err := s.saveBoth(ctx); err != nil {
					return 0, err
				}
			}
			if rep != changed {
				if err := s.image.change(how); err != nil {
					return 0, err
				}
				changed = rep
			}
			return save(s, ctx, rep)
		})
	}
	return row{
		name: "snapshot-again-" + name, work: "save it again, 1% of its pages changed, " + name, reference: "restic backup --force, less what it takes for an empty folder",
		goal: goal, figure: perOperation, ours: after((*saver).saveAgain), theirs: after((*saver).resticSave),
	}
}

// storedRow tells by how much the packs grow for a save after one page in a hundred has
// changed, beside the bytes of those pages.
func (l *lazySaver) storedRow(name string, how snapshottest.How, most float64) row {
	var changed int64
	ours := l.do(func(s *saver, ctx context.Context, _ int) (float64, error) {
		if err := s.image.change(how); err != nil {
			return 0, err
		}
		changed = s.image.changed
		before, err := packBytes(s.data())
		if err != nil {
			return 0, err
		}
		if _, err := s.save(ctx, s.image.path); err != nil {
			return 0, err
		}
		after, err := packBytes(s.data())
		return 1 / float64(after-before), err
	})
	theirs := l.do(func(s *saver, _ context.Context, _ int) (float64, error) {
		if changed == 0 { // asked for first
			changed = s.image.changed
		}
		return 1 / float64(max(changed, 1)), nil
	})
	return row{
		name: "snapshot-stored-" + name, work: "bytes by which the packs grow for it, " + name, reference: "bytes of the changed pages",
		goal: 1 / most, figure: mebibytes, ours: ours, theirs: theirs,
	}
}

// mebibytes is a figure that is one over a number of bytes.
func mebibytes(v float64) string { return fmt.Sprintf("%.1f MiB", 1/v/(1<<20)) }

// packBytes is the size of all packs below a data folder, with their indexes.
func packBytes(data string) (n int64, err error) {
	names, err := packFiles(data)
	for _, name := range names {
		info, serr := os.Stat(name)
		if errors.Is(serr, os.ErrNotExist) {
			continue // it was merged with others
		}
		if serr != nil {
			return 0, serr
		}
		n += info.Size()
	}
	return n, err
}

func packFiles(data string) ([]string, error) {
	return filepath.Glob(filepath.Join(data, "repos", "*", "*", "packs", "pack-*"))
}

// newSnapshotRepo starts a server and makes a repo with one commit there.
func (w *workshop) newSnapshotRepo(name string) (*repo, error) {
	config := filepath.Join(w.dir, "snapshots.toml")
	if err := os.WriteFile(config, []byte(snapshotSettings), 0o600); err != nil {
		return nil, err
	}
	server, err := w.start("headgate", "serve", "--listen", "127.0.0.1:0", "--data", filepath.Join(w.dir, "data-"+name), "--config", config, "--trust", org+"="+w.publicKey())
	if err != nil {
		return nil, err
	}
	r, err := w.newRepoOn(server, name)
	if err == nil {
		_, err = r.commit("main", statePath, states(1, stateBytes))
	}
	return r, err
}

// A savedImage is what the command line tells of a save.
type savedImage struct {
	SHA    string `json:"sha"`
	Status string `json:"status"`
}

// snapshotArgs begin a command line that speaks to the repo.
func (r *repo) snapshotArgs(verb string) []string {
	return []string{"snapshot", verb, "--server", "http://" + r.server.address, "--repo", r.name, "--token", r.token, "--json"}
}

// snapshotSave saves a file into a session by the command line.
func (w *workshop) snapshotSave(ctx context.Context, r *repo, session, path string) (saved savedImage, err error) {
	args := append(r.snapshotArgs("save"), "--session", session, "--state", filepath.Join(w.dir, "states"), path)
	out, err := output(exec.CommandContext(ctx, filepath.Join(w.dir, "headgate"), args...))
	if err == nil {
		err = json.Unmarshal(out, &saved)
	}
	return saved, err
}

func (w *workshop) snapshotRestore(ctx context.Context, r *repo, sha, to string) error {
	args := append(r.snapshotArgs("restore"), sha, to)
	_, err := output(exec.CommandContext(ctx, filepath.Join(w.dir, "headgate"), args...))
	return err
}

// begin makes a session.
func (r *repo) begin(session string) error {
	return r.post(r.path("/sessions"), "application/json", strings.NewReader(fmt.Sprintf(`{"id":%q,"base_ref":"main"}`, session)), nil)
}
