package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/ledger"
)

// serving is a server that answers everything with one text, whatever it is.
func serving(t testing.TB, status int, answer string) *Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(srv.Close)
	c, err := New(srv.URL, "key")
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return c
}

func data(bytes string) string {
	return fmt.Sprintf(`{"type":"data","bytes":%d}`, len(bytes)) + "\n" + bytes
}

func end(bytes string) string {
	return fmt.Sprintf(`{"type":"end","sha256":"%x"}`, sha256.Sum256([]byte(bytes))) + "\n"
}

const result = `{"type":"result"}` + "\n"

func TestURL(t *testing.T) {
	for _, url := range []string{"", "x", "localhost:80", "ftp://x", "http://", "https://u:secret@x", "http://x?y=z", "http://x\n", "file:///etc"} {
		if _, err := New(url, "k"); !errors.Is(err, ErrBadURL) || strings.Contains(err.Error(), "secret") {
			t.Errorf("New(%q) = %v, want ErrBadURL without the address", url, err)
		}
	}
}

// The key goes to the server that was named and to no other.
func TestRedirectIsNotFollowed(t *testing.T) {
	followed := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	defer other.Close()
	srv := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer srv.Close()
	c, err := New(srv.URL, "key")
	if err != nil {
		t.Fatal(err)
	}
	var said *ServerError
	if err := c.GC(t.Context(), "", "", false, nil); !errors.As(err, &said) || said.Status != 307 || followed {
		t.Errorf("GC of a server that redirects = %v, followed %v; want its status", err, followed)
	}
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		status int
		answer string
		want   string
	}{
		{401, `{"error": "authorization required", "code": "unauthorized"}`, "operator key"},
		{404, `{"error": "repository not found", "code": "repository_not_found"}`, "repository not found"},
		{502, "<html>", "Bad Gateway"},
		{200, `{"type":"error","code":"no_space","error":"no space left"}` + "\n", "no space left"},
	} {
		err := serving(t, tc.status, tc.answer).GC(t.Context(), "", "", false, nil)
		var said *ServerError
		known := errors.As(err, &said) || tc.status == http.StatusUnauthorized && errors.Is(err, ErrUnknownKey)
		if !known || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("GC answered %d %s = %v, want %q", tc.status, tc.answer, err, tc.want)
		}
	}
}

// An answer is taken for whole only when it is: cut at any byte it is an error.
func TestCutAnswer(t *testing.T) {
	body := strings.Repeat("some bytes ", 20)
	whole := `{"type":"progress"}` + "\n" + `{"type":"file","file":{"name":"bundle"}}` + "\n" + data(body[:100]) + data(body[100:]) + end(body) + result
	var got bytes.Buffer
	if err := serving(t, 200, whole).Bundle(t.Context(), "o", "r", &got); err != nil || got.String() != body {
		t.Fatalf("Bundle = %q, %v, want what was sent", got.String(), err)
	}
	for n := range len(whole) {
		e := newEvents(strings.NewReader(whole[:n]))
		if err := e.each(func(s *events, e event) error { return s.file(io.Discard) }); !errors.Is(err, ErrCut) {
			t.Errorf("the first %d of %d bytes = %v, want ErrCut", n, len(whole), err)
		}
	}
}

