package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// A told is what a stream sent between two blank lines.
type told struct {
	id, event, comment, retry string
	data                      eventBody
}

// A listener reads a stream.
type listener struct {
	t    testing.TB
	resp *http.Response
	in   *bufio.Reader
	end  context.CancelFunc
}

// listen opens a stream, whose status must be 200.
func (g *gate) listen(a ask) *listener {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	req, err := http.NewRequestWithContext(ctx, first(a.method, "GET"), g.http.URL+a.path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	for name, v := range a.header {
		req.Header[name] = v
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+a.token)
	resp, err := g.http.Client().Transport.RoundTrip(req)
	if err != nil {
		g.t.Fatalf("open stream: %v", err)
	}
	l := &listener{t: g.t, resp: resp, in: bufio.NewReader(resp.Body), end: cancel}
	g.t.Cleanup(l.close)
	if resp.StatusCode != 200 {
		body, _ := io.ReadAll(resp.Body)
		g.t.Fatalf("open stream %s = %d %s", a.path, resp.StatusCode, body)
	}
	return l
}

func (l *listener) close() {
	l.end()
	l.resp.Body.Close()
}

// next is the next thing the stream says; io.EOF after the last.
func (l *listener) next() (d told, err error) {
	for {
		line, err := l.in.ReadString('\n')
		if err != nil {
			return d, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			return d, nil
		case name == "":
			d.comment += value
		case name == "id":
			d.id = value
		case name == "event":
			d.event = value
		case name == "retry":
			d.retry = value
		case name == "data":
			if err := json.Unmarshal([]byte(value), &d.data); err != nil {
				return d, fmt.Errorf("data %q: %w", value, err)
			}
		default:
			return d, fmt.Errorf("line %q", line)
		}
	}
}

// event is the next event, after any number of comments.
func (l *listener) event() told {
	l.t.Helper()
	for {
		d, err := l.next()
		if err != nil {
			l.t.Fatalf("next event: %v", err)
		}
		if d.event == "" {
			continue
		}
		if d.id != strconv.FormatUint(d.data.Seq, 10) || d.event != d.data.Type {
			l.t.Fatalf("event %q has the id %q and the type %s, want those of its data %+v", d.event, d.id, d.data.Type, d.data)
		}
		return d
	}
}

// last reads to the stream's end and gives its last comment, and the events before it.
func (l *listener) last() (comment string, events []told) {
	l.t.Helper()
	for {
		d, err := l.next()
		if err == io.EOF {
			return comment, events
		}
		if err != nil {
			l.t.Fatalf("read to the end: %v", err)
		}
		if d.event != "" {
			events = append(events, d)
		} else {
			comment = d.comment
		}
	}
}

type eventsAnswer struct {
	Events  []eventBody `json:"events"`
	LastSeq uint64      `json:"last_seq"`
	HasMore bool        `json:"has_more"`
}

func (r *repo) events(token string, query ...string) eventsAnswer {
	r.t.Helper()
	return eventsIn(r.t, r.want(200, ask{path: r.path("/events", query...), token: token}))
}

func eventsIn(t testing.TB, a answer) (v eventsAnswer) {
	t.Helper()
	a.json(t)
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func lastEvent(id string) http.Header { return http.Header{"Last-Event-Id": {id}} }

func TestEventsAsList(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("team/site")
	a := r.commit(nil, file{path: "a", data: "1"})
	b := r.commit(meta{"expected_head_sha": a}, file{path: "a", data: "2"})
	s := r.commit(meta{"target_branch": "s/1", "base_branch": "main", "ephemeral": true}, file{path: "a", data: "3"})
	zero := strings.Repeat("0", 40)

	all := r.events(r.read)
	if len(all.Events) != 3 || all.LastSeq != 3 || all.HasMore {
		t.Fatalf("events = %+v, want three", all)
	}
	for i, want := range []struct {
		ref, branch, old, new, kind string
		ephemeral                   bool
	}{
		{"refs/heads/main", "main", zero, a, "create", false},
		{"refs/heads/main", "main", a, b, "update", false},
		{"refs/namespaces/ephemeral/refs/heads/s/1", "s/1", zero, s, "create", true},
	} {
		e := all.Events[i]
		if e.Seq != uint64(i+1) || e.Type != "ref.updated" || e.Actor.Subject != "builder" || len(e.Changes) != 1 {
			t.Errorf("event %d = %+v", i, e)
			continue
		}
		c := e.Changes[0]
		if string(c.Ref) != want.ref || c.Branch != want.branch || c.Old.String() != want.old || c.New.String() != want.new || c.Kind != want.kind || c.Ephemeral == nil || *c.Ephemeral != want.ephemeral {
			t.Errorf("change of event %d = %+v, want %+v", i, c, want)
		}
		if at, err := time.Parse(time.RFC3339, e.At); err != nil || time.Since(at) > time.Hour {
			t.Errorf("event %d is of %q", i, e.At)
		}
	}
	if got := r.events(r.read, "after", "1", "limit", "1"); len(got.Events) != 1 || got.Events[0].Seq != 2 || got.LastSeq != 2 || !got.HasMore {
		t.Errorf("one event after 1 = %+v", got)
	}
	if got := r.events(r.read, "after", "3"); len(got.Events) != 0 || got.LastSeq != 3 || got.HasMore || got.Events == nil {
		t.Errorf("events after the last = %+v", got)
	}
	// Newer than the newest: the state instead.
	if got := r.events(r.read, "after", "99"); len(got.Events) != 1 || got.Events[0].Type != "resync" || got.Events[0].Seq != 3 || got.LastSeq != 3 || !strings.Contains(string(got.Events[0].Data), b) {
		t.Errorf("events after 99 = %+v, want a resync", got)
	}
	for query, want := range map[string]int{"after=-1": 400, "after=x": 400, "wait_s=1.5": 400, "wait_s=-1": 400, "limit=x": 400, "after=18446744073709551616": 400, "limit=5000": 200, "wait_s=0": 200} {
		r.want(want, ask{path: r.path("/events") + "?" + query, token: r.read})
	}
	r.want(401, ask{path: r.path("/events")})
	r.want(403, ask{path: r.path("/events"), token: token(t, r.name, tokens.OrgRead)})
	r.want(404, ask{path: "/api/repos/other/events", token: r.read})
	if h := r.want(200, ask{path: r.path("/events"), token: r.read}).header; h.Get("Cache-Control") != "no-store" {
		t.Errorf("headers of a list = %v", h)
	}
}

// One session's events are what happened to it and to its branch.
func TestEventsOfOneSession(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	head := r.commit(nil, file{path: "a", data: "1"})
	for _, id := range []string{"s1", "s2"} {
		r.want(201, ask{method: "POST", path: r.path("/sessions"), token: r.write, body: meta{"id": id, "base_ref": "main"}})
	}
	l := g.listen(ask{path: r.path("/events", "session", "s1"), token: r.read})
	r.commit(meta{"target_branch": "sessions/s2", "ephemeral": true}, file{path: "a", data: "2"})
	mine := r.commit(meta{"target_branch": "sessions/s1", "ephemeral": true}, file{path: "a", data: "3"})
	r.want(200, ask{method: "POST", path: r.path("/sessions/s1/lease"), token: r.write, body: meta{"action": "takeover", "holder": "x", "ttl_s": 60}})
	r.want(200, ask{method: "DELETE", path: r.path("/sessions/s1", "holder", "x"), token: r.write})
	for _, want := range []struct{ event, old, new string }{
		{"session.created", strings.Repeat("0", 40), head},
		{"ref.updated", head, mine},
		{"lease.changed", "", ""},
		{"session.ended", mine, strings.Repeat("0", 40)},
	} {
		e := l.event()
		if e.event != want.event || e.data.Session != "s1" {
			t.Errorf("event = %+v, want %s of s1", e.data, want.event)
			continue
		}
		if want.old == "" && len(e.data.Changes) != 0 {
			t.Errorf("%s changes %v", e.event, e.data.Changes)
		}
		if want.old != "" && (len(e.data.Changes) != 1 || e.data.Changes[0].Old.String() != want.old || e.data.Changes[0].New.String() != want.new || e.data.Changes[0].Session != "s1") {
			t.Errorf("%s changes %v, want %s to %s", e.event, e.data.Changes, want.old, want.new)
		}
	}
	if got := r.events(r.read, "session", "s2", "after", "99"); len(got.Events) != 1 || strings.Contains(string(got.Events[0].Data), "refs/heads/main") || !strings.Contains(string(got.Events[0].Data), "sessions/s2") {
		t.Errorf("resync of one session = %+v, want its branch alone", got)
	}
	r.want(404, ask{path: r.path("/events", "session", "none"), token: r.read})
}

// A long poll answers as soon as there is something, and with nothing when its time is up.
func TestEventsLongPoll(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	head := r.commit(nil, file{path: "a", data: "1"})
	if got := r.events(r.read, "after", "0", "wait_s", "60"); len(got.Events) != 1 {
		t.Errorf("a poll with something to tell = %+v", got)
	}
	answers := make(chan eventsAnswer, 2)
	hidden := tokenOf(t, tokens.Claims{Repo: "r", Scopes: []tokens.Scope{tokens.GitRead}, Refs: []refpolicy.Rule{rule("refs/heads/other"), rule("*", refpolicy.NoRead)}})
	var polls sync.WaitGroup
	for _, token := range []string{r.read, hidden} {
		polls.Go(func() {
			answers <- eventsIn(t, g.do(ask{path: r.path("/events", "after", "1", "wait_s", "60"), token: token}))
		})
	}
	g.waitUsed(streamPlaces, 2)
	g.waitUsed(turns, 0)
	head = r.commit(meta{"expected_head_sha": head}, file{path: "a", data: "2"})
	if got := <-answers; len(got.Events) != 1 || got.Events[0].Changes[0].New.String() != head || got.LastSeq != 2 {
		t.Errorf("a poll that waited = %+v, want the commit %s", got, head)
	}
	r.commit(meta{"target_branch": "other", "base_branch": "main"}, file{path: "b", data: "1"})
	if got := <-answers; len(got.Events) != 1 || got.Events[0].Changes[0].Branch != "other" || got.LastSeq != 3 {
		t.Errorf("the poll of who may read another branch = %+v", got)
	}
	polls.Wait()
	if got := r.events(r.read, "after", "3", "wait_s", "1"); len(got.Events) != 0 || got.LastSeq != 3 {
		t.Errorf("a poll whose time was up = %+v", got)
	}
	g.waitUsed(streamPlaces, 0)
	g.server.feeds.stop()
	if got := r.events(r.read, "after", "3", "wait_s", "60"); len(got.Events) != 0 || got.LastSeq != 3 {
		t.Errorf("a poll of a server that stops = %+v", got)
	}
}

// E-01: a reviewer sees every step, whether he stays or comes back with his last id.
func TestE01_EveryStepOnce(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	const steps = 100
	l := g.listen(ask{path: r.path("/events"), token: r.read})
	done := make(chan []string)
	go func() {
		var heads []string
		head := ""
		for i := range steps {
			m := meta{}
			if head != "" {
				m["expected_head_sha"] = head
			}
			head = r.commit(m, file{path: "a", data: fmt.Sprint(i)})
			heads = append(heads, head)
		}
		done <- heads
	}()
	var seen []string
	var id string
	for len(seen) < steps {
		e := l.event()
		if want := uint64(len(seen) + 1); e.data.Seq != want {
			t.Fatalf("event %d after %d, want no gap and no duplicate", e.data.Seq, want-1)
		}
		seen, id = append(seen, e.data.Changes[0].New.String()), e.id
		if len(seen)%33 == 0 { // the connection is lost
			l.close()
			l = g.listen(ask{path: r.path("/events", "after", "1"), token: r.read, header: lastEvent(id)})
		}
	}
	if heads := <-done; !slices.Equal(seen, heads) {
		t.Errorf("the stream told of %v, want %v", seen, heads)
	}
}

// Case 15.1: exactly what was missed, in order, once; an id that is none of this log is
// as none, or gives the state.
func TestCase15_1_ComingBack(t *testing.T) {
	g := newGate(t)
	for i, tc := range []struct {
		last  string
		first uint64
		event string
	}{
		{"1", 2, "ref.updated"},
		{"0", 1, "ref.updated"},
		{"garbage", 1, "ref.updated"},
		{"-1", 1, "ref.updated"},
		{"99999999999999999999999", 1, "ref.updated"},
		{"", 1, "ref.updated"},
		{"3; 4", 1, "ref.updated"},
		{"4711", 4, "resync"}, // of another repo
	} {
		r := g.newRepo(fmt.Sprintf("r%d", i))
		r.commit(nil, file{path: "a", data: "0"})
		l := g.listen(ask{path: r.path("/events"), token: r.read})
		if id := l.event().id; id != "1" {
			t.Fatalf("first id = %q", id)
		}
		l.close()
		for i := range 3 {
			r.commit(nil, file{path: "a", data: fmt.Sprint(i + 1)})
		}
		l = g.listen(ask{path: r.path("/events"), token: r.read, header: lastEvent(tc.last)})
		for seq := tc.first; seq <= 4; seq++ {
			if e := l.event(); e.data.Seq != seq || e.event != tc.event {
				t.Errorf("Last-Event-ID %q: %s %d, want %s %d", tc.last, e.event, e.data.Seq, tc.event, seq)
			}
		}
		head := r.commit(nil, file{path: "b", data: "1"})
		if e := l.event(); e.data.Seq != 5 || len(e.data.Changes) != 1 || e.data.Changes[0].New.String() != head {
			t.Errorf("Last-Event-ID %q: then %+v, want the commit %s", tc.last, e, head)
		}
	}
}

// Case 15.2: the headers come at once and say that nothing may hold the stream back.
func TestCase15_2_HeadersAtOnce(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	l := g.listen(ask{path: r.path("/events"), token: r.read, header: http.Header{"Accept-Encoding": {"gzip"}}})
	h := l.resp.Header
	if h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-store" || h.Get("X-Accel-Buffering") != "no" || h.Get("Content-Encoding") != "" || h.Get("Content-Length") != "" {
		t.Errorf("headers = %v", h)
	}
	if d, err := l.next(); err != nil || d.retry == "" || d.id != "" {
		t.Errorf("a stream begins with %+v, %v; want how soon to come back", d, err)
	}
	head := r.commit(nil, file{path: "a", data: "1"})
	if e := l.event(); e.data.Changes[0].New.String() != head {
		t.Errorf("event = %+v, want the commit %s", e, head)
	}
	a := r.want(200, ask{method: "HEAD", path: r.path("/events"), token: r.read, header: http.Header{"Accept": {"text/event-stream"}}})
	if a.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD of a stream = %v", a.header)
	}
}

