package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// The steps of a sandbox, which has nothing but plain git and a confined token.

func (t *tour) confineSandbox(ctx context.Context) error {
	t.title("The sandbox gets a token for 15 minutes that can fast-forward its branch, and neither move nor see anything else")
	ref := refpolicy.EphemeralBranchPrefix + t.branch
	t.typed(fmt.Sprintf("SANDBOX=$(headgate token --key %s --org %s --repo %s --scope git:write --ttl 15m \\", t.key, quickstartOrg, t.repo),
		fmt.Sprintf("    --ref %s=no-force-push --ref '*=no-read')", ref),
		fmt.Sprintf(`curl -H "Authorization: Bearer $SANDBOX" %s/api/whoami`, t.base))
	var err error
	t.sandbox, err = t.sign(tokenCmd{
		Scope: []string{"git:write"}, TTL: 15 * time.Minute,
		Ref: []string{ref + "=no-force-push", "*=no-read"},
	})
	if err != nil {
		return err
	}
	text, err := t.callAs(ctx, t.sandbox, http.MethodGet, "/api/whoami", nil, http.StatusOK)
	t.shown(string(text))
	return err
}

func (t *tour) cloneAndPush(ctx context.Context) error {
	t.title("The sandbox clones its branch, works, and pushes, with plain git and no flags")
	work, err := os.MkdirTemp("", "headgate-quickstart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	remote := fmt.Sprintf("%s/%s+ephemeral.git", withUser(t.base, "t:$SANDBOX"), t.repo)
	t.typed("git clone "+remote+" work && cd work",
		"echo 'from the sandbox' > note.txt && git add note.txt && git commit -m 'add a note'",
		"git push")
	clone := filepath.Join(work, "work")
	real := fmt.Sprintf("%s/%s+ephemeral.git", withUser(t.base, "t:"+t.sandbox), t.repo)
	if text, err := runGit(ctx, work, "clone", "-q", real, clone); err != nil {
		return fmt.Errorf("git clone: %w: %s", err, t.clean(text))
	}
	if err := os.WriteFile(filepath.Join(clone, "note.txt"), []byte("from the sandbox\n"), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"add", "note.txt"},
		{"-c", "user.name=Sandbox", "-c", "user.email=sandbox@example.org", "commit", "-q", "-m", "add a note"},
	} {
		if text, err := runGit(ctx, clone, args...); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, text)
		}
	}
	text, err := runGit(ctx, clone, "push")
	t.shown(t.clean(text))
	if err != nil {
		return fmt.Errorf("git push: %w", err)
	}
	head, err := runGit(ctx, clone, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	t.heads = append(t.heads, strings.TrimSpace(head))
	return t.refused(ctx, clone)
}

// refused shows that for the same token main does not exist, and what it is told when
// it tries to move it.
func (t *tour) refused(ctx context.Context, clone string) error {
	t.title("The same token does not see main and cannot move it; the refusal says why, in words an agent can act on")
	shown := fmt.Sprintf("%s/%s.git", withUser(t.base, "t:$SANDBOX"), t.repo)
	t.typed("git ls-remote "+shown+"     # shows nothing", "git push "+shown+" HEAD:refs/heads/main")
	real := strings.ReplaceAll(shown, "$SANDBOX", t.sandbox)
	if text, err := runGit(ctx, clone, "ls-remote", "-q", real); err != nil || text != "" {
		return errors.Join(fmt.Errorf("git ls-remote shows %q, want nothing", t.clean(text)), err)
	}
	text, err := runGit(ctx, clone, "push", real, "HEAD:refs/heads/main")
	t.shown(t.clean(text))
	if err == nil {
		return errors.New("the push to main was not refused")
	}
	if !strings.Contains(text, "denied by policy") {
		return fmt.Errorf("git push: %w", err)
	}
	return nil
}

func (t *tour) readByPointer(ctx context.Context) error {
	t.title("Anybody with the right to read gets a file by commit pointer, for ever the same bytes")
	path := t.below("/file?ref=" + t.heads[len(t.heads)-1] + "&path=note.txt")
	t.typed(fmt.Sprintf(`curl -H "Authorization: Bearer $TOKEN" '%s%s'`, t.base, path))
	text, err := t.call(ctx, http.MethodGet, path, nil, http.StatusOK)
	t.shown(string(text))
	return err
}

func (t *tour) diffByPointer(ctx context.Context) error {
	t.title("And the difference between any two pointers")
	path := t.below("/diff?base_ref=" + t.heads[0] + "&ref=" + t.heads[len(t.heads)-1])
	t.typed(fmt.Sprintf(`curl -H "Authorization: Bearer $TOKEN" '%s%s'`, t.base, path))
	text, err := t.call(ctx, http.MethodGet, path, nil, http.StatusOK)
	t.shown(string(text))
	return err
}

// clean takes tokens out of what git prints.
func (t *tour) clean(text string) string {
	text = strings.ReplaceAll(text, t.backend, "$TOKEN")
	if t.sandbox != "" {
		text = strings.ReplaceAll(text, t.sandbox, "$SANDBOX")
	}
	return text
}

// withUser puts credentials into a URL as git wants them.
func withUser(base, user string) string {
	return strings.Replace(base, "://", "://"+user+"@", 1)
}

// runGit runs the user's git in dir and gives all it prints. It never asks for a password.
func runGit(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
