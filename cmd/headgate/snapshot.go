package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/sessions/snapshot"
)

// snapshotCmd are the commands about snapshots of a running server. They need a token
// of the repo, or one that was issued to the session.
type snapshotCmd struct {
	Save    snapshotSaveCmd    `cmd:"" help:"Save an image, a folder of images, or what a pipe brings; send only what is new."`
	Restore snapshotRestoreCmd `cmd:"" help:"Restore a snapshot into a sparse file, a folder or a pipe, verified."`
	List    snapshotListCmd    `cmd:"" help:"List a session's snapshots, newest first; without a session, what can be launched."`
	Show    snapshotShowCmd    `cmd:"" help:"Show one snapshot."`
	Lineage snapshotLineageCmd `cmd:"" help:"Show what a snapshot came from and what came of it."`
	Rm      snapshotRmCmd      `cmd:"" help:"Delete a snapshot, and tell what that frees."`
	Export  snapshotExportCmd  `cmd:"" help:"Write a snapshot into one file, a git bundle, to take elsewhere."`
	Import  snapshotImportCmd  `cmd:"" help:"Make the snapshot of such a file the newest of a session, with the same id."`
}

func (f repoFlags) snapshots() (*client.Snapshots, error) {
	api, err := client.NewAPI(f.Server, f.Token)
	if err != nil {
		return nil, err
	}
	return api.Snapshots(f.Repo), nil
}

// print prints v as JSON if that is asked for, else what say makes of it.
func (f repoFlags) print(out io.Writer, v any, say func(io.Writer)) error {
	if f.JSON {
		return json.NewEncoder(out).Encode(v)
	}
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	say(table)
	return table.Flush()
}

func snapshotLines(w io.Writer, s client.Snapshot) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, client.Printable(value))
		}
	}
	line("snapshot", s.SHA)
	line("upload", s.Upload)
	line("name", s.Name)
	line("session", s.Session)
	line("state", s.State)
	line("reason", s.Reason)
	line("kind", s.Kind)
	line("workspace", s.Workspace)
	line("parent", s.Parent)
	line("base image", s.Base)
	line("size", byteCount(s.Size))
	line("zero", byteCount(s.Zero))
	line("stored", byteCount(s.Stored))
	line("new", byteCount(s.New))
	line("hash", s.Root)
	line("boundary", s.Boundary)
	line("created", shownTime(s.CreatedAt))
	line("verified", shownTime(s.VerifiedAt))
	line("ends", shownTime(s.EndsAt))
	if s.Sealed {
		line("sealed", "yes")
	}
	for _, e := range s.Excluded {
		line("excluded", e.Name+": "+e.Reason)
	}
	for _, id := range s.Children {
		line("used by", id)
	}
}

func shownTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

func snapshotHeading(w io.Writer) {
	fmt.Fprintln(w, "SNAPSHOT\tSTATE\tKIND\tSIZE\tNEW\tCREATED\tNAME")
}

func snapshotRow(w io.Writer, s client.Snapshot) {
	id, name := s.SHA, s.Name
	if id == "" {
		id = "(" + s.Upload + ")"
	}
	if s.Base != "" {
		name = "base " + s.Base
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", client.Printable(id), client.Printable(s.State), client.Printable(s.Kind),
		byteCount(s.Size), byteCount(s.New), shownTime(s.CreatedAt), client.Printable(name))
}

type snapshotListCmd struct {
	repoFlags
	Session string `placeholder:"SESSION" help:"The session; without it bases and saved states that can be launched are listed."`
	Arch    string `placeholder:"ARCH" help:"Without a session: only those of this architecture, or of none that is told."`
}

// Run prints a line for each snapshot.
func (c *snapshotListCmd) Run(ctx context.Context, out io.Writer) error {
	s, err := c.snapshots()
	if err != nil {
		return err
	}
	list := []client.Snapshot{}
	take := func(one client.Snapshot) error { list = append(list, one); return nil }
	if c.Session != "" {
		err = s.List(ctx, c.Session, take)
	} else {
		err = s.Launchable(ctx, c.Arch, take)
	}
	if err != nil {
		return err
	}
	answer := struct {
		Snapshots []client.Snapshot `json:"snapshots"`
	}{list}
	return c.print(out, answer, func(w io.Writer) {
		snapshotHeading(w)
		for _, one := range list {
			snapshotRow(w, one)
		}
	})
}

// snapshotArg is the snapshot that a command is about.
type snapshotArg struct {
	repoFlags
	SHA string `arg:"" name:"sha" help:"The snapshot's id."`
}

type snapshotShowCmd struct{ snapshotArg }

