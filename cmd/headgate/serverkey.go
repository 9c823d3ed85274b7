package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/tokens"
)

// serverKeysName is the folder below the data folder where the server's own keys are
// unless --keys names another.
const serverKeysName = "keys"

// runServer makes new keys of the server, or retires one that signs, and says what
// comes next.
func (c *keygenCmd) runServer(out io.Writer) error {
	folder := c.serverFolder()
	if c.Retire != "" {
		if err := tokens.RetireServerKey(folder, c.Retire); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "%s is removed: each server refuses what it signed from its next SIGHUP or start on\n", c.Retire)
		return err
	}
	id, err := tokens.AddServerKey(folder, time.Now())
	if err != nil {
		return err
	}
	keys, err := tokens.OpenServerKeys(folder, tokens.ServerKeyOptions{})
	if err != nil {
		return fmt.Errorf("key %s is made, but servers will not start with this folder: %w", id, err)
	}
	sealing, err := addSealKey(folder, time.Now())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s%s  is what saves are sealed to, from then on; older ones open what was sealed to them: keep them\n",
		afterServerKey(folder, keys.List()), sealing)
	return err
}

func afterServerKey(folder string, keys []tokens.ServerKeyInfo) string {
	var text strings.Builder
	newest := keys[len(keys)-1]
	fmt.Fprintf(&text, "%s  signs the tokens that a server issues, from its next SIGHUP or start on; every server with this folder takes them at once\n",
		filepath.Join(folder, newest.ID+".key.pem"))
	if len(keys) == 1 {
		return text.String()
	}
	fmt.Fprintln(&text, "older keys still verify; when all servers have had their SIGHUP and the longest life of a token (sessions.token_max_ttl) is over, retire them:")
	for _, k := range keys[:len(keys)-1] {
		fmt.Fprintf(&text, "  headgate keygen --server --keys %s --retire %s   (of %s)\n", folder, k.ID, k.CreatedAt.Format(time.DateOnly))
	}
	return text.String()
}
