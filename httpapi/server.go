package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/tokens"
)

// Verifier says who asks with a token; *tokens.Verifier is one.
type Verifier interface {
	// Verify fails with what wraps tokens.ErrUnauthorized or with tokens.ErrNoRepoClaim.
	Verify(ctx context.Context, token string) (*tokens.Principal, error)
}

var _ Verifier = (*tokens.Verifier)(nil)

// Issuer signs the tokens that sessions hand out.
type Issuer interface {
	// Mint signs the token that says g. Of the same grant it is the same token, for
	// as long as the same key signs. Errors: tokens.ErrGrantTooLarge.
	Mint(g tokens.Grant) (string, error)
}

var _ Issuer = (*tokens.Issuer)(nil)

// Config is what a Server is made of.
type Config struct {
	Store  *gitstore.Store
	Tokens Verifier
	// Sessions keeps the sessions of all repos; nil: there are none, and what was
	// issued to one is dead.
	Sessions *sessions.Keeper
	// Snapshots keeps the memory snapshots of all repos; nil: there are none.
	Snapshots *snapshot.Keeper
	Seals     Sealing // nil: nothing is sealed here
	Issuer    Issuer  // of the tokens of sessions; not nil where Sessions is not
	// Denials are what the operator's routes change of what Tokens refuses; nil: none.
	Denials DenyList
	// OperatorKey opens the operator's routes, and nothing else does; empty: nobody can.
	OperatorKey string
	// PublicURL is how clients reach this server, without a slash at its end; empty:
	// what each request came to.
	PublicURL string
	// Ready says whether requests can be served; nil: always.
	Ready   func(context.Context) error
	Metrics *Metrics     // nil: its own
	Logger  *slog.Logger // nil: slog.Default
	Limits  Limits       // zero fields take their defaults
	// InForce is what /api/limits tells of limits that are not this room's, under
	// the names of their settings; times as a time.Duration.
	InForce map[string]any
	Now     func() time.Time // nil: time.Now; for what a token's remaining life is told by
}

// A Server answers HTTP. It is an http.Handler, safe for concurrent use.
type Server struct {
	Config
	router *echo.Echo
	fair   *fairness
	feeds  *feeds
}

// New makes a Server of c.
func New(c Config) *Server {
	c.Limits = c.Limits.withDefaults()
	c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Ready == nil {
		c.Ready = func(context.Context) error { return nil }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Server{Config: c, router: echo.New(), fair: newFairness(c.Limits, c.Metrics), feeds: newFeeds(c.Logger)}
	s.router.HTTPErrorHandler = func(err error, ctx echo.Context) {
		s.fail(exchangeOf(ctx), ctx.Request(), err)
	}
	for i := range routes {
		s.add(&routes[i])
	}
	return s
}

// HTTPServer is an http.Server for s with the time and header limits that s is
// meant to run under. Address, TLS and listening are the caller's; plain
// connections should come from a Listener.
func (s *Server) HTTPServer() *http.Server {
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: s.Limits.HeaderTimeout,
		IdleTimeout:       s.Limits.KeepAlive,
		MaxHeaderBytes:    s.Limits.HeaderBytes,
		ConnContext:       withConn,
		ConnState:         connState,
		ErrorLog:          slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),
	}
	server.RegisterOnShutdown(s.feeds.stop) // streams end only when they are told
	return server
}

// What a route asks of the token and the repo before its handler runs.
type access uint8

const (
	open     access = iota // no token
	anybody                // a good token
	inOrg                  // a good token with the scope, whatever its repo
	repoName               // and it names the repo, which need not exist
	repoOpen               // and the repo exists and is opened
	operator               // the operator's key, and no token
)

// A route is one operation with all its paths.
type route struct {
	name   string // in logs, metrics and openapi.json
	method string
	paths  []string // with {repo} where the new vocabulary has it
	access access
	scope  tokens.Scope // empty: any
	issued confinement  // what a token that this server issued may do with it
	// sessions routes are there if the server keeps sessions.
	sessions bool
	// snapshots routes are there if the server keeps snapshots.
	snapshots bool
	// streams routes read a body of any size while they work.
	streams bool
	// git routes may need a git process.
	git bool
	// lasting routes may wait for what is still to happen.
	lasting bool
	// envelope routes tell of every failure in the form of rest.md 11.6.
	envelope bool
	handle   func(*Server, *request) error
	bare     func(*Server, *exchange, *http.Request) error // of open routes
}

