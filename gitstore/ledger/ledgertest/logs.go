package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

var logCases = []testCase{
	{"LogIsGapless", testLogGapless},
	{"LogPages", testLogPages},
	{"TrimLog", testTrimLog},
	{"LogSeenWhileWritten", testLogWhileWritten},
}

var watchCases = []testCase{
	{"WatchLosesNothing", testWatchLosesNothing},
	{"WatchKnowsItsSpace", testWatchKnowsItsSpace},
	{"WatchEndsWithContext", testWatchEndsWithContext},
	{"WatchEndsWithLedger", testWatchEndsWithLedger},
}

// patience bounds every wait for something that must come.
const patience = 30 * time.Second

func (e *env) appendLog(t fataler, s ledger.Space, data string) ledger.Result {
	t.Helper()
	return e.apply(t, ledger.Batch{Space: s, Log: []byte(data)})
}

func testLogGapless(t *testing.T, e *env) {
	s := newSpace()
	for i := range 20 {
		if r := e.appendLog(t, s, fmt.Sprint(i)); r.Seq != uint64(i+1) {
			t.Fatalf("entry %d was given number %d, want %d", i, r.Seq, i+1)
		}
		e.set(t, s, "k", "no log entry")
		e.refused(t, ledger.Batch{Space: s, Checks: []ledger.Check{ledger.Absent("k")}, Log: []byte("never")}, "k", []byte("no log entry"))
	}
	e.reopen(t)
	if r := e.appendLog(t, s, "20"); r.Seq != 21 {
		t.Fatalf("the first entry after a reopen has number %d, want 21", r.Seq)
	}
	entries := e.log(t, s, 0, 100)
	wantGapless(t, entries, 1)
	if len(entries) != 21 {
		t.Fatalf("Log has %d entries, want 21", len(entries))
	}
	for i, en := range entries {
		if string(en.Data) != fmt.Sprint(i) {
			t.Fatalf("log entry %d is %q, want %d", en.Seq, en.Data, i)
		}
		if en.At.Location() != time.UTC || !en.At.Equal(en.At.Truncate(time.Microsecond)) {
			t.Fatalf("log entry %d is of %s, want UTC in whole microseconds", en.Seq, en.At)
		}
	}
}

func testLogPages(t *testing.T, e *env) {
	s := newSpace()
	for i := range 12 {
		e.appendLog(t, s, fmt.Sprint(i))
	}
	for _, tc := range []struct {
		after uint64
		limit int
		want  int
	}{{0, 5, 5}, {5, 5, 5}, {10, 5, 2}, {11, 1, 1}, {12, 5, 0}, {13, 5, 0}, {1 << 63, 5, 0}, {^uint64(0), 5, 0}} {
		entries := e.log(t, s, tc.after, tc.limit)
		if len(entries) != tc.want {
			t.Fatalf("Log(%d, %d) has %d entries, want %d", tc.after, tc.limit, len(entries), tc.want)
		}
		wantGapless(t, entries, tc.after+1)
	}
}

func (e *env) wantTrimmed(t *testing.T, s ledger.Space, after uint64) {
	t.Helper()
	e.view(t, s, func(v ledger.View) {
		if got, err := v.Log(context.Background(), after, 5); !errors.Is(err, ledger.ErrLogTrimmed) {
			t.Fatalf("Log(%d) = %v, %v; want ErrLogTrimmed", after, got, err)
		}
	})
}

func testTrimLog(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "k", "stays")
	for i := range 10 {
		e.appendLog(t, s, fmt.Sprint(i+1))
	}
	trim := func(before uint64) {
		t.Helper()
		if err := e.l.TrimLog(context.Background(), s, before); err != nil {
			t.Fatalf("TrimLog(%d) = %v, want nil", before, err)
		}
	}
	trim(0)
	trim(1)
	if got := e.log(t, s, 0, 20); len(got) != 10 {
		t.Fatalf("Log has %d entries after trimming nothing, want 10", len(got))
	}
	for range 2 {
		trim(5)
		e.wantTrimmed(t, s, 0)
		e.wantTrimmed(t, s, 3)
		wantGapless(t, e.log(t, s, 4, 20), 5)
	}
	trim(3) // what is gone stays gone
	e.wantTrimmed(t, s, 2)
	trim(1000)
	e.wantTrimmed(t, s, 9)
	if got := e.log(t, s, 10, 5); len(got) != 0 {
		t.Fatalf("Log(10) after trimming all has %d entries, want none", len(got))
	}
	e.reopen(t)
	if n := e.lastSeq(t, s); n != 10 {
		t.Fatalf("LastSeq() after trimming all = %d, want 10", n)
	}
	if r := e.appendLog(t, s, "11"); r.Seq != 11 {
		t.Fatalf("the next entry has number %d, want 11", r.Seq)
	}
	e.wantTrimmed(t, s, 0)
	if got := e.log(t, s, 10, 5); len(got) != 1 || got[0].Seq != 11 {
		t.Fatalf("Log(10) = %v, want entry 11", got)
	}
	e.want(t, s, "k", []byte("stays"))
}

