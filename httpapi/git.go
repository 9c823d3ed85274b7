package httpapi

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/tokens"
)

// A gitService is what the end of a git path asks for.
type gitService uint8

const (
	infoRefs gitService = iota
	uploadPack
	receivePack
)

var gitSuffixes = [...]struct {
	suffix  string
	service gitService
	method  string
	route   string
}{
	{"/info/refs", infoRefs, http.MethodGet, "git.refs"},
	{"/git-upload-pack", uploadPack, http.MethodPost, "git.fetch"},
	{"/git-receive-pack", receivePack, http.MethodPost, "git.push"},
}

// A gitPath is a path of git's smart HTTP taken apart.
type gitPath struct {
	repo      string // decoded; not yet known to be a repo's name
	remote    gitstore.Remote
	importing bool // the +import remote: pushes as to main, no fetch
	service   gitService
	method    string
	route     string
}

// parseGitPath takes an escaped path apart from the right: the service, then
// .git, then +ephemeral or +import; the rest, decoded once, is the repo. It is
// false for a path without a service at its end.
//
//	path = "/" repo [ "+ephemeral" / "+import" ] [ ".git" ] service
func parseGitPath(escaped string) (gitPath, bool) {
	for _, s := range gitSuffixes {
		rest, ok := strings.CutSuffix(escaped, s.suffix)
		if !ok {
			continue
		}
		name, err := url.PathUnescape(strings.TrimPrefix(rest, "/"))
		if err != nil || name == "" {
			return gitPath{}, false
		}
		p := gitPath{repo: strings.TrimSuffix(name, ".git"), service: s.service, method: s.method, route: s.route}
		if name, ok := strings.CutSuffix(p.repo, "+ephemeral"); ok {
			p.repo, p.remote = name, gitstore.EphemeralRemote
		} else if name, ok := strings.CutSuffix(p.repo, "+import"); ok {
			p.repo, p.importing = name, true
		}
		return p, true
	}
	return gitPath{}, false
}

// isGit reports whether an answer to r is read by git, which shows its user the
// lines of a text/plain body.
func isGit(r *http.Request) bool {
	return strings.HasPrefix(r.UserAgent(), "git/")
}

// git answers one request to a remote. An error before the first byte becomes a
// status; after it the stream is cut.
func (s *Server) git(x *exchange, r *http.Request, p gitPath) error {
	x.route = p.route
	if r.Method != p.method && !(r.Method == http.MethodHead && p.method == http.MethodGet) {
		x.Header().Set("Allow", p.method)
		return &requestError{kind: kindMethod, text: "method not allowed"}
	}
	who, err := s.authenticate(x, r, true)
	if err != nil {
		return err
	}
	kind := p.kind(r)
	if err := s.letIn(x, r, kind); err != nil {
		return err
	}
	if kind == gitPlaces {
		r = sharing(r, who)
	}
	if p.repo != who.Repo {
		return gitstore.ErrRepoNotFound
	}
	x.repo = p.repo // not before: what a path holds may be anything, a token too
	service, err := p.wanted(r)
	if err != nil {
		return err
	}
	if err := who.Require(scopeOf(service)); err != nil {
		return err
	}
	repo, err := s.Store.Repo(r.Context(), who.Org, p.repo)
	if err != nil {
		return err
	}
	stale, err := s.standingOfGit(r, repo, who, service)
	if err != nil {
		return err
	}
	if p.importing && service == uploadPack {
		return &requestError{kind: kindForbidden, text: "the import remote takes pushes only"}
	}
	q := gitstore.GitRequest{Remote: p.remote, Protocol: r.Header.Get("Git-Protocol")}
	if p.service == infoRefs {
		return s.advertise(x, r, repo, callerOf(who), service, q)
	}
	if service == receivePack {
		q.Advice = s.advice(r, who, stale)
	}
	return s.rpc(x, r, repo, who, service, q)
}

// standingOfGit refuses issued tokens that may not be used any more. A push of an old
// epoch goes on: the guard refuses it in git's own words.
func (s *Server) standingOfGit(r *http.Request, repo *gitstore.Repo, who *tokens.Principal, service gitService) (stale bool, err error) {
	if !who.Issued {
		return false, nil
	}
	err = s.standing(r.Context(), repo, who)
	var old *sessions.StaleEpochError
	if stale = errors.As(err, &old); stale && service == receivePack {
		return true, nil
	}
	return stale, err
}

// kind is the place that a request takes: fetches, and pushes that are not small,
// may need a git process.
func (p gitPath) kind(r *http.Request) supply {
	if p.service == uploadPack || p.service == receivePack && (r.ContentLength < 0 || r.ContentLength > countedBody) {
		return gitPlaces
	}
	return places
}

// wanted is the service a request is about. The dumb protocol names none and is
// not spoken.
func (p gitPath) wanted(r *http.Request) (gitService, error) {
	if p.service != infoRefs {
		return p.service, nil
	}
	switch r.URL.Query().Get("service") {
	case "git-upload-pack":
		return uploadPack, nil
	case "git-receive-pack":
		return receivePack, nil
	}
	return 0, &requestError{kind: kindForbidden, text: "only git's smart HTTP protocol is served: please upgrade your git client"}
}

func scopeOf(service gitService) tokens.Scope {
	if service == receivePack {
		return tokens.GitWrite
	}
	return tokens.GitRead
}

func (g gitService) String() string {
	if g == receivePack {
		return "git-receive-pack"
	}
	return "git-upload-pack"
}

