package sigcheck

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math/big"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

const unsignedCommit = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a@x> 1790000000 +0000\ncommitter C <c@x> 1790000000 +0000\n\nm\n"

func authorized(key ssh.PublicKey) string {
	return strings.TrimSuffix(string(ssh.MarshalAuthorizedKey(key)), "\n")
}

// A forge makes SSHSIG texts with any field wrong.
type forge struct {
	sshSignature
	sign func(message []byte) *ssh.Signature // of the signed structure
}

func newForge(t testing.TB) (*forge, ssh.PublicKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return &forge{
		sshSignature: sshSignature{Version: 1, PublicKey: key.Marshal(), Namespace: "git", Hash: "sha512"},
		sign: func(m []byte) *ssh.Signature {
			return &ssh.Signature{Format: key.Type(), Blob: ed25519.Sign(private, m)}
		},
	}, key
}

func (f *forge) armor(payload string) string {
	digest, err := digestOf(f.Hash, []byte(payload))
	if err != nil {
		digest = make([]byte, 20) // as SHA-1 has
	}
	signed := ssh.Marshal(struct {
		Namespace, Reserved, Hash string
		Digest                    []byte
	}{f.Namespace, "", f.Hash, digest})
	sig := f.sshSignature
	sig.Signature = ssh.Marshal(f.sign(append([]byte(sshMagic), signed...)))
	return armored(append([]byte(sshMagic), ssh.Marshal(sig)...))
}

func armored(blob []byte) string {
	return sshBegin + "\n" + base64.StdEncoding.EncodeToString(blob) + "\n" + sshEnd + "\n"
}

func TestForgedSSHSignatures(t *testing.T) {
	for _, tc := range []struct {
		why    string
		change func(f *forge)
		want   error
	}{
		{"nothing changed", func(*forge) {}, nil},
		{"sha256", func(f *forge) { f.Hash = "sha256" }, nil},
		{"sha1", func(f *forge) { f.Hash = "sha1" }, ErrBadSignature},
		{"no digest", func(f *forge) { f.Hash = "" }, ErrBadSignature},
		{"version 2", func(f *forge) { f.Version = 2 }, ErrBadSignature},
		{"no namespace", func(f *forge) { f.Namespace = "" }, ErrBadSignature},
		{"another namespace", func(f *forge) { f.Namespace = "gitx" }, ErrBadSignature},
		{"reserved is not signed", func(f *forge) { f.Reserved = []byte("x") }, nil}, // as ssh-keygen
		{"key cut", func(f *forge) { f.PublicKey = f.PublicKey[:10] }, ErrUntrusted},
		{"another format", func(f *forge) {
			sign := f.sign
			f.sign = func(m []byte) *ssh.Signature {
				s := sign(m)
				s.Format = "rsa-sha2-512"
				return s
			}
		}, ErrBadSignature},
		{"a trailer", func(f *forge) {
			sign := f.sign
			f.sign = func(m []byte) *ssh.Signature {
				s := sign(m)
				s.Rest = []byte{0}
				return s
			}
		}, ErrBadSignature},
		{"empty signature", func(f *forge) {
			f.sign = func([]byte) *ssh.Signature { return &ssh.Signature{Format: "ssh-ed25519"} }
		}, ErrBadSignature},
	} {
		f, key := newForge(t)
		tc.change(f)
		raw := withSignature([]byte(unsignedCommit), f.armor(unsignedCommit))
		if err := mustKeys(t, nil, "a@b "+authorized(key)).VerifyCommit(raw); !errors.Is(err, tc.want) {
			t.Errorf("%s: VerifyCommit = %v, want %v", tc.why, err, tc.want)
		}
	}
}

