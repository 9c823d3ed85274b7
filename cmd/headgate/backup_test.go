package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
		if left, err := os.ReadDir(filepath.Dir(data)); err != nil || len(left) > 0 {
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

// One that fails before it begins takes the folders away that it has made, and nothing
// else.
func TestRestoreThatCannotBegin(t *testing.T) {
	root, old := t.TempDir(), t.TempDir()
	for _, data := range []string{filepath.Join(root, "a", "b"), old} {
		for _, args := range [][]string{{"--from", t.TempDir()}, {"--from", root, "--ledger", "redis:none"}, {"--from", root, "--ledger", "x"}} {
			fails(t, "", append([]string{"restore", "--data", data}, args...)...)
		}
	}
	for _, dir := range []string{root, old} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("restores that could not begin leave %v in %s, %v", left, dir, err)
		}
	}
}

// A backup of the wrong store, by a forgotten --ledger or another --data, is refused
// and the good one stays, until --replace is given.
func TestBackupOfTheWrongStore(t *testing.T) {
	s, other := newShop(t), newShop(t)
	url := redistest.Start(t).URL()
	dir := filepath.Join(t.TempDir(), "backup")
	must(t, "backup", "--data", s.data, "--to", dir)
	shared := filepath.Join(t.TempDir(), "shared")
	must(t, "restore", "--from", dir, "--data", shared, "--ledger", url)
	fails(t, "--replace", "backup", "--data", shared, "--ledger", url, "--to", dir) // a store of its own from now on
	must(t, "backup", "--data", shared, "--ledger", url, "--to", dir, "--replace")
	must(t, "backup", "--data", shared, "--ledger", url, "--to", dir)
	manifest := read(t, filepath.Join(dir, "MANIFEST"))
	fails(t, "", "backup", "--data", shared, "--to", dir)
	fails(t, "--replace", "backup", "--data", other.data, "--to", dir)
	if now := read(t, filepath.Join(dir, "MANIFEST")); now != manifest {
		t.Errorf("after backups that were refused the manifest is\n%s\nwant\n%s", now, manifest)
	}
	must(t, "restore", "--from", dir, "--data", filepath.Join(t.TempDir(), "x"))
	must(t, "backup", "--data", other.data, "--to", dir, "--replace")
	data := filepath.Join(t.TempDir(), "x")
	must(t, "restore", "--from", dir, "--data", data)
	other.wantHead(t, "--data", data)
}

