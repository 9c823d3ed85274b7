package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/httpapi"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/tokens"
)

// A node is one running server with all its parts, without its listener.
type node struct {
	ledger ledger.Ledger
	store  *gitstore.Store
	server *httpapi.Server

	denied      *tokens.DenyList
	sessions    *sessions.Keeper
	snapshots   *snapshot.Keeper
	stopReaping func() // nil: nobody reaps
}

// nodeOptions say what a node is built from.
type nodeOptions struct {
	data      string // folder of everything that is kept
	keys      string // folder of the server's own keys; empty: one in data
	ledger    string // "pebble" or a redis URL
	publicURL string
	looking   bool // for a command that only looks
	limits    Limits
	sessions  SessionLimits  // zero fields: the defaults
	snapshots SnapshotLimits // the same
	authority *authority
	log       *slog.Logger
}

// openNode builds a node from the ledger upwards.
func openNode(ctx context.Context, o nodeOptions) (*node, error) {
	metrics := httpapi.NewMetrics()
	n, err := openStore(ctx, o, metrics)
	if err != nil {
		return nil, err
	}
	key, err := makeOperatorKey(o.data)
	if err != nil {
		return nil, errors.Join(err, n.close(ctx))
	}
	keys, err := o.openServerKeys()
	if err != nil {
		return nil, errors.Join(err, n.close(ctx))
	}
	n.denied = tokens.NewDenyList(n.ledger, tokens.DenyListOptions{Logger: o.log})
	verifier := tokens.NewVerifier(o.authority.keys, time.Now, tokens.WithServerKeys(keys), tokens.WithDenyList(n.denied))
	n.reap(o)
	n.server = httpapi.New(httpapi.Config{
		Store: n.store, Tokens: verifier, OperatorKey: key,
		Sessions: n.sessions, Snapshots: n.snapshots, Seals: o.authority.sealing.Load(), Issuer: tokens.NewIssuer(keys), Denials: n.denied,
		PublicURL: o.publicURL, Ready: n.ready, Metrics: metrics,
		Logger: o.log, Limits: o.limits.ofHTTP(), InForce: o.inForce(),
	})
	return n, nil
}

// openStore builds a node without what answers requests; what was opened is closed
// again when a later part fails.
func openStore(ctx context.Context, o nodeOptions, metrics *httpapi.Metrics) (*node, error) {
	if err := checkFormat(o.data); err != nil {
		return nil, err
	}
	n := &node{}
	if err := n.open(ctx, o, metrics); err != nil {
		return nil, errors.Join(err, n.close(ctx))
	}
	return n, nil
}

func (n *node) open(ctx context.Context, o nodeOptions, metrics *httpapi.Metrics) (err error) {
	defer func() { err = o.explained(err) }()
	if n.ledger, err = openLedger(ctx, o, metrics); err != nil {
		return fmt.Errorf("open ledger: %w", err)
	}
	git, err := newGit(o, metrics)
	if err != nil {
		return err
	}
	n.sessions = n.newKeeper(o)
	n.snapshots = n.newSnapshots(o)
	so := gitstore.Options{
		Guard: httpapi.NewGuard(n.sessions, n.snapshots),
		Dir:   o.data, Ledger: n.ledger, Git: git,
		Shared: o.ledger != "pebble", Looking: o.looking, Logger: o.log, Limits: o.limits.ofStore(), Observe: metrics.Observe,
	}
	if o.authority != nil {
		so.Signatures = o.authority
	}
	if n.store, err = gitstore.Open(ctx, so); err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	showFetches(metrics, n.store)
	return nil
}

// explained says what to check when data folder and ledger do not belong together.
func (o nodeOptions) explained(err error) error {
	var foreign *gitstore.ForeignLedgerError
	if !errors.As(err, &foreign) {
		return err
	}
	return fmt.Errorf("%w; nothing was changed: check --ledger (it is %s) and --data (are both mounted, and whole?)", err, redisdb.Redacted(o.ledger))
}

// ready is nil while the ledger answers.
func (n *node) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	v, err := n.ledger.Read(ctx, ledger.ServerSpace)
	if err != nil {
		return err
	}
	defer v.Close()
	_, err = v.LastSeq(ctx)
	return err
}

