package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/httpapi/client"
)

// errDamaged is the end of a check that has found something.
var errDamaged = errors.New("damage was found")

// gcCmd looks after repos.
type gcCmd struct {
	storeFlags
	reposFlags
	Now bool `help:"Also remove what is little, and the files of replaced packs at once."`
}

// Run tells of each repo what was done.
func (c *gcCmd) Run(ctx context.Context, out io.Writer) error {
	return c.change(ctx, func(o operations) error {
		return o.gc(ctx, c.reposFlags, c.Now, func(d client.Done) {
			index := ""
			if d.Indexed {
				index = ", index written anew"
			}
			fmt.Fprintf(out, "%s/%s: %d dead objects gone, %d packs rewritten, %d merged, %d removed%s\n",
				d.Org, d.Repo, d.Dead, d.Condemned, d.Merged, d.Removed, index)
		})
	})
}

// fsckCmd checks repos.
type fsckCmd struct {
	storeFlags
	reposFlags
}

// Run tells of each repo what is wrong with it; damage makes the command fail.
func (c *fsckCmd) Run(ctx context.Context, out io.Writer) error {
	return c.look(ctx, func(o operations) error {
		damaged := false
		err := o.fsck(ctx, c.reposFlags, func(org, repo string, found []client.Finding) {
			for _, f := range found {
				fmt.Fprintf(out, "%s/%s: %s %s: %s\n", org, repo, f.Kind, f.Subject, f.Detail)
				damaged = damaged || !gitstore.FindingKind(f.Kind).Harmless()
			}
			if len(found) == 0 {
				fmt.Fprintf(out, "%s/%s: sound\n", org, repo)
			}
		})
		if err == nil && damaged {
			err = errDamaged
		}
		return err
	})
}

// exportCmd writes one repo.
type exportCmd struct {
	storeFlags
	Org    string `required:"" placeholder:"ORG" help:"The repo's org."`
	Repo   string `required:"" placeholder:"REPO" help:"The repo's name."`
	To     string `placeholder:"DIR" type:"path" xor:"form" required:"" help:"Folder to be made: a plain bare repository."`
	Bundle string `placeholder:"FILE" type:"path" xor:"form" required:"" help:"File to be made: a git bundle."`
}

// Run writes the folder or the file and tells its name.
func (c *exportCmd) Run(ctx context.Context, out io.Writer) error {
	return c.look(ctx, func(o operations) error {
		to, write := c.To, c.mirror
		if c.Bundle != "" {
			to, write = c.Bundle, c.bundle
		}
		if err := write(ctx, o); err != nil {
			return err
		}
		fmt.Fprintln(out, to)
		return nil
	})
}

func (c *exportCmd) mirror(ctx context.Context, o operations) error {
	return o.mirror(ctx, c.Org, c.Repo, c.To)
}

// bundle writes a file beside the one that is to be made, which is there whole or not at all.
func (c *exportCmd) bundle(ctx context.Context, o operations) error {
	if _, err := os.Lstat(c.Bundle); err == nil {
		return fmt.Errorf("%s: %w", c.Bundle, os.ErrExist)
	}
	f, err := os.CreateTemp(filepath.Dir(c.Bundle), ".bundle-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = o.bundle(ctx, c.Org, c.Repo, f)
	if err == nil {
		err = errors.Join(f.Chmod(0o644), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), c.Bundle); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(c.Bundle))
}
