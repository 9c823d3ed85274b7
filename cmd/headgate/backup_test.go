package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

// must runs a command line that has to succeed and gives what it printed.
func must(t testing.TB, args ...string) string {
	t.Helper()
	status, out, errs := headgate(t, args...)
	if status != 0 {
		t.Fatalf("%s = %d, %q, %q; want success", strings.Join(args, " "), status, out, errs)
	}
	return out
}

// fails runs a command line that has to fail with a text in what it says.
func fails(t testing.TB, want string, args ...string) {
	t.Helper()
	if status, out, errs := headgate(t, args...); status == 0 || out != "" || !strings.Contains(errs, want) {
		t.Errorf("%s = %d, %q, %q; want it to fail with %q", strings.Join(args, " "), status, out, errs, want)
	}
}

// wantHead wants main of acme/site at the shop's commit, in a store that is sound.
func (s shop) wantHead(t testing.TB, flags ...string) {
	t.Helper()
	if out := must(t, append([]string{"fsck"}, flags...)...); out != "acme/site: sound\n" {
		t.Errorf("fsck = %q, want a sound repo", out)
	}
	to := filepath.Join(t.TempDir(), "x.git")
	must(t, append([]string{"export", "--org", "acme", "--repo", "site", "--to", to}, flags...)...)
	if out, err := exec.Command("git", "-C", to, "rev-parse", "main").Output(); err != nil || strings.TrimSpace(string(out)) != s.head.String() {
		t.Errorf("main = %s, %v, want %s", out, err, s.head)
	}
}

func TestBackupAndRestoreOfAFolder(t *testing.T) {
	s := newShop(t)
	dir := filepath.Join(t.TempDir(), "backup")
	if out := must(t, "backup", "--data", s.data, "--to", dir); !strings.Contains(out, " 1 packs, 1 of them new") {
		t.Errorf("backup = %q", out)
	}
	if out := must(t, "backup", "--data", s.data, "--to", dir); !strings.Contains(out, " 1 packs, 0 of them new") {
		t.Errorf("second backup = %q", out)
	}
	data := filepath.Join(t.TempDir(), "new", "data")
	if out := must(t, "restore", "--from", dir, "--data", data); !strings.Contains(out, "1 repos, 1 packs") {
		t.Errorf("restore = %q", out)
	}
	s.wantHead(t, "--data", data)
	url := redistest.Start(t).URL()
	shared := filepath.Join(t.TempDir(), "shared")
	must(t, "restore", "--from", dir, "--data", shared, "--ledger", url)
	s.wantHead(t, "--data", shared, "--ledger", url)

	fails(t, errFolderInUse.Error(), "restore", "--from", dir, "--data", data)
	fails(t, "not empty", "restore", "--from", dir, "--data", filepath.Join(t.TempDir(), "x"), "--ledger", url)
	fails(t, "knows \"headgate backup 1\"", "restore", "--from", s.data, "--data", filepath.Join(t.TempDir(), "x"))
	fails(t, "knows \"headgate backup 1\"", "backup", "--data", data, "--to", s.data)
	s.wantHead(t, "--data", shared, "--ledger", url)
}

// A restore that fails leaves nothing, in the folder and in Redis; the next one works.
func TestRestoreThatFailsLeavesNothing(t *testing.T) {
	s := newShop(t)
	dir := filepath.Join(t.TempDir(), "backup")
	must(t, "backup", "--data", s.data, "--to", dir)
	packs, err := filepath.Glob(filepath.Join(dir, "packs", "*", "*.pack"))
	if err != nil || len(packs) != 1 {
		t.Fatalf("packs = %v, %v", packs, err)
	}
	whole, err := os.ReadFile(packs[0])
	if err != nil {
		t.Fatal(err)
	}
	damaged := append([]byte{}, whole...)
	damaged[len(damaged)/2] ^= 1
	write(t, packs[0], string(damaged))
	redis := redistest.Start(t)
	for _, flags := range [][]string{nil, {"--ledger", redis.URL()}} {
		data := filepath.Join(t.TempDir(), "data")
		args := append([]string{"restore", "--from", dir, "--data", data}, flags...)
		fails(t, filepath.Base(packs[0]), args...)
		if left, err := os.ReadDir(data); err != nil || len(left) > 0 {
			t.Errorf("%v leaves %v, %v", args, left, err)
		}
		if keys := redis.Do("KEYS", "*"); keys != "" {
			t.Errorf("%v leaves %s in redis", args, keys)
		}
		write(t, packs[0], string(whole))
		must(t, args...)
		s.wantHead(t, append([]string{"--data", data}, flags...)...)
		write(t, packs[0], string(damaged))
	}
}

