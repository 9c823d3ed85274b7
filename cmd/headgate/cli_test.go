package main

import (
	"bytes"
	"crypto/ecdsa"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// headgate runs a command line and gives its exit status and what it wrote.
func headgate(t testing.TB, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(t.Context(), args, &out, &errs)
	return status, out.String(), errs.String()
}

func TestKeygen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	status, out, errs := headgate(t, "keygen", "--org", "acme", "--out", dir)
	private, public := filepath.Join(dir, "acme.key.pem"), filepath.Join(dir, "acme.pub.pem")
	if status != 0 || !strings.Contains(out, private) || !strings.Contains(out, public) {
		t.Fatalf("keygen = %d, %q, %q, want 0 and both paths told", status, out, errs)
	}
	if info, err := os.Stat(private); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the private key = %v, %v, want 0600", info.Mode(), err)
	}
	if text := read(t, private); !strings.HasPrefix(text, "-----BEGIN PRIVATE KEY-----\n") || strings.Contains(out+errs, strings.Split(text, "\n")[1]) {
		t.Error("the private key is not PKCS#8, or was printed")
	}
	signer, err := tokens.ReadPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := tokens.ReadPublicKey(public)
	if err != nil || !signer.Public().(*ecdsa.PublicKey).Equal(pub) {
		t.Errorf("the public key = %v, %v, want that of the private one", pub, err)
	}
}

func TestKeygenOverwritesNothing(t *testing.T) {
	for _, there := range []string{"acme.key.pem", "acme.pub.pem"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, there), "precious")
		status, out, errs := headgate(t, "keygen", "--org", "acme", "--out", dir)
		if status != exitFailed || out != "" || !strings.Contains(errs, there) {
			t.Errorf("keygen over %s = %d, %q, %q, want %d and the file named", there, status, out, errs, exitFailed)
		}
		if got := read(t, filepath.Join(dir, there)); got != "precious" {
			t.Errorf("%s now holds %q", there, got)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("keygen over %s left %v, %v, want that file alone", there, files, err)
		}
	}
	for _, org := range []string{"", "../acme", "a/b", ".acme", "a b", strings.Repeat("a", 64)} {
		if status, _, errs := headgate(t, "keygen", "--org", org, "--out", t.TempDir()); status == 0 {
			t.Errorf("keygen for org %q = %d, %q, want it refused", org, status, errs)
		}
	}
}

func TestToken(t *testing.T) {
	dir := t.TempDir()
	key := newOrgKeys(t, dir, "acme")
	status, out, errs := headgate(t, "token", "--key", key.private, "--org", "acme", "--repo", "team-red/site",
		"--scope", "git:write", "--scope", "repo:write", "--ttl", "90m",
		"--ref", "main=no-push,verify-sig", "--ref", "z/*=", "--ref", "a=b=no-force-push", "--ref", "*=no-read")
	if status != 0 || strings.Count(out, "\n") != 1 || errs != "" {
		t.Fatalf("token = %d, %q, %q, want a token alone on its line", status, out, errs)
	}
	config, err := loadConfig("", "acme="+key.public)
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthority()
	a.apply(config)
	p, err := tokens.NewVerifier(a.keys, nil).Verify(t.Context(), strings.TrimSuffix(out, "\n"))
	if err != nil {
		t.Fatalf("Verify of the printed token = %v", err)
	}
	if p.Org != "acme" || p.Repo != "team-red/site" || p.Scopes != tokens.ScopesOf(tokens.GitWrite, tokens.RepoWrite) ||
		p.ExpiresAt.Sub(p.IssuedAt) != 90*time.Minute {
		t.Errorf("principal = %+v, want what the flags said", p)
	}
	var got []string
	for _, rule := range p.Policy.Rules() {
		text := rule.Pattern + "="
		for _, op := range rule.Ops {
			text += "," + string(op)
		}
		got = append(got, text)
	}
	want := []string{"refs/heads/main=,no-push,verify-sig", "refs/heads/z/*=", "refs/heads/a=b=,no-force-push", "*=,no-read"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("rules = %q, want %q", got, want)
	}
}