// E-06: going back is told as what it is.
func TestE06_RewindIsAnEvent(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	a := r.commit(nil, file{path: "a", data: "1"})
	b := r.commit(nil, file{path: "a", data: "2"})
	l := g.listen(ask{path: r.path("/events"), token: r.read, header: lastEvent("2")})
	r.want(200, ask{method: "POST", path: r.path("/branches/create"), token: r.write, body: meta{"target_branch": "main", "base_ref": a, "force": true}})
	c := l.event().data.Changes[0]
	if c.Kind != "rewind" || c.Old.String() != b || c.New.String() != a || c.Branch != "main" {
		t.Errorf("change = %+v, want a rewind from %s to %s", c, b, a)
	}
}

// Case 15.6: who may not read gets no stream; who may read some refs is told of those.
func TestCase15_6_WhoIsToldWhat(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	sse := http.Header{"Accept": {"text/event-stream"}}
	r.want(401, ask{path: r.path("/events"), header: sse})
	r.want(401, ask{path: r.path("/events"), header: sse, token: "x"})
	r.want(403, ask{path: r.path("/events"), header: sse, token: token(t, "r", tokens.OrgRead)})
	r.want(404, ask{path: r.path("/events"), header: sse, token: token(t, "other", tokens.GitRead)})

	r.commit(nil, file{path: "a", data: "1"})
	mine := tokenOf(t, tokens.Claims{Repo: "r", Scopes: []tokens.Scope{tokens.GitRead}, Refs: []refpolicy.Rule{rule("refs/heads/mine"), rule("*", refpolicy.NoRead)}})
	l := g.listen(ask{path: r.path("/events"), token: mine})
	r.commit(nil, file{path: "a", data: "2"})
	r.commit(meta{"target_branch": "mine", "base_branch": "main"}, file{path: "a", data: "3"})
	r.commit(nil, file{path: "a", data: "4"})
	r.commit(meta{"target_branch": "mine"}, file{path: "a", data: "5"})
	for _, seq := range []uint64{3, 5} {
		if e := l.event(); e.data.Seq != seq || len(e.data.Changes) != 1 || e.data.Changes[0].Branch != "mine" {
			t.Errorf("event for who may read one branch = %+v, want %d, of the branch", e.data, seq)
		}
	}
}

