package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/httpapi"
	"github.com/headgate/headgate/httpapi/client"
)

// operations are what an operator does to a store: one in a data folder that this
// process opens, or that of a running server.
type operations interface {
	gc(ctx context.Context, which reposFlags, now bool, tell func(client.Done)) error
	fsck(ctx context.Context, which reposFlags, tell func(org, repo string, found []client.Finding)) error
	mirror(ctx context.Context, org, repo, dir string) error
	bundle(ctx context.Context, org, repo string, w io.Writer) error
	backup(ctx context.Context, to *gitstore.BackupDir) error
}

// storeFlags say whose store a command is about. With the embedded ledger a data
// folder is opened when no server runs on it; with Redis the command is one more node.
type storeFlags struct {
	Data        string `placeholder:"DIR" type:"existingdir" help:"Folder of everything that is kept. With --server: where its operator.key is."`
	Ledger      string `default:"pebble" placeholder:"pebble|redis://HOST:PORT/DB" help:"Where refs and small objects of the data folder live."`
	Server      string `placeholder:"URL" help:"A running server, which does it instead."`
	OperatorKey string `placeholder:"FILE" type:"path" help:"The server's operator key; DIR/operator.key by default."`
}

// reposFlags pick repos.
type reposFlags struct {
	Org  string `placeholder:"ORG" help:"Only repos of this org."`
	Repo string `placeholder:"REPO" help:"Only the repo of this name."`
}

// each calls work with what picks the wanted repos. If some were named and there was
// none it is ErrRepoNotFound.
func (f reposFlags) each(work func(want func(gitstore.RepoInfo) bool) error) error {
	found := f.Org == "" && f.Repo == ""
	err := work(func(r gitstore.RepoInfo) bool {
		picked := (f.Org == "" || f.Org == r.Org) && (f.Repo == "" || f.Repo == r.Name)
		found = found || picked
		return picked
	})
	if err == nil && !found {
		err = gitstore.ErrRepoNotFound
	}
	return err
}

var (
	// errServerRuns: the store cannot be opened beside a running server.
	errServerRuns = errors.New("a server is running on this data folder: let it do this with --server URL")
	errNoStore    = errors.New("whose store? give --data DIR, or --server URL of a running server")
	errNoKey      = errors.New("--server needs the operator's key: --operator-key FILE, or --data DIR with the file operator.key")
)

// look asks something of the store. Opening it for that removes nothing.
func (f storeFlags) look(ctx context.Context, do func(operations) error) error {
	return f.with(ctx, true, do)
}

// change does something to the store.
func (f storeFlags) change(ctx context.Context, do func(operations) error) error {
	return f.with(ctx, false, do)
}

func (f storeFlags) with(ctx context.Context, looking bool, do func(operations) error) error {
	switch {
	case f.Server != "":
		c, err := f.client()
		if err != nil {
			return err
		}
		return do(remote{c})
	case f.Data == "":
		return errNoStore
	}
	return f.withStore(ctx, looking, func(s *gitstore.Store) error { return do(local{s}) })
}

func (f storeFlags) client() (*client.Client, error) {
	path := f.OperatorKey
	if path == "" && f.Data == "" {
		return nil, errNoKey
	}
	if path == "" {
		path = filepath.Join(f.Data, operatorKeyName)
	}
	key, err := readOperatorKey(path)
	if err != nil {
		return nil, err
	}
	return client.New(f.Server, key)
}

// withStore opens the store for one command and closes it again.
func (f storeFlags) withStore(ctx context.Context, looking bool, do func(*gitstore.Store) error) error {
	return f.withNode(ctx, looking, func(n *node) error { return do(n.store) })
}

