package gitstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// exportTries bounds how often an export starts again because a ref was deleted and
// pruned away while it was written.
const exportTries = 3

// exportConfig is the config of every exported repository.
const exportConfig = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"

// Export writes a repo into a new folder as a plain bare repository: one pack of all
// that refs and pins lead to, and all refs under their stored names, those of
// ephemeral branches too. What only a pin holds is at refs/pins/<id>. dir must not
// exist. On an error nothing is left of it.
func (s *Store) Export(ctx context.Context, r *Repo, dir string) error {
	ctx, end, err := s.work(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %s exists", ErrInvalid, dir)
	}
	for try := 1; ; try++ {
		err := r.export(ctx, dir)
		if err == nil {
			return nil
		}
		var exit *gitcmd.ExitError
		rerr := os.RemoveAll(dir)
		if !errors.As(err, &exit) || rerr != nil || try == exportTries {
			return r.orGone(fmt.Errorf("export %s: %w", r.Info().Name, errors.Join(err, rerr)))
		}
	}
}

// export writes the folder: refs first, then what they lead to, HEAD last, without
// which git takes no folder for a repository.
func (r *Repo) export(ctx context.Context, dir string) error {
	for _, d := range []string{"", "refs", "objects", "objects/info", "objects/pack"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(exportConfig), 0o644); err != nil {
		return err
	}
	refs := filepath.Join(dir, "packed-refs")
	if err := r.writePackedRefs(ctx, refs); err != nil {
		return err
	}
	if err := r.exportObjects(ctx, refs, dir); err != nil {
		return err
	}
	for _, path := range []string{"config", "packed-refs"} {
		if err := syncFile(filepath.Join(dir, path)); err != nil {
			return err
		}
	}
	head := []byte("ref: " + string(r.head()) + "\n")
	if err := os.WriteFile(filepath.Join(dir, "HEAD"), head, 0o644); err != nil {
		return err
	}
	if err := syncFile(filepath.Join(dir, "HEAD")); err != nil {
		return err
	}
	return packs.OS{}.SyncDir(dir)
}

const packedRefsHead = "# pack-refs with: peeled fully-peeled sorted \n"

// writePackedRefs writes git's file of refs, sorted by name as git wants it.
func (r *Repo) writePackedRefs(ctx context.Context, path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	_, _ = w.WriteString(packedRefsHead)
	pins, err := r.packedPins(ctx)
	if err != nil {
		return err
	}
	err = r.eachPage(ctx, refKeys, func(items []ledger.Item) error {
		for _, it := range items {
			name := strings.TrimPrefix(it.Key, refKeys)
			for len(pins) > 0 && pins[0].name < name {
				fmt.Fprintf(w, "%s %s\n", pins[0].oid, pins[0].name)
				pins = pins[1:]
			}
			rec, err := decodeRefRecord(it.Value)
			if err != nil {
				return fmt.Errorf("read ref %s: %w", name, err)
			}
			fmt.Fprintf(w, "%s %s\n", rec.oid, name)
			if !rec.peeled.IsZero() {
				fmt.Fprintf(w, "^%s\n", rec.peeled)
			}
		}
		return nil
	})
	for _, p := range pins {
		fmt.Fprintf(w, "%s %s\n", p.oid, p.name)
	}
	return errors.Join(err, w.Flush())
}

type packedPin struct {
	name string
	oid  refpolicy.OID
}

// packedPins gives the pins that hold as refs, sorted by name.
func (r *Repo) packedPins(ctx context.Context) ([]packedPin, error) {
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return nil, err
	}
	var pins []packedPin
	err = r.eachPage(ctx, pinKeys, func(items []ledger.Item) error {
		for _, it := range items {
			rec, err := decodePin(it.Value)
			if err != nil {
				return err
			}
			if rec.live(now) {
				pins = append(pins, packedPin{"refs/pins/" + strings.TrimPrefix(it.Key, pinKeys), rec.OID})
			}
		}
		return nil
	})
	return pins, err
}

// exportObjects lets git pack what the refs lead to, from both tiers.
func (r *Repo) exportObjects(ctx context.Context, refs, dir string) error {
	f, err := os.Open(refs)
	if err != nil {
		return err
	}
	defer f.Close()
	in, lines := io.Pipe()
	fed := make(chan struct{})
	go func() { defer close(fed); lines.CloseWithError(tipsOf(f, lines)) }()
	objects, alternates, release, err := r.gitObjects(ctx)
	if err == nil {
		defer release()
		err = r.store.git.Run(ctx, gitcmd.Cmd{
			Args:   []string{"pack-objects", "-q", "--revs", "--non-empty", "--delta-base-offset", filepath.Join(dir, "objects", "pack", "pack")},
			GitDir: r.dir.Root(), ObjectDir: filepath.Join(dir, "objects"), Alternates: append([]string{objects}, alternates...),
			Stdin: in, Timeout: transferTimeout, Low: true, Config: [][2]string{{"core.fsync", "all"}},
		})
	}
	in.Close() // ends the feeding if git has ended before it
	<-fed
	return err
}

// tipsOf writes the ids in a packed-refs file, a line each.
func tipsOf(refs io.Reader, w io.Writer) error {
	lines := bufio.NewScanner(refs)
	lines.Buffer(nil, 64<<10)
	for lines.Scan() {
		if oid, _, ok := strings.Cut(lines.Text(), " "); ok && oid != "#" {
			if _, err := io.WriteString(w, oid+"\n"); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
