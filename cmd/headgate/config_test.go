package main

import (
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy/sigcheck"
	"github.com/headgate/headgate/tokens"
)

// An orgKeys is a key pair in files below a test's folder.
type orgKeys struct {
	signer          crypto.Signer
	private, public string // paths
	pem             string // the public key
}

func newOrgKeys(t testing.TB, dir, org string) orgKeys {
	t.Helper()
	private, public, err := writeOrgKey(dir, org)
	if err != nil {
		t.Fatalf("writeOrgKey = %v", err)
	}
	signer, err := tokens.ReadPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return orgKeys{signer, private, public, read(t, public)}
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// verifies reports by which key config takes a token of org signed by signer.
func verifies(t testing.TB, config Config, org string, signer crypto.Signer) (*tokens.Principal, error) {
	t.Helper()
	a := newAuthority()
	a.apply(config)
	raw, err := tokens.Sign(signer, tokens.Claims{
		Org: org, Repo: "r", Scopes: []tokens.Scope{tokens.GitWrite}, ExpiresAt: time.Now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	return tokens.NewVerifier(a.keys, nil).Verify(t.Context(), raw)
}

func TestConfigOfAllParts(t *testing.T) {
	dir := t.TempDir()
	one, two, three := newOrgKeys(t, dir, "one"), newOrgKeys(t, dir, "two"), newOrgKeys(t, dir, "three")
	const signer = "release@example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHTj3lGg5iIMv4kTTSl9vN4Zd4HfG0Fb2o0hVxT9xk7d"
	write(t, filepath.Join(dir, "signers"), signer+"\n")
	path := write(t, filepath.Join(dir, "headgate.toml"), fmt.Sprintf(`
[orgs.acme]
keys = [
  {id = "2026", file = "one.pub.pem"},
  {id = "ci", pem = """%s""", scopes = ["git:read"]},
  {file = %q, active = false},
]
[orgs.acme.signing_keys]
allowed_signers_files = ["signers"]
allowed_signers = [%q]

[orgs.quiet]

[limits]
header_bytes = 262144
idle_timeout = "1m30s"
`, two.pem, three.public, signer))

	config, err := loadConfig(path)
	if err != nil {
		t.Fatalf("loadConfig = %v", err)
	}
	if p, err := verifies(t, config, "acme", one.signer); err != nil || p.KeyID != "2026" || !p.Scopes.Has(tokens.GitWrite) {
		t.Errorf("key 2026: %+v, %v, want it with git:write", p, err)
	}
	if p, err := verifies(t, config, "acme", two.signer); err != nil || p.KeyID != "ci" || p.Scopes != tokens.ScopesOf(tokens.GitRead) {
		t.Errorf("key ci: %+v, %v, want it with git:read only", p, err)
	}
	if p, err := verifies(t, config, "acme", three.signer); !errors.Is(err, tokens.ErrBadSignature) {
		t.Errorf("inactive key: %+v, %v, want %v", p, err, tokens.ErrBadSignature)
	}
	if p, err := verifies(t, config, "quiet", one.signer); !errors.Is(err, tokens.ErrBadSignature) {
		t.Errorf("org without keys: %+v, %v, want %v", p, err, tokens.ErrBadSignature)
	}
	if config.Orgs["acme"].Signers == nil || config.Orgs["quiet"].Signers != nil {
		t.Errorf("signing keys = %v and %v, want acme's and none", config.Orgs["acme"].Signers, config.Orgs["quiet"].Signers)
	}
	want := defaultLimits()
	want.HeaderBytes, want.IdleTimeout = 262144, Duration{90 * time.Second}
	if config.Limits != want {
		t.Errorf("limits = %+v, want the defaults but for two: %+v", config.Limits, want)
	}
}

func TestConfigWithoutFile(t *testing.T) {
	config, err := loadConfig("")
	if err != nil || len(config.Orgs) != 0 || config.Limits != defaultLimits() {
		t.Errorf("loadConfig of nothing = %+v, %v, want no orgs and the default limits", config, err)
	}
}

func TestTrustMergesWithTheFile(t *testing.T) {
	dir := t.TempDir()
	one, two := newOrgKeys(t, dir, "one"), newOrgKeys(t, dir, "two")
	path := write(t, filepath.Join(dir, "c.toml"), `orgs.acme.keys = [{id = "a", file = "one.pub.pem"}]`)
	config, err := loadConfig(path, "acme="+two.public, "other="+one.public)
	if err != nil {
		t.Fatalf("loadConfig = %v", err)
	}
	for _, tc := range []struct {
		org    string
		signer crypto.Signer
		taken  bool
	}{{"acme", one.signer, true}, {"acme", two.signer, true}, {"other", one.signer, true}, {"other", two.signer, false}} {
		if _, err := verifies(t, config, tc.org, tc.signer); (err == nil) != tc.taken {
			t.Errorf("org %s: Verify = %v, want it taken: %v", tc.org, err, tc.taken)
		}
	}
	for _, entry := range []string{"acme", "acme=", "=" + one.public, "../x=" + one.public, "acme=" + one.private, "acme=" + dir, "acme=" + one.public} {
		if config, err := loadConfig(path, entry); !errors.Is(err, errBadConfig) {
			t.Errorf("trust %q: loadConfig = %+v, %v, want %v", entry, config, err, errBadConfig)
		}
	}
}

func TestBadConfigsAreNamed(t *testing.T) {
	dir := t.TempDir()
	key := newOrgKeys(t, dir, "one")
	newOrgKeys(t, dir, "two")
	quoted := `"""` + key.pem + `"""`
	for text, names := range map[string]string{
		`x = 1`:                           "x",
		"\n[orgs.acme]\nkey = []":         "orgs.acme.key (line 3)",
		`[orgs.acme]` + "\nwebhooks = []": "orgs.acme.webhooks",
		"[limits]\nidle = \"3s\"":         "limits.idle",
		`orgs.acme.keys = [{kid = "a"}]`:  "kid (line 1)",
		`orgs.acme.keys = "one.pub.pem"`:  "orgs.acme.keys",
		`orgs.acme.keys = [{id = "a"}]`:   "orgs.acme: keys[0]: want either file or pem",
		`orgs.acme.keys = [{file = "one.pub.pem", pem = ` + quoted + `}]`:                                            "either file or pem",
		`orgs.acme.keys = [{file = "none.pem"}]`:                                                                     "none.pem",
		`orgs.acme.keys = [{file = "one.key.pem"}]`:                                                                  "private key",
		`orgs.acme.keys = [{pem = "x"}]`:                                                                             "keys[0]",
		`orgs.acme.keys = [{id = "hg-1", file = "one.pub.pem"}]`:                                                     "hg-1",
		`orgs.acme.keys = [{file = "one.pub.pem", scopes = []}]`:                                                     "scopes is empty",
		`orgs.acme.keys = [{file = "one.pub.pem", scopes = ["git:raed"]}]`:                                           "git:raed",
		`orgs.acme.keys = [{file = "one.pub.pem", active = "no"}]`:                                                   "orgs.acme.keys",
		`orgs.acme.keys = [{id = "a", file = "one.pub.pem"}, {id = "a", file = "two.pub.pem"}]`:                      `id "a"`,
		`orgs.acme.keys = [{id = "a", file = "one.pub.pem"}, {id = "b", file = "one.pub.pem", scopes=["git:read"]}]`: "same key",
		`orgs."../acme".keys = []`:                                                                                   "../acme",
		`orgs."".keys = []`:                                                                                          `"": not an org name`,
		`orgs.acme.signing_keys = {openpgp = ["x"]}`:                                                                 "orgs.acme: signing_keys",
		`orgs.acme.signing_keys = {openpgp_files = ["none.asc"]}`:                                                    "none.asc",
		`orgs.acme.signing_keys = {allowed_signers = ["release"]}`:                                                   "allowed_signers",
		"[limits]\nheader_bytes = 1000":                                                                              "limits.header_bytes: 1000",
		"[limits]\nline_bytes = 5000000":                                                                             "limits.line_bytes",
		"[limits]\nheader_bytes = \"1MiB\"":                                                                          "limits.header_bytes",
		"[limits]\nidle_timeout = 30":                                                                                "duration with its unit",
		"[limits]\nidle_timeout = \"soon\"":                                                                          "limits.idle_timeout",
		"[limits]\nidle_timeout = \"0s\"":                                                                            "limits.idle_timeout: 0s",
		"[limits]\nreserve_bytes = 4194304":                                                                          "limits.reserve_bytes: 4194304 is not within 75497472",
		"[limits]\ngit_processes = 0":                                                                                "limits.git_processes: 0",
		"[limits]\ngit_processes = 1\ngit_processes = 2":                                                             "line 3",
		"[orgs.acme\n": "line 1",
	} {
		path := write(t, filepath.Join(dir, "c.toml"), text)
		config, err := loadConfig(path)
		if !errors.Is(err, errBadConfig) || !strings.Contains(fmt.Sprint(err), names) {
			t.Errorf("%s\nloadConfig = %v, want %v that says %q", text, err, errBadConfig, names)
		}
		if !reflect.DeepEqual(config, Config{}) {
			t.Errorf("%s\nloadConfig gave %+v with its error, want nothing of it", text, config)
		}
	}
	if _, err := loadConfig(filepath.Join(dir, "nowhere.toml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("loadConfig of a file that is not there = %v, want %v", err, fs.ErrNotExist)
	}
}

// a private key that was put into the file by mistake is not repeated.
func TestA14_ConfigErrorsHoldNoKey(t *testing.T) {
	dir := t.TempDir()
	key := newOrgKeys(t, dir, "one")
	text := read(t, key.private)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	body := lines[1]
	for _, config := range []string{
		`orgs.acme.keys = [{pem = """` + text + `"""}]`, `orgs.acme.keys = [{pem = "` + body + `"}]`,
		`orgs.acme.keys = [{pem = ` + body + `}]`, `orgs.acme.keys = "` + body + `"`,
		`orgs.acme.keys = [{active = "` + body + `"}]`, "[limits]\nidle_timeout = \"" + body + "\"",
		"[limits]\nheader_bytes = \"" + body + "\"", `orgs.acme.keys = [{pem = """` + text, text,
		`orgs.acme.signing_keys = {openpgp = ["""` + text + `"""]}`,
		`orgs.acme.signing_keys = {allowed_signers = ["release@example.com ssh-ed25519 ` + body + `"]}`,
	} {
		_, err := loadConfig(write(t, filepath.Join(dir, "c.toml"), config))
		if err == nil {
			t.Errorf("loadConfig took %s", config)
			continue
		}
		for i := 0; i+20 <= len(body); i++ {
			if piece := body[i : i+20]; strings.Contains(err.Error(), piece) {
				t.Errorf("error %q holds %q of the key", err, piece)
				break
			}
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("[orgs.acme]\nkeys = [{id = \"a\", pem = \"\"\"x\"\"\", scopes = [\"git:read\"], active = true}]")
	f.Add("[orgs.acme.signing_keys]\nallowed_signers = [\"a ssh-ed25519 AAAA\"]\n[limits]\nkeep_alive = \"1m\"")
	f.Add("[limits]\nheader_bytes = 0x40000\nkeep_alive = 1")
	f.Fuzz(func(t *testing.T, text string) {
		path := write(t, filepath.Join(t.TempDir(), "c.toml"), text)
		config, err := loadConfig(path)
		if err == nil && config.Limits.check() != nil {
			t.Errorf("loadConfig took limits that do not hold: %+v", config.Limits)
		}
	})
}

func TestAuthorityKnowsNobodyAtFirst(t *testing.T) {
	a := newAuthority()
	signed := []byte("tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\ngpgsig -----BEGIN SSH SIGNATURE-----\n x\n\nm\n")
	for _, apply := range []func(){func() {}, func() { a.apply(Config{Orgs: map[string]Org{"acme": {}}}) }} {
		apply()
		if err := a.VerifyCommit("acme", signed); !errors.Is(err, sigcheck.ErrUntrusted) {
			t.Errorf("VerifyCommit without signing keys = %v, want %v", err, sigcheck.ErrUntrusted)
		}
	}
}
