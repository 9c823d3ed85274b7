package ledgertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
)

var applyCases = []testCase{
	{"AtomicBatch", testAtomicBatch},
	{"OrderOfWrites", testOrderOfWrites},
	{"Counters", testCounters},
	{"CounterRange", testCounterRange},
	{"InvalidBatches", testInvalidBatches},
	{"SizeLimits", testSizeLimits},
	{"KeyLimits", testKeyLimits},
	{"SpacesAreApart", testSpacesAreApart},
	{"SlicesAreTheCallers", testSlicesAreTheCallers},
}

func testAtomicBatch(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "old", "1", "n", "5")
	before := e.lastSeq(t, s)
	refused := ledger.Batch{
		Space:   s,
		Checks:  []ledger.Check{ledger.Absent("new"), ledger.Equal("old", []byte("2"))},
		Deletes: []string{"old"},
		Sets:    []ledger.Set{{Key: "new", Value: []byte("x")}},
		Adds:    []ledger.Add{{Key: "n", Delta: 1}},
		Log:     []byte("never"),
	}
	e.refused(t, refused, "old", []byte("1"))
	e.want(t, s, "old", []byte("1"))
	e.want(t, s, "new", nil)
	e.want(t, s, "n", []byte("5"))
	if got := e.lastSeq(t, s); got != before {
		t.Fatalf("LastSeq() after a refused batch = %d, want %d", got, before)
	}
	refused.Checks[1].Value = []byte("1")
	if r := e.apply(t, refused); r.Seq != before+1 {
		t.Fatalf("Apply gave number %d, want %d", r.Seq, before+1)
	}
	e.want(t, s, "old", nil)
	e.want(t, s, "new", []byte("x"))
	e.want(t, s, "n", []byte("6"))
}

// A key may be written once in a batch, so the order deletes, sets, adds shows in
// what a batch leaves behind for the next one.
func testOrderOfWrites(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "a", "1", "b", "2", "c", "3")
	e.apply(t, ledger.Batch{
		Space:   s,
		Deletes: []string{"a", "never-there"},
		Sets:    []ledger.Set{{Key: "b", Value: []byte{}}, {Key: "d", Value: nil}},
		Adds:    []ledger.Add{{Key: "c", Delta: 39}},
	})
	e.want(t, s, "a", nil)
	e.want(t, s, "b", []byte{})
	e.want(t, s, "c", []byte("42"))
	e.want(t, s, "d", []byte{})
	e.apply(t, ledger.Batch{Space: s, Sets: []ledger.Set{{Key: "a", Value: []byte("again")}}, Deletes: []string{"b"}})
	e.want(t, s, "a", []byte("again"))
	e.want(t, s, "b", nil)
}

func testCounters(t *testing.T, e *env) {
	s := newSpace()
	add := func(delta int64) {
		t.Helper()
		e.apply(t, ledger.Batch{Space: s, Adds: []ledger.Add{{Key: "n", Delta: delta}}})
	}
	add(7)
	e.want(t, s, "n", []byte("7"))
	add(-10)
	e.want(t, s, "n", []byte("-3"))
	add(0)
	e.want(t, s, "n", []byte("-3"))
	add(3)
	e.want(t, s, "n", []byte("0"))
	e.apply(t, ledger.Batch{
		Space:  s,
		Checks: []ledger.Check{ledger.Equal("n", []byte("0"))},
		Adds:   []ledger.Add{{Key: "n", Delta: 1}, {Key: "m", Delta: 0}},
	})
	e.want(t, s, "n", []byte("1"))
	e.want(t, s, "m", []byte("0"))

	e.set(t, s, "text", "12a")
	b := ledger.Batch{Space: s, Adds: []ledger.Add{{Key: "n", Delta: 1}, {Key: "text", Delta: 1}}}
	e.fails(t, b, ledger.ErrInvalidBatch)
	e.want(t, s, "n", []byte("1"))
	e.want(t, s, "text", []byte("12a"))
}

