package sigcheck

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

func TestOpenPGPKeysRefused(t *testing.T) {
	needTools(t, "git", "gpg")
	w := newWorkshop(t)
	_, public := w.gpgKey(t, "good@example.com", "ed25519", "never")
	_, weak := w.gpgKey(t, "weak@example.com", "rsa1024", "never")
	private := w.must(t, nil, "gpg", "--batch", "--armor", "--export-secret-keys", "good@example.com")
	for what, text := range map[string][]byte{
		"empty":   nil,
		"no key":  []byte("hello"),
		"cut":     public[:len(public)/2],
		"private": []byte(private),
		"weak":    weak,
		"second":  append(bytes.Clone(public), weak...),
	} {
		k, err := New([][]byte{public, text}, nil)
		if k != nil || !errors.Is(err, ErrBadKey) || !strings.Contains(err.Error(), "OpenPGP key 2") {
			t.Errorf("%s: New = %v, %v; want ErrBadKey of key 2", what, k, err)
		}
	}
}

// Whatever the text, the answer is typed, and a signature of something else never
// passes.
func FuzzOpenPGPSignature(f *testing.F) {
	entity, err := openpgp.NewEntity("a", "", "a@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	if err != nil {
		f.Fatal(err)
	}
	var good, other bytes.Buffer
	for text, out := range map[string]*bytes.Buffer{unsignedCommit: &good, "other": &other} {
		if err := openpgp.ArmoredDetachSign(out, entity, strings.NewReader(text), nil); err != nil {
			f.Fatal(err)
		}
	}
	keys := mustKeys(f, nil, "")
	keys.pgp = openpgp.EntityList{entity}
	if err := keys.verifyOpenPGP([]byte(unsignedCommit), good.Bytes()); err != nil {
		f.Fatalf("verifyOpenPGP(its own signature) = %v", err)
	}
	for _, s := range []string{
		good.String(), other.String(), good.String() + other.String(), pgpBegin + "\n\n" + pgpEnd,
		pgpBegin + "\n\nwsE=\n=abcd\n" + pgpEnd, pgpBegin + "\nVersion: x\n\niHUEABYKAB0=\n" + pgpEnd + "\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		err := keys.verifyOpenPGP([]byte(unsignedCommit), text)
		if err != nil && !errors.Is(err, ErrBadSignature) && !errors.Is(err, ErrUntrusted) {
			t.Fatalf("verifyOpenPGP(%q) = %v, want a typed error", text, err)
		}
		if err := keys.verifyOpenPGP([]byte(unsignedCommit+"x"), text); err == nil {
			t.Fatalf("%q passes as a signature of another commit", text)
		}
	})
}
