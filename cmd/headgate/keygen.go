package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/tokens"
)

// keygenCmd makes the key pair with which an org's backend signs tokens, the one that
// its saves are sealed to, or the server's own. HEADGATE_SERVER is another command's: an
// address.
type keygenCmd struct {
	Org     string `placeholder:"ORG" help:"The org that the key is for."`
	Out     string `placeholder:"DIR" type:"path" help:"The folder for ORG.key.pem and ORG.pub.pem; made when it is not there."`
	Capture bool   `env:"-" help:"Make a capture key, to which saves are sealed, instead of an org's: capture.key.pem and capture.pub.pem."`
	Server  bool   `env:"-" help:"Make new keys of the server instead of an org's: one signs the tokens it issues, one seals."`
	Keys    string `placeholder:"DIR" type:"path" help:"With --server: the folder of the server's keys, as serve has it."`
	Retire  string `env:"-" placeholder:"ID" help:"With --server: remove this key instead of making one."`
}

// Validate says what a command line lacks.
func (c *keygenCmd) Validate() error {
	switch {
	case !c.Server && c.Retire != "":
		return errors.New("--retire goes with --server")
	case c.Capture && (c.Server || c.Org != "" || c.Out == ""):
		return errors.New("--capture wants --out DIR, and neither --org nor --server")
	case !c.Server && !c.Capture && (c.Org == "" || c.Out == ""):
		return errors.New("want --org ORG --out DIR, --capture --out DIR, or --server --keys DIR")
	case c.Server && c.serverFolder() == "":
		return errors.New("--server wants --keys DIR: the folder that serve has as --keys (keys in its data folder unless given)")
	}
	return nil
}

// serverFolder is where the server's keys are; --out names it as well.
func (c *keygenCmd) serverFolder() string {
	if c.Keys != "" {
		return c.Keys
	}
	return c.Out
}

// Run writes both files and says where, or writes nothing: files that are there
// already stay as they are.
func (c *keygenCmd) Run(out io.Writer) error {
	switch {
	case c.Server:
		return c.runServer(out)
	case c.Capture:
		return c.runCapture(out)
	}
	private, public, err := writeOrgKey(c.Out, c.Org)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s  signs tokens for %s; keep it in your backend\n%s  goes to the server: --trust %s=%s\n",
		private, c.Org, public, c.Org, public)
	return err
}

// runCapture makes a capture key and says what its halves are for.
func (c *keygenCmd) runCapture(out io.Writer) error {
	private, public, err := writeCaptureKey(c.Out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s  opens what is sealed; keep it, nobody can replace it\n%s  goes to sessions (capture_key) and runners (headgate snapshot save --seal %s)\n",
		private, public, public)
	return err
}

// writeOrgKey makes a new ES256 key for org and gives the paths of its files below dir.
func writeOrgKey(dir, org string) (private, public string, err error) {
	if err := checkOrg(org); err != nil {
		return "", "", fmt.Errorf("org %w", err)
	}
	private, public = filepath.Join(dir, org+".key.pem"), filepath.Join(dir, org+".pub.pem")
	if _, err := os.Lstat(public); !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("write key %s: %w", public, fs.ErrExist)
	}
	key, err := tokens.GenerateKey()
	if err != nil {
		return "", "", fmt.Errorf("make key: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("make folder: %w", err)
	}
	if err := tokens.WritePrivateKey(private, key); err != nil {
		return "", "", err
	}
	if err := tokens.WritePublicKey(public, key.Public()); err != nil {
		return "", "", errors.Join(err, os.Remove(private))
	}
	return private, public, nil
}
