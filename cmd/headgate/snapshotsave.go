package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/sessions/snapshot"
)

// snapshotSaveCmd saves images.
type snapshotSaveCmd struct {
	repoFlags
	From       string   `arg:"" placeholder:"FROM" help:"An image, a folder of images, or - for standard input."`
	Session    string   `required:"" placeholder:"SESSION" help:"The session that it is saved for."`
	Name       string   `placeholder:"NAME" help:"A name for the snapshot."`
	Kind       string   `placeholder:"KIND" help:"memory, disk, files, namespace or a word of yours; of a folder's images it follows from their names."`
	Layout     string   `placeholder:"LAYOUT" help:"pages: cut every chunk-bytes; stream: cut by content. Follows from the kind by default."`
	ChunkBytes int      `placeholder:"BYTES" help:"A power of two from 4096 to 1048576; 16384 by default."`
	Boundary   string   `placeholder:"WORD" help:"Why it is saved: manual, leave, transfer, ..."`
	Machine    []string `sep:"none" placeholder:"KEY=VALUE" help:"What machine it is of, as arch=amd64. Can be repeated."`
	Exclude    []string `sep:"none" placeholder:"NAME=REASON" help:"Something that is not in it, and why. Can be repeated."`

	Workspace     string         `placeholder:"SHA" help:"The commit it belongs to; the session's head by default."`
	MoveWorkspace bool           `help:"Move the session's branch to --workspace in the same step."`
	ExpectedHead  string         `placeholder:"SHA" help:"Only if this is the session's last snapshot; 40 zeros: only if there is none."`
	KeepLast      *int           `placeholder:"N" help:"How many snapshots of the session stay from now on; 0: all."`
	Idle          *time.Duration `placeholder:"TIME" help:"It goes when nothing was made of it for so long; 0s: never."`
	Unused        time.Duration  `placeholder:"TIME" help:"It goes so long after nothing uses it any more."`
	DryRun        bool           `help:"Only tell what it would add."`

	Quiesce *int   `placeholder:"PID" help:"Wait until no process or thread below this one has started or ended for a second; after 30 seconds nothing is saved."`
	Seal    string `placeholder:"FILE" type:"existingfile" help:"Seal to the customer's public key in this file: the server stores what it cannot read."`
	State   string `placeholder:"DIR" type:"path" help:"Folder of what is remembered between saves; headgate in the user's cache folder by default."`
	Fresh   bool   `help:"Use nothing of what is remembered: hash everything, begin anew."`
	Workers int    `placeholder:"N" help:"Connections; two for each processor by default."`
	Quiet   bool   `short:"q" help:"Show no progress."`
}

// Validate says what a command line lacks.
func (c *snapshotSaveCmd) Validate() error {
	if c.MoveWorkspace && c.Workspace == "" {
		return errors.New("--move-workspace wants --workspace SHA")
	}
	for _, d := range []*time.Duration{c.Idle, &c.Unused} {
		if d != nil && (*d < 0 || *d%time.Second != 0) {
			return errors.New("times are whole seconds, and not negative")
		}
	}
	return nil
}

// Run saves and prints the snapshot.
func (c *snapshotSaveCmd) Run(ctx context.Context, out io.Writer) error {
	s, err := c.snapshots()
	if err != nil {
		return err
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	state := openSaveState(c.State, c.Server, c.Repo, c.Session)
	if c.Seal != "" {
		if err := c.seal(ctx, s, state, &o); err != nil {
			return err
		}
	}
	if !c.Fresh && !c.DryRun {
		if o.Memo, err = state.memo(); err != nil {
			return err
		}
		o.Upload = state.upload(ctx, s, c.Session, o)
	}
	o.Begun = func(up client.Upload) { state.begun(up.ID) }
	if c.Quiesce != nil {
		if err := c.quiesce(ctx, *c.Quiesce, &o); err != nil {
			return err
		}
	}
	line := newProgressLine(os.Stderr, "saving", c.Quiet || c.JSON)
	o.Progress = func(p client.SaveProgress) {
		line.tell(amounts{total: p.Total, done: p.Read, sent: p.Sent, saved: p.Saved})
	}
	got, err := s.Save(ctx, o)
	line.end()
	if err != nil {
		return state.interrupted(err)
	}
	state.ended()
	return c.print(out, got, func(w io.Writer) {
		switch got.Status {
		case "skipped":
			fmt.Fprintln(w, "nothing has changed: nothing was saved")
		case "dry_run":
			fmt.Fprintf(w, "would add\t%s\n", byteCount(got.New))
		}
		snapshotLines(w, got)
	})
}

// options are those of the flags.
func (c *snapshotSaveCmd) options() (o client.SaveOptions, err error) {
	o = client.SaveOptions{
		Session: c.Session, Name: c.Name, Boundary: c.Boundary, Workspace: c.Workspace, MoveWorkspace: c.MoveWorkspace,
		ExpectedHead: c.ExpectedHead, KeepLast: c.KeepLast, IdleTimeout: c.Idle, TTLUnused: c.Unused, DryRun: c.DryRun, Workers: c.Workers,
		Machine: map[string]string{},
	}
	for _, pair := range c.Machine {
		k, v, ok := strings.Cut(pair, "=")
		if !ok {
			return o, fmt.Errorf("--machine %q: want KEY=VALUE", pair)
		}
		o.Machine[k] = v
	}
	for _, pair := range c.Exclude {
		name, reason, ok := strings.Cut(pair, "=")
		if !ok {
			return o, fmt.Errorf("--exclude %q: want NAME=REASON", pair)
		}
		o.Excluded = append(o.Excluded, snapshot.Excluded{Name: name, Reason: reason})
	}
	o.Parts, err = imageParts(c.From, client.SavePart{Kind: c.Kind, Layout: snapshot.Layout(c.Layout), ChunkBytes: c.ChunkBytes})
	return o, err
}

// quiesce waits until the tree of processes is quiet, and has the proof of it, with what
// it is like when everything was read, sent along.
func (c *snapshotSaveCmd) quiesce(ctx context.Context, pid int, o *client.SaveOptions) error {
	tree := newProcessTree(pid)
	before, err := tree.await(ctx, quietFor, quietLimit)
	if err != nil {
		return err
	}
	o.Quiet = func() (*snapshot.Quiet, error) {
		after, err := tree.fingerprint()
		if err != nil {
			return nil, err
		}
		if after != before {
			return nil, errNotQuiescent
		}
		return &snapshot.Quiet{Before: before, After: after}, nil
	}
	return nil
}
