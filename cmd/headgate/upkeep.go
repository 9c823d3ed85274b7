package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/httpapi"
)

// A dataFlags says which store a command opens. With the embedded ledger no server
// may run on it; with Redis the command is one more node.
type dataFlags struct {
	Data   string `required:"" placeholder:"DIR" type:"existingdir" help:"Folder of everything that is kept."`
	Ledger string `default:"pebble" placeholder:"pebble|redis://HOST:PORT/DB" help:"Where refs and small objects live."`
}

// reposFlags pick repos.
type reposFlags struct {
	Org  string `placeholder:"ORG" help:"Only repos of this org."`
	Repo string `placeholder:"REPO" help:"Only the repo of this name."`
}

func (f reposFlags) want(r gitstore.RepoInfo) bool {
	return (f.Org == "" || f.Org == r.Org) && (f.Repo == "" || f.Repo == r.Name)
}

// errServerRuns: the store cannot be opened beside a running server.
var errServerRuns = errors.New("a server is running on this data folder: it looks after its repos by itself; stop it to do this by hand")

// errDamaged is the end of a check that has found something.
var errDamaged = errors.New("damage was found")

// withStore opens the store for one command and closes it again.
func (f dataFlags) withStore(ctx context.Context, do func(*gitstore.Store) error) (err error) {
	if _, err := os.Stat(f.Data + "/FORMAT"); err != nil {
		return fmt.Errorf("%s is no data folder of headgate: %w", f.Data, err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	limits := defaultLimits()
	limits.UpkeepEvery.Duration = -1 // the command does what it was called for, and nothing beside it
	n, err := openStore(ctx, nodeOptions{data: f.Data, ledger: f.Ledger, limits: limits, log: log}, httpapi.NewMetrics())
	if errors.Is(err, pebbledb.ErrInUse) {
		return fmt.Errorf("%s: %w", f.Data, errServerRuns)
	}
	if err != nil {
		return err
	}
	// A command that was interrupted still closes what it has opened.
	defer func() { err = errors.Join(err, n.close(context.WithoutCancel(ctx))) }()
	return do(n.store)
}

// gcCmd looks after repos.
type gcCmd struct {
	dataFlags
	reposFlags
	Now bool `help:"Also remove what is little, and the files of replaced packs at once."`
}

// Run tells of each repo what was done.
func (c *gcCmd) Run(ctx context.Context, out io.Writer) error {
	return c.withStore(ctx, func(s *gitstore.Store) error {
		reports, err := s.GC(ctx, c.want, c.Now)
		for _, r := range reports {
			fmt.Fprintf(out, "%s/%s: %d dead objects gone, %d packs rewritten, %d merged, %d removed\n",
				r.Repo.Org, r.Repo.Name, r.Prune.Dead, r.Prune.Condemned, r.Merged, r.Removed)
		}
		return err
	})
}

// fsckCmd checks repos.
type fsckCmd struct {
	dataFlags
	reposFlags
}

// Run tells of each repo what is wrong with it; damage makes the command fail.
func (c *fsckCmd) Run(ctx context.Context, out io.Writer) error {
	return c.withStore(ctx, func(s *gitstore.Store) error {
		damaged := false
		err := s.EachRepo(ctx, func(r *gitstore.Repo) error {
			info := r.Info()
			if !c.want(info) {
				return nil
			}
			findings, err := s.Fsck(ctx, r)
			for _, f := range findings {
				fmt.Fprintf(out, "%s/%s: %s\n", info.Org, info.Name, f)
				damaged = damaged || f.Kind != gitstore.FindPackUnknown
			}
			if err == nil && len(findings) == 0 {
				fmt.Fprintf(out, "%s/%s: sound\n", info.Org, info.Name)
			}
			return err
		})
		if err == nil && damaged {
			err = errDamaged
		}
		return err
	})
}

// exportCmd writes one repo.
type exportCmd struct {
	dataFlags
	Org  string `required:"" placeholder:"ORG" help:"The repo's org."`
	Repo string `required:"" placeholder:"REPO" help:"The repo's name."`
	To   string `required:"" placeholder:"DIR" type:"path" help:"Folder to be made."`
}

// Run writes the folder and tells its name.
func (c *exportCmd) Run(ctx context.Context, out io.Writer) error {
	return c.withStore(ctx, func(s *gitstore.Store) error {
		r, err := s.Repo(ctx, c.Org, c.Repo)
		if err != nil {
			return fmt.Errorf("%s/%s: %w", c.Org, c.Repo, err)
		}
		if err := s.Export(ctx, r, c.To); err != nil {
			return err
		}
		fmt.Fprintln(out, c.To)
		return nil
	})
}
