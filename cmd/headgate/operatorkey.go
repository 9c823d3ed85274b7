package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/headgate/headgate/tokens"
)

// operatorKeyName is the file below the data folder with the key that opens the
// operator's routes. Whoever can read the folder's secrets is the operator.
const operatorKeyName = "operator.key"

// The key is 32 random bytes as text, recognisable to tools that look for leaked secrets.
var operatorKeyForm = regexp.MustCompile(`^hgop_[0-9a-f]{64}$`)

var (
	errBadOperatorKey  = errors.New("it is no operator key")
	errOpenOperatorKey = errors.New("others can read it")
)

// makeOperatorKey reads the key of a data folder, and makes it if there is none. Of
// several processes that make it at once one wins, and all have its key.
func makeOperatorKey(data string) (string, error) {
	path := filepath.Join(data, operatorKeyName)
	key, err := readOperatorKey(path)
	if !errors.Is(err, os.ErrNotExist) {
		return key, err
	}
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	if err := tokens.WriteNewKeyFile(path, []byte("hgop_"+hex.EncodeToString(b[:])+"\n")); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("make operator key: %w", err)
	}
	return readOperatorKey(path)
}

// readOperatorKey reads a key's file, which only its owner may read. The error does not repeat what is in it.
func readOperatorKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read operator key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read operator key: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return "", fmt.Errorf("read operator key %s: %w (mode %04o): chmod 600 it, and make a new one if somebody may have read it", path, errOpenOperatorKey, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return "", fmt.Errorf("read operator key: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if !operatorKeyForm.MatchString(key) {
		return "", fmt.Errorf("read operator key %s: %w", path, errBadOperatorKey)
	}
	return key, nil
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
