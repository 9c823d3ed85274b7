package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"sort"
	"sync"
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// An eventLog is the log of a repo, which a feed reads.
type eventLog interface {
	Events(ctx context.Context, c gitstore.Caller, q gitstore.EventQuery) (gitstore.EventPage, error)
	WatchEvents(ctx context.Context) (<-chan struct{}, error)
}

var _ eventLog = (*gitstore.Repo)(nil)

// A feedKey says what a feed shows and to whom. Who may read all the same, and asks for
// the same, shares a feed.
type feedKey struct {
	org, name, repo string // repo is its id
	policy          string // "" for those who may read all refs
	session         string
	ref             refpolicy.RefName // of the session
}

// A source is where a feed gets its events.
type source struct {
	log    eventLog
	policy *refpolicy.Policy
	// alive is asked now and then whether there still is such a repo: ErrRepoNotFound.
	alive func(context.Context) error
}

// Feeds are the newest events of the repos that somebody waits for news of: the log is
// read, and events are written as they are sent, once for all who see the same. Nobody
// has a queue here. Each stream knows how far it has come and takes what is after it; if
// that is not held any more, it reads the log itself until it has caught up.
type feeds struct {
	pace   pace
	logger *slog.Logger

	stopping chan struct{} // closed by stop

	mu      sync.Mutex // guards what follows, and who of a feed
	open    map[feedKey]*feed
	streams map[*eventStream]struct{}
}

// A pace says how feeds and streams go on.
type pace struct {
	gather time.Duration // the least time between two looks at a log: what comes meanwhile is read and sent together
	beat   time.Duration // how often a stream says that it lives, and asks whether it may
	retry  time.Duration // after the ledger could not be read, before it is tried again
	kept   time.Duration // how long events are held for those who are a little behind
}

// The pace of a server. A log that was quiet is read at once.
var serverPace = pace{gather: 20 * time.Millisecond, beat: 15 * time.Second, retry: time.Second, kept: 5 * time.Second}

const (
	feedBytes = 256 << 10 // held by a feed, but for the newest page
	feedPage  = 500       // events that are read at once
)

func newFeeds(logger *slog.Logger) *feeds {
	return &feeds{
		pace: serverPace, logger: logger, stopping: make(chan struct{}),
		open: make(map[feedKey]*feed), streams: make(map[*eventStream]struct{}),
	}
}

// A feed is the newest part of one repo's events as some may see it.
type feed struct {
	all  *feeds
	key  feedKey
	from source
	who  int // that take from it; guarded by all.mu
	end  context.CancelFunc
	done chan struct{} // closed when it reads no more
	look chan struct{} // asks for a look at whether the repo is there

	mu    sync.Mutex // guards what follows
	parts []part     // in order, each goes on where the one before ends
	bytes int        // of parts
	base  uint64     // the number after which parts begin
	seen  uint64     // up to where the log was read
	grown chan struct{}
	err   error // why it has ended
}

// A part is some events, written as a stream sends them.
type part struct {
	to   uint64 // it tells all there is to tell up to this number
	text []byte
	ends []eventEnd // of each event, in order
	at   time.Time
}

type eventEnd struct {
	seq uint64
	end int // where it ends in text
}

// after is what of p follows the number.
func (p *part) after(seq uint64) []byte {
	n := sort.Search(len(p.ends), func(n int) bool { return p.ends[n].seq > seq })
	switch n {
	case 0:
		return p.text
	case len(p.ends):
		return nil
	}
	return p.text[p.ends[n-1].end:]
}

// join gives the feed of a key to somebody who has come up to a number. Who joins leaves.
func (s *feeds) join(key feedKey, from source, after uint64) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.open[key]
	if f == nil {
		ctx, end := context.WithCancel(context.Background()) // ends with the last who leaves
		f = &feed{
			all: s, key: key, from: from, end: end, done: make(chan struct{}), look: make(chan struct{}, 1),
			base: after, seen: after, grown: make(chan struct{}),
		}
		s.open[key] = f
		go f.run(ctx)
	}
	f.who++
	return f
}

// leave is for who takes no more; the last one waits until the feed has ended.
func (f *feed) leave() {
	f.all.mu.Lock()
	f.who--
	last := f.who == 0
	if last {
		f.drop()
	}
	f.all.mu.Unlock()
	if last {
		f.end()
		<-f.done
	}
}

// drop keeps others from joining. The caller holds all.mu.
func (f *feed) drop() {
	if f.all.open[f.key] == f {
		delete(f.all.open, f.key)
	}
}

// stop ends all streams: each says so and ends by itself, soon also if its client does
// not read.
func (s *feeds) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stops() {
		close(s.stopping)
	}
	for st := range s.streams {
		st.hurry()
	}
}

// stops reports whether streams are to end.
func (s *feeds) stops() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// began and ended tell of the streams that stop has to hurry.
func (s *feeds) began(st *eventStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[st] = struct{}{}
}

func (s *feeds) ended(st *eventStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
}

// lookAt has the feeds of a repo ask at once whether it is still there.
func (s *feeds) lookAt(org, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, f := range s.open {
		if key.org == org && key.name == name {
			select {
			case f.look <- struct{}{}:
			default:
			}
		}
	}
}

// errBehind is for who has to read the log itself.
var errBehind = errors.New("events are not held any more")

