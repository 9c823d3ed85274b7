package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

var idCases = []testCase{
	{"BatchIDAnswersAgain", testBatchID},
	{"BatchIDAtOnce", testBatchIDAtOnce},
	{"BatchIDAfterReopen", testBatchIDAfterReopen},
	{"BatchIDOfARefusedBatch", testBatchIDRefused},
}

var lifeCases = []testCase{
	{"Reopen", testReopen},
	{"Drop", testDrop},
	{"NowNeverRunsBack", testNow},
	{"ClockIsInjected", testClock},
	{"ClosedLedger", testClosed},
	{"EndedContext", testContext},
}

func (e *env) now(t fataler) time.Time {
	t.Helper()
	now, err := e.l.Now(context.Background())
	if err != nil {
		t.Fatalf("Now() = %v, want a time", err)
	}
	return now
}

// refusedBefore wants b refused by a Before check.
func (e *env) refusedBefore(t fataler, b ledger.Batch) *ledger.CheckError {
	t.Helper()
	_, err := e.l.Apply(context.Background(), b)
	var ce *ledger.CheckError
	if !errors.As(err, &ce) || ce.Check.Kind != ledger.CheckBefore || ce.Key != "" {
		t.Fatalf("Apply(%s) = %v, want a *CheckError of Before without a key", describe(b), err)
	}
	return ce
}

func repeatable(s ledger.Space, id string) ledger.Batch {
	return ledger.Batch{
		ID: id, Space: s,
		Checks: []ledger.Check{ledger.Absent("k")},
		Sets:   []ledger.Set{{Key: "k", Value: []byte("v")}},
		Adds:   []ledger.Add{{Key: "n", Delta: 1}},
		Log:    []byte("once"),
	}
}

// wantOnce wants the state after repeatable was applied once.
func (e *env) wantOnce(t fataler, s ledger.Space) {
	t.Helper()
	e.want(t, s, "n", []byte("1"))
	if n := e.lastSeq(t, s); n != 1 {
		t.Fatalf("LastSeq() = %d, want 1: a repeated batch is not applied again", n)
	}
}

func sameResult(t fataler, got, want ledger.Result) {
	t.Helper()
	if got.Seq != want.Seq || !got.At.Equal(want.At) {
		t.Fatalf("the repeated batch was answered %+v, want the first answer %+v", got, want)
	}
}

func testBatchID(t *testing.T, e *env) {
	s, other := newSpace(), newSpace()
	first := e.apply(t, repeatable(s, "id"))
	sameResult(t, e.apply(t, repeatable(s, "id")), first)
	sameResult(t, e.apply(t, ledger.Batch{ID: "id", Space: s, Log: []byte("another body")}), first)
	e.wantOnce(t, s)
	e.refused(t, repeatable(s, "id2"), "k", []byte("v"))
	e.refused(t, repeatable(s, ""), "k", []byte("v"))
	e.apply(t, repeatable(other, "id")) // an id belongs to its space
	e.wantOnce(t, other)
	if e.in.SetClock != nil {
		e.in.SetClock(first.At.Add(ledger.BatchIDMemory - time.Second))
		sameResult(t, e.apply(t, repeatable(s, "id")), first)
	}
}

func testBatchIDAtOnce(t *testing.T, e *env) {
	s := newSpace()
	const n = 24
	results, errs := make([]ledger.Result, n), make([]error, n)
	together(n, func(i int) { results[i], errs[i] = e.l.Apply(context.Background(), repeatable(s, "same")) })
	for i := range n {
		if errs[i] != nil {
			t.Fatalf("sender %d of one batch got %v, want the result", i, errs[i])
		}
		sameResult(t, results[i], results[0])
	}
	e.wantOnce(t, s)
}

func testBatchIDAfterReopen(t *testing.T, e *env) {
	s := newSpace()
	first := e.apply(t, repeatable(s, "id"))
	bare := e.apply(t, ledger.Batch{ID: "writes-nothing", Space: s})
	e.reopen(t)
	sameResult(t, e.apply(t, repeatable(s, "id")), first)
	sameResult(t, e.apply(t, ledger.Batch{ID: "writes-nothing", Space: s}), bare)
	e.wantOnce(t, s)
}

