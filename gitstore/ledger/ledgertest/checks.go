package ledgertest

import (
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

var checkCases = []testCase{
	{"CheckEqual", testCheckEqual},
	{"CheckAbsent", testCheckAbsent},
	{"CheckAbsentPrefix", testCheckAbsentPrefix},
	{"CheckAtMost", testCheckAtMost},
	{"CheckBefore", testCheckBefore},
	{"FirstFailedCheckIsNamed", testFirstFailedCheck},
	{"ChecksSeeTheStateBefore", testChecksSeeTheStateBefore},
	{"ChecksAlone", testChecksAlone},
}

func checks(s ledger.Space, cs ...ledger.Check) ledger.Batch {
	return ledger.Batch{Space: s, Checks: cs}
}

func testCheckEqual(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "k", "v", "empty", "")
	e.apply(t, checks(s, ledger.Equal("k", []byte("v")), ledger.Equal("empty", []byte{}), ledger.Equal("empty", nil)))
	e.refused(t, checks(s, ledger.Equal("k", []byte("w"))), "k", []byte("v"))
	e.refused(t, checks(s, ledger.Equal("k", []byte("v\x00"))), "k", []byte("v"))
	e.refused(t, checks(s, ledger.Equal("k", nil)), "k", []byte("v"))
	e.refused(t, checks(s, ledger.Equal("empty", []byte("x"))), "empty", []byte{})
	ce := e.refused(t, checks(s, ledger.Equal("gone", nil)), "gone", nil)
	if ce.Check.Kind != ledger.CheckEqual {
		t.Fatalf("CheckError.Check.Kind = %d, want CheckEqual", ce.Check.Kind)
	}
}

func testCheckAbsent(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "k", "v", "empty", "", "k/below", "x")
	e.apply(t, checks(s, ledger.Absent("gone"), ledger.Absent("k/"), ledger.Absent("K")))
	e.refused(t, checks(s, ledger.Absent("k")), "k", []byte("v"))
	e.refused(t, checks(s, ledger.Absent("empty")), "empty", []byte{})
	e.apply(t, ledger.Batch{Space: s, Deletes: []string{"k"}})
	e.apply(t, checks(s, ledger.Absent("k")))
}

func testCheckAbsentPrefix(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "a", "0", "a/b", "1", "a/c", "2", "b", "3", "\xff\xff", "4", "%d", "5", "{t}/x", "6", "z\x00", "7")
	for _, free := range []string{"a/a", "a/b/", "a0", "a.", "c", "\xff\x00", "\xff\xff\xff", "%s", "{t}/y", "{t}0", "z\x00\x00", "z\x01"} {
		e.apply(t, checks(s, ledger.AbsentPrefix(free)))
	}
	for _, tc := range []struct{ prefix, key, present string }{
		{"a", "a", "0"}, // the key itself begins with it
		{"a/", "a/b", "1"},
		{"a/c", "a/c", "2"},
		{"\xff", "\xff\xff", "4"},
		{"\xff\xff", "\xff\xff", "4"},
		{"%", "%d", "5"},
		{"{", "{t}/x", "6"},
		{"{t}", "{t}/x", "6"},
		{"z", "z\x00", "7"},
	} {
		ce := e.refused(t, checks(s, ledger.AbsentPrefix(tc.prefix)), tc.key, []byte(tc.present))
		if ce.Check.Key != tc.prefix {
			t.Fatalf("CheckError.Check.Key = %q, want the prefix %q", ce.Check.Key, tc.prefix)
		}
	}
	e.apply(t, ledger.Batch{Space: s, Deletes: []string{"a/b", "a/c"}})
	e.apply(t, checks(s, ledger.AbsentPrefix("a/")))
}

