package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/headgate/headgate/refpolicy/sigcheck"
	"github.com/headgate/headgate/tokens"
)

// errBadConfig is wrapped by every error about what a configuration says.
var errBadConfig = errors.New("bad configuration")

// A Config is what the server is told beside its flags. It does not change; a
// new file gives a new one.
type Config struct {
	Orgs      map[string]Org
	Limits    Limits
	Sessions  SessionLimits
	Snapshots SnapshotLimits
}

// An Org is one customer of the server.
type Org struct {
	Keys    []tokens.Key   // may sign tokens; inactive ones included
	Signers *sigcheck.Keys // may sign commits, for rules with verify-sig; nil trusts nobody
}

// Keys are the keys of all orgs, in the form that a tokens.Keyring takes.
func (c Config) Keys() map[string][]tokens.Key {
	keys := make(map[string][]tokens.Key, len(c.Orgs))
	for name, org := range c.Orgs {
		keys[name] = org.Keys
	}
	return keys
}

// fileConfig is the file as it is written:
//
//	[orgs.acme]
//	keys = [
//	  {id = "2026", file = "acme.pub.pem"},
//	  {id = "ci", pem = """...""", scopes = ["git:read"], active = false},
//	]
//	[orgs.acme.signing_keys]
//	openpgp_files = ["release.asc"]           # or openpgp = ["""...armor..."""]
//	allowed_signers_files = ["signers"]       # or allowed_signers = ["release@example.com ssh-ed25519 ..."]
//
//	[limits]                                  # see Limits
//	idle_timeout = "30s"
//
//	[sessions]                                # see SessionLimits
//	token_ttl = "15m"
//
//	[snapshots]                               # see SnapshotLimits
//	cap_bytes = 4294967296
//
// Names of files are taken from the configuration's folder.
type fileConfig struct {
	Orgs      map[string]fileOrg `toml:"orgs"`
	Limits    Limits             `toml:"limits"`
	Sessions  SessionLimits      `toml:"sessions"`
	Snapshots SnapshotLimits     `toml:"snapshots"`
}

type fileOrg struct {
	Keys        []fileKey       `toml:"keys"`
	SigningKeys fileSigningKeys `toml:"signing_keys"`
}

type fileKey struct {
	ID     string    `toml:"id"`     // the fingerprint when left out
	File   string    `toml:"file"`   // a public key or certificate; this
	PEM    string    `toml:"pem"`    // or its text
	Scopes *[]string `toml:"scopes"` // the most its tokens are granted; left out: no limit
	Active *bool     `toml:"active"` // left out: true
}

type fileSigningKeys struct {
	OpenPGPFiles        []string `toml:"openpgp_files"`
	OpenPGP             []string `toml:"openpgp"`
	AllowedSignersFiles []string `toml:"allowed_signers_files"`
	AllowedSigners      []string `toml:"allowed_signers"`
}

// loadConfig reads the file at path, adds the trust entries (ORG=PUBLIC.pem) and
// checks the whole. An empty path stands for an empty file: no orgs, default
// limits. What the file says wrong is an errBadConfig that names the place and
// gives back no text of a key.
func loadConfig(path string, trust ...string) (Config, error) {
	file := fileConfig{Limits: defaultLimits(), Sessions: defaultSessionLimits(), Snapshots: defaultSnapshotLimits()}
	if path != "" {
		if err := readTOML(path, &file); err != nil {
			return Config{}, fmt.Errorf("read configuration %s: %w", path, err)
		}
	}
	config := Config{Orgs: make(map[string]Org), Limits: file.Limits, Sessions: file.Sessions, Snapshots: file.Snapshots}
	if err := file.Limits.check(); err != nil {
		return Config{}, fmt.Errorf("%w: limits.%w", errBadConfig, err)
	}
	if err := file.Sessions.check(); err != nil {
		return Config{}, fmt.Errorf("%w: sessions.%w", errBadConfig, err)
	}
	if err := file.Snapshots.check(); err != nil {
		return Config{}, fmt.Errorf("%w: snapshots.%w", errBadConfig, err)
	}
	for _, name := range slices.Sorted(maps.Keys(file.Orgs)) {
		org, err := file.Orgs[name].load(filepath.Dir(path))
		if err == nil {
			err = checkOrg(name)
		}
		if err != nil {
			return Config{}, fmt.Errorf("%w: orgs.%s: %w", errBadConfig, name, err)
		}
		config.Orgs[name] = org
	}
	if err := config.trust(trust); err != nil {
		return Config{}, fmt.Errorf("%w: %w", errBadConfig, err)
	}
	for name, org := range config.Orgs {
		if err := checkKeys(org.Keys); err != nil {
			return Config{}, fmt.Errorf("%w: org %s: %w", errBadConfig, name, err)
		}
	}
	return config, nil
}

