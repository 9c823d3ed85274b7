package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/tokens"
)

// denyCmd are the commands about tokens that are refused although they are good.
type denyCmd struct {
	Add    denyAddCmd    `cmd:"" help:"Refuse tokens of an org: a leaked one, or all of a subject that were issued before a time."`
	List   denyListCmd   `cmd:"" help:"List what an org denies."`
	Remove denyRemoveCmd `cmd:"" help:"Take a denial back."`
}

// denyOrg is the org whose tokens a command is about.
type denyOrg struct {
	storeFlags
	Org string `required:"" placeholder:"ORG" help:"The org that the tokens are of."`
}

type denyAddCmd struct {
	denyOrg
	TokenFile    string    `env:"-" placeholder:"FILE" type:"path" xor:"which" required:"" help:"Refuse the token in this file (- is standard input); only its SHA-256 is sent and kept."`
	SHA256       string    `env:"-" name:"sha256" placeholder:"HEX" xor:"which" required:"" help:"Refuse the token of this SHA-256."`
	JTI          string    `env:"-" name:"jti" placeholder:"ID" xor:"which" required:"" help:"Refuse the token of this jti."`
	Sub          string    `env:"-" placeholder:"SUBJECT" xor:"which" required:"" help:"Refuse tokens of this sub; see --issued-before."`
	IssuedBefore time.Time `env:"-" placeholder:"TIME" help:"With --sub: only those issued before (RFC 3339); now by default. Tokens that do not say when they were issued are refused too."`
	Until        time.Time `env:"-" placeholder:"TIME" help:"When the denial ends (RFC 3339); by default when it is removed. The token's exp and 60 s is long enough."`
	Reason       string    `env:"-" placeholder:"TEXT" help:"For whoever reads the list."`

	In io.Reader `kong:"-"` // nil: standard input
}

// deniedLocally is who makes a denial in a data folder.
const deniedLocally = "operator"

// Run prints the denial's id.
func (c *denyAddCmd) Run(ctx context.Context, out io.Writer) error {
	d, err := c.denial()
	if err != nil {
		return err
	}
	return c.withDenials(ctx, func(list denials) error {
		made, err := list.Deny(ctx, c.Org, d)
		if err == nil {
			_, err = fmt.Fprintln(out, client.Printable(made.ID))
		}
		return err
	})
}

func (c *denyAddCmd) denial() (client.Denial, error) {
	d := client.Denial{
		TokenSHA256: c.SHA256, TokenID: c.JTI, Subject: c.Sub, IssuedBefore: c.IssuedBefore, Until: c.Until, Reason: c.Reason,
	}
	if c.Sub == "" && !c.IssuedBefore.IsZero() {
		return d, errors.New("--issued-before goes with --sub")
	}
	if c.TokenFile == "" {
		return d, nil
	}
	raw, err := c.token()
	if err != nil {
		return d, err
	}
	told, err := tokens.ReadUnverified(raw)
	if err != nil {
		return d, fmt.Errorf("read token: %w", err)
	}
	// Denied for another org it would go on being good.
	if told.Org != c.Org {
		return d, fmt.Errorf("the token is of the org %q, not of %q", told.Org, c.Org)
	}
	d.TokenSHA256 = tokens.TokenSHA256(raw)
	return d, nil
}

func (c *denyAddCmd) token() (string, error) {
	in := c.In
	if in == nil {
		in = os.Stdin
	}
	if c.TokenFile != "-" {
		f, err := os.Open(c.TokenFile)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, 2*tokens.MaxTokenBytes))
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

type denyListCmd struct{ denyOrg }

// Run prints a line for each denial.
func (c *denyListCmd) Run(ctx context.Context, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "DENIAL\tMADE\tISSUED BEFORE\tUNTIL\tREASON")
	err := c.withDenials(ctx, func(list denials) error {
		return list.Denials(ctx, c.Org, func(d client.Denial) {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", client.Printable(d.ID),
				timeOrNone(d.At), timeOrNone(d.IssuedBefore), timeOrNone(d.Until), client.Printable(d.Reason))
		})
	})
	if err != nil {
		return err
	}
	return table.Flush()
}

func timeOrNone(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.RFC3339)
}

type denyRemoveCmd struct {
	denyOrg
	ID string `arg:"" name:"id" help:"The denial's id, as it is listed."`
}

// Run takes the denial back.
func (c *denyRemoveCmd) Run(ctx context.Context) error {
	return c.withDenials(ctx, func(list denials) error { return list.Allow(ctx, c.Org, c.ID) })
}

// denials are the list of a running server, or that of a data folder.
type denials interface {
	Deny(ctx context.Context, org string, d client.Denial) (client.Denial, error)
	Denials(ctx context.Context, org string, tell func(client.Denial)) error
	Allow(ctx context.Context, org, id string) error
}

var (
	_ denials = (*client.Client)(nil)
	_ denials = localDenials{}
)

// withDenials asks the running server, or opens the data folder for a moment.
func (f storeFlags) withDenials(ctx context.Context, do func(denials) error) error {
	switch {
	case f.Server != "":
		c, err := f.client()
		if err != nil {
			return err
		}
		return do(c)
	case f.Data == "":
		return errNoStore
	}
	return f.withNode(ctx, true, func(n *node) error {
		n.denied = tokens.NewDenyList(n.ledger, tokens.DenyListOptions{Logger: quietLog()}) // closed with the node
		return do(localDenials{n.denied})
	})
}

// localDenials are those of a data folder that this process has open.
type localDenials struct{ list *tokens.DenyList }

// Deny keeps d.
func (l localDenials) Deny(ctx context.Context, org string, d client.Denial) (client.Denial, error) {
	made, err := l.list.Deny(ctx, org, tokens.Denial{
		TokenSHA256: d.TokenSHA256, TokenID: d.TokenID, Subject: d.Subject, IssuedBefore: d.IssuedBefore,
		Until: d.Until, Reason: d.Reason, By: deniedLocally,
	})
	return shownDenial(made), err
}

// Denials gives all that org denies to tell.
func (l localDenials) Denials(ctx context.Context, org string, tell func(client.Denial)) error {
	for cursor := ""; ; {
		page, next, err := l.list.Denials(ctx, org, cursor, 1000)
		if err != nil {
			return err
		}
		for _, d := range page {
			tell(shownDenial(d))
		}
		if next == "" {
			return nil
		}
		cursor = next
	}
}

// Allow takes a denial back.
func (l localDenials) Allow(ctx context.Context, org, id string) error {
	return l.list.Allow(ctx, org, id)
}

func shownDenial(d tokens.Denial) client.Denial {
	return client.Denial{
		ID: d.ID, TokenSHA256: d.TokenSHA256, TokenID: d.TokenID, Subject: d.Subject, IssuedBefore: d.IssuedBefore,
		Until: d.Until, Reason: d.Reason, By: d.By, At: d.At,
	}
}
