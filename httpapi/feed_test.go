package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/tokens"
)

// testLog is a repo's log in memory. Every third entry is not for its readers.
type testLog struct {
	mu    sync.Mutex // guards what follows
	last  uint64
	away  error
	gone  bool
	reads int
	wakes []chan struct{}
}

var _ eventLog = (*testLog)(nil)

func (l *testLog) write(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last += uint64(n)
	l.wake()
}

func (l *testLog) wake() {
	for _, ch := range l.wakes {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (l *testLog) set(away error, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away, l.gone = away, gone
}

func (l *testLog) took() (reads int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reads, l.reads = l.reads, 0
	return reads
}

func hiddenEntry(seq uint64) bool { return seq%3 == 0 }

func (l *testLog) Events(_ context.Context, _ gitstore.Caller, q gitstore.EventQuery) (gitstore.EventPage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if l.away != nil {
		return gitstore.EventPage{}, l.away
	}
	p := gitstore.EventPage{Last: q.After, Newest: l.last}
	if q.After > l.last {
		p.Events, p.Last = []gitstore.LogEvent{{Seq: l.last, Type: gitstore.EventResync}}, l.last
	}
	for p.Last < l.last && len(p.Events) < q.Limit {
		if p.Last++; !hiddenEntry(p.Last) {
			p.Events = append(p.Events, gitstore.LogEvent{Seq: p.Last, Type: "ref.updated"})
		}
	}
	p.More = p.Last < l.last
	return p, nil
}

func (l *testLog) WatchEvents(ctx context.Context) (<-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch := make(chan struct{}, 1)
	l.wakes = append(l.wakes, ch)
	return ch, nil
}

func (l *testLog) alive(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return gitstore.ErrRepoNotFound
	}
	return nil
}

// testStreams are streams over one log.
type testStreams struct {
	t    testing.TB
	log  *testLog
	all  *feeds
	m    *Metrics
	open sync.WaitGroup
}

func newTestStreams(t testing.TB) *testStreams {
	return &testStreams{t: t, log: &testLog{}, all: newFeeds(slog.New(slog.DiscardHandler)), m: NewMetrics()}
}

// A testClient takes what a stream sends, for as long as it reads.
type testClient struct {
	httptest.ResponseRecorder
	mu       sync.Mutex // guards what follows, and Body
	writes   []time.Time
	stalled  bool
	deadline time.Time
	moved    chan struct{} // closed when the deadline is moved
	err      error         // the stream's own end
	leave    context.CancelFunc
}

func (c *testClient) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	close(c.moved)
	c.moved = make(chan struct{})
	return nil
}

// full waits until the deadline of a client that does not read has passed.
func (c *testClient) full() error {
	for {
		c.mu.Lock()
		stalled, deadline, moved := c.stalled, c.deadline, c.moved
		c.mu.Unlock()
		switch {
		case !stalled:
			return nil
		case deadline.IsZero():
			<-moved
			continue
		}
		select {
		case <-moved:
		case <-time.After(time.Until(deadline)):
			return os.ErrDeadlineExceeded
		}
	}
}

func (c *testClient) Write(p []byte) (int, error) {
	if err := c.full(); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, time.Now())
	return c.Body.Write(p)
}

// stall has the client read no more.
func (c *testClient) stall() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalled = true
}

func (c *testClient) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// took gives what came since it was asked last.
func (c *testClient) took() (text string, writes []time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, writes = c.Body.String(), c.writes
	c.Body.Reset()
	c.writes = nil
	return text, writes
}

// stream opens a stream for a client that has seen a number.
func (s *testStreams) stream(after uint64, life time.Duration) *testClient {
	ctx, leave := context.WithCancel(s.t.Context())
	c := &testClient{ResponseRecorder: httptest.ResponseRecorder{Body: &bytes.Buffer{}}, moved: make(chan struct{}), leave: leave}
	r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
	x := &exchange{ResponseWriter: c, conn: http.NewResponseController(c), window: 30 * time.Second}
	from := source{log: s.log, alive: s.log.alive}
	st := &eventStream{
		q: &request{x: x, r: r, who: &tokens.Principal{}}, want: eventsWant{limit: 100}, all: s.all, key: feedKey{repo: "r"}, from: from,
		metrics: s.m, good: func() error { return nil }, now: time.Now, until: time.Now().Add(life), after: after,
	}
	page, err := s.log.Events(ctx, gitstore.Caller{}, st.want.query(after))
	if err != nil {
		s.t.Fatal(err)
	}
	s.open.Go(func() {
		err := st.run(page)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = err
	})
	return c
}

