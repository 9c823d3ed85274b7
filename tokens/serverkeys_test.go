package tokens

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func keyFile(dir, id string) string { return filepath.Join(dir, id+serverKeySuffix) }

// addKey makes a key of a time after that of all others.
func addKey(t testing.TB, dir string) string {
	t.Helper()
	id, err := AddServerKey(dir, testNow)
	if err != nil {
		t.Fatalf("AddServerKey = %v", err)
	}
	return id
}

func TestFirstServerKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "below", "keys")
	c := &clock{at: testNow}
	keys := openKeys(t, dir, c)
	list := keys.List()
	if len(list) != 1 || !list[0].Signs || !list[0].CreatedAt.Equal(testNow) || !validServerKeyID(list[0].ID) {
		t.Fatalf("List = %+v, want one key of %v that signs", list, testNow)
	}
	info, err := os.Stat(keyFile(dir, list[0].ID))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its file: %v, %v, want mode 0600", info, err)
	}
	if folder, err := os.Stat(dir); err != nil || folder.Mode().Perm() != 0o700 {
		t.Errorf("its folder: %v, %v, want mode 0700", folder, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("folder holds %v, %v, want the key alone", entries, err)
	}
	if again := openKeys(t, dir, c).List(); !slices.Equal(again, list) {
		t.Errorf("opened again: %+v, want %+v", again, list)
	}
}

