package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// await looks until a state is reached.
func await(t testing.TB, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !reached(); time.Sleep(time.Millisecond) { // between two looks at the state
		if time.Now().After(deadline) {
			t.Fatalf("not reached within 20 s: %s", what)
		}
	}
}

func newTestFetches(t testing.TB, l Limits) *fetchCache {
	t.Helper()
	f, err := newFetchCache(filepath.Join(t.TempDir(), "fetches"), l.withDefaults(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("newFetchCache: %v", err)
	}
	f.space = func(string) int64 { return 1 << 50 }
	t.Cleanup(func() {
		f.close()
		if got := f.stats.Bytes; got != 0 {
			t.Errorf("%d bytes count as kept after close", got)
		}
		if left, err := os.ReadDir(f.dir); err != nil || len(left) != 0 {
			t.Errorf("left in the folder: %v, %v", left, err)
		}
	})
	return f
}

func (f *fetchCache) statsNow() FetchStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// answerOf is what the test's process says to the fetch n: size bytes.
func answerOf(n, size int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(b)
	return b
}

// make writes an answer as a process would, in pieces, and ends it.
func (a *fetchAnswer) make(answer []byte) {
	for len(answer) > 0 && a.ctx.Err() == nil {
		n := min(len(answer), 1000)
		if _, err := a.spool.Write(answer[:n]); err != nil {
			break
		}
		answer = answer[n:]
	}
	a.finish(context.Cause(a.ctx))
}

// ask is one fetch from its beginning to its end.
func (f *fetchCache) ask(n int, answer []byte) ([]byte, error) {
	a, r, begun := f.join(context.Background(), fetchKey{byte(n), byte(n >> 8)})
	defer a.leave(r)
	if begun {
		go a.make(answer)
	}
	var got bytes.Buffer
	err := r.copyTo(context.Background(), &got, nil)
	return got.Bytes(), err
}

func (f *fetchCache) mustAsk(t testing.TB, n, size int) {
	t.Helper()
	want := answerOf(n, size)
	if got, err := f.ask(n, want); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("fetch %d gave %d bytes, %v; want the %d bytes of its answer", n, len(got), err, size)
	}
}

// What was read longest ago makes room for what comes new, and an answer over the
// limit goes through without being kept.
func TestFetchCacheIsBounded(t *testing.T) {
	f := newTestFetches(t, Limits{FetchCacheBytes: 100_000, FetchAnswerBytes: 60_000})
	f.mustAsk(t, 1, 40_000)
	f.mustAsk(t, 2, 40_000)
	f.mustAsk(t, 1, 40_000) // now 2 was read longest ago
	f.mustAsk(t, 3, 40_000)
	want := FetchStats{Started: 3, Served: 1, Bytes: 80_000}
	if got := f.statsNow(); got != want {
		t.Errorf("after three answers of 40 kB in 100 kB: %+v, want %+v", got, want)
	}
	f.mustAsk(t, 1, 40_000)
	f.mustAsk(t, 2, 40_000)
	want.Started, want.Served = 4, 2
	if got := f.statsNow(); got != want {
		t.Errorf("after asking for one that is kept and one that was evicted: %+v, want %+v", got, want)
	}
	f.mustAsk(t, 4, 60_001)
	f.mustAsk(t, 4, 60_001)
	got := f.statsNow()
	if got.Dropped != 2 || got.Started != 6 || got.Bytes > 100_000 {
		t.Errorf("after asking twice for more than one answer may have: %+v, want both dropped", got)
	}
}

// What is being read is not evicted: its bytes are on disk in any case.
func TestFetchCacheKeepsWhatIsRead(t *testing.T) {
	f := newTestFetches(t, Limits{FetchCacheBytes: 100_000})
	a, r, _ := f.join(t.Context(), fetchKey{1})
	a.make(answerOf(1, 90_000))
	f.mustAsk(t, 2, 50_000) // goes through beside it
	var got bytes.Buffer
	if err := r.copyTo(t.Context(), &got, nil); err != nil || !bytes.Equal(got.Bytes(), answerOf(1, 90_000)) {
		t.Errorf("the answer that was read gave %d bytes, %v", got.Len(), err)
	}
	a.leave(r)
	want := FetchStats{Started: 2, Dropped: 1, Bytes: 90_000}
	if got := f.statsNow(); got != want {
		t.Errorf("stats = %+v, want %+v", got, want)
	}
}

