package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
)

var viewCases = []testCase{
	{"GetAndGetMany", testGetMany},
	{"ScanOrder", testScanOrder},
	{"ScanPages", testScanPages},
	{"ScanBadLimit", testBadLimits},
	{"RangeOrder", testRangeOrder},
	{"PeekSeesOwnWrites", testPeek},
	{"KeysWithoutView", testKeys},
	{"ViewOfOneMoment", testViewOfOneMoment},
	{"UnknownSpaceIsEmpty", testUnknownSpace},
}

func testGetMany(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "a", "1", "empty", "", "c", "3")
	e.view(t, s, func(v ledger.View) {
		got, err := v.GetMany(context.Background(), "c", "gone", "empty", "a", "c")
		if err != nil {
			t.Fatalf("GetMany = %v, want values", err)
		}
		if len(got) != 5 || string(got[0]) != "3" || got[1] != nil || got[2] == nil || len(got[2]) != 0 || string(got[3]) != "1" || string(got[4]) != "3" {
			t.Fatalf("GetMany(c, gone, empty, a, c) = %q, want 3, nil, empty and not nil, 1, 3", got)
		}
		if got, err := v.GetMany(context.Background()); err != nil || len(got) != 0 {
			t.Fatalf("GetMany of no keys = %q, %v; want none", got, err)
		}
		if got, err := v.Get(context.Background(), "empty"); err != nil || got == nil || len(got) != 0 {
			t.Fatalf("Get of an empty value = %v, %v; want empty and not nil", got, err)
		}
		if _, err := v.Get(context.Background(), "gone"); !errors.Is(err, ledger.ErrNotFound) {
			t.Fatalf("Get of an absent key = %v, want ErrNotFound", err)
		}
	})
}

// oddKeys are in byte order.
var oddKeys = []string{
	"\x00", "\x00\x00", "\x00\xff", "\x01", " ", "%", "%00", "%d", "*", "-", "/", "0", "A", "[a]", "\\", "a", "a\x00", "a\x00b", "a ", "a.", "a/", "a/b",
	"a/b\xff", "a/c", "a0", "a{b}c", "b", "{", "{a}", "{a}b", "{}", "}", "é", "日本", "\xfe", "\xff", "\xff\x00", "\xff\xff", "\xff\xff\xff",
}

func testScanOrder(t *testing.T, e *env) {
	s := newSpace()
	if !slices.IsSorted(oddKeys) {
		t.Fatal("oddKeys are not in byte order: mend the test")
	}
	b := ledger.Batch{Space: s}
	for _, k := range oddKeys {
		b.Sets = append(b.Sets, ledger.Set{Key: k, Value: []byte("v" + k)})
	}
	slices.Reverse(b.Sets)
	e.apply(t, b)
	prefixes := append([]string{"", "a", "a/", "\xff", "\x00", "{", "z", "\xff\xff\xff\xff", "%"}, oddKeys...)
	starts := append([]string{"", "zz", "a/a", "\xff\xff\xff\xff"}, oddKeys...)
	e.view(t, s, func(v ledger.View) {
		for _, prefix := range prefixes {
			for _, start := range starts {
				for _, limit := range []int{1, 3, 1000} {
					got, err := v.Scan(context.Background(), prefix, start, limit)
					if err != nil {
						t.Fatalf("Scan(%q, %q, %d) = %v", prefix, start, limit, err)
					}
					wantScan(t, got, oddKeys, prefix, start, limit)
				}
			}
			if testing.Short() {
				starts = starts[:4]
			}
		}
	})
}

func wantScan(t fataler, got []ledger.Item, sorted []string, prefix, start string, limit int) {
	t.Helper()
	var want []string
	for _, k := range sorted {
		if strings.HasPrefix(k, prefix) && k >= start && len(want) < limit {
			want = append(want, k)
		}
	}
	keys := make([]string, len(got))
	for i, it := range got {
		keys[i] = it.Key
		if string(it.Value) != "v"+it.Key {
			t.Fatalf("Scan(%q, %q, %d): %q has value %q, want %q", prefix, start, limit, it.Key, it.Value, "v"+it.Key)
		}
	}
	if !slices.Equal(keys, want) {
		t.Fatalf("Scan(%q, %q, %d) = %q, want %q", prefix, start, limit, keys, want)
	}
}

