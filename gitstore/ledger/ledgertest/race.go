package ledgertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
)

var raceCases = []testCase{
	{"EqualHasOneWinner", testEqualRace},
	{"AbsentHasOneWinner", testAbsentRace},
	{"PhantomsAreSeen", testPhantoms},
	{"AtMostIsNeverPassed", testAtMostRace},
	{"ManyWritersOneKey", testManyWritersOneKey},
	{"ManyWritersManyKeys", testManyWritersManyKeys},
	{"ReadersSeeWholeBatches", testWholeBatches},
}

// oneWinner sends n batches at once; one may win, the rest must see what it wrote.
func oneWinner(t *testing.T, e *env, n int, key string, batch func(i int) ledger.Batch) {
	t.Helper()
	errs := make([]error, n)
	together(n, func(i int) { _, errs[i] = e.l.Apply(context.Background(), batch(i)) })
	winner := -1
	for i, err := range errs {
		if err == nil {
			if winner >= 0 {
				t.Fatalf("writers %d and %d both won, want one", winner, i)
			}
			winner = i
		}
	}
	if winner < 0 {
		t.Fatalf("none of %d writers won; the first got %v", n, errs[0])
	}
	want := batch(winner).Sets[0].Value
	for i, err := range errs {
		var ce *ledger.CheckError
		if i != winner && (!errors.As(err, &ce) || ce.Key != key || !bytes.Equal(ce.Present, want)) {
			t.Fatalf("loser %d got %v, want a *CheckError on %q with the winner's %q", i, err, key, want)
		}
	}
	e.want(t, batch(0).Space, key, want)
}

func testEqualRace(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "head", "0")
	oneWinner(t, e, 200, "head", func(i int) ledger.Batch {
		return ledger.Batch{
			Space:  s,
			Checks: []ledger.Check{ledger.Equal("head", []byte("0"))},
			Sets:   []ledger.Set{{Key: "head", Value: fmt.Append(nil, "writer ", i)}, {Key: fmt.Sprint("by/", i)}},
		}
	})
	if got := e.scan(t, s, "by/", "", 10); len(got) != 1 {
		t.Fatalf("%d writers left something, want the winner alone", len(got))
	}
}

func testAbsentRace(t *testing.T, e *env) {
	for range 10 {
		s := newSpace()
		oneWinner(t, e, 8, "k", func(i int) ledger.Batch {
			return ledger.Batch{Space: s, Checks: []ledger.Check{ledger.Absent("k")}, Sets: []ledger.Set{{Key: "k", Value: fmt.Append(nil, i)}}}
		})
	}
}

// Git forbids a branch "p" beside a branch "p/x". Creators of either prove it with
// checks alone, so that no mixture of them may end with both.
func testPhantoms(t *testing.T, e *env) {
	s := newSpace()
	for round := range 30 {
		dir := fmt.Sprintf("d%d", round)
		var files, dirs atomic.Int32
		together(8, func(i int) {
			b := ledger.Batch{Space: s, Checks: []ledger.Check{ledger.AbsentPrefix(dir + "/"), ledger.Absent(dir)}, Sets: []ledger.Set{{Key: dir}}}
			won := &files
			if i%2 == 0 {
				b = ledger.Batch{Space: s, Checks: []ledger.Check{ledger.Absent(dir)}, Sets: []ledger.Set{{Key: fmt.Sprintf("%s/%d", dir, i)}}}
				won = &dirs
			}
			if _, err := e.l.Apply(context.Background(), b); err == nil {
				won.Add(1)
			}
		})
		if files.Load() > 1 || files.Load() == 1 && dirs.Load() > 0 || files.Load()+dirs.Load() == 0 {
			t.Fatalf("round %d: %q was created %d times and %d keys below it, want one or the other", round, dir, files.Load(), dirs.Load())
		}
		if got := e.scan(t, s, dir, "", 10); len(got) != int(files.Load()+dirs.Load()) {
			t.Fatalf("round %d: %d keys stand, want the %d that were acknowledged", round, len(got), files.Load()+dirs.Load())
		}
	}
}

func testAtMostRace(t *testing.T, e *env) {
	s := newSpace()
	var won atomic.Int32
	together(60, func(i int) {
		_, err := e.l.Apply(context.Background(), ledger.Batch{
			Space:  s,
			Checks: []ledger.Check{ledger.AtMost("used", 20)},
			Adds:   []ledger.Add{{Key: "used", Delta: 1}},
		})
		var ce *ledger.CheckError
		switch {
		case err == nil:
			won.Add(1)
		case !errors.As(err, &ce) || string(ce.Present) != "21":
			t.Errorf("loser %d got %v, want a *CheckError with 21", i, err)
		}
	})
	if won.Load() != 20 {
		t.Fatalf("%d writers got a place, want 20", won.Load())
	}
	e.want(t, s, "used", []byte("20"))
}