// A refusal is not remembered: the same batch may hold later.
func testBatchIDRefused(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "k", "in the way")
	e.refused(t, repeatable(s, "id"), "k", []byte("in the way"))
	e.apply(t, ledger.Batch{Space: s, Deletes: []string{"k"}})
	e.apply(t, repeatable(s, "id"))
	e.wantOnce(t, s)
}

func testReopen(t *testing.T, e *env) {
	s := newSpace()
	for i := range 3 {
		e.apply(t, ledger.Batch{
			Space: s, Sets: []ledger.Set{{Key: fmt.Sprint("k", i), Value: fmt.Append(nil, i)}},
			Adds: []ledger.Add{{Key: "n", Delta: 2}}, Log: fmt.Append(nil, i),
		})
		last := e.now(t)
		e.reopen(t)
		if now := e.now(t); now.Before(last) {
			t.Fatalf("Now() after a reopen = %s, before %s that was told earlier", now, last)
		}
		for j := range i + 1 {
			e.want(t, s, fmt.Sprint("k", j), fmt.Append(nil, j))
		}
		e.want(t, s, "n", fmt.Append(nil, 2*(i+1)))
		if n := e.lastSeq(t, s); n != uint64(i+1) {
			t.Fatalf("LastSeq() after a reopen = %d, want %d", n, i+1)
		}
	}
}

func testDrop(t *testing.T, e *env) {
	s, beside := newSpace(), newSpace()
	below := s + "/below"
	for _, sp := range []ledger.Space{s, beside, below} {
		e.apply(t, repeatable(sp, "id"))
		e.set(t, sp, "\x00", "low", "\xff\xff", "high")
	}
	for range 2 {
		if err := e.l.Drop(context.Background(), s); err != nil {
			t.Fatalf("Drop = %v, want nil, also when repeated", err)
		}
		if items := e.scan(t, s, "", "", 9); len(items) != 0 {
			t.Fatalf("%d keys are left after Drop, the first %q", len(items), items[0].Key)
		}
		if entries := e.log(t, s, 0, 9); len(entries) != 0 || e.lastSeq(t, s) != 0 {
			t.Fatalf("after Drop the log has %d entries and last number %d, want none", len(entries), e.lastSeq(t, s))
		}
		e.reopen(t)
	}
	e.apply(t, repeatable(s, "id")) // nothing is remembered, the id neither
	for _, sp := range []ledger.Space{s, beside, below} {
		e.wantOnce(t, sp)
	}
	e.want(t, beside, "\xff\xff", []byte("high"))
}

func testNow(t *testing.T, e *env) {
	s := newSpace()
	together(4, func(int) {
		var last time.Time
		for range 40 {
			now, err := e.l.Now(context.Background())
			if err != nil || now.Before(last) || now.Location() != time.UTC || !now.Equal(now.Truncate(time.Microsecond)) {
				t.Errorf("Now() = %s, %v; want UTC in whole microseconds, not before %s", now, err, last)
				return
			}
			r, err := e.l.Apply(context.Background(), ledger.Batch{Space: s, Log: []byte("tick")})
			if err != nil || r.At.Before(now) {
				t.Errorf("Apply = %s, %v; want not before %s", r.At, err, now)
				return
			}
			last = r.At
		}
	})
}

func testClock(t *testing.T, e *env) {
	if e.in.SetClock == nil {
		t.Log("the engine's clock is not ours to set; nothing to hold it to")
		return
	}
	s := newSpace()
	at := e.now(t).Add(time.Hour).Truncate(time.Second)
	e.in.SetClock(at.Add(1500 * time.Nanosecond))
	if now := e.now(t); !now.Equal(at.Add(time.Microsecond)) {
		t.Fatalf("Now() = %s, want %s", now, at.Add(time.Microsecond))
	}
	if r := e.appendLog(t, s, "x"); !r.At.Equal(at.Add(time.Microsecond)) {
		t.Fatalf("Apply is of %s, want %s", r.At, at.Add(time.Microsecond))
	}
	e.in.SetClock(at.Add(-24 * time.Hour))
	for range 2 {
		if now := e.now(t); now.Before(at) {
			t.Fatalf("Now() with a clock that was set back = %s, want not before %s", now, at)
		}
		if r := e.appendLog(t, s, "x"); r.At.Before(at) {
			t.Fatalf("Apply with a clock that was set back is of %s, want not before %s", r.At, at)
		}
		e.reopen(t)
	}
	wantGapless(t, e.log(t, s, 0, 9), 1)
}

