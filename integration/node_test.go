package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/integration/harness"
)

// The customers' own package, unmodified, against this server over TLS.
func TestPI_StoreSessionState(t *testing.T) {
	if _, err := os.Stat("node/node_modules/@pierre/storage/package.json"); err != nil {
		t.Fatalf("the npm package is not installed: run integration/setup.sh (%v)", err)
	}
	onEachEngine(t, func(t *testing.T, g *gate) {
		node(t, g, "session.test.mjs")
	}, overTLS(t))
}

// overTLS gives a server a certificate of a test CA.
func overTLS(t testing.TB) func(*harness.Options) {
	t.Helper()
	cert, err := harness.NewCert(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return func(o *harness.Options) { o.Cert, o.Client = cert, cert.Client() }
}

// node runs one file of Node tests against g.
func node(t *testing.T, g *gate, file string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=spec", file)
	cmd.Dir = "node"
	cmd.Env = append(g.git.Command(t.Context(), "").Env,
		"HEADGATE_HOST="+g.Addr(), "HEADGATE_KEY_FILE="+g.org.KeyFile, "TMPDIR="+t.TempDir(),
		"NODE_EXTRA_CA_CERTS="+g.Cert.CAFile, "GIT_SSL_CAINFO="+g.Cert.CAFile)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("node --test %s: %v\n%s\n%s", filepath.Base(file), err, out, g.tail())
	}
	t.Logf("node --test %s\n%s", file, out)
}
