package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

func TestByteCount(t *testing.T) {
	for _, tc := range []struct {
		n    int64
		want string
	}{
		{0, "0 B"}, {1023, "1023 B"}, {1024, "1.00 KiB"}, {1536, "1.50 KiB"}, {10 << 10, "10.0 KiB"}, {999 << 10, "999 KiB"},
		{1 << 20, "1.00 MiB"}, {1000 << 10, "0.98 MiB"}, {2 << 30, "2.00 GiB"}, {1 << 40, "1.00 TiB"}, {1 << 60, "1024 PiB"},
	} {
		if got := byteCount(tc.n); got != tc.want {
			t.Errorf("byteCount(%d) = %q, want %q", tc.n, got, tc.want)
		}
	}
}

func TestProgressLine(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1_000, 0)
	p := &progressLine{out: &out, what: "saving", begun: now, now: func() time.Time { return now }}
	now = now.Add(2 * time.Second)
	p.tell(amounts{total: 4 << 30, done: 1 << 30, sent: 100 << 20, saved: 924 << 20})
	want := "\rsaving [=====               ] 1.00 GiB of 4.00 GiB, sent 100 MiB, saved 924 MiB, 512 MiB/s, 6s left"
	if got := out.String(); got != want {
		t.Errorf("the line is %q, want %q", got, want)
	}
	out.Reset()
	p.tell(amounts{total: 4 << 30, done: 2 << 30})
	if out.Len() != 0 {
		t.Errorf("the line was written again at once: %q", out.String())
	}
	now = now.Add(progressEvery)
	p.tell(amounts{total: -1, done: 5 << 20})
	if got := out.String(); !strings.HasPrefix(got, "\rsaving 5.00 MiB, sent 0 B, saved 0 B, 2.38 MiB/s") || len(got) != len(want) {
		t.Errorf("the next line is %q, want it to cover the one before", got)
	}
	out.Reset()
	p.end()
	if got := out.String(); strings.Trim(got, "\r ") != "" || !strings.HasSuffix(got, "\r") {
		t.Errorf("the end is %q, want the line taken away", got)
	}
	out.Reset()
	now = now.Add(time.Minute)
	p.tell(amounts{total: 1, done: 1})
	if out.Len() != 0 {
		t.Errorf("a line after the end: %q", out.String())
	}
}

// Off a terminal nothing is shown.
func TestProgressIsForTerminals(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := newProgressLine(f, "saving", false)
	p.tell(amounts{total: 1, done: 1})
	p.end()
	if info, err := f.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("progress in a file: %d bytes, %v", info.Size(), err)
	}
}
