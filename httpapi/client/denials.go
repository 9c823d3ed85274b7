package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A Denial says which tokens of an org are refused; see tokens.Denial.
type Denial struct {
	ID           string    `json:"id,omitempty"`
	TokenSHA256  string    `json:"token_sha256,omitempty"`
	TokenID      string    `json:"jti,omitempty"`
	Subject      string    `json:"sub,omitempty"`
	IssuedBefore time.Time `json:"issued_before,omitzero"`
	Until        time.Time `json:"until,omitzero"`
	Reason       string    `json:"reason,omitempty"`
	By           string    `json:"by,omitempty"`
	At           time.Time `json:"at,omitzero"`
}

// Deny has the server refuse what d names, and gives d as it is kept.
func (c *Client) Deny(ctx context.Context, org string, d Denial) (made Denial, err error) {
	body := struct {
		Org string `json:"org"`
		Denial
	}{org, d}
	err = c.do(ctx, http.MethodPost, "deny", body, &made)
	if err == nil && made.ID == "" {
		err = fmt.Errorf("deny: %w", ErrBadAnswer)
	}
	return made, err
}

// Denials gives all that org denies to tell, a page after the other.
func (c *Client) Denials(ctx context.Context, org string, tell func(Denial)) error {
	for q := (url.Values{"org": {org}}); ; {
		var page struct {
			Denials []Denial `json:"denials"`
			Next    string   `json:"next_cursor"`
		}
		if err := c.do(ctx, http.MethodGet, "denials?"+q.Encode(), nil, &page); err != nil {
			return err
		}
		for _, d := range page.Denials {
			tell(d)
		}
		switch {
		case page.Next == "":
			return nil
		case page.Next <= q.Get("cursor"): // ids are in order: else it would not end
			return fmt.Errorf("denials: %w", ErrBadAnswer)
		}
		q.Set("cursor", page.Next)
	}
}

// Allow takes a denial back.
func (c *Client) Allow(ctx context.Context, org, id string) error {
	body := struct {
		Org string `json:"org"`
		ID  string `json:"id"`
	}{org, id}
	return c.do(ctx, http.MethodPost, "allow", body, nil)
}

// do asks one of the operator's routes that answer with one JSON object, or with
// nothing. in and out may be nil.
func (c *Client) do(ctx context.Context, method, what string, in, out any) error {
	err := ask(ctx, c.http, method, c.base+"/api/operator/"+what, c.key, in, out)
	what, _, _ = strings.Cut(what, "?")
	var refused *ServerError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && refused.Status == http.StatusUnauthorized:
		return fmt.Errorf("%s: %w", what, ErrUnknownKey)
	}
	return fmt.Errorf("%s: %w", what, err)
}
