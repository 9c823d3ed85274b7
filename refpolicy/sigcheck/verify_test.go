package sigcheck

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func mustKeys(t testing.TB, pgp [][]byte, allowed string) *Keys {
	t.Helper()
	keys, err := New(pgp, []byte(allowed))
	if err != nil {
		t.Fatalf("New(%d OpenPGP keys, %q) = %v", len(pgp), allowed, err)
	}
	return keys
}

// tampered are changes of a signed commit that must not pass. git agrees on all.
func tampered(raw []byte) map[string][]byte {
	return map[string][]byte{
		"message":   bytes.Replace(raw, []byte("subject"), []byte("Subject"), 1),
		"appended":  append(bytes.Clone(raw), '\n'),
		"committer": bytes.Replace(raw, []byte("c@example.com"), []byte("d@example.com"), 1),
		"time":      bytes.Replace(raw, []byte("1790000000"), []byte("1790000001"), 1),
		"tree":      bytes.Replace(raw, []byte("tree 4"), []byte("tree 5"), 1),
		"header":    bytes.Replace(raw, []byte("\n\nsubject"), []byte("\nextra x\n\nsubject"), 1),
		"sig cut":   bytes.Replace(raw, []byte("gpgsig -----BEGIN"), []byte("gpgsig ----BEGIN"), 1),
	}
}

func checkBoth(t *testing.T, w *workshop, keys *Keys, allowed string, raw []byte) {
	t.Helper()
	if err := keys.VerifyCommit(raw); err != nil {
		t.Errorf("VerifyCommit(signed commit) = %v, want nil\n%s", err, raw)
	}
	if !w.gitVerifies(t, raw, allowed) {
		t.Errorf("git verify-commit refuses the signed commit\n%s", raw)
	}
	for what, changed := range tampered(raw) {
		if bytes.Equal(changed, raw) {
			t.Errorf("%s: the commit is not changed", what)
		}
		if err := keys.VerifyCommit(changed); !errors.Is(err, ErrBadSignature) {
			t.Errorf("VerifyCommit(%s changed) = %v, want ErrBadSignature", what, err)
		}
		if w.gitVerifies(t, changed, allowed) {
			t.Errorf("git verify-commit takes a commit with %s changed", what)
		}
	}
	// A header for another object format is no part of what is signed.
	foreign := bytes.Replace(raw, []byte("\ngpgsig "), []byte("\ngpgsig-sha256 x\n y\ngpgsig "), 1)
	if err := keys.VerifyCommit(foreign); err != nil || !w.gitVerifies(t, foreign, allowed) {
		t.Errorf("VerifyCommit(with a gpgsig-sha256 header) = %v, want nil as from git verify-commit", err)
	}
	double := bytes.Replace(raw, []byte("\n\nsubject"), []byte("\n"+signatureOf(raw)+"\n\nsubject"), 1)
	if err := keys.VerifyCommit(double); !errors.Is(err, ErrBadSignature) {
		t.Errorf("VerifyCommit(with its signature twice) = %v, want ErrBadSignature", err)
	}
}

// signatureOf gives the gpgsig header of raw as it stands there.
func signatureOf(raw []byte) string {
	_, sig, _ := SplitSignature(raw)
	return "gpgsig " + strings.ReplaceAll(strings.TrimSuffix(string(sig), "\n"), "\n", "\n ")
}

func TestSSHCommitsAgreeWithGit(t *testing.T) {
	needTools(t, "git", "ssh-keygen")
	w := newWorkshop(t)
	stranger, _ := w.sshKey(t, "stranger", "-t", "ed25519")
	byStranger := w.sign(t, "ssh", stranger)
	for name, args := range map[string][]string{
		"ed25519":  {"-t", "ed25519"},
		"ecdsa256": {"-t", "ecdsa", "-b", "256"},
		"ecdsa384": {"-t", "ecdsa", "-b", "384"},
		"ecdsa521": {"-t", "ecdsa", "-b", "521"},
		"rsa2048":  {"-t", "rsa", "-b", "2048"},
	} {
		t.Run(name, func(t *testing.T) {
			private, public := w.sshKey(t, name, args...)
			allowed := "# signers\n\n*@example.com namespaces=\"git\" " + public + " a comment\n"
			keys := mustKeys(t, nil, allowed)
			checkBoth(t, w, keys, allowed, w.sign(t, "ssh", private))
			if err := keys.VerifyCommit(byStranger); !errors.Is(err, ErrUntrusted) {
				t.Errorf("VerifyCommit(by a stranger) = %v, want ErrUntrusted", err)
			}
		})
	}
}

