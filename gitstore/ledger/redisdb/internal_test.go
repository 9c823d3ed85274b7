package redisdb

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger"
)

func TestParseURL(t *testing.T) {
	for _, tc := range []struct {
		url            string
		addrs          string
		user, password string
		db             int
		cluster, tls   bool
	}{
		{"redis://h:1/2", "h:1", "", "", 2, false, false},
		{"redis://h", "h:6379", "", "", 0, false, false},
		{"redis://[::1]:7/", "[::1]:7", "", "", 0, false, false},
		{"redis://[::1]", "[::1]:6379", "", "", 0, false, false},
		{"rediss://u:p%40%2F@h:1/0", "h:1", "u", "p@/", 0, false, true},
		{"redis://:p@q@h:1", "h:1", "", "p@q", 0, false, false},
		{"redis+cluster://h1:1,h2:2", "h1:1 h2:2", "", "", 0, true, false},
		{"rediss+cluster://u:p@h1,h2:2/", "h1:6379 h2:2", "u", "p", 0, true, true},
		{"redis+sentinel://:p@h1:1,h2/mymaster", "h1:1 h2:26379", "", "p", 0, false, false},
		{"rediss+sentinel://u:p@h1/my%2Fmaster/3?user=su&password=s%26p", "h1:26379", "u", "p", 3, false, true},
	} {
		got, err := parseURL(tc.url)
		if err != nil {
			t.Errorf("parseURL(%q) = %v, want a target", tc.url, err)
			continue
		}
		if strings.Join(got.addrs, " ") != tc.addrs || got.username != tc.user || got.password != tc.password ||
			got.db != tc.db || got.cluster != tc.cluster || (got.tls != nil) != tc.tls {
			t.Errorf("parseURL(%q) = %+v, want %+v", tc.url, got, tc)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	for _, u := range []string{
		"", "pebble", "http://h", "redis:h", "redis://", "redis://:secret@", "redis://h:0", "redis://h:70000", "redis://h:x",
		"redis://h/x", "redis://h/-1", "redis://a,b", "redis+cluster://a,,b", "redis+cluster://a/1", "redis://secret%zz@h", "redis://a b",
		"redis+sentinel://a", "redis+sentinel://a/", "redis+sentinel://a/m/x", "redis+sentinel://a/m?secret=1", "redis+sentinel://a/m?password=secret%zz",
		"redis+://a", "redis+x://a", "redis://a/0?user=x",
	} {
		_, err := parseURL(u)
		if !errors.Is(err, ErrBadURL) {
			t.Errorf("parseURL(%q) = %v, want ErrBadURL", u, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("parseURL(%q) tells the password: %v", u, err)
		}
	}
}

func TestSentinelURL(t *testing.T) {
	got, err := parseURL("redis+sentinel://h/my%2Fmaster/3?user=su&password=s%26p")
	if err != nil || got.master != "my/master" || got.sentinelUser != "su" || got.sentinelPassword != "s&p" {
		t.Errorf("parseURL of a Sentinel = %+v, %v; want master my/master, user su, password s&p", got, err)
	}
}

func TestRedacted(t *testing.T) {
	for url, want := range map[string]string{
		"pebble":                          "pebble",
		"redis://h:1/2":                   "redis://h:1/2",
		"redis://u:pw@h:1/2":              "redis://u:xxxxx@h:1/2",
		"redis://:p@w@h:1":                "redis://:xxxxx@h:1/",
		"redis+cluster://u:pw@h:1,i:2":    "redis+cluster://u:xxxxx@h:1,i:2/",
		"redis+sentinel://:pw@h/m?user=u": "redis+sentinel://:xxxxx@h/m?xxxxx",
	} {
		if got := Redacted(url); got != want {
			t.Errorf("Redacted(%q) = %q, want %q", url, got, want)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	for _, u := range []string{"redis://h:1/2", "rediss+cluster://u:p@h1,[::1]:2/", "redis://:p@@h", "redis://[::1", "redis+sentinel://:p@h/m/1?user=u&password=p", "x"} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, u string) {
		got, err := parseURL(u)
		if err != nil {
			if !errors.Is(err, ErrBadURL) {
				t.Fatalf("parseURL(%q) = %v, want ErrBadURL", u, err)
			}
			return
		}
		for _, a := range got.addrs {
			if _, port, err := net.SplitHostPort(a); err != nil || port == "" {
				t.Fatalf("parseURL(%q): address %q: %v", u, a, err)
			}
		}
	})
}

// A key is within the bounds exactly if it has the prefix and is not before start.
func TestBounds(t *testing.T) {
	text := rapid.StringOfN(rapid.SampledFrom([]rune{0, 'a', 'b', 0xff}), 0, 4, -1)
	bytes := rapid.Custom(func(rt *rapid.T) string {
		var b []byte
		for _, r := range text.Draw(rt, "text") {
			b = append(b, byte(r))
		}
		return string(b)
	})
	rapid.Check(t, func(rt *rapid.T) {
		prefix, start, key := bytes.Draw(rt, "prefix"), bytes.Draw(rt, "start"), bytes.Draw(rt, "key")
		low, high := bounds(prefix, start)
		got := key >= low[1:] && (high == "+" || key < high[1:])
		if want := strings.HasPrefix(key, prefix) && key >= start; got != want {
			rt.Fatalf("bounds(%q, %q) = %q, %q: %q within is %t, want %t", prefix, start, low, high, key, got, want)
		}
	})
}

func TestSpacesHaveTagsOfTheirOwn(t *testing.T) {
	seen := map[string]ledger.Space{}
	for _, s := range []ledger.Space{"server", "}", "{}", "a}b", "a", "%7D", "a%7Db", "{", "repo/a", "org/a"} {
		k := keysOf(s)
		_, rest, _ := strings.Cut(k.values, "{")
		tag, _, ok := strings.Cut(rest, "}")
		if !ok || tag == "" {
			t.Errorf("keysOf(%q).values = %q: no hash tag", s, k.values)
		}
		if other, twice := seen[tag]; twice {
			t.Errorf("spaces %q and %q share the tag %q", s, other, tag)
		}
		seen[tag] = s
		for _, key := range []string{k.order, k.log, k.meta, k.dropped, k.answer, k.channel} {
			if !strings.Contains(key, "{"+tag+"}") {
				t.Errorf("key %q of space %q is not under tag %q", key, s, tag)
			}
		}
	}
}

func TestDurabilityFaults(t *testing.T) {
	good := map[string]string{
		"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no", "maxmemory": "0", "maxmemory-policy": "allkeys-lru",
	}
	if got := durabilityFaults(good); len(got) > 0 {
		t.Errorf("durabilityFaults(%v) = %q, want none", good, got)
	}
	for name, value := range map[string]string{
		"appendonly": "no", "appendfsync": "everysec", "no-appendfsync-on-rewrite": "yes", "maxmemory": "100",
	} {
		bad := map[string]string{}
		for k, v := range good {
			bad[k] = v
		}
		bad[name] = value
		if got := durabilityFaults(bad); len(got) != 1 || !strings.HasPrefix(got[0], name) {
			t.Errorf("durabilityFaults with %s %s = %q, want one about it", name, value, got)
		}
	}
	if got := durabilityFaults(nil); len(got) != 4 {
		t.Errorf("durabilityFaults(nothing known) = %q, want four", got)
	}
}

// replied is an error as a server replies it.
type replied string

func (r replied) Error() string { return string(r) }
func (replied) RedisError()     {}

func TestErrorsAreTheLedgers(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want error // nil: none of the ledger's
	}{
		{replied("OOM command not allowed when used memory > 'maxmemory'. script: x, on @user_script:1."), ledger.ErrNoSpace},
		{replied("MISCONF Errors writing to the AOF file: No space left on device"), ledger.ErrNoSpace},
		{replied("LOADING Redis is loading the dataset in memory"), ledger.ErrUnavailable},
		{replied("CLUSTERDOWN The cluster is down"), ledger.ErrUnavailable},
		{replied("READONLY You can't write against a read only replica."), ledger.ErrUnavailable},
		{replied("TRYAGAIN Multiple keys request during rehashing of slot"), ledger.ErrUnavailable},
		{replied("MOVED 1 127.0.0.1:1"), ledger.ErrUnavailable},
		{replied("BUSY Redis is busy running a script."), ledger.ErrUnavailable},
		{replied("ERR max number of clients reached"), ledger.ErrUnavailable},
		{replied("NOAUTH Authentication required."), ledger.ErrUnavailable},
		{io.EOF, ledger.ErrUnavailable},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, ledger.ErrUnavailable},
		{redis.ErrPoolTimeout, ledger.ErrUnavailable},
		{replied("ERR user_script:1: a mistake of ours"), nil},
		{replied("WRONGTYPE Operation against a key holding the wrong kind of value"), nil},
	} {
		d := &DB{}
		got := d.fail(t.Context(), "apply batch to", "repo/a", fmt.Errorf("wrapped: %w", tc.err))
		if !errors.Is(got, tc.err) {
			t.Errorf("fail(%v) = %v, which hides its cause", tc.err, got)
		}
		for _, of := range []error{ledger.ErrNoSpace, ledger.ErrUnavailable, ledger.ErrClosed} {
			if errors.Is(got, of) != (of == tc.want) {
				t.Errorf("fail(%v) = %v, want it to be %v", tc.err, got, tc.want)
			}
		}
	}
}

func TestRepliesOfAnotherShape(t *testing.T) {
	b := &ledger.Batch{Space: "repo/a", Checks: []ledger.Check{ledger.Absent("k")}}
	for _, r := range []any{
		nil, "x", []any{}, []any{int64(1)}, []any{"?"}, []any{"A"}, []any{"A", "1", "2", "3", "4"}, []any{"R", int64(1)},
		[]any{"C", int64(2), "k", nil}, []any{"C", int64(0), "k", nil}, []any{"N", "k"}, []any{"L", int64(1)},
	} {
		d := &DB{known: newKnown()}
		if _, err := d.applied(b, state{}, place{}, readReply(r)); err == nil {
			t.Errorf("applied(%v) = nil, want an error", r)
		}
	}
}

func TestKnownIsBoundedAndForgets(t *testing.T) {
	k := newKnown()
	k.perHalf = 10
	now := time.Unix(0, 0)
	k.now = func() time.Time { return now }
	for i := range 100 {
		k.applied(ledger.Space(fmt.Sprint(i)), state{inc: 1, ver: int64(i + 1)}, false)
		if n := len(k.young) + len(k.old); n > 20 {
			t.Fatalf("%d spaces are known after %d, want at most 20", n, i+1)
		}
	}
	if st, err := k.get("99"); err != nil || st.ver != 100 {
		t.Errorf("get(99) = %+v, %v; want version 100", st, err)
	}
	k.applied("99", state{inc: 1, ver: 7}, false) // an answer that came late
	if st, _ := k.get("99"); st.ver != 100 {
		t.Errorf("get(99) after an older answer = %+v, want version 100", st)
	}
	now = now.Add(knownMemory + time.Second)
	if st, _ := k.get("99"); st.inc != 0 {
		t.Errorf("get(99) after %s = %+v, want nothing: the drop's own memory ends soon after", knownMemory, st)
	}
	if dropMemory <= knownMemory {
		t.Errorf("a drop is remembered for %s, want longer than a space (%s)", dropMemory, knownMemory)
	}
	_ = k.behind("99", state{}, Mark{})
	k.forget("99")
	if _, err := k.get("99"); err != nil {
		t.Errorf("get(99) after it was dropped = %v, want no error", err)
	}
}

func TestArgumentsAreInTheScriptsOrder(t *testing.T) {
	b := ledger.Batch{
		Checks:  []ledger.Check{ledger.Equal("e", []byte("v")), ledger.Before(time.UnixMicro(5).Add(time.Nanosecond))},
		Sets:    []ledger.Set{{Key: "s", Value: []byte("w")}},
		Adds:    []ledger.Add{{Key: "a", Delta: -1}},
		Deletes: []string{"d"},
	}
	args, size := applyArgs(&b, "ch", state{}, place{})
	got := fmt.Sprint(args[14:]...)
	want := fmt.Sprint(2, 1, 1, 1, "E", "e", []byte("v"), "B", "", int64(6), "s", []byte("w"), "a", int64(-1), "d")
	if got != want || size != 6 {
		t.Errorf("applyArgs = %s, size %d; want %s, size 6", got, size, want)
	}
	if !slices.Equal([]any{args[8]}, []any{"0"}) {
		t.Errorf("applyArgs of a batch without a log says %v, want 0", args[8])
	}
}