// What a server should not send is refused, and nothing of it is believed.
func TestHostileAnswers(t *testing.T) {
	fileOf := func(name string) string { return fmt.Sprintf(`{"type":"file","file":{"name":%q}}`, name) + "\n" }
	for name, answer := range map[string]string{
		"no JSON":                "hello\n",
		"another kind of event":  `{"type":"gc","gc":{}}` + "\n" + result,
		"bytes of no file":       data("x") + result,
		"an end of no file":      end("") + result,
		"a file in a file":       fileOf("HEAD") + fileOf("HEAD") + end("") + result,
		"a wrong sum":            fileOf("packed-refs") + data("x") + end("y") + result,
		"a file without a name":  `{"type":"file"}` + "\n" + end("") + result,
		"bytes without a number": fileOf("packed-refs") + `{"type":"data"}` + "\n" + end("") + result,
		"less than no bytes":     fileOf("packed-refs") + `{"type":"data","bytes":-5}` + "\n" + end("") + result,
		"too many bytes":         fileOf("packed-refs") + `{"type":"data","bytes":99999999999}` + "\n" + end("") + result,
		"bytes of another event": fileOf("packed-refs") + `{"type":"end","bytes":5}` + "\nxxxxx" + result,
		"more behind the result": fileOf("packed-refs") + end("") + result + "x",
		"a name outside":         fileOf("../../evil") + data("x") + end("x") + result,
		"a config":               fileOf("config") + data("[core]\nfsmonitor=evil\n") + end("[core]\nfsmonitor=evil\n") + result,
		"a hook":                 fileOf("hooks/post-checkout") + data("x") + end("x") + result,
		"a file twice":           fileOf("packed-refs") + end("") + fileOf("packed-refs") + end("") + result,
		"an absolute name":       fileOf("/etc/passwd") + end("") + result,
	} {
		root := t.TempDir()
		to, err := gitstore.NewExportDir(filepath.Join(root, "x.git"))
		if err != nil {
			t.Fatal(err)
		}
		if err := serving(t, 200, answer).Mirror(t.Context(), "o", "r", to.File); err == nil {
			t.Errorf("mirror with %s = nil, want an error", name)
		}
		if err := to.Abort(); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
			t.Errorf("mirror with %s leaves %v, %v", name, left, err)
		}
	}
}

func TestHostileBackups(t *testing.T) {
	begin := func(fields string) string { return `{"type":"file","file":{` + fields + `}}` + "\n" }
	repo, pack := "repo_"+strings.Repeat("0", 32), "pack-"+strings.Repeat("0", 40)
	space := begin(`"kind":"space","space":"c2VydmVy"`)
	for name, answer := range map[string]string{
		"a repo outside":          begin(fmt.Sprintf(`"kind":"pack","repo":"../../x","pack":%q`, pack)) + end("") + result,
		"a pack outside":          begin(fmt.Sprintf(`"kind":"pack","repo":%q,"pack":"../../x"`, repo)) + end("") + result,
		"an idx alone":            begin(fmt.Sprintf(`"kind":"idx","repo":%q,"pack":%q`, repo, pack)) + end("") + result,
		"a pack without its idx":  begin(fmt.Sprintf(`"kind":"pack","repo":%q,"pack":%q`, repo, pack)) + end("") + result,
		"another kind":            begin(`"kind":"../x"`) + end("") + result,
		"a space without a name":  begin(`"kind":"space"`) + end("") + result,
		"a pack that nobody has":  fmt.Sprintf(`{"type":"keep","repo":%q,"pack":%q}`, repo, pack) + "\n" + result,
		"a file that has no end":  space + data("x") + result,
		"a wrong sum":             space + data("x") + end("y") + result,
		"keeping in a file":       space + fmt.Sprintf(`{"type":"keep","repo":%q,"pack":%q}`, repo, pack) + "\n" + end("") + result,
		"an answer that was cut":  space + data("x") + end("x"),
		"another kind of command": `{"type":"fsck"}` + "\n" + result,
	} {
		dir := filepath.Join(t.TempDir(), "backup")
		to, err := gitstore.OpenBackupDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := serving(t, 200, answer).Backup(t.Context(), to.Have, to, false); err == nil {
			if _, err = to.Finish(); err == nil {
				t.Errorf("a backup with %s is finished, want an error", name)
			}
		} else {
			to.Abort()
		}
		if _, err := os.Stat(filepath.Join(dir, "MANIFEST")); err == nil {
			t.Errorf("a backup with %s has a manifest", name)
		}
	}
}