// withNode is withStore for what is not of the store alone.
func (f storeFlags) withNode(ctx context.Context, looking bool, do func(*node) error) (err error) {
	if _, err := os.Stat(filepath.Join(f.Data, "FORMAT")); err != nil {
		return fmt.Errorf("%s is no data folder of headgate: %w", f.Data, err)
	}
	limits := defaultLimits()
	limits.UpkeepEvery.Duration = -1 // the command does what it was called for, and nothing beside it
	n, err := openStore(ctx, nodeOptions{data: f.Data, ledger: f.Ledger, looking: looking, limits: limits, log: quietLog()}, httpapi.NewMetrics())
	if errors.Is(err, pebbledb.ErrInUse) {
		return fmt.Errorf("%s: %w", f.Data, errServerRuns)
	}
	if err != nil {
		return err
	}
	// A command that was interrupted still closes what it has opened.
	defer func() { err = errors.Join(err, n.close(context.WithoutCancel(ctx))) }()
	return do(n)
}

// quietLog is what commands log to: warnings, on standard error.
func quietLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// local is a store that this process has open.
type local struct{ store *gitstore.Store }

func (l local) gc(ctx context.Context, which reposFlags, now bool, tell func(client.Done)) error {
	var reports []gitstore.GCReport
	err := which.each(func(want func(gitstore.RepoInfo) bool) (err error) {
		reports, err = l.store.GC(ctx, want, now)
		return err
	})
	for _, r := range reports {
		tell(client.Done{
			Org: r.Repo.Org, Repo: r.Repo.Name, Dead: r.Prune.Dead, Condemned: r.Prune.Condemned,
			Merged: r.Merged, Removed: r.Removed, Indexed: r.Indexed,
		})
	}
	return err
}

func (l local) fsck(ctx context.Context, which reposFlags, tell func(org, repo string, found []client.Finding)) error {
	each := func(r gitstore.RepoInfo, findings []gitstore.Finding) error {
		found := make([]client.Finding, len(findings))
		for i, f := range findings {
			found[i] = client.Finding{Kind: string(f.Kind), Subject: f.Subject, Detail: f.Detail}
		}
		tell(r.Org, r.Name, found)
		return nil
	}
	return which.each(func(want func(gitstore.RepoInfo) bool) error { return l.store.FsckAll(ctx, want, each) })
}

func (l local) mirror(ctx context.Context, org, repo, dir string) error {
	r, err := l.repo(ctx, org, repo)
	if err != nil {
		return err
	}
	return l.store.Export(ctx, r, dir)
}

func (l local) bundle(ctx context.Context, org, repo string, w io.Writer) error {
	r, err := l.repo(ctx, org, repo)
	if err != nil {
		return err
	}
	return l.store.ExportBundle(ctx, r, w)
}

func (l local) repo(ctx context.Context, org, repo string) (*gitstore.Repo, error) {
	r, err := l.store.Repo(ctx, org, repo)
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", org, repo, err)
	}
	return r, nil
}

func (l local) backup(ctx context.Context, to *gitstore.BackupDir) error {
	return l.store.Backup(ctx, to)
}

// remote is the store of a running server.
type remote struct{ c *client.Client }

func (r remote) gc(ctx context.Context, which reposFlags, now bool, tell func(client.Done)) error {
	return r.c.GC(ctx, which.Org, which.Repo, now, tell)
}

func (r remote) fsck(ctx context.Context, which reposFlags, tell func(org, repo string, found []client.Finding)) error {
	return r.c.Fsck(ctx, which.Org, which.Repo, tell)
}

func (r remote) mirror(ctx context.Context, org, repo, dir string) error {
	to, err := gitstore.NewExportDir(dir)
	if err != nil {
		return err
	}
	if err = r.c.Mirror(ctx, org, repo, to.File); err == nil {
		err = to.Finish()
	}
	if err != nil {
		err = errors.Join(err, to.Abort())
	}
	return err
}

func (r remote) bundle(ctx context.Context, org, repo string, w io.Writer) error {
	return r.c.Bundle(ctx, org, repo, w)
}

func (r remote) backup(ctx context.Context, to *gitstore.BackupDir) error {
	return r.c.Backup(ctx, to.Have, to, to.SkipDamaged)
}
