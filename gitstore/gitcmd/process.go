package gitcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	stderrTail = 8 << 10
	niceLow    = 10
)

// A Process is a running git. Its starter must call Wait, once everything
// wanted from StdoutPipe is read; until then it holds a slot of the Runner.
type Process struct {
	r      *Runner
	name   string
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   context.CancelFunc
	cmd    *exec.Cmd
	begin  time.Time
	stderr *tail
	stdin  io.WriteCloser
	stdout io.ReadCloser

	release func() // gives the slot back

	ioErr atomic.Pointer[error] // what the caller's reader or writer gave

	once sync.Once
	err  error
}

// Start starts git without waiting for it. A nil Stdin or Stdout of the Cmd
// becomes a pipe. When ctx ends the process and all its children are killed.
func (r *Runner) Start(ctx context.Context, c Cmd) (*Process, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	name := c.Args[0]
	release, err := r.acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("start git %s: %w", name, err)
	}
	p := r.newProcess(ctx, c)
	p.release = release
	if err := p.start(c); err != nil {
		p.stop()
		p.cancel(nil)
		release()
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w: %w", ErrGitMissing, err)
		}
		return nil, fmt.Errorf("start git %s: %w", name, err)
	}
	if r.opts.OnStart != nil {
		r.opts.OnStart(name)
	}
	return p, nil
}

func (r *Runner) newProcess(ctx context.Context, c Cmd) *Process {
	limit := c.Timeout
	if limit <= 0 {
		limit = r.opts.Timeout
	}
	p := &Process{r: r, name: c.Args[0], begin: time.Now(), stderr: &tail{}}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.ctx, p.stop = context.WithTimeoutCause(p.ctx, limit, ErrTimeout)
	p.cmd = exec.CommandContext(p.ctx, r.git, c.Args...)
	p.cmd.Env = r.environ(c)
	p.cmd.Dir = "/"
	p.cmd.Stderr = p.stderr
	if c.Stderr != nil {
		p.cmd.Stderr = io.MultiWriter(p.stderr, c.Stderr)
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Cancel = p.killGroup
	p.cmd.WaitDelay = r.opts.WaitDelay
	return p
}

func (p *Process) start(c Cmd) (err error) {
	if c.Stdin != nil {
		p.cmd.Stdin = p.input(c.Stdin)
	} else if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if c.Stdout != nil {
		p.cmd.Stdout = p.output(c.Stdout)
	} else if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		return err
	} else {
		widen(p.stdout)
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	if c.Low {
		// The group, not the process: it may have children already. A process
		// that is gone, or a kernel that says no, costs only the politeness.
		if err := syscall.Setpriority(syscall.PRIO_PGRP, p.cmd.Process.Pid, niceLow); err != nil {
			p.r.opts.Logger.Debug("git priority not lowered", "command", p.name, "error", err)
		}
	}
	return nil
}

// killGroup kills git and everything it started: upload-pack leaves a
// pack-objects behind that would go on for a client that is gone.
func (p *Process) killGroup() error {
	err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// StdinPipe is the process's input when Cmd.Stdin was nil; the caller closes it.
func (p *Process) StdinPipe() io.WriteCloser { return p.stdin }

// StdoutPipe is the process's output when Cmd.Stdout was nil. Wait closes it.
func (p *Process) StdoutPipe() io.ReadCloser { return p.stdout }

// Stderr gives the end of what the process has said so far, at most 8 KiB.
func (p *Process) Stderr() string { return p.stderr.String() }

// Kill ends the process and its children at once. Wait must still be called.
func (p *Process) Kill() { p.cancel(ErrKilled) }

// Wait waits for the process to end and gives its slot back. A second call
// gives the same answer. Errors are those of Run.
func (p *Process) Wait() error {
	p.once.Do(func() {
		p.err = p.wait()
		if p.r.opts.OnExit != nil {
			p.r.opts.OnExit(p.name, time.Since(p.begin), p.err)
		}
		p.release() // after OnExit: who counts what runs never counts more than there are slots
	})
	return p.err
}

func (p *Process) wait() error {
	err := p.cmd.Wait()
	ended, cause := p.ctx.Err() != nil, context.Cause(p.ctx)
	p.stop()
	p.cancel(nil)
	if err == nil {
		return nil
	}
	// A git that did not end well may have children that compute on for nobody.
	// There are none if this fails.
	_ = p.killGroup()
	if errors.Is(err, exec.ErrWaitDelay) {
		p.r.opts.Logger.Warn("git ended and a pipe of it stayed open", "command", p.name)
	}
	if ioErr := p.ioErr.Load(); ioErr != nil {
		return fmt.Errorf("run git %s: %w", p.name, *ioErr)
	}
	var exit *exec.ExitError
	isExit := errors.As(err, &exit)
	if ended && (!isExit || signalOf(exit) == syscall.SIGKILL) {
		return fmt.Errorf("run git %s: %w", p.name, cause)
	}
	if !isExit {
		return fmt.Errorf("run git %s: %w", p.name, err)
	}
	return &ExitError{Name: p.name, Code: exit.ExitCode(), Signal: signalOf(exit), Stderr: p.stderr.String()}
}

func signalOf(e *exec.ExitError) syscall.Signal {
	if ws, ok := e.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return ws.Signal()
	}
	return 0
}

// tail keeps the last stderrTail bytes of what is written to it.
type tail struct {
	mu  sync.Mutex // guards buf: os/exec writes while Stderr reads
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p[max(0, len(p)-stderrTail):]...)
	if over := len(t.buf) - stderrTail; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
