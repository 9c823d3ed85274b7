package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A logBuffer is a log that a test may read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestReloaderAtTheStart(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "c.toml"), "x = 1")
	applied := 0
	r := &reloader{path: path, apply: func(Config) { applied++ }, log: slog.New(slog.DiscardHandler)}
	if err := r.load(); err == nil || applied != 0 {
		t.Errorf("load of a bad file = %v, applied %d times, want an error and none", err, applied)
	}
	write(t, path, "")
	if err := r.load(); err != nil || applied != 1 {
		t.Errorf("load of a good file = %v, applied %d times, want nil and once", err, applied)
	}
}

// At SIGHUP a good file takes the place of the old one, a removed key is dead at
// once, and a bad file keeps what was there and is logged.
func TestReloadAtHangup(t *testing.T) {
	dir := t.TempDir()
	one, two := newOrgKeys(t, dir, "one"), newOrgKeys(t, dir, "two")
	path := write(t, filepath.Join(dir, "c.toml"), `orgs.acme.keys = [{id = "a", file = "one.pub.pem"}]`)

	var logged logBuffer
	loaded := make(chan Config, 1)
	r := &reloader{
		path: path, apply: func(c Config) { loaded <- c },
		log: slog.New(handled{slog.NewTextHandler(&logged, nil), make(chan struct{}, 16)}),
	}
	if err := r.load(); err != nil {
		t.Fatalf("load = %v", err)
	}
	a := newAuthority()
	a.apply(<-loaded)

	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.run(ctx, hangups) })
	defer wg.Wait()
	defer cancel()
	hangup := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-r.log.Handler().(handled).done
	}

	write(t, path, `orgs.acme.keys = [{id = "b", file = "two.pub.pem"}]`)
	hangup()
	config := <-loaded
	if p, err := verifies(t, config, "acme", two.signer); err != nil || p.KeyID != "b" {
		t.Errorf("after SIGHUP the new key: %+v, %v, want it taken", p, err)
	}
	if p, err := verifies(t, config, "acme", one.signer); err == nil {
		t.Errorf("after SIGHUP the old key still signs: %+v", p)
	}

	for _, bad := range []string{"orgs.acme.kees = []", "[", `orgs.acme.keys = [{file = "one.key.pem"}]`} {
		write(t, path, bad)
		hangup()
		select {
		case c := <-loaded:
			t.Errorf("the bad file %q was put into force: %+v", bad, c)
		default:
		}
	}
	if text := logged.String(); strings.Count(text, "configuration not changed") != 3 || !strings.Contains(text, "orgs.acme.kees") {
		t.Errorf("log after three bad files:\n%swant each said, the unknown key named", text)
	}
}

// handled tells when a line was logged.
type handled struct {
	slog.Handler
	done chan struct{}
}

func (h handled) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	h.done <- struct{}{}
	return err
}