func TestMalformedSSHArmor(t *testing.T) {
	f, key := newForge(t)
	keys := mustKeys(t, nil, "a@b "+authorized(key))
	good := f.armor(unsignedCommit)
	for what, text := range map[string]string{
		"no end":          strings.ReplaceAll(good, sshEnd, ""),
		"text behind":     good + "x\n",
		"twice":           good + good,
		"begin runs on":   strings.Replace(good, sshBegin+"\n", sshBegin, 1),
		"end in the line": strings.Replace(good, "\n"+sshEnd, sshEnd, 1),
		"not base64":      strings.Replace(good, "\nU1", "\n!!", 1),
		"empty":           sshBegin + "\n\n" + sshEnd + "\n",
		"no magic":        armored([]byte("SSHSIX")),
		"magic only":      armored([]byte(sshMagic)),
		"huge length":     armored([]byte(sshMagic + "\x00\x00\x00\x01\xff\xff\xff\xff")),
	} {
		if err := keys.VerifyCommit(withSignature([]byte(unsignedCommit), text)); !errors.Is(err, ErrBadSignature) {
			t.Errorf("%s: VerifyCommit = %v, want ErrBadSignature", what, err)
		}
	}
	undated := strings.Replace(unsignedCommit, "committer C <c@x> 1790000000 +0000\n", "", 1)
	if err := keys.VerifyCommit(withSignature([]byte(undated), f.armor(undated))); !errors.Is(err, ErrBadSignature) {
		t.Errorf("without a committer: VerifyCommit = %v, want ErrBadSignature", err)
	}
}

// RSA with SHA-1 has a good signature of the right key; the algorithm is the fault.
func TestSSHRSAWithSHA1IsRefused(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	keys := mustKeys(t, nil, "a@b "+authorized(signer.PublicKey()))
	for algorithm, want := range map[string]error{ssh.KeyAlgoRSA: ErrBadSignature, ssh.KeyAlgoRSASHA256: nil, ssh.KeyAlgoRSASHA512: nil} {
		f, _ := newForge(t)
		f.PublicKey = signer.PublicKey().Marshal()
		f.sign = func(m []byte) *ssh.Signature {
			sig, err := signer.(ssh.AlgorithmSigner).SignWithAlgorithm(rand.Reader, m, algorithm)
			if err != nil {
				t.Fatal(err)
			}
			return sig
		}
		if err := keys.VerifyCommit(withSignature([]byte(unsignedCommit), f.armor(unsignedCommit))); !errors.Is(err, want) {
			t.Errorf("%s: VerifyCommit = %v, want %v", algorithm, err, want)
		}
	}
}

// A security key signs a hash of its application, flags, counter and the message.
func TestSSHSecurityKey(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	blob := ssh.Marshal(struct {
		Type        string
		Key         []byte
		Application string
	}{ssh.KeyAlgoSKED25519, public, "ssh:"})
	key, err := ssh.ParsePublicKey(blob)
	if err != nil {
		t.Fatal(err)
	}
	keys := mustKeys(t, nil, "a@b "+authorized(key))
	for flags, want := range map[byte]error{1: nil, 5: nil, 0: ErrBadSignature} { // 1: touched, 4: PIN
		f, _ := newForge(t)
		f.PublicKey = blob
		f.sign = func(m []byte) *ssh.Signature {
			application, message := sha256.Sum256([]byte("ssh:")), sha256.Sum256(m)
			trailer := binary.BigEndian.AppendUint32([]byte{flags}, 7)
			signed := bytes.Join([][]byte{application[:], trailer, message[:]}, nil)
			return &ssh.Signature{Format: ssh.KeyAlgoSKED25519, Blob: ed25519.Sign(private, signed), Rest: trailer}
		}
		if err := keys.VerifyCommit(withSignature([]byte(unsignedCommit), f.armor(unsignedCommit))); !errors.Is(err, want) {
			t.Errorf("flags %d: VerifyCommit = %v, want %v", flags, err, want)
		}
	}
}

