package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var tenBytes = &entity{
	etag: `"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"`, size: 10,
	modified: time.Date(2026, 2, 3, 9, 12, 45, 0, time.FixedZone("", 3600)),
}

const (
	sameTime  = "Tue, 03 Feb 2026 08:12:45 GMT"
	laterTime = "Tue, 03 Feb 2026 08:12:46 GMT"
	earlier   = "Tue, 03 Feb 2026 08:12:44 GMT"
)

// The table of rest.md 7.1, row by row.
func TestConditions(t *testing.T) {
	etag := tenBytes.etag
	for _, tc := range []struct {
		headers string // "Name: value" lines
		want    fileAnswer
	}{
		{"", fileAnswer{200, 0, 10}},
		{"If-Match: " + etag, fileAnswer{200, 0, 10}},
		{"If-Match: *", fileAnswer{200, 0, 10}},
		{`If-Match: "x", ` + etag, fileAnswer{200, 0, 10}},
		{`If-Match: "x"`, fileAnswer{status: 412}},
		{"If-Match: W/" + etag, fileAnswer{status: 412}}, // a strong comparison
		{"If-Match: " + strings.Trim(etag, `"`), fileAnswer{status: 412}},
		{"If-Unmodified-Since: " + sameTime, fileAnswer{200, 0, 10}},
		{"If-Unmodified-Since: " + laterTime, fileAnswer{200, 0, 10}},
		{"If-Unmodified-Since: " + earlier, fileAnswer{status: 412}},
		{"If-Unmodified-Since: yesterday", fileAnswer{200, 0, 10}},
		{"If-Match: " + etag + "\nIf-Unmodified-Since: " + earlier, fileAnswer{200, 0, 10}}, // the second is not looked at
		{"If-None-Match: " + etag, fileAnswer{status: 304}},
		{"If-None-Match: W/" + etag, fileAnswer{status: 304}}, // a weak one
		{"If-None-Match: *", fileAnswer{status: 304}},
		{`If-None-Match: "a", "b" , ` + etag, fileAnswer{status: 304}},
		{"If-None-Match: \"a\"\nIf-None-Match: " + etag, fileAnswer{status: 304}}, // two lines are one list
		{`If-None-Match: "x"`, fileAnswer{200, 0, 10}},
		{"If-None-Match: \"x\"\nIf-Modified-Since: " + laterTime, fileAnswer{200, 0, 10}},
		{"If-Modified-Since: " + sameTime, fileAnswer{status: 304}},
		{"If-Modified-Since: " + laterTime, fileAnswer{status: 304}},
		{"If-Modified-Since: " + earlier, fileAnswer{200, 0, 10}},
		{"If-Modified-Since: 1", fileAnswer{200, 0, 10}},
		{"If-Match: \"x\"\nIf-None-Match: " + etag, fileAnswer{status: 412}},
		{"If-None-Match: " + etag + "\nRange: bytes=0-3", fileAnswer{status: 304}},
		{"Range: bytes=0-3\nIf-Range: " + etag, fileAnswer{206, 0, 4}},
		{"Range: bytes=0-3\nIf-Range: W/" + etag, fileAnswer{200, 0, 10}},
		{"Range: bytes=0-3\nIf-Range: \"x\"", fileAnswer{200, 0, 10}},
		{"Range: bytes=0-3\nIf-Range: " + sameTime, fileAnswer{206, 0, 4}},
		{"Range: bytes=0-3\nIf-Range: " + laterTime, fileAnswer{200, 0, 10}},
		{"Range: bytes=20-\nIf-Range: \"x\"", fileAnswer{200, 0, 10}},
	} {
		r := &http.Request{Header: http.Header{}}
		for line := range strings.Lines(tc.headers) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			r.Header.Add(name, value)
		}
		if got := tenBytes.answer(r); got != tc.want {
			t.Errorf("answer to %q = %+v, want %+v", tc.headers, got, tc.want)
		}
	}
}

// Case 6.2 and the forms that are ignored.
func TestCase6_2_Ranges(t *testing.T) {
	for _, tc := range []struct {
		header string
		size   int64
		want   fileAnswer
	}{
		{"bytes=0-3", 10, fileAnswer{206, 0, 4}},
		{"bytes=-4", 10, fileAnswer{206, 6, 4}},
		{"bytes=8-", 10, fileAnswer{206, 8, 2}},
		{"bytes=9-100", 10, fileAnswer{206, 9, 1}},
		{"bytes=-100", 10, fileAnswer{206, 0, 10}},
		{"bytes=10-", 10, fileAnswer{status: 416}},
		{"bytes=-0", 10, fileAnswer{status: 416}},
		{"bytes=0-", 0, fileAnswer{status: 416}},
		{"bytes=-1", 0, fileAnswer{status: 416}},
		{"bytes=0-0", 50 << 20, fileAnswer{206, 0, 1}},
		{"Bytes = 0 - 3 ", 10, fileAnswer{206, 0, 4}},
		{"bytes=0-99999999999999999999999", 10, fileAnswer{206, 0, 10}},
		{"bytes=99999999999999999999999-", 10, fileAnswer{status: 416}},
		{"bytes=3-1", 10, fileAnswer{200, 0, 10}},
		{"bytes=0-1,3-4", 10, fileAnswer{200, 0, 10}}, // OQ-F2
		{"bytes=a-b", 10, fileAnswer{200, 0, 10}},
		{"bytes=-", 10, fileAnswer{200, 0, 10}},
		{"bytes=+1-2", 10, fileAnswer{200, 0, 10}},
		{"bytes=", 10, fileAnswer{200, 0, 10}},
		{"lines=0-1", 10, fileAnswer{200, 0, 10}},
		{"bytes", 10, fileAnswer{200, 0, 10}},
	} {
		e := &entity{size: tc.size}
		if got := e.ranged(tc.header); got != tc.want {
			t.Errorf("Range: %s of %d bytes = %+v, want %+v", tc.header, tc.size, got, tc.want)
		}
	}
}

func TestRangesStayInside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := &entity{size: rapid.Int64Range(0, 1<<40).Draw(t, "size")}
		header := rapid.StringMatching(`bytes=[0-9]{0,20}-[0-9]{0,20}`).Draw(t, "range")
		switch a := e.ranged(header); {
		case a.status == 206 && (a.start < 0 || a.length < 1 || a.start+a.length > e.size):
			t.Fatalf("%s of %d bytes = %+v, not inside", header, e.size, a)
		case a.status == 200 && (a.start != 0 || a.length != e.size):
			t.Fatalf("%s of %d bytes = %+v, want all of it", header, e.size, a)
		}
	})
}

func FuzzConditions(f *testing.F) {
	f.Add("bytes=0-3", `"x", W/"y"`, sameTime)
	f.Add("bytes=-", `W/`, `W/"`)
	f.Add("=,-", `"`, "")
	f.Fuzz(func(t *testing.T, ranges, tags, ifRange string) {
		r := &http.Request{Header: http.Header{"Range": {ranges}, "If-None-Match": {tags}, "If-Range": {ifRange}}}
		a := tenBytes.answer(r)
		if a.start < 0 || a.length < 0 || a.start+a.length > tenBytes.size {
			t.Errorf("answer to %q = %+v, not inside %d bytes", r.Header, a, tenBytes.size)
		}
	})
}