// Damaged repos cost a backup no more than themselves when that is asked for, and then
// the exit status says so.
func TestBackupWithoutDamagedRepos(t *testing.T) {
	s := newShop(t)
	packs, err := filepath.Glob(filepath.Join(s.data, "repos", "*", "*", "packs", "*.pack"))
	if err != nil || len(packs) != 1 {
		t.Fatalf("packs = %v, %v, want one", packs, err)
	}
	b := []byte(read(t, packs[0]))
	b[len(b)/2] ^= 1
	if err := os.Chmod(packs[0], 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, packs[0], string(b))
	dir := filepath.Join(t.TempDir(), "backup")
	fails(t, "acme/site", "backup", "--data", s.data, "--to", dir)
	skips := func(flags ...string) {
		t.Helper()
		args := append([]string{"backup", "--skip-damaged", "--to", dir}, flags...)
		status, out, errs := headgate(t, args...)
		if status != exitPartly || !strings.HasPrefix(out, "acme/site: damaged, left out: ") || !strings.Contains(out, " 0 packs") || !strings.Contains(errs, errIncomplete.Error()) {
			t.Errorf("%v = %d, %q, %q, want %d and the repo named", args, status, out, errs, exitPartly)
		}
	}
	skips("--data", s.data)
	n, err := openNode(t.Context(), nodeOptions{data: s.data, ledger: "pebble", limits: defaultLimits(), authority: newAuthority(), log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("openNode: %v", err)
	}
	defer n.close(context.Background())
	srv := httptest.NewServer(n.server)
	defer srv.Close()
	skips("--server", srv.URL, "--data", s.data)
	fails(t, "acme/site", "backup", "--to", dir, "--server", srv.URL, "--data", s.data)
	if out := must(t, "restore", "--from", dir, "--data", filepath.Join(t.TempDir(), "x")); !strings.HasPrefix(out, "acme/site: not in the backup: it was damaged\n") {
		t.Errorf("restore = %q, want what is missing named", out)
	}
}

// What a server says does nothing to the terminal of who asks it.
func TestErrorsAreHarmlessToATerminal(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/gc") {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error": "\u001b[2Jevil\u0007\u009b\u202e"}`)
			return
		}
		_, _ = io.WriteString(w, `{"type":"fsck","org":"o\u001b","repo":"r\r","findings":[{"kind":"k\u001b","subject":"s\n","detail":"d\u009b"}]}`+"\n"+`{"type":"error","error":"\u001bbad"}`+"\n")
	}))
	defer srv.Close()
	key := write(t, filepath.Join(t.TempDir(), "key"), "hgop_"+strings.Repeat("0", 64))
	for _, command := range []string{"gc", "fsck"} {
		status, out, errs := headgate(t, command, "--server", srv.URL, "--operator-key", key)
		if status != exitFailed || strings.ContainsAny(out+errs, "\x1b\r\a\u009b\u202e") || !strings.Contains(errs, `\x1b`) {
			t.Errorf("%s = %d, %q, %q, want escapes escaped", command, status, out, errs)
		}
		if command == "fsck" && out != `o\x1b/r\r: k\x1b s\n: d\u009b`+"\n" {
			t.Errorf("fsck = %q, want one line", out)
		}
	}
	status, _, errs := headgate(t, "fsck", "--data", "/none/\x1b[2J")
	if status == 0 || strings.Contains(errs, "\x1b") || !strings.Contains(errs, `\x1b[2J`) {
		t.Errorf("fsck of a folder with escapes in its name = %d, %q, want them escaped", status, errs)
	}
}

// Folders that are made are for their owner alone; others keep their mode.
func TestFoldersArePrivate(t *testing.T) {
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b", "c")
	made, err := privateFolder(dir, log)
	if want := []string{filepath.Join(root, "a"), filepath.Join(root, "a", "b"), dir}; err != nil || !slices.Equal(made, want) {
		t.Errorf("privateFolder = %v, %v, want %v made", made, err, want)
	}
	for range 2 {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("mode = %v, %v, want 0700", info, err)
		}
		if made, err := privateFolder(dir+"/", log); err != nil || len(made) > 0 || said.Len() > 0 {
			t.Errorf("privateFolder of one that is there = %v, %v, %q", made, err, said.String())
		}
	}
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := privateFolder(dir, log); err != nil || strings.Count(said.String(), dir) != 1 {
		t.Errorf("privateFolder of one that others can read = %v, %q, want a warning", err, said.String())
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("mode = %v, %v, want it left alone", info, err)
	}
	file := write(t, filepath.Join(root, "file"), "")
	if _, err := privateFolder(filepath.Join(file, "x", "y"), log); err == nil {
		t.Error("a folder in a file is made")
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
	if out := must(t, "ledger", "copy", "--from", url, "--to", "pebble://"+back); !strings.Contains(out, "in the data folder that the packs are in") {
		t.Errorf("copy to a new folder = %q, want to be told where it is of use", out)
	}
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
	fails(t, "FLUSHDB", "ledger", "copy", "--from", pebble, "--to", cut.URL())
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
	for _, mode := range []os.FileMode{0o640, 0o604, 0o644, 0o620} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := makeOperatorKey(data); !errors.Is(err, errOpenOperatorKey) || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("a key file of mode %o = %v, want %v and what to do", mode, err, errOpenOperatorKey)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
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
	for _, which := range [][]string{{"--repo", "none"}, {"--org", "none"}, {"--org", "none", "--repo", "site"}} {
		fails(t, "repository not found", append([]string{"gc"}, which...)...)
		fails(t, "repository not found", append([]string{"fsck"}, which...)...)
	}
	write(t, key, "hgop_"+strings.Repeat("0", 64))
	fails(t, "does not know this operator key", "gc")
	fails(t, "does not know this operator key", "backup", "--to", dir)
	os.Unsetenv("HEADGATE_OPERATOR_KEY")
	fails(t, errNoKey.Error(), "gc")
	os.Unsetenv("HEADGATE_SERVER")
	fails(t, errNoStore.Error(), "gc")
	s.wantHead(t, "--data", data)
}
