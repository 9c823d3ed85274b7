package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate/tokens"
)

// A DenyList keeps which tokens orgs have denied; *tokens.DenyList is one.
type DenyList interface {
	// Deny fails with tokens.ErrBadDenial.
	Deny(ctx context.Context, org string, d tokens.Denial) (tokens.Denial, error)
	// Denials fails with tokens.ErrBadDenial for a cursor that is none.
	Denials(ctx context.Context, org, cursor string, limit int) (list []tokens.Denial, next string, err error)
	// Allow fails with tokens.ErrDenialNotFound.
	Allow(ctx context.Context, org, id string) error
}

var _ DenyList = (*tokens.DenyList)(nil)

// deniedBy is who makes denials by these routes: there is one operator.
const deniedBy = "operator"

// denialsMost is the longest page of denials.
const denialsMost = 1000

var (
	errNoDenyList = &requestError{kind: kindNotSupported, text: "this server keeps no denials"}
	errNoOrg      = invalid("org is missing")
)

// A denialBody is a denial as it is told. Nothing in it is a secret.
type denialBody struct {
	ID           string    `json:"id"`
	TokenSHA256  string    `json:"token_sha256,omitempty"`
	TokenID      string    `json:"jti,omitempty"`
	Subject      string    `json:"sub,omitempty"`
	IssuedBefore time.Time `json:"issued_before,omitzero"`
	Until        time.Time `json:"until,omitzero"`
	Reason       string    `json:"reason,omitempty"`
	By           string    `json:"by,omitempty"`
	At           time.Time `json:"at,omitzero"`
}

func denialBodyOf(d tokens.Denial) denialBody {
	return denialBody{
		ID: d.ID, TokenSHA256: d.TokenSHA256, TokenID: d.TokenID, Subject: d.Subject, IssuedBefore: d.IssuedBefore,
		Until: d.Until, Reason: d.Reason, By: d.By, At: d.At,
	}
}

// operatorDeny refuses what a request names on every node: on this one before it is
// answered.
func (s *Server) operatorDeny(q *request) error {
	var want struct {
		Org          string    `json:"org"`
		TokenSHA256  string    `json:"token_sha256"`
		TokenID      string    `json:"jti"`
		Subject      string    `json:"sub"`
		IssuedBefore time.Time `json:"issued_before"`
		Until        time.Time `json:"until"`
		Reason       string    `json:"reason"`
	}
	if err := s.readJSON(q, &want); err != nil {
		return err
	}
	if err := s.keepsDenials(want.Org); err != nil {
		return err
	}
	made, err := s.Denials.Deny(q.ctx(), want.Org, tokens.Denial{
		TokenSHA256: want.TokenSHA256, TokenID: want.TokenID, Subject: want.Subject, IssuedBefore: want.IssuedBefore,
		Until: want.Until, Reason: want.Reason, By: deniedBy,
	})
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, denialBodyOf(made))
}

func (s *Server) operatorDenials(q *request) error {
	v := q.query()
	org, cursor, limit := v.text("org"), v.text("cursor"), v.limit(pageMost, denialsMost)
	if v.err != nil {
		return v.err
	}
	if err := s.keepsDenials(org); err != nil {
		return err
	}
	list, next, err := s.Denials.Denials(q.ctx(), org, cursor, limit)
	if err != nil {
		return err
	}
	denials := make([]denialBody, len(list))
	for i, d := range list {
		denials[i] = denialBodyOf(d)
	}
	return q.x.json(http.StatusOK, struct {
		Denials []denialBody `json:"denials"`
		pageBody
	}{denials, pageOf(next)})
}

func (s *Server) operatorAllow(q *request) error {
	var want struct {
		Org string `json:"org"`
		ID  string `json:"id"`
	}
	if err := s.readJSON(q, &want); err != nil {
		return err
	}
	if err := s.keepsDenials(want.Org); err != nil {
		return err
	}
	if err := s.Denials.Allow(q.ctx(), want.Org, want.ID); err != nil {
		return err
	}
	q.x.WriteHeader(http.StatusNoContent)
	return nil
}

// keepsDenials is nil if there is a list for the denials of org.
func (s *Server) keepsDenials(org string) error {
	switch {
	case s.Denials == nil:
		return errNoDenyList
	case org == "":
		return errNoOrg
	}
	return nil
}
