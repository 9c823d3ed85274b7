package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/httpapi/client"
)

// backupCmd backs up everything that is kept.
type backupCmd struct {
	storeFlags
	To    string `required:"" placeholder:"DIR" type:"path" help:"Folder of the backup; one that an earlier backup made is brought up to date."`
	Check bool   `help:"Also read the packs that an earlier backup has put there; damaged ones are copied again."`

	Replace     bool `help:"Take the place of the earlier backup even if that is of another store, or has more than twice as many repos."`
	SkipDamaged bool `help:"Go on without repos that cannot be read: the backup names them and keeps what an earlier one in the folder has of them; the exit status is 3."`
}

var (
	errReplace = errors.New("are --data and --ledger what you meant? --replace takes the new one all the same")
	// errIncomplete ends a backup that is whole but for damaged repos.
	errIncomplete = errors.New("the backup was made without damaged repos")
)

// Run tells what the backup holds. One that fails leaves the folder's earlier one as it was.
func (c *backupCmd) Run(ctx context.Context, out io.Writer) error {
	return c.look(ctx, func(o operations) error {
		warnReadable(c.To, quietLog()) // of one that is made now there is nothing to tell
		to, err := gitstore.OpenBackupDir(c.To)
		if err != nil {
			return err
		}
		to.Check, to.Replace, to.SkipDamaged = c.Check, c.Replace, c.SkipDamaged
		if err := o.backup(ctx, to); err != nil {
			to.Abort()
			return err
		}
		r, err := to.Finish()
		if errors.As(err, new(*gitstore.ReplaceError)) {
			err = fmt.Errorf("%w: %w", err, errReplace)
		}
		if err != nil {
			return err
		}
		return c.tell(out, r)
	})
}

func (c *backupCmd) tell(out io.Writer, r gitstore.BackupReport) error {
	for _, s := range r.Skipped {
		what := "left out"
		if s.Earlier {
			what = "kept as an earlier backup has it"
		}
		fmt.Fprintf(out, "%s: damaged, %s: %s\n", client.Printable(s.Repo), what, client.Printable(s.Err.Error()))
	}
	fmt.Fprintf(out, "%s: %d spaces of the ledger, %d packs, %d of them new\n", c.To, r.Spaces, r.Packs, r.Copied)
	if n := len(r.Skipped); n > 0 {
		return fmt.Errorf("%w: %d", errIncomplete, n)
	}
	return nil
}

// restoreCmd makes a data folder from a backup.
type restoreCmd struct {
	From   string `required:"" placeholder:"DIR" type:"existingdir" help:"Folder of the backup."`
	Data   string `required:"" placeholder:"DIR" type:"path" help:"Data folder to be made: a new or an empty one."`
	Ledger string `default:"pebble" placeholder:"pebble|redis://HOST:PORT/DB" help:"Where refs and small objects will live: in the folder, or in an empty Redis."`
}

// Run tells what was restored. When it fails nothing is left of it. The data folder
// has the format of a half restored one until all is there.
func (c *restoreCmd) Run(ctx context.Context, out io.Writer) error {
	made, err := emptyFolder(c.Data)
	if err == nil {
		err = writeDurable(filepath.Join(c.Data, "FORMAT"), []byte(restoringFormat+"\n"))
	}
	if err != nil {
		return errors.Join(err, removeMade(made))
	}
	r, err := c.restore(ctx)
	if err == nil {
		err = writeDurable(filepath.Join(c.Data, "FORMAT"), []byte(dataFormat+"\n"))
	}
	if err == nil {
		err = errors.Join(syncFolder(c.Data), syncFolder(filepath.Dir(c.Data)))
	}
	if err != nil {
		return errors.Join(err, clearFolder(c.Data), removeMade(made))
	}
	for _, s := range r.Skipped {
		what := "not in the backup"
		if s.Earlier {
			what = "as an earlier backup had it"
		}
		fmt.Fprintf(out, "%s: %s: it was damaged\n", client.Printable(s.Repo), what)
	}
	fmt.Fprintf(out, "%s: %d repos, %d packs, %d spaces of the ledger\n", c.Data, r.Repos, r.Packs, r.Spaces)
	return nil
}

func (c *restoreCmd) restore(ctx context.Context) (r gitstore.RestoreReport, err error) {
	url := c.Ledger
	if url == "pebble" {
		url = pebblePrefix + c.Data
	}
	to, err := openToLoad(ctx, url)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, to.end(ctx, err == nil)) }()
	return gitstore.Restore(ctx, gitstore.RestoreOptions{From: c.From, Dir: c.Data, Ledger: to.Bulk})
}

var errFolderInUse = errors.New("the folder is not empty: a backup goes into a new one")

