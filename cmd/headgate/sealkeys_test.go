package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/sessions/seal"
)

func TestPN22_KeygenCapture(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "capture")
	status, out, errs := headgate(t, "keygen", "--capture", "--out", dir)
	if status != 0 {
		t.Fatalf("keygen --capture = %d, %q", status, errs)
	}
	private, public := filepath.Join(dir, "capture.key.pem"), filepath.Join(dir, "capture.pub.pem")
	if !strings.Contains(out, private) || !strings.Contains(out, public) {
		t.Errorf("keygen --capture told %q, want both files", out)
	}
	k, err := readSealKey(private)
	if err != nil {
		t.Fatalf("read %s: %v", private, err)
	}
	text, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := seal.ParsePublicKey(text); err != nil || p.ID() != k.Public().ID() {
		t.Errorf("%s is not the other half: %v", public, err)
	}
	if status, out, errs := headgate(t, "keygen", "--capture", "--out", dir); status != exitFailed || out != "" || errs == "" {
		t.Errorf("keygen --capture over it = %d, %q, %q, want %d", status, out, errs, exitFailed)
	}
	if again, err := readSealKey(private); err != nil || again.Public().ID() != k.Public().ID() {
		t.Errorf("keygen --capture over it changed the key: %v", err)
	}
	for _, args := range [][]string{{}, {"--out", dir, "--server"}, {"--out", dir, "--org", "acme"}} {
		if status, _, _ := headgate(t, append([]string{"keygen", "--capture"}, args...)...); status != exitUsage {
			t.Errorf("keygen --capture %v = %d, want %d", args, status, exitUsage)
		}
	}
}

// keygen --server makes a sealing key as well; the newest seals, all of them open.
func TestPN26_SealingKeysRotate(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "keys")
	a := newAuthority()
	if _, err := a.openServerKeys(folder, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatalf("openServerKeys = %v", err)
	}
	keys := a.sealing.Load()
	old := keys.Ring().Newest()
	if status, out, errs := headgate(t, "keygen", "--server", "--keys", folder); status != 0 || !strings.Contains(out, sealKeyPrefix) {
		t.Fatalf("keygen --server = %d, %q, %q, want the sealing key told", status, out, errs)
	}
	if err := a.rereadServerKeys(); err != nil {
		t.Fatalf("rereadServerKeys = %v", err)
	}
	if ring := keys.Ring(); ring.Newest().ID() == old.ID() || !ring.Has(old.ID()) {
		t.Errorf("after keygen --server: newest %s, has the old key %s: %t", ring.Newest().ID(), old.ID(), ring.Has(old.ID()))
	}
	// The clock may stand or run back: a new key is the newest all the same.
	for range 3 {
		before := keys.Ring().Newest()
		if _, err := addSealKey(folder, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		if err := keys.reload(); err != nil {
			t.Fatal(err)
		}
		if keys.Ring().Newest().ID() == before.ID() {
			t.Error("a key that was made later is not the newest")
		}
	}
}

func TestSealingKeysThatAreNoneAreNamed(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"others can read it": func(path string) error {
			k, err := seal.GenerateKey()
			if err != nil {
				return err
			}
			text, err := k.PEM()
			if err != nil {
				return err
			}
			return os.WriteFile(path, text, 0o644)
		},
		"not an X25519 key": func(path string) error { return os.WriteFile(path, []byte("key"), 0o600) },
	} {
		folder := t.TempDir()
		keys, err := openSealKeys(folder, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ring := keys.Ring()
		if err := make(filepath.Join(folder, "seal-0000000000010badc0de.key.pem")); err != nil {
			t.Fatal(err)
		}
		if err := keys.reload(); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "seal-0000000000010badc0de") {
			t.Errorf("reload with a file that is bad = %v, want it named and %q", err, name)
		}
		if keys.Ring() != ring {
			t.Error("reload with a bad file changed the keys")
		}
		if _, err := openSealKeys(folder, slog.New(slog.DiscardHandler)); err == nil {
			t.Error("openSealKeys took a bad file")
		}
	}
}
