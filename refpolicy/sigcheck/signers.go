package sigcheck

import (
	"bytes"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// A signer is one line of allowed_signers:
//
//	principals [options] keytype base64-key [comment]
//
// A commit names no principal that could be trusted, so whom the line names is
// checked for form alone, as git does in effect: it asks whose key it is. A key
// may stand on several lines; one that allows the signature is enough.
type signer struct {
	key        ssh.PublicKey
	namespaces string    // pattern list; empty: every namespace
	after      time.Time // the zero time: no limit
	before     time.Time
}

// trusted gives the registered key equal to blob, if one of its lines allows git
// signatures at that time; else it is ErrUntrusted.
func trusted(signers []signer, blob []byte, at time.Time) (ssh.PublicKey, error) {
	err := fmt.Errorf("%w: no such ssh key", ErrUntrusted)
	for _, s := range signers {
		if !bytes.Equal(s.key.Marshal(), blob) {
			continue
		}
		if err = s.allows(at); err == nil {
			return s.key, nil
		}
	}
	return nil, err
}

func (s signer) allows(at time.Time) error {
	switch {
	case s.namespaces != "" && !matchList(s.namespaces, gitNamespace):
		return fmt.Errorf("%w: the ssh key is not registered for namespace git", ErrUntrusted)
	case !s.after.IsZero() && at.Before(s.after):
		return fmt.Errorf("%w: the ssh key was not yet valid", ErrUntrusted)
	case !s.before.IsZero() && at.After(s.before):
		return fmt.Errorf("%w: the ssh key was no longer valid", ErrUntrusted)
	}
	return nil
}

// matchList is ssh's pattern list: comma-separated, * and ?, a leading ! refuses.
func matchList(list, name string) bool {
	matched := false
	for pattern := range strings.SplitSeq(list, ",") {
		pattern, negated := strings.CutPrefix(pattern, "!")
		// path.Match knows [...] and \ besides, which mean themselves here.
		literal := strings.NewReplacer(`\`, `\\`, `[`, `\[`).Replace(pattern)
		if ok, err := path.Match(literal, name); err == nil && ok {
			if negated {
				return false
			}
			matched = true
		}
	}
	return matched
}

func parseAllowedSigners(text []byte) ([]signer, error) {
	var signers []signer
	number := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		number++
		line = strings.Trim(line, " \t\r")
		if line == "" || line[0] == '#' {
			continue
		}
		s, err := parseSigner(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		signers = append(signers, s)
	}
	return signers, nil
}

func parseSigner(line string) (signer, error) {
	rest, err := cutPrincipals(line)
	if err != nil {
		return signer{}, err
	}
	key, err := parseKey(rest)
	if err == nil {
		return signer{key: key}, nil
	}
	options, rest := cutOptions(rest)
	s, optErr := parseOptions(options)
	if optErr != nil {
		return signer{}, optErr
	}
	s.key, err = parseKey(rest)
	return s, err
}

// cutPrincipals checks the first field, a list that may stand in quotes, and gives
// what follows it.
func cutPrincipals(line string) (rest string, err error) {
	var list string
	if quoted, ok := strings.CutPrefix(line, `"`); ok {
		if list, rest, ok = strings.Cut(quoted, `"`); !ok {
			return "", errors.New("the principals' quote does not end")
		}
	} else if i := strings.IndexAny(line, " \t"); i >= 0 {
		list, rest = line[:i], line[i:]
	}
	for principal := range strings.SplitSeq(list, ",") {
		if principal != "" && principal[0] != '!' {
			return strings.TrimLeft(rest, " \t"), nil
		}
	}
	return "", errors.New("no principal is named, or no key")
}

// cutOptions takes the field before the first blank outside quotes.
func cutOptions(s string) (options, rest string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == '"':
			i++
		case s[i] == '"':
			quoted = !quoted
		case !quoted && (s[i] == ' ' || s[i] == '\t'):
			return s[:i], strings.TrimLeft(s[i:], " \t")
		}
	}
	return s, ""
}

// parseKey reads: keytype base64 [comment].
func parseKey(s string) (ssh.PublicKey, error) {
	fields := strings.Fields(s)
	if len(fields) < 2 {
		return nil, errors.New("no key")
	}
	blob, err := base64.StdEncoding.DecodeString(fields[1])
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	key, err := ssh.ParsePublicKey(blob)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	if key.Type() != fields[0] {
		return nil, fmt.Errorf("the key is of type %q, its line says %q", key.Type(), fields[0])
	}
	return key, usable(key)
}

func usable(key ssh.PublicKey) error {
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
		ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256:
		return nil
	case ssh.KeyAlgoRSA:
		inner, ok := key.(ssh.CryptoPublicKey)
		if !ok {
			return errors.New("an RSA key without numbers")
		}
		if n, ok := inner.CryptoPublicKey().(*rsa.PublicKey); !ok || n.N.BitLen() < minRSABits {
			return errors.New("an RSA key of fewer than 2048 bits")
		}
		return nil
	}
	return fmt.Errorf("key type %q is not taken", key.Type())
}