func TestSSHSignersAgreeWithGit(t *testing.T) {
	needTools(t, "git", "ssh-keygen")
	w := newWorkshop(t)
	private, public := w.sshKey(t, "key", "-t", "ed25519")
	_, other := w.sshKey(t, "other", "-t", "ed25519")
	raw := w.sign(t, "ssh", private) // committed at 2026-09-21 14:13:20 UTC
	for _, tc := range []struct {
		allowed string
		want    error
	}{
		{"a@b " + public, nil},
		{"a@b,c@d\t" + public, nil},
		{`"a@b,c@d" ` + public, nil},
		{"!a@b,c@d " + public, nil},
		{"a@b namespaces=\"git\" " + public, nil},
		{"a@b NameSpaces=\"file,git\" " + public, nil},
		{"a@b namespaces=\"g?*\" " + public, nil},
		{"a@b namespaces=\"file\" " + public, ErrUntrusted},
		{"a@b namespaces=\"*,!git\" " + public, ErrUntrusted}, // a refusal wins over the star
		{"a@b namespaces=\"[g]it\" " + public, ErrUntrusted},  // ssh has no brackets
		{"a@b valid-after=\"20260921\",valid-before=\"20260922\" " + public, nil},
		{"a@b valid-after=\"20260921141320Z\" " + public, nil}, // to the second, inclusive
		{"a@b valid-after=\"20260921141321Z\" " + public, ErrUntrusted},
		{"a@b valid-before=\"20260921141320Z\" " + public, nil},
		{"a@b valid-before=\"20260921141319\" " + public, ErrUntrusted},
		{"a@b valid-before=\"202609211413\" " + public, ErrUntrusted},
		{"a@b " + other, ErrUntrusted},
		{"a@b " + other + "\nc@d " + public, nil},
		{"a@b namespaces=\"file\" " + public + "\na@b " + public, nil}, // a later line allows it
		{"", ErrUntrusted},
	} {
		got := mustKeys(t, nil, tc.allowed+"\n").VerifyCommit(raw)
		if !errors.Is(got, tc.want) {
			t.Errorf("VerifyCommit under %q = %v, want %v", tc.allowed, got, tc.want)
		}
		if gits := w.gitVerifies(t, raw, tc.allowed+"\n"); gits != (tc.want == nil) {
			t.Errorf("git verify-commit under %q: passes %v, want %v", tc.allowed, gits, tc.want == nil)
		}
	}
}

func TestSSHSignatureForAnotherPurpose(t *testing.T) {
	needTools(t, "git", "ssh-keygen")
	w := newWorkshop(t)
	private, public := w.sshKey(t, "key", "-t", "ed25519")
	payload, _, _ := SplitSignature(w.sign(t, "ssh", private))
	allowed := "a@b " + public + "\n"
	for namespace, want := range map[string]error{"git": nil, "file": ErrBadSignature} {
		sig := w.must(t, payload, "ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", private)
		raw := withSignature(payload, sig)
		if err := mustKeys(t, nil, allowed).VerifyCommit(raw); !errors.Is(err, want) {
			t.Errorf("VerifyCommit(signed for %q) = %v, want %v", namespace, err, want)
		}
		if gits := w.gitVerifies(t, raw, allowed); gits != (want == nil) {
			t.Errorf("git verify-commit(signed for %q) passes: %v", namespace, gits)
		}
	}
}

// withSignature puts sig where git does: behind the other headers.
func withSignature(payload []byte, sig string) []byte {
	header, message, _ := bytes.Cut(payload, []byte("\n\n"))
	out := append(bytes.Clone(header), "\ngpgsig "+strings.ReplaceAll(strings.TrimSuffix(sig, "\n"), "\n", "\n ")+"\n\n"...)
	return append(out, message...)
}

func TestOpenPGPCommitsAgreeWithGit(t *testing.T) {
	needTools(t, "git", "gpg")
	w := newWorkshop(t)
	stranger, _ := w.gpgKey(t, "stranger", "ed25519", "never")
	byStranger := w.sign(t, "openpgp", stranger)
	for _, algorithm := range []string{"ed25519", "rsa2048", "nistp256"} {
		t.Run(algorithm, func(t *testing.T) {
			key, public := w.gpgKey(t, algorithm+" <"+algorithm+"@example.com>", algorithm, "never")
			keys := mustKeys(t, [][]byte{public}, "")
			checkBoth(t, w, keys, "", w.sign(t, "openpgp", key))
			if err := keys.VerifyCommit(byStranger); !errors.Is(err, ErrUntrusted) {
				t.Errorf("VerifyCommit(by a stranger) = %v, want ErrUntrusted", err)
			}
		})
	}
}

