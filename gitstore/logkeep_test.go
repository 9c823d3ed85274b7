package gitstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger"
)

// A logSite is a repo whose log is moved out of the ledger all the time.
type logSite struct {
	dir    string
	l      *faultLedger
	fs     *faultFS
	store  *Store
	repo   *Repo
	texts  []string // of the entries logged so far; the first is numbered 1
	oldest uint64   // the first entry that is kept, as far as a removal was asked for
}

// faultLedger fails one call of those that change something.
type faultLedger struct {
	ledger.Ledger
	left    atomic.Int64 // calls until it; 0: no fault
	applied bool         // the call that fails has its effect all the same
}

func (f *faultLedger) do(call func() error) error {
	if f.left.Load() <= 0 || f.left.Add(-1) != 0 {
		return call()
	}
	f.left.Store(-1)
	if f.applied {
		if err := call(); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ledger.ErrUnavailable, errFault)
}

func (f *faultLedger) Apply(ctx context.Context, b ledger.Batch) (res ledger.Result, err error) {
	err = f.do(func() (err error) { res, err = f.Ledger.Apply(ctx, b); return err })
	return res, err
}

func (f *faultLedger) TrimLog(ctx context.Context, s ledger.Space, before uint64) error {
	return f.do(func() error { return f.Ledger.TrimLog(ctx, s, before) })
}

func newLogSite(t testing.TB, l ledger.Ledger) *logSite {
	t.Helper()
	s := &logSite{dir: t.TempDir(), l: &faultLedger{Ledger: l}, fs: &faultFS{}, oldest: 1}
	s.open(t)
	if _, err := s.store.CreateRepo(t.Context(), someone, "acme", "site", "main", nil); err != nil {
		t.Fatalf("CreateRepo: %v", err)
	}
	s.find(t)
	return s
}

