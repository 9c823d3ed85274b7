package gitcmd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func newRunner(t testing.TB, o Options) *Runner {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return r
}

// setup runs the real git for what a test needs beforehand.
func setup(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	c := exec.Command("git", args...)
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	c.Stdin = strings.NewReader(stdin)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// newRepo makes a bare repository with two commits that change one file.
func newRepo(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r.git")
	setup(t, "", "init", "-q", "--bare", "-b", "main", dir)
	var in strings.Builder
	for i := range 2 {
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter c <c@example.com> %d +0000\ndata 1\nc\n", 1700000000+i)
		fmt.Fprintf(&in, "M 100644 inline file\ndata 6\nline%d\n\n", i)
	}
	setup(t, in.String(), "-C", dir, "fast-import", "--quiet")
	return dir
}

// fakeGit is a program in git's place. Its script sees git's arguments; asked
// for its version and its helpers it answers as git does.
func fakeGit(t testing.TB, version, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "git")
	text := fmt.Sprintf(`#!/bin/sh
case "$1" in
--version) echo %q; exit;;
--exec-path) echo /usr/lib/git-core; exit;;
esac
%s
`, version, script)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// tools begins a script that calls other programs: a Runner's PATH has git alone.
const tools = "PATH=/usr/bin:/bin\n"

const newVersion = "git version 2.40.0"

// waitFor waits for a state that another process brings about.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited 20 s for %s", what)
		case <-tick.C:
		}
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(after, "Z")
}
