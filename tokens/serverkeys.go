package tokens

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// rereadEvery is how often at most an unknown key id makes a folder be read again.
const rereadEvery = time.Second

var errNoServerKey = errors.New("no good server key is in the folder")

// ServerKeys are the server's own keys: the private keys in one folder, which all
// nodes share. The newest signs what the server issues, all verify it. A new key in
// the folder is found when a token names it, a removed one at the next Reload. It
// may be used by many at once.
type ServerKeys struct {
	dir string
	o   ServerKeyOptions
	set atomic.Pointer[serverKeyset]

	mu     sync.Mutex // held while the folder is read; guards what follows
	readAt time.Time
}

// ServerKeyOptions may all be zero.
type ServerKeyOptions struct {
	Now    func() time.Time // time.Now
	Logger *slog.Logger     // told of keys that come, go, and cannot be read
}

// A ServerKeyInfo is what may be told of a server key.
type ServerKeyInfo struct {
	ID        string
	CreatedAt time.Time
	Signs     bool // it signs what is issued now
}

// A serverKeyset is one state of ServerKeys, with the cache of what it has verified.
type serverKeyset struct {
	keys     map[string]*serverKey
	newest   *serverKey
	bad      map[string]error // files that were left out, by what stands before the suffix
	verified *cache
}

// OpenServerKeys reads the keys of the folder dir, and makes the first one if there
// is none: of several nodes that do so at once each may make one, and all are good.
// A key's file that cannot be read, holds no such key, or can be read by others than
// its owner is an error that names it.
func OpenServerKeys(dir string, o ServerKeyOptions) (*ServerKeys, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &ServerKeys{dir: dir, o: o}
	set, err := readServerKeys(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(set.keys)+len(set.bad) == 0 {
		if _, err = AddServerKey(dir, o.Now()); err != nil {
			return nil, err
		}
		set, err = readServerKeys(dir)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(set.bad)) {
		return nil, set.bad[name]
	}
	s.set.Store(set)
	s.readAt = o.Now()
	return s, nil
}

// Reload reads the folder again. A key's file that is not good is logged and left
// out. The keys stay as they are, with an error, when the folder cannot be read or
// no good key is in it.
func (s *ServerKeys) Reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reload()
}

// List tells which keys are in use, oldest first.
func (s *ServerKeys) List() []ServerKeyInfo {
	set := s.set.Load()
	list := make([]ServerKeyInfo, 0, len(set.keys))
	for _, id := range slices.Sorted(maps.Keys(set.keys)) {
		list = append(list, ServerKeyInfo{ID: id, CreatedAt: serverKeyTime(id), Signs: id == set.newest.id})
	}
	return list
}

// reload is Reload with mu held. What is as it was is not replaced, so that what was
// verified stays known.
func (s *ServerKeys) reload() error {
	s.readAt = s.o.Now()
	set, err := readServerKeys(s.dir)
	if err != nil {
		return err
	}
	old := s.set.Load()
	s.report(old, set)
	if len(set.keys) == 0 {
		return fmt.Errorf("read server keys %s: %w; those known stay in use", s.dir, errNoServerKey)
	}
	if maps.EqualFunc(old.keys, set.keys, (*serverKey).equal) {
		set.verified = old.verified
		if maps.EqualFunc(old.bad, set.bad, sameText) {
			return nil
		}
	}
	s.set.Store(set)
	return nil
}

// report logs what has changed from one state to the next.
func (s *ServerKeys) report(old, set *serverKeyset) {
	for name, err := range set.bad {
		if was := old.bad[name]; was == nil || was.Error() != err.Error() {
			s.o.Logger.Error("server key left out", "error", err)
		}
	}
	for id := range set.keys {
		if old.keys[id] == nil {
			s.o.Logger.Info("server key found", "key", id)
		}
	}
	for id := range old.keys {
		if set.keys[id] == nil && len(set.keys) > 0 {
			s.o.Logger.Warn("server key gone: its tokens are refused from now on", "key", id)
		}
	}
}

// lookFor reads the folder again because a token names the key id, which is not in
// the state set. Forged ids come as fast as somebody sends them: for one that no
// file has, or whose file is known to be bad, the folder is read once a second.
func (s *ServerKeys) lookFor(id string, set *serverKeyset) {
	if !validServerKeyID(id) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set.Load() != set {
		return // somebody has read it meanwhile
	}
	since := s.o.Now().Sub(s.readAt)
	if since >= 0 && since < rereadEvery && (set.bad[id] != nil || !s.hasFile(id)) {
		return
	}
	if err := s.reload(); err != nil {
		s.o.Logger.Error("server keys not read again", "error", err)
	}
}

func (s *ServerKeys) hasFile(id string) bool {
	_, err := os.Lstat(filepath.Join(s.dir, id+serverKeySuffix))
	return err == nil
}

// readServerKeys reads a whole folder; files that look like a server key's and are
// no good one are told in bad.
func readServerKeys(dir string) (*serverKeyset, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list server keys: %w", err)
	}
	set := &serverKeyset{keys: make(map[string]*serverKey), bad: make(map[string]error), verified: newCache(cacheBytes)}
	for _, e := range entries {
		id, isKey := strings.CutSuffix(e.Name(), serverKeySuffix)
		if !isKey || !strings.HasPrefix(id, reservedKeyIDPrefix) {
			continue
		}
		set.read(dir, id)
	}
	return set, nil
}

func (set *serverKeyset) read(dir, id string) {
	if !validServerKeyID(id) {
		set.bad[id] = fmt.Errorf("read server key %s: %w", filepath.Join(dir, id+serverKeySuffix), errBadServerKey)
		return
	}
	key, err := readServerKey(dir, id)
	switch {
	case errors.Is(err, os.ErrNotExist): // retired since it was listed
	case err != nil:
		set.bad[id] = err
	default:
		set.keys[id] = key
		if set.newest == nil || set.newest.id < id {
			set.newest = key
		}
	}
}

func (k *serverKey) equal(o *serverKey) bool { return k.private.Equal(o.private) }

func sameText(a, b error) bool { return a.Error() == b.Error() }
