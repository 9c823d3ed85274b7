package gitstore

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger"
)

const fuzzRepo = "repo_0123456789abcdef0123456789abcdef"

func zipped(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const (
	segmentHead = `{"form":"headgate log 1","repo":"` + fuzzRepo + `","first":3}` + "\n"
	segmentTwo  = `{"seq":3,"at":"2026-01-02T03:04:05.000006Z","data":{"a":"<&>"}}` + "\n" + `{"seq":4,"at":"2026-01-02T03:04:05.000006Z","raw":"/wA="}` + "\n"
)

func TestSegmentsOfEveryForm(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       int // entries; -1: refused
	}{
		{"two", segmentHead + segmentTwo + `{"last":4}` + "\n", 2},
		{"none", segmentHead + `{"last":2}` + "\n", -1},
		{"without its end", segmentHead + segmentTwo, -1},
		{"cut in its end", segmentHead + segmentTwo + `{"last":4}`, -1},
		{"another end", segmentHead + segmentTwo + `{"last":5}` + "\n", -1},
		{"more behind its end", segmentHead + segmentTwo + `{"last":4}` + "\n\n", -1},
		{"a gap", segmentHead + strings.Replace(segmentTwo, `"seq":4`, `"seq":5`, 1) + `{"last":5}` + "\n", -1},
		{"another first", strings.Replace(segmentHead, `"first":3`, `"first":2`, 1) + segmentTwo + `{"last":4}` + "\n", -1},
		{"of another repo", strings.Replace(segmentHead, "repo_0", "repo_1", 1) + segmentTwo + `{"last":4}` + "\n", -1},
		{"of another form", strings.Replace(segmentHead, "log 1", "log 2", 1) + segmentTwo + `{"last":4}` + "\n", -1},
		{"no JSON", segmentHead + "x\n", -1},
		{"nothing", "", -1},
		{"a bomb", segmentHead + strings.Repeat(" ", segmentMost) + segmentTwo + `{"last":4}` + "\n", -1},
	} {
		entries, err := parseSegment(bytes.NewReader(zipped(t, tc.text)), fuzzRepo)
		if (err == nil) != (tc.want >= 0) || err == nil && len(entries) != tc.want {
			t.Errorf("%s: %d entries, %v; want %d", tc.name, len(entries), err, tc.want)
		}
	}
	entries, err := parseSegment(bytes.NewReader(zipped(t, segmentHead+segmentTwo+`{"last":4}`+"\n")), fuzzRepo)
	if err != nil || string(entries[0].Data) != `{"a":"<&>"}` || string(entries[1].Data) != "\xff\x00" || entries[1].At.Nanosecond() != 6000 {
		t.Errorf("entries = %v, %v", entries, err)
	}
}