// Nodes that start at once on one new folder may each make a key: none fails, and
// each verifies what each other issues.
func TestServerKeysMadeAtOnce(t *testing.T) {
	dir := t.TempDir()
	nodes := make([]*ServerKeys, 8)
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() {
			var err error
			if nodes[i], err = OpenServerKeys(dir, ServerKeyOptions{}); err != nil {
				t.Errorf("node %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	_, ring, c := acme(t)
	for i, signer := range nodes {
		raw := mint(t, signer, goodGrant())
		for j, n := range nodes {
			if _, err := NewVerifier(ring, c.now, WithServerKeys(n)).Verify(t.Context(), raw); err != nil {
				t.Errorf("issued by node %d, verified by node %d: %v", i, j, err)
			}
		}
	}
}

// A key that is made by a node whose clock is behind, or whose file looks older,
// still is the newest.
func TestNewestServerKeySigns(t *testing.T) {
	dir := t.TempDir()
	first, err := AddServerKey(dir, testNow.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	second := addKey(t, dir)
	long := testNow.Add(-1000 * time.Hour)
	if err := os.Chtimes(keyFile(dir, second), long, long); err != nil {
		t.Fatal(err)
	}
	list := openKeys(t, dir, nil).List()
	if len(list) != 2 || list[0].ID != first || list[1].ID != second || list[0].Signs || !list[1].Signs {
		t.Errorf("List = %+v, want %s and then %s, which signs", list, first, second)
	}
}

// Rotation by two nodes on one folder: what one issues with a key the other has not
// seen is known to it at once; a retired key's tokens are refused after Reload, also
// those that were verified before.
func TestServerKeyRotation(t *testing.T) {
	dir := t.TempDir()
	_, ring, c := acme(t)
	one, two := openKeys(t, dir, c), openKeys(t, dir, c)
	v := NewVerifier(ring, c.now, WithServerKeys(two))
	verify := func(raw string, want error) {
		t.Helper()
		if _, err := v.Verify(t.Context(), raw); !errors.Is(err, want) {
			t.Errorf("Verify = %v, want %v", err, want)
		}
	}
	old, oldID := mint(t, one, goodGrant()), one.List()[0].ID
	verify(old, nil)
	for range 3 { // faster than the folder is read for unknown ids
		id := addKey(t, dir)
		if err := one.Reload(); err != nil {
			t.Fatalf("Reload = %v", err)
		}
		raw := mint(t, one, goodGrant())
		if header, _ := parts(t, raw); !strings.Contains(header, id) {
			t.Errorf("header %s, want the new key %s", header, id)
		}
		verify(raw, nil)
		verify(old, nil)
	}
	if got := mint(t, two, goodGrant()); got != mint(t, one, goodGrant()) {
		t.Errorf("the nodes sign with different keys after one has met a token of the other")
	}
	if err := RetireServerKey(dir, oldID); err != nil {
		t.Fatalf("RetireServerKey = %v", err)
	}
	verify(old, nil) // nobody has told it
	if err := two.Reload(); err != nil {
		t.Fatalf("Reload = %v", err)
	}
	verify(old, ErrReservedKeyID)
}

func TestRetireServerKey(t *testing.T) {
	dir := t.TempDir()
	old, newest := addKey(t, dir), addKey(t, dir)
	outside := filepath.Join(t.TempDir(), "x"+serverKeySuffix)
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := RetireServerKey(dir, newest); !errors.Is(err, errNewestKey) {
		t.Errorf("RetireServerKey of the newest = %v, want errNewestKey", err)
	}
	if err := RetireServerKey(dir, strings.TrimSuffix(outside, serverKeySuffix)); !errors.Is(err, errBadServerKey) {
		t.Errorf("RetireServerKey of a path = %v, want errBadServerKey", err)
	}
	if err := RetireServerKey(dir, old); err != nil {
		t.Errorf("RetireServerKey = %v", err)
	}
	if err := RetireServerKey(dir, old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("RetireServerKey again = %v, want os.ErrNotExist", err)
	}
	if ids := must(serverKeyIDs(dir)); !slices.Equal(ids, []string{newest}) {
		t.Errorf("left are %v, want %s", ids, newest)
	}
}

// badKeyFiles are contents and modes that make a file no key of the server.
func badKeyFiles(t *testing.T) map[string]func(path string) {
	t.Helper()
	write := func(text []byte, mode os.FileMode) func(string) {
		return func(path string) {
			if err := os.WriteFile(path, text, mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	private := func(key crypto.Signer) []byte {
		return pemOf("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key)))
	}
	good := private(edOne())
	return map[string]func(string){
		"empty":           write(nil, 0o600),
		"cut":             write(good[:len(good)/2], 0o600),
		"another kind":    write(private(ecOne()), 0o600),
		"public":          write(pemOf("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(edOne().Public()))), 0o600),
		"group may read":  write(good, 0o640),
		"others may read": write(good, 0o604),
		"huge":            write(bytes.Repeat([]byte("x"), maxPEMBytes+2), 0o600),
		"a folder": func(path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// a file that is no good key stops the start with an error that names it, is
// left out later with a line in the log, and nothing of a key is told.
func TestA14_BadServerKeyFiles(t *testing.T) {
	secret := must(x509.MarshalPKCS8PrivateKey(edOne()))
	body := strings.Split(string(pemOf("PRIVATE KEY", secret)), "\n")[1]
	_, ring, c := acme(t)
	for name, spoil := range badKeyFiles(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var logged bytes.Buffer
			keys, err := OpenServerKeys(dir, ServerKeyOptions{Now: c.now, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			if err != nil {
				t.Fatalf("OpenServerKeys = %v", err)
			}
			v, raw := NewVerifier(ring, c.now, WithServerKeys(keys)), mint(t, keys, goodGrant())
			bad := must(nextServerKeyID(dir, testNow))
			spoil(keyFile(dir, bad))

			_, err = OpenServerKeys(dir, ServerKeyOptions{})
			if err == nil || !strings.Contains(err.Error(), keyFile(dir, bad)) || leaks(err.Error(), body) != "" {
				t.Errorf("OpenServerKeys = %v, want an error that names %s and no key", err, bad)
			}
			for range 3 {
				if err := keys.Reload(); err != nil {
					t.Errorf("Reload = %v, want the rest to work", err)
				}
			}
			if got := logged.String(); strings.Count(got, bad) != 1 || leaks(got, body) != "" {
				t.Errorf("logged %q, want %s once and no key", got, bad)
			}
			if _, err := v.Verify(t.Context(), raw); err != nil || mint(t, keys, goodGrant()) != raw {
				t.Errorf("the good key does not do its work any more: %v", err)
			}
		})
	}
}

func TestServerKeyFileOfAnotherName(t *testing.T) {
	dir := t.TempDir()
	addKey(t, dir)
	for _, name := range []string{"acme.key.pem", "README", "hg-old.key.pem~"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if list := openKeys(t, dir, nil).List(); len(list) != 1 {
		t.Errorf("List = %+v, want the one key", list)
	}
	if err := os.WriteFile(filepath.Join(dir, "hg-2026.key.pem"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenServerKeys(dir, ServerKeyOptions{}); !errors.Is(err, errBadServerKey) || !strings.Contains(err.Error(), "hg-2026.key.pem") {
		t.Errorf("OpenServerKeys = %v, want errBadServerKey and the file's name", err)
	}
}

// A key's file that is mended is found when a token names it, a second later at most.
func TestMendedServerKey(t *testing.T) {
	dir := t.TempDir()
	_, ring, c := acme(t)
	one, two := openKeys(t, dir, c), openKeys(t, dir, c)
	v := NewVerifier(ring, c.now, WithServerKeys(two))
	path := keyFile(dir, addKey(t, dir))
	if err := one.Reload(); err != nil {
		t.Fatal(err)
	}
	raw := mint(t, one, goodGrant())
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), raw); !errors.Is(err, ErrReservedKeyID) {
		t.Errorf("Verify by an open file = %v, want ErrReservedKeyID", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	c.set(testNow.Add(rereadEvery))
	if _, err := v.Verify(t.Context(), raw); err != nil {
		t.Errorf("Verify after it was mended = %v", err)
	}
}

// An unmounted or emptied folder does not take the keys away; Reload says so.
func TestServerKeysOutliveTheirFolder(t *testing.T) {
	for name, lose := range map[string]func(dir string) error{
		"gone":    os.RemoveAll,
		"emptied": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) },
	} {
		dir := filepath.Join(t.TempDir(), "keys")
		_, ring, c := acme(t)
		keys := openKeys(t, dir, c)
		v, raw := NewVerifier(ring, c.now, WithServerKeys(keys)), mint(t, keys, goodGrant())
		if err := lose(dir); err != nil {
			t.Fatal(err)
		}
		if err := keys.Reload(); err == nil {
			t.Errorf("%s: Reload = nil, want an error", name)
		}
		if _, err := v.Verify(t.Context(), raw); err != nil || mint(t, keys, goodGrant()) != raw {
			t.Errorf("%s: the key is lost: %v", name, err)
		}
	}
}

// Somebody who sends forged ids makes the folder be read once a second, not more.
func TestForgedKeyIDsReadTheFolderOnceASecond(t *testing.T) {
	dir := t.TempDir()
	_, ring, c := acme(t)
	keys := openKeys(t, dir, c)
	v := NewVerifier(ring, c.now, WithServerKeys(keys))
	_, payload := parts(t, mint(t, keys, goodGrant()))
	reads, last := 0, keys.readAt
	for i := range 100 {
		c.set(testNow.Add(time.Duration(i) * 30 * time.Millisecond))
		forged := craft(t, edOne(), fmt.Sprintf(`{"alg":"EdDSA","kid":"hg-%020x"}`, i), payload)
		if _, err := v.Verify(t.Context(), forged); !errors.Is(err, ErrReservedKeyID) {
			t.Fatalf("Verify = %v, want ErrReservedKeyID", err)
		}
		if keys.readAt != last {
			reads, last = reads+1, keys.readAt
		}
	}
	if reads != 2 {
		t.Errorf("read %d times in 2.97 s, want 2", reads)
	}
}

// Keys come and go while many verify: a token of a key that stays is always good, one
// whose key is gone is refused from the end of Reload on.
func TestServerKeysReplacedWhileVerifying(t *testing.T) {
	dir := t.TempDir()
	_, ring, c := acme(t)
	keys := openKeys(t, dir, c)
	v := NewVerifier(ring, c.now, WithServerKeys(keys))
	stays := mint(t, keys, goodGrant())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := v.Verify(t.Context(), stays); err != nil {
					t.Errorf("Verify by the key that stays = %v", err)
					return
				}
				if raw, err := NewIssuer(keys).Mint(goodGrant()); err != nil || raw == "" {
					t.Errorf("Mint = %v", err)
					return
				}
			}
		})
	}
	last := ""
	for range 8 {
		id := addKey(t, dir)
		if err := keys.Reload(); err != nil {
			t.Fatalf("Reload = %v", err)
		}
		raw := mint(t, keys, goodGrant())
		if _, err := v.Verify(t.Context(), raw); err != nil {
			t.Errorf("Verify by the newest key = %v", err)
		}
		if last != "" {
			if err := RetireServerKey(dir, last); err != nil {
				t.Fatal(err)
			}
			gone := mint(t, keys, goodGrant())
			if err := keys.Reload(); err != nil {
				t.Fatalf("Reload = %v", err)
			}
			if _, err := v.Verify(t.Context(), gone); err != nil {
				t.Errorf("Verify by the key that is left = %v", err)
			}
		}
		last = id
	}
	close(stop)
	wg.Wait()
}
