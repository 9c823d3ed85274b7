package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/integration/harness"
)

// A client is some implementation of git, as its users call it. Folders are of
// clones it made itself; its remote is origin. A refused push is an error whose
// text holds what the server said, so far as the implementation tells it.
type client interface {
	// clone clones everything, or the last depth commits.
	clone(url, dir string, depth int) error
	fetch(dir string) error
	// commit writes one file, commits it on the present branch and gives the commit.
	commit(dir, path, text string) (string, error)
	// tag tags HEAD: lightweight without a message.
	tag(dir, name, message string) error
	// push pushes refspecs of full names; without any what the implementation
	// pushes when nothing is named.
	push(dir string, specs ...string) error
	// refs are those that a remote shows.
	refs(url string) (map[string]string, error)
}

// An implementation is one to start clients of, and what it is known not to do.
type implementation struct {
	name  string
	start func(*testing.T, *gate) client

	plain   bool // goes over plain HTTP alone: TLS has been tried with another version
	noDepth bool // knows no shallow clones
	noEmpty bool // cannot clone an empty repository
	byName  bool // takes a certificate for a name only, not for an address
	forgets bool // keeps the URL of its remote without the token
}

var implementations = []implementation{
	{name: "JGit", start: jgit, noDepth: true},
	{name: "git v0", start: stockGit("0"), plain: true},
	{name: "git v1", start: stockGit("1"), plain: true},
	{name: "git v2", start: stockGit("2")},
	{name: "go-git", start: goGit, noEmpty: true},
	{name: "isomorphic-git", start: isomorphicGit},
	{name: "libgit2", start: python("libgit2_client.py"), noDepth: true, byName: true},
	{name: "dulwich", start: python("dulwich_client.py"), forgets: true, noEmpty: true},
}

// A gitClient is the installed git, with one version of the protocol.
type gitClient struct {
	git     *harness.Git
	version string
}

func stockGit(version string) func(*testing.T, *gate) client {
	return func(_ *testing.T, g *gate) client { return &gitClient{g.git, version} }
}

func (c *gitClient) run(dir string, args ...string) (string, error) {
	out := c.git.Run(dir, nil, append([]string{"-c", "protocol.version=" + c.version}, args...)...)
	if out.Err != nil {
		return "", fmt.Errorf("git %s: %w: %s", clip(args), out.Err, out.All())
	}
	return strings.TrimSpace(out.Stdout), nil
}

func (c *gitClient) clone(url, dir string, depth int) error {
	args := []string{"clone", "-q"}
	if depth > 0 {
		args = append(args, "--depth", fmt.Sprint(depth))
	}
	_, err := c.run("", append(args, url, dir)...)
	return err
}

func (c *gitClient) fetch(dir string) error {
	_, err := c.run(dir, "fetch", "-q")
	return err
}

func (c *gitClient) commit(dir, path, text string) (string, error) {
	if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
		return "", err
	}
	if _, err := c.run(dir, "add", path); err != nil {
		return "", err
	}
	if _, err := c.run(dir, "commit", "-q", "-m", "work on "+path); err != nil {
		return "", err
	}
	return c.run(dir, "rev-parse", "HEAD")
}

func (c *gitClient) tag(dir, name, message string) error {
	args := []string{"tag", name}
	if message != "" {
		args = append(args, "-a", "-m", message)
	}
	_, err := c.run(dir, args...)
	return err
}

func (c *gitClient) push(dir string, specs ...string) error {
	args := []string{"push"}
	if len(specs) > 0 {
		args = append(append(args, "origin"), specs...)
	}
	_, err := c.run(dir, args...)
	return err
}

func (c *gitClient) refs(url string) (map[string]string, error) {
	out, err := c.run("", "ls-remote", "-q", url)
	refs := map[string]string{}
	for line := range strings.Lines(out) {
		oid, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		refs[name] = oid
	}
	return refs, err
}

// A driven client is a program of integration/clients, or of integration/node, that
// reads a request a line and answers a line: programs that start slowly start once.
type driven struct {
	in   io.WriteCloser
	out  *bufio.Reader
	errs *harness.Buffer
}

// A request is one line to a driven client.
type request struct {
	Do      string    `json:"do"`
	URL     string    `json:"url,omitempty"`
	Dir     string    `json:"dir,omitempty"`
	Path    string    `json:"path,omitempty"`
	Text    string    `json:"text,omitempty"`
	Name    string    `json:"name,omitempty"`
	Message *string   `json:"message,omitempty"`
	Depth   *int      `json:"depth,omitempty"`
	Specs   *[]string `json:"specs,omitempty"`
}