func (s *Server) advertise(x *exchange, r *http.Request, repo *gitstore.Repo, c gitstore.Caller, service gitService, q gitstore.GitRequest) error {
	q.Out = x.gitWriter("application/x-" + service.String() + "-advertisement")
	if service == receivePack {
		return repo.AdvertiseReceivePack(r.Context(), c, q)
	}
	return repo.AdvertiseUploadPack(r.Context(), c, q)
}

// rpc answers a POST.
func (s *Server) rpc(x *exchange, r *http.Request, repo *gitstore.Repo, who *tokens.Principal, service gitService, q gitstore.GitRequest) error {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if want := "application/x-" + service.String() + "-request"; strings.TrimSpace(media) != want {
		return &requestError{kind: kindMediaType, text: "content type is not " + want}
	}
	limit := s.Limits.FetchBytes
	if service == receivePack {
		limit = s.Limits.PushBytes
	}
	body, done, err := inflated(r, limit)
	if err != nil {
		return err
	}
	defer done()
	// What is refused in the middle of a push is told in git's own words, and git
	// reads them only when it could send all it had to.
	x.streamBoth()
	out := x.gitWriter("application/x-" + service.String() + "-result")
	out.prompt = true
	if probe, err := isProbe(r, body); err != nil || probe {
		if err == nil {
			out.start()
		}
		return err
	}
	q.In, q.Out = body, out
	if service == receivePack {
		err = repo.ReceivePack(r.Context(), callerOf(who), q)
	} else {
		q.Freed = x.pass.ease
		err = repo.UploadPack(r.Context(), callerOf(who), q)
	}
	if err != nil {
		return err
	}
	out.start()
	x.drain(s.Limits.DrainBytes)
	return nil
}

// isProbe reports whether the body is the lone flush that git sends to find out
// about authorization before it streams a large push.
func isProbe(r *http.Request, body io.Reader) (bool, error) {
	if r.ContentLength != 4 || r.Header.Get("Content-Encoding") != "" {
		return false, nil
	}
	var flush [4]byte
	if _, err := io.ReadFull(body, flush[:]); err != nil {
		return false, err
	}
	if string(flush[:]) != "0000" {
		return false, invalid("request is four bytes and not a flush")
	}
	return true, nil
}

var gunzips sync.Pool

// inflated is the body without its Content-Encoding, at most limit bytes of it.
// Call done when it is no longer read.
func inflated(r *http.Request, limit int64) (body io.Reader, done func(), err error) {
	raw := capReader(r.Body, limit, "request")
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "", "identity":
		return raw, func() {}, nil
	case "gzip", "x-gzip":
	default:
		return nil, nil, &requestError{kind: kindMediaType, text: "content encoding is not gzip"}
	}
	z, ok := gunzips.Get().(*gzip.Reader)
	if !ok {
		z = new(gzip.Reader)
	}
	if err := z.Reset(raw); err != nil {
		gunzips.Put(z)
		return nil, nil, gzipError(err)
	}
	return capReader(gzipReader{z}, limit, "inflated request"), func() { gunzips.Put(z) }, nil
}

// A gzipReader says of a broken stream that the client sent it.
type gzipReader struct{ *gzip.Reader }

func (z gzipReader) Read(p []byte) (int, error) {
	n, err := z.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = gzipError(err)
	}
	return n, err
}

func gzipError(err error) error {
	if p := problemOf(err); p.code != codeInternal {
		return err
	}
	return invalid("gzip body: %v", err)
}

// A gitWriter sends the headers of a git answer with its first byte, so that
// until then an error can still be told by a status.
type gitWriter struct {
	x      *exchange
	media  string
	prompt bool // progress and keep-alive lines must not wait in a buffer
	begun  bool
}

func (x *exchange) gitWriter(media string) *gitWriter { return &gitWriter{x: x, media: media} }

// start sends the headers, if they are not sent.
func (w *gitWriter) start() {
	if w.begun {
		return
	}
	w.begun = true
	h := w.x.Header()
	h.Set("Content-Type", w.media)
	h.Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
	h.Set("Expires", "Fri, 01 Jan 1980 00:00:00 GMT")
	h.Set("Pragma", "no-cache")
	w.x.WriteHeader(http.StatusOK)
}

// promptBytes is the size below which a write is one of progress rather than of a pack.
const promptBytes = 4 << 10

func (w *gitWriter) Write(p []byte) (int, error) {
	w.start()
	n, err := w.x.Write(p)
	if err == nil && w.prompt && len(p) < promptBytes {
		w.x.Flush()
	}
	return n, err
}

// advice tells the user of a refused push what the token can do, how long it lives,
// and how an issued one is renewed.
func (s *Server) advice(r *http.Request, who *tokens.Principal, stale bool) string {
	if stale {
		return staleHint
	}
	text := s.abilities(who)
	if who.Issued {
		text += "; renew it before then by: " + s.renewLine(r)
	}
	return text
}

func (s *Server) abilities(who *tokens.Principal) string {
	left := who.ExpiresAt.Sub(s.Now()).Round(time.Second)
	life := "it expires in " + left.String()
	switch {
	case left <= 0:
		life = "it has just expired"
	case left > 48*time.Hour:
		life = "it expires on " + who.ExpiresAt.UTC().Format(time.DateOnly)
	}
	push := pushable(who)
	if len(push) == 0 {
		return fmt.Sprintf("this token can push nothing; %s", life)
	}
	return fmt.Sprintf("this token can push %s; %s", strings.Join(push, ", "), life)
}
