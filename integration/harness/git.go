package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

const gitLimit = 5 * time.Minute

// Git runs the installed git with a home of its own and nothing of the machine's
// configuration.
type Git struct {
	Home string
	Env  []string // added to the environment
}

// Output is what a git command wrote.
type Output struct {
	Stdout, Stderr string
	Err            error // nil: status 0
}

// All is both outputs.
func (o Output) All() string { return o.Stdout + o.Stderr }

// Run runs git in dir; stdin may be nil.
func (g *Git) Run(dir string, stdin []byte, args ...string) Output {
	ctx, cancel := context.WithTimeout(context.Background(), gitLimit)
	defer cancel()
	cmd := g.Command(ctx, dir, args...)
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("not done within %s: %w", gitLimit, err)
	}
	return Output{out.String(), errs.String(), err}
}

// Command is a git command in dir that is not yet started.
func (g *Git) Command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + g.Home, "XDG_CONFIG_HOME=" + g.Home, "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=true",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com",
		"GIT_CONFIG_COUNT=4",
		"GIT_CONFIG_KEY_0=init.defaultBranch", "GIT_CONFIG_VALUE_0=main",
		"GIT_CONFIG_KEY_1=advice.detachedHead", "GIT_CONFIG_VALUE_1=false",
		"GIT_CONFIG_KEY_2=gc.auto", "GIT_CONFIG_VALUE_2=0",
		"GIT_CONFIG_KEY_3=core.autocrlf", "GIT_CONFIG_VALUE_3=false",
	}, g.Env...)
	return cmd
}

// Remote is a git URL with a token in it. What is "main" or "ephemeral" of a repo
// is the end of its path.
func (s *Server) Remote(repo, token string, ephemeral bool) string {
	scheme, addr, _ := strings.Cut(s.URL, "://")
	if ephemeral {
		repo += "+ephemeral"
	}
	return scheme + "://t:" + token + "@" + addr + "/" + repo + ".git"
}