// Whoever reads on from what was read never meets a gap, however many write.
func testLogWhileWritten(t *testing.T, e *env) {
	const writers, each = 6, 40
	s := newSpace()
	var left atomic.Int32
	left.Store(writers)
	var last uint64
	readAll := func() {
		for {
			entries := e.log(t, s, last, 17)
			wantGapless(t, entries, last+1)
			if len(entries) == 0 {
				return
			}
			last = entries[len(entries)-1].Seq
		}
	}
	for w := range writers {
		go func() {
			defer left.Add(-1)
			for i := range each {
				if _, err := e.l.Apply(context.Background(), ledger.Batch{Space: s, Log: fmt.Appendf(nil, "%d/%d", w, i)}); err != nil {
					t.Errorf("Apply = %v", err)
					return
				}
			}
		}()
	}
	for left.Load() > 0 {
		readAll()
	}
	readAll()
	if last != writers*each {
		t.Fatalf("the reader came to number %d, want %d", last, writers*each)
	}
}

func (e *env) watch(t *testing.T, ctx context.Context, s ledger.Space) <-chan struct{} {
	t.Helper()
	ch, err := e.l.Watch(ctx, s)
	if err != nil {
		t.Fatalf("Watch = %v, want a channel", err)
	}
	return ch
}

// A watcher that sleeps until woken and then reads the log sees every entry, or
// this test waits for a wake-up that never comes.
func testWatchLosesNothing(t *testing.T, e *env) {
	const watchers, writers, each = 4, 4, 40
	s := newSpace()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	channels := make([]<-chan struct{}, watchers)
	for i := range channels {
		channels[i] = e.watch(t, ctx, s)
	}
	together(watchers+writers, func(i int) {
		if i >= watchers {
			for n := range each {
				if _, err := e.l.Apply(context.Background(), ledger.Batch{Space: s, Log: fmt.Append(nil, n)}); err != nil {
					t.Errorf("Apply = %v", err)
					return
				}
			}
			return
		}
		if last := follow(t, e.l, s, channels[i], writers*each); last != writers*each {
			t.Errorf("watcher %d was last woken for number %d, want %d", i, last, writers*each)
		}
	})
}

// follow reads s's log whenever ch wakes it until it has seen number until.
func follow(t *testing.T, l ledger.Ledger, s ledger.Space, ch <-chan struct{}, until uint64) (last uint64) {
	for range ch {
		v, err := l.Read(context.Background(), s)
		if err != nil {
			t.Errorf("Read = %v", err)
			return last
		}
		entries, err := v.Log(context.Background(), last, 1000)
		v.Close()
		if err != nil {
			t.Errorf("Log = %v", err)
			return last
		}
		if n := len(entries); n > 0 {
			last = entries[n-1].Seq
		}
		if last >= until {
			return last
		}
	}
	return last
}

func testWatchKnowsItsSpace(t *testing.T, e *env) {
	mine, other := newSpace(), newSpace()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ch := e.watch(t, ctx, mine)
	e.appendLog(t, other, "elsewhere")
	e.appendLog(t, mine, "here")
	if last := follow(t, e.l, mine, ch, 1); last != 1 {
		t.Fatalf("the watcher came to number %d, want 1", last)
	}
}

// drained waits until ch is closed.
func drained(t *testing.T, ch <-chan struct{}) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case _, open := <-ch:
			if !open {
				return
			}
		case <-limit.C:
			t.Fatalf("the watch channel is open after %s, want it closed", patience)
		}
	}
}

func testWatchEndsWithContext(t *testing.T, e *env) {
	s := newSpace()
	ctx, cancel := context.WithCancel(context.Background())
	ch, other := e.watch(t, ctx, s), e.watch(t, context.Background(), s)
	e.appendLog(t, s, "one")
	cancel()
	drained(t, ch)
	e.appendLog(t, s, "two")
	if last := follow(t, e.l, s, other, 2); last != 2 {
		t.Fatalf("the other watcher came to number %d, want 2", last)
	}
	if ch, err := e.l.Watch(ctx, s); err == nil {
		drained(t, ch)
	} else if !errors.Is(err, context.Canceled) {
		t.Fatalf("Watch with an ended context = %v, want context.Canceled or a closed channel", err)
	}
}

func testWatchEndsWithLedger(t *testing.T, e *env) {
	s := newSpace()
	ch := e.watch(t, context.Background(), s)
	if err := e.l.Close(); err != nil {
		t.Fatalf("Close = %v, want nil", err)
	}
	drained(t, ch)
}
