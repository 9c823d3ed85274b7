// Package client speaks to a running server for the command line. A Client asks the
// operator's routes and carries the operator's key; an API asks those of a repo and
// carries a token. Neither follows a redirect, so that key and token go nowhere else. What a server sends is not trusted: sums are checked, lines and
// files have to come in their order, and an answer without an end is ErrCut.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A Client asks one server.
type Client struct {
	base string
	key  string
	http *http.Client
}

// idleLimit is how long a server may be silent; it tells something every few seconds.
const idleLimit = 2 * time.Minute

// New makes a client for the server at an http or https address. Errors: ErrBadURL.
func New(server, key string) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, ErrBadURL // its text may hold what is not to be told
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = idleLimit
	t.DisableCompression = true
	return &Client{base: strings.TrimRight(server, "/"), key: key, http: &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// ask posts a body and gives the events of the answer to see, until the result.
func (c *Client) ask(ctx context.Context, what string, body io.Reader, see func(*events, event) error) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/api/operator/"+what, body)
	if err != nil {
		return err
	}
	what, _, _ = strings.Cut(what, "?")
	req.Header.Set("Authorization", "Bearer "+c.key)
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized:
		return fmt.Errorf("%s: %w", what, ErrUnknownKey)
	default:
		return fmt.Errorf("%s: %w", what, refusal(resp))
	}
	silence := time.AfterFunc(idleLimit, func() { cancel(ErrSilent) })
	defer silence.Stop()
	e := newEvents(&watched{r: resp.Body, heard: func() { silence.Reset(idleLimit) }})
	if err := e.each(see); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// watched tells of every read that brings something.
type watched struct {
	r     io.Reader
	heard func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if n > 0 {
		w.heard()
	}
	return n, err
}

// refusal reads what a server says that does not do what it was asked.
func refusal(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	r := &ServerError{Status: resp.StatusCode, Again: retryAfter(resp.Header)}
	var said struct{ Error, Code string }
	if json.Unmarshal(text, &said) == nil {
		r.Code, r.Text, r.Body = Printable(said.Code), Printable(said.Error), text
	}
	if r.Text == "" {
		r.Text = http.StatusText(resp.StatusCode)
	}
	return r
}

// want is the body of what is asked about some repos.
type want struct {
	Org  string `json:"org,omitempty"`
	Repo string `json:"repo,omitempty"`
	Now  bool   `json:"now,omitempty"`
	Form string `json:"form,omitempty"`
}

func (w want) body() io.Reader {
	b, _ := json.Marshal(w) // strings and a bool
	return bytes.NewReader(b)
}

// Done is what upkeep did to one repo.
type Done struct {
	Org, Repo                        string
	Dead, Condemned, Merged, Removed int
	Indexed                          bool
}

// GC has the server look after repos of an org and of a name (empty: all), and tells
// what was done to each.
func (c *Client) GC(ctx context.Context, org, repo string, now bool, tell func(Done)) error {
	return c.ask(ctx, "gc", want{Org: org, Repo: repo, Now: now}.body(), func(_ *events, e event) error {
		if e.Type != "gc" || e.GC == nil {
			return errOutOfPlace
		}
		tell(Done{e.Org, e.Repo, e.GC.Dead, e.GC.Condemned, e.GC.Merged, e.GC.Removed, e.GC.Indexed})
		return nil
	})
}

// A Finding is a piece of damage.
type Finding struct{ Kind, Subject, Detail string }

// Fsck has the server check repos as GC picks them, and tells what was found in each:
// nothing in a sound one.
func (c *Client) Fsck(ctx context.Context, org, repo string, tell func(org, repo string, found []Finding)) error {
	return c.ask(ctx, "fsck", want{Org: org, Repo: repo}.body(), func(_ *events, e event) error {
		if e.Type != "fsck" {
			return errOutOfPlace
		}
		tell(e.Org, e.Repo, e.Findings)
		return nil
	})
}

// Bundle writes a repo's bundle to w.
func (c *Client) Bundle(ctx context.Context, org, repo string, w io.Writer) error {
	files := 0
	return c.ask(ctx, "export", want{Org: org, Repo: repo, Form: "bundle"}.body(), func(s *events, e event) error {
		if files++; e.Type != "file" || files > 1 {
			return errOutOfPlace
		}
		return s.file(w)
	})
}

// Mirror gives each file of a repo's export to take, which reads it to its end.
func (c *Client) Mirror(ctx context.Context, org, repo string, take func(name string, body io.Reader) error) error {
	return c.ask(ctx, "export", want{Org: org, Repo: repo}.body(), func(s *events, e event) error {
		if e.Type != "file" {
			return errOutOfPlace
		}
		body, w := io.Pipe()
		sent := make(chan error, 1)
		go func() {
			err := s.file(w)
			w.CloseWithError(err)
			sent <- err
		}()
		err := take(e.File.Name, body)
		body.CloseWithError(errors.Join(errNotTaken, err))
		if serr := <-sent; err == nil {
			err = serr
		}
		return err
	})
}