// Run prints the snapshot.
func (c *snapshotShowCmd) Run(ctx context.Context, out io.Writer) error {
	s, err := c.snapshots()
	if err != nil {
		return err
	}
	got, err := s.Get(ctx, c.SHA)
	if err != nil {
		return err
	}
	return c.print(out, got, func(w io.Writer) { snapshotLines(w, got) })
}

type snapshotLineageCmd struct{ snapshotArg }

// Run prints what the snapshot came from, itself, and what came of it, in that order.
func (c *snapshotLineageCmd) Run(ctx context.Context, out io.Writer) error {
	s, err := c.snapshots()
	if err != nil {
		return err
	}
	got, err := s.Lineage(ctx, c.SHA)
	if err != nil {
		return err
	}
	return c.print(out, got, func(w io.Writer) {
		row := func(mark string, one client.Snapshot) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", mark, client.Printable(one.SHA), client.Printable(one.State), client.Printable(one.Session), shownTime(one.CreatedAt))
		}
		fmt.Fprintln(w, "\tSNAPSHOT\tSTATE\tSESSION\tCREATED")
		for i := range got.Ancestors {
			row("from", got.Ancestors[len(got.Ancestors)-1-i])
		}
		row("*", got.Snapshot)
		for _, one := range got.Descendants {
			row("to", one)
		}
		for _, id := range got.Snapshot.Children {
			fmt.Fprintf(w, "used by\tsession %s\n", client.Printable(id))
		}
	})
}

type snapshotRmCmd struct {
	snapshotArg
	Session string `placeholder:"SESSION" help:"To let go of an upload under way (save_...): whose it is."`
	DryRun  bool   `help:"Only tell what would be freed."`
}

// Run deletes the snapshot.
func (c *snapshotRmCmd) Run(ctx context.Context, out io.Writer) error {
	s, err := c.snapshots()
	if err != nil {
		return err
	}
	if c.Session != "" {
		return s.Drop(ctx, c.Session, c.SHA)
	}
	got, err := s.Delete(ctx, c.SHA, c.DryRun)
	if err != nil {
		return err
	}
	verb := "frees"
	if c.DryRun {
		verb = "would free"
	}
	return c.print(out, got, func(w io.Writer) { fmt.Fprintf(w, "%s %s\n", verb, byteCount(got.Freed)) })
}

type snapshotExportCmd struct {
	snapshotArg
	To string `arg:"" placeholder:"FILE" help:"The file, which must not be there; - is standard output."`
}

// Run writes the bundle; a file is there whole or not at all.
func (c *snapshotExportCmd) Run(ctx context.Context, out io.Writer) error {
	s, err := c.snapshots()
	if err != nil {
		return err
	}
	if c.To == "-" {
		return s.Export(ctx, c.SHA, out)
	}
	return writeWhole(c.To, func(f *os.File) error {
		if err := s.Export(ctx, c.SHA, f); err != nil {
			return err
		}
		return f.Sync()
	})
}

// writeWhole makes a file that was not there, or leaves none. What is written has a name
// of its own until it is whole: of two that make the same file one does.
func writeWhole(path string, write func(*os.File) error) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s is there already", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".headgate-*.part") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err = errors.Join(write(f), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already", path)
	} else if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

type snapshotImportCmd struct {
	repoFlags
	Session string `required:"" placeholder:"SESSION" help:"The session whose newest snapshot it becomes."`
	From    string `arg:"" placeholder:"FILE" help:"The file; - is standard input."`
}

// Run prints the snapshot.
func (c *snapshotImportCmd) Run(ctx context.Context, out io.Writer) error {
	s, err := c.snapshots()
	if err != nil {
		return err
	}
	from, err := openInput(c.From)
	if err != nil {
		return err
	}
	defer from.Close()
	got, err := s.Import(ctx, c.Session, from)
	if err != nil {
		return err
	}
	return c.print(out, got, func(w io.Writer) { snapshotLines(w, got) })
}

// openInput opens a file, or standard input for "-".
func openInput(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(os.Stdin), nil
	}
	return os.Open(path)
}

// errFound ends a list.
var errFound = errors.New("found")

// lastSnapshot is the id of a session's last snapshot. One that is damaged is an error:
// an older state is given to nobody who has not asked for it.
func lastSnapshot(ctx context.Context, s *client.Snapshots, session string) (string, error) {
	var last client.Snapshot
	err := s.List(ctx, session, func(one client.Snapshot) error {
		if one.SHA != "" && (one.State == string(snapshot.Ready) || one.State == string(snapshot.Failed)) {
			last = one
			return errFound
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, errFound):
		return "", err
	case last.SHA == "":
		return "", fmt.Errorf("session %s has no snapshot", session)
	case last.State != string(snapshot.Ready):
		return "", fmt.Errorf("the last snapshot of session %s, %s, cannot be restored (%s): give the id of an earlier one", session, last.SHA, last.Reason)
	}
	return last.SHA, nil
}
