package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/headgate/headgate/httpapi/client"
)

type sessionTokenCmd struct {
	sessionArg
	TTL  time.Duration `name:"ttl" help:"How long the token is good for; the server's default otherwise."`
	Read []string      `sep:"none" placeholder:"PATTERN" help:"Refs it may read besides its own. Can be repeated."`
}

// Run prints the token, alone on its line.
func (c *sessionTokenCmd) Run(ctx context.Context, out io.Writer) error {
	body := map[string]any{}
	if err := secondsOf(body, map[string]time.Duration{"ttl_s": c.TTL}); err != nil {
		return err
	}
	if len(c.Read) > 0 {
		body["read"] = c.Read
	}
	type issued struct {
		Token string `json:"token"`
	}
	return show(ctx, c.repoFlags, out, http.MethodPost, c.tail("tokens"), body, 0, func(w io.Writer, i issued) {
		fmt.Fprintln(w, client.Printable(i.Token))
	})
}

type sessionTokensCmd struct{ sessionArg }

// Run prints a line for each token.
func (c *sessionTokensCmd) Run(ctx context.Context, out io.Writer) error {
	type list struct {
		Tokens []struct {
			JTI       string    `json:"jti"`
			Epoch     uint64    `json:"epoch"`
			ExpiresAt time.Time `json:"expires_at"`
			RevokedAt time.Time `json:"revoked_at"`
		} `json:"tokens"`
	}
	return show(ctx, c.repoFlags, out, http.MethodGet, c.tail("tokens"), nil, 0, func(w io.Writer, l list) {
		fmt.Fprintln(w, "TOKEN\tEPOCH\tEXPIRES\tREVOKED")
		for _, t := range l.Tokens {
			revoked := "-"
			if !t.RevokedAt.IsZero() {
				revoked = t.RevokedAt.Format(time.RFC3339)
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", client.Printable(t.JTI), t.Epoch, t.ExpiresAt.Format(time.RFC3339), revoked)
		}
	})
}

type sessionRevokeCmd struct {
	sessionArg
	JTI string `arg:"" name:"jti" help:"The token's id, as it is listed."`
}

// Run revokes the token.
func (c *sessionRevokeCmd) Run(ctx context.Context) error {
	_, err := c.call(ctx, http.MethodDelete, c.tail("tokens", c.JTI), nil, 0)
	return err
}
