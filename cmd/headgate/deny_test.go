package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/tokens"
)

// Denials of a folder that no server has open: what leaked is refused when it is served
// again, and each way of naming it is listed and taken back by its id.
func TestDenyInAFolder(t *testing.T) {
	s := newShop(t)
	key := newOrgKeys(t, t.TempDir(), "acme")
	signer, err := tokens.ReadPrivateKey(key.private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := tokens.Sign(signer, tokens.Claims{Org: "acme", Subject: "runner", Repo: "site", ExpiresAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "leaked")
	write(t, file, raw+"\n")
	sum := tokens.TokenSHA256(raw)
	for _, tc := range []struct {
		args []string
		id   string
	}{
		{[]string{"--token-file", file, "--reason", "seen in a\tlog"}, "deny/" + sum},
		{[]string{"--sha256", strings.ToUpper(sum)}, "deny/" + sum},
		{[]string{"--jti", "token-7", "--until", "2099-01-02T03:04:05Z"}, "deny-jti/token-7"},
		{[]string{"--sub", "runner", "--issued-before", "2026-01-02T03:04:05Z"}, "deny-sub/runner"},
	} {
		add := append([]string{"deny", "add", "--data", s.data, "--org", "acme"}, tc.args...)
		if status, out, errs := headgate(t, add...); status != 0 || out != tc.id+"\n" {
			t.Errorf("%v = %d, %q, %q, want the id %s", add, status, out, errs, tc.id)
		}
	}
	status, out, errs := headgate(t, "deny", "list", "--data", s.data, "--org", "acme")
	if status != 0 || strings.Count(out, "\n") != 4 || strings.Contains(out, raw) {
		t.Errorf("deny list = %d, %q, %q, want a head and three denials", status, out, errs)
	}
	for _, part := range []string{"deny/" + sum, "deny-jti/token-7", "2099-01-02T03:04:05Z", "deny-sub/runner", "2026-01-02T03:04:05Z"} {
		if !strings.Contains(out, part) {
			t.Errorf("deny list = %q, want %q in it", out, part)
		}
	}
	for _, id := range []string{"deny/" + sum, "deny-jti/token-7", "deny-sub/runner"} {
		remove := []string{"deny", "remove", "--data", s.data, "--org", "acme", id}
		if status, out, errs := headgate(t, remove...); status != 0 || out != "" {
			t.Errorf("%v = %d, %q, %q, want nothing said", remove, status, out, errs)
		}
		fails(t, "denial not found", remove...)
	}
	if status, out, _ := headgate(t, "deny", "list", "--data", s.data, "--org", "acme"); status != 0 || strings.Count(out, "\n") != 1 {
		t.Errorf("deny list = %d, %q, want the head alone", status, out)
	}
}

// What would deny something else than was meant is refused, and nothing is denied.
func TestDenyAddRefuses(t *testing.T) {
	s := newShop(t)
	key := newOrgKeys(t, t.TempDir(), "acme")
	signer, err := tokens.ReadPrivateKey(key.private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := tokens.Sign(signer, tokens.Claims{Org: "other", Repo: "site", ExpiresAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "others"), raw)
	write(t, filepath.Join(dir, "garbage"), "no token")
	write(t, filepath.Join(dir, "empty"), "\n")
	t.Setenv("HEADGATE_TOKEN_FILE", filepath.Join(dir, "others"))
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"--token-file", filepath.Join(dir, "others")}, `the token is of the org "other"`},
		{[]string{"--token-file", filepath.Join(dir, "garbage")}, "read token"},
		{[]string{"--token-file", filepath.Join(dir, "empty")}, "read token"},
		{[]string{"--token-file", filepath.Join(dir, "none")}, "no such file"},
		{[]string{"--sha256", "abc"}, "SHA-256"},
		{[]string{"--jti", "x", "--issued-before", "2026-01-02T03:04:05Z"}, "--issued-before goes with --sub"},
		{[]string{"--jti", "x", "--until", "2020-01-02T03:04:05Z"}, "ends before it begins"},
		{[]string{"--jti", "x", "--sub", "y"}, "can't be used together"},
		{[]string{"--jti", "x", "--until", "soon"}, "until"},
		{nil, "missing flags"},
	} {
		add := append([]string{"deny", "add", "--data", s.data, "--org", "acme"}, tc.args...)
		if status, out, errs := headgate(t, add...); status == 0 || out != "" || !strings.Contains(errs, tc.says) || strings.Contains(errs, raw) {
			t.Errorf("%v = %d, %q, %q, want it refused: %s", add, status, out, errs, tc.says)
		}
	}
	for _, args := range [][]string{{"add", "--jti", "x"}, {"list"}, {"remove", "deny-jti/x"}} {
		status, _, errs := headgate(t, append([]string{"deny", args[0], "--org", "acme"}, args[1:]...)...)
		if status != exitFailed || !strings.Contains(errs, errNoStore.Error()) {
			t.Errorf("deny %v without a store = %d, %q, want %q", args, status, errs, errNoStore)
		}
	}
	if _, out, _ := headgate(t, "deny", "list", "--data", s.data, "--org", "acme"); strings.Count(out, "\n") != 1 {
		t.Errorf("deny list = %q, want none", out)
	}
}

// The same commands ask a running server, which then refuses the token; the folder
// beside it is left alone.
func TestDenyAtAServer(t *testing.T) {
	s := newShop(t)
	key := newOrgKeys(t, t.TempDir(), "acme")
	config, err := loadConfig("", "acme="+key.public)
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthority()
	a.apply(config)
	n, err := openNode(t.Context(), nodeOptions{data: s.data, ledger: "pebble", limits: defaultLimits(), authority: a, log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("openNode: %v", err)
	}
	defer n.close(context.Background())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := n.server.HTTPServer()
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	url := "http://" + listener.Addr().String()
	signer, err := tokens.ReadPrivateKey(key.private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := tokens.Sign(signer, tokens.Claims{Org: "acme", Repo: "site", Scopes: []tokens.Scope{tokens.GitRead}, ExpiresAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	who := func(want int) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", url+"/api/whoami", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+raw)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("whoami = %d, want %d", resp.StatusCode, want)
		}
	}
	file := filepath.Join(t.TempDir(), "leaked")
	write(t, file, raw)
	where := []string{"--server", url, "--data", s.data, "--org", "acme"}
	deny := func(args ...string) string {
		t.Helper()
		status, out, errs := headgate(t, append([]string{"deny"}, append(args, where...)...)...)
		if status != 0 {
			t.Fatalf("deny %v = %d, %q", args, status, errs)
		}
		return out
	}
	who(200)
	id := strings.TrimSpace(deny("add", "--token-file", file))
	who(401)
	if out := deny("list"); !strings.Contains(out, id) {
		t.Errorf("deny list = %q, want %s", out, id)
	}
	deny("remove", id)
	who(200)
	fails(t, errServerRuns.Error(), "deny", "list", "--data", s.data, "--org", "acme")
}
