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
	"github.com/headgate/headgate/tokens"
)

// Verifier says who asks with a token; *tokens.Verifier is one.
type Verifier interface {
	// Verify fails with what wraps tokens.ErrUnauthorized or with tokens.ErrNoRepoClaim.
	Verify(ctx context.Context, token string) (*tokens.Principal, error)
}

var _ Verifier = (*tokens.Verifier)(nil)

// Config is what a Server is made of.
type Config struct {
	Store  *gitstore.Store
	Tokens Verifier
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
	s := &Server{Config: c, router: echo.New(), fair: newFairness(c.Limits, c.Metrics)}
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
	return &http.Server{
		Handler:           s,
		ReadHeaderTimeout: s.Limits.HeaderTimeout,
		IdleTimeout:       s.Limits.KeepAlive,
		MaxHeaderBytes:    s.Limits.HeaderBytes,
		ConnContext:       withConn,
		ConnState:         connState,
		ErrorLog:          slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),
	}
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
	// git routes may need a git process.
	git bool
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

// routes is the one list of what this server answers, git's remotes apart: those
// are found by their suffix before this list is asked (git.go).
var routes = []route{
	{name: "repo.create", method: "POST", paths: []string{"/api/v1/repos", "/api/repos"}, access: repoName, scope: tokens.RepoWrite, handle: (*Server).createRepo},
	{name: "repo.list", method: "GET", paths: []string{"/api/v1/repos", "/api/repos"}, access: inOrg, scope: tokens.OrgRead, handle: (*Server).listRepos},
	{name: "repo.get", method: "GET", paths: both("/repo", ""), access: repoOpen, handle: (*Server).getRepo},
	{name: "repo.update", method: "PATCH", paths: both("/repo", ""), access: repoOpen, scope: tokens.RepoWrite, handle: (*Server).updateRepo},
	{name: "repo.delete", method: "DELETE", paths: both("/repos/delete", ""), access: repoName, scope: tokens.RepoWrite, handle: (*Server).deleteRepo},

	{name: "file.get", method: "GET", paths: same("/file"), access: repoOpen, scope: tokens.GitRead, handle: (*Server).getFile},
	{name: "file.head", method: "HEAD", paths: same("/file"), access: repoOpen, scope: tokens.GitRead, handle: (*Server).getFile},
	{name: "file.list", method: "GET", paths: same("/files"), access: repoOpen, scope: tokens.GitRead, handle: (*Server).listFiles},

	{name: "branch.list", method: "GET", paths: same("/branches"), access: repoOpen, scope: tokens.GitRead, handle: (*Server).listBranches},
	{name: "branch.get", method: "GET", paths: same("/branch"), access: repoOpen, scope: tokens.GitRead, handle: (*Server).getBranch},
	{name: "branch.create", method: "POST", paths: same("/branches/create"), access: repoOpen, scope: tokens.GitWrite, handle: (*Server).createBranch},
	{name: "branch.delete", method: "DELETE", paths: same("/branches"), access: repoOpen, scope: tokens.GitWrite, handle: (*Server).deleteBranch},
	{name: "branch.diff", method: "GET", paths: same("/branches/diff"), access: repoOpen, scope: tokens.GitRead, git: true, handle: (*Server).branchDiff},

	{name: "commit.list", method: "GET", paths: same("/commits"), access: repoOpen, scope: tokens.GitRead, handle: (*Server).listCommits},
	{name: "commit.get", method: "GET", paths: same("/commit"), access: repoOpen, scope: tokens.GitRead, handle: (*Server).getCommit},
	{name: "commit.diff", method: "GET", paths: same("/diff"), access: repoOpen, scope: tokens.GitRead, git: true, handle: (*Server).commitDiff},
	{name: "commit.pack", method: "POST", paths: same("/commit-pack"), access: repoOpen, scope: tokens.GitWrite, envelope: true, handle: (*Server).commitPack},

	{name: "pin.create", method: "POST", paths: []string{"/api/repos/{repo}/pins"}, access: repoOpen, scope: tokens.GitWrite, handle: (*Server).createPin},
	{name: "pin.list", method: "GET", paths: []string{"/api/repos/{repo}/pins"}, access: repoOpen, scope: tokens.GitRead, handle: (*Server).listPins},
	{name: "pin.delete", method: "DELETE", paths: []string{"/api/repos/{repo}/pins/{id}"}, access: repoOpen, scope: tokens.GitWrite, handle: (*Server).deletePin},

	{name: "whoami", method: "GET", paths: []string{"/api/whoami"}, access: anybody, handle: (*Server).whoami},
	{name: "limits", method: "GET", paths: []string{"/api/limits"}, access: anybody, handle: (*Server).limits},

	{name: "operator.gc", method: "POST", paths: []string{operatorPrefix + "gc"}, access: operator, handle: (*Server).operatorGC},
	{name: "operator.fsck", method: "POST", paths: []string{operatorPrefix + "fsck"}, access: operator, handle: (*Server).operatorFsck},
	{name: "operator.export", method: "POST", paths: []string{operatorPrefix + "export"}, access: operator, handle: (*Server).operatorExport},
	{name: "operator.backup", method: "POST", paths: []string{operatorPrefix + "backup"}, access: operator, handle: (*Server).operatorBackup},

	{name: "health", method: "GET", paths: []string{"/healthz"}, bare: (*Server).health},
	{name: "ready", method: "GET", paths: []string{"/readyz"}, bare: (*Server).ready},
	{name: "metrics", method: "GET", paths: []string{"/metrics"}, bare: (*Server).metrics},
	{name: "openapi", method: "GET", paths: []string{"/openapi.json"}, bare: (*Server).openapi},
}

// params turns the parameters of a path into the router's.
var params = strings.NewReplacer("{repo}", ":repo", "{id}", ":id")

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
			err = rt.handle(s, q)
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
