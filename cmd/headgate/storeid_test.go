package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
	"github.com/headgate/headgate/httpapi"
)

// everyFile lists a data folder without what comes and goes with each process.
func everyFile(t testing.TB, data string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "scratch" || d.Name() == "ledger") {
			names = append(names, path)
			return filepath.SkipDir
		}
		names = append(names, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// wantRefused demands of every command that opens a folder that it refuses to, says what
// to check, and changes nothing.
func wantRefused(t *testing.T, data, ledger, id string) {
	t.Helper()
	before := everyFile(t, data)
	out := filepath.Join(t.TempDir(), "out")
	for _, args := range [][]string{
		{"fsck"}, {"gc", "--now"}, {"backup", "--to", out}, {"serve", "--listen", "127.0.0.1:0"},
		{"export", "--org", "acme", "--repo", "site", "--to", out},
	} {
		args = append(args, "--data", data, "--ledger", ledger)
		status, said, errs := headgate(t, args...)
		if status == 0 || said != "" {
			t.Errorf("%s = %d, %q; want it to be refused", strings.Join(args, " "), status, said)
		}
		for _, want := range []string{data, id, "check --ledger (it is " + ledger + ")"} {
			if !strings.Contains(errs, want) {
				t.Errorf("%s says %q, want %q in it", strings.Join(args, " "), errs, want)
			}
		}
	}
	if after := everyFile(t, data); !slices.Equal(after, before) {
		t.Errorf("files after the refusals are %q, want %q", after, before)
	}
}

func storeIDOf(t testing.TB, data string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(data, "STORE"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// --ledger forgotten or wrong, a Redis that was flushed, a ledger that is not mounted: the
// folder is refused, no new ledger is made, and with the right one all is there.
func TestAWrongLedgerIsRefused(t *testing.T) {
	s := newShop(t)
	dir := filepath.Join(t.TempDir(), "backup")
	must(t, "backup", "--data", s.data, "--to", dir)
	redis := redistest.Start(t)
	shared := filepath.Join(t.TempDir(), "shared")
	must(t, "restore", "--from", dir, "--data", shared, "--ledger", redis.URL())
	id := storeIDOf(t, shared)
	if old := storeIDOf(t, s.data); old == id {
		t.Errorf("the restored folder and the old one have the id %s", id)
	}

	wantRefused(t, shared, "pebble", id)
	if _, err := os.Stat(filepath.Join(shared, "ledger")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused folder has a ledger now: %v", err)
	}
	wantRefused(t, s.data, redis.URL(), storeIDOf(t, s.data))
	s.wantHead(t, "--data", shared, "--ledger", redis.URL())
	s.wantHead(t, "--data", s.data)

	redis.Do("FLUSHALL")
	wantRefused(t, shared, redis.URL(), id)
	away := filepath.Join(t.TempDir(), "ledger")
	if err := os.Rename(filepath.Join(s.data, "ledger"), away); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, s.data, "pebble", storeIDOf(t, s.data))
	if err := os.Mkdir(filepath.Join(s.data, "ledger"), 0o755); err != nil { // where it is to be mounted
		t.Fatal(err)
	}
	wantRefused(t, s.data, "pebble", storeIDOf(t, s.data))
	if err := errors.Join(os.Remove(filepath.Join(s.data, "ledger")), os.Rename(away, filepath.Join(s.data, "ledger"))); err != nil {
		t.Fatal(err)
	}
	s.wantHead(t, "--data", s.data)
}

// A folder goes on with a copy of its ledger, and a refusal is typed and hides a password.
func TestAFolderGoesOnWithACopyOfItsLedger(t *testing.T) {
	s := newShop(t)
	redis := redistest.Start(t)
	must(t, "ledger", "copy", "--from", "pebble:"+s.data, "--to", redis.URL())
	s.wantHead(t, "--data", s.data, "--ledger", redis.URL())

	other := newShop(t)
	o := nodeOptions{data: other.data, ledger: redis.URL(), limits: defaultLimits(), log: slog.New(slog.DiscardHandler)}
	n, err := openStore(t.Context(), o, httpapi.NewMetrics())
	var foreign *gitstore.ForeignLedgerError
	if !errors.As(err, &foreign) {
		t.Errorf("openStore with another store's ledger = %v, want a *ForeignLedgerError", err)
	}
	if err == nil {
		n.close(context.Background())
	}
	o.ledger = "redis://:secret@127.0.0.1:1/0"
	if err := o.explained(foreign); strings.Contains(err.Error(), "secret") {
		t.Errorf("the refusal tells a password: %v", err)
	}
}
