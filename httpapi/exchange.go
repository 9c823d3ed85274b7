package httpapi

import (
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/tokens"
)

// An exchange is one request and its answer, seen from outside the handlers: it is
// the http.ResponseWriter they write to, and it remembers what log and metrics
// want to know.
type exchange struct {
	http.ResponseWriter
	conn    *http.ResponseController
	window  time.Duration // of no progress
	body    *idleBody     // nil without one
	streams bool          // HTTP/2: the connection is not this exchange's own

	id      string
	start   time.Time
	method  string
	route   string // the route's name; "unmatched" until one is found
	status  int    // 0: nothing was sent yet
	bytes   int64  // of the answer's body
	armed   time.Time
	who     *tokens.Principal // nil until the token was found good
	token   string            // ShortHash of a refused token
	repo    string
	failure error         // what the answer's status is about
	retry   time.Duration // when a refused request may come again; 0: soon
	pass    *pass         // nil until it is let in
}

var (
	_ http.ResponseWriter = (*exchange)(nil)
	_ io.ReaderFrom       = (*exchange)(nil)
)

// requestSerial numbers the requests of this process; with the time of its start
// it makes ids that are not used twice.
var (
	requestSerial atomic.Uint64
	requestPrefix = strconv.FormatInt(time.Now().UnixMilli(), 36) + "-"
)

// newExchange begins an exchange and gives the request as handlers see it, with
// its body watched. It is a copy: the server looks at the body of its own to know
// whether the client still waits for 100 Continue.
func (s *Server) newExchange(w http.ResponseWriter, r *http.Request) (*exchange, *http.Request) {
	x := &exchange{
		ResponseWriter: w,
		conn:           http.NewResponseController(w),
		window:         s.Limits.IdleTimeout,
		streams:        r.ProtoMajor > 1,
		id:             requestPrefix + strconv.FormatUint(requestSerial.Add(1), 36),
		start:          time.Now(),
		method:         r.Method,
		route:          unmatched,
	}
	if r.Body != nil && r.Body != http.NoBody {
		x.body = &idleBody{ReadCloser: r.Body, conn: x.conn, window: x.window, left: x.window, streams: x.streams}
		r = r.WithContext(r.Context())
		r.Body = x.body
		// Of a body that no handler reads net/http reads on by itself, for as long as it takes.
		if !x.streams {
			_ = x.conn.SetReadDeadline(x.start.Add(x.window))
		}
	}
	h := w.Header()
	h["X-Request-Id"] = []string{x.id}
	h["X-Content-Type-Options"] = nosniff
	return x, r
}

// unmatched is the route name of requests that no route takes.
const unmatched = "unmatched"

var nosniff = []string{"nosniff"}

// started reports whether a status went out, so that nothing but the body, or
// cutting it, can tell the client any more.
func (x *exchange) started() bool { return x.status != 0 }

// Unwrap lets an http.ResponseController find the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// Flush sends what is buffered.
func (x *exchange) Flush() {
	if !x.started() {
		x.status = http.StatusOK
	}
	_ = x.conn.Flush()
}

// WriteHeader sends the status, once.
func (x *exchange) WriteHeader(status int) {
	if status >= 200 && x.status == 0 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	if x.bytes+int64(len(p)) > quietBytes {
		x.pass.rest()
		defer x.pass.work()
	}
	x.progress(len(p))
	n, err := x.ResponseWriter.Write(p)
	x.bytes += int64(n)
	x.pause()
	return n, err
}

// quietBytes is how much may be written without a deadline: as much as the
// server and the kernel take without a client that reads.
const quietBytes = 16 << 10

// progress moves the deadline for writing n more bytes, if they can block at all.
func (x *exchange) progress(n int) {
	if x.bytes+int64(n) <= quietBytes {
		return
	}
	if now := time.Now(); now.Sub(x.armed) > x.window/8 {
		x.armed = now
		_ = x.conn.SetWriteDeadline(now.Add(x.window))
	}
}

// pause takes the deadline away from an HTTP/2 stream until the next write: there
// it ends the stream when it passes, also while nothing waits to be written.
func (x *exchange) pause() {
	if x.streams && !x.armed.IsZero() {
		x.armed = time.Time{}
		_ = x.conn.SetWriteDeadline(time.Time{})
	}
}

// sendfileStep is how much of a file goes out under one deadline.
const sendfileStep = 1 << 20

// ReadFrom lets files reach the connection without being copied through here.
func (x *exchange) ReadFrom(src io.Reader) (int64, error) {
	to, ok := x.ResponseWriter.(io.ReaderFrom)
	if !ok {
		return io.Copy(onlyWriter{x}, src)
	}
	if x.status == 0 {
		x.status = http.StatusOK
	}
	left := int64(1<<63 - 1)
	// net unwraps one LimitedReader only, and the steps below need one themselves.
	if l, isLimited := src.(*io.LimitedReader); isLimited {
		src, left = l.R, l.N
		defer func() { l.N = left }()
	}
	x.pass.rest()
	defer x.pass.work()
	var total int64
	for left > 0 {
		step := min(left, sendfileStep)
		x.progress(int(step))
		n, err := to.ReadFrom(&io.LimitedReader{R: src, N: step})
		total, left, x.bytes = total+n, left-n, x.bytes+n
		x.pause()
		if err != nil || n < step {
			return total, err
		}
	}
	return total, nil
}

type onlyWriter struct{ io.Writer }

// finish lets go of the connection for its next request.
func (x *exchange) finish() {
	if x.armed.IsZero() {
		return
	}
	_ = x.conn.SetWriteDeadline(time.Now().Add(x.window))
	_ = x.conn.Flush()
	_ = x.conn.SetWriteDeadline(time.Time{})
}

// streamBoth lets the answer begin before the body was read to its end. Without it
// the server would close the body at the first write, and a client still sending
// would see a reset connection and no answer.
func (x *exchange) streamBoth() {
	_ = x.conn.EnableFullDuplex()
}

// drain reads the rest of the body away, up to limit bytes, so that a client that
// looks at the answer only after sending everything gets to see it. If the body does
// not come to its end, nobody knows where the next request would begin, and the
// connection is cut. HTTP/2 ends an answer only with the handler, and its clients
// listen while they send: there it would make both sides wait.
func (x *exchange) drain(limit int64) {
	if x.body == nil || x.body.end == io.EOF || x.streams {
		return
	}
	_ = x.conn.Flush()
	_, _ = io.CopyN(io.Discard, x.body, limit)
	if x.body.broken() {
		panic(http.ErrAbortHandler)
	}
}

// awaitsContinue reports whether the client still waits to be told that its body is
// wanted.
func (x *exchange) awaitsContinue(r *http.Request) bool {
	return x.body != nil && !x.body.asked && r.Header.Get("Expect") != ""
}

// What is read and thrown away for clients that are not known, or owe nothing more.
const (
	lingerBytes = 4 << 20
	briefLinger = time.Second // who waits for 100 Continue, or has broken off, need send nothing more
)

// linger is drain for those who are owed no more than to see their answer: a little
// of the body is read, for a short time. If that was not all of it, the connection
// is closed, which the answer says.
func (x *exchange) linger(limit time.Duration) {
	if x.body == nil || x.body.end == io.EOF || x.streams {
		return
	}
	_ = x.conn.Flush()
	_ = x.conn.SetReadDeadline(time.Now().Add(limit))
	_, _ = io.CopyN(io.Discard, x.body.ReadCloser, lingerBytes)
}
