package httpapi

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/tokens"
)

// A request is an exchange that was let in.
type request struct {
	x    *exchange
	r    *http.Request
	who  *tokens.Principal
	name string         // of the repo, where the route has one
	repo *gitstore.Repo // where the route opens one
	id   string         // of what else the path names, where the route has {id}
	part string         // of what belongs to that, where the route has {part}
	hash string         // of a chunk, where the route has {hash}

	// stale is set on routes for evenStale tokens: the session was taken over.
	stale *sessions.StaleEpochError

	named *namedCall // with an Idempotency-Key

	target string // the branch a write is about, as soon as it is known
}

func (q *request) ctx() context.Context { return q.r.Context() }

func (q *request) caller() gitstore.Caller { return callerOf(q.who) }

// callerOf is what the store knows of who asks.
func callerOf(p *tokens.Principal) gitstore.Caller {
	return gitstore.Caller{
		Actor: gitstore.Actor{
			Org: p.Org, Subject: p.Subject, KeyID: p.KeyID, TokenID: p.TokenID,
			Session: p.Session, Epoch: p.Epoch,
		},
		Policy: p.Policy,
	}
}

// admit checks, in this order: the token, the limits on who may be here at once,
// that claim and path agree, what an issued token may at all, the scope, and that
// the repo exists.
func (s *Server) admit(rt *route, q *request, ctx echo.Context) error {
	var err error
	if q.who, err = s.authenticate(q.x, q.r, false); err != nil {
		return err
	}
	kind := places
	switch {
	case rt.git:
		kind = gitPlaces
	case rt.lasting && lasts(q.r):
		kind = streamPlaces
	}
	if err := s.letIn(q.x, q.r, kind); err != nil {
		return err
	}
	if rt.git {
		q.r = sharing(q.r, q.who)
	}
	if rt.access >= repoName {
		if q.name, err = namedRepo(ctx, q.who); err != nil {
			return err
		}
		q.x.repo = q.name
	}
	if q.id, err = param(ctx, "id"); err != nil {
		return err
	}
	if q.part, err = param(ctx, "part"); err != nil {
		return err
	}
	if q.hash, err = param(ctx, "hash"); err != nil {
		return err
	}
	if q.who.Issued {
		if err := s.confine(rt, q); err != nil {
			return err
		}
	}
	if rt.scope != "" {
		if err := q.who.Require(rt.scope); err != nil {
			return err
		}
	}
	if rt.sessions && s.Sessions == nil {
		return &requestError{kind: kindNotSupported, text: "this server keeps no sessions"}
	}
	if rt.snapshots && s.Snapshots == nil {
		return errNoSnapshots
	}
	if rt.access == repoOpen && q.repo == nil {
		q.repo, err = s.Store.Repo(q.ctx(), q.who.Org, q.name)
	}
	return err
}

// letIn makes a request wait until there is a place for it, and then for its turn.
// Its body is not touched before it has a place; a small one is then read ahead, so
// that waiting for it costs nobody a turn, unless the client waits to be asked for it.
func (s *Server) letIn(x *exchange, r *http.Request, kind supply) error {
	upload := int64(0)
	if x.body != nil && r.ContentLength > countedBody {
		upload = r.ContentLength
	}
	p, err := s.fair.enter(r.Context(), x.who, kind, upload)
	if err != nil {
		return err
	}
	x.pass = p
	if x.body != nil {
		x.body.pass, x.body.paid = p, max(upload, countedBody)
		if r.ContentLength > 0 && r.ContentLength <= smallBody && r.Header.Get("Expect") == "" {
			x.body.hold(r.ContentLength)
			if x.body.broken() { // net/http has ended the request's context with it
				return bodyError(x.body.end)
			}
		}
	}
	return p.begin()
}

// sharing is a request whose git processes count as its org's.
func sharing(r *http.Request, who *tokens.Principal) *http.Request {
	return r.WithContext(gitcmd.ShareOf(r.Context(), who.Org))
}

// namedRepo is the repo of the token's claim, which the path must agree with where
// it names one, byte for byte.
func namedRepo(ctx echo.Context, who *tokens.Principal) (string, error) {
	if len(ctx.ParamNames()) == 0 {
		return who.Repo, nil
	}
	name, err := param(ctx, "repo")
	if err != nil || name != who.Repo {
		return "", gitstore.ErrRepoNotFound
	}
	return name, nil
}

// authenticate finds out who asks.
func (s *Server) authenticate(x *exchange, r *http.Request, git bool) (*tokens.Principal, error) {
	token, err := credentials(r, git)
	if err != nil {
		return nil, err
	}
	who, err := s.Tokens.Verify(r.Context(), token)
	if err != nil {
		x.token = tokens.ShortHash(token)
		return nil, err
	}
	x.who = who
	return who, nil
}

var errNoCredentials = &requestError{kind: kindNoCredentials, text: "authorization required"}

// credentials takes the token out of the Authorization header: Bearer, on git
// paths also Basic with any user name and the token as the password. The scheme's
// case does not count.
func credentials(r *http.Request, git bool) (string, error) {
	headers := r.Header["Authorization"]
	if len(headers) != 1 {
		return "", errNoCredentials
	}
	scheme, value, _ := strings.Cut(strings.TrimSpace(headers[0]), " ")
	value = strings.TrimSpace(value)
	switch {
	case value == "":
		return "", errNoCredentials
	case strings.EqualFold(scheme, "bearer"):
		return value, nil
	case git && strings.EqualFold(scheme, "basic"):
		return passwordOf(value)
	}
	return "", errNoCredentials
}

func passwordOf(basic string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(basic)
	if err != nil {
		return "", errNoCredentials
	}
	_, password, _ := strings.Cut(string(raw), ":")
	if password == "" {
		return "", errNoCredentials
	}
	return password, nil
}

// challenge is the WWW-Authenticate header of a 401: git sends the credentials of
// its URL only after one for Basic.
func challenge(routeName string) string {
	if strings.HasPrefix(routeName, "git") {
		return `Basic realm="Git Repository"`
	}
	return `Bearer realm="headgate"`
}
