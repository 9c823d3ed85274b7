package httpapi

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/tokens"
)

// An eventStream is one client that is told what happens in a repo as it happens, in
// the form of server-sent events. It holds a place among streams while it is open and a
// turn only while it reads the log itself.
type eventStream struct {
	q       *request
	want    eventsWant
	all     *feeds
	key     feedKey // of its feed
	from    source
	metrics *Metrics
	good    func() error // whether the token is still good
	now     func() time.Time
	until   time.Time

	after uint64 // all is told up to this number
	feed  *feed  // nil until it has caught up
	beat  *time.Ticker
	end   *time.Timer // fires at until
}

// A streamEnd is why a stream is over, as its last comment says.
type streamEnd struct {
	reason string // in metrics
	text   string
}

func (e *streamEnd) Error() string { return e.text }

var (
	endStopping = &streamEnd{"stopping", "the server is stopping"}
	endToken    = &streamEnd{"token", "the token is not accepted any more"}
	endRepo     = &streamEnd{"repo", "the repository is gone"}
	endClient   = &streamEnd{"client", "the client has gone"}
	endSlow     = &streamEnd{"slow", "the client does not read"}
	endFailure  = &streamEnd{"failure", "the events cannot be read"}
)

// streamRetry is how long a client waits before it comes back, in its own words.
const streamRetry = "retry: 1000\n"

// sendStep is how much goes out under one deadline.
const sendStep = 64 << 10

// streamEvents answers with a stream. What fails before its first page was read still
// has a status.
func (s *Server) streamEvents(q *request, want eventsWant) error {
	page, err := q.repo.Events(q.ctx(), q.caller(), want.query(want.after))
	if err != nil {
		return err
	}
	h := q.x.Header()
	h["Content-Type"] = []string{streamMedia}
	h["Cache-Control"] = noStore
	h["X-Accel-Buffering"] = []string{"no"}
	if !q.x.streams { // the stream ends with its connection: no chunks, and one packet for what is sent together
		h["Transfer-Encoding"] = []string{"identity"}
	}
	q.x.WriteHeader(http.StatusOK)
	if q.r.Method == http.MethodHead {
		return nil
	}
	key, from := s.feedOf(q, want)
	st := &eventStream{
		q: q, want: want, all: s.feeds, key: key, from: from, metrics: s.Metrics,
		good: func() error { return s.stillGood(q) }, now: s.Now, until: s.goodUntil(q.who), after: want.after,
	}
	return st.run(page)
}

// goodUntil is when a token's time is up: its exp, or for one that came after it, from
// a clock that is behind ours, when it will not be accepted any more.
func (s *Server) goodUntil(who *tokens.Principal) time.Time {
	if s.Now().Before(who.ExpiresAt) {
		return who.ExpiresAt
	}
	return who.ExpiresAt.Add(tokens.Leeway)
}

// run tells what there is and what comes until the stream is over, and why it is.
func (st *eventStream) run(page gitstore.EventPage) error {
	st.metrics.streams.Inc()
	defer st.metrics.streams.Dec()
	st.q.x.pass.rest()
	st.beat = time.NewTicker(st.all.pace.beat)
	defer st.beat.Stop()
	st.end = time.NewTimer(st.until.Sub(st.now()))
	defer st.end.Stop()
	defer st.part()
	st.all.began(st)
	defer st.all.ended(st)
	err := st.send([]byte(streamRetry + ": events of a repo, numbered by its log\n\n"))
	if err == nil {
		err = st.tell(page)
	}
	over := streamEndOf(err)
	st.metrics.ended.WithLabelValues(over.reason).Inc()
	if over == endSlow || over == endFailure {
		return err // the connection is cut
	}
	if over != endClient {
		_ = st.sendWithin(lastWord, []byte(": end: "+over.text+"\n\n"))
	}
	return nil
}

// lastWord is how long a stream that is over waits for its client to take its last comment.
const lastWord = time.Second

// streamEndOf finds out why a stream is over.
func streamEndOf(err error) *streamEnd {
	var end *streamEnd
	switch {
	case errors.As(err, &end):
		return end
	case errors.Is(err, gitstore.ErrRepoNotFound):
		return endRepo
	case errors.Is(err, gitstore.ErrClosed):
		return endStopping
	case errors.Is(err, context.Canceled):
		return endClient
	case errors.Is(err, os.ErrDeadlineExceeded):
		return endSlow
	}
	return endFailure
}

// tell sends pages of the log until the stream has caught up, follows the feed, and
// reads the log again whenever that has gone on without it.
func (st *eventStream) tell(page gitstore.EventPage) error {
	var text []byte
	for {
		text = text[:0]
		for i := range page.Events {
			text = appendFrame(text, &page.Events[i])
		}
		if err := st.send(text); err != nil {
			return err
		}
		if cap(text) > keptBuffer {
			text = nil
		}
		st.after = page.Last
		if !page.More {
			if err := st.follow(); !errors.Is(err, errBehind) {
				return err
			}
			st.part()
		}
		if err := st.may(); err != nil {
			return err
		}
		var err error
		if page, err = st.read(); err != nil {
			return err
		}
	}
}

