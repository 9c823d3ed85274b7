package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// watchedOutput collects what a command prints and closes seen when it holds want.
type watchedOutput struct {
	mu   sync.Mutex // guards text and done
	text bytes.Buffer
	want string
	done bool
	seen chan struct{}
}

func (w *watchedOutput) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if !w.done && strings.Contains(w.text.String(), w.want) {
		w.done = true
		close(w.seen)
	}
	return len(p), nil
}

func (w *watchedOutput) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// The walk is what a newcomer sees first: it has to end well, twice on the same
// data, and to show no token.
func TestQuickstartWalksThroughASession(t *testing.T) {
	data := t.TempDir()
	for _, folder := range []string{t.TempDir(), "."} { // no git repository, and this one
		t.Chdir(folder)
		out := runQuickstart(t, data)
		for _, want := range []string{
			`"repo_name"`, `"head_sha"`, `"status":"precondition_failed"`, `"epoch":1`, "stale epoch 1, session is at 2", "session.created", "lease.changed", "shows nothing", "denied by policy: rule * has no-read", "this token can push",
			"from the sandbox", "diff --git", "byte for byte", "snapshot.ready", "goes on serving",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("quickstart in %s: output lacks %q:\n%s", folder, want, out)
			}
		}
		if hit := regexp.MustCompile(`eyJ[\w-]{20,}`).FindString(out); hit != "" {
			t.Errorf("quickstart printed a token: %s", hit)
		}
	}
}

func runQuickstart(t *testing.T, data string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out := &watchedOutput{want: "Stop it with Ctrl-C", seen: make(chan struct{})}
	var complaints bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"quickstart", "--listen", "127.0.0.1:0", "--data", data}, out, &complaints)
	}()
	select {
	case <-out.seen:
		cancel()
		if status := <-ended; status != 0 {
			t.Errorf("quickstart ended with %d after its walk: %s", status, complaints.String())
		}
	case status := <-ended:
		t.Fatalf("quickstart ended with %d: %s\n%s", status, complaints.String(), out.String())
	}
	return out.String()
}