func idsIn(text string) (seqs []uint64) {
	for line := range strings.Lines(text) {
		var seq uint64
		if n, _ := fmt.Sscanf(line, "id: %d\n", &seq); n == 1 {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// wantIDs fails unless text tells of exactly the entries from one on to another.
func wantIDs(t testing.TB, what, text string, from, to uint64) {
	t.Helper()
	var want []uint64
	for seq := from; seq <= to; seq++ {
		if !hiddenEntry(seq) {
			want = append(want, seq)
		}
	}
	if got := idsIn(text); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: events %v, want %v", what, got, want)
	}
}

// Case 15.5: a stream with nothing to tell says every 15 s that it lives, without an id.
func TestCase15_5_HeartbeatsHaveNoID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStreams(t)
		c := s.stream(0, time.Hour)
		synctest.Wait()
		c.took()
		time.Sleep(90*time.Second + time.Millisecond)
		text, writes := c.took()
		if len(writes) != 6 || strings.Trim(text, ":\n") != "" {
			t.Errorf("in 90 s came %q in %d pieces, want 6 comments", text, len(writes))
		}
		c.leave()
		s.open.Wait()
	})
}

// E-02: while little happens, an event is told when it happens, also the second and
// third of few; while much happens, what comes within 20 ms goes out together, and the
// log is read once for all.
func TestE02_QuietLogsAreToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStreams(t)
		var all []*testClient
		for range 20 {
			all = append(all, s.stream(0, time.Hour))
		}
		synctest.Wait()
		for range 3 {
			time.Sleep(25 * time.Millisecond)
			at := time.Now()
			s.log.write(2) // one of them is not hidden
			synctest.Wait()
			for _, c := range all {
				if _, writes := c.took(); len(writes) == 0 || !writes[len(writes)-1].Equal(at) {
					t.Fatalf("an event after a pause came at %v, want at once: %v", writes, at)
				}
			}
		}
		time.Sleep(time.Second)
		s.log.took()
		for range 1000 {
			s.log.write(1)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
		if reads := s.log.took(); reads > 60 {
			t.Errorf("1,000 entries in a second were read in %d calls for 20 streams, want about 50", reads)
		}
		for _, c := range all {
			text, writes := c.took()
			wantIDs(t, "1,000 entries", text, 7, 1006)
			if len(writes) > 60 {
				t.Fatalf("1,000 entries in a second were sent in %d writes, want about 50", len(writes))
			}
			c.leave()
		}
		s.open.Wait()
		if len(s.all.open) != 0 {
			t.Errorf("%d feeds are left", len(s.all.open))
		}
	})
}

// Nobody waits for a slow client, who is cut off; who only falls behind reads the log.
func TestCase15_3_SlowClientsHoldNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStreams(t)
		slow, fast := s.stream(0, time.Hour), s.stream(0, time.Hour)
		synctest.Wait()
		slow.stall()
		time.Sleep(25 * time.Millisecond)
		s.log.write(200)
		synctest.Wait()
		text, _ := fast.took()
		wantIDs(t, "the other client", text, 1, 200)
		time.Sleep(29 * time.Second)
		if err := slow.end(); err != nil {
			t.Errorf("a client that does not read for a while is cut off: %v", err)
		}
		time.Sleep(time.Second)
		synctest.Wait() // its time is up at this very moment
		if err := slow.end(); !errors.Is(err, endSlow) {
			t.Errorf("the stream of a client that does not read ends with %v", err)
		}
		if got := metricOf(t, s.m, `headgate_streams_ended_total{reason="slow"}`); got != "1" {
			t.Errorf("slow clients counted = %q, want 1", got)
		}
		fast.leave()
		s.open.Wait()
	})
}

// A server that stops does not wait for a client that does not read.
func TestStoppingHurriesSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStreams(t)
		slow := s.stream(0, time.Hour)
		time.Sleep(25 * time.Millisecond)
		slow.stall()
		s.log.write(1)
		synctest.Wait()
		begun := time.Now()
		s.all.stop()
		s.all.stop()
		s.open.Wait()
		if took := time.Since(begun); took > 2*lastWord {
			t.Errorf("the stream ends %v after the server is told to stop", took)
		}
	})
}

func metricOf(t testing.TB, m *Metrics, name string) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// What a feed holds is bounded in size and in time.
func TestFeedHoldsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStreams(t)
		c := s.stream(0, time.Hour)
		synctest.Wait()
		f := s.all.open[feedKey{repo: "r"}]
		for range 30 {
			s.log.write(500)
			time.Sleep(30 * time.Millisecond)
		}
		f.mu.Lock()
		if f.bytes > feedBytes+len(f.parts[len(f.parts)-1].text) || f.base == 0 {
			t.Errorf("a feed holds %d bytes", f.bytes)
		}
		f.mu.Unlock()
		if _, _, _, err := f.take(1); !errors.Is(err, errBehind) {
			t.Errorf("take what is not held = %v, want errBehind", err)
		}
		late := s.stream(1, time.Hour) // joins the same feed after it has caught up
		synctest.Wait()
		text, _ := late.took()
		wantIDs(t, "who came late", text, 2, 15_000)
		time.Sleep(6 * time.Second)
		f.mu.Lock()
		if f.bytes != 0 || f.parts != nil {
			t.Errorf("after a while a feed still holds %d bytes", f.bytes)
		}
		f.mu.Unlock()
		s.log.write(1)
		synctest.Wait()
		text, _ = late.took()
		wantIDs(t, "after that", text, 15_001, 15_001)
		c.leave()
		late.leave()
		s.open.Wait()
	})
}

