package harness

import (
	"crypto"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/tokens"
)

// An Org is a customer with the key pair that headgate keygen made.
type Org struct {
	Name       string
	PublicFile string
	KeyFile    string
	Key        crypto.Signer
}

// NewOrg makes a key pair in dir with the program's own command.
func NewOrg(program, dir, name string) (*Org, error) {
	cmd := exec.Command(program, "keygen", "--org", name, "--out", dir)
	cmd.Env = append(os.Environ(), raceOptions)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("headgate keygen --org %s: %w\n%s", name, err, out)
	}
	o := &Org{
		Name: name, PublicFile: filepath.Join(dir, name+".pub.pem"), KeyFile: filepath.Join(dir, name+".key.pem"),
	}
	o.Key, err = tokens.ReadPrivateKey(o.KeyFile)
	return o, err
}

// Trust is the argument of --trust for this org.
func (o *Org) Trust() string { return o.Name + "=" + o.PublicFile }

// Sign signs c as this org, for twelve hours unless c says otherwise: a long run uses
// one token.
func (o *Org) Sign(c tokens.Claims) (string, error) {
	c.Org = o.Name
	if c.Subject == "" {
		c.Subject = "backend"
	}
	if c.IssuedAt.IsZero() {
		c.IssuedAt = time.Now()
	}
	if c.ExpiresAt.IsZero() {
		c.ExpiresAt = time.Now().Add(12 * time.Hour)
	}
	return tokens.Sign(o.Key, c)
}
