package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// gitEnvironment keeps the machine's and the user's settings out of the figures.
var gitEnvironment = append(os.Environ(),
	"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
	"GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@example.invalid",
	"GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@example.invalid")

func gitCommand(ctx context.Context, dir string, stdin io.Reader, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, gitEnvironment, stdin
	return cmd
}

// git runs a command and gives its output without the last line feed.
func git(ctx context.Context, dir string, stdin io.Reader, args ...string) (string, error) {
	cmd := gitCommand(ctx, dir, stdin, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, said.Bytes())
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// gitSkim runs a command and throws its output away, as a client's reading would.
func gitSkim(ctx context.Context, dir string, args ...string) error {
	cmd := gitCommand(ctx, dir, nil, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{out}, make([]byte, 256<<10)); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("git %s: %w", args[0], err)
	}
	return nil
}
