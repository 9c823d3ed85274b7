package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/tokens"
)

// deny runs a deny command of the program against a node; it gives what it printed.
func (g *gate) deny(args ...string) string {
	g.t.Helper()
	cmd := exec.Command(g.Program, append(append([]string{"deny"}, args...), "--server", g.URL, "--data", g.Data, "--org", "acme")...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.t.Fatalf("headgate deny %s: %v\n%s", args[0], err, out)
	}
	return strings.TrimSpace(string(out))
}

// A token of a customer's backend has leaked. The operator denies it at one node; both
// refuse it, by API and git, a restart of all forgets nothing, and whoever has another
// token notices nothing. Taken back it is good again.
func TestDenyALeakedTokenOnTwoNodes(t *testing.T) {
	redis := redistest.Start(t)
	c := twoNodes(t, redis.URL())
	one, two := c.nodes[0], c.nodes[1]
	r, head := one.seeded()
	leaked := one.sign(tokens.Claims{Repo: r.name, Subject: "leaky", Scopes: []tokens.Scope{tokens.GitWrite, tokens.GitRead}})
	session, _ := r.leased("s", "sandbox")

	var began time.Time
	refused := func(g *gate) bool {
		return g.do(harness.Ask{Path: "/api/whoami", Token: leaked}).Status == 401
	}
	for i, g := range c.nodes {
		if refused(g) {
			t.Fatalf("node %d refuses the token before it is denied", i)
		}
	}
	file := filepath.Join(t.TempDir(), "leaked")
	if err := os.WriteFile(file, []byte(leaked+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := one.deny("add", "--token-file", file, "--reason", "pasted into a ticket")
	began = time.Now()
	if !refused(one) {
		t.Error("the node that was asked lets the denied token in")
	}
	until(t, "the other node refuses the denied token", func() bool { return refused(two) })
	t.Logf("the other node refused it within %s", time.Since(began).Round(time.Millisecond))

	check := func(when string) {
		t.Helper()
		for i, g := range c.nodes {
			on := r.on(g)
			for _, a := range []harness.Ask{
				{Path: on.path("/branches"), Token: leaked},
				on.commitAsk(harness.Commit{Branch: "main", Files: []harness.File{{Path: "x", Content: when}}}, leaked),
				{Method: "POST", Path: on.path("/sessions"), Token: leaked, JSON: map[string]any{"base_ref": "main"}},
				{Path: "/" + on.name + ".git/info/refs?service=git-upload-pack", Basic: leaked},
				{Path: "/" + on.name + "+ephemeral.git/info/refs?service=git-receive-pack", Basic: leaked},
			} {
				if got := g.do(a); got.Status != 401 {
					t.Errorf("%s: %s %s with the denied token on node %d = %s, want 401", when, a.Method, a.Path, i, got)
				}
			}
			g.refused(".", "ls-remote", on.remote(leaked))
			if got := on.refs(on.remote(on.read))["refs/heads/main"]; got != head {
				t.Errorf("%s: main on node %d is at %s, want %s", when, i, got, head)
			}
			// Everybody else goes on.
			g.want(201, on.commitAsk(state("s", when+g.URL), session))
			g.want(201, on.commitAsk(harness.Commit{Branch: "side", Base: "main", Files: []harness.File{{Path: "y", Content: when + g.URL}}}, r.write))
		}
	}
	check("denied")
	for _, g := range c.nodes {
		if err := g.Stop(stopLimit); err != nil {
			t.Fatal(err)
		}
	}
	redis.Kill()
	redis.Restart()
	for _, g := range c.nodes {
		if err := g.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	check("after a restart of all")
	if list := two.deny("list"); !strings.Contains(list, id) || !strings.Contains(list, "pasted into a ticket") || strings.Contains(list, leaked) {
		t.Errorf("deny list = %s, want %s with its reason", list, id)
	}
	two.deny("remove", id)
	for _, g := range []*gate{two, one} {
		until(t, "a node lets the token in again", func() bool { return !refused(g) })
	}
}
