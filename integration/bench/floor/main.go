// Command floor is what headgate is measured against: the least a server can do
// that gives the same answers.
//
//	floor commit DIR                  commits as headgate's commit-pack, into a ledger in DIR
//	floor commit redis://HOST:PORT    the same, stored by raw Lua
//	floor file PATH                   the file through http.ServeContent
//
// It prints where it listens and serves until it is told to stop.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 3 {
		return fmt.Errorf("want commit DIR or file PATH; it is the bench program that starts this one")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch what, path := os.Args[1], os.Args[2]; what {
	case "commit":
		s, err := openCommits(path)
		if err != nil {
			return err
		}
		defer s.close()
		return serve(ctx, s)
	case "file":
		return serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serveFile(w, r, path) }))
	default:
		return fmt.Errorf("%q: want commit or file", what)
	}
}

func serve(ctx context.Context, h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("floor listening on http://%s\n", l.Addr())
	server := &http.Server{Handler: h}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}

func serveFile(w http.ResponseWriter, r *http.Request, path string) {
	f, err := os.Open(path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", info.ModTime(), f)
}
