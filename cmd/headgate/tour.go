package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// tour walks through the life of one session against a running server. Each step
// prints what happens, the command a user would type for it, and its result.
type tour struct {
	out    io.Writer
	base   string // of the server
	key    string // file of the org's private key
	repo   string
	id     string // of the session
	branch string // its ephemeral branch
	client *http.Client
	step   int

	backend, sandbox string   // tokens
	heads            []string // of the session, oldest first
}

func newTour(out io.Writer, base, key string) *tour {
	return &tour{
		out: out, base: base, key: key, client: &http.Client{Timeout: time.Minute},
	}
}

func (t *tour) welcome(data, public string, made bool) {
	fmt.Fprintf(t.out, "headgate is serving on %s; all it keeps is in %s\n", t.base, data)
	verb := "found"
	if made {
		verb = "made"
	}
	fmt.Fprintf(t.out, "%s the key of org %s: %s signs tokens, the server trusts %s\n", verb, quickstartOrg, t.key, public)
}

func (t *tour) farewell() {
	fmt.Fprintf(t.out, `
That was one session. The server goes on serving:
  API     %s/api  (described in %s/openapi.json)
  git     %s/%s.git  and  %s/%s+ephemeral.git
  health  %s/readyz  and  %s/metrics
Stop it with Ctrl-C; what was acknowledged is there at the next start.
`, t.base, t.base, t.base, t.repo, t.base, t.repo, t.base, t.base)
}

// walk goes through all steps and stops at the first that does not do what it should.
func (t *tour) walk(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		t.createRepo, t.fillRepo, t.createSession, t.commitTwice, t.loseRace,
		t.confineSandbox, t.cloneAndPush, t.readByPointer, t.diffByPointer, t.saveMemory, t.readLog,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("quickstart step %d: %w", t.step, err)
		}
	}
	return nil
}

// title begins a step.
func (t *tour) title(format string, args ...any) {
	t.step++
	fmt.Fprintf(t.out, "\n%d. %s\n", t.step, fmt.Sprintf(format, args...))
}

// typed shows what a user would type.
func (t *tour) typed(lines ...string) {
	for _, line := range lines {
		fmt.Fprintf(t.out, "   $ %s\n", line)
	}
}

// shown shows a result, each line indented.
func (t *tour) shown(text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		fmt.Fprintf(t.out, "     %s\n", strings.TrimRight(line, " \t\r"))
	}
}

// call sends one API request as the backend. Another status than want is an error.
func (t *tour) call(ctx context.Context, method, path string, body []byte, want int) ([]byte, error) {
	return t.callAs(ctx, t.backend, method, path, body, want)
}

func (t *tour) callAs(ctx context.Context, token, method, path string, body []byte, want int) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, t.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != want {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, res.Status, text)
	}
	return text, nil
}

// below is a path of the repo's API.
func (t *tour) below(tail string) string { return "/api/repos/" + url.PathEscape(t.repo) + tail }

func (t *tour) createRepo(ctx context.Context) error {
	name, err := t.pickName(ctx)
	if err != nil {
		return err
	}
	t.repo = name
	t.title("The backend signs itself a token and makes the repo %s", t.repo)
	if t.backend, err = t.sign(tokenCmd{Scope: []string{"repo:write", "git:write"}, TTL: time.Hour}); err != nil {
		return err
	}
	t.typed(
		fmt.Sprintf("TOKEN=$(headgate token --key %s --org %s --repo %s --scope repo:write --scope git:write)", t.key, quickstartOrg, t.repo),
		fmt.Sprintf(`curl -X POST -H "Authorization: Bearer $TOKEN" %s/api/repos -d '{"default_branch": "main"}'`, t.base))
	text, err := t.call(ctx, http.MethodPost, "/api/repos", []byte(`{"default_branch": "main"}`), http.StatusCreated)
	t.shown(string(text))
	return err
}

// pickName names the repo after the current folder; later walks get a number.
func (t *tour) pickName(ctx context.Context) (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return -1
	}, strings.ToLower(filepath.Base(folder)))
	name = strings.TrimLeft(name, "-")
	if name == "" || name == "org" {
		name = "sample"
	}
	for n := 1; ; n++ {
		t.repo = name
		if n > 1 {
			t.repo = fmt.Sprintf("%s-%d", name, n)
		}
		if t.backend, err = t.sign(tokenCmd{Scope: []string{"git:read"}, TTL: time.Minute}); err != nil {
			return "", err
		}
		if _, err := t.call(ctx, http.MethodGet, t.below(""), nil, http.StatusOK); err != nil {
			return t.repo, nil // not there, or the next call will say what is wrong
		}
	}
}

