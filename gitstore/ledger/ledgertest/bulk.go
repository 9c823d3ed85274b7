package ledgertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger"
)

var bulkCases = []testCase{
	{"SpacesAreListedOnce", testSpaces},
	{"DumpOfNothing", testDumpOfNothing},
	{"DumpShowsOneMoment", testDumpMoment},
	{"DumpWhileWritten", testDumpWhileWritten},
	{"DumpsAtOnce", testDumpsAtOnce},
	{"DumpOfADroppedSpace", testDumpDropped},
	{"LoadIsTheSame", testLoad},
	{"LoadGoesOn", testLoadGoesOn},
	{"LoadRefusesWhatExists", testLoadExisting},
}

func (e *env) bulk(t fataler) ledger.Bulk {
	t.Helper()
	b, ok := e.l.(ledger.Bulk)
	if !ok {
		t.Fatalf("%T is no ledger.Bulk", e.l)
	}
	return b
}

// content is a whole space.
type content struct {
	state ledger.State
	items map[string]string
	log   []ledger.Entry
}

// openDump opens a dump that the caller closes.
func (e *env) openDump(t fataler, s ledger.Space) ledger.Dump {
	t.Helper()
	d, err := e.bulk(t).Dump(context.Background(), s)
	if err != nil {
		t.Fatalf("Dump(%q) = %v, want a dump", s, err)
	}
	return d
}

// readDump reads d to its end and closes it; between is called before each read.
func readDump(t fataler, d ledger.Dump, between func()) content {
	t.Helper()
	c := content{state: d.State(), items: map[string]string{}}
	last := ""
	for start, done := "", false; !done; {
		between()
		items, next, err := d.Items(context.Background(), start)
		if err != nil {
			t.Fatalf("Dump.Items(%q) = %v, want items", start, err)
		}
		for _, it := range items {
			if it.Key <= last {
				t.Fatalf("Dump.Items(%q) gives %q behind %q", start, it.Key, last)
			}
			last = it.Key
			c.items[it.Key] = string(it.Value)
		}
		if done = next == ""; !done && next <= start {
			t.Fatalf("Dump.Items(%q) goes on at %q", start, next)
		}
		start = next
	}
	for after := c.state.Trimmed; ; {
		between()
		entries, err := d.Log(context.Background(), after)
		if err != nil {
			t.Fatalf("Dump.Log(%d) = %v, want entries", after, err)
		}
		if len(entries) == 0 {
			break
		}
		c.log = append(c.log, entries...)
		after = entries[len(entries)-1].Seq
	}
	if err := d.Close(); err != nil {
		t.Fatalf("Dump.Close() = %v, want nil", err)
	}
	return c
}

// sameContent wants two spaces to be one.
func sameContent(t fataler, got, want content) {
	t.Helper()
	if got.state.LastSeq != want.state.LastSeq || got.state.Trimmed != want.state.Trimmed || !got.state.At.Equal(want.state.At) {
		t.Fatalf("state is %+v, want %+v", got.state, want.state)
	}
	for _, k := range slices.Sorted(maps.Keys(want.items)) {
		if v, ok := got.items[k]; !ok || v != want.items[k] {
			t.Fatalf("key %q is %.40q (there: %t), want %.40q", k, v, ok, want.items[k])
		}
	}
	if len(got.items) != len(want.items) {
		t.Fatalf("%d keys, want %d", len(got.items), len(want.items))
	}
	same := func(a, b ledger.Entry) bool {
		return a.Seq == b.Seq && a.At.Equal(b.At) && bytes.Equal(a.Data, b.Data)
	}
	if !slices.EqualFunc(got.log, want.log, same) {
		t.Fatalf("log has %d entries, want %d, with their numbers, times and data", len(got.log), len(want.log))
	}
}

func nothing() {}

func testSpaces(t *testing.T, e *env) {
	a, b, gone, odd := newSpace(), newSpace(), newSpace(), newSpace()+"/{x}%7B"
	for _, s := range []ledger.Space{a, b, gone, odd} {
		e.set(t, s, "k", "v")
	}
	e.apply(t, ledger.Batch{Space: a, ID: "x}:meta", Log: []byte("l")})
	if err := e.l.Drop(context.Background(), gone); err != nil {
		t.Fatalf("Drop = %v", err)
	}
	seen := map[ledger.Space]int{}
	if err := e.bulk(t).Spaces(context.Background(), func(s ledger.Space) error { seen[s]++; return nil }); err != nil {
		t.Fatalf("Spaces = %v, want nil", err)
	}
	for s, want := range map[ledger.Space]int{a: 1, b: 1, odd: 1, gone: 0} {
		if seen[s] != want {
			t.Errorf("Spaces told of %q %d times, want %d", s, seen[s], want)
		}
	}
	stop := errors.New("enough")
	if err := e.bulk(t).Spaces(context.Background(), func(ledger.Space) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Spaces with a callback that fails = %v, want its error", err)
	}
}

