package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/tokens"
)

// serverKeyIDs are the keys of a folder that tell themselves usable, oldest first.
func serverKeyIDs(t *testing.T, folder string) []string {
	t.Helper()
	keys, err := tokens.OpenServerKeys(folder, tokens.ServerKeyOptions{})
	if err != nil {
		t.Fatalf("open server keys: %v", err)
	}
	var ids []string
	for _, k := range keys.List() {
		ids = append(ids, k.ID)
	}
	return ids
}

// The whole of a rotation by hand: a new key, and the old one retired. No key is printed.
func TestKeygenServerRotates(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "keys")
	status, out, errs := headgate(t, "keygen", "--server", "--keys", folder)
	ids := serverKeyIDs(t, folder)
	if status != 0 || len(ids) != 1 || !strings.Contains(out, ids[0]) || strings.Contains(out, "--retire") {
		t.Fatalf("keygen --server = %d, %q, %q, want the one key of %v told", status, out, errs, ids)
	}
	old := ids[0]
	status, out, errs = headgate(t, "keygen", "--server", "--out", folder)
	ids = serverKeyIDs(t, folder)
	if status != 0 || len(ids) != 2 || ids[0] != old || !strings.Contains(out, ids[1]) || !strings.Contains(out, "--retire "+old) {
		t.Fatalf("keygen --server again = %d, %q, %q, want the new key of %v, and how to retire %s", status, out, errs, ids, old)
	}
	for _, id := range ids {
		if body := strings.Split(read(t, filepath.Join(folder, id+".key.pem")), "\n")[1]; strings.Contains(out+errs, body[:20]) {
			t.Errorf("a private key was printed")
		}
	}
	if status, _, errs = headgate(t, "keygen", "--server", "--keys", folder, "--retire", ids[1]); status != exitFailed || !strings.Contains(errs, "newest") {
		t.Errorf("retire the newest = %d, %q, want it refused", status, errs)
	}
	if status, out, errs = headgate(t, "keygen", "--server", "--keys", folder, "--retire", old); status != 0 || !strings.Contains(out, old) {
		t.Errorf("retire = %d, %q, %q", status, out, errs)
	}
	if left := serverKeyIDs(t, folder); len(left) != 1 || left[0] != ids[1] {
		t.Errorf("left are %v, want %s", left, ids[1])
	}
}

func TestKeygenUsage(t *testing.T) {
	t.Setenv("HEADGATE_SERVER", "http://127.0.0.1:1") // other commands have it, and it is no flag of this one
	if status, _, errs := headgate(t, "keygen", "--org", "acme", "--out", t.TempDir()); status != 0 {
		t.Errorf("keygen for an org = %d, %q", status, errs)
	}
	for _, args := range [][]string{
		{}, {"--org", "acme"}, {"--out", t.TempDir()}, {"--server"}, {"--server", "--retire", "hg-x"},
		{"--org", "acme", "--out", t.TempDir(), "--retire", "hg-x"},
	} {
		if status, out, errs := headgate(t, append([]string{"keygen"}, args...)...); status != exitUsage || out != "" || errs == "" {
			t.Errorf("keygen %v = %d, %q, %q, want %d and why", args, status, out, errs, exitUsage)
		}
	}
}

// Server keys are read again at SIGHUP, be the configuration good or bad then, and a
// folder that is lost is logged.
func TestServerKeysReadAgainAtHangup(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "keys")
	var logged logBuffer
	log := slog.New(handled{slog.NewTextHandler(&logged, nil), make(chan struct{}, 16)})
	a := newAuthority()
	if err := a.rereadServerKeys(); err != nil {
		t.Errorf("reread before any was opened = %v", err)
	}
	keys, err := a.openServerKeys(folder, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("openServerKeys = %v", err)
	}
	path := write(t, filepath.Join(dir, "c.toml"), "")
	r := &reloader{path: path, serverKeys: a.rereadServerKeys, apply: a.apply, log: log}
	hangups := make(chan os.Signal)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.run(ctx, hangups) })
	defer wg.Wait()
	defer cancel()
	done := log.Handler().(handled).done
	for _, config := range []string{"", "no toml ["} {
		write(t, path, config)
		id, err := tokens.AddServerKey(folder, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		hangups <- syscall.SIGHUP
		<-done
		if list := keys.List(); list[len(list)-1].ID != id || !list[len(list)-1].Signs {
			t.Errorf("with configuration %q: keys %+v, want %s to sign", config, list, id)
		}
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	hangups <- syscall.SIGHUP
	<-done
	<-done // the configuration's
	if text := logged.String(); !strings.Contains(text, "server keys not changed") || len(keys.List()) != 3 {
		t.Errorf("after the folder was lost: %d keys, log\n%s", len(keys.List()), text)
	}
}