func (t *tour) fillRepo(ctx context.Context) error {
	if err := t.pushFolder(ctx); err == nil {
		return nil
	} else if ctx.Err() != nil {
		return ctx.Err()
	}
	t.title("This folder is no git repository with whole history, so a small sample fills the repo")
	_, err := t.commit(ctx, commitCall{
		branch: "main", message: "start", path: "README.md", text: "# Sample\n\nMade by headgate quickstart.\n",
	}, http.StatusCreated)
	return err
}

// pushFolder pushes the history of the folder the user is in. Nothing is shown if there is none.
func (t *tour) pushFolder(ctx context.Context) error {
	shallow, err := runGit(ctx, ".", "rev-parse", "--is-shallow-repository")
	if err != nil || strings.TrimSpace(shallow) != "false" {
		return fmt.Errorf("no whole history here: %w", err)
	}
	if _, err := runGit(ctx, ".", "rev-parse", "--verify", "-q", "HEAD^{commit}"); err != nil {
		return err
	}
	t.title("The history of the current folder is pushed with plain git")
	t.typed(fmt.Sprintf("git push %s/%s.git HEAD:refs/heads/main", withUser(t.base, "t:$TOKEN"), t.repo))
	text, err := runGit(ctx, ".", "push", "-q", withUser(t.base, "t:"+t.backend)+"/"+t.repo+".git", "HEAD:refs/heads/main")
	if err != nil {
		t.shown("that did not work: " + t.clean(text))
		return err
	}
	head, err := runGit(ctx, ".", "log", "-1", "--oneline")
	t.shown("main is at " + head)
	return err
}

func (t *tour) createSession(ctx context.Context) error {
	t.title("A session begins: a record, a lease that says who works on it, and an ephemeral branch, which no normal clone ever sees")
	body := `{"base_ref": "main", "holder": "quickstart"}`
	t.typed(fmt.Sprintf(`curl -X POST -H "Authorization: Bearer $TOKEN" %s%s -d '%s'`, t.base, t.below("/sessions"), body))
	text, err := t.call(ctx, http.MethodPost, t.below("/sessions"), []byte(body), http.StatusCreated)
	if err != nil {
		return err
	}
	t.shown(string(text))
	var made struct {
		ID     string `json:"id"`
		Branch string `json:"branch"`
		Head   string `json:"head_sha"`
	}
	if err := json.Unmarshal(text, &made); err != nil {
		return err
	}
	t.id, t.branch, t.heads = made.ID, made.Branch, []string{made.Head}
	return nil
}

// commitCall is one file committed over the API.
type commitCall struct {
	branch, expected, message, path, text string
	ephemeral                             bool
}

// commit shows and sends a commit and gives the branch's head afterwards.
func (t *tour) commit(ctx context.Context, c commitCall, want int) (string, error) {
	meta := map[string]any{
		"target_branch": c.branch, "target_is_ephemeral": c.ephemeral, "commit_message": c.message,
		"author": map[string]string{"name": "Backend", "email": "backend@example.org"},
		"files":  []map[string]string{{"path": c.path, "content_id": "1"}},
	}
	if c.expected != "" {
		meta["expected_head_sha"] = c.expected
	}
	head, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return "", err
	}
	chunk := fmt.Sprintf(`{"blob_chunk": {"content_id": "1", "data": %q, "eof": true}}`, base64.StdEncoding.EncodeToString([]byte(c.text)))
	body := string(head) + "\n" + chunk + "\n"
	t.typed(fmt.Sprintf(`curl -X POST -H "Authorization: Bearer $TOKEN" %s%s --data-binary @- <<'EOF'`, t.base, t.below("/commit-pack")))
	t.shown(body + "EOF")
	text, err := t.call(ctx, http.MethodPost, t.below("/commit-pack"), []byte(body), want)
	if err != nil {
		return "", err
	}
	t.shown(string(text))
	var answer struct {
		Result struct {
			NewSHA string `json:"new_sha"`
		} `json:"result"`
	}
	err = json.Unmarshal(text, &answer)
	return answer.Result.NewSHA, err
}

func (t *tour) commitTwice(ctx context.Context) error {
	for n, title := range []string{
		"A state of the session is one commit, made only if the head is still the expected one",
		"The next state expects the head that the first one left",
	} {
		t.title("%s", title)
		head, err := t.commit(ctx, commitCall{
			branch: t.branch, ephemeral: true, expected: t.heads[n], message: fmt.Sprintf("state %d", n+1),
			path: ".agent/task.json", text: fmt.Sprintf("{\"step\": %d}\n", n+1),
		}, http.StatusCreated)
		if err != nil {
			return err
		}
		t.heads = append(t.heads, head)
	}
	return nil
}

func (t *tour) loseRace(ctx context.Context) error {
	t.title("A second writer that still believes in the old head loses, and is told the present one")
	_, err := t.commit(ctx, commitCall{
		branch: t.branch, ephemeral: true, expected: t.heads[1], message: "too late",
		path: ".agent/task.json", text: "{\"step\": 99}\n",
	}, http.StatusConflict)
	return err
}
