package tokens

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A server key is an Ed25519 key in a file of its own that only its owner may read:
//
//	file = id ".key.pem"                        ; PKCS#8
//	id   = "hg-" 12HEXDIG 8HEXDIG               ; Unix milliseconds of making, random
//
// So ids in the order of their bytes are keys in the order of their making, whatever
// becomes of the files' times.
const (
	serverKeySuffix  = ".key.pem"
	serverKeyIDBytes = len(reservedKeyIDPrefix) + 12 + 8
)

var (
	errBadServerKey  = errors.New("not an Ed25519 key of the server under a name that keygen --server makes")
	errOpenServerKey = errors.New("others can read it")
	errNewestKey     = errors.New("it is the newest key, which signs: make another one first")
)

type serverKey struct {
	id      string
	private ed25519.PrivateKey
	public  ed25519.PublicKey
	header  string // of the tokens it signs, encoded
}

// AddServerKey makes a new server key in the folder dir, which is made if it is not
// there, and gives its id. The key is newer than every other one in the folder. It
// is whole and durable when AddServerKey returns.
func AddServerKey(dir string, now time.Time) (id string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make folder of server keys: %w", err)
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", fmt.Errorf("make server key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", fmt.Errorf("make server key: %w", ErrUnsupportedKey)
	}
	if id, err = nextServerKeyID(dir, now); err != nil {
		return "", err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := WriteNewKeyFile(filepath.Join(dir, id+serverKeySuffix), text); err != nil {
		return "", fmt.Errorf("write server key %s: %w", id, err)
	}
	return id, nil
}

// RetireServerKey removes a server key: servers that read the folder again refuse
// its tokens. The newest key is not removed.
func RetireServerKey(dir, id string) error {
	if !validServerKeyID(id) {
		return fmt.Errorf("retire server key %q: %w", id, errBadServerKey)
	}
	ids, err := serverKeyIDs(dir)
	if err != nil {
		return err
	}
	if len(ids) > 0 && ids[len(ids)-1] == id {
		return fmt.Errorf("retire server key %s: %w", id, errNewestKey)
	}
	if err := os.Remove(filepath.Join(dir, id+serverKeySuffix)); err != nil {
		return fmt.Errorf("retire server key: %w", err)
	}
	return syncDir(dir)
}

// nextServerKeyID gives an id after all that are there: a clock that runs behind
// would otherwise make a key that never signs.
func nextServerKeyID(dir string, now time.Time) (string, error) {
	ids, err := serverKeyIDs(dir)
	if err != nil {
		return "", err
	}
	ms := now.UnixMilli()
	if len(ids) > 0 {
		ms = max(ms, serverKeyTime(ids[len(ids)-1]).UnixMilli()+1)
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return fmt.Sprintf("%s%012x%x", reservedKeyIDPrefix, ms, b), nil
}

// serverKeyIDs lists the keys of a folder, oldest first; other files are passed over.
func serverKeyIDs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list server keys: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), serverKeySuffix); ok && validServerKeyID(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func validServerKeyID(id string) bool {
	hexes, ok := strings.CutPrefix(id, reservedKeyIDPrefix)
	if !ok || len(id) != serverKeyIDBytes || hexes != strings.ToLower(hexes) {
		return false
	}
	_, err := hex.DecodeString(hexes)
	return err == nil
}

// serverKeyTime is when the key of a valid id was made.
func serverKeyTime(id string) time.Time {
	ms, _ := strconv.ParseInt(id[len(reservedKeyIDPrefix):][:12], 16, 64)
	return time.UnixMilli(ms).UTC()
}

// readServerKey reads one key's file. The error names the file and holds nothing of
// what is in it.
func readServerKey(dir, id string) (*serverKey, error) {
	path := filepath.Join(dir, id+serverKeySuffix)
	text, err := readPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("read server key %s: %w", path, err)
	}
	signer, err := ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("read server key %s: %w", path, err)
	}
	private, ok := signer.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read server key %s: %w", path, errBadServerKey)
	}
	header := `{"alg":"EdDSA","kid":"` + id + `","typ":"JWT"}`
	return &serverKey{
		id: id, private: private, public: private.Public().(ed25519.PublicKey),
		header: base64.RawURLEncoding.EncodeToString([]byte(header)),
	}, nil
}

// readPrivate reads a file that nobody but its owner can read.
func readPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, pathless(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, pathless(err)
	case !info.Mode().IsRegular():
		return nil, errBadServerKey
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%w (mode %04o): chmod 600 it, and retire it if somebody may have read it", errOpenServerKey, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPEMBytes+1))
	return text, pathless(err)
}

// pathless leaves the path out that the caller tells anyway.
func pathless(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
