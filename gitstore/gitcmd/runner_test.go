package gitcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

func TestVersionOfGit(t *testing.T) {
	for _, tc := range []struct {
		version string
		want    error
	}{
		{"git version 2.38.0", nil},
		{"git version 3.0.1", nil},
		{"git version 2.39.5 (Apple Git-154)", nil},
		{"git version 2.45.GIT", nil},
		{"git version 2.37.9", ErrGitTooOld},
		{"git version 1.99.0", ErrGitTooOld},
		{"hello", ErrGitMissing},
		{"", ErrGitMissing},
	} {
		if _, err := New(Options{Path: fakeGit(t, tc.version, "")}); !errors.Is(err, tc.want) {
			t.Errorf("New with %q gives %v, want %v", tc.version, err, tc.want)
		}
	}
	if _, err := New(Options{Path: filepath.Join(t.TempDir(), "none")}); !errors.Is(err, ErrGitMissing) {
		t.Errorf("New without git gives %v, want ErrGitMissing", err)
	}
	if major, minor := newRunner(t, Options{}).Version(); major < 2 || major == 2 && minor < 38 {
		t.Errorf("Version() = %d.%d", major, minor)
	}
}

func TestExitError(t *testing.T) {
	r := newRunner(t, Options{})
	err := r.Run(t.Context(), Cmd{Args: []string{"cat-file", "-t", "nothing"}, GitDir: newRepo(t)})
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Name != "cat-file" || exit.Code != 128 || exit.Signal != 0 || !strings.Contains(exit.Stderr, "nothing") {
		t.Errorf("Run gives %#v, want exit status 128 of cat-file with its words", err)
	}
	script := tools + `for i in 1 2 3 4 5 6 7 8 9; do head -c 2000 /dev/zero | tr '\0' "$i" >&2; done; echo >&2; echo the end >&2; kill -TERM $$`
	r = newRunner(t, Options{Path: fakeGit(t, newVersion, script)})
	err = r.Run(t.Context(), Cmd{Args: []string{"talk", "--secret=hush"}})
	if !errors.As(err, &exit) || exit.Signal != syscall.SIGTERM || exit.Code != -1 {
		t.Fatalf("Run gives %#v, want death by SIGTERM", err)
	}
	if len(exit.Stderr) != stderrTail || !strings.HasSuffix(exit.Stderr, "9\nthe end\n") {
		t.Errorf("Stderr has %d bytes and ends in %q, want the last %d", len(exit.Stderr), exit.Stderr[len(exit.Stderr)-10:], stderrTail)
	}
	if got, want := err.Error(), "git talk: signal terminated: the end"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

// A git that met a full disk is told from one that failed.
func TestFullDiskOfGit(t *testing.T) {
	for text, want := range map[string]bool{
		"fatal: unable to write file: No space left on device": true,
		"fatal: sha1 file 'x' write error. Out of diskspace":   true,
		"fatal: write error: Disk quota exceeded":              true,
		"fatal: bad object": false,
	} {
		r := newRunner(t, Options{Path: fakeGit(t, newVersion, tools+"echo \""+text+"\" >&2; exit 128")})
		err := r.Run(t.Context(), Cmd{Args: []string{"write"}})
		var exit *ExitError
		if !errors.As(err, &exit) || errors.Is(err, syscall.ENOSPC) != want {
			t.Errorf("Run of a git that says %q = %v, ENOSPC %v, want %v", text, err, errors.Is(err, syscall.ENOSPC), want)
		}
	}
}

func TestOutputLimit(t *testing.T) {
	r, repo := newRunner(t, Options{}), newRepo(t)
	c := Cmd{Args: []string{"cat-file", "-p", "main:file"}, GitDir: repo}
	if out, err := r.Output(t.Context(), c, 6); err != nil || string(out) != "line1\n" {
		t.Errorf("Output with limit 6 = %q, %v", out, err)
	}
	if out, err := r.Output(t.Context(), c, 5); !errors.Is(err, ErrOutputTooLarge) || out != nil {
		t.Errorf("Output with limit 5 = %q, %v, want ErrOutputTooLarge", out, err)
	}
	r = newRunner(t, Options{Path: fakeGit(t, newVersion, tools+"exec cat /dev/zero")})
	if _, err := r.Output(t.Context(), Cmd{Args: []string{"zeros"}}, 1<<20); !errors.Is(err, ErrOutputTooLarge) {
		t.Errorf("Output without end gives %v, want ErrOutputTooLarge", err)
	}
}

// A reader that breaks off is not the end of the input, and a writer that fails
// is not git's fault.
func TestBrokenStreams(t *testing.T) {
	cut, full := errors.New("cable cut"), errors.New("disk full")
	r, repo := newRunner(t, Options{}), newRepo(t)
	in := io.MultiReader(strings.NewReader("main:file\n"), iotest.ErrReader(cut))
	if err := r.Run(t.Context(), Cmd{Args: []string{"cat-file", "--batch"}, GitDir: repo, Stdin: in}); !errors.Is(err, cut) {
		t.Errorf("Run with a broken reader gives %v, want its error", err)
	}
	out := writerFunc(func([]byte) (int, error) { return 0, full })
	if err := r.Run(t.Context(), Cmd{Args: []string{"cat-file", "-p", "main:file"}, GitDir: repo, Stdout: out}); !errors.Is(err, full) {
		t.Errorf("Run with a full writer gives %v, want its error", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestPipes(t *testing.T) {
	r, repo := newRunner(t, Options{}), newRepo(t)
	p, err := r.Start(t.Context(), Cmd{Args: []string{"cat-file", "--batch"}, GitDir: repo})
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	for range 3 {
		if _, err := io.WriteString(p.StdinPipe(), "main:file\n"); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, len("0123456789012345678901234567890123456789 blob 6\nline1\n\n"))
		if _, err := io.ReadFull(p.StdoutPipe(), buf); err != nil || !bytes.HasSuffix(buf, []byte(" blob 6\nline1\n\n")) {
			t.Fatalf("cat-file said %q, %v", buf, err)
		}
	}
	if err := p.StdinPipe().Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Wait(); err != nil {
			t.Errorf("Wait: %v", err)
		}
	}
}

func TestTimeLimit(t *testing.T) {
	r := newRunner(t, Options{Path: fakeGit(t, newVersion, tools+"exec sleep 60"), Timeout: 30 * time.Millisecond})
	err := r.Run(t.Context(), Cmd{Args: []string{"wait"}})
	if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run over the Runner's limit gives %v, want ErrTimeout", err)
	}
	r = newRunner(t, Options{Path: fakeGit(t, newVersion, tools+"exec sleep 60")})
	if err := r.Run(t.Context(), Cmd{Args: []string{"wait"}, Timeout: 30 * time.Millisecond}); !errors.Is(err, ErrTimeout) {
		t.Errorf("Run over the Cmd's limit gives %v, want ErrTimeout", err)
	}
	p, err := r.Start(t.Context(), Cmd{Args: []string{"wait"}})
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if err := p.Wait(); !errors.Is(err, ErrKilled) {
		t.Errorf("Wait after Kill gives %v, want ErrKilled", err)
	}
}

// One slot: who comes second waits, no longer than it may.
func TestSlots(t *testing.T) {
	var running, most, waits atomic.Int64
	o := Options{
		Path: fakeGit(t, newVersion, tools+"cat >/dev/null"), MaxProcesses: 2, MaxWait: 30 * time.Millisecond,
		OnStart: func(string) { most.Store(max(most.Load(), running.Add(1))) },
		OnExit:  func(string, time.Duration, error) { running.Add(-1) },
		OnWait:  func(time.Duration) { waits.Add(1) },
	}
	r := newRunner(t, o)
	held := make([]*Process, 2)
	for i := range held {
		p, err := r.Start(t.Context(), Cmd{Args: []string{"hold"}})
		if err != nil {
			t.Fatal(err)
		}
		held[i] = p
	}
	if err := r.Run(t.Context(), Cmd{Args: []string{"third"}}); !errors.Is(err, ErrBusy) {
		t.Errorf("Run without a slot gives %v, want ErrBusy", err)
	}
	r.opts.MaxWait = time.Minute
	gone := errors.New("client gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(gone) })
	if err := r.Run(ctx, Cmd{Args: []string{"third"}}); !errors.Is(err, gone) {
		t.Errorf("Run whose context ends in the queue gives %v, want its cause", err)
	}
	done := make(chan error)
	go func() { done <- r.Run(t.Context(), Cmd{Args: []string{"fourth"}}) }()
	for _, p := range held {
		_ = p.StdinPipe().Close()
		if err := p.Wait(); err != nil {
			t.Errorf("Wait: %v", err)
		}
	}
	if err := <-done; err != nil {
		t.Errorf("Run after a slot came free: %v", err)
	}
	if most.Load() > 2 || running.Load() != 0 {
		t.Errorf("%d ran at once, %d run now; want at most 2 and 0", most.Load(), running.Load())
	}
}

// pidsOf reads the process ids that a fake git has written.
func pidsOf(t *testing.T, file string, n int) (pids []int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%d process ids", n), func() bool {
		b, _ := os.ReadFile(file)
		pids = nil
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
		return len(pids) >= n
	})
	return pids
}