func TestFetchCacheExpires(t *testing.T) {
	f := newTestFetches(t, Limits{FetchCacheFor: 5 * time.Millisecond})
	f.mustAsk(t, 1, 10_000)
	await(t, "an answer that nobody asks for is removed", func() bool { return f.statsNow().Bytes == 0 })
	f.mustAsk(t, 1, 10_000)
	if got := f.statsNow(); got.Started != 2 || got.Served != 0 {
		t.Errorf("stats after a second fetch = %+v, want both started", got)
	}
}

// However many different answers there are, no more files are open than allowed.
func TestFetchCacheBoundsOpenFiles(t *testing.T) {
	f := newTestFetches(t, Limits{})
	for n := range fetchAnswersMost + 20 {
		f.mustAsk(t, n, 10)
	}
	if got := f.statsNow().Bytes; got != 10*fetchAnswersMost {
		t.Errorf("%d bytes are kept in answers of 10, want those of %d", got, fetchAnswersMost)
	}
}

// With too little room on the disk nothing is kept, and what was kept goes.
func TestFetchCacheLeavesSpaceToOthers(t *testing.T) {
	f := newTestFetches(t, Limits{FetchSpareBytes: 1000})
	f.mustAsk(t, 1, 10_000)
	f.mu.Lock()
	f.space, f.looked = func(string) int64 { return 1500 }, time.Time{}
	f.mu.Unlock()
	f.mustAsk(t, 2, 10_000)
	want := FetchStats{Started: 2, Dropped: 1}
	if got := f.statsNow(); got != want {
		t.Errorf("stats on a full disk = %+v, want %+v", got, want)
	}
}

// A filledFile is on a disk that takes so many bytes and no more.
type filledFile struct {
	spoolFile
	left int
}

func (f *filledFile) WriteAt(p []byte, at int64) (int, error) {
	n := min(len(p), f.left)
	f.left -= n
	n, err := f.spoolFile.WriteAt(p[:n], at)
	if n < len(p) && err == nil {
		err = syscall.ENOSPC
	}
	return n, err
}

// A disk that takes no more in the middle of an answer fails nobody: those who read
// get the rest from hand to hand, and who goes away stops nobody else.
func TestDiskFullWhileSpooling(t *testing.T) {
	for _, takes := range []int{0, 1, 70_500, 499_999} {
		f := newTestFetches(t, Limits{})
		f.create = func() (spoolFile, error) {
			file, err := nameless(f.dir)
			return &filledFile{file, takes}, err
		}
		wantWholeWithoutFile(t, f, fmt.Sprintf("a disk that takes %d bytes", takes))
	}
}

// A folder that is gone is the same.
func TestNoFileToSpoolTo(t *testing.T) {
	f := newTestFetches(t, Limits{})
	f.create = func() (spoolFile, error) { return nameless(filepath.Join(f.dir, "gone")) }
	wantWholeWithoutFile(t, f, "a folder that is not there")
}

// wantWholeWithoutFile has five read an answer that the file takes a part of at most,
// of whom one goes away.
func wantWholeWithoutFile(t *testing.T, f *fetchCache, what string) {
	t.Helper()
	answer := answerOf(1, 500_000)
	var made *fetchAnswer
	var all sync.WaitGroup
	for i := range 5 {
		a, r, _ := f.join(t.Context(), fetchKey{1})
		made = a
		all.Go(func() {
			defer a.leave(r)
			out := &pickyWriter{gone: len(answer) + 1}
			if i == 4 {
				out.gone = 200_000
			}
			err := r.copyTo(t.Context(), out, nil)
			switch {
			case i == 4 && !errors.Is(err, errGone):
				t.Errorf("%s: the reader whose client has gone got %v", what, err)
			case i < 4 && (err != nil || !bytes.Equal(out.got, answer)):
				t.Errorf("%s: reader %d got %d bytes, %v; want all %d", what, i, len(out.got), err, len(answer))
			}
		})
	}
	made.make(answer)
	all.Wait()
	want := FetchStats{Started: 1, Joined: 4, Dropped: 1}
	if got := f.statsNow(); got != want {
		t.Errorf("%s: stats = %+v, want %+v", what, got, want)
	}
}

// errGone is what a pickyWriter says when its client has gone.
var errGone = errors.New("client has gone")

// A pickyWriter waits for each value of pause, if it has one, and takes fewer than gone bytes.
type pickyWriter struct {
	pause <-chan struct{}
	gone  int
	got   []byte
}

