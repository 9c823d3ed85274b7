package integration

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/tokens"
)

// A gate is a running server of the test's own, the org acme that it trusts, and a
// git to reach it with.
type gate struct {
	*harness.Server
	t     testing.TB
	org   *harness.Org
	git   *harness.Git
	repos []*repo

	failures bool // 5xx are part of the test
	broken   bool // the store is meant to be damaged: no fsck at the end
}

// start starts a server with the race detector in it. At the test's end every repo
// is checked by git fsck, the server has to stop in order, and its logs must tell of
// no race, no panic and no answer of 5xx.
func start(t testing.TB, changes ...func(*harness.Options)) *gate {
	t.Helper()
	program, err := programs.Race()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, program, changes...)
}

func startProgram(t testing.TB, program string, changes ...func(*harness.Options)) *gate {
	t.Helper()
	dir := t.TempDir()
	org, err := harness.NewOrg(program, filepath.Join(dir, "keys"), "acme")
	if err != nil {
		t.Fatal(err)
	}
	o := harness.Options{Program: program, Data: filepath.Join(dir, "data"), Trust: []string{org.Trust()}}
	for _, change := range changes {
		change(&o)
	}
	g := &gate{t: t, org: org, git: &harness.Git{Home: t.TempDir()}}
	if g.Server, err = harness.Start(o); err != nil {
		t.Fatalf("start server: %v", err)
	}
	t.Cleanup(g.end)
	return g
}

func (g *gate) end() {
	g.t.Helper()
	if g.Running() && !g.broken {
		for _, r := range g.repos {
			r.fsck()
		}
	}
	if err := g.Stop(stopLimit); err != nil {
		g.t.Errorf("stop server: %v, want a stop in order", err)
	}
	logs := g.Logs()
	marks := []string{"DATA RACE", "panic:", `"msg":"panic"`, "fatal error:"}
	if !g.failures {
		marks = append(marks, `"level":"ERROR"`)
	}
	for _, mark := range marks {
		if i := strings.Index(logs, mark); i >= 0 {
			g.t.Errorf("server's log has %q:\n%.3000s", mark, logs[max(0, i-200):])
		}
	}
	if g.t.Failed() {
		g.t.Logf("end of the server's log:\n%s", logs[max(0, len(logs)-3000):])
	}
}

// onEachEngine runs a test on the embedded ledger and on a Redis.
func onEachEngine(t *testing.T, test func(*testing.T, *gate), changes ...func(*harness.Options)) {
	t.Run("pebble", func(t *testing.T) { test(t, start(t, changes...)) })
	t.Run("redis", func(t *testing.T) { test(t, start(t, append(changes, onRedis(t))...)) })
}

// onEachEnginePlain is onEachEngine without the race detector, for much data.
func onEachEnginePlain(t *testing.T, test func(*testing.T, *gate), changes ...func(*harness.Options)) {
	t.Run("pebble", func(t *testing.T) { test(t, startPlain(t, changes...)) })
	t.Run("redis", func(t *testing.T) { test(t, startPlain(t, append(changes, onRedis(t))...)) })
}

// onRedis gives a server a Redis of the test's own.
func onRedis(t testing.TB) func(*harness.Options) {
	t.Helper()
	redis := redistest.Start(t)
	return func(o *harness.Options) { o.Ledger = redis.URL() }
}

// withConfig adds a configuration file.
func withConfig(text string) func(*harness.Options) {
	return func(o *harness.Options) { o.Config = text }
}

// do sends a request; a connection that breaks ends the test.
func (g *gate) do(a harness.Ask) harness.Answer {
	g.t.Helper()
	answer, err := g.Do(a)
	if err != nil {
		g.t.Fatalf("%s %s: %v\n%s", a.Method, a.Path, err, g.tail())
	}
	return answer
}

// want sends a request and ends the test when the status is another.
func (g *gate) want(status int, a harness.Ask) harness.Answer {
	g.t.Helper()
	answer := g.do(a)
	if answer.Status != status {
		g.t.Fatalf("%s %s = %s, want %d", a.Method, a.Path, answer, status)
	}
	return answer
}

func (g *gate) tail() string {
	logs := g.Logs()
	return logs[max(0, len(logs)-2000):]
}

func (g *gate) sign(c tokens.Claims) string {
	g.t.Helper()
	token, err := g.org.Sign(c)
	if err != nil {
		g.t.Fatalf("sign token: %v", err)
	}
	return token
}

// run is a git command that has to succeed; it gives standard output without the
// last line end.
func (g *gate) run(dir string, args ...string) string {
	g.t.Helper()
	out := g.git.Run(dir, nil, args...)
	if out.Err != nil {
		g.t.Fatalf("git %s: %v\n%s\n%s", clip(args), out.Err, out.All(), g.tail())
	}
	return strings.TrimSuffix(out.Stdout, "\n")
}

// refused is a git command that has to fail; it gives everything git said.
func (g *gate) refused(dir string, args ...string) string {
	g.t.Helper()
	out := g.git.Run(dir, nil, args...)
	if out.Err == nil {
		g.t.Fatalf("git %s succeeded, want it refused\n%s", clip(args), out.All())
	}
	return out.All()
}

// clip is a command for a message, without the tokens in it.
func clip(args []string) string {
	shown := make([]string, len(args))
	for i, arg := range args {
		if before, after, ok := strings.Cut(arg, "://t:"); ok {
			_, host, _ := strings.Cut(after, "@")
			arg = before + "://t:...@" + host
		}
		shown[i] = arg
	}
	return strings.Join(shown, " ")
}

// wantHas says what is missing when text does not hold every part.
func wantHas(t testing.TB, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s = %.1500s, want %q in it", what, text, part)
		}
	}
}

// noise is n bytes that do not compress.
func noise(t testing.TB, n int) []byte {
	t.Helper()
	rng := random(t)
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		v := rng.Uint64()
		for j := range 8 {
			b[i+j] = byte(v >> (8 * j))
		}
	}
	return b
}

func sameBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s = %d bytes %.60q, want %d bytes %.60q", what, len(got), got, len(want), want)
	}
}