func TestOpenPGPSigningSubkey(t *testing.T) {
	needTools(t, "git", "gpg")
	w := newWorkshop(t)
	primary, _ := w.gpgKey(t, "sub@example.com", "ed25519", "never")
	w.must(t, nil, "gpg", "--batch", "--passphrase", "", "--quick-add-key", primary, "ed25519", "sign", "never")
	_, public := w.exportGPG(t, "sub@example.com")
	_, unrelated := w.gpgKey(t, "second@example.com", "ed25519", "never")
	raw := w.sign(t, "openpgp", primary)
	// Both keys in one text, as cat makes it.
	checkBoth(t, w, mustKeys(t, [][]byte{append(unrelated, public...)}, ""), "", raw)
}

func TestOpenPGPExpiredAndRevoked(t *testing.T) {
	needTools(t, "git", "gpg")
	w := newWorkshop(t)
	key, public := w.gpgKey(t, "short@example.com", "ed25519", "1d")
	raw := w.sign(t, "openpgp", key)
	keys := mustKeys(t, [][]byte{public}, "")
	if err := keys.VerifyCommit(raw); err != nil {
		t.Errorf("VerifyCommit on the first day = %v, want nil", err)
	}
	keys.now = func() time.Time { return time.Now().Add(48 * time.Hour) }
	if err := keys.VerifyCommit(raw); !errors.Is(err, ErrUntrusted) {
		t.Errorf("VerifyCommit by an expired key = %v, want ErrUntrusted", err)
	}

	// gpg keeps a revocation ready, with a colon before it against accidents.
	revocation, err := os.ReadFile(w.path("openpgp-revocs.d/" + key + ".rev"))
	if err != nil {
		t.Fatal(err)
	}
	_, revocation, _ = bytes.Cut(revocation, []byte("\n:"))
	w.must(t, revocation, "gpg", "--batch", "--quiet", "--import")
	_, public = w.exportGPG(t, "short@example.com")
	if err := mustKeys(t, [][]byte{public}, "").VerifyCommit(raw); !errors.Is(err, ErrUntrusted) {
		t.Errorf("VerifyCommit by a revoked key = %v, want ErrUntrusted", err)
	}
	if w.gitVerifies(t, raw, "") {
		t.Error("git verify-commit takes a commit by a revoked key")
	}
}

func TestOpenPGPWeakDigestIsRefused(t *testing.T) {
	needTools(t, "git", "gpg")
	w := newWorkshop(t)
	key, public := w.gpgKey(t, "weak@example.com", "rsa2048", "never")
	payload, _, _ := SplitSignature(w.sign(t, "openpgp", key))
	sig := w.must(t, payload, "gpg", "--batch", "--armor", "--digest-algo", "SHA1", "-u", key, "--detach-sign")
	if err := mustKeys(t, [][]byte{public}, "").VerifyCommit(withSignature(payload, sig)); !errors.Is(err, ErrBadSignature) {
		t.Errorf("VerifyCommit(SHA-1 digest) = %v, want ErrBadSignature", err)
	}
}

func TestUnsignedAndNoKeys(t *testing.T) {
	needTools(t, "git", "ssh-keygen")
	w := newWorkshop(t)
	private, public := w.sshKey(t, "key", "-t", "ed25519")
	signed := w.sign(t, "ssh", private)
	unsigned, _, _ := SplitSignature(signed)
	keys := mustKeys(t, nil, "a@b "+public)
	var none *Keys
	for _, tc := range []struct {
		what string
		keys *Keys
		raw  []byte
		want error
	}{
		{"unsigned", keys, unsigned, ErrUnsigned},
		{"unsigned, nil keys", none, unsigned, ErrUnsigned},
		{"signed, nil keys", none, signed, ErrUntrusted},
		{"signed, no keys", mustKeys(t, nil, ""), signed, ErrUntrusted},
		{"empty", keys, nil, ErrUnsigned},
		{"another kind", keys, withSignature(unsigned, "-----BEGIN SIGNED MESSAGE-----\n"), ErrBadSignature},
		// A signature in the message is text.
		{"in the message", keys, append(bytes.Clone(unsigned), signatureOf(signed)...), ErrUnsigned},
	} {
		if err := tc.keys.VerifyCommit(tc.raw); !errors.Is(err, tc.want) {
			t.Errorf("%s: VerifyCommit = %v, want %v", tc.what, err, tc.want)
		}
	}
}
