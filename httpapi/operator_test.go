package httpapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/tokens"
)

const operatorKey = "hgop_0123456789abcdef"

func operatorGate(t testing.TB, change ...func(*Config)) *gate {
	t.Helper()
	return newGate(t, append(change, func(c *Config) { c.OperatorKey = operatorKey })...)
}

func (g *gate) operator(key string) *client.Client {
	g.t.Helper()
	c, err := client.New(g.http.URL+"/", key)
	if err != nil {
		g.t.Fatalf("client.New: %v", err)
	}
	return c
}

var operatorPaths = []string{"gc", "fsck", "export", "backup", "", "none", "gc/", "%67c", "gc?x=1", "../operator/gc"}

// Without the key every path says the same, whether it is there or not, whatever else
// is shown for it; and no token opens anything.
func TestOperatorRoutesAreClosed(t *testing.T) {
	g := operatorGate(t)
	r := g.newRepo("site")
	all := tokenOf(t, tokens.Claims{Repo: "site", Scopes: []tokens.Scope{tokens.GitWrite, tokens.RepoWrite, tokens.OrgRead}})
	org := tokenOf(t, tokens.Claims{Repo: "org", Scopes: []tokens.Scope{tokens.OrgRead, tokens.RepoWrite}})
	var first *answer
	for _, path := range operatorPaths {
		for _, method := range []string{"POST", "GET", "PUT", "DELETE", "OPTIONS"} {
			for name, auth := range map[string][]string{
				"nothing": nil, "a token": {"Bearer " + all}, "a token for the org": {"Bearer " + org}, "an expired token": {"Bearer x.y.z"},
				"half the key": {"Bearer " + operatorKey[:10]}, "more than the key": {"Bearer " + operatorKey + "0"}, "no key": {"Bearer "},
				"the key twice": {"Bearer " + operatorKey, "Bearer " + operatorKey}, "two keys in one": {"Bearer " + operatorKey + ", Bearer " + operatorKey},
				"basic": {"Basic aGc6" + operatorKey}, "the key without a scheme": {operatorKey}, "the key of another case": {"Bearer " + strings.ToUpper(operatorKey)},
			} {
				a := g.do(ask{method: method, path: "/api/operator/" + path, header: http.Header{"Authorization": auth}, body: `{"org": "acme"}`})
				for _, h := range []string{"X-Request-Id", "Date"} {
					a.header.Del(h)
				}
				if first == nil {
					first = &a
				}
				if a.status != 401 || !bytes.Equal(a.body, first.body) || fmt.Sprint(a.header) != fmt.Sprint(first.header) {
					t.Errorf("%s /api/operator/%s with %s = %d %s %v, want what the first got: %d %s %v",
						method, path, name, a.status, a.body, a.header, first.status, first.body, first.header)
				}
			}
		}
	}
	for _, path := range []string{"/api/whoami", "/api/limits", "/api/repos", r.path(""), r.path("/branches"), "/acme/site.git/info/refs?service=git-upload-pack"} {
		if a := g.do(ask{path: path, token: operatorKey}); a.status != 401 {
			t.Errorf("GET %s with the operator's key = %d %s, want 401", path, a.status, a.body)
		}
	}
	for path, want := range map[string]int{"none": 404, "": 404} {
		if a := g.do(ask{method: "POST", path: "/api/operator/" + path, token: operatorKey}); a.status != want {
			t.Errorf("POST /api/operator/%s with the key = %d, want %d", path, a.status, want)
		}
	}
	if a := g.do(ask{path: "/api/operator/gc", token: operatorKey}); a.status != 405 {
		t.Errorf("GET /api/operator/gc with the key = %d, want 405", a.status)
	}
	if strings.Contains(g.logs.String(), operatorKey) {
		t.Errorf("the log holds the key:\n%s", g.logs)
	}
}

// A server without a key has no operator.
func TestNoOperatorKey(t *testing.T) {
	g := newGate(t)
	for _, auth := range []string{"", "Bearer", "Bearer ", "Bearer  "} {
		a := g.do(ask{method: "POST", path: "/api/operator/gc", header: http.Header{"Authorization": {auth}}})
		if a.status != 401 {
			t.Errorf("gc with %q of a server without a key = %d, want 401", auth, a.status)
		}
	}
}

