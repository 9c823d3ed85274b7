package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/tokens"
)

// gitCredentialCmd is a credential helper (gitcredentials(7)): git asks it for the
// token, and it renews the token when half of its life is over. The token stands in a
// file, so that each renewal finds the newest.
type gitCredentialCmd struct {
	Server    string `required:"" placeholder:"URL" help:"The server that the token is for; git is told the token for no other."`
	TokenFile string `required:"" placeholder:"FILE" type:"path" help:"The file with the token, alone; renewed tokens are written into it."`
	Operation string `arg:"" help:"What git asks: get, store or erase."`

	In  io.Reader        `kong:"-"` // nil: standard input
	Err io.Writer        `kong:"-"` // nil: standard error
	Now func() time.Time `kong:"-"` // nil: time.Now
}

// maxCredentialInput bounds what git says of what it wants; it is a few lines.
const maxCredentialInput = 64 << 10

var errEmptyTokenFile = errors.New("the token file is empty")

// Run answers one call of git's. Only get does anything: a token is neither kept for
// git nor thrown away at its word.
func (c *gitCredentialCmd) Run(ctx context.Context, out io.Writer) error {
	c.fill()
	wanted, err := readAttributes(io.LimitReader(c.In, maxCredentialInput))
	if err != nil || c.Operation != "get" {
		return err
	}
	server, err := url.Parse(c.Server)
	if err != nil || wanted["protocol"] != server.Scheme || wanted["host"] != server.Host {
		return err // somebody else's
	}
	token, told, err := c.current(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "username=t\npassword=%s\npassword_expiry_utc=%d\n", token, told.ExpiresAt.Unix())
	return err
}

func (c *gitCredentialCmd) fill() {
	if c.In == nil {
		c.In = os.Stdin
	}
	if c.Err == nil {
		c.Err = os.Stderr
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

// readAttributes reads
//
//	input     = *attribute
//	attribute = key "=" value LF
func readAttributes(r io.Reader) (map[string]string, error) {
	attributes := map[string]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() && lines.Text() != "" {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if !ok {
			return nil, fmt.Errorf("read what git wants: a line is no key=value")
		}
		attributes[key] = value
	}
	return attributes, lines.Err()
}

// current gives the token of the file, renewed when it is time. Only one process
// renews at a time; the others find what it has written.
func (c *gitCredentialCmd) current(ctx context.Context) (string, tokens.Told, error) {
	token, told, err := c.read()
	if err != nil || !c.aging(told) {
		return token, told, err
	}
	unlock, err := lockFile(c.TokenFile + ".lock")
	if err != nil {
		return "", told, err
	}
	defer unlock()
	if token, told, err = c.read(); err != nil || !c.aging(told) {
		return token, told, err
	}
	renewed, err := c.renew(ctx, token)
	if err == nil {
		return renewed.Token, tokens.Told{ExpiresAt: renewed.ExpiresAt}, nil
	}
	if c.Now().Before(told.ExpiresAt) {
		fmt.Fprintf(c.Err, "headgate: the token could not be renewed and is good until %s: %s\n",
			told.ExpiresAt.UTC().Format(time.RFC3339), client.Printable(err.Error()))
		return token, told, nil
	}
	return "", told, fmt.Errorf("renew token: %w", err)
}

func (c *gitCredentialCmd) read() (string, tokens.Told, error) {
	text, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", tokens.Told{}, fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", tokens.Told{}, errEmptyTokenFile
	}
	told, err := tokens.ReadUnverified(token)
	return token, told, err
}

// aging reports whether half of a token's life is over. One that does not say when
// it began is renewed in its last five minutes.
func (c *gitCredentialCmd) aging(t tokens.Told) bool {
	left := t.ExpiresAt.Sub(c.Now())
	if t.IssuedAt.IsZero() {
		return left < 5*time.Minute
	}
	return left < t.ExpiresAt.Sub(t.IssuedAt)/2
}

func (c *gitCredentialCmd) renew(ctx context.Context, token string) (client.Renewed, error) {
	api, err := client.NewAPI(c.Server, token)
	if err != nil {
		return client.Renewed{}, err
	}
	renewed, err := api.Renew(ctx)
	if err != nil {
		return renewed, err
	}
	return renewed, writeDurable(c.TokenFile, []byte(renewed.Token+"\n"))
}

// lockFile waits until no other process holds the lock at path, and takes it.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock token file: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock token file: %w", err)
	}
	return func() { f.Close() }, nil // closing lets go of the lock
}
