package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The steps of a sandbox, which has nothing but plain git and a confined token.

func (t *tour) confineSandbox(ctx context.Context) error {
	t.title("The sandbox gets a token for 15 minutes that can fast-forward its branch, and neither move nor see anything else")
	issue := t.below("/sessions/" + t.id + "/tokens")
	t.typed(fmt.Sprintf(`SANDBOX=$(curl -s -X POST -H "Authorization: Bearer $TOKEN" %s%s -d '{}' | jq -r .token)`, t.base, issue),
		fmt.Sprintf(`curl -H "Authorization: Bearer $SANDBOX" %s/api/whoami`, t.base))
	text, err := t.call(ctx, http.MethodPost, issue, []byte("{}"), http.StatusCreated)
	if err != nil {
		return err
	}
	var issued struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal(text, &issued); err != nil {
		return err
	}
	t.sandbox = issued.Token
	text, err = t.callAs(ctx, t.sandbox, http.MethodGet, "/api/whoami", nil, http.StatusOK)
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
	if err := t.refused(ctx, clone); err != nil {
		return err
	}
	return t.fencedOff(ctx, clone)
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

// fencedOff shows what becomes of a sandbox whose session somebody else has taken over.
func (t *tour) fencedOff(ctx context.Context, clone string) error {
	t.title("Another sandbox takes the session over; from then on the old one cannot write any more, not even a fast-forward")
	lease, body := t.below("/sessions/"+t.id+"/lease"), `{"action": "takeover", "holder": "another sandbox", "ttl_s": 60}`
	t.typed(fmt.Sprintf(`curl -X POST -H "Authorization: Bearer $TOKEN" %s%s -d '%s'`, t.base, lease, body), "git push")
	text, err := t.call(ctx, http.MethodPost, lease, []byte(body), http.StatusOK)
	if err != nil {
		return err
	}
	t.shown(string(text))
	if said, err := runGit(ctx, clone, "-c", "user.name=Sandbox", "-c", "user.email=sandbox@example.org", "commit", "-q", "--allow-empty", "-m", "too late"); err != nil {
		return fmt.Errorf("git commit: %w: %s", err, said)
	}
	said, err := runGit(ctx, clone, "push")
	t.shown(t.clean(said))
	if err == nil {
		return errors.New("the push of the old sandbox was not refused")
	}
	if !strings.Contains(said, "stale epoch") {
		return fmt.Errorf("git push: %w", err)
	}
	return nil
}

// readLog shows what has happened to the session.
func (t *tour) readLog(ctx context.Context) error {
	t.title("All that happened to the session stands in the live log; with an Accept header it comes as server-sent events")
	path := t.below("/events?session=" + t.id)
	t.typed(fmt.Sprintf(`curl -H "Authorization: Bearer $TOKEN" '%s%s'`, t.base, path),
		fmt.Sprintf(`curl -N -H "Authorization: Bearer $TOKEN" -H "Accept: text/event-stream" '%s%s'`, t.base, path))
	text, err := t.call(ctx, http.MethodGet, path, nil, http.StatusOK)
	if err != nil {
		return err
	}
	var log struct {
		Events []struct {
			Seq     uint64 `json:"seq"`
			Type    string `json:"type"`
			Changes []struct {
				New string `json:"new_sha"`
			} `json:"changes"`
		} `json:"events"`
	}
	if err := json.Unmarshal(text, &log); err != nil {
		return err
	}
	if len(log.Events) == 0 {
		return errors.New("the log of the session is empty")
	}
	for _, e := range log.Events {
		line := fmt.Sprintf("%d %s", e.Seq, e.Type)
		for _, c := range e.Changes {
			line += fmt.Sprintf(" %.12s", c.New)
		}
		t.shown(line)
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