// A server that has lost everything, and one that sends nothing or a store of another
// name, do not cost the folder its good backup.
func TestBackupIsNotReplacedByNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backup")
	space := func(s ledger.Space, items ...ledger.Item) string {
		var text bytes.Buffer
		if err := ledger.WriteDump(t.Context(), &text, s, dump{items}, nil); err != nil {
			t.Fatal(err)
		}
		name := base64.StdEncoding.EncodeToString([]byte(s))
		return fmt.Sprintf(`{"type":"file","file":{"kind":"space","space":%q}}`, name) + "\n" + data(text.String()) + end(text.String())
	}
	repo := ledger.RepoSpace("repo_" + strings.Repeat("0", 32))
	id := func(id string) string { return space(ledger.ServerSpace, ledger.Item{Key: "store", Value: []byte(id)}) }
	good := space(repo) + id("store-1")
	for _, tc := range []struct {
		name, answer string
		want         bool
	}{
		{"a good one", good + result, true},
		{"the same", good + result, true},
		{"nothing", result, false},
		{"no repo", id("store-1") + result, false},
		{"no id", space(repo) + result, false},
		{"another id", space(repo) + id("store-2") + result, false},
		{"what was dropped", good + fmt.Sprintf(`{"type":"drop","space":%q}`, base64.StdEncoding.EncodeToString([]byte(repo))) + "\n" + result, false},
		{"a damaged repo that nobody asked to skip", id("store-1") + fmt.Sprintf(`{"type":"damaged","id":"repo_%032d","org":"o","repo":"r","error":"x"}`, 0) + "\n" + result, false},
		{"the same again", good + result, true},
	} {
		to, err := gitstore.OpenBackupDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err = serving(t, 200, tc.answer).Backup(t.Context(), to.Have, to, false); err != nil {
			to.Abort()
		} else {
			_, err = to.Finish()
		}
		if (err == nil) != tc.want {
			t.Errorf("a backup of %s = %v, want it taken: %v", tc.name, err, tc.want)
		}
	}
}

// dump is a space with some items and no log.
type dump struct{ items []ledger.Item }

func (d dump) State() ledger.State { return ledger.State{At: time.Unix(1, 0)} }
func (d dump) Close() error        { return nil }

func (d dump) Items(_ context.Context, start string) ([]ledger.Item, string, error) {
	if start != "" {
		return nil, "", nil
	}
	return d.items, "", nil
}

func (d dump) Log(context.Context, uint64) ([]ledger.Entry, error) { return nil, nil }

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain \u00fc \u4e2d": "plain \u00fc \u4e2d", "\x1b[2J": `\x1b[2J`, "a\nb\r\t": `a\nb\r\t`, "\x9b\xff": `\x9b\xff`,
		"\u009b\u202e\u2028": `\u009b\u202e\u2028`, "\uFFFD": "\uFFFD", "\x7f": `\x7f`, "": "",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"type":"file","file":{"name":"HEAD"}}` + "\n" + data("x") + end("x") + result))
	f.Add([]byte(`{"type":"file","file":{"kind":"space","space":"c2VydmVy"}}` + "\n" + data("x") + `{"type":"drop","space":"c2VydmVy"}` + "\n" + result))
	f.Add([]byte(`{"type":"fsck","org":"o","repo":"r","findings":[{"kind":"k","subject":"s","detail":"d"}]}` + "\n" + result))
	f.Add([]byte(`{"type":"gc"}` + "\n"))
	f.Add([]byte("\n\n{}\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, see := range []func(*events, event) error{
			func(s *events, e event) error {
				if e.Type == "file" {
					return s.file(io.Discard)
				}
				return nil
			},
			backupOf(counting{}),
		} {
			err := newEvents(bytes.NewReader(answer)).each(see)
			if err == nil && !bytes.HasSuffix(bytes.TrimSpace(answer), []byte("}")) {
				t.Fatalf("%q is taken for whole", answer)
			}
		}
	})
}

// counting is a sink that takes all.
type counting struct{}

func (counting) HasPack(string) bool             { return false }
func (counting) Begin(gitstore.BackupFile) error { return nil }
func (counting) Write(p []byte) (int, error)     { return len(p), nil }
func (counting) End() error                      { return nil }
func (counting) Keep(string, string) error       { return nil }
func (counting) Drop(ledger.Space) error         { return nil }

func (counting) Damaged(gitstore.DamagedRepo) error { return nil }