// close settles and closes what is open, the ledger last.
func (n *node) close(ctx context.Context) error {
	var errs []error
	if n.stopReaping != nil {
		n.stopReaping()
	}
	if n.denied != nil {
		n.denied.Close()
	}
	if n.store != nil {
		errs = append(errs, n.store.Close(ctx))
	}
	if n.ledger != nil {
		errs = append(errs, n.ledger.Close())
	}
	return errors.Join(errs...)
}

func openLedger(ctx context.Context, o nodeOptions, m *httpapi.Metrics) (ledger.Ledger, error) {
	if strings.HasPrefix(o.ledger, "redis") {
		db, err := redisdb.Open(ctx, o.ledger, redisdb.Options{Logger: o.log, Resync: resynced})
		if err != nil {
			return nil, err
		}
		return db, nil
	}
	if o.ledger != "pebble" {
		return nil, fmt.Errorf("ledger %q: want pebble or redis://HOST:PORT/DB", o.ledger)
	}
	po := o.limits.ofPebble()
	po.Logger = o.log
	po.OnBatch = func(took time.Duration, _ int) { m.Observe("batch", took) }
	folder := filepath.Join(o.data, "ledger")
	if entries, err := os.ReadDir(folder); len(entries) == 0 {
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if err := gitstore.CheckUnused(o.data); err != nil { // a new ledger would not be the folder's
			return nil, err
		}
	}
	db, err := pebbledb.Open(folder, po)
	if err != nil {
		return nil, err
	}
	showDisk(m, db)
	return db, nil
}

// showDisk tells the embedded ledger's condition under /metrics.
func showDisk(m *httpapi.Metrics, db *pebbledb.DB) {
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	m.Gauge("headgate_disk_free_bytes", "Free space on the ledger's disk.",
		func() float64 { return float64(db.Metrics().DiskAvailBytes) })
	m.Gauge("headgate_disk_watermark_bytes", "Free space below which writes are refused.",
		func() float64 { return float64(db.Metrics().WatermarkBytes) })
	m.Gauge("headgate_disk_full", "1 while writes are refused for want of space.",
		func() float64 { return truth(db.Metrics().NoSpace) })
	m.Gauge("headgate_ledger_available", "1 while the embedded ledger is open and sound.",
		func() float64 { return truth(db.Metrics().Available) })
	m.Gauge("headgate_ledger_table_bytes", "Bytes in the embedded ledger's tables.",
		func() float64 { return float64(db.Metrics().TableBytes) })
	m.Counter("headgate_ledger_reopens_total", "How often the embedded ledger was opened anew after its disk failed.",
		func() float64 { return float64(db.Metrics().Reopens) })
}

func newGit(o nodeOptions, m *httpapi.Metrics) (*gitcmd.Runner, error) {
	var running atomic.Int64
	m.Gauge("headgate_git_processes", "Git processes running now.", func() float64 { return float64(running.Load()) })
	opts := o.limits.ofGit()
	opts.Home = filepath.Join(o.data, "git-home")
	opts.Logger = o.log
	opts.OnStart = func(string) { running.Add(1) }
	opts.OnExit = func(name string, took time.Duration, _ error) {
		running.Add(-1)
		m.Observe("git "+name, took)
	}
	git, err := gitcmd.New(opts)
	if err != nil {
		return nil, fmt.Errorf("find git: %w", err)
	}
	return git, nil
}

const (
	// dataFormat is the version of the layout below the data folder.
	dataFormat = "1"
	// restoringFormat stands there while a backup is put into the folder.
	restoringFormat = "restoring"
)

var errUnfinishedRestore = errors.New("a restore into this data folder was not finished: remove the folder and restore again")

// checkFormat makes the data folder with its FORMAT file, or reads the file: a
// layout this program does not know is refused.
func checkFormat(data string) error {
	if err := os.MkdirAll(data, 0o755); err != nil {
		return fmt.Errorf("make data folder: %w", err)
	}
	path := filepath.Join(data, "FORMAT")
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return writeDurable(path, []byte(dataFormat+"\n"))
	}
	if err != nil {
		return fmt.Errorf("read data format: %w", err)
	}
	switch got := strings.TrimSpace(string(text)); got {
	case dataFormat:
	case restoringFormat:
		return fmt.Errorf("%s: %w", data, errUnfinishedRestore)
	default:
		return fmt.Errorf("data folder %s has format %q, this program knows %s", data, got, dataFormat)
	}
	return nil
}

// writeDurable writes a file so that it is there whole or not at all.
func writeDurable(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}