// The ledger may be away for a while; a log that has lost entries is told of by a
// resync; what ends the log ends the streams.
func TestStreamsOutliveTheirLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStreams(t)
		c := s.stream(0, time.Hour)
		s.log.write(2)
		synctest.Wait()
		c.took()
		s.log.set(fmt.Errorf("read: %w", ledger.ErrUnavailable), false)
		s.log.write(2)
		time.Sleep(20 * time.Second)
		if text, _ := c.took(); len(idsIn(text)) > 0 || !strings.Contains(text, ":\n\n") {
			t.Errorf("while the ledger was away came %q, want heartbeats", text)
		}
		s.log.set(nil, false) // nobody wakes the feed for it
		time.Sleep(2 * time.Second)
		text, _ := c.took()
		wantIDs(t, "when it was back", text, 3, 4)

		s.log.mu.Lock()
		s.log.last = 2 // a failover lost writes
		s.log.wake()
		s.log.mu.Unlock()
		synctest.Wait()
		time.Sleep(time.Second)
		if text, _ = c.took(); !strings.Contains(text, "id: 2\nevent: resync\n") || len(idsIn(text)) != 1 {
			t.Errorf("after lost entries came %q, want one resync", text)
		}
		s.log.write(3)
		synctest.Wait()
		time.Sleep(time.Second)
		text, _ = c.took()
		wantIDs(t, "after the resync", text, 3, 5)

		s.log.set(io.ErrUnexpectedEOF, false)
		s.log.write(1)
		s.open.Wait()
		if !errors.Is(c.err, io.ErrUnexpectedEOF) {
			t.Errorf("a stream whose log cannot be read ends with %v, want to be cut", c.err)
		}
		if got := metricOf(t, s.m, `headgate_streams_ended_total{reason="failure"}`); got != "1" {
			t.Errorf("streams that failed = %q, want 1", got)
		}
	})
}

func TestStreamEndsInTime(t *testing.T) {
	for what, tc := range map[string]struct {
		life  time.Duration
		do    func(*testStreams)
		after time.Duration // at most
		want  string
	}{
		"the token's time is up":     {5*time.Second + 25*time.Millisecond, func(*testStreams) {}, 5 * time.Second, "the token is not accepted any more"},
		"the repo goes here":         {time.Hour, func(s *testStreams) { s.log.set(nil, true); s.all.lookAt("", "") }, 0, "the repository is gone"},
		"the repo goes on a node":    {time.Hour, func(s *testStreams) { s.log.set(nil, true) }, 15 * time.Second, "the repository is gone"},
		"the server stops":           {time.Hour, func(s *testStreams) { s.all.stop() }, 0, "the server is stopping"},
		"the repo goes under a read": {time.Hour, func(s *testStreams) { s.log.set(gitstore.ErrRepoNotFound, false); s.log.write(1) }, 0, "the repository is gone"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newTestStreams(t)
			c := s.stream(0, tc.life)
			time.Sleep(25 * time.Millisecond) // since the log was read first
			begun := time.Now()
			tc.do(s)
			s.open.Wait()
			text, _ := c.took()
			if took := time.Since(begun); took > tc.after || !strings.HasSuffix(text, ": end: "+tc.want+"\n\n") {
				t.Errorf("%s: the stream ends after %v with %q, want within %v", what, took, text, tc.after)
			}
		})
	}
}

// Whatever comes between, every stream tells every entry after its number once, in order.
func TestStreamsHaveNoGaps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 16).Draw(rt, "steps")
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 3, 40, 600}), len(steps), len(steps)).Draw(rt, "sizes")
		synctest.Test(t, func(t *testing.T) {
			s := newTestStreams(t)
			type seen struct {
				*testClient
				after uint64
				text  strings.Builder
			}
			var clients []*seen
			collect := func() {
				for _, c := range clients {
					text, _ := c.took()
					c.text.WriteString(text)
				}
			}
			for i, step := range steps {
				switch step {
				case 0, 1, 2:
					s.log.write(sizes[i])
				case 3:
					after := s.log.last * uint64(sizes[i]) / 600
					clients = append(clients, &seen{testClient: s.stream(after, time.Hour), after: after})
				case 4:
					time.Sleep(time.Duration(sizes[i]) * time.Millisecond)
				case 5:
					s.log.set(ledger.ErrUnavailable, false)
					time.Sleep(time.Duration(sizes[i]) * time.Millisecond)
					s.log.set(nil, false)
				}
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			collect()
			for _, c := range clients {
				wantIDs(t, fmt.Sprintf("a stream from %d on", c.after), c.text.String(), c.after+1, s.log.last)
				c.leave()
			}
			s.open.Wait()
		})
	})
}
