package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/sessions/seal"
	"github.com/headgate/headgate/tokens"
)

// The server's sealing keys stand beside those that sign, in files whose names in the
// order of their bytes are keys in the order of their making:
//
//	file = "seal-" 12HEXDIG 8HEXDIG ".key.pem"   ; PKCS#8; Unix milliseconds, random
//
// Each opens what was wrapped to it for as long as it is there.
const (
	sealKeyPrefix = "seal-"
	sealKeySuffix = ".key.pem"
)

var (
	errNoSealKey   = errors.New("no good sealing key is in the folder")
	errOpenSealKey = errors.New("others can read it")
)

// sealKeys are the server's sealing keys: those of one folder, which all nodes share.
type sealKeys struct {
	dir  string
	log  *slog.Logger
	ring atomic.Pointer[seal.Ring]
}

// openSealKeys reads the sealing keys of a folder, and makes the first one if there is
// none. A file that is no such key, or that others can read, is an error that names it.
func openSealKeys(dir string, log *slog.Logger) (*sealKeys, error) {
	k := &sealKeys{dir: dir, log: log}
	ring, err := readSealKeys(dir)
	if errors.Is(err, errNoSealKey) {
		if _, err = addSealKey(dir, time.Now()); err != nil {
			return nil, err
		}
		ring, err = readSealKeys(dir)
	}
	if err != nil {
		return nil, err
	}
	k.ring.Store(ring)
	return k, nil
}

// Ring is the keys as they are now.
func (k *sealKeys) Ring() *seal.Ring { return k.ring.Load() }

// reload reads the folder again; with an error the keys stay as they are.
func (k *sealKeys) reload() error {
	ring, err := readSealKeys(k.dir)
	if err != nil {
		return fmt.Errorf("%w; those known stay in use", err)
	}
	if !ring.Equal(k.ring.Load()) {
		k.ring.Store(ring)
		k.log.Info("sealing keys read again", "newest", ring.Newest().ID())
	}
	return nil
}

// addSealKey makes a sealing key in the folder, newer than all in it, and gives its
// file. It is whole and durable when addSealKey returns.
func addSealKey(dir string, now time.Time) (path string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make folder of sealing keys: %w", err)
	}
	key, err := seal.GenerateKey()
	if err != nil {
		return "", err
	}
	text, err := key.PEM()
	if err != nil {
		return "", err
	}
	name, err := nextSealKey(dir, now)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, name)
	if err := tokens.WriteNewKeyFile(path, text); err != nil {
		return "", fmt.Errorf("write sealing key %s: %w", name, err)
	}
	return path, nil
}

// nextSealKey is a file name after all that are there, whatever the clock says.
func nextSealKey(dir string, now time.Time) (string, error) {
	names, err := sealKeyNames(dir)
	if err != nil {
		return "", err
	}
	at := now.UnixMilli()
	if len(names) > 0 {
		var newest int64
		if _, err := fmt.Sscanf(names[len(names)-1], sealKeyPrefix+"%012x", &newest); err == nil {
			at = max(at, newest+1)
		}
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the program instead
	return fmt.Sprintf("%s%012x%s%s", sealKeyPrefix, at, hex.EncodeToString(random[:]), sealKeySuffix), nil
}

// sealKeyNames are the files of sealing keys, oldest first; none where there is no folder.
func sealKeyNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list sealing keys: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), sealKeyPrefix) && strings.HasSuffix(e.Name(), sealKeySuffix) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

func readSealKeys(dir string) (*seal.Ring, error) {
	names, err := sealKeyNames(dir)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("read %s: %w", dir, errNoSealKey)
	}
	keys := make([]seal.PrivateKey, len(names))
	for i, name := range names {
		if keys[i], err = readSealKey(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("read sealing key %s: %w", name, err)
		}
	}
	return seal.NewRing(keys...), nil
}

// readSealKey reads a private key that nobody else may read.
func readSealKey(path string) (k seal.PrivateKey, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return k, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return k, errOpenSealKey
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return k, err
	}
	return seal.ParsePrivateKey(text)
}

// writeCaptureKey makes the customer's key pair for sealed saves below dir and gives
// the paths of its files.
func writeCaptureKey(dir string) (private, public string, err error) {
	private, public = filepath.Join(dir, "capture.key.pem"), filepath.Join(dir, "capture.pub.pem")
	if _, err := os.Lstat(public); !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("write key %s: %w", public, fs.ErrExist)
	}
	key, err := seal.GenerateKey()
	if err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("make folder: %w", err)
	}
	text, err := key.PEM()
	if err != nil {
		return "", "", err
	}
	if err := tokens.WriteNewKeyFile(private, text); err != nil {
		return "", "", fmt.Errorf("write key %s: %w", private, err)
	}
	if text, err = key.Public().PEM(); err == nil {
		err = os.WriteFile(public, text, 0o644)
	}
	if err != nil {
		return "", "", errors.Join(fmt.Errorf("write key %s: %w", public, err), os.Remove(private))
	}
	return private, public, nil
}
