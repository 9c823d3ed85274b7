package gitcmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// MinVersion is the oldest git that a Runner accepts: major, minor.
var MinVersion = [2]int{2, 38}

// Options of a Runner. The zero value is usable.
type Options struct {
	Path         string        // the git program; found by PATH when empty
	Home         string        // HOME and TMPDIR of every process; made if it is not there. Without it HOME is a folder that does not exist
	MaxProcesses int           // running at once; 16 when 0
	MaxWait      time.Duration // longest wait for a slot before ErrBusy; 10 s when 0
	Timeout      time.Duration // time limit of a Cmd without one; 10 minutes when 0
	WaitDelay    time.Duration // how long the pipes of an ended process may stay open; 2 s when 0
	Logger       *slog.Logger  // slog.Default when nil; gets command names, never arguments

	OnStart func(name string)                                // after a process started; may be nil, must not block
	OnExit  func(name string, took time.Duration, err error) // after one ended, with what Wait returns
	OnWait  func(waited time.Duration)                       // after a slot was waited for
}

// A Cmd is one call of git. Only Args is needed.
type Cmd struct {
	Args       []string      // the git command and its arguments
	GitDir     string        // GIT_DIR
	ObjectDir  string        // GIT_OBJECT_DIRECTORY: where new objects go
	Alternates []string      // GIT_ALTERNATE_OBJECT_DIRECTORIES: where more objects are read
	Protocol   string        // GIT_PROTOCOL, such as "version=2"
	Config     [][2]string   // configuration, key and value; wins over the fixed one
	Stdin      io.Reader     // nothing when nil (a pipe in Start)
	Stdout     io.Writer     // thrown away when nil (a pipe in Start)
	Stderr     io.Writer     // gets what git says beside its output, as it comes; must not wait. May be nil
	Timeout    time.Duration // 0: the Runner's; counted from the start of the process
	Low        bool          // run at low priority (nice 10)
}

// A Runner starts git processes. It is safe for concurrent use.
type Runner struct {
	opts  Options
	git   string
	path  string
	tmp   string
	slots *queue
	ver   [2]int
}

// New finds git and checks its version: ErrGitMissing or ErrGitTooOld.
func New(o Options) (*Runner, error) {
	o = o.withDefaults()
	git, err := exec.LookPath(o.Path)
	if err == nil {
		git, err = filepath.Abs(git)
	}
	if err != nil {
		return nil, fmt.Errorf("find git: %w: %w", ErrGitMissing, err)
	}
	r := &Runner{opts: o, git: git, path: filepath.Dir(git), tmp: os.TempDir(), slots: newQueue(o.MaxProcesses)}
	if o.Home == "" {
		r.opts.Home = "/nonexistent"
	} else if err := os.MkdirAll(o.Home, 0o700); err != nil {
		return nil, fmt.Errorf("make home of git: %w", err)
	} else {
		r.tmp = o.Home
	}
	if err := r.probe(); err != nil {
		return nil, err
	}
	return r, nil
}

func (o Options) withDefaults() Options {
	if o.Path == "" {
		o.Path = "git"
	}
	if o.MaxProcesses <= 0 {
		o.MaxProcesses = 16
	}
	if o.MaxWait <= 0 {
		o.MaxWait = 10 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Minute
	}
	if o.WaitDelay <= 0 {
		o.WaitDelay = 2 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// probe asks git for its version and for the folder of its helper programs.
func (r *Runner) probe() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ask := func(arg string) (string, error) {
		c := exec.CommandContext(ctx, r.git, arg)
		c.Env, c.Dir = r.environ(Cmd{}), "/"
		out, err := c.Output()
		if err != nil {
			return "", fmt.Errorf("ask git %s: %w: %w", arg, ErrGitMissing, err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	text, err := ask("--version")
	if err != nil {
		return err
	}
	if r.ver, err = parseVersion(text); err != nil {
		return err
	}
	if r.ver[0] < MinVersion[0] || r.ver[0] == MinVersion[0] && r.ver[1] < MinVersion[1] {
		return fmt.Errorf("%w: %d.%d, want %d.%d or newer", ErrGitTooOld, r.ver[0], r.ver[1], MinVersion[0], MinVersion[1])
	}
	execPath, err := ask("--exec-path")
	if err != nil {
		return err
	}
	r.path += string(os.PathListSeparator) + execPath
	return nil
}

// parseVersion reads "git version 2.39.5" with whatever vendors add behind it.
func parseVersion(s string) (v [2]int, err error) {
	if _, err := fmt.Sscanf(s, "git version %d.%d", &v[0], &v[1]); err != nil {
		return v, fmt.Errorf("%w: its version is not readable: %w", ErrGitMissing, err)
	}
	return v, nil
}

// Version gives the installed git's major and minor version.
func (r *Runner) Version() (major, minor int) { return r.ver[0], r.ver[1] }

// Limit is the time limit of a Cmd without one.
func (r *Runner) Limit() time.Duration { return r.opts.Timeout }

// Run runs git to its end. Errors: ErrBadCmd, ErrBusy, ErrTimeout, the cause of
// ctx, an *ExitError, or what Stdin or Stdout gave.
func (r *Runner) Run(ctx context.Context, c Cmd) error {
	if c.Stdin == nil {
		c.Stdin = strings.NewReader("")
	}
	if c.Stdout == nil {
		c.Stdout = io.Discard
	}
	p, err := r.Start(ctx, c)
	if err != nil {
		return err
	}
	return p.Wait()
}

// Output runs git and gives what it wrote, which must not be over limit bytes:
// ErrOutputTooLarge. Cmd.Stdout is not used.
func (r *Runner) Output(ctx context.Context, c Cmd, limit int64) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &boundedBuffer{limit: limit, over: func() { cancel(ErrOutputTooLarge) }}
	c.Stdout = out
	err := r.Run(ctx, c)
	if out.full {
		return nil, fmt.Errorf("run git %s: %w: over %d bytes", c.Args[0], ErrOutputTooLarge, limit)
	}
	if err != nil {
		return nil, err
	}
	return out.buf.Bytes(), nil
}

// boundedBuffer keeps up to limit bytes and tells once when there are more.
type boundedBuffer struct {
	buf   bytes.Buffer
	limit int64
	full  bool
	over  func()
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if int64(b.buf.Len())+int64(len(p)) > b.limit {
		if !b.full {
			b.full = true
			b.over()
		}
		return 0, ErrOutputTooLarge
	}
	return b.buf.Write(p)
}