func (w *pickyWriter) Write(p []byte) (int, error) {
	if w.pause != nil {
		<-w.pause
	}
	if len(w.got)+len(p) >= w.gone {
		return 0, errGone
	}
	w.got = append(w.got, p...)
	return len(p), nil
}

// A reader that does not read holds neither the process nor the others, and late
// readers get everything from the start.
func TestSlowReaderHoldsNobody(t *testing.T) {
	f := newTestFetches(t, Limits{})
	answer := answerOf(1, 3_000_000)
	a, slow, _ := f.join(t.Context(), fetchKey{1})
	pause := make(chan struct{})
	out := &pickyWriter{pause: pause, gone: len(answer) + 1}
	ended, done := make(chan struct{}), make(chan error)
	go func() { done <- slow.copyTo(t.Context(), out, func() { close(ended) }) }()
	a.make(answer) // returns although one of two readers takes nothing
	f.mustAsk(t, 1, len(answer))
	close(pause)
	if err := <-done; err != nil || !bytes.Equal(out.got, answer) {
		t.Errorf("the slow reader got %d bytes, %v", len(out.got), err)
	}
	<-ended
	a.leave(slow)
	want := FetchStats{Started: 1, Served: 1, Bytes: int64(len(answer))}
	if got := f.statsNow(); got != want {
		t.Errorf("stats = %+v, want %+v", got, want)
	}
}

// The last reader to go ends the process; what it said until then is not kept.
func TestLastLeaverEndsTheProcess(t *testing.T) {
	f := newTestFetches(t, Limits{})
	a, first, _ := f.join(t.Context(), fetchKey{1})
	_, second, _ := f.join(t.Context(), fetchKey{1})
	if _, err := a.spool.Write([]byte("begun")); err != nil {
		t.Fatalf("Write: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	if err := first.copyTo(ctx, &pickyWriter{gone: 100}, nil); !errors.Is(err, errGone) {
		t.Errorf("copyTo with a context that has ended = %v, want its cause", err)
	}
	a.leave(first)
	if a.ctx.Err() != nil {
		t.Error("the process was ended by the first of two readers")
	}
	a.leave(second)
	if !errors.Is(context.Cause(a.ctx), errNoReaders) {
		t.Errorf("the process goes on without readers: %v", context.Cause(a.ctx))
	}
	again, third, begun := f.join(t.Context(), fetchKey{1})
	if !begun {
		t.Error("a fetch joined one that had been given up")
	}
	again.leave(third)
	again.finish(context.Cause(again.ctx))
	a.finish(context.Cause(a.ctx))
	if got := f.statsNow(); got.Bytes != 0 || got.Started != 2 {
		t.Errorf("stats = %+v, want nothing kept of two that were given up", got)
	}
}

// Many clients with many fetches, some of which go away, in little room: each gets
// the answer to its own, and no more is kept than allowed.
func TestFetchCacheUnderLoad(t *testing.T) {
	const most = 200_000
	f := newTestFetches(t, Limits{FetchCacheBytes: most, FetchAnswerBytes: 90_000, FetchCacheFor: 2 * time.Millisecond})
	sizes := []int{0, 1, 999, 20_000, 60_000, 89_000, 95_000}
	answers := make([][]byte, len(sizes))
	for n, size := range sizes {
		answers[n] = answerOf(n, size)
	}
	var all sync.WaitGroup
	for client := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(client)))
			for range 150 {
				n := rng.IntN(len(sizes))
				out := &pickyWriter{gone: len(answers[n]) + 1}
				if rng.IntN(4) == 0 {
					out.gone = rng.IntN(len(answers[n]) + 1)
				}
				a, r, begun := f.join(t.Context(), fetchKey{byte(n)})
				if begun {
					all.Go(func() { a.make(answers[n]) })
				}
				err := r.copyTo(t.Context(), out, nil)
				a.leave(r)
				if !errors.Is(err, errGone) && (err != nil || !bytes.Equal(out.got, answers[n])) {
					t.Errorf("fetch %d got %d bytes, %v; want %d", n, len(out.got), err, sizes[n])
				}
				if got := f.statsNow().Bytes; got > most {
					t.Errorf("%d bytes are kept, want no more than %d", got, most)
				}
			}
		})
	}
	all.Wait()
	await(t, "all answers have expired", func() bool { return f.statsNow().Bytes == 0 })
}