func testClosed(t *testing.T, e *env) {
	ctx, s := context.Background(), newSpace()
	e.set(t, s, "k", "v")
	v, err := e.l.Read(ctx, s)
	if err != nil {
		t.Fatalf("Read = %v", err)
	}
	if err := e.l.Close(); err != nil {
		t.Fatalf("Close = %v, want nil", err)
	}
	calls := map[string]func() error{
		"Apply":        func() error { _, err := e.l.Apply(ctx, ledger.Batch{Space: s, Log: []byte("x")}); return err },
		"Read":         func() error { _, err := e.l.Read(ctx, s); return err },
		"Peek":         func() error { _, err := e.l.Peek(ctx, s); return err },
		"ReadKeys":     func() error { _, err := e.l.ReadKeys(ctx, s, "k"); return err },
		"PeekKeys":     func() error { _, err := e.l.PeekKeys(ctx, s, "k"); return err },
		"Watch":        func() error { _, err := e.l.Watch(ctx, s); return err },
		"Drop":         func() error { return e.l.Drop(ctx, s) },
		"TrimLog":      func() error { return e.l.TrimLog(ctx, s, 1) },
		"Now":          func() error { _, err := e.l.Now(ctx); return err },
		"View.Get":     func() error { _, err := v.Get(ctx, "k"); return err },
		"View.GetMany": func() error { _, err := v.GetMany(ctx, "k"); return err },
		"View.Scan":    func() error { _, err := v.Scan(ctx, "", "", 1); return err },
		"View.Range":   func() error { _, err := v.Range(ctx, "", "z", 1); return err },
		"View.Log":     func() error { _, err := v.Log(ctx, 0, 1); return err },
		"View.LastSeq": func() error { _, err := v.LastSeq(ctx); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, ledger.ErrClosed) {
			t.Errorf("%s on a closed ledger = %v, want ErrClosed", name, err)
		}
	}
	if err := v.Close(); err != nil && !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("View.Close on a closed ledger = %v, want nil or ErrClosed", err)
	}
	if err := e.l.Close(); err != nil && !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("the second Close = %v, want nil or ErrClosed", err)
	}
}

func testContext(t *testing.T, e *env) {
	ctx, cancel := context.WithCancel(context.Background())
	s := newSpace()
	e.set(t, s, "k", "v")
	v, err := e.l.Read(ctx, s)
	if err != nil {
		t.Fatalf("Read = %v", err)
	}
	defer v.Close()
	cancel()
	calls := map[string]func() error{
		"Apply":    func() error { _, err := e.l.Apply(ctx, repeatable(newSpace(), "id")); return err },
		"Read":     func() error { _, err := e.l.Read(ctx, s); return err },
		"Peek":     func() error { _, err := e.l.Peek(ctx, s); return err },
		"ReadKeys": func() error { _, err := e.l.ReadKeys(ctx, s, "k"); return err },
		"PeekKeys": func() error { _, err := e.l.PeekKeys(ctx, s, "k"); return err },
		"Drop":     func() error { return e.l.Drop(ctx, s) },
		"TrimLog":  func() error { return e.l.TrimLog(ctx, s, 1) },
		"Now":      func() error { _, err := e.l.Now(ctx); return err },
		"View.Get": func() error { _, err := v.Get(ctx, "k"); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with an ended context = %v, want context.Canceled", name, err)
		}
	}
	e.want(t, s, "k", []byte("v"))
	testCancelledMidway(t, e)
}

// A batch whose caller went away may have been applied or not; the same ID tells
// and never applies it twice.
func testCancelledMidway(t *testing.T, e *env) {
	for i := range 30 {
		s := newSpace()
		ctx, cancel := context.WithCancel(context.Background())
		together(2, func(side int) {
			if side == 0 {
				cancel()
				return
			}
			if _, err := e.l.Apply(ctx, repeatable(s, "id")); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("round %d: Apply = %v, want nil or context.Canceled", i, err)
			}
		})
		e.apply(t, repeatable(s, "id"))
		e.wantOnce(t, s)
	}
}