// readTOML decodes strictly: what has no place in v is an error that names it.
func readTOML(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	err = toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(v)
	var unknown *toml.StrictMissingError
	var wrong *toml.DecodeError
	switch {
	case errors.As(err, &unknown):
		var names []string
		for i := range unknown.Errors {
			line, _ := unknown.Errors[i].Position()
			names = append(names, fmt.Sprintf("%s (line %d)", strings.Join(unknown.Errors[i].Key(), "."), line))
		}
		return fmt.Errorf("%w: unknown key %s", errBadConfig, strings.Join(names, ", "))
	case errors.As(err, &wrong):
		line, column := wrong.Position()
		return fmt.Errorf("%w: line %d, column %d: %s%w", errBadConfig, line, column, placeOf(wrong.Key()), wrong)
	case err != nil:
		return fmt.Errorf("%w: %w", errBadConfig, err)
	}
	return nil
}

func placeOf(key toml.Key) string {
	if len(key) == 0 {
		return ""
	}
	return strings.Join(key, ".") + ": "
}

func (o fileOrg) load(dir string) (Org, error) {
	var org Org
	for i, k := range o.Keys {
		key, err := k.load(dir)
		if err != nil {
			return Org{}, fmt.Errorf("keys[%d]: %w", i, err)
		}
		org.Keys = append(org.Keys, key)
	}
	signers, err := o.SigningKeys.load(dir)
	if err != nil {
		return Org{}, fmt.Errorf("signing_keys: %w", err)
	}
	org.Signers = signers
	return org, nil
}

func (k fileKey) load(dir string) (tokens.Key, error) {
	if (k.File == "") == (k.PEM == "") {
		return tokens.Key{}, errors.New("want either file or pem")
	}
	pub, err := tokens.ParsePublicKey([]byte(k.PEM))
	if k.File != "" {
		pub, err = tokens.ReadPublicKey(beside(dir, k.File))
	}
	if err != nil {
		return tokens.Key{}, err
	}
	key, err := tokens.NewKey(k.ID, pub)
	if err != nil {
		return tokens.Key{}, err
	}
	key.Inactive = k.Active != nil && !*k.Active
	if k.Scopes != nil {
		key.Limit, err = parseLimit(*k.Scopes)
	}
	return key, err
}

func parseLimit(names []string) (tokens.Scopes, error) {
	if len(names) == 0 {
		return 0, errors.New("scopes is empty; a key that may grant nothing is active = false")
	}
	scopes := make([]tokens.Scope, len(names))
	for i, name := range names {
		var err error
		if scopes[i], err = tokens.ParseScope(name); err != nil {
			return 0, err
		}
	}
	return tokens.ScopesOf(scopes...), nil
}

func (s fileSigningKeys) load(dir string) (*sigcheck.Keys, error) {
	pgp, err := texts(dir, s.OpenPGPFiles, s.OpenPGP)
	if err != nil {
		return nil, err
	}
	ssh, err := texts(dir, s.AllowedSignersFiles, s.AllowedSigners)
	if err != nil || len(pgp)+len(ssh) == 0 {
		return nil, err
	}
	return sigcheck.New(pgp, bytes.Join(ssh, []byte("\n")))
}

// texts gives what stands in the files, then the texts given as they are.
func texts(dir string, files, inline []string) ([][]byte, error) {
	var all [][]byte
	for _, name := range files {
		text, err := os.ReadFile(beside(dir, name))
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	for _, text := range inline {
		all = append(all, []byte(text))
	}
	return all, nil
}

// trust adds keys given as ORG=PUBLIC.pem to those of the file.
func (c *Config) trust(entries []string) error {
	for _, entry := range entries {
		name, path, ok := strings.Cut(entry, "=")
		if !ok || path == "" {
			return fmt.Errorf("trust %q: want ORG=PUBLIC.pem", entry)
		}
		if err := checkOrg(name); err != nil {
			return fmt.Errorf("trust %w", err)
		}
		pub, err := tokens.ReadPublicKey(path)
		if err != nil {
			return fmt.Errorf("trust %s: %w", name, err)
		}
		key, err := tokens.NewKey("", pub)
		if err != nil {
			return fmt.Errorf("trust %s: %w", name, err)
		}
		org := c.Orgs[name]
		org.Keys = append(org.Keys, key)
		c.Orgs[name] = org
	}
	return nil
}

// checkKeys refuses an id or a key that is there twice: it would not be clear
// which limit holds, or whether the key is active.
func checkKeys(keys []tokens.Key) error {
	ids, prints := make(map[string]bool), make(map[string]string)
	for _, k := range keys {
		if first, twice := prints[k.Fingerprint()]; twice {
			return fmt.Errorf("keys %q and %q are the same key", first, k.ID)
		}
		if ids[k.ID] {
			return fmt.Errorf("two keys have the id %q", k.ID)
		}
		ids[k.ID], prints[k.Fingerprint()] = true, k.ID
	}
	return nil
}

func beside(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}
