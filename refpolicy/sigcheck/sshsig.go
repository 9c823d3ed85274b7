package sigcheck

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

const (
	sshBegin   = "-----BEGIN SSH SIGNATURE-----"
	sshEnd     = "-----END SSH SIGNATURE-----"
	sshMagic   = "SSHSIG"
	sshVersion = 1
	// gitNamespace is what git gives ssh-keygen as the purpose of a signature.
	gitNamespace = "git"
)

// An sshSignature is a parsed SSHSIG blob:
//
//	byte[6] "SSHSIG", uint32 version, string publickey, string namespace,
//	string reserved, string hash_algorithm, string signature
type sshSignature struct {
	Version   uint32
	PublicKey []byte
	Namespace string
	Reserved  []byte
	Hash      string
	Signature []byte
}

// parseSSHSignature reads an armored SSHSIG. What is malformed is ErrBadSignature.
func parseSSHSignature(armored []byte) (*sshSignature, error) {
	if err := oneBlock(armored, sshEnd); err != nil {
		return nil, err
	}
	text, ok := bytes.CutPrefix(armored, []byte(sshBegin+"\n"))
	text, _, end := bytes.Cut(text, []byte("\n"+sshEnd))
	if !ok || !end {
		return nil, fmt.Errorf("%w: the armor's lines are not whole", ErrBadSignature)
	}
	blob, err := base64.StdEncoding.DecodeString(string(text)) // line ends are skipped
	if err != nil {
		return nil, fmt.Errorf("%w: read armor: %w", ErrBadSignature, err)
	}
	body, ok := bytes.CutPrefix(blob, []byte(sshMagic))
	if !ok {
		return nil, fmt.Errorf("%w: it does not begin with %s", ErrBadSignature, sshMagic)
	}
	sig := new(sshSignature)
	if err := ssh.Unmarshal(body, sig); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	if sig.Version != sshVersion {
		return nil, fmt.Errorf("%w: SSHSIG version %d", ErrBadSignature, sig.Version)
	}
	return sig, nil
}

func (k *Keys) verifySSH(payload, armored []byte) error {
	sig, err := parseSSHSignature(armored)
	if err != nil {
		return err
	}
	if sig.Namespace != gitNamespace {
		return fmt.Errorf("%w: made for namespace %q, not for git", ErrBadSignature, sig.Namespace)
	}
	at, ok := committedAt(payload)
	if !ok {
		return fmt.Errorf("%w: the commit has no committer date", ErrBadSignature)
	}
	key, err := trusted(k.ssh, sig.PublicKey, at)
	if err != nil {
		return err
	}
	return sig.verify(key, payload)
}

// verify checks the signature itself, by key, over message.
func (s *sshSignature) verify(key ssh.PublicKey, message []byte) error {
	inner := new(ssh.Signature)
	if err := ssh.Unmarshal(s.Signature, inner); err != nil {
		return fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	// ssh-rsa is RSA with SHA-1; only security keys have a trailer.
	if inner.Format == ssh.KeyAlgoRSA {
		return fmt.Errorf("%w: ssh-rsa signs SHA-1", ErrBadSignature)
	}
	if len(inner.Rest) > 0 && !strings.HasPrefix(key.Type(), "sk-") {
		return fmt.Errorf("%w: more follows the signature", ErrBadSignature)
	}
	digest, err := digestOf(s.Hash, message)
	if err != nil {
		return err
	}
	signed := ssh.Marshal(struct {
		Namespace, Reserved, Hash string
		Digest                    []byte
	}{s.Namespace, "", s.Hash, digest})
	if err := key.Verify(append([]byte(sshMagic), signed...), inner); err != nil {
		return fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	return nil
}

func digestOf(algorithm string, message []byte) ([]byte, error) {
	switch algorithm {
	case "sha256":
		sum := sha256.Sum256(message)
		return sum[:], nil
	case "sha512":
		sum := sha512.Sum512(message)
		return sum[:], nil
	}
	return nil, fmt.Errorf("%w: digest %q, want sha256 or sha512", ErrBadSignature, algorithm)
}
