package gitcmd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The server's own environment is full of traps: another repository, aliases,
// hooks, an external diff, a pager, a trace file. None reaches git.
func TestHostileEnvironmentDoesNotReachGit(t *testing.T) {
	repo, other := newRepo(t), newRepo(t)
	trap := filepath.Join(t.TempDir(), "trapped")
	script := filepath.Join(t.TempDir(), "trap")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ntouch "+trap+"\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	config := fmt.Sprintf("[diff]\n external = %[1]s\n[alias]\n trap = !%[1]s\n[core]\n fsmonitor = %[1]s\n hooksPath = %[2]s\n pager = %[1]s\n[color]\n ui = always\n[uploadpack]\n packObjectsHook = %[1]s\n",
		script, filepath.Dir(script))
	for _, name := range []string{".gitconfig", "config"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range map[string]string{
		"GIT_DIR": other, "GIT_WORK_TREE": home, "GIT_OBJECT_DIRECTORY": filepath.Join(other, "objects"),
		"GIT_CONFIG_GLOBAL": filepath.Join(home, "config"), "GIT_CONFIG_SYSTEM": filepath.Join(home, "config"), "HOME": home, "XDG_CONFIG_HOME": home,
		"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "alias.trap", "GIT_CONFIG_VALUE_0": "!" + script, "GIT_CONFIG_PARAMETERS": "'diff.external=" + script + "'",
		"GIT_EXTERNAL_DIFF": script, "GIT_SSH_COMMAND": script, "GIT_ASKPASS": script, "GIT_PAGER": script, "GIT_EDITOR": script, "GIT_EXEC_PATH": filepath.Dir(script),
		"GIT_TRACE": trap, "GIT_TRACE2": trap, "GIT_REPLACE_REF_BASE": "refs/x", "GIT_NAMESPACE": "x", "GIT_ALTERNATE_OBJECT_DIRECTORIES": "/x", "LD_PRELOAD": "",
		"LC_ALL": "de_DE.UTF-8", "HEADGATE_SECRET": "hush",
	} {
		t.Setenv(key, value)
	}
	r := newRunner(t, Options{Home: filepath.Join(t.TempDir(), "home")})
	diff, err := r.Output(t.Context(), Cmd{Args: []string{"diff", "main~1", "main"}, GitDir: repo}, 1<<20)
	if err != nil || !strings.Contains(string(diff), "-line0\n+line1\n") || bytes.ContainsRune(diff, '\x1b') {
		t.Errorf("diff = %q, %v, want the plain diff", diff, err)
	}
	var exit *ExitError
	if err := r.Run(t.Context(), Cmd{Args: []string{"trap"}, GitDir: repo}); !errors.As(err, &exit) {
		t.Errorf("an alias of the environment gives %v, want an ExitError", err)
	}
	dir, err := r.Output(t.Context(), Cmd{Args: []string{"rev-parse", "--absolute-git-dir"}, GitDir: repo}, 1<<10)
	if err != nil || strings.TrimSpace(string(dir)) != repo {
		t.Errorf("git works on %q, %v, want %q", dir, err, repo)
	}
	fetch := "0011command=fetch0001000fno-progress" + "0032want " + strings.TrimSpace(refOf(t, r, repo)) + "\n0009done\n0000"
	if err := r.Run(t.Context(), Cmd{Args: []string{"upload-pack", "--stateless-rpc", repo}, Protocol: "version=2", Stdin: strings.NewReader(fetch)}); err != nil {
		t.Errorf("upload-pack: %v", err)
	}
	if _, err := os.Stat(trap); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a trap of the environment was run or written: %v", err)
	}
}

func refOf(t *testing.T, r *Runner, repo string) string {
	t.Helper()
	out, err := r.Output(t.Context(), Cmd{Args: []string{"rev-parse", "main"}, GitDir: repo}, 1<<10)
	if err != nil {
		t.Fatalf("rev-parse: %v", err)
	}
	return string(out)
}