func testDumpOfNothing(t *testing.T, e *env) {
	if d, err := e.bulk(t).Dump(context.Background(), newSpace()); !errors.Is(err, ledger.ErrNotFound) {
		t.Fatalf("Dump of a space that is not there = %v, %v; want ErrNotFound", d, err)
	}
	s := newSpace()
	e.apply(t, ledger.Batch{Space: s, Log: []byte("only a log")})
	if c := readDump(t, e.openDump(t, s), nothing); len(c.items) != 0 || len(c.log) != 1 || c.state.LastSeq != 1 {
		t.Fatalf("dump of a space without keys = %+v", c)
	}
}

// fill writes 2,500 keys, some with large values, and a trimmed log.
func (e *env) fill(t fataler, s ledger.Space) {
	t.Helper()
	for i := 0; i < 2_500; i += 500 {
		b := ledger.Batch{Space: s, Log: fmt.Appendf(nil, "batch %d", i)}
		for j := range 500 {
			size := 10
			if (i+j)%250 == 0 {
				size = 700 << 10
			}
			b.Sets = append(b.Sets, ledger.Set{Key: fmt.Sprintf("k/%05d", i+j), Value: bytes.Repeat([]byte{byte(j)}, size)})
		}
		e.apply(t, b)
	}
	for _, k := range oddKeys {
		e.apply(t, ledger.Batch{Space: s, Sets: []ledger.Set{{Key: k, Value: []byte(k)}}, Log: []byte(k)})
	}
	e.apply(t, ledger.Batch{Space: s, Sets: []ledger.Set{{Key: "empty", Value: nil}}, Adds: []ledger.Add{{Key: "n", Delta: 7}}})
	if err := e.l.TrimLog(context.Background(), s, 4); err != nil {
		t.Fatalf("TrimLog = %v", err)
	}
}

// A dump shows what stood when it was opened, whatever is written between its reads:
// before and behind the place where it reads.
func testDumpMoment(t *testing.T, e *env) {
	s := newSpace()
	e.fill(t, s)
	want := readDump(t, e.openDump(t, s), nothing)
	if len(want.items) != 2_500+len(oddKeys)+2 || want.state.Trimmed != 3 || len(want.log) != int(want.state.LastSeq-3) {
		t.Fatalf("dump has %d keys, state %+v, %d entries", len(want.items), want.state, len(want.log))
	}
	n := 0
	got := readDump(t, e.openDump(t, s), func() {
		n++
		b := ledger.Batch{Space: s, Adds: []ledger.Add{{Key: "n", Delta: 1}}, Log: []byte("new")}
		for _, at := range []int{0, 100, 2_000, 2_400} {
			b.Deletes = append(b.Deletes, fmt.Sprintf("k/%05d", at+n*3))
			b.Sets = append(b.Sets, ledger.Set{Key: fmt.Sprintf("k/%05d", at+n*3+1), Value: []byte("changed")},
				ledger.Set{Key: fmt.Sprintf("k/%05dnew%d", at, n), Value: []byte("new")})
		}
		e.apply(t, b)
	})
	sameContent(t, got, want)
	if n < 5 {
		t.Fatalf("the dump came in %d reads, want several", n)
	}
	if after := readDump(t, e.openDump(t, s), nothing); after.items["n"] != fmt.Sprint(7+n) || after.state.LastSeq != want.state.LastSeq+uint64(n) {
		t.Fatalf("the next dump has n = %s, state %+v, want what was written since", after.items["n"], after.state)
	}
}

// The same with random writes over few keys, which are set, deleted and set again.
func testDumpWhileWritten(t *testing.T, e *env) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSpace()
		key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
		write := func() {
			b := ledger.Batch{Space: s}
			for _, k := range rapid.SliceOfNDistinct(key, 1, 4, rapid.ID).Draw(t, "keys") {
				if rapid.Bool().Draw(t, "delete") {
					b.Deletes = append(b.Deletes, k)
				} else {
					b.Sets = append(b.Sets, ledger.Set{Key: k, Value: rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "value")})
				}
			}
			if rapid.Bool().Draw(t, "log") {
				b.Log = []byte("l")
			}
			e.apply(t, b)
		}
		for range rapid.IntRange(1, 5).Draw(t, "before") {
			write()
		}
		want := readDump(t, e.openDump(t, s), nothing)
		sameContent(t, readDump(t, e.openDump(t, s), func() {
			for range rapid.IntRange(0, 4).Draw(t, "between") {
				write()
			}
		}), want)
	})
}

func testDumpsAtOnce(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "a", "1", "b", "2")
	together(4, func(int) {
		d, err := e.bulk(t).Dump(context.Background(), s)
		if err != nil {
			t.Errorf("Dump beside others = %v, want a dump", err)
			return
		}
		items, _, err := d.Items(context.Background(), "")
		if err != nil || len(items) != 2 {
			t.Errorf("Dump.Items beside others = %v, %v; want two items", items, err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("Dump.Close = %v", err)
		}
	})
}