// A data folder whose restore was killed is opened by nobody.
func TestRestoreThatWasKilled(t *testing.T) {
	data := t.TempDir()
	write(t, filepath.Join(data, "FORMAT"), restoringFormat+"\n")
	for _, args := range [][]string{{"fsck", "--data", data}, {"serve", "--listen", "127.0.0.1:0", "--data", data}, {"restore", "--from", t.TempDir(), "--data", data}} {
		fails(t, errUnfinishedRestore.Error(), args...)
	}
}

// From the embedded ledger to Redis and back: the same store.
func TestLedgerCopy(t *testing.T) {
	s := newShop(t)
	redis := redistest.Start(t)
	pebble, url := "pebble:"+s.data, redis.URL()
	n := openShop(t, s.data)
	fails(t, "stop the server", "ledger", "copy", "--from", pebble, "--to", url)
	if err := n.close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if out := must(t, "ledger", "copy", "--from", pebble, "--to", url); !strings.HasPrefix(out, "3 spaces copied") {
		t.Errorf("copy to redis = %q, want the spaces of repo, org and server", out)
	}
	s.wantHead(t, "--data", s.data, "--ledger", url)
	fails(t, "not empty", "ledger", "copy", "--from", pebble, "--to", url)
	fails(t, "not empty", "ledger", "copy", "--from", url, "--to", pebble)
	back := filepath.Join(t.TempDir(), "back")
	must(t, "ledger", "copy", "--from", url, "--to", "pebble://"+back)
	for _, bad := range []string{"pebble:", "http://x", "", s.data, "redis:x"} {
		fails(t, "", "ledger", "copy", "--from", bad, "--to", "pebble:"+t.TempDir())
		fails(t, "", "ledger", "copy", "--from", pebble, "--to", bad)
	}
	if err := os.RemoveAll(filepath.Join(s.data, "ledger")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(back, "ledger"), filepath.Join(s.data, "ledger")); err != nil {
		t.Fatal(err)
	}
	s.wantHead(t, "--data", s.data)

	// One that was cut is of no use to anybody.
	if _, err := redisdb.Open(t.Context(), redistest.Start(t).URL()+"9999", redisdb.Options{}); err == nil {
		t.Error("a database that is not there opens")
	}
	cut := redistest.Start(t)
	cut.Do("SET", "headgate:loading", "1")
	fails(t, "not finished", "ledger", "copy", "--from", pebble, "--to", cut.URL())
	fails(t, "not finished", "ledger", "copy", "--from", cut.URL(), "--to", "pebble:"+t.TempDir())
	fails(t, "not finished", "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--ledger", cut.URL())
}

func TestExportOfABundle(t *testing.T) {
	s := newShop(t)
	to := filepath.Join(t.TempDir(), "site.bundle")
	args := []string{"export", "--data", s.data, "--org", "acme", "--repo", "site", "--bundle", to}
	if out := must(t, args...); out != to+"\n" {
		t.Errorf("export = %q, want the file's name", out)
	}
	plain := filepath.Join(t.TempDir(), "plain.git")
	if out, err := exec.Command("git", "clone", "-q", "--mirror", to, plain).CombinedOutput(); err != nil {
		t.Errorf("clone of the bundle: %v, %s", err, out)
	}
	if out, err := exec.Command("git", "-C", plain, "rev-parse", "main").Output(); err != nil || strings.TrimSpace(string(out)) != s.head.String() {
		t.Errorf("main of the bundle = %s, %v, want %s", out, err, s.head)
	}
	fails(t, "exists", args...)
	fails(t, "", append(args, "--to", t.TempDir()+"/x")...)
	fails(t, "", args[:len(args)-2]...)
	if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) != 1 {
		t.Errorf("beside the bundle there is %v, %v", left, err)
	}
}