// Counters are whole 64-bit numbers: no detour through a float.
func testCounterRange(t *testing.T, e *env) {
	s := newSpace()
	const odd = 1<<53 + 1
	e.apply(t, ledger.Batch{Space: s, Adds: []ledger.Add{{Key: "n", Delta: odd}}})
	e.want(t, s, "n", []byte("9007199254740993"))
	e.refused(t, ledger.Batch{
		Space:  s,
		Checks: []ledger.Check{ledger.AtMost("n", odd+1)},
		Adds:   []ledger.Add{{Key: "n", Delta: 2}},
	}, "n", []byte("9007199254740995"))
	e.apply(t, ledger.Batch{
		Space:  s,
		Checks: []ledger.Check{ledger.AtMost("n", odd+2)},
		Adds:   []ledger.Add{{Key: "n", Delta: 2}},
	})
	e.want(t, s, "n", []byte("9007199254740995"))
	e.set(t, s, "top", "9223372036854775807")
	e.fails(t, ledger.Batch{Space: s, Adds: []ledger.Add{{Key: "top", Delta: 1}}}, ledger.ErrInvalidBatch)
	e.want(t, s, "top", []byte("9223372036854775807"))
	e.apply(t, ledger.Batch{Space: s, Adds: []ledger.Add{{Key: "top", Delta: -1}}})
	e.want(t, s, "top", []byte("9223372036854775806"))
}

func testInvalidBatches(t *testing.T, e *env) {
	s := newSpace()
	set := func(k string) ledger.Set { return ledger.Set{Key: k, Value: []byte("v")} }
	for name, b := range map[string]ledger.Batch{
		"no space":         {Sets: []ledger.Set{set("k")}},
		"set twice":        {Space: s, Sets: []ledger.Set{set("k"), set("other"), set("k")}},
		"set and deleted":  {Space: s, Deletes: []string{"k"}, Sets: []ledger.Set{set("k")}},
		"added twice":      {Space: s, Adds: []ledger.Add{{Key: "k", Delta: 1}, {Key: "k", Delta: 1}}},
		"set and added":    {Space: s, Sets: []ledger.Set{set("k")}, Adds: []ledger.Add{{Key: "k", Delta: 1}}},
		"empty key":        {Space: s, Sets: []ledger.Set{set("")}},
		"empty delete":     {Space: s, Deletes: []string{""}},
		"empty prefix":     {Space: s, Checks: []ledger.Check{ledger.AbsentPrefix("")}},
		"no kind of check": {Space: s, Checks: []ledger.Check{{Key: "k"}}},
		"unknown check":    {Space: s, Checks: []ledger.Check{{Kind: 99, Key: "k"}}},
		"long key":         {Space: s, Sets: []ledger.Set{set(strings.Repeat("k", ledger.MaxKeyBytes+1))}},
		"AtMost on a set":  {Space: s, Checks: []ledger.Check{ledger.AtMost("k", 9)}, Sets: []ledger.Set{set("k")}},
	} {
		t.Run(name, func(t *testing.T) {
			b.Log = []byte("never")
			e.fails(t, b, ledger.ErrInvalidBatch)
		})
	}
	if n := e.lastSeq(t, s); n != 0 {
		t.Fatalf("LastSeq() after invalid batches = %d, want 0", n)
	}
}

func testSizeLimits(t *testing.T, e *env) {
	s := newSpace()
	exact := ledger.Batch{
		Space: s,
		Sets:  []ledger.Set{{Key: "big", Value: bytes.Repeat([]byte{0xa5}, ledger.MaxBatchBytes-6)}},
		Log:   []byte("log"),
	}
	e.apply(t, exact)
	e.want(t, s, "big", exact.Sets[0].Value)
	exact.Log = []byte("log+")
	e.fails(t, exact, ledger.ErrTooLarge)
	if n := e.lastSeq(t, s); n != 1 {
		t.Fatalf("LastSeq() = %d, want 1: the batch that was too large must leave nothing", n)
	}

	many := ledger.Batch{Space: s}
	for i := range ledger.MaxBatchKeys {
		many.Sets = append(many.Sets, ledger.Set{Key: fmt.Sprintf("many/%05d", i), Value: []byte("v")})
	}
	e.apply(t, many)
	if got := e.scan(t, s, "many/", "", ledger.MaxBatchKeys+1); len(got) != ledger.MaxBatchKeys {
		t.Fatalf("Scan found %d keys, want %d", len(got), ledger.MaxBatchKeys)
	}
	drop := ledger.Batch{Space: s}
	for _, set := range many.Sets {
		drop.Deletes = append(drop.Deletes, set.Key)
	}
	e.apply(t, drop)
	if got := e.scan(t, s, "many/", "", 1); len(got) != 0 {
		t.Fatalf("Scan found %q after all keys were deleted, want none", got[0].Key)
	}
	many.Deletes = []string{"one-more"}
	e.fails(t, many, ledger.ErrTooLarge)
}

