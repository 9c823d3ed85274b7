package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"
)

// quickstartCmd starts a server with everything embedded, walks through one
// session aloud, and goes on serving.
type quickstartCmd struct {
	Listen string `default:"127.0.0.1:8080" placeholder:"ADDR" help:"Address to listen on."`
	Data   string `default:"headgate-data" placeholder:"DIR" type:"path" help:"Folder of everything that is kept; made if it is not there."`
}

// quickstartOrg is the org whose key quickstart makes.
const quickstartOrg = "acme"

// Run serves and walks; an error of the walk ends the server.
func (c *quickstartCmd) Run(ctx context.Context, stdout io.Writer) error {
	// What the server logs would stand between the steps; trouble is still told.
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if _, err := privateFolder(c.Data, log); err != nil {
		return fmt.Errorf("make data folder: %w", err)
	}
	keys := filepath.Join(c.Data, "keys")
	private, public, made, err := c.orgKey(keys)
	if err != nil {
		return err
	}
	config, err := loadConfig("", quickstartOrg+"="+public)
	if err != nil {
		return err
	}
	believed := newAuthority()
	believed.apply(config)
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("%w (take another address with --listen 127.0.0.1:0)", err)
	}
	n, err := openNode(ctx, nodeOptions{
		data: c.Data, ledger: "pebble", limits: config.Limits, sessions: config.Sessions, snapshots: config.Snapshots, authority: believed, log: log,
	})
	if err != nil {
		l.Close()
		return err
	}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- n.serve(serving, l, config.Limits.ShutdownTimeout.Duration, log) }()

	t := newTour(stdout, "http://"+l.Addr().String(), private)
	t.welcome(c.Data, public, made)
	if err := t.walk(ctx); err != nil {
		stop()
		return errors.Join(err, <-done)
	}
	t.farewell()
	return <-done
}

// orgKey makes the org's key at the first start and finds it later.
func (c *quickstartCmd) orgKey(keys string) (private, public string, made bool, err error) {
	private, public, err = writeOrgKey(keys, quickstartOrg)
	if errors.Is(err, fs.ErrExist) {
		return filepath.Join(keys, quickstartOrg+".key.pem"), filepath.Join(keys, quickstartOrg+".pub.pem"), false, nil
	}
	return private, public, true, err
}

// sign makes a token as the token command does.
func (t *tour) sign(c tokenCmd) (string, error) {
	c.Key, c.Org, c.Repo = t.key, quickstartOrg, t.repo
	return c.sign(time.Now())
}