// All processes that make the key of a folder at once have the same one, and nobody
// else can read it.
func TestOperatorKey(t *testing.T) {
	data := t.TempDir()
	keys := make([]string, 16)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			var err error
			if keys[i], err = makeOperatorKey(data); err != nil {
				t.Errorf("makeOperatorKey = %v", err)
			}
		})
	}
	all.Wait()
	for _, key := range keys {
		if key != keys[0] || !operatorKeyForm.MatchString(key) {
			t.Fatalf("keys = %q, want one", keys)
		}
	}
	path := filepath.Join(data, operatorKeyName)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key = %v, %v, want 0600", info, err)
	}
	if files, err := os.ReadDir(data); err != nil || len(files) != 1 {
		t.Errorf("the folder holds %v, %v", files, err)
	}
	if other, err := makeOperatorKey(t.TempDir()); err != nil || other == keys[0] {
		t.Errorf("the key of another folder = %v, %v", other == keys[0], err)
	}
	for _, text := range []string{"", "hgop_", keys[0][:20], keys[0] + "0", "secretsecret"} {
		write(t, path, text)
		if _, err := makeOperatorKey(data); !errors.Is(err, errBadOperatorKey) || (text != "" && strings.Contains(err.Error(), text)) {
			t.Errorf("a key file with %q = %v, want it refused without its text", text, err)
		}
	}
}

// Every command asks a running server, with the key of its folder or one that is named.
func TestCommandsAskAServer(t *testing.T) {
	s := newShop(t)
	n, err := openNode(t.Context(), nodeOptions{data: s.data, ledger: "pebble", limits: defaultLimits(), authority: newAuthority(), log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("openNode: %v", err)
	}
	defer n.close(context.Background())
	srv := httptest.NewServer(n.server)
	defer srv.Close()
	s.wantHead(t, "--server", srv.URL, "--data", s.data)
	key := filepath.Join(t.TempDir(), "key")
	write(t, key, read(t, filepath.Join(s.data, operatorKeyName)))
	flags := []string{"--server", srv.URL, "--operator-key", key}
	if out := must(t, append([]string{"gc", "--now"}, flags...)...); !strings.HasPrefix(out, "acme/site: 3 dead objects gone") {
		t.Errorf("gc = %q", out)
	}
	t.Setenv("HEADGATE_OPERATOR_KEY", key)
	t.Setenv("HEADGATE_SERVER", srv.URL)
	bundle, dir := filepath.Join(t.TempDir(), "x.bundle"), filepath.Join(t.TempDir(), "backup")
	must(t, "export", "--org", "acme", "--repo", "site", "--bundle", bundle)
	must(t, "backup", "--to", dir)
	data := filepath.Join(t.TempDir(), "data")
	must(t, "restore", "--from", dir, "--data", data)
	fails(t, "repository not found", "export", "--org", "acme", "--repo", "none", "--to", filepath.Join(t.TempDir(), "x"))
	write(t, key, "hgop_"+strings.Repeat("0", 64))
	fails(t, "does not know this operator key", "gc")
	fails(t, "does not know this operator key", "backup", "--to", dir)
	os.Unsetenv("HEADGATE_OPERATOR_KEY")
	fails(t, errNoKey.Error(), "gc")
	os.Unsetenv("HEADGATE_SERVER")
	fails(t, errNoStore.Error(), "gc")
	s.wantHead(t, "--data", data)
}