// The context's end kills git's children too, and Wait does not wait for the
// pipes they hold.
func TestCancelKillsTheGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	r := newRunner(t, Options{Path: fakeGit(t, newVersion, tools+"sleep 300 & echo $$ $! >>"+file+"; wait"), WaitDelay: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	p, err := r.Start(ctx, Cmd{Args: []string{"spawn"}, Stdout: io.Discard, Low: true})
	if err != nil {
		t.Fatal(err)
	}
	pids := pidsOf(t, file, 2)
	for _, pid := range pids {
		// The kernel's answer is 20 less the nice value.
		if got, err := syscall.Getpriority(syscall.PRIO_PROCESS, pid); err != nil || got > 20-niceLow {
			t.Errorf("process %d has nice value %d, %v, want %d or more", pid, 20-got, err, niceLow)
		}
	}
	cancel()
	if err := p.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait gives %v, want context.Canceled", err)
	}
	for _, pid := range pids {
		waitFor(t, "the group to be gone", func() bool { return !alive(pid) })
	}
}

// A child that outlives git and keeps its pipe neither hangs Wait nor lives on.
func TestChildLeftBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	r := newRunner(t, Options{Path: fakeGit(t, newVersion, tools+"sleep 300 & echo $! >>"+file), WaitDelay: 50 * time.Millisecond})
	begin := time.Now()
	if err := r.Run(t.Context(), Cmd{Args: []string{"leave"}, Stdout: new(bytes.Buffer)}); err == nil {
		t.Errorf("Run with a child left behind gives no error")
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("Run took %s", took)
	}
	pid := pidsOf(t, file, 1)[0]
	waitFor(t, "the child to be gone", func() bool { return !alive(pid) })
}