// take gives what there is to send after a number, as it is sent, and the number up to
// which all is told then. With nothing to send, grown is closed when that may have
// changed. Errors: errBehind, and what the feed has ended with.
func (f *feed) take(after uint64) (text []byte, to uint64, grown <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if after < f.base {
		return nil, after, nil, errBehind
	}
	n := sort.Search(len(f.parts), func(n int) bool { return f.parts[n].to > after })
	for ; n < len(f.parts); n++ {
		if text = f.parts[n].after(after); len(text) > 0 {
			return text, f.parts[n].to, nil, nil
		}
	}
	return nil, max(after, f.seen), f.grown, f.err
}

// add takes a page in, whose events come after all that was seen.
func (f *feed) add(page gitstore.EventPage, now time.Time) {
	p := part{to: page.Last, at: now}
	for i := range page.Events {
		p.text = appendFrame(p.text, &page.Events[i])
		p.ends = append(p.ends, eventEnd{page.Events[i].Seq, len(p.text)})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = page.Last
	if len(p.ends) == 0 {
		return
	}
	f.parts = append(f.parts, p)
	f.bytes += len(p.text)
	f.forget(func(n int, p part) bool { return f.bytes > feedBytes && n < len(f.parts)-1 })
	f.tell(nil)
}

// tell wakes all who wait. The caller holds f.mu.
func (f *feed) tell(err error) {
	f.err = err
	close(f.grown)
	f.grown = make(chan struct{})
}

// forget lets go of the oldest parts for as long as old says so. The caller holds f.mu.
func (f *feed) forget(old func(n int, p part) bool) {
	n := 0
	for ; n < len(f.parts) && old(n, f.parts[n]); n++ {
		f.bytes -= len(f.parts[n].text)
		f.base = f.parts[n].to
	}
	clear(f.parts[:n])
	if f.parts = f.parts[n:]; len(f.parts) == 0 {
		f.parts = nil
	}
}

// tidy lets go of what was held long enough, and tells how long the rest is held.
func (f *feed) tidy(now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(func(_ int, p part) bool { return now.Sub(p.at) >= f.all.pace.kept })
	if len(f.parts) == 0 {
		return f.all.pace.beat
	}
	return max(f.parts[0].at.Add(f.all.pace.kept).Sub(now), time.Millisecond)
}

// run reads until nobody takes any more, or there is nothing to read from.
func (f *feed) run(ctx context.Context) {
	defer close(f.done)
	err := f.follow(ctx)
	if ctx.Err() != nil {
		return
	}
	f.all.mu.Lock()
	f.drop() // who comes now finds out for himself
	f.all.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tell(err)
}

func (f *feed) follow(ctx context.Context) error {
	wake, err := f.from.log.WatchEvents(ctx)
	if err != nil {
		return err
	}
	checked := time.Now()
	for {
		begun := time.Now()
		more, err := f.read(ctx)
		if err != nil && !passing(err) {
			return err
		}
		least := f.all.pace.gather
		switch {
		case err != nil:
			f.all.logger.Warn("read events for streams", "repo", f.key.repo, "err", err)
			least = f.all.pace.retry
		case more:
			continue
		}
		// With an error there may be something to read that nobody wakes for any more.
		if err == nil {
			if checked, err = f.wait(ctx, wake, checked); err != nil {
				return err
			}
		}
		if err := pause(ctx, least-time.Since(begun)); err != nil {
			return err
		}
		select { // what has woken meanwhile is read now
		case <-wake:
		default:
		}
	}
}

// read reads on once.
func (f *feed) read(ctx context.Context) (more bool, err error) {
	f.mu.Lock()
	after := f.seen
	f.mu.Unlock()
	page, err := f.from.log.Events(ctx, gitstore.Caller{Policy: f.from.policy}, gitstore.EventQuery{
		After: after, Session: f.key.session, Ref: f.key.ref, Limit: feedPage,
	})
	switch {
	case err != nil:
		return false, err
	case page.Last < after: // the log has lost what was told: everybody has to be told so from where he stands
		return false, errBehind
	}
	if page.Last > after || len(page.Events) > 0 {
		f.add(page, time.Now())
	}
	return page.More, nil
}

// wait returns when the log may have grown. While it does not, it looks now and then
// whether the repo is still there, and lets go of what is old.
func (f *feed) wait(ctx context.Context, wake <-chan struct{}, checked time.Time) (time.Time, error) {
	for {
		t := time.NewTimer(min(f.tidy(time.Now()), max(f.all.pace.beat-time.Since(checked), 0)))
		looked := false
		select {
		case _, open := <-wake:
			t.Stop()
			if !open {
				return checked, closedWatch(ctx)
			}
			return checked, nil
		case <-ctx.Done():
			t.Stop()
			return checked, ctx.Err()
		case <-f.look:
			t.Stop()
			looked = true
		case <-t.C:
		}
		if !looked && time.Since(checked) < f.all.pace.beat {
			continue
		}
		checked = time.Now()
		if err := f.from.alive(ctx); err != nil && !passing(err) {
			return checked, err
		}
	}
}

func closedWatch(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return ledger.ErrClosed
}

// passing reports whether something may be read again after a while.
func passing(err error) bool {
	return errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, ledger.ErrNoSpace)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
