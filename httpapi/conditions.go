package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An entity is what the conditions and the range of a request are about.
type entity struct {
	etag     string    // strong, with its quotes
	modified time.Time // compared in whole seconds
	size     int64
}

// A fileAnswer says what a GET or HEAD is answered with: status 200 or 206 with
// length bytes from start, or 304, 412, 416 without any.
type fileAnswer struct {
	status        int
	start, length int64
}

func (a fileAnswer) contentRange(size int64) string {
	b := append(make([]byte, 0, 64), "bytes "...)
	b = strconv.AppendInt(b, a.start, 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, a.start+a.length-1, 10)
	b = append(b, '/')
	return string(strconv.AppendInt(b, size, 10))
}

// answer evaluates the conditions of a GET or HEAD in the order of RFC 9110
// 13.2.2: If-Match, else If-Unmodified-Since; If-None-Match, else
// If-Modified-Since; then Range under If-Range.
func (e *entity) answer(r *http.Request) fileAnswer {
	h := r.Header
	switch {
	case has(h, "If-Match"):
		if !matches(h["If-Match"], e.etag, true) {
			return fileAnswer{status: http.StatusPreconditionFailed}
		}
	case has(h, "If-Unmodified-Since"):
		if at, ok := httpTime(h.Get("If-Unmodified-Since")); ok && e.seconds() > at {
			return fileAnswer{status: http.StatusPreconditionFailed}
		}
	}
	switch {
	case has(h, "If-None-Match"):
		if matches(h["If-None-Match"], e.etag, false) {
			return fileAnswer{status: http.StatusNotModified}
		}
	case has(h, "If-Modified-Since"):
		if at, ok := httpTime(h.Get("If-Modified-Since")); ok && e.seconds() <= at {
			return fileAnswer{status: http.StatusNotModified}
		}
	}
	if ranges := h["Range"]; len(ranges) == 1 && e.ifRange(h) {
		return e.ranged(ranges[0])
	}
	return fileAnswer{status: http.StatusOK, length: e.size}
}

func has(h http.Header, name string) bool { return len(h[name]) > 0 }

func (e *entity) seconds() int64 { return e.modified.Unix() }

func httpTime(s string) (unix int64, ok bool) {
	t, err := http.ParseTime(s)
	return t.Unix(), err == nil
}

// ifRange reports whether If-Range lets the range through: the same strong ETag,
// the exact date, or no such header.
func (e *entity) ifRange(h http.Header) bool {
	if !has(h, "If-Range") {
		return true
	}
	v := strings.TrimSpace(h.Get("If-Range"))
	if at, ok := httpTime(v); ok {
		return at == e.seconds()
	}
	return v == e.etag
}

// matches looks for etag in the lists of an If-Match (strong) or If-None-Match
// header.
//
//	list = "*" / 1#( [ "W/" ] DQUOTE *etagc DQUOTE )
func matches(lists []string, etag string, strong bool) bool {
	for _, list := range lists {
		if strings.TrimSpace(list) == "*" {
			return true
		}
		for list != "" {
			list = strings.TrimLeft(list, " \t,")
			tag, weak := strings.CutPrefix(list, "W/")
			if len(tag) == 0 || tag[0] != '"' {
				break // malformed from here on
			}
			end := strings.IndexByte(tag[1:], '"')
			if end < 0 {
				break
			}
			if tag[:end+2] == etag && !(weak && strong) {
				return true
			}
			list = tag[end+2:]
		}
	}
	return false
}

// ranged answers one byte range. What is malformed, of another unit or more than
// one range is ignored.
//
//	range = "bytes=" ( first "-" [ last ] / "-" suffix )
func (e *entity) ranged(header string) fileAnswer {
	whole := fileAnswer{status: http.StatusOK, length: e.size}
	unit, spec, ok := strings.Cut(header, "=")
	if !ok || !strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		return whole
	}
	from, to, ok := strings.Cut(strings.TrimSpace(spec), "-")
	from, to = strings.TrimSpace(from), strings.TrimSpace(to)
	if !ok || !isDigits(from) || !isDigits(to) || from == "" && to == "" {
		return whole
	}
	if from == "" {
		return e.suffix(clampedNumber(to))
	}
	first, last := clampedNumber(from), e.size-1
	if to != "" {
		if last = clampedNumber(to); last < first {
			return whole
		}
	}
	if first >= e.size {
		return fileAnswer{status: http.StatusRequestedRangeNotSatisfiable}
	}
	return fileAnswer{status: http.StatusPartialContent, start: first, length: min(last, e.size-1) - first + 1}
}

// suffix answers for the last n bytes.
func (e *entity) suffix(n int64) fileAnswer {
	n = min(n, e.size)
	if n == 0 {
		return fileAnswer{status: http.StatusRequestedRangeNotSatisfiable}
	}
	return fileAnswer{status: http.StatusPartialContent, start: e.size - n, length: n}
}

// clampedNumber reads digits; more than fit are the largest number.
func clampedNumber(digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 1<<63 - 1
	}
	return n
}
