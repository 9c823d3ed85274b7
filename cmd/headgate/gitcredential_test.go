package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/tokens"
)

// A renewer is a server that renews tokens, or refuses to.
type renewer struct {
	t      *testing.T
	key    testIssuer
	now    time.Time
	status int // of a refusal; 0: it renews

	mu    sync.Mutex // guards asked
	asked []string
}

// testIssuer signs tokens that live for ten minutes.
type testIssuer struct{ t *testing.T }

func (i testIssuer) sign(at time.Time) string {
	i.t.Helper()
	key, err := tokens.GenerateKey()
	if err != nil {
		i.t.Fatal(err)
	}
	raw, err := tokens.Sign(key, tokens.Claims{Org: "acme", Repo: "site", IssuedAt: at, ExpiresAt: at.Add(10 * time.Minute)})
	if err != nil {
		i.t.Fatal(err)
	}
	return raw
}

func (r *renewer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.asked = append(r.asked, req.Method+" "+req.URL.Path+" "+strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
	r.mu.Unlock()
	if r.status != 0 {
		w.WriteHeader(r.status)
		fmt.Fprint(w, `{"error":"the lease is lost"}`)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"token":%q,"expires_at":%q}`, r.key.sign(r.now), r.now.Add(10*time.Minute).Format(time.RFC3339))
}

// helper is the command as git would call it at a time, for a token in a file.
func (r *renewer) helper(server, file, operation, input string, at time.Time) (said, complained string, err error) {
	var out, errs strings.Builder
	c := gitCredentialCmd{
		Server: server, TokenFile: file, Operation: operation,
		In: strings.NewReader(input), Err: &errs, Now: func() time.Time { return at },
	}
	err = c.Run(r.t.Context(), &out)
	return out.String(), errs.String(), err
}

func TestGitCredential(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0).UTC()
	for _, tc := range []struct {
		name      string
		operation string
		host      string // "": the server's
		at        time.Duration
		refused   int
		renews    bool
		says      bool
		fails     bool
	}{
		{name: "young token", operation: "get", at: time.Minute, says: true},
		{name: "half of its life is over", operation: "get", at: 6 * time.Minute, renews: true, says: true},
		{name: "renewal refused, still good", operation: "get", at: 6 * time.Minute, refused: 409, renews: true, says: true},
		{name: "renewal refused, expired", operation: "get", at: 11 * time.Minute, refused: 401, renews: true, fails: true},
		{name: "another host", operation: "get", host: "elsewhere.invalid", at: 6 * time.Minute},
		{name: "git was let in", operation: "store", at: 6 * time.Minute},
		{name: "git was refused", operation: "erase", at: 6 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &renewer{t: t, key: testIssuer{t}, now: begin.Add(tc.at), status: tc.refused}
			server := httptest.NewServer(r)
			defer server.Close()
			host := tc.host
			if u, err := url.Parse(server.URL); err != nil {
				t.Fatal(err)
			} else if host == "" {
				host = u.Host
			}
			file, old := filepath.Join(t.TempDir(), "token"), r.key.sign(begin)
			if err := os.WriteFile(file, []byte(old+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			said, complained, err := r.helper(server.URL, file, tc.operation, "protocol=http\nhost="+host+"\n\n", begin.Add(tc.at))
			if (err != nil) != tc.fails {
				t.Fatalf("git-credential %s: %v, want it to fail: %v", tc.operation, err, tc.fails)
			}
			if got := len(r.asked) > 0; got != tc.renews {
				t.Errorf("the server was asked %q, want that: %v", r.asked, tc.renews)
			}
			now, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			token := strings.TrimSpace(string(now))
			if changed := token != old; changed != (tc.renews && tc.refused == 0) {
				t.Errorf("the file was changed: %v", changed)
			}
			told, err := tokens.ReadUnverified(token)
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if tc.says {
				want = fmt.Sprintf("username=t\npassword=%s\npassword_expiry_utc=%d\n", token, told.ExpiresAt.Unix())
			}
			if said != want {
				t.Errorf("git was told %q, want %q", said, want)
			}
			if warned := strings.Contains(complained, "the lease is lost"); warned != (tc.refused != 0 && tc.says) || strings.Contains(complained, token) {
				t.Errorf("the user was told %q", complained)
			}
		})
	}
}

// Of many helpers that find an old token one renews it, and all tell the new one.
func TestGitCredential_RenewsOnceForMany(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0).UTC()
	r := &renewer{t: t, key: testIssuer{t}, now: begin.Add(6 * time.Minute)}
	server := httptest.NewServer(r)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(r.key.sign(begin)), 0o600); err != nil {
		t.Fatal(err)
	}
	input := "protocol=http\nhost=" + strings.TrimPrefix(server.URL, "http://") + "\n\n"
	var wg sync.WaitGroup
	said := make([]string, 8)
	for i := range said {
		wg.Go(func() {
			var err error
			if said[i], _, err = r.helper(server.URL, file, "get", input, r.now); err != nil {
				t.Errorf("git-credential get: %v", err)
			}
		})
	}
	wg.Wait()
	if len(r.asked) != 1 {
		t.Errorf("the server was asked %d times, want once", len(r.asked))
	}
	for _, s := range said {
		if s != said[0] || s == "" {
			t.Errorf("one was told %q, another %q", said[0], s)
		}
	}
}

func TestGitCredential_BadFiles(t *testing.T) {
	r := &renewer{t: t, key: testIssuer{t}}
	input := "protocol=http\nhost=h\n\n"
	dir := t.TempDir()
	if _, _, err := r.helper("http://h", filepath.Join(dir, "none"), "get", input, time.Now()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v, want fs.ErrNotExist", err)
	}
	for text, want := range map[string]error{" \n": errEmptyTokenFile, "no token\n": tokens.ErrUnauthorized} {
		file := filepath.Join(dir, "token")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.helper("http://h", file, "get", input, time.Now()); !errors.Is(err, want) {
			t.Errorf("a file with %q: %v, want %v", text, err, want)
		}
	}
	if _, _, err := r.helper("http://h", filepath.Join(dir, "token"), "get", "what is this\n", time.Now()); err == nil {
		t.Error("input that is no attribute was taken")
	}
	if _, err := (&gitCredentialCmd{Server: "ftp://h"}).renew(context.Background(), "x"); !errors.Is(err, client.ErrBadURL) {
		t.Errorf("renewing at ftp://h: %v, want ErrBadURL", err)
	}
}