func testCheckAtMost(t *testing.T, e *env) {
	s := newSpace()
	b := ledger.Batch{Space: s, Checks: []ledger.Check{ledger.AtMost("n", 10)}, Adds: []ledger.Add{{Key: "n", Delta: 7}}}
	e.apply(t, b)
	e.refused(t, b, "n", []byte("14"))
	e.want(t, s, "n", []byte("7"))
	b.Adds[0].Delta = 3
	e.apply(t, b)
	b.Adds[0].Delta = 1
	e.refused(t, b, "n", []byte("11"))
	b.Adds[0].Delta = -20
	e.apply(t, b)
	e.want(t, s, "n", []byte("-10"))
	e.apply(t, checks(s, ledger.AtMost("n", -10), ledger.AtMost("absent", 0)))
	e.refused(t, checks(s, ledger.AtMost("n", -11)), "n", []byte("-10"))
	e.refused(t, checks(s, ledger.AtMost("absent", -1)), "absent", []byte("0"))
	e.want(t, s, "absent", nil)
	e.set(t, s, "text", "many")
	e.fails(t, checks(s, ledger.AtMost("text", 5)), ledger.ErrInvalidBatch)
}

func testCheckBefore(t *testing.T, e *env) {
	s := newSpace()
	now := e.now(t)
	e.apply(t, checks(s, ledger.Before(now.Add(time.Hour))))
	ce := e.refusedBefore(t, checks(s, ledger.Before(now)))
	at, err := time.Parse(time.RFC3339, string(ce.Present))
	if err != nil || at.Before(now.Truncate(time.Second)) {
		t.Fatalf("CheckError.Present = %q, want the clock in RFC 3339, not before %s", ce.Present, now)
	}
	if e.in.SetClock == nil {
		return
	}
	end := now.Add(time.Minute).Truncate(time.Microsecond)
	e.in.SetClock(end.Add(-time.Microsecond))
	e.apply(t, checks(s, ledger.Before(end)))
	e.in.SetClock(end)
	e.refusedBefore(t, checks(s, ledger.Before(end)))
	e.in.SetClock(end.Add(-time.Hour)) // time does not run back
	e.refusedBefore(t, checks(s, ledger.Before(end)))
}

func testFirstFailedCheck(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "a", "1", "b", "2")
	good := ledger.Equal("a", []byte("1"))
	e.refused(t, checks(s, good, ledger.Absent("b"), ledger.Absent("a")), "b", []byte("2"))
	e.refused(t, checks(s, good, ledger.Absent("a"), ledger.Absent("b")), "a", []byte("1"))
	e.refused(t, checks(s, ledger.Equal("c", nil), ledger.AbsentPrefix("a")), "c", nil)
}

func testChecksSeeTheStateBefore(t *testing.T, e *env) {
	s := newSpace()
	e.set(t, s, "d/x", "old")
	e.apply(t, ledger.Batch{
		Space:  s,
		Checks: []ledger.Check{ledger.Absent("new"), ledger.AbsentPrefix("new/")},
		Sets:   []ledger.Set{{Key: "new", Value: []byte("1")}, {Key: "new/x", Value: []byte("2")}},
	})
	e.refused(t, ledger.Batch{
		Space:   s,
		Checks:  []ledger.Check{ledger.AbsentPrefix("d/")},
		Deletes: []string{"d/x"},
	}, "d/x", []byte("old"))
	e.apply(t, ledger.Batch{
		Space:   s,
		Checks:  []ledger.Check{ledger.Equal("d/x", []byte("old"))},
		Deletes: []string{"d/x"},
	})
	e.want(t, s, "d/x", nil)
}

// A batch of nothing but checks answers with the space's last number.
func testChecksAlone(t *testing.T, e *env) {
	s := newSpace()
	e.apply(t, ledger.Batch{Space: s, Log: []byte("one")})
	e.apply(t, ledger.Batch{Space: s, Log: []byte{}}) // an empty entry is an entry
	if r := e.apply(t, checks(s, ledger.Absent("k"))); r.Seq != 2 || r.At.IsZero() {
		t.Fatalf("Apply of checks alone = %+v, want number 2 and a time", r)
	}
	if n := e.lastSeq(t, s); n != 2 {
		t.Fatalf("LastSeq() = %d, want 2", n)
	}
}