// drive starts a program beside g; it ends with the test.
func drive(t *testing.T, g *gate, env []string, program string, args ...string) client {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(g.git.Command(t.Context(), "").Env, env...)
	d := &driven{errs: &harness.Buffer{}}
	cmd.Stderr = d.errs
	var err error
	if d.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v; run integration/setup.sh", program, err)
	}
	t.Cleanup(func() {
		d.in.Close()
		if err := cmd.Wait(); err != nil && !errors.Is(t.Context().Err(), context.Canceled) {
			t.Errorf("%s ended with %v\n%s", program, err, d.errs)
		}
	})
	return d
}

// ask sends a request and waits for its answer.
func (d *driven) ask(r request) (oid string, refs map[string]string, err error) {
	line, err := json.Marshal(r)
	if err != nil {
		return "", nil, err
	}
	if _, err := d.in.Write(append(line, '\n')); err != nil {
		return "", nil, fmt.Errorf("ask client for %s: %w\n%s", r.Do, err, d.errs)
	}
	if line, err = d.out.ReadBytes('\n'); err != nil {
		return "", nil, fmt.Errorf("read client's answer to %s: %w\n%s", r.Do, err, d.errs)
	}
	var a struct {
		Error, OID string
		Refs       map[string]string
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return "", nil, fmt.Errorf("client answered %s with %q: %w", r.Do, line, err)
	}
	if a.Error != "" {
		err = errors.New(a.Error)
	}
	return a.OID, a.Refs, err
}

func (d *driven) clone(url, dir string, depth int) error {
	_, _, err := d.ask(request{Do: "clone", URL: url, Dir: dir, Depth: &depth})
	return err
}

func (d *driven) fetch(dir string) error {
	_, _, err := d.ask(request{Do: "fetch", Dir: dir})
	return err
}

func (d *driven) commit(dir, path, text string) (string, error) {
	oid, _, err := d.ask(request{Do: "commit", Dir: dir, Path: path, Text: text})
	return oid, err
}

func (d *driven) tag(dir, name, message string) error {
	_, _, err := d.ask(request{Do: "tag", Dir: dir, Name: name, Message: &message})
	return err
}

func (d *driven) push(dir string, specs ...string) error {
	specs = append([]string{}, specs...) // [], not null
	_, _, err := d.ask(request{Do: "push", Dir: dir, Specs: &specs})
	return err
}

func (d *driven) refs(url string) (map[string]string, error) {
	_, refs, err := d.ask(request{Do: "refs", URL: url})
	return refs, err
}

// built is the go-git client's program.
var built = sync.OnceValues(func() (string, error) {
	path := filepath.Join(programs.Dir(), "gogit")
	out, err := exec.Command("go", "build", "-o", path, "clients/gogit.go").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build clients/gogit.go: %w\n%s", err, out)
	}
	return path, nil
})

func goGit(t *testing.T, g *gate) client {
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return drive(t, g, g.authority(), program)
}

func isomorphicGit(t *testing.T, g *gate) client {
	return drive(t, g, g.authority(), "node", "node/isomorphic.mjs")
}

// python is a client of the Python that Debian's packages belong to.
func python(file string) func(*testing.T, *gate) client {
	return func(t *testing.T, g *gate) client {
		return drive(t, g, g.authority(), "/usr/bin/python3", "-B", "clients/"+file)
	}
}

func jgit(t *testing.T, g *gate) client {
	args := []string{
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Duser.home=" + g.git.Home,
		"-cp", "/usr/share/java/org.eclipse.jgit.jar:/usr/share/java/gson.jar:/usr/share/java/slf4j-api.jar:/usr/share/java/slf4j-nop.jar",
	}
	if g.Cert != nil {
		args = append(args, "-Djavax.net.ssl.trustStore="+trustStore(t, g.Cert.CAFile), "-Djavax.net.ssl.trustStorePassword=changeit")
	}
	return drive(t, g, nil, "java", append(args, "clients/JGitClient.java")...)
}

// trustStore is a Java key store with one authority.
func trustStore(t *testing.T, file string) string {
	t.Helper()
	store := filepath.Join(t.TempDir(), "trust.p12")
	out, err := exec.CommandContext(t.Context(), "keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", file,
		"-storetype", "PKCS12", "-keystore", store, "-storepass", "changeit").CombinedOutput()
	if err != nil {
		t.Fatalf("keytool -importcert: %v\n%s", err, out)
	}
	return store
}

// authority is the environment that tells clients of the test CA.
func (g *gate) authority() []string {
	if g.Cert == nil {
		return nil
	}
	return []string{"GIT_SSL_CAINFO=" + g.Cert.CAFile, "NODE_EXTRA_CA_CERTS=" + g.Cert.CAFile}
}
