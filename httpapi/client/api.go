package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// An API asks one server's routes for a repo with a token of its own, as a backend or
// a sandbox does.
type API struct {
	base  string
	token string
	http  *http.Client
}

const (
	// maxAnswer bounds an answer of the API that is read whole.
	maxAnswer = 64 << 20
	// answerLimit is how long a server may take beyond what it was asked to wait.
	answerLimit = time.Minute
)

// NewAPI makes an API for the server at an http or https address. Errors: ErrBadURL.
func NewAPI(server, token string) (*API, error) {
	c, err := New(server, "")
	if err != nil {
		return nil, err
	}
	c.http.Transport.(*http.Transport).ResponseHeaderTimeout = 0 // some calls wait; each has its own time
	return &API{base: c.base, token: token, http: c.http}, nil
}

// Do sends in (nil: no body) as JSON to a path below the server's address, and
// decodes the answer into out (nil: it is dropped). wait is how long the call may
// take besides. Errors: *ServerError.
func (a *API) Do(ctx context.Context, method, path string, in, out any, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit+wait)
	defer cancel()
	return ask(ctx, a.http, method, a.base+path, a.token, in, out)
}

// ask sends in as JSON and decodes the answer into out; either may be nil, for none.
// Errors: *ServerError, ErrBadAnswer.
func ask(ctx context.Context, c *http.Client, method, address, bearer string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return refusal(resp)
	}
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("%w: %w", ErrBadAnswer, err)
	}
	return nil
}

// Path joins the escaped segments of a path.
func Path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

// A Renewed is a token that goes on from another one.
type Renewed struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Renew trades the API's own token for one that lives longer. Errors: *ServerError.
func (a *API) Renew(ctx context.Context) (Renewed, error) {
	var r Renewed
	err := a.Do(ctx, http.MethodPost, "/api/tokens/renew", struct{}{}, &r, 0)
	if err == nil && (r.Token == "" || r.ExpiresAt.IsZero()) {
		err = ErrBadAnswer
	}
	return r, err
}
