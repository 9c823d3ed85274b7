package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/httpapi"
)

// serveCmd runs the server until SIGINT or SIGTERM.
type serveCmd struct {
	Listen    string   `required:"" placeholder:"ADDR" help:"Address to listen on, such as 127.0.0.1:8080; port 0 takes a free one."`
	Data      string   `required:"" placeholder:"DIR" type:"path" help:"Folder of everything that is kept; made if it is not there."`
	Trust     []string `sep:"none" placeholder:"ORG=PUBLIC.pem" help:"A public key that signs an org's tokens. May be repeated."`
	Config    string   `placeholder:"FILE.toml" type:"path" help:"Orgs, keys and limits; read again on SIGHUP."`
	Keys      string   `placeholder:"DIR" type:"path" help:"Folder of the server's own keys, which all nodes share; made if it is not there. Read again on SIGHUP. Unless given: keys in the data folder."`
	Ledger    string   `default:"pebble" placeholder:"pebble|redis://HOST:PORT/DB" help:"Where refs and small objects live."`
	PublicURL string   `placeholder:"URL" help:"How clients reach this server, for the addresses it gives out."`
	TLSCert   string   `placeholder:"FILE" type:"path" help:"Certificate chain; with --tls-key the server speaks TLS and HTTP/2."`
	TLSKey    string   `placeholder:"FILE" type:"path" help:"The certificate's private key."`
}

// Run serves until ctx ends; then what runs is finished, settled and closed.
func (c *serveCmd) Run(ctx context.Context, stdout io.Writer) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	believed := newAuthority()
	var begun Config // the first load's; a later one does not change the limits
	first := true
	r := &reloader{path: c.Config, trust: c.Trust, serverKeys: believed.rereadServerKeys, log: log, apply: func(config Config) {
		believed.apply(config)
		if first {
			begun, first = config, false
		}
	}}
	if err := r.load(); err != nil {
		return err
	}
	if _, err := privateFolder(c.Data, log); err != nil {
		return fmt.Errorf("make data folder: %w", err)
	}
	n, err := openNode(ctx, nodeOptions{
		data: c.Data, keys: c.Keys, ledger: c.Ledger, publicURL: c.PublicURL,
		limits: begun.Limits, sessions: begun.Sessions, snapshots: begun.Snapshots, authority: believed, log: log,
	})
	if err != nil {
		return err
	}
	l, err := c.listen(stdout)
	if err != nil {
		return errors.Join(err, n.close(ctx))
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { r.run(ctx, hangups); return nil })
	group.Go(func() error { return n.serve(ctx, l, begun.Limits.ShutdownTimeout.Duration, log) })
	return group.Wait()
}

// listen opens the address and says on standard output where.
func (c *serveCmd) listen(stdout io.Writer) (net.Listener, error) {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return nil, errors.New("--tls-cert and --tls-key go together")
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, err
	}
	scheme := "http"
	if c.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("load TLS certificate: %w", err)
		}
		l = tls.NewListener(l, &tls.Config{
			Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"},
		})
		scheme = "https"
	}
	fmt.Fprintf(stdout, "headgate listening on %s://%s\n", scheme, l.Addr())
	return l, nil
}

// serve answers on l until ctx ends, then gives running requests patience to finish
// and closes the node.
func (n *node) serve(ctx context.Context, l net.Listener, patience time.Duration, log *slog.Logger) error {
	server := n.server.HTTPServer()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(httpapi.Listener(l)) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	log.Info("shutting down", "patience", patience)
	// The signal has ended ctx; closing has a time of its own.
	ending, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if serr := server.Shutdown(ending); serr != nil {
		log.Warn("requests cut off", "err", serr)
		server.Close()
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, n.close(ending))
}
