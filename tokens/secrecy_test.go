package tokens

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// leaks gives a piece of 20 characters that text shares with secret, or "".
func leaks(text, secret string) string {
	const piece = 20
	for i := 0; i+piece <= len(secret); i++ {
		if strings.Contains(text, secret[i:i+piece]) {
			return secret[i : i+piece]
		}
	}
	return ""
}

// Case 3.6: nothing that may come into a log or an answer holds a piece of a
// token, as it travels or taken apart.
func TestCase3_6_NoTokenTextInErrors(t *testing.T) {
	v, _, clk := acme(t, ecOne())
	long := strings.Repeat("a-long-secret-text-", 4)
	good := goodClaims()
	late := goodClaims()
	late.IssuedAt = testNow.Add(24 * time.Hour)
	badRef := goodClaims()
	badRef.Refs = []refpolicy.Rule{{Pattern: long + "*", Ops: []refpolicy.Op{refpolicy.NoPush}}}
	unknown := goodClaims()
	unknown.Org = long
	noRepo := goodClaims()
	noRepo.Repo = ""
	reserved := goodClaims()
	reserved.KeyID = "hg-" + long

	raws := []string{
		sign(t, ecTwo(), good), sign(t, ecOne(), late), sign(t, ecOne(), badRef), sign(t, ecOne(), unknown),
		sign(t, ecOne(), noRepo), sign(t, ecOne(), reserved), sign(t, ecOne(), good) + "=",
		craft(t, ecOne(), `{"alg":"`+long+`"}`, goodPayload),
		craft(t, ecOne(), `{"alg":"ES256","crit":["`+long+`"]}`, goodPayload),
		craft(t, ecOne(), es256Header, `{"`+long+`":1,"`+long+`":2}`),
		craft(t, ecOne(), es256Header, `{"exp":"`+long+`"}`),
		craft(t, ecOne(), es256Header, `{"refs":["`+long+`"]}`),
		craft(t, ecOne(), es256Header, `{"`+long),
		long, "." + long + ".",
	}
	check := func(raw string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("Verify took a token that was made to be refused")
			return
		}
		texts := []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)}
		secrets := []string{raw, long}
		for _, part := range strings.Split(raw, ".") {
			if b, err := base64.RawURLEncoding.DecodeString(part); err == nil {
				secrets = append(secrets, string(b))
			}
		}
		for _, text := range texts {
			for _, secret := range secrets {
				if piece := leaks(text, secret); piece != "" {
					t.Errorf("error %q holds %q of the token", text, piece)
				}
			}
		}
	}
	for _, raw := range raws {
		_, err := v.Verify(t.Context(), raw)
		check(raw, err)
	}
	raw := sign(t, ecOne(), good)
	p, err := v.Verify(t.Context(), raw)
	if err != nil {
		t.Fatalf("Verify = %v", err)
	}
	shown, err := json.Marshal(p)
	if err != nil {
		t.Fatalf("marshal principal: %v", err)
	}
	for _, text := range []string{string(shown), fmt.Sprintf("%+v", p), ShortHash(raw)} {
		if piece := leaks(text, raw); piece != "" {
			t.Errorf("%q holds %q of the token", text, piece)
		}
	}
	clk.set(testNow.Add(48 * time.Hour))
	_, err = v.Verify(t.Context(), raw)
	check(raw, err)
}

// no error about a key file holds a piece of the key.
func TestA14_NoKeyTextInErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.pem")
	der := must(x509.MarshalPKCS8PrivateKey(ecOne()))
	text := string(pemOf("PRIVATE KEY", der))
	lines := strings.Split(text, "\n")
	body := strings.Join(lines[1:len(lines)-2], "\n")
	for name, content := range map[string]string{
		"as it is":      text,
		"without frame": body,
		"cut":           text[:len(text)/2],
		"wrong frame":   strings.ReplaceAll(text, "PRIVATE KEY", "RSA PRIVATE KEY"),
		"said public":   strings.ReplaceAll(text, "PRIVATE KEY", "PUBLIC KEY"),
		"twice":         text + text,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, public := ReadPublicKey(path)
		_, private := ReadPrivateKey(path)
		if public == nil {
			t.Errorf("%s: ReadPublicKey took a private key", name)
		}
		for _, err := range []error{public, private} {
			if err == nil {
				continue
			}
			for _, line := range lines[1 : len(lines)-2] {
				if piece := leaks(err.Error(), line); piece != "" {
					t.Errorf("%s: error %q holds %q of the key", name, err, piece)
				}
			}
		}
	}
}
