package httpapi

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// What is in this file answers with a problem; errors.go decides which one it is.

// A problemBody is the one JSON shape of errors.
type problemBody struct {
	Error     string `json:"error"`
	Status    int    `json:"status"`
	Title     string `json:"title"`
	Type      string `json:"type"`
	Detail    string `json:"detail"`
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"`
	moreBody
}

func (p problem) body() problemBody {
	title := http.StatusText(p.status)
	if title == "" {
		title = "Client Closed Request"
	}
	return problemBody{
		Error: p.text, Status: p.status, Title: title, Type: "about:blank",
		Detail: p.text, Code: p.code, Retryable: p.retryable(),
	}
}

// refusedDrain is how much is read and thrown away of the body of a request that
// is over a limit. One that was not let in must cost little, but a small body not
// its client's connection; a client that waits for 100 Continue is not asked to
// send at all.
func (s *Server) refusedDrain(x *exchange, r *http.Request) int64 {
	switch {
	case x.pass != nil:
		return s.Limits.DrainBytes
	case r.Header.Get("Expect") != "":
		return 0
	}
	return min(s.Limits.DrainBytes, 64<<10)
}

// leaves reports whether draining so much of a body will leave some of it, as far as
// is known: the connection is of no use to its client then, which has to be told.
func (s *Server) leaves(r *http.Request, drain int64) bool {
	return r.ContentLength > drain || r.ContentLength < 0 && drain < s.Limits.DrainBytes
}

// fail answers with err, or cuts the connection when an answer has begun.
func (s *Server) fail(x *exchange, r *http.Request, err error) {
	x.failure = err
	if x.started() {
		panic(http.ErrAbortHandler)
	}
	drain := s.Limits.DrainBytes
	if limit := (*limitError)(nil); errors.As(err, &limit) {
		x.retry = limit.retry
		drain = s.refusedDrain(x, r)
	}
	waits, broken := x.awaitsContinue(r), x.body.broken()
	known := x.who != nil && x.body != nil && drain > 0 && !waits && !broken
	if known {
		x.streamBoth()
	}
	if !x.streams && (broken || known && s.leaves(r, drain)) {
		x.Header().Set("Connection", "close")
	}
	var written *resultError
	if errors.As(err, &written) {
		x.envelope(problemOf(err), s.more(x, r, err), written)
	} else {
		x.problem(r, problemOf(err), s.more(x, r, err))
	}
	switch {
	case known:
		x.drain(drain)
	case waits || broken:
		x.linger(briefLinger)
	default:
		x.linger(s.Limits.HeaderTimeout)
	}
}

// problem writes p in the one JSON shape, or as a line that git shows its user.
func (x *exchange) problem(r *http.Request, p problem, more moreBody) {
	x.problemHeaders(p)
	if isGit(r) {
		text := p.text + "\n"
		if more.Hint != "" {
			text += more.Hint + "\n"
		}
		x.plain(p.status, text)
		return
	}
	body := p.body()
	body.moreBody = more
	_ = x.json(p.status, body)
}

func (x *exchange) problemHeaders(p problem) {
	h := x.Header()
	// Headers of an answer that was meant and did not come.
	for _, name := range []string{"Etag", "Last-Modified", "Cache-Control", "Content-Length", "Content-Encoding"} {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store")
	switch p.status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", challenge(x.route))
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h.Set("Retry-After", strconv.FormatInt(int64((max(x.retry, time.Second)+time.Second-1)/time.Second), 10))
	}
}