// open opens the store, closing the one that is open.
func (s *logSite) open(t testing.TB) {
	t.Helper()
	if s.store != nil {
		if err := s.store.Close(context.Background()); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	var err error
	s.store, err = Open(t.Context(), Options{
		Dir: s.dir, Ledger: s.l, FS: s.fs, Logger: quiet, Limits: Limits{UpkeepEvery: -1, LogEntries: 20, LogAge: time.Hour},
	})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	s.store.segmentEntries = 7
	opened := s.store
	t.Cleanup(func() { _ = opened.Close(context.Background()) })
}

func (s *logSite) find(t testing.TB) {
	t.Helper()
	var err error
	if s.repo, err = s.store.Repo(t.Context(), "acme", "site"); err != nil {
		t.Fatalf("Repo: %v", err)
	}
}

// reopen is what a crash is followed by.
func (s *logSite) reopen(t testing.TB) {
	t.Helper()
	s.open(t)
	s.find(t)
}

// grow logs n entries, no two alike.
func (s *logSite) grow(t testing.TB, n int) {
	t.Helper()
	for range n {
		text := fmt.Sprintf(`{"type":"session.changed","actor":{"org":"acme"},"changes":[],"session":"s","data":{"n":%d,"x":"<&>%s"}}`,
			len(s.texts)+1, strings.Repeat("x", len(s.texts)%50))
		s.texts = append(s.texts, text)
		if seq := logRaw(t, s.repo, text); seq != uint64(len(s.texts)) {
			t.Fatalf("entry %d was logged as %d", len(s.texts), seq)
		}
	}
}

// tend moves and removes what is due; with young even what has just been logged.
func (s *logSite) tend(ctx context.Context, young, remove bool) error {
	s.store.limits.LogAge, s.store.limits.LogArchiveAge = time.Hour, time.Hour
	if young {
		s.store.limits.LogAge = time.Nanosecond
	}
	if remove {
		s.store.limits.LogArchiveAge = time.Nanosecond
		s.oldest = uint64(len(s.texts)) + 1
	}
	return s.repo.tendLog(ctx)
}

// failer is a test, or one of rapid's.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// check wants every reader to be told each entry once and in order, or how things stand
// if what it asks for is not kept any more.
func (s *logSite) check(t failer, what string) {
	t.Helper()
	newest := uint64(len(s.texts))
	told := func(q EventQuery) (all []LogEvent) {
		for more := true; more; {
			page, err := s.repo.Events(context.Background(), someone, q)
			if err != nil || page.More && page.Last <= q.After {
				t.Fatalf("%s: Events(%+v) = last %d of %d, %v", what, q, page.Last, page.Newest, err)
			}
			all, q.After, more = append(all, page.Events...), page.Last, page.More
		}
		return all
	}
	for after := uint64(0); after <= newest+1; after += 1 + newest/15 {
		events := told(EventQuery{After: after, Limit: 1 + int(after)%9})
		next := after + 1
		if len(events) > 0 && events[0].Type == EventResync {
			if after >= s.oldest-1 && after <= newest {
				t.Fatalf("%s: after %d of %d came a resync, and %d is kept", what, after, newest, s.oldest)
			}
			if next, events = events[0].Seq+1, events[1:]; next != newest+1 {
				t.Fatalf("%s: after %d came a resync at %d, want %d", what, after, next-1, newest)
			}
		}
		for _, e := range events {
			if e.Seq != next || string(e.Data) == "" || !strings.Contains(s.texts[e.Seq-1], `"data":`+string(e.Data)) || e.At.IsZero() {
				t.Fatalf("%s: after %d came %d %s, want %d %s", what, after, e.Seq, e.Data, next, s.texts[next-1])
			}
			next++
		}
		if after <= newest && next != newest+1 {
			t.Fatalf("%s: after %d it ended before %d, the newest is %d", what, after, next, newest)
		}
	}
}

// files are how many files there are, and how many of them are registered.
func (s *logSite) files(t testing.TB) (all, registered int) {
	t.Helper()
	files, err := s.store.segmentFiles(s.repo.id)
	if err != nil {
		t.Fatalf("list segments: %v", err)
	}
	return len(files), countKeys(t, s.repo, segmentKeys)
}

func TestLogMovesToSegments(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, start func(testing.TB) opener) {
		s := newLogSite(t, closedAtEnd(t, start(t)(t)))
		s.grow(t, 15)
		if err := s.repo.keepLog(t.Context()); err != nil {
			t.Fatalf("keepLog: %v", err)
		}
		if all, _ := s.files(t); all != 0 {
			t.Errorf("%d segments of 15 entries, want none: 20 are kept in the ledger", all)
		}
		s.grow(t, 20)
		if err := s.repo.keepLog(t.Context()); err != nil {
			t.Fatalf("keepLog: %v", err)
		}
		if all, registered := s.files(t); all != 3 || registered != 3 {
			t.Errorf("%d segments, %d registered; want 3 for the 16 entries that are too many", all, registered)
		}
		v, err := s.l.Read(t.Context(), s.repo.space)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		if _, err := v.Log(t.Context(), 15, 1); !errors.Is(err, ledger.ErrLogTrimmed) {
			t.Errorf("the ledger's log after 15: %v, want %v", err, ledger.ErrLogTrimmed)
		}
		if entries, err := v.Log(t.Context(), 16, 100); err != nil || len(entries) != 19 {
			t.Errorf("the ledger's log after 16: %d entries, %v; want 19", len(entries), err)
		}
		s.check(t, "after moving")
		if err := s.tend(t.Context(), true, true); err != nil {
			t.Fatalf("tendLog: %v", err)
		}
		if all, registered := s.files(t); all != 0 || registered != 0 {
			t.Errorf("%d segments, %d registered when all are too old; want none", all, registered)
		}
		s.check(t, "after removal")
		s.grow(t, 3)
		s.oldest = 36
		s.check(t, "after more")
	})
}

// Every call that changes the ledger fails once, having its effect or not, and every file
// operation once; the process ends, or goes on.
func TestLogSurvivesEveryFault(t *testing.T) {
	for _, kind := range []string{"batch lost", "batch applied", "file"} {
		t.Run(kind, func(t *testing.T) {
			for k, more := int64(0), true; more; k++ {
				more = survivesFault(t, kind, k, k%2 == 0, k/2%2 == 0)
			}
		})
	}
}