// The whole environment, variable by variable.
func TestEnvironmentIsBuiltFromNothing(t *testing.T) {
	t.Setenv("HEADGATE_SECRET", "hush")
	home := filepath.Join(t.TempDir(), "home")
	git := fakeGit(t, newVersion, "exec /usr/bin/env")
	r := newRunner(t, Options{Path: git, Home: home})
	out, err := r.Output(t.Context(), Cmd{
		Args: []string{"env"}, GitDir: "/g", ObjectDir: "/o", Alternates: []string{"/a:1", "/b"}, Protocol: "version=2",
		Config: [][2]string{{"core.bigFileThreshold", "1m"}, {"x.y", "a b"}},
	}, 1<<20)
	if err != nil {
		t.Fatalf("env: %v", err)
	}
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if !strings.HasPrefix(line, "GIT_CONFIG_KEY_") && !strings.HasPrefix(line, "GIT_CONFIG_VALUE_") && !strings.HasPrefix(line, "PWD=") && !strings.HasPrefix(line, "_=") && !strings.HasPrefix(line, "SHLVL=") {
			got = append(got, line) // PWD, _ and SHLVL are the shell's own
		}
	}
	want := []string{
		"GIT_ALTERNATE_OBJECT_DIRECTORIES=\"/a:1\":\"/b\"", "GIT_ATTR_NOSYSTEM=1", "GIT_CONFIG_COUNT=17", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_DIR=/g", "GIT_NO_REPLACE_OBJECTS=1", "GIT_OBJECT_DIRECTORY=/o", "GIT_OPTIONAL_LOCKS=0", "GIT_PROTOCOL=version=2",
		"GIT_TERMINAL_PROMPT=0", "HOME=" + home, "LC_ALL=C", "PATH=" + filepath.Dir(git) + ":/usr/lib/git-core", "TMPDIR=" + home,
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("environment:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The caller's configuration wins over the fixed one; both are git's.
func TestConfig(t *testing.T) {
	r, repo := newRunner(t, Options{}), newRepo(t)
	for key, want := range map[string]string{"core.bigFileThreshold": "1m", "pack.threads": "1", "safe.directory": "*", "x.y": "a=b\"c' d"} {
		out, err := r.Output(t.Context(), Cmd{Args: []string{"config", key}, GitDir: repo, Config: [][2]string{{"core.bigFileThreshold", "1m"}, {"x.y", "a=b\"c' d"}}}, 1<<10)
		if err != nil || strings.TrimSuffix(string(out), "\n") != want {
			t.Errorf("git config %s = %q, %v, want %q", key, out, err, want)
		}
	}
}

// Objects are found through alternates whatever the folder is called, and new
// ones go to the throw-away folder alone.
func TestQuarantineAndAlternates(t *testing.T) {
	r, repo := newRunner(t, Options{}), newRepo(t)
	view, throwAway := newRepo(t), t.TempDir()
	for _, name := range []string{"plain", "co:lon", "#hash", "quo\"te", "back\\slash", "new\nline", "ä ö", "\x01"} {
		at := filepath.Join(t.TempDir(), name)
		if err := os.Rename(filepath.Join(repo, "objects"), at); err != nil {
			t.Fatal(err)
		}
		c := Cmd{Args: []string{"cat-file", "-t", "main:file"}, GitDir: view, ObjectDir: throwAway, Alternates: []string{filepath.Join(t.TempDir(), "none"), at}}
		if out, err := r.Output(t.Context(), c, 100); err != nil || string(out) != "blob\n" {
			t.Errorf("cat-file through %q = %q, %v", name, out, err)
		}
		if err := os.Rename(at, filepath.Join(repo, "objects")); err != nil {
			t.Fatal(err)
		}
	}
	out, err := r.Output(t.Context(), Cmd{Args: []string{"hash-object", "-w", "--stdin"}, GitDir: view, ObjectDir: throwAway, Stdin: strings.NewReader("new")}, 100)
	if err != nil {
		t.Fatalf("hash-object: %v", err)
	}
	id := strings.TrimSpace(string(out))
	if _, err := os.Stat(filepath.Join(throwAway, id[:2], id[2:])); err != nil {
		t.Errorf("the new object is not in the throw-away folder: %v", err)
	}
}

func TestBadCmd(t *testing.T) {
	r := newRunner(t, Options{})
	for name, c := range map[string]Cmd{
		"nothing":            {},
		"option first":       {Args: []string{"-c", "x=y"}},
		"exec path":          {Args: []string{"--exec-path=/x"}},
		"path":               {Args: []string{"../x"}},
		"empty":              {Args: []string{""}},
		"NUL":                {Args: []string{"log", "a\x00b"}},
		"NUL in config":      {Args: []string{"log"}, Config: [][2]string{{"a.b", "\x00"}}},
		"relative git dir":   {Args: []string{"log"}, GitDir: "x"},
		"relative alternate": {Args: []string{"log"}, Alternates: []string{"x"}},
		"relative objects":   {Args: []string{"log"}, ObjectDir: "x"},
	} {
		if err := r.Run(t.Context(), c); !errors.Is(err, ErrBadCmd) {
			t.Errorf("%s: Run gives %v, want ErrBadCmd", name, err)
		}
	}
}
