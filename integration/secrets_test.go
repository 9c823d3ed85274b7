package integration

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/tokens"
)

// A recorder keeps every response that passes.
type recorder struct {
	next http.RoundTripper
	mu   sync.Mutex // guards all
	all  bytes.Buffer
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(&r.all, resp.Status, resp.Header)
	r.all.Write(body)
	return resp, err
}

// Whatever is asked, well or badly: no key and no token shows in a response, in a log
// line, in what git says or in the data folder (A-14, case 3.6).
func TestA14_NoKeyAndNoTokenShows(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		seen := &recorder{next: http.DefaultTransport}
		g.Client = &http.Client{Transport: seen}
		r, main := g.seeded()
		r.session("s", "main")
		sandbox := r.sandbox("s")
		expired := g.sign(tokens.Claims{Repo: r.name, Scopes: []tokens.Scope{tokens.GitWrite}, ExpiresAt: time.Now().Add(-time.Hour)})
		odd := g.sign(tokens.Claims{Repo: "team/other", Scopes: []tokens.Scope{tokens.GitWrite}})
		var said strings.Builder
		clone := r.clone(r.ephemeral(sandbox))
		for i := range 5 {
			r.work(clone, fmt.Sprintf("f%d", i), "x")
			said.WriteString(g.git.Run(clone, nil, "push").All())
			said.WriteString(g.git.Run(clone, nil, "push", r.remote(sandbox), "HEAD:refs/heads/main").All())
		}
		for _, token := range []string{r.write, r.read, sandbox, expired, odd, sandbox[:len(sandbox)-3] + "abc"} {
			for _, path := range []string{"/branches", "/file?path=README.md", "/file?path=none", "/commits?limit=x", "/diff?sha=" + main, "/nothing"} {
				g.do(harness.Ask{Path: r.path(path), Token: token})
				g.do(harness.Ask{Path: r.path(path) + "&token=" + token})
				g.do(harness.Ask{Path: "/api/repos/" + token + "/file"})
				g.do(harness.Ask{Path: r.path(path), Token: "x" + token})
			}
			g.do(harness.Ask{Path: "/api/whoami", Token: token})
			g.do(r.commitAsk(harness.Commit{Branch: "s", Ephemeral: true, Files: []harness.File{{Path: "k", Content: "k"}}}, token))
			g.do(r.packAsk("{", token))
			g.do(harness.Ask{Path: r.gitPath(false, "info/refs") + "?service=git-receive-pack&token=" + token, Basic: token})
			g.do(harness.Ask{Path: "/" + token + ".git/info/refs?service=git-upload-pack", Basic: token})
			// What git itself prints has the URL's password taken out; what comes from us must not bring it back.
			said.WriteString(strings.ReplaceAll(g.git.Run("", nil, "ls-remote", g.Remote(token[:40], token, false)).All(), token, ""))
		}
		g.Hangup()
		if err := g.Stop(stopLimit); err != nil {
			t.Fatal(err)
		}
		places := map[string][]byte{"a response": seen.all.Bytes(), "the logs": []byte(g.Logs()), "git's output": []byte(said.String())}
		for what, secret := range g.secrets(r.write, r.read, sandbox, expired, odd) {
			for place, text := range places {
				if bytes.Contains(text, secret) {
					t.Errorf("%s shows in %s", what, place)
				}
			}
			if err := g.DataFiles(func(path string, content []byte) error {
				if bytes.Contains(content, secret) {
					rel, _ := filepath.Rel(g.Data, path)
					t.Errorf("%s is in the data folder, in %s", what, rel)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// secrets are the parts of keys and tokens that must not be found, by what they are.
func (g *gate) secrets(given ...string) map[string][]byte {
	g.t.Helper()
	text, err := os.ReadFile(g.org.KeyFile)
	if err != nil {
		g.t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	scalar, err := g.org.Key.(*ecdsa.PrivateKey).Bytes()
	if err != nil {
		g.t.Fatal(err)
	}
	all := map[string][]byte{
		"the key's DER":         block.Bytes[len(block.Bytes)/3:],
		"the key's number":      scalar,
		"the key's PEM":         []byte(strings.Split(string(text), "\n")[1]),
		"the key's base64":      []byte(base64.StdEncoding.EncodeToString(scalar)[:40]),
		"the key's hexadecimal": []byte(fmt.Sprintf("%x", scalar)),
	}
	for i, token := range given {
		all[fmt.Sprintf("the end of token %d", i)] = []byte(token[len(token)-20:])
		all[fmt.Sprintf("the claims of token %d", i)] = []byte(strings.Split(token, ".")[1][20:60])
	}
	return all
}