// survivesFault moves a log, and removes some of it, while step k of it fails; more is
// false if there is no such step.
func survivesFault(t *testing.T, kind string, k int64, remove, crash bool) (more bool) {
	s := newLogSite(t, closedAtEnd(t, pebbleIn(vfs.NewMem())(t)))
	s.l.applied = kind == "batch applied"
	s.grow(t, 12)
	if err := s.tend(t.Context(), true, false); err != nil {
		t.Fatalf("tendLog: %v", err)
	}
	s.grow(t, 12)
	if kind == "file" {
		s.fs.fail(k)
	} else {
		s.l.left.Store(k + 1)
	}
	err := s.tend(t.Context(), true, remove)
	more = s.l.left.Swap(0) < 0
	if kind == "file" {
		more = s.fs.failed()
	}
	if !more && k < 5 || !more && err != nil {
		t.Fatalf("tendLog was %d steps and ended with %v", k, err)
	}
	what := fmt.Sprintf("step %d, crash %v, %v", k, crash, err)
	s.check(t, what)
	if crash {
		s.reopen(t)
		s.check(t, what+", after the crash")
	}
	s.grow(t, 9)
	if err := s.tend(t.Context(), true, false); err != nil {
		t.Fatalf("%s: tendLog afterwards: %v", what, err)
	}
	s.check(t, what+", afterwards")
	s.reopen(t)
	if all, registered := s.files(t); all != registered {
		t.Errorf("%s: %d files, %d registered", what, all, registered)
	}
	return more
}

// Random appends, trims, crashes and removals.
func TestLogKeepsToItsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newLogSite(t, closedAtEnd(t, pebbleIn(vfs.NewMem())(t)))
		s.l.applied = rapid.Bool().Draw(rt, "applied")
		for n := range rapid.IntRange(1, 8).Draw(rt, "steps") {
			switch step := rapid.SampledFrom([]string{"grow", "grow", "keep", "tend", "remove", "crash", "fault"}).Draw(rt, "step"); step {
			case "grow":
				s.grow(t, rapid.IntRange(1, 30).Draw(rt, "entries"))
			case "keep":
				s.store.limits.LogAge, s.store.limits.LogArchiveAge = time.Hour, time.Hour
				if err := s.repo.keepLog(t.Context()); err != nil {
					rt.Fatalf("keepLog: %v", err)
				}
			case "tend", "remove":
				if err := s.tend(t.Context(), rapid.Bool().Draw(rt, "young"), step == "remove"); err != nil {
					rt.Fatalf("tendLog: %v", err)
				}
			case "crash":
				s.reopen(t)
			case "fault":
				s.l.left.Store(rapid.Int64Range(0, 6).Draw(rt, "batches"))
				if left := rapid.Int64Range(0, 40).Draw(rt, "files"); left > 0 {
					s.fs.fail(left)
				}
				_ = s.tend(t.Context(), true, rapid.Bool().Draw(rt, "remove"))
				s.l.left.Store(0)
				s.fs.failed()
			}
			s.check(rt, fmt.Sprint("step ", n))
		}
	})
}

// Two processes on one folder and one ledger move the same log at once.
func TestLogIsMovedByTwoAtOnce(t *testing.T) {
	l := closedAtEnd(t, pebbleIn(vfs.NewMem())(t))
	s := newLogSite(t, l)
	other, err := Open(t.Context(), Options{Dir: s.dir, Ledger: l, FS: s.fs, Shared: true, Logger: quiet, Limits: Limits{UpkeepEvery: -1}})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	other.segmentEntries = 5
	r, err := other.Repo(t.Context(), "acme", "site")
	if err != nil {
		t.Fatalf("Repo: %v", err)
	}
	other.limits.LogAge = time.Nanosecond
	stop := inBackground(t, func(ctx context.Context) error { return r.tendLog(ctx) })
	for range 8 {
		s.grow(t, 15)
		if err := s.tend(t.Context(), true, false); err != nil {
			t.Fatalf("tendLog: %v", err)
		}
	}
	stop()
	s.check(t, "by one")
	s.repo = r
	s.check(t, "by the other")
	if all, registered := s.files(t); all != registered {
		t.Errorf("%d files, %d registered", all, registered)
	}
}

