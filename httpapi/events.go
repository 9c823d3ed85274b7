package httpapi

import (
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/refpolicy"
)

// An eventBody is an event in lists and streams.
type eventBody struct {
	Seq     uint64          `json:"seq"`
	At      string          `json:"at"` // to the millisecond
	Type    string          `json:"type"`
	Actor   actorBody       `json:"actor"`
	Changes []changeBody    `json:"changes"`
	Session string          `json:"session,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

type actorBody struct {
	Subject string `json:"sub"`
	TokenID string `json:"jti,omitempty"`
	Session string `json:"session,omitempty"`
}

// A changeBody is a ref's movement; Branch is there for branches.
type changeBody struct {
	Ref       refpolicy.RefName `json:"ref"`
	Branch    string            `json:"branch,omitempty"`
	Ephemeral *bool             `json:"ephemeral,omitempty"`
	Old       refpolicy.OID     `json:"old_sha"`
	New       refpolicy.OID     `json:"new_sha"`
	Kind      string            `json:"kind"`
	Session   string            `json:"session,omitempty"`
}

const eventTime = "2006-01-02T15:04:05.000Z"

var yesNo = [2]bool{false, true} // for pointers to them

func eventBodyOf(e *gitstore.LogEvent) eventBody {
	b := eventBody{
		Seq: e.Seq, At: e.At.UTC().Format(eventTime), Type: e.Type,
		Actor:   actorBody{e.Actor.Subject, e.Actor.TokenID, e.Actor.Session},
		Changes: make([]changeBody, len(e.Changes)),
		Session: e.Session, Data: e.Data,
	}
	for i, c := range e.Changes {
		b.Changes[i] = changeBody{Ref: c.Ref, Old: c.Old, New: c.New, Kind: c.Kind, Session: c.Session}
		switch {
		case c.Ref.IsEphemeralBranch():
			b.Changes[i].Branch, b.Changes[i].Ephemeral = c.Ref.Short(), &yesNo[1]
		case c.Ref.IsBranch():
			b.Changes[i].Branch, b.Changes[i].Ephemeral = c.Ref.Short(), &yesNo[0]
		}
	}
	return b
}

// eventsWant is what a request for events asks for.
type eventsWant struct {
	after   uint64
	session string
	ref     refpolicy.RefName // of the session, where it is known
	limit   int
	wait    time.Duration
}

const (
	eventsDefault = 100
	eventsMost    = 1000
	eventsWaitMax = 60 * time.Second // a longer wait is cut to it
)

// eventsWanted reads a request for events. Last-Event-ID goes before the query, for it
// is what a client that comes back has seen; one that is no number of ours is as none.
func (q *request) eventsWanted() (eventsWant, error) {
	v := q.query()
	w := eventsWant{session: v.text("session"), limit: v.limit(eventsDefault, eventsMost)}
	w.after = v.number("after")
	w.wait = time.Duration(min(v.number("wait_s"), uint64(eventsWaitMax/time.Second))) * time.Second
	if seq, ok := lastEventID(q.r.Header); ok {
		w.after = seq
	}
	return w, v.err
}

// number is a parameter that is a decimal number of 0 or more; 0 without one.
func (q *query) number(name string) uint64 {
	v := q.text(name)
	if v == "" {
		return 0
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil && q.err == nil {
		q.err = invalid("query parameter %s is not a decimal number of 0 or more", name)
	}
	return n
}

// lastEventID is the number of the event that a client has seen last.
func lastEventID(h http.Header) (seq uint64, ok bool) {
	ids := h["Last-Event-Id"]
	if len(ids) != 1 || !isDigits(ids[0]) {
		return 0, false
	}
	seq, err := strconv.ParseUint(ids[0], 10, 64)
	return seq, err == nil
}

const streamMedia = "text/event-stream"

// wantsStream reports whether a client accepts server-sent events.
func wantsStream(r *http.Request) bool {
	for _, header := range r.Header["Accept"] {
		for accepted := range strings.SplitSeq(header, ",") {
			media, params, err := mime.ParseMediaType(accepted)
			if err != nil || media != streamMedia {
				continue
			}
			if q, given := params["q"]; !given || strings.Trim(q, "0.") != "" {
				return true
			}
		}
	}
	return false
}

// lasts reports whether a request may stay for what is still to happen.
func lasts(r *http.Request) bool {
	return wantsStream(r) || r.URL.Query().Has("wait_s")
}

func (w eventsWant) query(after uint64) gitstore.EventQuery {
	return gitstore.EventQuery{After: after, Session: w.session, Ref: w.ref, Limit: w.limit}
}

// getEvents tells what happened in a repo after a number: as it happens to those who
// accept a stream, else what there is, or as soon as there is something.
func (s *Server) getEvents(q *request) error {
	want, err := q.eventsWanted()
	if err != nil {
		return err
	}
	if want.session != "" && s.Sessions != nil {
		session, err := s.Sessions.Get(q.ctx(), q.session(), q.door(), want.session)
		if err != nil {
			return err
		}
		want.ref = refpolicy.RefName(session.Ref)
	}
	if wantsStream(q.r) {
		return s.streamEvents(q, want)
	}
	page, err := q.repo.Events(q.ctx(), q.caller(), want.query(want.after))
	if err == nil && len(page.Events) == 0 && !page.More && want.wait > 0 && q.r.Method == http.MethodGet {
		page, err = s.awaitEvents(q, want, page)
	}
	if err != nil {
		return err
	}
	events := make([]eventBody, len(page.Events))
	for i := range page.Events {
		events[i] = eventBodyOf(&page.Events[i])
	}
	q.x.Header()["Cache-Control"] = noStore
	return q.x.json(http.StatusOK, struct {
		Events  []eventBody `json:"events"`
		LastSeq uint64      `json:"last_seq"`
		HasMore bool        `json:"has_more"`
	}{events, page.Last, page.More})
}

var noStore = []string{"no-store"}

// awaitEvents waits for something after the end of a page, and gives what there is
// then. With nothing in time, or when the server stops, that is as little as before.
func (s *Server) awaitEvents(q *request, want eventsWant, page gitstore.EventPage) (gitstore.EventPage, error) {
	q.x.pass.rest()
	defer q.x.pass.work()
	over := time.NewTimer(want.wait)
	defer over.Stop()
	key, from := s.feedOf(q, want)
	f := s.feeds.join(key, from, page.Last)
	defer f.leave()
	at := page.Last
	for {
		text, to, grown, err := f.take(at)
		if len(text) > 0 || err != nil {
			if err := s.stillGood(q); err != nil {
				return page, err
			}
			// What has ended a feed is found out by reading too, or has passed.
			return q.repo.Events(q.ctx(), q.caller(), want.query(page.Last))
		}
		at = to
		select {
		case <-grown:
			continue
		case <-over.C:
		case <-s.feeds.stopping:
		case <-q.ctx().Done():
			return page, q.ctx().Err()
		}
		page.Last = at
		return page, s.stillGood(q)
	}
}
