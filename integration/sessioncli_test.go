package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sessionCommand runs headgate session with these arguments, as a backend's operator
// would, and gives what it prints.
func (r *repo) sessionCommand(token string, args ...string) (string, error) {
	r.g.t.Helper()
	cmd := exec.Command(r.g.Program, append([]string{"session"}, args...)...)
	cmd.Env = append(os.Environ(), "HEADGATE_SERVER="+r.g.URL, "HEADGATE_REPO="+r.name, "HEADGATE_TOKEN="+token, "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A session's life by the commands alone: made, listed, leased, forked, compared,
// picked, closed and ended.
func TestSessionCommands(t *testing.T) {
	g := start(t)
	r, main := g.seeded()
	do := func(args ...string) string {
		t.Helper()
		out, err := r.sessionCommand(r.write, args...)
		if err != nil {
			t.Fatalf("headgate session %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	fails := func(want string, args ...string) {
		t.Helper()
		out, err := r.sessionCommand(r.write, args...)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("headgate session %s: %v, %q, want it to fail with %q", strings.Join(args, " "), err, out, want)
		}
	}
	wantHas(t, "create", do("create", "--id", "a", "--holder", "worker", "--label", "task:7", "--ttl", "1h"), "session  a", "head     "+main, "epoch    1", "lease    worker until", "task:7")
	fails("exists already", "create", "--id", "a")
	wantHas(t, "list", do("list", "--label", "task:7", "--holder", "worker"), "SESSION", "a ", main[:12])
	wantHas(t, "list of ended ones", do("list", "--state", "ended"), "SESSION")
	fails("held by worker", "lease", "a", "acquire", "--holder", "other")
	wantHas(t, "takeover", do("lease", "a", "takeover", "--holder", "other", "--ttl", "10m"), "epoch    2", "holder   other")
	token := strings.TrimSpace(do("token", "a", "--ttl", "5m"))
	work := filepath.Join(t.TempDir(), "work")
	g.run(".", "clone", "-q", r.ephemeral(token), work)
	var listed struct {
		Tokens []struct {
			JTI string `json:"jti"`
		} `json:"tokens"`
	}
	if err := json.Unmarshal([]byte(do("tokens", "a", "--json")), &listed); err != nil || len(listed.Tokens) != 1 {
		t.Fatalf("tokens --json lists %+v, %v, want one", listed, err)
	}
	do("revoke", "a", listed.Tokens[0].JTI)
	g.refused(work, "fetch")
	fork := strings.Fields(do("fork", "a", "2"))
	group, children := fork[1], []string{fork[5], fork[7]}
	fails("max_fork_n", "fork", "a", "100")
	second := strings.TrimSpace(do("token", children[0]))
	child := filepath.Join(t.TempDir(), "child")
	g.run(".", "clone", "-q", r.ephemeral(second), child)
	pushWork(g, child, "won")
	wantHas(t, "compare", do("compare", group), "only_here", "work")
	wantHas(t, "pick", do("pick", group, children[0]), "session  a", g.run(child, "rev-parse", "HEAD"))
	fails("in use: lease other", "end", "a")
	wantHas(t, "close", do("close", group), "2 children ended")
	wantHas(t, "dry run", do("end", "a", "--holder", "other", "--dry-run"), "would free ")
	wantHas(t, "end", do("end", "a", "--holder", "other"), "frees ")
	wantHas(t, "show", do("show", "a"), "ended (deleted)")
	if out, err := r.sessionCommand("no token", "list"); err == nil || !strings.Contains(out, "the server says") {
		t.Errorf("list with a bad token: %v, %q", err, out)
	}
}
