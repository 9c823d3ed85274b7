package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/headgate/headgate/httpapi/client"
)

type sessionForkCmd struct {
	sessionArg
	N         int    `arg:"" help:"How many children."`
	Tokens    bool   `help:"Issue a token for each child and print it with it."`
	Snapshot  string `name:"from-snapshot" placeholder:"SHA" help:"Make them of a memory snapshot's state instead of the session's head."`
	KeepState bool   `default:"true" negatable:"" help:"Keep the state that they came from when the last child has ended."`
}

// Run prints the group and its children.
func (c *sessionForkCmd) Run(ctx context.Context, out io.Writer) error {
	body := map[string]any{"n": c.N, "keep_state": c.KeepState}
	textsOf(body, map[string]string{"from_snapshot": c.Snapshot})
	if c.Tokens {
		body["token"] = map[string]any{}
	}
	type fork struct {
		GroupID  string `json:"group_id"`
		StateSHA string `json:"state_sha"`
		Children []struct {
			Session shownSession `json:"session"`
			Token   *struct {
				Token string `json:"token"`
			} `json:"token"`
		} `json:"children"`
	}
	return show(ctx, c.repoFlags, out, http.MethodPost, c.tail("fork"), body, 0, func(w io.Writer, f fork) {
		fmt.Fprintf(w, "group\t%s\nstate\t%s\n", client.Printable(f.GroupID), client.Printable(f.StateSHA))
		for _, child := range f.Children {
			token := ""
			if child.Token != nil {
				token = client.Printable(child.Token.Token)
			}
			fmt.Fprintln(w, strings.TrimRight("child\t"+client.Printable(child.Session.ID)+"\t"+token, "\t"))
		}
	})
}

// groupArg is the fork that a command is about.
type groupArg struct {
	repoFlags
	Group string `arg:"" help:"The fork's id."`
}

func (a groupArg) tail(more ...string) string {
	return client.Path(append([]string{"forks", a.Group}, more...)...)
}

type sessionCompareCmd struct{ groupArg }

// Run prints a line for each file that a child has changed.
func (c *sessionCompareCmd) Run(ctx context.Context, out io.Writer) error {
	type comparison struct {
		Files []struct {
			Path   string `json:"path"`
			Status string `json:"status"`
		} `json:"files"`
		Truncated bool `json:"truncated"`
	}
	return show(ctx, c.repoFlags, out, http.MethodGet, c.tail("compare"), nil, 0, func(w io.Writer, k comparison) {
		for _, f := range k.Files {
			fmt.Fprintf(w, "%s\t%s\n", client.Printable(f.Status), client.Printable(f.Path))
		}
		if k.Truncated {
			fmt.Fprintln(w, "and more")
		}
	})
}

type sessionPickCmd struct {
	groupArg
	Winner string `arg:"" help:"The child's session id."`
}

// Run prints the parent, which is at the winner's head now.
func (c *sessionPickCmd) Run(ctx context.Context, out io.Writer) error {
	return show(ctx, c.repoFlags, out, http.MethodPost, c.tail("pick"), map[string]any{"winner": c.Winner}, 0, sayLines)
}

type sessionCloseCmd struct{ groupArg }

// Run ends the children.
func (c *sessionCloseCmd) Run(ctx context.Context, out io.Writer) error {
	type closing struct {
		Ended int `json:"ended"`
		Gone  int `json:"gone"`
	}
	return show(ctx, c.repoFlags, out, http.MethodDelete, c.tail(), nil, 0, func(w io.Writer, k closing) {
		fmt.Fprintf(w, "%d children ended, %d had ended before\n", k.Ended, k.Gone)
	})
}