// Case 15.6: a stream ends with the token, with the repo, and with the server, and says so.
func TestCase15_6_HowStreamsEnd(t *testing.T) {
	for want, end := range map[string]func(*repo){
		"end: the token is not accepted any more": func(r *repo) { r.clock.advance(time.Hour + time.Second) },
		"end: the repository is gone":             func(r *repo) { r.want(200, ask{method: "DELETE", path: r.path(""), token: r.admin}) },
		"end: the server is stopping":             func(r *repo) { r.server.feeds.stop() },
	} {
		g := newGate(t)
		g.server.feeds.pace.beat = 5 * time.Millisecond
		r := g.newRepo("r")
		r.commit(nil, file{path: "a", data: "1"})
		l := g.listen(ask{path: r.path("/events"), token: r.read})
		l.event()
		end(r)
		if got, events := l.last(); got != want || len(events) > 0 {
			t.Errorf("last comment = %q after %v, want %q", got, events, want)
		}
	}
}

// A token that is refused from now on ends its stream before that is told anything more.
func TestStreamEndsWithRefusedToken(t *testing.T) {
	v := &refusingVerifier{}
	g := newGate(t, func(c *Config) { v.Verifier, c.Tokens = c.Tokens, v })
	r := g.newRepo("r")
	l := g.listen(ask{path: r.path("/events"), token: r.read})
	if _, err := l.next(); err != nil {
		t.Fatal(err)
	}
	v.refused.Store(&r.read)
	r.commit(nil, file{path: "a", data: "1"})
	if got, events := l.last(); got != "end: the token is not accepted any more" || len(events) > 0 {
		t.Errorf("a stream of a refused token ends with %q after %v", got, events)
	}
}