func TestTokenByDefaultLivesAnHourAndHasNoRules(t *testing.T) {
	key := newOrgKeys(t, t.TempDir(), "acme")
	_, out, errs := headgate(t, "token", "--key", key.private, "--org", "acme", "--repo", "org", "--scope", "org:read,git:read")
	config, err := loadConfig("", "acme="+key.public)
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthority()
	a.apply(config)
	p, err := tokens.NewVerifier(a.keys, nil).Verify(t.Context(), strings.TrimSuffix(out, "\n"))
	if err != nil || p.Policy != nil || p.ExpiresAt.Sub(p.IssuedAt) != time.Hour || !p.Scopes.Has(tokens.OrgRead) || !p.Scopes.Has(tokens.GitRead) {
		t.Errorf("principal = %+v, %v (%q), want an hour, two scopes and no policy", p, err, errs)
	}
}

func TestTokenRefuses(t *testing.T) {
	dir := t.TempDir()
	key := newOrgKeys(t, dir, "acme")
	base := map[string]string{"--key": key.private, "--org": "acme", "--repo": "r", "--scope": "git:read"}
	for _, tc := range []struct {
		flag, value string
		status      int
	}{
		{"--key", key.public, exitFailed},
		{"--key", filepath.Join(dir, "none"), exitFailed},
		{"--org", "", exitFailed},
		{"--repo", "", exitFailed},
		{"--scope", "git:admin", exitFailed},
		{"--ttl", "0s", exitFailed},
		{"--ttl", "-1h", exitFailed},
		{"--ttl", "soon", exitUsage},
		{"--ref", "main", exitFailed},
		{"--ref", "=no-push", exitFailed},
		{"--ref", "a*b=no-push", exitFailed},
		{"--ref", "main=no-psuh", exitFailed},
		{"--ref", "main=no-push,", exitFailed},
		{"--nonsense", "x", exitUsage},
	} {
		args := []string{"token"}
		for flag, value := range base {
			if flag != tc.flag {
				args = append(args, flag+"="+value)
			}
		}
		status, out, errs := headgate(t, append(args, tc.flag+"="+tc.value)...)
		if status != tc.status || out != "" || errs == "" {
			t.Errorf("token with %s=%q = %d, %q, %q, want %d and a reason", tc.flag, tc.value, status, out, errs, tc.status)
		}
	}
	for flag := range base {
		args := []string{"token"}
		for f, value := range base {
			if f != flag {
				args = append(args, f+"="+value)
			}
		}
		if status, _, errs := headgate(t, args...); status != exitUsage || !strings.Contains(errs, flag) {
			t.Errorf("token without %s = %d, %q, want %d and the flag named", flag, status, errs, exitUsage)
		}
	}
}

func TestFlagsFromTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HEADGATE_ORG", "acme")
	t.Setenv("HEADGATE_OUT", dir)
	if status, _, errs := headgate(t, "keygen"); status != 0 {
		t.Errorf("keygen by environment = %d, %q, want 0", status, errs)
	}
	if _, err := os.Stat(filepath.Join(dir, "acme.pub.pem")); err != nil {
		t.Errorf("no public key was written: %v", err)
	}
}

func TestA14_TokenErrorsHoldNoKey(t *testing.T) {
	dir := t.TempDir()
	key := newOrgKeys(t, dir, "acme")
	text := read(t, key.private)
	broken := write(t, filepath.Join(dir, "broken.pem"), strings.Replace(text, "PRIVATE KEY", "EC PRIVATE KEY", 2))
	status, out, errs := headgate(t, "token", "--key", broken, "--org", "acme", "--repo", "r", "--scope", "git:read")
	if status != exitFailed || strings.Contains(out+errs, strings.Split(text, "\n")[1][:20]) {
		t.Errorf("token with a broken key = %d, %q, %q, want %d and nothing of the key", status, out, errs, exitFailed)
	}
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"main=no-push", "a/*=", "*=no-read,no-push", "a=b=", "=", "main", "main=,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		rule, err := parseRule(s)
		if err != nil {
			return
		}
		if _, err := refpolicy.New([]refpolicy.Rule{rule}, nil); err != nil {
			t.Errorf("parseRule(%q) took a rule that servers refuse: %v", s, err)
		}
	})
}
