package sigcheck

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A workshop makes signed commits with the real git, ssh-keygen and gpg.
type workshop struct {
	dir string
	env []string
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	// gpg's sockets need a short path, which t.TempDir does not promise.
	home, err := os.MkdirTemp("", "sig")
	if err != nil {
		t.Fatal(err)
	}
	w := &workshop{dir: filepath.Join(home, "repo")}
	w.env = append(os.Environ(),
		"HOME="+home, "GNUPGHOME="+home, "TZ=UTC", "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=C", "GIT_COMMITTER_EMAIL=c@example.com",
		"GIT_AUTHOR_DATE=1790000000 +0200", "GIT_COMMITTER_DATE=1790000000 +0200")
	t.Cleanup(func() {
		// The agent belongs to this home alone; it ends with it.
		if path, err := exec.LookPath("gpgconf"); err == nil {
			cmd := exec.Command(path, "--kill", "all")
			cmd.Env = w.env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Logf("gpgconf --kill all: %v: %s", err, out)
			}
		}
		if err := os.RemoveAll(home); err != nil {
			t.Logf("remove %s: %v", home, err)
		}
	})
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.must(t, nil, "git", "init", "-q", "-b", "main")
	return w
}

func (w *workshop) run(stdin []byte, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = w.dir, w.env, bytes.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		err = errors.New(name + " " + strings.Join(args, " ") + ": " + err.Error() + ": " + errs.String())
	}
	return out.String(), err
}

func (w *workshop) must(t *testing.T, stdin []byte, name string, args ...string) string {
	t.Helper()
	out, err := w.run(stdin, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (w *workshop) path(name string) string { return filepath.Join(filepath.Dir(w.dir), name) }

// sshKey makes a key pair and gives the path of the private half and the public
// half as "type base64".
func (w *workshop) sshKey(t *testing.T, name string, args ...string) (private, public string) {
	t.Helper()
	private = w.path(name)
	w.must(t, nil, "ssh-keygen", append([]string{"-q", "-N", "", "-C", "", "-f", private}, args...)...)
	text, err := os.ReadFile(private + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return private, strings.TrimSpace(string(text))
}

// gpgKey makes a key pair and gives its fingerprint and its armored public half.
func (w *workshop) gpgKey(t *testing.T, user, algorithm, expire string) (fingerprint string, armored []byte) {
	t.Helper()
	w.must(t, nil, "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key", user, algorithm, "sign", expire)
	return w.exportGPG(t, user)
}

func (w *workshop) exportGPG(t *testing.T, user string) (fingerprint string, armored []byte) {
	t.Helper()
	for line := range strings.SplitSeq(w.must(t, nil, "gpg", "--batch", "--with-colons", "--list-keys", user), "\n") {
		if fields := strings.Split(line, ":"); fields[0] == "fpr" {
			fingerprint = fields[9]
			break
		}
	}
	return fingerprint, []byte(w.must(t, nil, "gpg", "--batch", "--armor", "--export", user))
}

// sign commits with the key and gives the raw commit.
func (w *workshop) sign(t *testing.T, format, key string, more ...string) []byte {
	t.Helper()
	args := []string{"-c", "gpg.format=" + format, "-c", "user.signingkey=" + key, "commit", "-q", "--allow-empty", "-S",
		"-m", "subject\n\ngpgsig is no header here\n continued\n"}
	w.must(t, nil, "git", append(args, more...)...)
	return []byte(w.must(t, nil, "git", "cat-file", "commit", "HEAD"))
}

// gitVerifies asks git verify-commit about raw.
func (w *workshop) gitVerifies(t *testing.T, raw []byte, allowedSigners string) bool {
	t.Helper()
	file := w.path("allowed")
	if err := os.WriteFile(file, []byte(allowedSigners), 0o600); err != nil {
		t.Fatal(err)
	}
	oid := strings.TrimSpace(w.must(t, raw, "git", "hash-object", "-t", "commit", "-w", "--literally", "--stdin"))
	_, err := w.run(nil, "git", "-c", "gpg.ssh.allowedSignersFile="+file, "verify-commit", oid)
	return err == nil
}

func needTools(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is missing", name)
			}
			t.Skipf("%s is missing", name)
		}
	}
}