// read reads the next page of the log, however long the ledger is away.
func (st *eventStream) read() (gitstore.EventPage, error) {
	for {
		st.q.x.pass.work()
		page, err := st.from.log.Events(st.q.ctx(), gitstore.Caller{Policy: st.from.policy}, st.want.query(st.after))
		st.q.x.pass.rest()
		if err == nil || !passing(err) {
			return page, err
		}
		again := time.NewTimer(st.all.pace.retry)
		err = st.wait(again.C, nil)
		again.Stop()
		if err != nil {
			return page, err
		}
	}
}

// follow sends what the feed has for as long as it has what comes next: then errBehind.
func (st *eventStream) follow() error {
	if st.feed == nil {
		st.feed = st.all.join(st.key, st.from, st.after)
	}
	for {
		text, to, grown, err := st.feed.take(st.after)
		switch {
		case err != nil && passing(err):
			return errBehind
		case err != nil:
			return err
		case len(text) == 0:
			st.after = to
			err = st.wait(nil, grown)
		default:
			if err = st.may(); err == nil {
				err = st.send(text)
			}
			st.after = to
		}
		if err != nil {
			return err
		}
	}
}

// part leaves the feed.
func (st *eventStream) part() {
	if st.feed != nil {
		st.feed.leave()
		st.feed = nil
	}
}

// wait returns when one of two channels lets it; its error is why the stream is over.
func (st *eventStream) wait(timer <-chan time.Time, grown <-chan struct{}) error {
	for {
		select {
		case <-grown:
			return nil
		case <-timer:
			return nil
		case <-st.beat.C:
			if err := st.may(); err != nil {
				return err
			}
			if err := st.send(heartbeat); err != nil {
				return err
			}
		case <-st.end.C:
			return endToken
		case <-st.all.stopping:
			return endStopping
		case <-st.q.ctx().Done():
			return endClient
		}
	}
}

var heartbeat = []byte(":\n\n")

// may is nil while the stream may go on. It is asked before anything is told.
func (st *eventStream) may() error {
	switch {
	case st.all.stops():
		return endStopping
	case st.q.ctx().Err() != nil:
		return endClient
	case !st.now().Before(st.until):
		return endToken
	}
	if err := st.good(); err != nil && problemOf(err).status < http.StatusInternalServerError {
		return endToken
	}
	return nil // what cannot be asked now is asked again with the next event
}

// stillGood asks once more whether the token of a request that stays is good.
func (s *Server) stillGood(q *request) error {
	token, err := credentials(q.r, false)
	if err == nil {
		_, err = s.Tokens.Verify(q.ctx(), token)
	}
	if err == nil && q.who.Issued {
		err = s.standing(q.ctx(), q.repo, q.who)
	}
	return err
}

// feedOf says which feed has what a request may see.
func (s *Server) feedOf(q *request, want eventsWant) (feedKey, source) {
	info := q.repo.Info()
	key := feedKey{org: info.Org, name: info.Name, repo: info.ID, session: want.session, ref: want.ref}
	from := source{log: q.repo, alive: func(ctx context.Context) error {
		r, err := s.Store.Repo(ctx, key.org, key.name)
		if err == nil && r.Info().ID != key.repo {
			err = gitstore.ErrRepoNotFound // another one of this name
		}
		return err
	}}
	if q.who.Policy.RestrictsReads() {
		key.policy, from.policy = q.who.Policy.Key(), q.who.Policy
	}
	return key, from
}

// send sends text, which has to go out within the time in which a client must read
// something: endSlow if it does not, endClient if there is nobody any more.
func (st *eventStream) send(text []byte) error {
	return st.sendWithin(st.q.x.window, text)
}

// hurry leaves what is being sent little time.
func (st *eventStream) hurry() {
	_ = st.q.x.conn.SetWriteDeadline(time.Now().Add(lastWord))
}

func (st *eventStream) sendWithin(window time.Duration, text []byte) error {
	x := st.q.x
	for len(text) > 0 {
		step := text[:min(len(text), sendStep)]
		text = text[len(step):]
		x.armed = time.Now()
		_ = x.conn.SetWriteDeadline(x.armed.Add(window))
		if st.all.stops() {
			st.hurry() // stop may have come before the deadline that was set last
		}
		n, err := x.ResponseWriter.Write(step)
		x.bytes += int64(n)
		if err == nil {
			err = x.conn.Flush()
		}
		x.pause()
		switch {
		case err == nil:
		case isTimeout(err):
			return endSlow
		default:
			return endClient
		}
	}
	return nil
}

// appendFrame writes an event as a stream sends it. JSON text has no line ends.
func appendFrame(to []byte, e *gitstore.LogEvent) []byte {
	to = append(to, "id: "...)
	to = strconv.AppendUint(to, e.Seq, 10)
	to = append(to, "\nevent: "...)
	to = append(to, e.Type...)
	to = append(to, "\ndata: "...)
	enc := encoders.Get().(*encoder)
	defer enc.release()
	if err := enc.json.Encode(eventBodyOf(e)); err != nil {
		panic("encode event: " + err.Error()) // there is nothing in it that cannot be encoded
	}
	to = append(to, enc.buf.Bytes()...) // ends with a line end
	return append(to, '\n')
}