// A space that is dropped under its dump is shown whole, or the dump ends.
func testDumpDropped(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "a", "1")
	d := e.openDump(t, s)
	if err := e.l.Drop(context.Background(), s); err != nil {
		t.Fatalf("Drop = %v", err)
	}
	e.set(t, s, "b", "another space of the same name")
	items, next, err := d.Items(context.Background(), "")
	whole := err == nil && len(items) == 1 && items[0].Key == "a" && next == ""
	if !whole && !errors.Is(err, ledger.ErrUnavailable) {
		t.Fatalf("Items of a space dropped since = %v, %q, %v; want all or ErrUnavailable", items, next, err)
	}
	if err := d.Close(); err != nil {
		t.Fatalf("Dump.Close = %v", err)
	}
	e.want(t, s, "b", []byte("another space of the same name"))
}

// copyTo loads what s holds as another space, by way of a file.
func (e *env) copyTo(t fataler, s, other ledger.Space) {
	t.Helper()
	var file bytes.Buffer
	d := e.openDump(t, s)
	if err := ledger.WriteDump(context.Background(), &file, s, d, nil); err != nil {
		t.Fatalf("WriteDump = %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatalf("Dump.Close = %v", err)
	}
	r, err := ledger.NewDumpReader(&file)
	if err != nil || r.Space != s {
		t.Fatalf("NewDumpReader = %v, %v, want one of %s", r, err, s)
	}
	for {
		c, err := r.Next()
		if err == io.EOF {
			return
		}
		if err == nil {
			err = e.bulk(t).Load(context.Background(), other, c)
		}
		if err != nil {
			t.Fatalf("load a chunk of %d items = %v", len(c.Items), err)
		}
	}
}

func testLoad(t *testing.T, e *env) {
	s, other := newSpace(), newSpace()
	e.fill(t, s)
	want := readDump(t, e.openDump(t, s), nothing)
	e.copyTo(t, s, other)
	sameContent(t, readDump(t, e.openDump(t, other), nothing), want)
	e.reopen(t)
	sameContent(t, readDump(t, e.openDump(t, other), nothing), want)
	e.want(t, other, "\xff\xff", []byte("\xff\xff"))
}

// What was loaded is a space like any other: numbers and time go on, the trimmed log
// stays trimmed, checks see the keys.
func testLoadGoesOn(t *testing.T, e *env) {
	s, other := newSpace(), newSpace()
	for range 5 {
		e.apply(t, ledger.Batch{Space: s, Log: []byte("l")})
	}
	e.apply(t, ledger.Batch{Space: s, Adds: []ledger.Add{{Key: "n", Delta: 7}}, Log: []byte("n")})
	if err := e.l.TrimLog(context.Background(), s, 4); err != nil {
		t.Fatalf("TrimLog = %v", err)
	}
	e.copyTo(t, s, other)
	state := readDump(t, e.openDump(t, other), nothing).state
	e.refused(t, ledger.Batch{Space: other, Checks: []ledger.Check{ledger.Absent("n")}}, "n", []byte("7"))
	r := e.apply(t, ledger.Batch{Space: other, Checks: []ledger.Check{ledger.Equal("n", []byte("7"))}, Adds: []ledger.Add{{Key: "n", Delta: 1}}, Log: []byte("next")})
	if r.Seq != state.LastSeq+1 || r.At.Before(state.At) {
		t.Fatalf("first batch after loading = %+v, want number %d, not before %s", r, state.LastSeq+1, state.At)
	}
	wantGapless(t, e.log(t, other, state.Trimmed, 1000), state.Trimmed+1)
	e.view(t, other, func(v ledger.View) {
		if _, err := v.Log(context.Background(), 0, 10); !errors.Is(err, ledger.ErrLogTrimmed) {
			t.Fatalf("Log(0) of a loaded space = %v, want ErrLogTrimmed", err)
		}
	})
	e.want(t, s, "n", []byte("7"))

	// A time ahead of the engine's clock is kept to as well.
	late := newSpace()
	at := e.now(t).Add(time.Hour)
	st := ledger.State{LastSeq: 1, At: at}
	if err := e.bulk(t).Load(context.Background(), late, ledger.Chunk{Log: []ledger.Entry{{Seq: 1, At: at, Data: []byte("l")}}, State: &st}); err != nil {
		t.Fatalf("Load = %v", err)
	}
	if r := e.apply(t, ledger.Batch{Space: late, Log: []byte("m")}); r.Seq != 2 || r.At.Before(at) {
		t.Fatalf("batch after an entry of %s = %+v", at, r)
	}
}

func testLoadExisting(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "k", "v")
	now := e.now(t)
	for _, c := range []ledger.Chunk{
		{Items: []ledger.Item{{Key: "k", Value: []byte("other")}}},
		{State: &ledger.State{At: now}},
	} {
		if err := e.bulk(t).Load(context.Background(), s, c); !errors.Is(err, ledger.ErrNotEmpty) {
			t.Fatalf("Load(%+v) into a space that exists = %v, want ErrNotEmpty", c, err)
		}
	}
	e.want(t, s, "k", []byte("v"))
}