// both gives the paths of an operation below a repo in both route sets.
func both(old, new string) []string {
	return []string{"/api/v1" + old, "/api/repos/{repo}" + new}
}

// same is both with one tail.
func same(tail string) []string { return both("/repos"+tail, tail) }

// Paths of what routes of snapshots are about.
const (
	ofSession  = "/api/repos/{repo}/sessions/{id}"
	ofUpload   = ofSession + "/snapshots/uploads/{part}"
	ofSnapshot = "/api/repos/{repo}/snapshots/{id}"
)

// routes is the one list of what this server answers, git's remotes apart: those
// are found by their suffix before this list is asked (git.go).
var routes = []route{
	{name: "repo.create", method: "POST", paths: []string{"/api/v1/repos", "/api/repos"}, access: repoName, scope: tokens.RepoWrite, handle: (*Server).createRepo},
	{name: "repo.list", method: "GET", paths: []string{"/api/v1/repos", "/api/repos"}, access: inOrg, scope: tokens.OrgRead, handle: (*Server).listRepos},
	{name: "repo.get", method: "GET", paths: both("/repo", ""), access: repoOpen, issued: ruled, handle: (*Server).getRepo},
	{name: "repo.update", method: "PATCH", paths: both("/repo", ""), access: repoOpen, scope: tokens.RepoWrite, handle: (*Server).updateRepo},
	{name: "repo.delete", method: "DELETE", paths: both("/repos/delete", ""), access: repoName, scope: tokens.RepoWrite, handle: (*Server).deleteRepo},

	{name: "file.get", method: "GET", paths: same("/file"), access: repoOpen, scope: tokens.GitRead, issued: ruled, handle: (*Server).getFile},
	{name: "file.head", method: "HEAD", paths: same("/file"), access: repoOpen, scope: tokens.GitRead, issued: ruled, handle: (*Server).getFile},
	{name: "file.list", method: "GET", paths: same("/files"), access: repoOpen, scope: tokens.GitRead, issued: ruled, handle: (*Server).listFiles},

	{name: "branch.list", method: "GET", paths: same("/branches"), access: repoOpen, scope: tokens.GitRead, issued: ruled, handle: (*Server).listBranches},
	{name: "branch.get", method: "GET", paths: same("/branch"), access: repoOpen, scope: tokens.GitRead, issued: ruled, handle: (*Server).getBranch},
	{name: "branch.create", method: "POST", paths: same("/branches/create"), access: repoOpen, scope: tokens.GitWrite, handle: (*Server).createBranch},
	{name: "branch.delete", method: "DELETE", paths: same("/branches"), access: repoOpen, scope: tokens.GitWrite, handle: (*Server).deleteBranch},
	{name: "branch.diff", method: "GET", paths: same("/branches/diff"), access: repoOpen, scope: tokens.GitRead, issued: ruled, git: true, handle: (*Server).branchDiff},

	{name: "commit.list", method: "GET", paths: same("/commits"), access: repoOpen, scope: tokens.GitRead, issued: ruled, handle: (*Server).listCommits},
	{name: "commit.get", method: "GET", paths: same("/commit"), access: repoOpen, scope: tokens.GitRead, issued: ruled, handle: (*Server).getCommit},
	{name: "commit.diff", method: "GET", paths: same("/diff"), access: repoOpen, scope: tokens.GitRead, issued: ruled, git: true, handle: (*Server).commitDiff},
	{name: "commit.pack", method: "POST", paths: same("/commit-pack"), access: repoOpen, scope: tokens.GitWrite, issued: ruled, envelope: true, handle: (*Server).commitPack},

	{name: "pin.create", method: "POST", paths: []string{"/api/repos/{repo}/pins"}, access: repoOpen, scope: tokens.GitWrite, handle: (*Server).createPin},
	{name: "pin.list", method: "GET", paths: []string{"/api/repos/{repo}/pins"}, access: repoOpen, scope: tokens.GitRead, issued: ruled, handle: (*Server).listPins},
	{name: "pin.delete", method: "DELETE", paths: []string{"/api/repos/{repo}/pins/{id}"}, access: repoOpen, scope: tokens.GitWrite, handle: (*Server).deletePin},

	{name: "session.create", method: "POST", paths: []string{"/api/repos/{repo}/sessions"}, access: repoOpen, scope: tokens.GitWrite, sessions: true, handle: (*Server).createSession},
	{name: "session.list", method: "GET", paths: []string{"/api/repos/{repo}/sessions"}, access: repoOpen, scope: tokens.GitRead, sessions: true, handle: (*Server).listSessions},
	{name: "session.get", method: "GET", paths: []string{"/api/repos/{repo}/sessions/{id}"}, access: repoOpen, scope: tokens.GitRead, issued: ownOnly, sessions: true, handle: (*Server).getSession},
	{name: "session.update", method: "PATCH", paths: []string{"/api/repos/{repo}/sessions/{id}"}, access: repoOpen, scope: tokens.GitWrite, sessions: true, handle: (*Server).updateSession},
	{name: "session.delete", method: "DELETE", paths: []string{"/api/repos/{repo}/sessions/{id}"}, access: repoOpen, scope: tokens.GitWrite, sessions: true, handle: (*Server).deleteSession},
	{name: "session.lease", method: "POST", paths: []string{"/api/repos/{repo}/sessions/{id}/lease"}, access: repoOpen, scope: tokens.GitWrite, issued: ownOnly, sessions: true, handle: (*Server).changeLease},
	{name: "session.fork", method: "POST", paths: []string{"/api/repos/{repo}/sessions/{id}/fork"}, access: repoOpen, scope: tokens.GitWrite, sessions: true, handle: (*Server).createFork},

	{name: "token.create", method: "POST", paths: []string{"/api/repos/{repo}/sessions/{id}/tokens"}, access: repoOpen, scope: tokens.GitWrite, sessions: true, handle: (*Server).createToken},
	{name: "token.list", method: "GET", paths: []string{"/api/repos/{repo}/sessions/{id}/tokens"}, access: repoOpen, scope: tokens.GitWrite, sessions: true, handle: (*Server).listTokens},
	{name: "token.revoke", method: "DELETE", paths: []string{"/api/repos/{repo}/sessions/{id}/tokens/{part}"}, access: repoOpen, scope: tokens.GitWrite, sessions: true, handle: (*Server).revokeToken},
	{name: "token.renew", method: "POST", paths: []string{"/api/tokens/renew"}, access: repoOpen, issued: ruled, sessions: true, handle: (*Server).renewToken},

	{name: "fork.get", method: "GET", paths: []string{"/api/repos/{repo}/forks/{id}"}, access: repoOpen, scope: tokens.GitRead, sessions: true, handle: (*Server).getFork},
	{name: "fork.compare", method: "GET", paths: []string{"/api/repos/{repo}/forks/{id}/compare"}, access: repoOpen, scope: tokens.GitRead, sessions: true, handle: (*Server).compareFork},
	{name: "fork.pick", method: "POST", paths: []string{"/api/repos/{repo}/forks/{id}/pick"}, access: repoOpen, scope: tokens.GitWrite, sessions: true, handle: (*Server).pickChild},
	{name: "fork.validity", method: "PUT", paths: []string{"/api/repos/{repo}/forks/{id}/children/{part}/validity"}, access: repoOpen, scope: tokens.GitWrite, sessions: true, handle: (*Server).setValidity},
	{name: "fork.close", method: "DELETE", paths: []string{"/api/repos/{repo}/forks/{id}"}, access: repoOpen, scope: tokens.GitWrite, sessions: true, handle: (*Server).closeFork},

	{name: "snapshot.save", method: "POST", paths: []string{ofSession + "/snapshots"}, access: repoOpen, scope: tokens.GitWrite, issued: ownOnly, snapshots: true, streams: true, handle: (*Server).saveSnapshot},
	{name: "snapshot.import", method: "POST", paths: []string{ofSession + "/snapshots/import"}, access: repoOpen, scope: tokens.GitWrite, issued: ownOnly, snapshots: true, streams: true, git: true, handle: (*Server).importSnapshot},
	{name: "snapshot.list", method: "GET", paths: []string{ofSession + "/snapshots"}, access: repoOpen, scope: tokens.GitRead, issued: ownOnly, snapshots: true, handle: (*Server).listSnapshots},
	{name: "upload.begin", method: "POST", paths: []string{ofSession + "/snapshots/uploads"}, access: repoOpen, scope: tokens.GitWrite, issued: ownOnly, snapshots: true, handle: (*Server).beginUpload},
	{name: "upload.get", method: "GET", paths: []string{ofUpload}, access: repoOpen, scope: tokens.GitRead, issued: ownOnly, snapshots: true, handle: (*Server).getUpload},
	{name: "upload.drop", method: "DELETE", paths: []string{ofUpload}, access: repoOpen, scope: tokens.GitWrite, issued: ownOnly, snapshots: true, handle: (*Server).dropUpload},
	{name: "upload.missing", method: "POST", paths: []string{ofUpload + "/missing"}, access: repoOpen, scope: tokens.GitWrite, issued: ownOnly, snapshots: true, streams: true, handle: (*Server).tellLeaves},
	{name: "upload.chunks", method: "POST", paths: []string{ofUpload + "/chunks"}, access: repoOpen, scope: tokens.GitWrite, issued: ownOnly, snapshots: true, streams: true, handle: (*Server).putChunks},
	{name: "upload.content", method: "POST", paths: []string{ofUpload + "/content"}, access: repoOpen, scope: tokens.GitWrite, issued: ownOnly, snapshots: true, streams: true, handle: (*Server).putContent},
	{name: "upload.chunk", method: "PUT", paths: []string{ofUpload + "/chunks/{hash}"}, access: repoOpen, scope: tokens.GitWrite, issued: ownOnly, snapshots: true, streams: true, handle: (*Server).putChunk},
	{name: "upload.seal", method: "POST", paths: []string{ofUpload + "/seal"}, access: repoOpen, scope: tokens.GitWrite, issued: ownOnly, snapshots: true, handle: (*Server).sealUpload},
	{name: "snapshot.get", method: "GET", paths: []string{ofSnapshot}, access: repoOpen, scope: tokens.GitRead, issued: ruled, snapshots: true, handle: (*Server).getSnapshot},
	{name: "snapshot.lineage", method: "GET", paths: []string{ofSnapshot + "/lineage"}, access: repoOpen, scope: tokens.GitRead, issued: ruled, snapshots: true, handle: (*Server).getLineage},
	{name: "snapshot.image", method: "GET", paths: []string{ofSnapshot + "/image"}, access: repoOpen, scope: tokens.GitRead, issued: ruled, snapshots: true, handle: (*Server).getImage},
	{name: "snapshot.bundle", method: "GET", paths: []string{ofSnapshot + "/bundle"}, access: repoOpen, scope: tokens.GitRead, issued: ruled, snapshots: true, git: true, handle: (*Server).getBundle},
	{name: "snapshot.hot-order", method: "POST", paths: []string{ofSnapshot + "/hot-order"}, access: repoOpen, scope: tokens.GitWrite, issued: ruled, snapshots: true, handle: (*Server).putHotOrder},
	{name: "snapshot.key", method: "POST", paths: []string{ofSnapshot + "/key"}, access: repoOpen, scope: tokens.GitRead, issued: ruled, snapshots: true, handle: (*Server).openKey},
	{name: "snapshot.delete", method: "DELETE", paths: []string{ofSnapshot}, access: repoOpen, scope: tokens.GitWrite, issued: ruled, snapshots: true, handle: (*Server).deleteSnapshot},
	{name: "sealing-key", method: "GET", paths: []string{"/api/sealing-key"}, access: anybody, issued: ruled, snapshots: true, handle: (*Server).getSealingKey},
	{name: "launchable", method: "GET", paths: []string{"/api/launchable"}, access: repoOpen, scope: tokens.GitRead, snapshots: true, handle: (*Server).listLaunchable},

	{name: "events", method: "GET", paths: []string{"/api/repos/{repo}/events"}, access: repoOpen, scope: tokens.GitRead, issued: ruled, lasting: true, handle: (*Server).getEvents},

	{name: "whoami", method: "GET", paths: []string{"/api/whoami"}, access: anybody, issued: evenStale, handle: (*Server).whoami},
	{name: "limits", method: "GET", paths: []string{"/api/limits"}, access: anybody, issued: ruled, handle: (*Server).limits},

	{name: "operator.gc", method: "POST", paths: []string{operatorPrefix + "gc"}, access: operator, handle: (*Server).operatorGC},
	{name: "operator.fsck", method: "POST", paths: []string{operatorPrefix + "fsck"}, access: operator, handle: (*Server).operatorFsck},
	{name: "operator.export", method: "POST", paths: []string{operatorPrefix + "export"}, access: operator, handle: (*Server).operatorExport},
	{name: "operator.backup", method: "POST", paths: []string{operatorPrefix + "backup"}, access: operator, handle: (*Server).operatorBackup},
	{name: "operator.deny", method: "POST", paths: []string{operatorPrefix + "deny"}, access: operator, handle: (*Server).operatorDeny},
	{name: "operator.denials", method: "GET", paths: []string{operatorPrefix + "denials"}, access: operator, handle: (*Server).operatorDenials},
	{name: "operator.allow", method: "POST", paths: []string{operatorPrefix + "allow"}, access: operator, handle: (*Server).operatorAllow},

	{name: "operator.base", method: "POST", paths: []string{operatorPrefix + "bases"}, access: operator, snapshots: true, handle: (*Server).operatorBase},
	{name: "operator.bases", method: "GET", paths: []string{operatorPrefix + "bases"}, access: operator, snapshots: true, handle: (*Server).operatorBases},
	{name: "operator.base-remove", method: "DELETE", paths: []string{operatorPrefix + "bases"}, access: operator, snapshots: true, handle: (*Server).operatorBaseRemove},

	{name: "health", method: "GET", paths: []string{"/healthz"}, bare: (*Server).health},
	{name: "ready", method: "GET", paths: []string{"/readyz"}, bare: (*Server).ready},
	{name: "metrics", method: "GET", paths: []string{"/metrics"}, bare: (*Server).metrics},
	{name: "openapi", method: "GET", paths: []string{"/openapi.json"}, bare: (*Server).openapi},
}