func testManyWritersOneKey(t *testing.T, e *env) {
	const writers, each = 8, 25
	s := newSpace()
	together(writers, func(int) {
		for range each {
			if err := increment(e.l, s, "n"); err != nil {
				t.Errorf("compare-and-swap loop: %v", err)
				return
			}
		}
	})
	e.want(t, s, "n", fmt.Append(nil, writers*each))
	entries := e.log(t, s, 0, writers*each+1)
	wantGapless(t, entries, 1)
	if len(entries) != writers*each {
		t.Fatalf("the log has %d entries, want %d", len(entries), writers*each)
	}
	for i, en := range entries {
		if want := strconv.Itoa(i + 1); string(en.Data) != want {
			t.Fatalf("log entry %d tells of %q, want %q: the log's order is the order of the changes", en.Seq, en.Data, want)
		}
	}
}

// increment raises the number under key by one with Equal alone, beginning from
// what a refusal told.
func increment(l ledger.Ledger, s ledger.Space, key string) error {
	check, next := ledger.Absent(key), 1
	for {
		text := strconv.Itoa(next)
		_, err := l.Apply(context.Background(), ledger.Batch{
			Space: s, Checks: []ledger.Check{check}, Sets: []ledger.Set{{Key: key, Value: []byte(text)}}, Log: []byte(text),
		})
		var ce *ledger.CheckError
		if !errors.As(err, &ce) {
			return err
		}
		n, err := strconv.Atoi(string(ce.Present))
		if err != nil {
			return err
		}
		check, next = ledger.Equal(key, ce.Present), n+1
	}
}

func testManyWritersManyKeys(t *testing.T, e *env) {
	const writers, each = 16, 25
	s := newSpace()
	results := make([][]ledger.Result, writers)
	together(writers, func(w int) {
		for i := range each {
			name := fmt.Sprintf("%d/%d", w, i)
			r, err := e.l.Apply(context.Background(), ledger.Batch{
				Space: s, Checks: []ledger.Check{ledger.Absent(name)},
				Sets: []ledger.Set{{Key: name, Value: []byte(name)}}, Adds: []ledger.Add{{Key: "sum", Delta: 1}}, Log: []byte(name),
			})
			if err != nil {
				t.Errorf("Apply of %s: %v", name, err)
				return
			}
			results[w] = append(results[w], r)
		}
	})
	entries := e.log(t, s, 0, writers*each+1)
	if len(entries) != writers*each {
		t.Fatalf("the log has %d entries, want %d", len(entries), writers*each)
	}
	wantGapless(t, entries, 1)
	for w, rs := range results {
		for i, r := range rs {
			en := entries[r.Seq-1]
			if want := fmt.Sprintf("%d/%d", w, i); string(en.Data) != want || !en.At.Equal(r.At) {
				t.Fatalf("log entry %d is %q of %s, want %q of %s as its writer was told", r.Seq, en.Data, en.At, want, r.At)
			}
		}
	}
	e.want(t, s, "sum", fmt.Append(nil, writers*each))
}

// Two keys are always written together, so that no call of a view may see them differ.
func testWholeBatches(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "a", "0", "b", "0")
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			v := fmt.Append(nil, i)
			if _, err := e.l.Apply(context.Background(), ledger.Batch{Space: s, Sets: []ledger.Set{{Key: "a", Value: v}, {Key: "b", Value: v}}}); err != nil {
				done <- err
				return
			}
		}
	}()
	for range 100 {
		e.view(t, s, func(v ledger.View) {
			many, err := v.GetMany(context.Background(), "b", "a")
			if err != nil || !bytes.Equal(many[0], many[1]) {
				t.Fatalf("GetMany = %q, %v; want one moment", many, err)
			}
			items, err := v.Scan(context.Background(), "", "", 2)
			if err != nil || len(items) != 2 || !bytes.Equal(items[0].Value, items[1].Value) {
				t.Fatalf("Scan = %q, %v; want one moment", items, err)
			}
		})
		for name, read := range e.keyReaders() {
			many, err := read(context.Background(), s, "b", "a")
			if err != nil || !bytes.Equal(many[0], many[1]) {
				t.Fatalf("%s = %q, %v; want one moment", name, many, err)
			}
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatalf("writer: %v", err)
	}
}