func mustKey(t *testing.T, public crypto.PublicKey) ssh.PublicKey {
	t.Helper()
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestAllowedSignersRefused(t *testing.T) {
	_, key := newForge(t)
	good := authorized(key)
	ca, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	cert := &ssh.Certificate{Key: key, CertType: ssh.UserCert, ValidPrincipals: []string{"a"}, ValidBefore: ssh.CertTimeInfinity}
	if err := cert.SignCert(rand.Reader, ca); err != nil {
		t.Fatal(err)
	}
	small := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 1023, 1), E: 65537}
	old := ssh.Marshal(struct {
		Type       string
		P, Q, G, Y *big.Int
	}{"ssh-dss", new(big.Int).SetBit(big.NewInt(1), 1023, 1), new(big.Int).SetBit(big.NewInt(1), 159, 1), big.NewInt(2), big.NewInt(3)})
	for what, tc := range map[string]struct{ line, says string }{
		"principals only":       {"a@b", "no key"},
		"nobody":                {"!a@b " + good, "no principal"},
		"empty principals":      {`"" ` + good, "no principal"},
		"open quote":            {`"a@b ` + good, "quote does not end"},
		"no key":                {"a@b ssh-ed25519", "no key"},
		"key without principal": {good, "no key"}, // its type is taken for the principal
		"bad base64":            {"a@b ssh-ed25519 !!!", ""},
		"wrong type":            {"a@b ssh-rsa " + strings.Fields(good)[1], ""},
		"cert-authority":        {"a@b cert-authority " + good, "cert-authority is not supported"},
		"a certificate":         {"a@b " + authorized(cert), ""},
		"DSA":                   {"a@b ssh-dss " + base64.StdEncoding.EncodeToString(old), ""},
		"small RSA":             {"a@b " + authorized(mustKey(t, small)), ""},
		"unknown option":        {`a@b verify-required ` + good, `"verify-required"`},
		"twice":                 {`a@b namespaces="git",namespaces="file" ` + good, "stands twice"},
		"no quotes":             {`a@b namespaces=git ` + good, "not in quotes"},
		"empty namespaces":      {`a@b namespaces="" ` + good, "is empty"},
		"no value":              {`a@b namespaces ` + good, "is empty"},
		"open option":           {`a@b namespaces="git ` + good, "quote does not end"},
		"no comma":              {`a@b namespaces="git"x ` + good, "no comma"},
		"bad time":              {`a@b valid-after="2026" ` + good, "YYYYMMDD"},
		"bad month":             {`a@b valid-before="20261321" ` + good, "YYYYMMDD"},
		"never valid":           {`a@b valid-after="20260102",valid-before="20260101" ` + good, "not after"},
	} {
		k, err := New(nil, []byte("# one\n\n"+tc.line+"\n"))
		if k != nil || !errors.Is(err, ErrBadKey) || !strings.Contains(err.Error(), "line 3") || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: New(%q) = %v, %v; want ErrBadKey of line 3 saying %q", what, tc.line, k, err, tc.says)
		}
	}
	if k, err := New(nil, []byte("a@b "+good+"\r\n  c@d\t\t"+good+" a comment\r\n#x")); err != nil || len(k.ssh) != 2 {
		t.Errorf("New with DOS line ends and a comment = %v, want two keys", err)
	}
}

func FuzzAllowedSigners(f *testing.F) {
	_, key := newForge(f)
	good := authorized(key)
	for _, s := range []string{
		"a@b " + good, `"a b,c" namespaces="git,f\"x" ` + good, `a valid-after="20260101",valid-before="20270101Z" ` + good,
		"a cert-authority " + good, "# x\n\n", `a namespaces="`, `"`, "a \\\" x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		signers, err := parseAllowedSigners([]byte(text))
		if err != nil {
			if signers != nil {
				t.Fatalf("parseAllowedSigners(%q) gives keys beside %v", text, err)
			}
			return
		}
		lines := 0
		for line := range strings.SplitSeq(text, "\n") {
			if line = strings.Trim(line, " \t\r"); line != "" && line[0] != '#' {
				lines++
			}
		}
		if len(signers) != lines {
			t.Fatalf("parseAllowedSigners(%q) gives %d keys of %d lines", text, len(signers), lines)
		}
		for _, s := range signers {
			if err := usable(s.key); err != nil {
				t.Fatalf("parseAllowedSigners(%q) takes %v", text, err)
			}
		}
	})
}

// No text but the one signature of the payload may pass.
func FuzzSSHSignature(f *testing.F) {
	forge, key := newForge(f)
	good := forge.armor(unsignedCommit)
	want, err := parseSSHSignature([]byte(good))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{good, good + good, armored([]byte(sshMagic)), sshBegin + "\n" + sshEnd, "", strings.Replace(good, "\n", "\r\n", 1)} {
		f.Add([]byte(s))
	}
	keys := &Keys{ssh: []signer{{key: key}}}
	f.Fuzz(func(t *testing.T, text []byte) {
		sig, err := parseSSHSignature(text)
		if err != nil && !errors.Is(err, ErrBadSignature) {
			t.Fatalf("parseSSHSignature(%q) = %v, want ErrBadSignature", text, err)
		}
		if keys.verifySSH([]byte(unsignedCommit), text) != nil {
			return
		}
		if !bytes.Equal(sig.PublicKey, want.PublicKey) || !bytes.Equal(sig.Signature, want.Signature) || sig.Hash != want.Hash {
			t.Fatalf("%q passes as a signature", text)
		}
	})
}