// params turns the parameters of a path into the router's.
var params = strings.NewReplacer("{repo}", ":repo", "{id}", ":id", "{part}", ":part", "{hash}", ":hash")

// add gives a route to the router, a GET with its HEAD.
func (s *Server) add(rt *route) {
	for _, path := range rt.paths {
		pattern := params.Replace(path)
		s.router.Add(rt.method, pattern, s.handler(rt))
		if rt.method == http.MethodGet && rt.name != "file.get" {
			s.router.Add(http.MethodHead, pattern, s.handler(rt))
		}
	}
}

// handler is a route as the router calls it: admit, then handle.
func (s *Server) handler(rt *route) echo.HandlerFunc {
	return func(ctx echo.Context) error {
		x, r := exchangeOf(ctx), ctx.Request()
		x.route = rt.name
		if rt.access == open {
			return rt.bare(s, x, r)
		}
		q := &request{x: x, r: r}
		var err error
		if rt.access == operator {
			err = s.asOperator(r)
		} else {
			err = s.admit(rt, q, ctx)
		}
		if err == nil {
			err = s.call(rt, q, ctx)
		}
		if err != nil && rt.envelope {
			return resultErrorOf(err, q.target)
		}
		return err
	}
}

func exchangeOf(ctx echo.Context) *exchange { return ctx.Response().Writer.(*exchange) }

// ServeHTTP answers r: git's remotes by their suffix, all else by the list of
// routes. There are no redirects.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, r := s.newExchange(w, r)
	s.Metrics.begin()
	defer s.end(x, r)
	path := "/" + strings.TrimLeft(r.URL.EscapedPath(), "/")
	if remote, ok := parseGitPath(path); ok {
		x.route = "git"
		if err := s.git(x, r, remote); err != nil {
			s.fail(x, r, err)
		}
		return
	}
	if strings.HasPrefix(path, operatorPrefix) {
		// Nobody else learns what there is below it.
		if err := s.asOperator(r); err != nil {
			s.fail(x, r, err)
			return
		}
	}
	// The router matches RawPath where there is one and a decoded path otherwise;
	// with it always there, a parameter is decoded once, by param, and never twice.
	r.URL.RawPath = path
	s.router.ServeHTTP(x, r)
}

// param decodes a path parameter, once.
func param(ctx echo.Context, name string) (string, error) {
	value, err := url.PathUnescape(ctx.Param(name))
	if err != nil {
		return "", invalid("path parameter %s is not percent-encoded text", name)
	}
	return value, nil
}
