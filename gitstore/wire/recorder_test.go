package wire

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// gitEnv is the environment of every git process in these tests.
func gitEnv(home string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_TERMINAL_PROMPT=0", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=c",
		"GIT_COMMITTER_EMAIL=c@example.com",
	}
}

// gitTry runs git in dir with extra environment and gives its output.
func gitTry(t *testing.T, dir string, env []string, stdin []byte, args ...string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(gitEnv(t.TempDir()), env...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return out, err
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := gitTry(t, dir, nil, nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// commit makes a commit whose date is minutes after a fixed day, so that shallow-since has something to tell apart.
func commit(t *testing.T, dir, file string, minute int) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), fmt.Appendf(nil, "%s %d\n", file, minute), 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "add", file)
	date := fmt.Sprintf("%d +0000", 1_600_000_000+minute*60)
	if _, err := gitTry(t, dir, []string{"GIT_AUTHOR_DATE=" + date, "GIT_COMMITTER_DATE=" + date}, nil, "commit", "-q", "-m", file); err != nil {
		t.Fatal(err)
	}
	return git(t, dir, "rev-parse", "HEAD")
}

// sampleRepo is a bare repository with six commits on main, a branch, a lightweight and an annotated tag.
func sampleRepo(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	work := filepath.Join(root, "work")
	git(t, root, "init", "-q", "-b", "main", "work")
	for i := range 6 {
		commit(t, work, fmt.Sprintf("f%d", i), i)
	}
	git(t, work, "branch", "side", "HEAD~2")
	git(t, work, "tag", "light", "HEAD~1")
	git(t, work, "tag", "-a", "-m", "t", "v1", "HEAD~3")
	git(t, root, "clone", "-q", "--bare", "work", "sample.git")
	bare := filepath.Join(root, "sample.git")
	for _, kv := range []string{
		"http.receivepack=true", "uploadpack.allowFilter=true", "uploadpack.allowAnySHA1InWant=true",
		"receive.advertisePushOptions=true", "receive.denyDeleteCurrent=refuse",
	} {
		key, value, _ := strings.Cut(kv, "=")
		git(t, bare, "config", key, value)
	}
	return bare
}

// An exchange is one POST of a git client and git's answer.
type exchange struct {
	service  Service
	protocol string // the Git-Protocol header
	gzipped  bool
	chunked  bool
	body     []byte // inflated
	answer   []byte
}

// A recorder serves a folder by git http-backend and keeps what clients send.
type recorder struct {
	url string

	mu        sync.Mutex
	exchanges []exchange
}

func newRecorder(t *testing.T, repo string) *recorder {
	t.Helper()
	path, err := exec.LookPath("git")
	if err != nil {
		t.Fatalf("find git: %v", err)
	}
	backend := &cgi.Handler{
		Path: path, Args: []string{"http-backend"},
		Env: append(gitEnv(t.TempDir()), "GIT_PROJECT_ROOT="+filepath.Dir(repo), "GIT_HTTP_EXPORT_ALL=1"),
	}
	r := &recorder{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.serve(t, backend, w, req) }))
	t.Cleanup(server.Close)
	r.url = server.URL + "/" + filepath.Base(repo)
	return r
}

func (r *recorder) serve(t *testing.T, backend http.Handler, w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost {
		backend.ServeHTTP(w, req)
		return
	}
	x := exchange{
		service:  Service(req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]),
		protocol: req.Header.Get("Git-Protocol"),
		gzipped:  req.Header.Get("Content-Encoding") == "gzip",
		chunked:  req.ContentLength < 0,
	}
	x.body = inflate(t, req.Body, x.gzipped)
	req.Body, req.ContentLength, req.TransferEncoding = io.NopCloser(bytes.NewReader(x.body)), int64(len(x.body)), nil
	req.Header.Del("Content-Encoding")
	answer := httptest.NewRecorder()
	backend.ServeHTTP(answer, req)
	x.answer = answer.Body.Bytes()
	r.mu.Lock()
	r.exchanges = append(r.exchanges, x)
	r.mu.Unlock()
	for key, values := range answer.Header() {
		w.Header()[key] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(x.answer)
}

func inflate(t *testing.T, body io.Reader, gzipped bool) []byte {
	if gzipped {
		z, err := gzip.NewReader(body)
		if err != nil {
			t.Errorf("open gzip body: %v", err)
			return nil
		}
		body = z
	}
	b, err := io.ReadAll(body)
	if err != nil {
		t.Errorf("read body: %v", err)
	}
	return b
}

// take gives what was recorded since the last call and fails if that is nothing.
func (r *recorder) take(t *testing.T, service Service) []exchange {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var got []exchange
	for _, x := range r.exchanges {
		if x.service == service {
			got = append(got, x)
		}
	}
	r.exchanges = nil
	if len(got) == 0 {
		t.Fatalf("no request to %s was recorded", service)
	}
	return got
}