// A range holds its lower end and not its upper one.
func testRangeOrder(t *testing.T, e *env) {
	s := newSpace()
	b := ledger.Batch{Space: s}
	for _, k := range oddKeys {
		b.Sets = append(b.Sets, ledger.Set{Key: k, Value: []byte("v" + k)})
	}
	e.apply(t, b)
	ends := append([]string{"", "a/a", "\xff\xff\xff\xff"}, oddKeys...)
	if testing.Short() {
		ends = ends[:12]
	}
	e.view(t, s, func(v ledger.View) {
		for _, from := range ends {
			for _, to := range ends {
				for _, limit := range []int{2, 1000} {
					got, err := v.Range(context.Background(), from, to, limit)
					if err != nil {
						t.Fatalf("Range(%q, %q, %d) = %v", from, to, limit, err)
					}
					var want, keys []string
					for _, k := range oddKeys {
						if k >= from && k < to && len(want) < limit {
							want = append(want, k)
						}
					}
					for _, it := range got {
						keys = append(keys, it.Key)
						if string(it.Value) != "v"+it.Key {
							t.Fatalf("Range(%q, %q, %d): %q has value %q, want %q", from, to, limit, it.Key, it.Value, "v"+it.Key)
						}
					}
					if !slices.Equal(keys, want) {
						t.Fatalf("Range(%q, %q, %d) = %q, want %q", from, to, limit, keys, want)
					}
				}
			}
		}
	})
}

func testScanPages(t *testing.T, e *env) {
	const n, page = 2_500, 700
	s := newSpace()
	for from := 0; from < n; from += 500 {
		b := ledger.Batch{Space: s}
		for i := from; i < from+500; i++ {
			b.Sets = append(b.Sets, ledger.Set{Key: fmt.Sprintf("k/%06d", i)})
		}
		e.apply(t, b)
	}
	e.view(t, s, func(v ledger.View) {
		var all []string
		for start := ""; ; {
			items, err := v.Scan(context.Background(), "k/", start, page)
			if err != nil {
				t.Fatalf("Scan from %q = %v", start, err)
			}
			for _, it := range items {
				all = append(all, it.Key)
			}
			if len(items) < page {
				break
			}
			start = items[len(items)-1].Key + "\x00"
		}
		if len(all) != n || !slices.IsSorted(all) || len(slices.Compact(all)) != n {
			t.Fatalf("pages held %d keys, want %d in order and each once", len(all), n)
		}
	})
}

func testBadLimits(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "k", "v")
	e.view(t, s, func(v ledger.View) {
		for _, limit := range []int{0, -1} {
			if got, err := v.Scan(context.Background(), "", "", limit); err == nil {
				t.Fatalf("Scan with limit %d = %v, nil; want an error", limit, got)
			}
			if got, err := v.Range(context.Background(), "", "z", limit); err == nil {
				t.Fatalf("Range with limit %d = %v, nil; want an error", limit, got)
			}
			if got, err := v.Log(context.Background(), 0, limit); err == nil {
				t.Fatalf("Log with limit %d = %v, nil; want an error", limit, got)
			}
		}
	})
}

// keyReaders are the two ways to keys without a view.
func (e *env) keyReaders() map[string]func(context.Context, ledger.Space, ...string) ([][]byte, error) {
	return map[string]func(context.Context, ledger.Space, ...string) ([][]byte, error){
		"ReadKeys": e.l.ReadKeys, "PeekKeys": e.l.PeekKeys,
	}
}