// A sandbox is told what happens to its branch until another writer takes over.
func TestStreamOfIssuedTokenEndsWithTakeover(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	r.commit(nil, file{path: "a", data: "1"})
	r.want(201, ask{method: "POST", path: r.path("/sessions"), token: r.write, body: meta{"id": "s1", "base_ref": "main", "holder": "x"}})
	issued := at(r.want(201, ask{method: "POST", path: r.path("/sessions/s1/tokens"), token: r.write, body: meta{}}).json(t), "token").(string)
	l := g.listen(ask{path: r.path("/events"), token: issued})
	r.commit(nil, file{path: "a", data: "not its own"})
	mine := r.commit(meta{"target_branch": "sessions/s1", "ephemeral": true}, file{path: "a", data: "2"})
	for {
		e := l.event()
		for _, c := range e.data.Changes {
			if c.Branch != "sessions/s1" {
				t.Errorf("a sandbox is told of %s", c.Ref)
			}
		}
		if len(e.data.Changes) == 1 && e.data.Changes[0].New.String() == mine {
			break
		}
	}
	r.want(200, ask{method: "POST", path: r.path("/sessions/s1/lease"), token: r.write, body: meta{"action": "takeover", "holder": "y"}})
	if got, events := l.last(); got != "end: the token is not accepted any more" || len(events) > 0 {
		t.Errorf("the stream ends with %q after %v", got, events)
	}
	r.want(403, ask{path: r.path("/events"), token: issued, header: http.Header{"Accept": {"text/event-stream"}}})
}