// upload-pack starts pack-objects; a client that goes away ends both.
func TestCancelKillsPackObjects(t *testing.T) {
	repo := newRepo(t)
	var in strings.Builder
	fmt.Fprintf(&in, "commit refs/heads/big\ncommitter c <c@example.com> 1700000000 +0000\ndata 1\nc\n")
	blob := make([]byte, 4<<20)
	for i := range blob { // does not deflate, so that the pipe fills up
		blob[i] = byte(i*i>>3) ^ byte(i>>9)*31 ^ byte(i>>16)
	}
	fmt.Fprintf(&in, "M 100644 inline big\ndata %d\n%s\n", len(blob), blob)
	setup(t, in.String(), "-C", repo, "fast-import", "--quiet")
	r := newRunner(t, Options{})
	out, err := r.Output(t.Context(), Cmd{Args: []string{"rev-parse", "big"}, GitDir: repo}, 100)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	fetch := "0011command=fetch0001" + "0032want " + string(out) + "0009done\n0000"
	p, err := r.Start(ctx, Cmd{Args: []string{"upload-pack", "--stateless-rpc", repo}, Protocol: "version=2", Stdin: strings.NewReader(fetch)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(p.StdoutPipe(), make([]byte, 8<<10)); err != nil {
		t.Fatalf("upload-pack: %v %s", err, p.Stderr())
	}
	pid := p.cmd.Process.Pid
	children := groupOf(t, pid)
	if len(children) < 2 {
		t.Fatalf("group of upload-pack is %v, want pack-objects in it", children)
	}
	cancel()
	if err := p.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait gives %v, want context.Canceled", err)
	}
	for _, pid := range children {
		waitFor(t, "the group of upload-pack to be gone", func() bool { return !alive(pid) })
	}
}

// groupOf lists the processes of a process group.
func groupOf(t *testing.T, group int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		_, after, _ := strings.Cut(string(b), ") ")
		var state string
		var parent, pgrp int
		if _, err := fmt.Sscan(after, &state, &parent, &pgrp); err != nil || pgrp != group {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// What git says beside its output is passed on as well as kept.
func TestStderrIsPassedOn(t *testing.T) {
	r := newRunner(t, Options{Path: fakeGit(t, newVersion, tools+"echo half >&2; exit 7")})
	var said bytes.Buffer
	err := r.Run(t.Context(), Cmd{Args: []string{"gc"}, Stderr: &said})
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Stderr != "half\n" || said.String() != "half\n" {
		t.Errorf("Run = %v, and %q was passed on; want both to have what git said", err, &said)
	}
}
