package gitstore

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// gitServer serves one repo to real git clients: http://host/<caller>/<main|ephemeral>.git
type gitServer struct {
	t    testing.TB
	r    *Repo
	http *httptest.Server

	mu      sync.Mutex // guards callers and errs
	callers []Caller
	errs    []error // what the four methods gave

	ended chan struct{} // gets a value for each exchange that has ended
}

func newGitServer(t testing.TB, r *Repo) *gitServer {
	t.Helper()
	s := &gitServer{t: t, r: r, ended: make(chan struct{}, 10_000)}
	s.http = httptest.NewServer(s)
	t.Cleanup(s.http.Close)
	return s
}

// url is a remote for a caller.
func (s *gitServer) url(c Caller, remote Remote) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers = append(s.callers, c)
	name := "main"
	if remote == EphemeralRemote {
		name = "ephemeral"
	}
	return fmt.Sprintf("%s/%d/%s.git", s.http.URL, len(s.callers)-1, name)
}

func (s *gitServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	defer func() { s.ended <- struct{}{} }()
	parts := strings.SplitN(strings.TrimPrefix(req.URL.Path, "/"), "/", 3)
	var n int
	if _, err := fmt.Sscan(parts[0], &n); err != nil || len(parts) < 3 {
		http.NotFound(w, req)
		return
	}
	s.mu.Lock()
	c := s.callers[n]
	s.mu.Unlock()
	q := GitRequest{Protocol: req.Header.Get("Git-Protocol"), Advice: "this token can push what the test lets it", In: req.Body, Out: w}
	if parts[1] == "ephemeral.git" {
		q.Remote = EphemeralRemote
	}
	if req.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		q.In = z
	}
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
		s.t.Errorf("EnableFullDuplex: %v", err)
	}
	if err := s.serve(w, req, parts[2], c, q); err != nil {
		s.mu.Lock()
		s.errs = append(s.errs, err)
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	io.Copy(io.Discard, req.Body) // what was refused is read to its end, so that git reads the refusal
}

func (s *gitServer) serve(w http.ResponseWriter, req *http.Request, path string, c Caller, q GitRequest) error {
	service := req.URL.Query().Get("service")
	kind := "result"
	if path == "info/refs" {
		kind = "advertisement"
	} else {
		service = path
	}
	w.Header().Set("Content-Type", "application/x-"+service+"-"+kind)
	switch {
	case path == "info/refs" && service == "git-upload-pack":
		return s.r.AdvertiseUploadPack(req.Context(), c, q)
	case path == "info/refs":
		return s.r.AdvertiseReceivePack(req.Context(), c, q)
	case path == "git-upload-pack":
		return s.r.UploadPack(req.Context(), c, q)
	}
	return s.r.ReceivePack(req.Context(), c, q)
}

// noErrors fails the test if a method gave an error.
func (s *gitServer) noErrors() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.errs {
		s.t.Errorf("the server ended an exchange with: %v", err)
	}
}

// workTree is a folder in which real git runs as a user would have it.
type workTree struct {
	t   testing.TB
	dir string
	cfg []string // -c settings of every command
	now int      // seconds since 1970 at which the next commit is made; 0: the true time
}

func newWorkTree(t testing.TB, cfg ...string) *workTree {
	t.Helper()
	w := &workTree{t: t, dir: filepath.Join(t.TempDir(), "w"), cfg: cfg}
	if err := os.Mkdir(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return w
}

// cloneOf clones into a new work tree.
func cloneOf(t testing.TB, url string, args ...string) *workTree {
	t.Helper()
	w := newWorkTree(t)
	w.git(append(append([]string{"clone", "-q"}, args...), url, ".")...)
	return w
}

func (w *workTree) command(args ...string) *exec.Cmd {
	var all []string
	for _, c := range w.cfg {
		all = append(all, "-c", c)
	}
	cmd := exec.Command("git", append(all, args...)...)
	cmd.Dir = w.dir
	cmd.Env = []string{
		"HOME=" + filepath.Dir(w.dir), "PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=C", "GIT_COMMITTER_EMAIL=c@example.org",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=gc.auto", "GIT_CONFIG_VALUE_0=0", "GIT_CONFIG_KEY_1=init.defaultBranch", "GIT_CONFIG_VALUE_1=main",
	}
	if w.now > 0 {
		when := fmt.Sprintf("%d +0000", w.now)
		cmd.Env = append(cmd.Env, "GIT_AUTHOR_DATE="+when, "GIT_COMMITTER_DATE="+when)
	}
	return cmd
}

// try gives what git wrote to both outputs.
func (w *workTree) try(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := w.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (w *workTree) git(args ...string) string {
	w.t.Helper()
	cmd := w.command(args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("git %v: %v\n%s%s", args, err, out, errOut.String())
	}
	return strings.TrimSuffix(string(out), "\n")
}

// refused runs git, which must fail, and gives what it said.
func (w *workTree) refused(args ...string) string {
	w.t.Helper()
	out, err := w.try(args...)
	if err == nil {
		w.t.Fatalf("git %v went through, it should have been refused:\n%s", args, out)
	}
	return out
}

func (w *workTree) write(path, content string) {
	w.t.Helper()
	full := filepath.Join(w.dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// commit writes a file and commits it; it gives the commit.
func (w *workTree) commit(path, content string) string {
	w.t.Helper()
	w.write(path, content)
	w.git("add", "-A")
	w.git("commit", "-q", "--allow-empty", "-m", "change "+path)
	if w.now > 0 {
		w.now += 3600
	}
	return w.git("rev-parse", "HEAD")
}

func (w *workTree) fsck() {
	w.t.Helper()
	w.git("fsck", "--strict", "--no-dangling")
}
