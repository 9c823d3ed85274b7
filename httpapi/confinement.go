package httpapi

import (
	"context"
	"errors"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/tokens"
)

// A confinement is what a token that this server issued may do with a route. What
// a route does not say, such a token may not.
type confinement uint8

const (
	refused   confinement = iota
	ruled                 // what the token's scopes and rules let it
	ownOnly               // the same, of the session it is bound to: {id} names it
	evenStale             // also when its session has been taken over
)

var (
	errConfined    = &requestError{kind: kindForbidden, text: "an issued token reads, commits to its own branch, and renews itself and its session's lease; it may do nothing else"}
	errForeign     = &requestError{kind: kindForbidden, text: "token is bound to another session"}
	errIssuedLease = &requestError{kind: kindForbidden, text: "an issued token may renew and release its session's lease, not take it"}
	errNotIssued   = &requestError{kind: kindForbidden, text: "only a token that this server issued can be renewed here"}
)

// confine opens the repo of an issued token and refuses what the token may not:
// anything at all once it is dead, all but a little when its session was taken over.
func (s *Server) confine(rt *route, q *request) error {
	var err error
	if q.repo, err = s.Store.Repo(q.ctx(), q.who.Org, q.who.Repo); err != nil {
		return err
	}
	err = s.standing(q.ctx(), q.repo, q.who)
	if errors.As(err, &q.stale) && rt.issued == evenStale {
		err = nil
	}
	switch {
	case err != nil:
		return err
	case rt.issued == refused:
		return errConfined
	case rt.issued == ownOnly && q.id != q.who.Session:
		return errForeign
	}
	return nil
}

// standing is nil while an issued token may be used; else it is dead, or its
// session has been taken over.
func (s *Server) standing(ctx context.Context, repo *gitstore.Repo, who *tokens.Principal) error {
	if s.Sessions == nil {
		return sessions.ErrTokenDead
	}
	return s.Sessions.Standing(ctx, keepersRepo(repo), actorOf(who), ownRef(who))
}

// ownRef is the ref that an issued token may write: its first rule.
func ownRef(who *tokens.Principal) string {
	rules := who.Policy.Own().Rules()
	if len(rules) == 0 {
		return ""
	}
	return rules[0].Pattern
}