// What was written comes back byte by byte, also what is no JSON; a cut file is refused
// wherever it is cut.
func TestSegmentComesBack(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.FS = &faultFS{} })
	r := newTestRepo(t, s, "repo")
	w, err := s.newSegment(r.id, 5)
	if err != nil {
		t.Fatal(err)
	}
	datas := []string{`{"a":1}`, `{ "a": 1 }`, "", "\xff", `"<>& "`, `[1.50,1e3]`, "{}\n", `{"a":1,"a":2}`, "null", strings.Repeat("x", 1<<20)}
	at := time.UnixMicro(1_700_000_000_123_456).UTC()
	for n, data := range datas {
		if err := w.add(ledger.Entry{Seq: 5 + uint64(n), At: at, Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.add(ledger.Entry{Seq: 99}); err == nil {
		t.Error("an entry out of turn was added")
	}
	rec, err := w.finish()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	entries, err := s.readSegment(r.id, rec)
	if err != nil || len(entries) != len(datas) {
		t.Fatalf("readSegment = %d entries, %v; want %d", len(entries), err, len(datas))
	}
	for n, e := range entries {
		if e.Seq != 5+uint64(n) || !e.At.Equal(at) || string(e.Data) != datas[n] {
			t.Errorf("entry %d = %d %v %.40q, want %.40q", n, e.Seq, e.At, e.Data, datas[n])
		}
	}
	whole := mustRead(t, s.segmentPath(r.id, rec.Name))
	for cut := 0; cut < len(whole); cut += 1 + cut/20 {
		if _, err := parseSegment(bytes.NewReader(whole[:cut]), r.id); err == nil {
			t.Errorf("a segment cut at %d of %d bytes was read", cut, len(whole))
		}
	}
}

func FuzzSegment(f *testing.F) {
	f.Add(zipped(f, segmentHead+segmentTwo+`{"last":4}`+"\n"), false)
	f.Add([]byte(segmentHead+segmentTwo+`{"last":4}`+"\n"), true)
	f.Add([]byte(segmentHead+`{"seq":3,"at":null}`+"\n"), true)
	f.Add([]byte(segmentHead+`{"seq":3,"data":null,"raw":""}`+"\n"+`{"last":3}`+"\n"), true)
	f.Add([]byte(`{"form":"headgate log 1","repo":"`+fuzzRepo+`","first":18446744073709551615}`+"\n"), true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, b []byte, zip bool) {
		if zip {
			b = zipped(t, string(b))
		}
		entries, err := parseSegment(bytes.NewReader(b), fuzzRepo)
		if err != nil {
			return
		}
		for n, e := range entries {
			if e.Seq == 0 || e.Seq != entries[0].Seq+uint64(n) {
				t.Fatalf("entry %d of a segment that begins at %d is numbered %d", n, entries[0].Seq, e.Seq)
			}
			decodeLogged(e)
		}
	})
}

// A longLedger is one whose repos have a log of so many entries; they are made up when
// they are read.
type longLedger struct {
	ledger.Ledger
	newest  uint64
	trimmed atomic.Uint64
}

type longView struct {
	ledger.View
	l *longLedger
}

func (l *longLedger) Read(ctx context.Context, s ledger.Space) (ledger.View, error) {
	v, err := l.Ledger.Read(ctx, s)
	if err == nil && strings.HasPrefix(string(s), repoSpaces) {
		v = longView{v, l}
	}
	return v, err
}

func (l *longLedger) TrimLog(_ context.Context, _ ledger.Space, before uint64) error {
	l.trimmed.Store(max(l.trimmed.Load(), before-1))
	return nil
}

func (v longView) LastSeq(context.Context) (uint64, error) { return v.l.newest, nil }

func (v longView) Log(_ context.Context, after uint64, limit int) (entries []ledger.Entry, err error) {
	if after < v.l.trimmed.Load() {
		return nil, ledger.ErrLogTrimmed
	}
	tail := []byte(`","data":{"x":"` + strings.Repeat("x", 300) + `"}}`)
	for seq := after + 1; seq <= v.l.newest && len(entries) < limit; seq++ {
		entries = append(entries, ledger.Entry{Seq: seq, At: time.Now(), Data: append(
			fmt.Appendf(nil, `{"type":"session.changed","actor":{"org":"acme"},"changes":[],"session":"s%d`, seq), tail...)})
	}
	return entries, nil
}

// However many entries leave the ledger at once, a part at a time is in memory.
func TestLongLogMovesInBoundedMemory(t *testing.T) {
	const n, kept = 100_000, 1_000
	long := &longLedger{Ledger: closedAtEnd(t, pebbleIn(vfs.NewMem())(t)), newest: n + kept}
	s := openTestStore(t, func(o *Options) {
		o.Ledger, o.FS, o.Logger, o.Limits = long, &faultFS{}, quiet, Limits{UpkeepEvery: -1, LogEntries: kept}
	})
	r := newTestRepo(t, s, "repo")
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	most := uint64(0)
	for more := true; more; {
		var err error
		if more, err = r.archive(t.Context()); err != nil {
			t.Fatalf("archive: %v", err)
		}
		runtime.ReadMemStats(&now)
		most = max(most, now.HeapAlloc)
	}
	if grown := int64(most) - int64(before.HeapAlloc); grown > 48<<20 {
		t.Errorf("moving %d entries of 400 bytes took %d MiB", n, grown>>20)
	}
	if got := countKeys(t, r, segmentKeys); got < n/segmentEntries || got > n/segmentEntries+2 {
		t.Errorf("%d parts of %d entries, want one for every %d", got, n, segmentEntries)
	}
	if at := long.trimmed.Load(); at < n || at > n+kept {
		t.Errorf("the ledger's log was trimmed up to %d, want %d or a little more", at, n)
	}
	for _, after := range []uint64{0, 50_000, n - 1, n + kept/2} {
		page := mustEvents(t, r, someone, EventQuery{After: after, Limit: 10})
		if len(page.Events) != 10 || page.Events[0].Seq != after+1 || page.Events[0].Session != fmt.Sprint("s", after+1) {
			t.Errorf("events after %d = %s, want ten of them", after, typesOf(page.Events))
		}
	}
}