// emptyFolder makes a folder and tells what it has made, or makes sure that one is empty.
func emptyFolder(dir string) (made []string, err error) {
	if made, err = privateFolder(dir, quietLog()); err != nil {
		return made, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return made, err
	}
	if len(entries) > 0 {
		if err := checkFormat(dir); errors.Is(err, errUnfinishedRestore) {
			return made, err
		}
		return made, fmt.Errorf("%s: %w", dir, errFolderInUse)
	}
	return made, nil
}

// clearFolder removes what a restore has put into a folder, its FORMAT last.
func clearFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != "FORMAT" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, "FORMAT"))
}

// ledgerCmd is about ledgers as a whole.
type ledgerCmd struct {
	Copy ledgerCopyCmd `cmd:"" help:"Copy a ledger into an empty one, of either engine, while no server uses them."`
}

// ledgerCopyCmd copies a ledger.
type ledgerCopyCmd struct {
	From string `required:"" placeholder:"pebble:DIR|redis://HOST:PORT/DB" help:"The ledger that is copied; DIR is its data folder."`
	To   string `required:"" placeholder:"pebble:DIR|redis://HOST:PORT/DB" help:"An empty one."`
}

// Run tells how much was copied. When it fails nothing is left of it.
func (c *ledgerCopyCmd) Run(ctx context.Context, out io.Writer) (err error) {
	from, err := openToRead(ctx, c.From)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := openToLoad(ctx, c.To)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	n := 0
	err = ledger.Copy(ctx, from, to.Bulk, func(ledger.Space) { n++ })
	if err == nil {
		err = to.FinishLoad(ctx)
	}
	if err = errors.Join(err, to.end(ctx, err == nil)); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d spaces copied, and read back the same\n", n)
	if to.dir != "" {
		if _, err := os.Stat(filepath.Join(filepath.Dir(to.dir), "FORMAT")); err != nil {
			fmt.Fprintf(out, "%s is of use in the data folder that the packs are in: move it there\n", to.dir)
		}
	}
	return nil
}

// pebblePrefix is what the URL of an embedded ledger begins with; its data folder follows.
const pebblePrefix = "pebble:"

var errBadLedger = errors.New("want pebble:DIR, where DIR is a data folder, or redis://HOST:PORT/DB")

// ledgerFolder is where the embedded ledger of a URL is, "" for another one.
func ledgerFolder(url string) (string, error) {
	dir, ok := strings.CutPrefix(url, pebblePrefix)
	switch {
	case ok && dir != "":
		return filepath.Join(strings.TrimPrefix(dir, "//"), "ledger"), nil
	case ok || !strings.HasPrefix(url, "redis"):
		return "", errBadLedger // its text may hold a password
	}
	return "", nil
}

// openToRead opens a ledger that nobody else may use meanwhile.
func openToRead(ctx context.Context, url string) (ledger.Bulk, error) {
	dir, err := ledgerFolder(url)
	if err != nil {
		return nil, err
	}
	if dir == "" {
		log := quietLog()
		log.Warn("what a server that still uses this Redis writes from now on may be missing in the copy")
		return redisdb.Open(ctx, url, redisdb.Options{Logger: log})
	}
	if err := checkFormat(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	db, err := pebbledb.Open(dir, pebbledb.Options{Logger: quietLog()})
	if errors.Is(err, pebbledb.ErrInUse) {
		return nil, fmt.Errorf("%w: stop the server that runs on it", err)
	}
	return db, err
}

// loading is an empty ledger that is being filled.
type loading struct {
	ledger.Bulk
	dir   string      // of an embedded one
	redis *redisdb.DB // the other one
}

func openToLoad(ctx context.Context, url string) (*loading, error) {
	dir, err := ledgerFolder(url)
	if err != nil {
		return nil, err
	}
	if dir == "" {
		db, err := redisdb.Open(ctx, url, redisdb.Options{Logger: quietLog(), Loading: true})
		return &loading{Bulk: db, redis: db}, err
	}
	if _, err := privateFolder(filepath.Dir(dir), quietLog()); err != nil {
		return nil, err
	}
	db, err := pebbledb.Open(dir, pebbledb.Options{Logger: quietLog(), Loading: true})
	return &loading{Bulk: db, dir: dir}, err
}

// end closes the ledger; unless it is whole all that was loaded is taken away first.
// That is also done for a command that was interrupted.
func (l *loading) end(ctx context.Context, whole bool) error {
	ctx = context.WithoutCancel(ctx)
	if whole {
		err := l.Close()
		if l.dir != "" {
			err = errors.Join(err, syncFolder(filepath.Dir(l.dir)))
		}
		return err
	}
	if l.dir != "" {
		return errors.Join(l.Close(), os.RemoveAll(l.dir))
	}
	return errors.Join(l.redis.ClearLoad(ctx), l.Close())
}