// refusingVerifier refuses one token.
type refusingVerifier struct {
	Verifier
	refused atomic.Pointer[string]
}

func (v *refusingVerifier) Verify(ctx context.Context, token string) (*tokens.Principal, error) {
	if p := v.refused.Load(); p != nil && *p == token {
		return nil, tokens.ErrUnauthorized
	}
	return v.Verifier.Verify(ctx, token)
}

// Streams have places of their own: many that are idle leave requests what they need,
// and one more than may be is refused.
func TestStreamsHavePlacesOfTheirOwn(t *testing.T) {
	g := newGate(t, limited(FairLimits{TokenRequests: 2, Turns: 1, TokenStreams: 20, OrgStreams: 21, LimitWait: time.Millisecond}))
	r := g.newRepo("r")
	for range 20 {
		g.listen(ask{path: r.path("/events"), token: r.read})
	}
	sse := http.Header{"Accept": {"text/event-stream"}}
	a := r.want(429, ask{path: r.path("/events"), token: r.read, header: sse})
	if !strings.Contains(string(a.body), "token_streams") || a.header.Get("Retry-After") == "" {
		t.Errorf("one stream more than a token may have = %v %s", a.header, a.body)
	}
	other := tokenOf(t, tokens.Claims{Repo: "r", Subject: "other", Scopes: []tokens.Scope{tokens.GitRead}})
	g.listen(ask{path: r.path("/events"), token: other})
	if a := r.want(429, ask{path: r.path("/events", "wait_s", "1"), token: other}); !strings.Contains(string(a.body), "org_streams") {
		t.Errorf("one stream more than an org may have = %s", a.body)
	}
	g.waitUsed(turns, 0)
	r.commit(nil, file{path: "a", data: "1"})
	r.events(r.read)
	m := g.want(200, ask{path: "/metrics"})
	if !strings.Contains(string(m.body), "headgate_streams_open 21") {
		t.Errorf("/metrics does not count 21 streams")
	}
}