// A part of the log that was written before the ledger turned out to have lost writes is
// not registered: what is in it may never have been.
func TestLogOfALostPastIsNotKept(t *testing.T) {
	s := newLogSite(t, closedAtEnd(t, pebbleIn(vfs.NewMem())(t)))
	s.grow(t, 5)
	st, err := s.repo.logState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.store.limits.LogAge = time.Nanosecond
	st.now = st.now.Add(time.Second)
	w, err := s.repo.segmentOf(t.Context(), st)
	if err != nil || w == nil {
		t.Fatalf("segmentOf = %v, %v", w, err)
	}
	rec, err := w.finish()
	if err = errors.Join(err, w.close()); err != nil {
		t.Fatal(err)
	}
	setKey(t, s.repo, lossKey, []byte("1048576"))
	if ok, err := s.repo.registerSegment(t.Context(), st, rec); ok || err != nil {
		t.Errorf("registerSegment = %v, %v; want false", ok, err)
	}
	if all, registered := s.files(t); all != 0 || registered != 0 {
		t.Errorf("%d files, %d registered; want none", all, registered)
	}
	s.check(t, "afterwards")
}

// A jumpedLedger has logs whose numbers went on far above their fifth entry, as they do
// where writes were lost.
type jumpedLedger struct{ ledger.Ledger }

const (
	jumpAfter = 5
	jump      = 1 << 20
)

func jumped(seq uint64) uint64 {
	if seq > jumpAfter {
		return seq + jump
	}
	return seq
}

func unjumped(seq uint64) uint64 {
	if seq > jump {
		return seq - jump
	}
	return min(seq, jumpAfter+1)
}

func (l jumpedLedger) TrimLog(ctx context.Context, s ledger.Space, before uint64) error {
	return l.Ledger.TrimLog(ctx, s, unjumped(before))
}

func (l jumpedLedger) Read(ctx context.Context, s ledger.Space) (ledger.View, error) {
	v, err := l.Ledger.Read(ctx, s)
	return jumpedView{v}, err
}

type jumpedView struct{ ledger.View }

func (v jumpedView) LastSeq(ctx context.Context) (uint64, error) {
	seq, err := v.View.LastSeq(ctx)
	return jumped(seq), err
}

func (v jumpedView) Log(ctx context.Context, after uint64, limit int) ([]ledger.Entry, error) {
	entries, err := v.View.Log(ctx, unjumped(after), limit)
	for i := range entries {
		entries[i].Seq = jumped(entries[i].Seq)
	}
	return entries, err
}

// A segment ends where the numbers of the log jump, and the next one begins behind it.
func TestLogMovesToSegmentsAcrossLostWrites(t *testing.T) {
	s := newLogSite(t, jumpedLedger{closedAtEnd(t, pebbleIn(vfs.NewMem())(t))})
	keep := func(want int) {
		t.Helper()
		if err := s.repo.keepLog(t.Context()); err != nil {
			t.Fatalf("keepLog: %v", err)
		}
		if all, registered := s.files(t); all != want || registered != want {
			t.Errorf("%d segments, %d registered; want %d", all, registered, want)
		}
	}
	s.grow(t, 9)
	keep(1) // the numbers alone make the first five too many
	s.grow(t, 30)
	keep(3)
	for _, want := range []segmentRecord{{First: 1, Last: 5}, {First: jump + 6, Last: jump + 12}} {
		v, err := s.l.Read(t.Context(), s.repo.space)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := segmentWith(t.Context(), v, want.First)
		v.Close()
		if err != nil || rec.First != want.First || rec.Last != want.Last {
			t.Errorf("segment with %d is of %d to %d, %v; want %d to %d", want.First, rec.First, rec.Last, err, want.First, want.Last)
		}
	}
}
