package gitcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// When a Runner is made.
var (
	// ErrGitMissing: no git program is where it was looked for, or it does not run.
	ErrGitMissing = errors.New("git is not installed")
	// ErrGitTooOld: the installed git is older than MinVersion.
	ErrGitTooOld = errors.New("git is too old")
)

// When a process is started or ends.
var (
	// ErrBadCmd: the Cmd itself is not acceptable; nothing was started.
	ErrBadCmd = errors.New("git command not acceptable")
	// ErrBusy: no process slot came free within Options.MaxWait. Worth a retry.
	ErrBusy = errors.New("too many git processes")
	// ErrTimeout: the process was killed because its time limit passed. It is
	// a context.DeadlineExceeded too.
	ErrTimeout = fmt.Errorf("git process ran too long: %w", context.DeadlineExceeded)
	// ErrKilled: the caller ended the process by Kill.
	ErrKilled = errors.New("git process killed by its caller")
	// ErrOutputTooLarge: Output was told more than its limit; the process was killed.
	ErrOutputTooLarge = errors.New("git output is too large")
)

// An ExitError says that git ran and did not succeed.
type ExitError struct {
	Name   string         // the git command, such as "index-pack"; never its arguments
	Code   int            // exit status; -1 when a signal ended it
	Signal syscall.Signal // 0 unless a signal ended it
	Stderr string         // the end of what it said, at most 8 KiB
}

// Unwrap gives syscall.ENOSPC if git ended because its disk was full.
func (e *ExitError) Unwrap() error {
	for _, said := range []string{"No space left on device", "Out of diskspace", "Disk quota exceeded"} {
		if strings.Contains(e.Stderr, said) {
			return syscall.ENOSPC
		}
	}
	return nil
}

// Error names the command, how it ended and its last line. That line may hold
// paths of the server: it is for the log, not for a client.
func (e *ExitError) Error() string {
	how := fmt.Sprintf("exit status %d", e.Code)
	if e.Signal != 0 {
		how = "signal " + e.Signal.String()
	}
	text := strings.TrimSpace(e.Stderr)
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = text[i+1:]
	}
	if text == "" {
		return fmt.Sprintf("git %s: %s", e.Name, how)
	}
	return fmt.Sprintf("git %s: %s: %s", e.Name, how, text)
}