// The operator works on a server that serves: every command, and its refusals.
func TestOperatorWorks(t *testing.T) {
	g := operatorGate(t)
	r := g.newRepo("site")
	head := r.commit(nil, file{path: "a", data: strings.Repeat("text\n", 1000)})
	g.newRepo("empty")
	c := g.operator(operatorKey)
	var done []string
	if err := c.GC(t.Context(), "acme", "", true, func(d client.Done) { done = append(done, d.Org+"/"+d.Repo) }); err != nil {
		t.Fatalf("GC = %v", err)
	}
	slices.Sort(done)
	if !slices.Equal(done, []string{"acme/empty", "acme/site"}) {
		t.Errorf("GC told of %v", done)
	}
	checked := 0
	if err := c.Fsck(t.Context(), "", "site", func(org, repo string, found []client.Finding) {
		if checked++; org != "acme" || repo != "site" || len(found) > 0 {
			t.Errorf("Fsck told %s/%s: %v", org, repo, found)
		}
	}); err != nil || checked != 1 {
		t.Errorf("Fsck = %v, told %d times, want once", err, checked)
	}
	dir := t.TempDir()
	mirror, err := gitstore.NewExportDir(filepath.Join(dir, "site.git"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Mirror(t.Context(), "acme", "site", mirror.File); err != nil {
		t.Fatalf("Mirror = %v", err)
	}
	if err := mirror.Finish(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "-C", filepath.Join(dir, "site.git"), "rev-parse", "main").Output(); err != nil || strings.TrimSpace(string(out)) != head {
		t.Errorf("main of the mirror = %s, %v, want %s", out, err, head)
	}
	var bundle bytes.Buffer
	if err := c.Bundle(t.Context(), "acme", "site", &bundle); err != nil || !strings.Contains(bundle.String(), head+" refs/heads/main\n") {
		t.Errorf("Bundle = %.100q, %v, want main in it", bundle.String(), err)
	}
	for what, err := range map[string]error{
		"bundle of an empty repo":     c.Bundle(t.Context(), "acme", "empty", io.Discard),
		"mirror of no repo":           c.Mirror(t.Context(), "acme", "none", mirror.File),
		"gc with another key":         g.operator(operatorKey+"x").GC(t.Context(), "", "", false, nil),
		"mirror that nobody takes":    c.Mirror(t.Context(), "acme", "site", func(string, io.Reader) error { return io.ErrShortWrite }),
		"bundle to a disk that fails": c.Bundle(t.Context(), "acme", "site", failingWriter{}),
	} {
		if err == nil {
			t.Errorf("%s = nil, want an error", what)
		}
	}
	var said *client.ServerError
	if err := c.Mirror(t.Context(), "acme", "none", mirror.File); !errors.As(err, &said) || said.Status != 404 || said.Code != codeNoRepo {
		t.Errorf("mirror of no repo = %v, want the server's 404", err)
	}
	if err := c.Bundle(t.Context(), "acme", "empty", io.Discard); !errors.As(err, &said) || said.Status != 0 || said.Code != codeNoRef {
		t.Errorf("bundle of an empty repo = %v, want what the server says in the stream", err)
	}
	for _, body := range []string{`{"form": "tar", "org": "acme", "repo": "site"}`, `{`, `{"org": 1}`} {
		if a := g.do(ask{method: "POST", path: "/api/operator/export", token: operatorKey, body: body}); a.status != 400 {
			t.Errorf("export with %s = %d %s, want 400", body, a.status, a.body)
		}
	}
	if a := g.do(ask{method: "POST", path: "/api/operator/backup", token: operatorKey, body: "pack-../../x\n"}); a.status != 400 {
		t.Errorf("backup with a bad name = %d %s, want 400", a.status, a.body)
	}
	for _, body := range []string{strings.Repeat("x", 70<<10), strings.Repeat(" ", 70<<10) + "\n", "\n\n" + strings.Repeat("pack-", 20<<10) + "\n"} {
		if a := g.do(ask{method: "POST", path: "/api/operator/backup", token: operatorKey, body: body}); a.status != 400 {
			t.Errorf("backup with a line of %d bytes = %d %s, want 400", len(body), a.status, a.body)
		}
	}
	if a := g.do(ask{method: "POST", path: "/api/operator/backup?skip_damaged=perhaps", token: operatorKey}); a.status != 400 {
		t.Errorf("backup with skip_damaged=perhaps = %d %s, want 400", a.status, a.body)
	}
	for _, which := range [][2]string{{"", "none"}, {"none", ""}, {"none", "site"}} {
		for what, err := range map[string]error{
			"gc":   c.GC(t.Context(), which[0], which[1], false, func(client.Done) { t.Error("gc of no repo tells of one") }),
			"fsck": c.Fsck(t.Context(), which[0], which[1], func(string, string, []client.Finding) { t.Error("fsck of no repo tells of one") }),
		} {
			if !errors.As(err, &said) || said.Code != codeNoRepo || said.Text != noRepoText {
				t.Errorf("%s of %v = %v, want %q", what, which, err, noRepoText)
			}
		}
	}
	if strings.Contains(g.logs.String(), operatorKey) {
		t.Errorf("the log holds the key:\n%s", g.logs)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk is gone") }

// A backup over the wire is the one that the store itself gives, and the second one
// brings only what is new.
func TestOperatorBackup(t *testing.T) {
	g := operatorGate(t)
	r := g.newRepo("site")
	head := r.commit(nil, file{path: "a", data: "1\n"})
	c := g.operator(operatorKey)
	dir := filepath.Join(t.TempDir(), "backup")
	take := func() gitstore.BackupReport {
		t.Helper()
		to, err := gitstore.OpenBackupDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Backup(t.Context(), to.Have, to, false); err != nil {
			to.Abort()
			t.Fatalf("Backup = %v", err)
		}
		report, err := to.Finish()
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	settle := func() {
		t.Helper()
		repo, err := g.server.Store.Repo(t.Context(), "acme", "site")
		if err == nil {
			err = repo.Settle(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	settle()
	if got := take(); got.Packs != 1 || got.Copied != 1 {
		t.Errorf("first backup = %+v, want one pack, copied", got)
	}
	r.commit(map[string]any{"expected_head_sha": head}, file{path: "a", data: "2\n"})
	settle()
	if got := take(); got.Packs != 2 || got.Copied != 1 {
		t.Errorf("second backup = %+v, want two packs, one of them copied", got)
	}
}

// stuck is a sink whose disk hangs, until it is let go.
type stuck struct {
	*gitstore.BackupDir
	hangs  chan struct{}
	letGo  chan struct{}
	hanged bool
}

func (s *stuck) Begin(f gitstore.BackupFile) error {
	if !s.hanged {
		s.hanged = true
		close(s.hangs)
		<-s.letGo
		return errors.New("the client gives up")
	}
	return s.BackupDir.Begin(f)
}

// random is text that does not compress.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // crypto/rand never fails
	return string(b)
}

var operatorFailed = regexp.MustCompile(`route=operator.backup .*error=`)

// A client that goes away in the middle ends the work on the server.
func TestOperatorGoesAway(t *testing.T) {
	g := operatorGate(t)
	r := g.newRepo("site")
	var large []file // more than the connection takes by itself
	for i := range 2 {
		large = append(large, file{path: fmt.Sprint(i), data: random(3 << 20)})
	}
	r.commit(nil, large...)
	to, err := gitstore.OpenBackupDir(filepath.Join(t.TempDir(), "backup"))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Abort()
	s := &stuck{BackupDir: to, hangs: make(chan struct{}), letGo: make(chan struct{})}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- g.operator(operatorKey).Backup(ctx, to.Have, s, false) }()
	<-s.hangs
	cancel()
	close(s.letGo)
	if err := <-ended; err == nil {
		t.Error("Backup of a client that gives up = nil")
	}
	for until := time.Now().Add(20 * time.Second); !operatorFailed.MatchString(g.logs.String()); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the request does not end:\n%s", g.logs)
		}
	}
}

// A stream tells that it lives while its work says nothing.
func TestOperatorStreamBeats(t *testing.T) {
	st := &operatorStream{silent: true}
	var out bytes.Buffer
	st.x = &exchange{ResponseWriter: bufferWriter{&out}, conn: http.NewResponseController(bufferWriter{&out})}
	for range 3 {
		st.tick()
	}
	if got := strings.Count(out.String(), `{"type":"progress"}`+"\n"); got != 2 {
		t.Errorf("3 ticks of a silent stream = %q, want 2 events: sending one is no silence", out.String())
	}
}

type bufferWriter struct{ w *bytes.Buffer }

func (b bufferWriter) Header() http.Header         { return http.Header{} }
func (b bufferWriter) Write(p []byte) (int, error) { return b.w.Write(p) }
func (b bufferWriter) WriteHeader(int)             {}
func (b bufferWriter) Flush()                      {}

// What the work ends with is told at the end of the stream, when the status is long out.
func TestOperatorStreamTellsTheError(t *testing.T) {
	g := operatorGate(t)
	r := g.newRepo("site")
	r.commit(nil, file{path: "a", data: "1\n"})
	lost := failingSink{errors.New("no space on the client's disk")}
	if err := g.operator(operatorKey).Backup(t.Context(), func(func(string)) {}, lost, false); !errors.Is(err, lost.err) {
		t.Errorf("Backup into a sink that fails = %v, want its error", err)
	}
}

type failingSink struct{ err error }

func (f failingSink) HasPack(string) bool             { return false }
func (f failingSink) Begin(gitstore.BackupFile) error { return nil }
func (f failingSink) Write([]byte) (int, error)       { return 0, f.err }
func (f failingSink) End() error                      { return nil }
func (f failingSink) Keep(string, string) error       { return nil }
func (f failingSink) Drop(ledger.Space) error         { return nil }

func (f failingSink) Damaged(d gitstore.DamagedRepo) error { return d.Err }
