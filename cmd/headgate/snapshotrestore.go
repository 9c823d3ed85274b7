package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/sessions/snapshot"
)

// snapshotRestoreCmd restores a snapshot's images.
type snapshotRestoreCmd struct {
	repoFlags
	SHA        string `arg:"" name:"sha" help:"The snapshot's id, or last with --session."`
	To         string `arg:"" placeholder:"TO" help:"A file, which must not be there and becomes sparse; a folder that is there, for all parts; - is standard output."`
	Session    string `placeholder:"SESSION" help:"With last instead of an id: whose last snapshot."`
	Part       string `placeholder:"NAME" help:"The part, if there are several."`
	Offset     int64  `placeholder:"BYTES" help:"Where to begin."`
	Length     int64  `placeholder:"BYTES" help:"How much of it; the rest by default."`
	Hot        bool   `help:"What was touched first the last time comes first."`
	CaptureKey string `placeholder:"FILE" type:"existingfile" help:"The customer's private key, for a sealed snapshot."`
	Workers    int    `placeholder:"N" help:"Connections; two for each processor by default."`
	Quiet      bool   `short:"q" help:"Show no progress."`
}

// Validate says what a command line lacks.
func (c *snapshotRestoreCmd) Validate() error {
	switch {
	case c.SHA == "last" && c.Session == "":
		return errors.New("last wants --session SESSION")
	case c.Hot && c.To == "-":
		return errors.New("--hot is for files: a pipe gets everything in order")
	case c.Offset < 0 || c.Length < 0:
		return errors.New("--offset and --length are not negative")
	}
	return nil
}

// A restoredPart is what --json tells of each restored part.
type restoredPart struct {
	SHA       string              `json:"sha"`
	Part      string              `json:"part"`
	File      string              `json:"file,omitempty"`
	Bytes     int64               `json:"size_bytes"`
	Root      string              `json:"image_sha256"`
	RestoreID string              `json:"restore_id"`
	Seed      string              `json:"seed"`
	Excluded  []snapshot.Excluded `json:"excluded,omitempty"`
}

// Run restores; a file is there whole and verified, or not at all.
func (c *snapshotRestoreCmd) Run(ctx context.Context, out io.Writer) error {
	s, err := c.snapshots()
	if err != nil {
		return err
	}
	sha := c.SHA
	if sha == "last" {
		if sha, err = lastSnapshot(ctx, s, c.Session); err != nil {
			return err
		}
	}
	open, err := c.opener(ctx, s, sha)
	if err != nil {
		return err
	}
	if info, err := os.Stat(c.To); c.To != "-" && err == nil && info.IsDir() {
		return c.intoFolder(ctx, s, sha, open, out)
	}
	told, err := c.one(ctx, s, sha, c.Part, c.To, open, out)
	if err != nil || c.To == "-" {
		return err
	}
	return c.tell(out, []restoredPart{told})
}

// intoFolder restores all parts, or the one that was asked for, under their names.
func (c *snapshotRestoreCmd) intoFolder(ctx context.Context, s *client.Snapshots, sha string, open opener, out io.Writer) error {
	got, err := s.Get(ctx, sha)
	if err != nil {
		return err
	}
	m, err := snapshot.DecodeManifest(got.Manifest)
	if err != nil {
		return err
	}
	var told []restoredPart
	for _, p := range m.Parts {
		if c.Part != "" && c.Part != p.Name {
			continue
		}
		if p.Name == "." || p.Name == ".." || filepath.Base(p.Name) != p.Name {
			return fmt.Errorf("part %q has no name for a file", p.Name)
		}
		one, err := c.one(ctx, s, sha, p.Name, filepath.Join(c.To, p.Name), open, out)
		if err != nil {
			return err
		}
		told = append(told, one)
	}
	return c.tell(out, told)
}

// An opener opens sealed chunks; nil: there are none.
type opener func(buf, chunk []byte) ([]byte, error)

func (c *snapshotRestoreCmd) one(ctx context.Context, s *client.Snapshots, sha, part, to string, open opener, out io.Writer) (told restoredPart, err error) {
	line := newProgressLine(os.Stderr, "restoring", c.Quiet || c.JSON)
	defer line.end()
	o := client.RestoreOptions{
		Part: part, Offset: c.Offset, Length: c.Length, Hot: c.Hot, Workers: c.Workers, Open: open,
		Progress: func(p client.RestoreProgress) {
			line.tell(amounts{total: p.Total, done: p.Done, sent: p.Wire, saved: p.Zero})
		},
	}
	var got client.Restored
	if to == "-" {
		w := bufio.NewWriterSize(out, 1<<20)
		o.To = w
		if got, err = s.Restore(ctx, sha, o); err == nil {
			err = w.Flush()
		}
	} else {
		err = writeWhole(to, func(f *os.File) (err error) {
			o.At = f
			if got, err = s.Restore(ctx, sha, o); err != nil {
				return err
			}
			return f.Truncate(got.Bytes) // zeros at the end are a hole too
		})
	}
	if err != nil {
		return told, err
	}
	return restoredPart{
		SHA: got.Snapshot.SHA, Part: got.Part.Name, File: to, Bytes: got.Bytes, Root: got.Part.Root,
		RestoreID: got.ID, Seed: got.Seed, Excluded: got.Snapshot.Excluded,
	}, nil
}

func (c *snapshotRestoreCmd) tell(out io.Writer, told []restoredPart) error {
	if c.JSON {
		return c.print(out, told, nil)
	}
	return c.print(out, nil, func(w io.Writer) {
		for _, p := range told {
			fmt.Fprintf(w, "%s\t%s\tverified\tsnapshot %s\trestore id %s\n", client.Printable(p.File), byteCount(p.Bytes), client.Printable(p.SHA), client.Printable(p.RestoreID))
			for _, e := range p.Excluded {
				fmt.Fprintf(w, "not in it\t%s\t%s\n", client.Printable(e.Name), client.Printable(e.Reason))
			}
		}
	})
}