func TestStreamOverHTTP2(t *testing.T) {
	g := newGate(t)
	srv := httptest.NewUnstartedServer(g.server)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	r := g.newRepo("r")
	plain := g.http
	g.http = srv
	l := g.listen(ask{path: r.path("/events"), token: r.read})
	g.http = plain
	if l.resp.ProtoMajor != 2 {
		t.Fatalf("protocol = %s", l.resp.Proto)
	}
	head := r.commit(nil, file{path: "a", data: "1"})
	if e := l.event(); e.data.Changes[0].New.String() != head {
		t.Errorf("event = %+v, want the commit %s", e, head)
	}
	g.server.feeds.stop()
	if got, _ := l.last(); got != "end: the server is stopping" {
		t.Errorf("last comment = %q", got)
	}
	srv.Close()
}

func TestWantsStream(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "application/json": false, "text/event-stream": true, "Text/Event-Stream": true,
		"application/json, text/event-stream;q=0.5": true, "text/event-stream;q=0": false, "text/event-stream;q=0.0": false,
		"text/event-stream; charset=utf-8": true, "text/event-streams": false, ";;,text/event-stream": true,
	} {
		if got := wantsStream(&http.Request{Header: http.Header{"Accept": {accept}}}); got != want {
			t.Errorf("Accept %q: a stream is wanted = %v, want %v", accept, got, want)
		}
	}
}

// What a client sends as its last id, or asks for, is a number or is not.
func FuzzEventsWanted(f *testing.F) {
	f.Add("12", "after=3&wait_s=4&limit=5")
	f.Add("-1", "after=-1")
	f.Add("99999999999999999999999999", "wait_s=99999999999999999999")
	f.Add("1 ", "limit=%zz")
	f.Fuzz(func(t *testing.T, last, query string) {
		r := &http.Request{Header: lastEvent(last), URL: &url.URL{RawQuery: query}}
		w, err := (&request{r: r}).eventsWanted()
		if err != nil {
			if p := problemOf(err); p.status != 400 {
				t.Fatalf("%q %q = %v, want 400", last, query, err)
			}
			return
		}
		if w.limit < 1 || w.limit > eventsMost || w.wait < 0 || w.wait > eventsWaitMax {
			t.Fatalf("%q %q = %+v", last, query, w)
		}
		if n, err := strconv.ParseUint(last, 10, 64); err == nil && !strings.HasPrefix(last, "+") && w.after != n {
			t.Fatalf("Last-Event-ID %q is taken for %d", last, w.after)
		}
	})
}