func testKeys(t *testing.T, e *env) {
	ctx, s, other := context.Background(), newSpace(), newSpace()
	e.set(t, other, "a", "another space's")
	for name, read := range e.keyReaders() {
		for i := range 20 {
			val := fmt.Sprint(name, i)
			e.set(t, s, "a", val, "empty", "", "c", "3")
			got, err := read(ctx, s, "c", "gone", "empty", "a", "c")
			if err != nil {
				t.Fatalf("%s = %v, want values", name, err)
			}
			if len(got) != 5 || string(got[0]) != "3" || got[1] != nil || got[2] == nil || len(got[2]) != 0 || string(got[3]) != val || string(got[4]) != "3" {
				t.Fatalf("%s(c, gone, empty, a, c) = %q, want 3, nil, empty and not nil, %s, 3", name, got, val)
			}
		}
		if got, err := read(ctx, s); err != nil || len(got) != 0 {
			t.Fatalf("%s of no keys = %q, %v; want none", name, got, err)
		}
		if got, err := read(ctx, newSpace(), "a"); err != nil || len(got) != 1 || got[0] != nil {
			t.Fatalf("%s in a space nobody wrote = %q, %v; want one nil", name, got, err)
		}
	}
}

func testPeek(t *testing.T, e *env) {
	s := newSpace()
	for i := range 50 {
		val := fmt.Sprint(i)
		e.apply(t, ledger.Batch{Space: s, Sets: []ledger.Set{{Key: "k", Value: []byte(val)}}, Log: []byte(val)})
		v, err := e.l.Peek(context.Background(), s)
		if err != nil {
			t.Fatalf("Peek = %v, want a view", err)
		}
		if got, err := v.Get(context.Background(), "k"); err != nil || string(got) != val {
			t.Fatalf("Peek then Get = %q, %v; want %q that was applied before", got, err, val)
		}
		if n, err := v.LastSeq(context.Background()); err != nil || n != uint64(i+1) {
			t.Fatalf("Peek then LastSeq = %d, %v; want %d", n, err, i+1)
		}
		if err := v.Close(); err != nil {
			t.Fatalf("View.Close() = %v", err)
		}
	}
}

func testViewOfOneMoment(t *testing.T, e *env) {
	if !e.snapshots {
		t.Log("the engine's views are read afresh by each call; nothing to hold it to")
		return
	}
	s := newSpace()
	e.apply(t, ledger.Batch{Space: s, Sets: []ledger.Set{{Key: "k", Value: []byte("old")}}, Log: []byte("1")})
	e.view(t, s, func(v ledger.View) {
		e.apply(t, ledger.Batch{Space: s, Sets: []ledger.Set{{Key: "k", Value: []byte("new")}, {Key: "l"}}, Log: []byte("2")})
		if err := e.l.TrimLog(context.Background(), s, 2); err != nil {
			t.Fatalf("TrimLog = %v", err)
		}
		if got, err := v.Get(context.Background(), "k"); err != nil || string(got) != "old" {
			t.Fatalf("Get on an older view = %q, %v; want old", got, err)
		}
		if items, err := v.Scan(context.Background(), "", "", 9); err != nil || len(items) != 1 {
			t.Fatalf("Scan on an older view = %q, %v; want one item", items, err)
		}
		if entries, err := v.Log(context.Background(), 0, 9); err != nil || len(entries) != 1 {
			t.Fatalf("Log on an older view = %v, %v; want one entry", entries, err)
		}
		if n, err := v.LastSeq(context.Background()); err != nil || n != 1 {
			t.Fatalf("LastSeq on an older view = %d, %v; want 1", n, err)
		}
	})
	e.want(t, s, "k", []byte("new"))
}

func testUnknownSpace(t *testing.T, e *env) {
	s := newSpace()
	e.want(t, s, "k", nil)
	if items := e.scan(t, s, "", "", 5); len(items) != 0 {
		t.Fatalf("Scan of an unknown space found %d items, want none", len(items))
	}
	if entries := e.log(t, s, 0, 5); len(entries) != 0 {
		t.Fatalf("Log of an unknown space has %d entries, want none", len(entries))
	}
	if n := e.lastSeq(t, s); n != 0 {
		t.Fatalf("LastSeq of an unknown space = %d, want 0", n)
	}
}