func testKeyLimits(t *testing.T, e *env) {
	s := newSpace()
	long := strings.Repeat("\xff", ledger.MaxKeyBytes)
	e.set(t, s, long, "long", "\x00", "short")
	e.want(t, s, long, []byte("long"))
	e.refused(t, ledger.Batch{Space: s, Checks: []ledger.Check{ledger.AbsentPrefix(long)}}, long, []byte("long"))
	if got := e.scan(t, s, long, "", 10); len(got) != 1 || got[0].Key != long {
		t.Fatalf("Scan of a key of %d bytes found %d items, want that key", len(long), len(got))
	}
}

func testSpacesAreApart(t *testing.T, e *env) {
	root := newSpace()
	spaces := []ledger.Space{root, root + "/x", root + "\x00", root + "\xff", root + "{a}", "{" + root, root + "%2f", ledger.ServerSpace}
	key := "apart/" + string(root)
	for i, s := range spaces {
		e.apply(t, ledger.Batch{Space: s, Sets: []ledger.Set{{Key: key, Value: fmt.Append(nil, i)}}, Log: fmt.Append(nil, i)})
	}
	for i, s := range spaces {
		e.want(t, s, key, fmt.Append(nil, i))
		if got := e.scan(t, s, key, "", 10); len(got) != 1 {
			t.Fatalf("Scan in space %q found %d items, want 1", s, len(got))
		}
		if n := e.lastSeq(t, s); s != ledger.ServerSpace && n != 1 {
			t.Fatalf("LastSeq in space %q = %d, want 1", s, n)
		}
	}
	e.apply(t, ledger.Batch{Space: ledger.ServerSpace, Deletes: []string{key}})
}

// Neither what was handed to Apply nor what a view gave may be shared with the engine.
func testSlicesAreTheCallers(t *testing.T, e *env) {
	s := newSpace()
	value, log := []byte("value"), []byte("entry")
	e.apply(t, ledger.Batch{Space: s, Sets: []ledger.Set{{Key: "k", Value: value}}, Log: log})
	clear(value)
	clear(log)
	for range 2 {
		e.view(t, s, func(v ledger.View) {
			got, err := v.Get(context.Background(), "k")
			if err != nil || string(got) != "value" {
				t.Fatalf("Get = %q, %v; want %q", got, err, "value")
			}
			clear(got)
			items, err := v.Scan(context.Background(), "k", "", 1)
			if err != nil || len(items) != 1 || string(items[0].Value) != "value" {
				t.Fatalf("Scan = %v, %v; want one item with value", items, err)
			}
			clear(items[0].Value)
			entries, err := v.Log(context.Background(), 0, 1)
			if err != nil || len(entries) != 1 || string(entries[0].Data) != "entry" {
				t.Fatalf("Log = %v, %v; want one entry", entries, err)
			}
			clear(entries[0].Data)
		})
	}
	var ce *ledger.CheckError
	_, err := e.l.Apply(context.Background(), ledger.Batch{Space: s, Checks: []ledger.Check{ledger.Absent("k")}})
	if !errors.As(err, &ce) {
		t.Fatalf("Apply = %v, want a *CheckError", err)
	}
	clear(ce.Present)
	e.want(t, s, "k", []byte("value"))
}
